use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_ports::{
    ApiErrorKind, ClusterLookups, ClusterObjects, Fut, HostError, OfflineStore, Remains, Retry,
    StatusSink, StatusUpdate, StoredCopy, TokenAsk,
};
use ferrolet_testkit::{FakeObjects, PodBuilder, World, pod};
use ferrolet_types::{
    Pod, PodUid, SourceUpdate, Timestamp,
    pod::{MIRROR_ANNOTATION, PodSource, PodView as _},
};
use k8s_openapi::api::core::v1::{
    PodStatus, SecretVolumeSource, Service, ServiceSpec, Volume, VolumeMount,
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, advance, sleep},
};

use super::{
    Offline,
    ledger::{Verdict, judge},
    record::{Record, visible},
};

/// A disk that outlives the agent, and can be full.
#[derive(Clone, Default)]
struct FakeStore {
    files: Arc<Mutex<BTreeMap<PodUid, Vec<u8>>>>,
    is_full: Arc<Mutex<bool>>,
}

impl FakeStore {
    fn uids(&self) -> Vec<String> {
        let files = self.files.lock().unwrap();
        files.keys().map(ToString::to_string).collect()
    }

    fn text(&self, uid: &str) -> String {
        let files = self.files.lock().unwrap();
        String::from_utf8(files[&PodUid::new(uid)].clone()).unwrap()
    }

    fn put(&self, uid: &str, content: &[u8]) {
        let mut files = self.files.lock().unwrap();
        files.insert(PodUid::new(uid), content.to_vec());
    }
}

impl OfflineStore for FakeStore {
    fn read_all(&self) -> Fut<'_, Result<Vec<StoredCopy>, HostError>> {
        let files = self.files.lock().unwrap();
        let copies = files
            .iter()
            .map(|(uid, content)| StoredCopy { uid: uid.clone(), content: Ok(content.clone()) });
        Box::pin(std::future::ready(Ok(copies.collect())))
    }

    fn write<'a>(&'a self, uid: &'a PodUid, content: &'a [u8]) -> Fut<'a, Result<(), HostError>> {
        let answer = if *self.is_full.lock().unwrap() {
            Err(HostError {
                attempt: "write".to_owned(),
                cause: "no space".to_owned(),
                retry: Retry::Later,
            })
        } else {
            self.put(uid.as_str(), content);
            Ok(())
        };
        Box::pin(std::future::ready(answer))
    }

    fn remove<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>> {
        self.files.lock().unwrap().remove(uid);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Services and classes that a server has told, or has not.
struct FakeLookups(Option<Vec<Arc<Service>>>);

impl ClusterLookups for FakeLookups {
    fn services(&self) -> Option<Vec<Arc<Service>>> {
        self.0.clone()
    }

    fn runtime_handler(&self, class: &str) -> Option<String> {
        self.0.is_some().then(|| format!("handler-of-{class}"))
    }
}

struct NoSink;

impl StatusSink for NoSink {
    fn publish(&self, _: StatusUpdate) {}
    fn forget(&self, _: &PodUid) {}
}

fn service(namespace: &str, name: &str) -> Arc<Service> {
    let mut service = Service {
        spec: Some(ServiceSpec {
            cluster_ip: Some("10.0.0.1".to_owned()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    service.metadata.namespace = Some(namespace.to_owned());
    service.metadata.name = Some(name.to_owned());
    Arc::new(service)
}

/// One life of the agent, as far as copies are concerned.
struct Life {
    offline: Offline,
    objects: Arc<dyn ClusterObjects>,
    lookups: Arc<dyn ClusterLookups>,
    sink: Arc<dyn StatusSink>,
    updates: mpsc::Receiver<SourceUpdate>,
    task: JoinHandle<()>,
}

impl Life {
    async fn begin(store: &FakeStore, objects: &FakeObjects, is_server_there: bool) -> Self {
        let offline = Offline::open(Arc::new(store.clone())).await;
        let told = is_server_there.then(|| {
            vec![
                service("default", "kubernetes"),
                service("default", "web"),
                service("elsewhere", "web"),
            ]
        });
        let lookups = offline.lookups(Arc::new(FakeLookups(told)));
        let (sender, updates) = mpsc::channel(4);
        Self {
            objects: offline.objects(Arc::new(objects.clone())),
            sink: offline.sink(Arc::new(NoSink)),
            task: tokio::spawn(offline.clone().run(lookups.clone(), sender)),
            lookups,
            offline,
            updates,
        }
    }

    fn publish(&self, pod: &Pod, phase: &str) {
        let mut shown = (**pod).clone();
        shown.status = Some(PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() });
        self.sink.publish(StatusUpdate {
            pod: Arc::new(shown),
            version: 1,
            remains: Remains::Active,
        });
    }

    /// What the stand-in delivers; `None` when it stays silent.
    async fn stand_in(&mut self) -> Option<Vec<Pod>> {
        let update = tokio::time::timeout(Duration::from_secs(60), self.updates.recv()).await;
        let update = update.ok()??;
        assert!(update.is_provisional && update.source == PodSource::Api);
        Some(update.pods.into_iter().map(|it| it.pod).collect())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn with_secret(name: &str) -> PodBuilder {
    pod(name)
        .uid(name)
        .container("main", "image")
        .edit_container("main", |container| {
            container.volume_mounts =
                Some(vec![VolumeMount { name: "keys".to_owned(), ..VolumeMount::default() }]);
        })
        .edit_spec(|spec| {
            spec.runtime_class_name = Some("fast".to_owned());
            spec.volumes = Some(vec![Volume {
                name: "keys".to_owned(),
                secret: Some(SecretVolumeSource {
                    secret_name: Some("keys".to_owned()),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            }]);
        })
}

fn ask(pod: &Pod) -> TokenAsk {
    TokenAsk {
        namespace: "default".to_owned(),
        service_account: "robot".to_owned(),
        audiences: vec!["them".to_owned()],
        lifetime: Some(Duration::from_secs(600)),
        bound_pod: Some((pod.key(), pod.uid())),
    }
}

async fn settle() {
    sleep(Duration::from_secs(1)).await;
}

#[test]
fn only_pods_that_have_to_run_keep_a_copy() {
    let check = |name: &str, pod: Pod, published: Option<&str>, expected: Verdict| {
        let status = published
            .map(|phase| PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() });
        assert_eq!(judge(&pod, status.as_ref()), expected, "{name}");
    };
    let plain = || pod("a").container("main", "image");
    let told = |phase: &str| {
        let phase = phase.to_owned();
        plain().edit(|pod| pod.status.get_or_insert_default().phase = Some(phase))
    };
    check("taken", plain().build(), Some("Pending"), Verdict::Keep);
    check("running", plain().build(), Some("Running"), Verdict::Keep);
    check("not taken yet", plain().build(), None, Verdict::Wait);
    let over = [
        ("ended, untold", plain().build(), Some("Succeeded")),
        ("failed, untold", plain().build(), Some("Failed")),
        ("ended", told("Succeeded").build(), None),
        ("failed", told("Failed").build(), Some("Running")),
        ("leaving", plain().deleting(Timestamp::from_second(1), 30).build(), Some("Running")),
        ("a mirror", plain().annotation(MIRROR_ANNOTATION, "x").build(), Some("Running")),
        ("static", plain().static_file().build(), Some("Running")),
    ];
    for (name, pod, published) in over {
        check(name, pod, published, Verdict::Drop);
    }
}

#[test]
fn a_copy_that_is_damaged_is_refused_without_quoting_it() {
    let uid = PodUid::new("a");
    let record = Record {
        pod: (*with_secret("a").build()).clone(),
        secrets: BTreeMap::new(),
        config_maps: BTreeMap::from([("absent".to_owned(), None)]),
        tokens: BTreeMap::new(),
        services: vec![service("default", "web")],
        runtime_handler: Some("h".to_owned()),
    };
    let good = record.encode().unwrap();
    let read = Record::decode(&uid, &good).ok().unwrap();
    assert!(read.encode().unwrap() == good && read.config_maps == record.config_maps);
    let text = String::from_utf8(good.clone()).unwrap();
    let swapped = |from: &str, to: &str| text.replacen(from, to, 1).into_bytes();
    for (content, complaint) in [
        (Vec::new(), "parse it"),
        (b"null".to_vec(), "parse it"),
        (good[..good.len() / 2].to_vec(), "parse it"),
        (swapped("\"version\":1", "\"version\":2"), "its version is 2"),
        (swapped("\"uid\":\"a\"", "\"uid\":\"b\""), "it holds pod"),
        (swapped("\"secrets\":{}", "\"secrets\":{\"s\":\"hush\"}"), "parse it"),
    ] {
        let error = Record::decode(&uid, &content).err().unwrap().to_string();
        assert!(error.starts_with(complaint), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
}

#[test]
fn a_pod_sees_the_services_of_its_namespace_and_the_api_servers() {
    let all = [
        service("elsewhere", "web"),
        service("default", "web"),
        service("default", "kubernetes"),
        service("elsewhere", "kubernetes"),
    ];
    let check = |namespace: &str, has_links: Option<bool>, expected: &[&str]| {
        let pod = pod("a")
            .namespace(namespace)
            .edit_spec(|spec| spec.enable_service_links = has_links)
            .build();
        let seen: Vec<String> = visible(&pod, &all)
            .iter()
            .map(|it| {
                let meta = &it.metadata;
                let part = |text: &Option<String>| text.clone().unwrap_or_default();
                format!("{}/{}", part(&meta.namespace), part(&meta.name))
            })
            .collect();
        assert_eq!(seen, expected);
    };
    check("default", None, &["default/kubernetes", "default/web"]);
    check("default", Some(false), &["default/kubernetes"]);
    check(
        "elsewhere",
        Some(true),
        &["default/kubernetes", "elsewhere/kubernetes", "elsewhere/web"],
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_without_the_server_a_pod_finds_everything_it_needs() {
    let (world, store) = (World::new(), FakeStore::default());
    let server = FakeObjects::new(world.clock());
    server.set_secret("keys", Some(&[("word", "hush")]));
    let survivor = with_secret("survivor").build();
    {
        let life = Life::begin(&store, &server, true).await;
        life.offline.note_api_set(std::slice::from_ref(&survivor));
        life.publish(&survivor, "Running");
        life.objects.get_secret("default", "keys").await.unwrap();
        let missing = life.objects.get_secret("default", "optional").await;
        assert!(missing.unwrap_err().is_not_found());
        life.objects.get_token(&ask(&survivor)).await.unwrap();
        settle().await;
        assert_eq!(store.uids(), ["survivor"]);
    }
    // Long enough for the token to expire.
    advance(Duration::from_secs(3600)).await;
    server.set_outage(Some(ApiErrorKind::Unavailable));
    let began = Instant::now();
    let mut life = Life::begin(&store, &server, false).await;
    let pods = life.stand_in().await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].spec, survivor.spec);
    assert_eq!(pods[0].api_phase().unwrap().as_str(), "Running");
    let secret = life.objects.get_secret("default", "keys").await.unwrap();
    assert_eq!(secret.data.as_ref().unwrap()["word"].0, b"hush");
    let token = life.objects.get_token(&ask(&survivor)).await.unwrap();
    assert!(token.text == "token-1" && token.expires < world.now());
    assert_eq!(life.lookups.services().unwrap().len(), 2);
    let handler = life.lookups.runtime_handler("fast");
    assert_eq!(handler.as_deref(), Some("handler-of-fast"));
    assert_eq!(life.lookups.runtime_handler("other"), None);

    // The server is back: what it says counts, and what it takes away is gone.
    server.set_outage(None);
    server.set_secret("keys", Some(&[("word", "new")]));
    life.offline.note_api_set(std::slice::from_ref(&survivor));
    assert_eq!(life.lookups.services(), None);
    let secret = life.objects.get_secret("default", "keys").await.unwrap();
    assert_eq!(secret.data.as_ref().unwrap()["word"].0, b"new");
    let token = life.objects.get_token(&ask(&survivor)).await.unwrap();
    assert_eq!(token.text, "token-2");
    life.publish(&survivor, "Running");
    settle().await;
    assert!(store.text("survivor").contains("token-2"));
    server.set_secret("keys", None);
    let gone = life.objects.get_secret("default", "keys").await;
    assert!(gone.unwrap_err().is_not_found());
    life.offline.note_api_set(&[]);
    settle().await;
    assert!(store.uids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_speaks_in_time_needs_no_stand_in() {
    let (world, store) = (World::new(), FakeStore::default());
    let server = FakeObjects::new(world.clock());
    let pod = with_secret("a").build();
    let mut life = Life::begin(&store, &server, true).await;
    sleep(Duration::from_secs(9)).await;
    life.offline.note_api_set(std::slice::from_ref(&pod));
    assert_eq!(life.stand_in().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_or_leaves_does_not_start_again() {
    let (world, store) = (World::new(), FakeStore::default());
    let server = FakeObjects::new(world.clock());
    let [stays, ends, leaves] = ["stays", "ends", "leaves"].map(|name| with_secret(name).build());
    {
        let life = Life::begin(&store, &server, true).await;
        let all = [stays.clone(), ends.clone(), leaves.clone()];
        life.offline.note_api_set(&all);
        all.iter().for_each(|pod| life.publish(pod, "Running"));
        settle().await;
        assert_eq!(store.uids(), ["ends", "leaves", "stays"]);
        // Nobody can tell the server, but the disk knows.
        life.publish(&ends, "Succeeded");
        let leaves = with_secret("leaves").deleting(world.now(), 30).build();
        life.offline.note_api_set(&[stays, ends, leaves]);
        settle().await;
        assert_eq!(store.uids(), ["stays"]);
    }
    // An ending while the server is still away counts as well.
    let mut life = Life::begin(&store, &server, false).await;
    let pods = life.stand_in().await.unwrap();
    assert_eq!(pods.len(), 1);
    life.publish(&pods[0], "Failed");
    settle().await;
    assert!(store.uids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_damaged_copy_is_passed_over_and_later_replaced_or_removed() {
    let (world, store) = (World::new(), FakeStore::default());
    let server = FakeObjects::new(world.clock());
    store.put("wanted", b"{\"version\":1,\"pod\":");
    store.put("unwanted", b"\xff\xfe");
    let mut life = Life::begin(&store, &server, false).await;
    assert_eq!(life.stand_in().await, Some(Vec::new()));
    settle().await;
    // Nothing is thrown away before the server has spoken.
    assert_eq!(store.uids(), ["unwanted", "wanted"]);
    let wanted = with_secret("wanted").build();
    life.offline.note_api_set(std::slice::from_ref(&wanted));
    life.publish(&wanted, "Running");
    settle().await;
    assert_eq!(store.uids(), ["wanted"]);
    assert!(Record::decode(&PodUid::new("wanted"), store.text("wanted").as_bytes()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_tried_again() {
    let (world, store) = (World::new(), FakeStore::default());
    let server = FakeObjects::new(world.clock());
    *store.is_full.lock().unwrap() = true;
    let life = Life::begin(&store, &server, true).await;
    let pod = with_secret("a").build();
    life.offline.note_api_set(std::slice::from_ref(&pod));
    life.publish(&pod, "Running");
    settle().await;
    assert!(store.uids().is_empty());
    *store.is_full.lock().unwrap() = false;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.uids(), ["a"]);
}

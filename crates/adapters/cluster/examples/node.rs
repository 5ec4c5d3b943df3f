//! The adapter by hand against a real API server: a node's kubeconfig in, what happens out.
//!
//! `cargo run -p ferrolet-cluster --example node -- KUBECONFIG NODE [SECONDS]` registers the node
//! if it is missing, keeps its lease, records an event, follows its pods, the config maps they name
//! and their tokens, and prints what it sees. `… --example node -- bootstrap KUBECONFIG NODE
//! DIRECTORY` joins with a bootstrap token and writes the kubeconfig there; `… -- rotate KUBECONFIG
//! NODE DIRECTORY` replaces the client certificate and asks for a serving one.

use std::{
    error::Error,
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ferrolet_cluster::{
    api::{Clients, NodeApi, Pace},
    certificates::{self, CertificateFacts, Rotation, Wanted},
    client::Rate,
    events::{self, EventSink},
    kept, kubeconfig,
    kubeconfig::Credentials,
    lease::{LeaseKeeper, LeasePlan},
    objects::{Objects, Strategy},
    pods_source,
    tls::Identity,
    tokens::Tokens,
};
use ferrolet_ports::{
    CertStore, Clock, ClusterApi, ClusterObjects, Event, EventKind, EventObject, Events, Pair,
    PairName, ReadFile, TokenAsk,
};
use ferrolet_types::{Timestamp, pod::PodView, references};
use k8s_openapi::api::{core::v1::Service, node::v1::RuntimeClass};
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Disk;

impl ReadFile for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }
}

struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp(jiff::Timestamp::now())
    }
}

/// A certificate directory, without the care that the real one takes.
struct Directory(PathBuf);

impl CertStore for Directory {
    fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)
    }
    fn read(&self, file: &str) -> io::Result<Option<String>> {
        Ok(fs::read_to_string(self.0.join(file)).ok())
    }
    fn write(&self, file: &str, text: &str, _mode: u32) -> io::Result<()> {
        fs::write(self.0.join(file), text)
    }
    fn current(&self, name: PairName) -> io::Result<Option<Pair>> {
        match fs::read_to_string(self.current_path(name)) {
            Ok(text) => Ok(Pair::from_pem(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
    fn update(&self, name: PairName, pair: &Pair, now: Timestamp) -> io::Result<()> {
        let file = self.0.join(name.file_at(now));
        fs::write(&file, pair.to_pem())?;
        let link = self.current_path(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(file, link)
    }
    fn current_path(&self, name: PairName) -> PathBuf {
        self.0.join(name.current_file())
    }
    fn pending_key(&self) -> io::Result<Option<String>> {
        Ok(fs::read_to_string(self.0.join("kubelet-client.key.tmp")).ok())
    }
    fn set_pending_key(&self, key: Option<&str>) -> io::Result<()> {
        let file = self.0.join("kubelet-client.key.tmp");
        match key {
            Some(key) => fs::write(file, key),
            None => fs::remove_file(file),
        }
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["bootstrap", file, node, directory] => bootstrap(file, node, directory).await,
        ["rotate", file, node, directory] => rotate(file, node, directory).await,
        [file, node] => run(file, node, 20).await,
        [file, node, seconds] => run(file, node, seconds.parse()?).await,
        _ => Err("KUBECONFIG NODE [SECONDS], or bootstrap KUBECONFIG NODE DIRECTORY".into()),
    }
}

fn connect(file: &str) -> Outcome<(Clients, Identity, kubeconfig::Access)> {
    let access = kubeconfig::load(Path::new(file), &Disk)?;
    let identity = Identity::default();
    if let Credentials::Certificate { certificate, key, .. } = &access.credentials {
        identity.replace(certificate, key)?;
    }
    let files: Arc<dyn ReadFile> = Arc::new(Disk);
    let limited = |per_second, burst| Rate::Limited { per_second, burst };
    let pace = Pace {
        work: limited(50.0, 100),
        events: limited(50.0, 100),
        heartbeat_timeout: Duration::from_secs(10),
    };
    let clients = Clients::new(&access, &identity, &files, pace)?;
    Ok((clients, identity, access))
}

async fn bootstrap(file: &str, node: &str, directory: &str) -> Outcome<()> {
    let (clients, _, access) = connect(file)?;
    let directory = PathBuf::from(directory);
    let store: Arc<dyn CertStore> = Arc::new(Directory(directory.clone()));
    let pair = certificates::bootstrap(&clients.work, &store, &Wall, node).await?;
    let facts = CertificateFacts::read(&pair.certificate)?;
    say(&format!("joined as {} until {}", facts.common_name, facts.not_after));
    let current = store.current_path(PairName::Client).display().to_string();
    let text = kubeconfig::write_bootstrapped(&access, &current);
    fs::write(directory.join("kubeconfig"), text)?;
    let addresses = [IpAddr::from([127, 0, 0, 1])].into();
    let own = certificates::self_signed(node, &addresses, Wall.now())?;
    fs::write(directory.join("kubelet.crt"), own.certificate)?;
    Ok(())
}

/// Replaces the client certificate at once and asks for a serving certificate, which somebody has
/// to approve.
async fn rotate(file: &str, node: &str, directory: &str) -> Outcome<()> {
    let (clients, identity, _) = connect(file)?;
    let address = k8s_openapi::api::core::v1::NodeAddress {
        type_: "InternalIP".to_owned(),
        address: "127.0.0.1".to_owned(),
    };
    let wishes = [
        Some(Wanted::client(node)),
        certificates::serving_for(node, &[address], certificates::Least::Address),
    ];
    for wanted in wishes.into_iter().flatten() {
        let name = wanted.name;
        let (_wish, wanted) = watch::channel(Some(wanted));
        let (current, mut pairs) = watch::channel(None);
        let rotation = Rotation {
            client: clients.work.clone(),
            store: Arc::new(Directory(PathBuf::from(directory))),
            clock: Arc::new(Wall),
            name,
            wanted,
            current,
            outcome: watch::Sender::default(),
        };
        let task = tokio::spawn(rotation.run());
        pairs.changed().await?;
        let pair: Pair = pairs.borrow().clone().ok_or("no pair")?;
        let facts = CertificateFacts::read(&pair.certificate)?;
        say(&format!("{}: {facts:?}", name.prefix()));
        if name == PairName::Client {
            identity.replace(pair.certificate.as_bytes(), pair.key.as_bytes())?;
            clients.reconnect();
            let api = NodeApi::new(clients.clone(), node.to_owned());
            let node = api.get_node().await?;
            say(&format!("still {:?} with the new certificate", node.metadata.name));
        }
        task.abort();
    }
    Ok(())
}

async fn run(file: &str, node: &str, seconds: u64) -> Outcome<()> {
    let began = Instant::now();
    let (clients, _, _) = connect(file)?;
    let clock: Arc<dyn Clock> = Arc::new(Wall);
    let api = Arc::new(NodeApi::new(clients.clone(), node.to_owned()));
    let mut shown = std::collections::BTreeSet::new();
    match api.get_node().await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => {
            let wanted = json!({"metadata": {"name": node}, "spec": {}});
            api.create_node(&serde_json::from_value(wanted)?).await?;
        }
        Err(error) => return Err(error.into()),
    }
    say(&format!("node is there after {:?}", began.elapsed()));
    let plan = LeasePlan { node_name: node.to_owned(), duration: Duration::from_secs(40) };
    let lease = LeaseKeeper::new(clients.heartbeat.clone(), Arc::clone(&clock), plan);
    tokio::spawn(lease.run());
    let (sink, writer) =
        events::channel(clients.events.clone(), node.to_owned(), Arc::clone(&clock));
    tokio::spawn(writer.run());
    sink.record(Event {
        object: EventObject::Node,
        kind: EventKind::Normal,
        reason: "Starting".to_owned(),
        message: String::new(),
    });
    let services = kept::Kept::<Service>::default();
    tokio::spawn(services.clone().run(clients.work.clone()));
    let classes = kept::Kept::<RuntimeClass>::default();
    tokio::spawn(classes.clone().run(clients.work.clone()));
    services.synced().await;
    classes.synced().await;
    let n_services = services.all().len();
    say(&format!("{n_services} services, {} classes", classes.all().len()));
    let tokens = Tokens::new(clients.work.clone(), Arc::clone(&clock));
    let objects = Arc::new(Objects::new(clients.work.clone(), tokens, Strategy::Watch));
    let mut changes = objects.changes();
    let (sender, mut updates) = mpsc::channel(8);
    let (client, name) = (clients.work.clone(), node.to_owned());
    tokio::spawn(async move { pods_source::run(client, &name, clock, sender).await });
    let end = began + Duration::from_secs(seconds);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => return Ok(()),
            Ok(change) = changes.recv() => {
                let found = objects.get_config_map(&change.namespace, &change.name).await;
                let size = found.map(|it| it.data.as_ref().map_or(0, |data| data.len()));
                say(&format!("{:?} {}/{} changed: {size:?} keys", change.kind, change.namespace, change.name));
            }
            Some(update) = updates.recv() => for sourced in update.pods {
                let version = sourced.pod.metadata.resource_version.clone();
                if shown.insert(version) {
                    let (api, objects, sink) = (Arc::clone(&api), Arc::clone(&objects), sink.clone());
                    tokio::spawn(async move { show(&sourced.pod, &api, &objects, &sink).await });
                }
            },
        }
    }
}

async fn show(pod: &ferrolet_types::Pod, api: &NodeApi, objects: &Arc<Objects>, sink: &EventSink) {
    let key = pod.key();
    objects.register(pod);
    let version = pod.metadata.resource_version.as_deref().unwrap_or_default();
    say(&format!("pod {key} at {version} refers to {:?}", references(pod)));
    if pod.deletion_time().is_some() {
        let (uid, now) = (pod.uid(), ferrolet_types::GracePeriod::from_secs(0));
        let done = api.delete_pod(&key, &uid, Some(now));
        say(&format!("pod {key} deleted: {:?}", done.await));
        objects.unregister(&pod.uid());
        return;
    }
    let ask = TokenAsk {
        namespace: key.namespace.to_string(),
        service_account: pod
            .spec_ref()
            .service_account_name
            .clone()
            .unwrap_or_else(|| "default".to_owned()),
        audiences: Vec::new(),
        lifetime: Some(Duration::from_secs(3607)),
        bound_pod: Some((key.clone(), pod.uid())),
    };
    say(&format!("token of {key}: {:?}", objects.get_token(&ask).await));
    let began = Instant::now();
    for name in references(pod).config_maps {
        while let Err(error) = objects.get_config_map(&key.namespace, &name).await {
            say(&format!("config map {name} of {key}: {error}"));
        }
    }
    say(&format!("config maps of {key} after {:?}", began.elapsed()));
    let is_running = pod.api_phase() == Some(ferrolet_types::pod::Phase::Running);
    if !is_running {
        let patch =
            json!({"metadata": {"uid": &*pod.uid().to_string()}, "status": {"phase": "Running"}});
        let patched = api.patch_pod_status(&key, &patch).await;
        say(&format!(
            "status of {key}: {:?}",
            patched.map(|it| it.metadata.resource_version.clone())
        ));
        for _ in 0..3 {
            sink.record(Event {
                object: EventObject::Pod {
                    uid: pod.uid(),
                    key: key.clone(),
                    field_path: Some("spec.containers{main}".to_owned()),
                },
                kind: EventKind::Normal,
                reason: "Started".to_owned(),
                message: "Container started".to_owned(),
            });
        }
    }
}

#[expect(clippy::print_stdout, reason = "an example talks to its user")]
fn say(text: &str) {
    println!("{text}");
}

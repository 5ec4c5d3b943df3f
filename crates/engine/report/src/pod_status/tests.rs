//! Statuses on their way, in paused time: in order, in parallel, through outages, to the right
//! object.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{ApiErrorKind, Remains, StatusBacklog as _, StatusSink as _, StatusUpdate};
use ferrolet_testkit::{FakeClusterApi, Request, World, pod};
use ferrolet_types::{
    Pod, PodKey, Timestamp,
    pod::{MIRROR_ANNOTATION, PodView as _, RestartPolicy},
};
use k8s_openapi::{
    api::core::v1::{
        self as api, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, PodCondition, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    StatusReporter,
    ledger::{Ledger, Outcome},
    run,
};

const PATIENCE: Duration = Duration::from_secs(30);
const N_WRITERS: usize = 8;

struct Scene {
    api: FakeClusterApi,
    reporter: Arc<StatusReporter>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Scene {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Scene {
    fn begin() -> Self {
        let (world, api) = (World::new(), FakeClusterApi::new("node"));
        let reporter = StatusReporter::new();
        let writing = run(reporter.clone(), Arc::new(api.clone()), world.clock(), N_WRITERS);
        let (mut watch, notes) = (api.watch_pods(), reporter.clone());
        let watching = async move {
            loop {
                notes.note_api_set(&watch.borrow_and_update().clone());
                if watch.changed().await.is_err() {
                    return;
                }
            }
        };
        Self { tasks: [tokio::spawn(writing), tokio::spawn(watching)], api, reporter }
    }

    /// A pod with one container, in the API and in the watch.
    async fn add(&self, name: &str) -> Pod {
        let pod = pod(name).container("main", "image").build();
        let pod = self.api.put_pod(&pod);
        sleep(Duration::from_millis(1)).await;
        pod
    }

    fn publish(&self, pod: &Pod, version: u64, status: PodStatus) {
        self.tell(pod, version, status, Remains::Active);
    }

    fn settle(&self, pod: &Pod, version: u64, status: PodStatus) {
        self.tell(pod, version, status, Remains::Settled);
    }

    fn tell(&self, pod: &Pod, version: u64, status: PodStatus, remains: Remains) {
        let mut shown = api::Pod::clone(pod);
        shown.status = Some(status);
        self.reporter.publish(StatusUpdate { pod: Arc::new(shown), version, remains });
    }

    async fn until_phase(&self, key: &PodKey, phase: &str) {
        let is_so = |api: &FakeClusterApi| phase_of(api, key).as_deref() == Some(phase);
        self.api.until(&format!("{key} to be {phase}"), PATIENCE, is_so).await;
    }

    async fn until_quiet(&self) {
        while self.reporter.n_pending() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn patches(&self, key: &PodKey) -> Vec<Request> {
        let mut requests = self.api.requests();
        requests.retain(|it| it.verb == "patch pod status" && it.name == key.to_string());
        requests
    }

    fn verbs(&self) -> Vec<&'static str> {
        let requests = self.api.requests();
        requests.iter().map(|request| request.verb).collect()
    }
}

fn phase_of(api: &FakeClusterApi, key: &PodKey) -> Option<String> {
    api.pod(key)?.status.as_ref()?.phase.clone()
}

fn status(phase: &str, ready: &str, state: ContainerState) -> PodStatus {
    let condition = |kind: &str| PodCondition {
        type_: kind.to_owned(),
        status: ready.to_owned(),
        ..PodCondition::default()
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(vec![condition("Ready"), condition("ContainersReady")]),
        container_statuses: Some(vec![ContainerStatus {
            name: "main".to_owned(),
            state: Some(state),
            ..ContainerStatus::default()
        }]),
        ..PodStatus::default()
    }
}

fn waiting() -> PodStatus {
    let waiting = Some(ContainerStateWaiting::default());
    let state = ContainerState { waiting, ..ContainerState::default() };
    status("Pending", "False", state)
}

fn running() -> PodStatus {
    let running = Some(ContainerStateRunning::default());
    let state = ContainerState { running, ..ContainerState::default() };
    status("Running", "True", state)
}

fn ended(phase: &str) -> PodStatus {
    let terminated = Some(ContainerStateTerminated::default());
    let state = ContainerState { terminated, ..ContainerState::default() };
    status(phase, "False", state)
}

#[tokio::test(start_paused = true)]
async fn a_status_is_patched_without_reading_and_only_once() {
    let scene = Scene::begin();
    let pod = scene.add("a").await;
    scene.publish(&pod, 1, running());
    scene.until_phase(&pod.key(), "Running").await;
    scene.until_quiet().await;
    scene.publish(&pod, 2, running());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.verbs(), ["patch pod status"]);
    let patch = scene.patches(&pod.key())[0].patch.clone().unwrap();
    assert_eq!(patch["metadata"]["uid"], pod.uid().as_str());
}

#[tokio::test(start_paused = true)]
async fn statuses_of_one_pod_arrive_in_order_and_the_latest_wins() {
    let scene = Scene::begin();
    let pod = scene.add("a").await;
    scene.api.set_latency(Duration::from_millis(100));
    for version in 1..=50 {
        let mut status = running();
        status.message = Some(version.to_string());
        scene.publish(&pod, version, status);
        sleep(Duration::from_millis(10)).await;
    }
    // Late news of an early state.
    scene.publish(&pod, 3, waiting());
    scene.until_quiet().await;
    let patches = scene.patches(&pod.key());
    let message = |it: &Request| {
        it.patch.as_ref().unwrap()["status"]["message"].as_str().map(|text| text.parse().unwrap())
    };
    let messages: Vec<u64> = patches.iter().filter_map(message).collect();
    assert!(messages.is_sorted() && messages.len() < 10, "{messages:?}");
    assert_eq!(messages.last(), Some(&50));
    assert_eq!(scene.api.most_under_way(), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_are_written_in_parallel_and_transitions_go_first() {
    let scene = Scene::begin();
    let mut pods = Vec::new();
    for n in 0..40 {
        pods.push(scene.add(&format!("pod-{n:02}")).await);
    }
    scene.api.set_latency(Duration::from_millis(100));
    for pod in &pods[..39] {
        scene.publish(pod, 1, waiting());
    }
    let began = Instant::now();
    scene.publish(&pods[39], 1, running());
    scene.until_phase(&pods[39].key(), "Running").await;
    assert_eq!(began.elapsed(), Duration::from_millis(100));
    scene.until_quiet().await;
    assert_eq!(scene.api.most_under_way(), N_WRITERS);
    assert!(began.elapsed() <= Duration::from_millis(520), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_minutes_gets_everything_afterwards() {
    let scene = Scene::begin();
    let mut pods = Vec::new();
    for n in 0..20 {
        pods.push(scene.add(&format!("pod-{n:02}")).await);
    }
    scene.api.set_down(true);
    for pod in &pods {
        scene.publish(pod, 1, waiting());
    }
    sleep(Duration::from_secs(90)).await;
    for pod in &pods {
        scene.publish(pod, 2, running());
    }
    sleep(Duration::from_secs(90)).await;
    let n = scene.api.requests().len();
    assert!(n < 60, "{n} requests while nobody answered");
    scene.api.set_down(false);
    let began = Instant::now();
    for pod in &pods {
        scene.until_phase(&pod.key(), "Running").await;
    }
    assert!(began.elapsed() <= Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_holds_back_its_own_pod_only_and_is_tried_for_ever() {
    let scene = Scene::begin();
    let (bad, good) = (scene.add("bad").await, scene.add("good").await);
    for _ in 0..12 {
        scene.api.refuse_next(ApiErrorKind::Invalid);
    }
    scene.publish(&bad, 1, running());
    sleep(Duration::from_secs(120)).await;
    scene.until_phase(&bad.key(), "Running").await;
    assert_eq!(scene.patches(&bad.key()).len(), 13);
    scene.api.refuse_next(ApiErrorKind::Server);
    scene.publish(&bad, 2, waiting());
    sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    scene.publish(&good, 1, running());
    scene.until_phase(&good.key(), "Running").await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_over_and_deleted_leaves_the_api_when_nothing_is_left_here() {
    let scene = Scene::begin();
    let pod = scene.add("a").await;
    let key = pod.key();
    scene.publish(&pod, 1, running());
    scene.until_phase(&key, "Running").await;
    scene.api.edit_pod(&key, |pod| pod.metadata.deletion_timestamp = Some(now()));
    // Over, but a container may still run: nobody is told yet.
    let mut over = running();
    over.phase = Some("Failed".to_owned());
    scene.publish(&pod, 2, over);
    scene.until_quiet().await;
    assert_eq!(phase_of(&scene.api, &key).as_deref(), Some("Running"));
    // Every container has ended, but its sandbox is still there.
    scene.publish(&pod, 3, ended("Failed"));
    scene.until_quiet().await;
    assert_eq!(phase_of(&scene.api, &key).as_deref(), Some("Running"));
    scene.tell(&pod, 4, ended("Failed"), Remains::Stopped);
    scene.until_phase(&key, "Failed").await;
    sleep(Duration::from_secs(60)).await;
    assert!(scene.api.pod(&key).is_some());
    scene.settle(&pod, 5, ended("Failed"));
    scene.api.until("deletion", PATIENCE, |api| api.pod(&key).is_none()).await;
    scene.reporter.forget(&pod.uid());
    assert_eq!(scene.verbs().iter().filter(|it| **it == "delete pod").count(), 1);
    assert_eq!(scene.reporter.n_pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_asked_for_after_the_end_and_one_that_fails_at_first_both_happen() {
    let scene = Scene::begin();
    let pod = scene.add("a").await;
    let key = pod.key();
    scene.settle(&pod, 1, ended("Succeeded"));
    scene.until_phase(&key, "Succeeded").await;
    scene.until_quiet().await;
    scene.api.refuse_next(ApiErrorKind::Server);
    scene.api.edit_pod(&key, |pod| pod.metadata.deletion_timestamp = Some(now()));
    scene.api.until("deletion", PATIENCE, |api| api.pod(&key).is_none()).await;
    assert_eq!(scene.verbs(), ["patch pod status", "delete pod", "delete pod"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_took_the_name_is_left_alone() {
    let scene = Scene::begin();
    let old = scene.add("a").await;
    let mut next = api::Pod::clone(&old);
    next.metadata.uid = Some("next".to_owned());
    // The watch is cut off: we do not know yet.
    scene.tasks[1].abort();
    let next = scene.api.put_pod(&next);
    scene.publish(&old, 1, running());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.verbs(), ["patch pod status", "get pod"]);
    assert_eq!(scene.api.pod(&old.key()).unwrap(), next);
    scene.api.remove_pod(&old.key());
    scene.publish(&old, 2, waiting());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.verbs().len(), 2, "a pod without an object in the API waits");
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_changed_is_repaired_at_most_every_ten_seconds() {
    let scene = Scene::begin();
    let pod = scene.add("a").await;
    let key = pod.key();
    scene.publish(&pod, 1, running());
    scene.until_phase(&key, "Running").await;
    scene.until_quiet().await;
    let n = scene.patches(&key).len();
    for _ in 0..30 {
        sleep(Duration::from_secs(1)).await;
        scene
            .api
            .edit_pod(&key, |pod| pod.status.as_mut().unwrap().phase = Some("Unknown".to_owned()));
    }
    scene.until_phase(&key, "Running").await;
    let repairs = scene.patches(&key).len() - n;
    assert!((3..=4).contains(&repairs), "{repairs}");
    // What is not ours is not repaired.
    scene.until_quiet().await;
    scene.api.edit_pod(&key, |pod| {
        let gate = PodCondition {
            type_: "example.com/gate".to_owned(),
            status: "True".to_owned(),
            ..PodCondition::default()
        };
        pod.status.as_mut().unwrap().conditions.as_mut().unwrap().push(gate);
    });
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.patches(&key).len() - n, repairs);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_static_pod_goes_to_each_mirror_that_shows_it() {
    let scene = Scene::begin();
    let pod = pod("a").static_file().container("main", "image").build();
    scene.publish(&pod, 1, running());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.verbs(), [""; 0], "no mirror, no write");
    let mirror = |uid: &str, hash: &str| {
        let mut mirror = api::Pod::clone(&pod);
        mirror.metadata.uid = Some(uid.to_owned());
        let annotations = mirror.metadata.annotations.get_or_insert_default();
        annotations.insert(MIRROR_ANNOTATION.to_owned(), hash.to_owned());
        mirror.status = None;
        mirror
    };
    for uid in ["mirror-1", "mirror-2"] {
        scene.api.put_pod(&mirror(uid, pod.uid().as_str()));
        scene.until_phase(&pod.key(), "Running").await;
        scene.until_quiet().await;
        scene.api.remove_pod(&pod.key());
        sleep(Duration::from_secs(1)).await;
    }
    let uids: Vec<_> = scene
        .patches(&pod.key())
        .into_iter()
        .map(|it| it.patch.unwrap()["metadata"]["uid"].clone())
        .collect();
    assert_eq!(uids, ["mirror-1", "mirror-2"]);
    scene.api.put_pod(&mirror("mirror-3", "of another version"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(phase_of(&scene.api, &pod.key()), None);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ended_for_good_is_not_brought_back() {
    let scene = Scene::begin();
    let pod = pod("a").container("main", "image").restart_policy(RestartPolicy::Never).build();
    let pod = scene.api.put_pod(&pod);
    sleep(Duration::from_millis(1)).await;
    scene.settle(&pod, 1, ended("Succeeded"));
    scene.until_phase(&pod.key(), "Succeeded").await;
    scene.publish(&pod, 2, running());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(phase_of(&scene.api, &pod.key()).as_deref(), Some("Succeeded"));
    assert_eq!(scene.patches(&pod.key()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_observed_generation_never_falls() {
    let scene = Scene::begin();
    let pod = scene.add("a").await;
    scene
        .api
        .edit_pod(&pod.key(), |pod| pod.status.as_mut().unwrap().observed_generation = Some(3));
    sleep(Duration::from_millis(1)).await;
    let check = async |version: u64, generation: i64, expected: i64| {
        let mut status = running();
        status.message = Some(version.to_string());
        status.observed_generation = Some(generation);
        scene.publish(&pod, version, status);
        scene.until_quiet().await;
        let stored = scene.api.pod(&pod.key()).unwrap();
        assert_eq!(stored.status.as_ref().unwrap().observed_generation, Some(expected));
    };
    check(1, 2, 3).await;
    check(2, 4, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_overtakes_our_own_answer_is_repaired_too() {
    let copy = |version: &str, status: PodStatus| -> Pod {
        let pod = pod("a").container("main", "image").build();
        let mut pod = api::Pod::clone(&pod);
        pod.metadata.resource_version = Some(version.to_owned());
        pod.status = Some(status);
        Arc::new(pod)
    };
    let update = StatusUpdate { pod: copy("1", running()), version: 1, remains: Remains::Active };
    let check = |overtaking: Option<Pod>, is_repaired: bool| {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.note_api_pod(&copy("1", waiting()), now);
        ledger.publish(update.clone(), now).unwrap();
        let job = ledger.take(now).unwrap();
        // The watch shows our own write before we have its answer.
        ledger.note_api_pod(&copy("2", running()), now);
        if let Some(pod) = overtaking {
            ledger.note_api_pod(&pod, now);
        }
        ledger.finish(&job, Outcome::Written(copy("2", running())), now);
        assert!(ledger.take(now).is_none());
        let later = now + Duration::from_secs(10);
        assert_eq!(ledger.take(later).is_some(), is_repaired);
    };
    check(None, false);
    check(Some(copy("3", running())), false);
    check(Some(copy("3", waiting())), true);
}

/// The watch is slow, as after an outage: meanwhile somebody else has marked the pod, and our patch
/// is made from an old copy.
#[tokio::test(start_paused = true)]
async fn a_patch_from_an_old_copy_is_followed_by_one_from_its_answer() {
    let copy = |version: &str, status: PodStatus| -> Pod {
        let pod = pod("a").container("main", "image").build();
        let mut pod = api::Pod::clone(&pod);
        pod.metadata.resource_version = Some(version.to_owned());
        pod.status = Some(status);
        Arc::new(pod)
    };
    let marked = || {
        let mut marked = running();
        for condition in marked.conditions.iter_mut().flatten() {
            condition.status = "False".to_owned();
        }
        marked
    };
    let (mut ledger, now) = (Ledger::default(), Instant::now());
    ledger.note_api_pod(&copy("1", waiting()), now);
    let update = StatusUpdate { pod: copy("1", running()), version: 1, remains: Remains::Active };
    ledger.publish(update, now).unwrap();
    let mut at = now;
    // The pauses double for as long as somebody writes against us.
    for (n, pause) in [0, 200, 400, 800].into_iter().enumerate() {
        at += Duration::from_millis(pause);
        let early = at - Duration::from_millis(1);
        assert!(n == 0 || ledger.take(early).is_none(), "{n}");
        let job = ledger.take(at).unwrap();
        let answer = copy(&format!("{}", n + 5), marked());
        ledger.finish(&job, Outcome::Written(answer), at);
    }
    at += Duration::from_millis(1600);
    let job = ledger.take(at).unwrap();
    assert_eq!(job.api.metadata.resource_version.as_deref(), Some("8"));
    // A patch that changes nothing is the last.
    ledger.finish(&job, Outcome::Written(copy("8", marked())), at);
    assert!(ledger.take(at + Duration::from_secs(60)).is_none());
    assert_eq!(ledger.n_pending(), 0);
}

/// Twelve pods, a server that comes and goes and refuses at random, others who meddle: in the end
/// every last word is there.
#[tokio::test(start_paused = true)]
async fn no_last_word_is_lost_whatever_the_server_does() {
    let kinds = [
        ApiErrorKind::Conflict,
        ApiErrorKind::Timeout,
        ApiErrorKind::Server,
        ApiErrorKind::Unauthorized,
        ApiErrorKind::TooManyRequests { retry_after: None },
    ];
    for seed in 0..30 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let scene = Scene::begin();
        let mut pods = Vec::new();
        for n in 0..12 {
            pods.push(scene.add(&format!("pod-{n:02}")).await);
        }
        let mut last = vec![String::new(); pods.len()];
        for version in 1..=300 {
            let n = chance.usize(..pods.len());
            match chance.u8(..10) {
                0 => scene.api.set_down(true),
                1 | 2 => scene.api.set_down(false),
                3 => scene.api.refuse_next(kinds[chance.usize(..kinds.len())]),
                4 => scene.api.edit_pod(&pods[n].key(), |pod| {
                    pod.status.as_mut().unwrap().message = Some("meddled".to_owned());
                }),
                5 => scene.api.set_latency(Duration::from_millis(chance.u64(..300))),
                _ => {
                    let mut status = if chance.bool() { running() } else { waiting() };
                    last[n] = format!("{seed} {version}");
                    status.message = Some(last[n].clone());
                    scene.publish(&pods[n], version, status);
                }
            }
            sleep(Duration::from_millis(chance.u64(..500))).await;
        }
        scene.api.set_down(false);
        let is_all_there = |api: &FakeClusterApi| {
            pods.iter().zip(&last).all(|(pod, last)| {
                let stored = api.pod(&pod.key()).unwrap();
                let message = stored.status.as_ref().unwrap().message.clone();
                last.is_empty() || message.as_ref() == Some(last)
            })
        };
        let what = format!("every last word with seed {seed}");
        scene.api.until(&what, Duration::from_secs(120), is_all_there).await;
    }
}

fn now() -> Time {
    Time(Timestamp::from_second(1_767_225_600).0)
}

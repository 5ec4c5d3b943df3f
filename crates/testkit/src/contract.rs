//! What every [`Runtime`] promises, as checks that run on the fake at each commit and on the real
//! adapter end to end.
//!
//! A check makes its own pod, asks for things, and compares what it observes; it panics with a
//! sentence when a promise is broken. Each takes its pod away again, so that checks can follow each
//! other on one runtime. Refuses: fake-only promises (faults, scripts); those are tested beside the
//! fake.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ferrolet_ports::{
    ListedState, Runtime, RuntimeError, RuntimeErrorKind, RuntimeEventKind, RuntimeEvents,
};
use ferrolet_spec::{ContainerSpec, SandboxSpec};
use ferrolet_types::observed::{ContainerState, ObservedContainer, PodObservation};
use ferrolet_types::pod::PodView as _;
use ferrolet_types::{ContainerId, GracePeriod, Pod, SandboxId};
use tokio::time::Instant;

use crate::observe::{CRASH_STREAK, SPEC_HASH};
use crate::{container_spec, pod, sandbox_spec};

/// The container that runs until it is stopped.
pub const SLEEPER: &str = "sleeper";
/// The container that ends by itself with code 3.
pub const QUITTER: &str = "quitter";

/// How long a check waits for something to become visible.
const PATIENCE: Duration = Duration::from_secs(30);
const GRACE: GracePeriod = GracePeriod(Duration::from_secs(2));

/// What a runtime under test is given to work with.
#[derive(Clone, Debug)]
pub struct Bench {
    /// An image that is present, by reference, with `sleep`, `sh`, `true` and `false` in it.
    pub image_ref: String,
    /// Command of [`SLEEPER`]; it must end on the polite signal.
    pub sleeper: Vec<String>,
    /// Command of [`QUITTER`].
    pub quitter: Vec<String>,
    /// A directory that is there; all logs go into it, since making directories is not the
    /// runtime's part.
    pub log_root: PathBuf,
    /// Parent of the pods' cgroups, in the driver's notation.
    pub cgroup_root: String,
    /// Tells pods of this run apart from those of others.
    pub prefix: String,
}

impl Bench {
    /// A bench for busybox-like images.
    pub fn new(image_ref: &str, log_root: PathBuf, cgroup_root: &str, prefix: &str) -> Self {
        let shell = |line: &str| ["sh", "-c", line].map(str::to_owned).to_vec();
        Self {
            image_ref: image_ref.to_owned(),
            sleeper: shell("trap 'exit 0' TERM; while true; do sleep 0.1; done"),
            quitter: shell("exit 3"),
            log_root,
            cgroup_root: cgroup_root.to_owned(),
            prefix: prefix.to_owned(),
        }
    }
}

/// Every check, one after another.
pub async fn runtime(runtime: &dyn Runtime, bench: &Bench) {
    it_says_who_it_is(runtime).await;
    a_sandbox_is_seen_until_it_is_removed(runtime, bench).await;
    a_container_lives_from_made_to_removed(runtime, bench).await;
    annotations_come_back(runtime, bench).await;
    an_exit_is_seen_with_its_code_and_times(runtime, bench).await;
    observations_have_the_newest_first(runtime, bench).await;
    what_is_absent_can_be_stopped_and_removed(runtime, bench).await;
    what_is_absent_cannot_be_started_or_filled(runtime, bench).await;
    a_name_is_given_once(runtime, bench).await;
    starting_twice_starts_once(runtime, bench).await;
    a_stopped_sandbox_stops_its_containers(runtime, bench).await;
    commands_answer_with_their_code(runtime, bench).await;
    events_tell_a_containers_life(runtime, bench).await;
}

/// One check's pod on the runtime.
struct Subject<'a> {
    runtime: &'a dyn Runtime,
    bench: &'a Bench,
    pod: Pod,
}

impl<'a> Subject<'a> {
    fn new(runtime: &'a dyn Runtime, bench: &'a Bench, name: &str) -> Self {
        let pod = pod(&format!("{}-{name}", bench.prefix))
            .container(SLEEPER, &bench.image_ref)
            .container(QUITTER, &bench.image_ref)
            .build();
        Self { runtime, bench, pod }
    }

    fn sandbox_spec(&self, attempt: u32) -> SandboxSpec {
        let mut spec = sandbox_spec(&self.pod, attempt);
        spec.log_directory = self.bench.log_root.clone();
        spec.cgroup_parent = format!("{}/pod{}", self.bench.cgroup_root, self.pod.uid());
        spec
    }

    fn container_spec(&self, name: &str, attempt: u32) -> ContainerSpec {
        let mut spec = container_spec(&self.pod, name, attempt);
        spec.command =
            if name == QUITTER { self.bench.quitter.clone() } else { self.bench.sleeper.clone() };
        spec.log_path = format!("{}-{name}-{attempt}.log", self.pod.uid());
        spec.annotations.insert(CRASH_STREAK.to_owned(), "4".to_owned());
        spec
    }

    async fn sandbox(&self, attempt: u32) -> SandboxId {
        let spec = self.sandbox_spec(attempt);
        answer("run a sandbox", self.runtime.run_sandbox(&spec).await)
    }

    async fn create(&self, sandbox: &SandboxId, name: &str, attempt: u32) -> ContainerId {
        let (pod, spec) = (self.sandbox_spec(0), self.container_spec(name, attempt));
        let made = self.runtime.create_container(sandbox, &pod, &spec).await;
        answer("create a container", made)
    }

    async fn start(&self, sandbox: &SandboxId, name: &str, attempt: u32) -> ContainerId {
        let id = self.create(sandbox, name, attempt).await;
        let started = self.runtime.start_container(&id).await;
        answer("start a container", started);
        id
    }

    async fn observe(&self) -> PodObservation {
        let observed = self.runtime.observe_pod(&self.pod.uid()).await;
        answer("observe a pod", observed)
    }

    /// Waits until the observation answers the question.
    async fn until<T>(&self, what: &str, ask: impl Fn(&PodObservation) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let observation = self.observe().await;
            if let Some(found) = ask(&observation) {
                return found;
            }
            assert!(Instant::now() < deadline, "not in time: {what}: {observation:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn find(&self, id: &ContainerId) -> ObservedContainer {
        let observation = self.observe().await;
        let mut all = observation.containers.into_iter();
        all.find(|it| it.id == *id)
            .expect("a container that was made is observed until it is removed")
    }

    async fn clean(self) {
        for sandbox in self.observe().await.sandboxes {
            answer("stop", self.runtime.stop_sandbox(&sandbox.id).await);
            answer("remove", self.runtime.remove_sandbox(&sandbox.id).await);
        }
        let rest = self.observe().await;
        assert!(rest.is_empty(), "removed sandboxes leave nothing: {rest:#?}");
    }
}

fn answer<T>(what: &str, result: Result<T, RuntimeError>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {}: {error}", error.call))
}

async fn it_says_who_it_is(runtime: &dyn Runtime) {
    let version = answer("ask for the version", runtime.version().await);
    assert!(!version.name.is_empty(), "a runtime has a name");
    let status = answer("ask for the status", runtime.status().await);
    assert!(status.runtime.is_ok, "a runtime under test is well");
}

async fn a_sandbox_is_seen_until_it_is_removed(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "sandbox");
    let empty = subject.observe().await;
    assert!(empty.is_empty() && empty.key.is_none(), "nothing yet");
    let id = subject.sandbox(0).await;
    let observation = subject.observe().await;
    assert_eq!(observation.key, Some(subject.pod.key()));
    let seen = observation.newest_sandbox().expect("the sandbox is seen");
    assert_eq!((&seen.id, seen.attempt, seen.is_ready), (&id, 0, true));
    assert!(!seen.ips.is_empty(), "a pod network gives an address");
    let listing = answer("list", runtime.list().await);
    let mut listed = listing.sandboxes.iter();
    let listed = listed.find(|it| it.id == id).expect("it is listed");
    assert_eq!((&listed.uid, listed.is_ready), (&subject.pod.uid(), true));
    for _ in 0..2 {
        answer("stop, and again", runtime.stop_sandbox(&id).await);
    }
    let stopped = subject.observe().await;
    assert!(!stopped.sandboxes[0].is_ready, "stopped is not ready");
    for _ in 0..2 {
        answer("remove, and again", runtime.remove_sandbox(&id).await);
    }
    subject.clean().await;
}

async fn a_container_lives_from_made_to_removed(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "container");
    let sandbox = subject.sandbox(0).await;
    let id = subject.create(&sandbox, SLEEPER, 0).await;
    assert_eq!(subject.find(&id).await.state, ContainerState::Created);
    answer("start", runtime.start_container(&id).await);
    let running = subject.find(&id).await;
    assert!(running.state.is_running(), "started is running");
    assert_eq!(running.sandbox, sandbox);
    let listing = answer("list", runtime.list().await);
    let mut listed = listing.containers.iter();
    let listed = listed.find(|it| it.id == id).expect("it is listed");
    assert_eq!(listed.state, ListedState::Running);
    assert_eq!(listed.uid, subject.pod.uid());
    for _ in 0..2 {
        answer("stop, and again", runtime.stop_container(&id, GRACE).await);
        let state = subject.find(&id).await.state;
        assert!(state.exit().is_some(), "stop returns when it is over");
    }
    for _ in 0..2 {
        answer("remove, and again", runtime.remove_container(&id).await);
    }
    assert!(subject.observe().await.containers.is_empty());
    subject.clean().await;
}

async fn annotations_come_back(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "annotations");
    let sandbox = subject.sandbox(0).await;
    let asked = subject.container_spec(SLEEPER, 7);
    let id = subject.create(&sandbox, SLEEPER, 7).await;
    let seen = subject.find(&id).await;
    assert_eq!(seen.name, asked.name);
    assert_eq!(seen.restart_count, 7);
    assert_eq!(seen.spec_hash.as_ref(), asked.annotations.get(SPEC_HASH));
    assert_eq!(seen.crash_streak, Some(4));
    assert_eq!(seen.termination_message.path, "/dev/termination-log");
    assert!(!seen.termination_message.falls_back_to_logs);
    let log_path = subject.sandbox_spec(0).log_directory.join(&asked.log_path);
    assert_eq!(PathBuf::from(seen.log_path), log_path);
    subject.clean().await;
}

async fn an_exit_is_seen_with_its_code_and_times(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "exit");
    let sandbox = subject.sandbox(0).await;
    let id = subject.start(&sandbox, QUITTER, 0).await;
    let exit_of = |it: &PodObservation| it.newest_container(QUITTER)?.state.exit().cloned();
    let exit = subject.until("the exit", exit_of).await;
    assert_eq!((exit.code, exit.reason.as_str()), (3, "Error"));
    let started_at = exit.started_at.expect("it had begun");
    assert!(subject.find(&id).await.created_at <= started_at);
    assert!(started_at <= exit.finished_at);
    subject.clean().await;
}

async fn observations_have_the_newest_first(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "order");
    let first = subject.sandbox(0).await;
    let mut made = Vec::new();
    for attempt in 0..3 {
        made.insert(0, subject.create(&first, SLEEPER, attempt).await);
    }
    answer("stop the first", runtime.stop_sandbox(&first).await);
    let second = subject.sandbox(1).await;
    made.insert(0, subject.create(&second, QUITTER, 0).await);
    let observation = subject.observe().await;
    let sandboxes = observation.sandboxes.iter().map(|it| it.id.clone());
    assert_eq!(sandboxes.collect::<Vec<_>>(), [second, first]);
    let containers = observation.containers.iter().map(|it| it.id.clone());
    assert_eq!(containers.collect::<Vec<_>>(), made);
    subject.clean().await;
}

async fn what_is_absent_can_be_stopped_and_removed(runtime: &dyn Runtime, bench: &Bench) {
    let name = format!("{}-nobody", bench.prefix);
    let (sandbox, container) = (SandboxId::new(name.clone()), ContainerId::new(name));
    answer("stop", runtime.stop_container(&container, GRACE).await);
    answer("remove", runtime.remove_container(&container).await);
    answer("stop", runtime.stop_sandbox(&sandbox).await);
    answer("remove", runtime.remove_sandbox(&sandbox).await);
}

async fn what_is_absent_cannot_be_started_or_filled(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "absent");
    let name = format!("{}-nobody", bench.prefix);
    let (sandbox, container) = (SandboxId::new(name.clone()), ContainerId::new(name));
    let started = runtime.start_container(&container).await;
    let kind = started.map_err(|error| error.kind);
    assert_eq!(kind, Err(RuntimeErrorKind::NotFound));
    let (pod, spec) = (subject.sandbox_spec(0), subject.container_spec(SLEEPER, 0));
    let made = runtime.create_container(&sandbox, &pod, &spec).await;
    assert!(made.is_err(), "a container needs a sandbox");
    subject.clean().await;
}

async fn a_name_is_given_once(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "names");
    let sandbox = subject.sandbox(0).await;
    let again = runtime.run_sandbox(&subject.sandbox_spec(0)).await;
    assert!(again.is_err(), "a sandbox's attempt is taken");
    let id = subject.create(&sandbox, SLEEPER, 0).await;
    let (pod, spec) = (subject.sandbox_spec(0), subject.container_spec(SLEEPER, 0));
    let again = runtime.create_container(&sandbox, &pod, &spec).await;
    assert!(again.is_err(), "a container's attempt is taken");
    assert_eq!(subject.observe().await.containers.len(), 1);
    answer("remove", runtime.remove_container(&id).await);
    subject.create(&sandbox, SLEEPER, 0).await;
    subject.clean().await;
}

async fn starting_twice_starts_once(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "twice");
    let sandbox = subject.sandbox(0).await;
    let id = subject.start(&sandbox, SLEEPER, 0).await;
    let before = subject.find(&id).await.state;
    // Whether the second start is refused or accepted is the runtime's affair.
    let _ = runtime.start_container(&id).await;
    assert_eq!(subject.find(&id).await.state, before);
    subject.clean().await;
}

async fn a_stopped_sandbox_stops_its_containers(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "together");
    let sandbox = subject.sandbox(0).await;
    subject.start(&sandbox, SLEEPER, 0).await;
    answer("stop", runtime.stop_sandbox(&sandbox).await);
    let exit_of = |it: &PodObservation| it.newest_container(SLEEPER)?.state.exit().cloned();
    subject.until("the container's end", exit_of).await;
    let (pod, spec) = (subject.sandbox_spec(0), subject.container_spec(QUITTER, 0));
    let made = runtime.create_container(&sandbox, &pod, &spec).await;
    let is_useless = match made {
        Ok(id) => runtime.start_container(&id).await.is_err(),
        Err(_) => true,
    };
    assert!(is_useless, "nothing starts in a stopped sandbox");
    subject.clean().await;
}

async fn commands_answer_with_their_code(runtime: &dyn Runtime, bench: &Bench) {
    let subject = Subject::new(runtime, bench, "exec");
    let sandbox = subject.sandbox(0).await;
    let id = subject.start(&sandbox, SLEEPER, 0).await;
    for (command, code) in [("true", 0), ("false", 1)] {
        let command = [command.to_owned()];
        let ran = runtime.exec(&id, &command, PATIENCE).await;
        assert_eq!(answer("exec", ran).code, code, "{command:?}");
    }
    subject.clean().await;
}

async fn events_tell_a_containers_life(runtime: &dyn Runtime, bench: &Bench) {
    let mut stream = match runtime.events().await {
        Err(error) if error.kind == RuntimeErrorKind::Unimplemented => return,
        stream => answer("open the event stream", stream),
    };
    let subject = Subject::new(runtime, bench, "events");
    // The runtime may subscribe a moment after it accepted the call: sandboxes are made until one
    // is heard of.
    let mut sandbox = subject.sandbox(0).await;
    for attempt in 1..10 {
        let heard = tokio::time::timeout(Duration::from_secs(1), stream.next());
        if heard.await.is_ok() {
            break;
        }
        sandbox = subject.sandbox(attempt).await;
    }
    let id = subject.start(&sandbox, SLEEPER, 0).await;
    expect_event(&mut *stream, &id, RuntimeEventKind::Started).await;
    answer("stop", runtime.stop_container(&id, GRACE).await);
    expect_event(&mut *stream, &id, RuntimeEventKind::Stopped).await;
    answer("remove", runtime.remove_container(&id).await);
    expect_event(&mut *stream, &id, RuntimeEventKind::Deleted).await;
    subject.clean().await;
}

async fn expect_event(stream: &mut dyn RuntimeEvents, id: &ContainerId, kind: RuntimeEventKind) {
    let mut others = BTreeSet::new();
    let found = tokio::time::timeout(PATIENCE, async {
        while let Some(event) = stream.next().await {
            let event = answer("read the event stream", event);
            if event.id == id.as_str() && event.kind == kind {
                return true;
            }
            others.insert(format!("{} {:?}", event.id, event.kind));
        }
        false
    });
    let found = found.await.unwrap_or(false);
    assert!(found, "no event {kind:?} of {id}; seen: {others:?}");
}

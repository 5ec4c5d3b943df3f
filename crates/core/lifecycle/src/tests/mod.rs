//! The rules of a pod's life, each as facts in and a step out. Here is the scene that they play in;
//! each part has its own file.

mod ending;
mod failures;
mod init;
mod judging;
mod resize;
mod rules;
mod starting;

use std::{collections::BTreeMap, time::Duration};

use ferrolet_pod::{EndReason, Ending, Waiting, WaitingReason};
use ferrolet_types::{
    ContainerId, ContainerName, Eviction, GracePeriod, PodUid, SandboxId, Timestamp,
    observed::{
        ContainerState, Exit, NetworkMode, ObservedContainer, ObservedSandbox, PodObservation,
        TerminationMessageSource,
    },
    pod::{ContainerKind, Phase, spec_hash},
};
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, Probe},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::*;

const NOW: i64 = 100_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second)
}

fn container(name: &str) -> Container {
    Container { name: name.to_owned(), image: Some("busybox".to_owned()), ..Default::default() }
}

fn sidecar(name: &str) -> Container {
    Container { restart_policy: Some("Always".to_owned()), ..container(name) }
}

fn pod(policy: &str, init: Vec<Container>, regular: Vec<Container>) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some("p".to_owned()),
            uid: Some("u".to_owned()),
            ..Default::default()
        },
        spec: Some(PodSpec {
            restart_policy: Some(policy.to_owned()),
            init_containers: (!init.is_empty()).then_some(init),
            containers: regular,
            ..Default::default()
        }),
        status: None,
    }
}

fn exited(code: i32, started: i64, finished: i64) -> ContainerState {
    ContainerState::Exited(Exit {
        started_at: Some(at(started)),
        finished_at: at(finished),
        code,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: String::new(),
    })
}

fn stopping(grace: i64) -> PodState {
    PodState::Stopping { grace: GracePeriod::from_secs(grace), since: at(NOW) }
}

fn running() -> ContainerState {
    ContainerState::Running { started_at: at(NOW - 50) }
}

fn seen_container(name: &str, restarts: u32, state: ContainerState) -> ObservedContainer {
    ObservedContainer {
        id: ContainerId::new(format!("{name}-{restarts}")),
        name: ContainerName::new(name),
        sandbox: SandboxId::new("s-0"),
        state,
        created_at: at(NOW - 1000 + i64::from(restarts)),
        restart_count: restarts,
        spec_hash: Some(spec_hash(&container(name))),
        crash_streak: Some(restarts),
        termination_message: TerminationMessageSource::default(),
        image: "busybox".to_owned(),
        image_ref: String::new(),
        image_id: String::new(),
        log_path: format!("/logs/{name}/{restarts}.log"),
        mounts: Vec::new(),
        user: None,
        resources: None,
        stop_signal: None,
    }
}

fn sandbox(attempt: u32, is_ready: bool) -> ObservedSandbox {
    ObservedSandbox {
        id: SandboxId::new(format!("s-{attempt}")),
        attempt,
        is_ready,
        created_at: at(NOW - 1000 + i64::from(attempt)),
        ips: vec!["10.0.0.2".to_owned()],
        network: NetworkMode::Pod,
    }
}

/// A test's world: change what matters, then ask what would be done.
struct Scene {
    state: PodState,
    pod: Option<Pod>,
    wish: Wish,
    seen: PodObservation,
    phase: Phase,
    setup: Setup,
    failures: BTreeMap<ContainerName, StartFailure>,
    waiting: BTreeMap<ContainerName, Waiting>,
    hold: Option<Hold>,
    holds_claims: bool,
    started_at: Option<Timestamp>,
    is_judged: bool,
    eviction: Option<Eviction>,
    pod_failure: Option<Failure>,
    probes: BTreeMap<ContainerName, ContainerProbes>,
    resize: ResizeFacts,
    is_restarting_all: bool,
    network_trouble: Option<&'static str>,
    back_off: BackOffPolicy,
    kept: KeptContainers,
}

const READY: Setup = Setup {
    cgroup: Presence::Present,
    files: Presence::Present,
    volumes: Presence::Present,
    devices: Presence::Unknown,
    claims: Presence::Unknown,
    logs: Presence::Unknown,
};

impl Scene {
    fn new(pod: Pod) -> Self {
        Self {
            state: PodState::Running,
            pod: Some(pod),
            wish: Wish::Run,
            seen: PodObservation::nothing(PodUid::new("u"), at(NOW)),
            phase: Phase::Running,
            setup: READY,
            failures: BTreeMap::new(),
            waiting: BTreeMap::new(),
            hold: None,
            holds_claims: false,
            started_at: None,
            is_judged: false,
            eviction: None,
            pod_failure: None,
            probes: BTreeMap::new(),
            resize: ResizeFacts::default(),
            is_restarting_all: false,
            network_trouble: None,
            back_off: BackOffPolicy::upstream(Duration::from_secs(300)),
            kept: KeptContainers::within(Some(1)),
        }
    }

    fn sandboxes(mut self, sandboxes: Vec<ObservedSandbox>) -> Self {
        self.seen.sandboxes = sandboxes;
        self
    }

    /// A ready sandbox with these containers, the newest first.
    fn with(mut self, containers: Vec<ObservedContainer>) -> Self {
        if self.seen.sandboxes.is_empty() {
            self.seen.sandboxes = vec![sandbox(0, true)];
        }
        self.seen.containers = containers;
        self
    }

    fn step(&self) -> Step {
        let facts = Facts {
            pod: self.pod.as_ref(),
            wish: self.wish,
            seen: &self.seen,
            phase: self.phase,
            setup: self.setup,
            failures: &self.failures,
            waiting: &self.waiting,
            hold: self.hold.as_ref(),
            holds_claims: self.holds_claims,
            started_at: self.started_at,
            is_judged: self.is_judged,
            eviction: self.eviction.as_ref(),
            pod_failure: self.pod_failure.as_ref(),
            probes: &self.probes,
            resize: &self.resize,
            is_restarting_all: self.is_restarting_all,
            network_trouble: self.network_trouble,
            back_off: self.back_off,
            kept: self.kept,
        };
        decide(self.state, &facts, at(NOW))
    }

    /// The step in a few words, stages separated by `;`.
    fn plan(&self) -> String {
        in_words(&self.step())
    }
}

fn in_words(step: &Step) -> String {
    let action = |action: &Action| match action {
        Action::EnsureCgroup => "cgroup".to_owned(),
        Action::EnsureFiles => "files".to_owned(),
        Action::EnsureVolumes => "volumes".to_owned(),
        Action::AllocateDevices => "devices".to_owned(),
        Action::PrepareClaims => "prepare claims".to_owned(),
        Action::EnsureClaims => "ensure claims".to_owned(),
        Action::UnprepareClaims => "unprepare claims".to_owned(),
        Action::CreateSandbox { attempt, .. } => format!("sandbox {attempt}"),
        Action::Resize { containers, .. } => {
            let names: Vec<&str> = containers.iter().map(|(name, _)| name.as_str()).collect();
            format!("resize {}", names.join("+"))
        }
        Action::Start { container, restarts, crash_streak, .. } => match restarts {
            RestartCount::Exactly(count) => format!("start {container}#{count}~{crash_streak}"),
            RestartCount::FromLogs => format!("start {container}"),
        },
        Action::StopContainer { id, grace, cause, after, .. } => {
            let before = after.iter().map(|it| format!(" after {it}"));
            let before = before.collect::<String>();
            format!("stop {id} {}s {cause:?}{before}", grace.as_secs())
        }
        Action::StopSandbox { id } => format!("stop {id}"),
        Action::RemoveContainer { id, log_path, .. } => {
            format!("remove {id}{}", if log_path.is_some() { " and log" } else { "" })
        }
        Action::RemoveSandbox { id } => format!("remove {id}"),
        Action::LowerCpu => "lower cpu".to_owned(),
        Action::ReleaseVolumes { lower_after } => {
            assert_eq!(lower_after.as_secs(), 2, "upstream's housekeeping");
            "release volumes".to_owned()
        }
        Action::RemoveCgroup => "remove cgroup".to_owned(),
        Action::RemoveFiles => "remove files".to_owned(),
        Action::RemoveLogs => "remove logs".to_owned(),
    };
    let stage = |stage: &Stage| stage.iter().map(action).collect::<Vec<_>>().join(", ");
    step.stages.iter().map(stage).collect::<Vec<_>>().join("; ")
}

fn probes(live: Verdict, started: Verdict) -> ContainerProbes {
    ContainerProbes { started, live, ready: Verdict::Pending }
}

fn simple() -> Pod {
    pod("Always", vec![], vec![container("c")])
}

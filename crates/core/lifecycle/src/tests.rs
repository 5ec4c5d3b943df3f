//! The rules of a pod's life, each as facts in and a step out.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_types::{
    ContainerId, ContainerName, GracePeriod, PodUid, SandboxId, Timestamp,
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
    Container {
        name: name.to_owned(),
        image: Some("busybox".to_owned()),
        ..Default::default()
    }
}

fn sidecar(name: &str) -> Container {
    Container {
        restart_policy: Some("Always".to_owned()),
        ..container(name)
    }
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
    PodState::Stopping {
        grace: GracePeriod::from_secs(grace),
        since: at(NOW),
    }
}

fn running() -> ContainerState {
    ContainerState::Running {
        started_at: at(NOW - 50),
    }
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
    failures: BTreeMap<ContainerName, Failure>,
    pod_failure: Option<Failure>,
    probes: BTreeMap<ContainerName, ContainerProbes>,
    resize: ResizeFacts,
    is_restarting_all: bool,
    is_network_ready: bool,
}

const READY: Setup = Setup {
    cgroup: Presence::Present,
    files: Presence::Present,
    volumes: Presence::Present,
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
            pod_failure: None,
            probes: BTreeMap::new(),
            resize: ResizeFacts::default(),
            is_restarting_all: false,
            is_network_ready: true,
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
            pod_failure: self.pod_failure.as_ref(),
            probes: &self.probes,
            resize: &self.resize,
            is_restarting_all: self.is_restarting_all,
            is_network_ready: self.is_network_ready,
            back_off: BackOffPolicy::upstream(Duration::from_secs(300)),
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
        Action::CreateSandbox { attempt, .. } => format!("sandbox {attempt}"),
        Action::Resize { containers, .. } => {
            let names: Vec<&str> = containers.iter().map(|(name, _)| name.as_str()).collect();
            format!("resize {}", names.join("+"))
        }
        Action::Start {
            container,
            restarts,
            crash_streak,
            ..
        } => match restarts {
            RestartCount::Exactly(count) => format!("start {container}#{count}~{crash_streak}"),
            RestartCount::FromLogs => format!("start {container}"),
        },
        Action::StopContainer {
            id, grace, cause, ..
        } => format!("stop {id} {}s {cause:?}", grace.as_secs()),
        Action::StopSandbox { id } => format!("stop {id}"),
        Action::RemoveContainer { id, log_path, .. } => {
            format!(
                "remove {id}{}",
                if log_path.is_some() { " and log" } else { "" }
            )
        }
        Action::RemoveSandbox { id } => format!("remove {id}"),
        Action::ReleaseVolumes => "release volumes".to_owned(),
        Action::RemoveCgroup => "remove cgroup".to_owned(),
        Action::RemoveFiles => "remove files".to_owned(),
        Action::RemoveLogs => "remove logs".to_owned(),
    };
    let stage = |stage: &Stage| stage.iter().map(action).collect::<Vec<_>>().join(", ");
    step.stages.iter().map(stage).collect::<Vec<_>>().join("; ")
}

fn probes(live: Verdict, started: Verdict) -> ContainerProbes {
    ContainerProbes {
        started,
        live,
        ready: Verdict::Pending,
    }
}

fn simple() -> Pod {
    pod("Always", vec![], vec![container("c")])
}

#[test]
fn a_new_pod_is_set_up_before_its_sandbox() {
    let mut scene = Scene::new(simple());
    scene.setup = Setup::default();
    assert_eq!(scene.plan(), "cgroup, files, volumes; sandbox 0");
    scene.setup = READY;
    assert_eq!(scene.plan(), "sandbox 0");
}

#[test]
fn without_a_network_only_host_network_pods_get_a_sandbox() {
    let mut scene = Scene::new(simple());
    scene.is_network_ready = false;
    assert_eq!(scene.plan(), "");
    scene
        .pod
        .as_mut()
        .unwrap()
        .spec
        .as_mut()
        .unwrap()
        .host_network = Some(true);
    assert_eq!(scene.plan(), "sandbox 0");
}

#[test]
fn regular_containers_start_side_by_side() {
    let scene =
        Scene::new(pod("Always", vec![], vec![container("a"), container("b")])).with(vec![]);
    assert_eq!(scene.plan(), "start a, start b");
}

#[test]
fn a_sandbox_is_replaced_for_each_of_upstreams_reasons() {
    let check = |sandboxes: Vec<ObservedSandbox>, plan: &str| {
        assert_eq!(Scene::new(simple()).sandboxes(sandboxes).plan(), plan);
    };
    check(vec![sandbox(3, true)], "start c");
    check(vec![sandbox(3, false)], "sandbox 4");
    check(
        vec![sandbox(1, true), sandbox(0, true)],
        "stop s-1, stop s-0; sandbox 2",
    );
    check(
        vec![ObservedSandbox {
            ips: vec![],
            ..sandbox(0, true)
        }],
        "stop s-0; sandbox 1",
    );
    check(
        vec![ObservedSandbox {
            network: NetworkMode::Node,
            ..sandbox(0, true)
        }],
        "stop s-0; sandbox 1",
    );
}

#[test]
fn a_pod_that_is_done_gets_no_new_sandbox() {
    let dead = |code| vec![seen_container("c", 0, exited(code, NOW - 20, NOW - 10))];
    let check = |policy: &str, code: i32, plan: &str| {
        let scene = Scene::new(pod(policy, vec![], vec![container("c")]))
            .sandboxes(vec![sandbox(0, false)]);
        assert_eq!(scene.with(dead(code)).plan(), plan, "{policy} {code}");
    };
    check("Never", 1, "");
    check("OnFailure", 0, "");
    check("OnFailure", 1, "sandbox 1");
    check("Always", 0, "sandbox 1");
}

#[test]
fn a_pod_whose_containers_were_only_made_has_yet_to_run() {
    let made = vec![seen_container("c", 0, ContainerState::Created)];
    let scene = Scene::new(pod("Never", vec![], vec![container("c")]));
    let scene = scene.sandboxes(vec![sandbox(0, false)]).with(made);
    assert_eq!(scene.plan(), "sandbox 1");
}

#[test]
fn init_containers_of_a_dead_sandbox_are_removed_before_they_run_again() {
    let scene = Scene::new(pod("Always", vec![container("i")], vec![container("c")]))
        .sandboxes(vec![sandbox(0, false)])
        .with(vec![
            seen_container("c", 0, exited(137, NOW - 50, NOW - 10)),
            seen_container("i", 0, exited(0, NOW - 60, NOW - 55)),
        ]);
    assert_eq!(scene.plan(), "remove i-0; sandbox 1");
}

#[test]
fn restart_policies_decide_who_comes_back() {
    // Long ago, so that no back-off applies.
    let check = |policy: &str, code: i32, plan: &str| {
        let scene =
            Scene::new(pod(policy, vec![], vec![container("a"), container("c")])).with(vec![
                seen_container("a", 0, running()),
                seen_container("c", 0, exited(code, NOW - 5000, NOW - 4000)),
            ]);
        assert_eq!(scene.plan(), plan, "{policy} {code}");
    };
    check("Always", 0, "start c#1~1");
    check("Always", 1, "start c#1~1");
    check("OnFailure", 0, "");
    check("OnFailure", 1, "start c#1~1");
    check("Never", 0, "");
    check("Never", 1, "");
}

#[test]
fn a_deleted_pod_restarts_nothing() {
    let mut scene =
        Scene::new(simple()).with(vec![seen_container("c", 0, exited(1, NOW - 20, NOW - 10))]);
    scene.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(NOW).0));
    assert_eq!(scene.plan(), "stop s-0");
}

#[test]
fn a_crash_loop_waits_longer_each_time_and_counts_from_the_end_of_the_container() {
    let check = |streak: u32, finished_ago: i64, wake_in: Option<i64>| {
        let scene = Scene::new(simple()).with(vec![seen_container(
            "c",
            streak,
            exited(1, NOW - finished_ago - 1, NOW - finished_ago),
        )]);
        let step = scene.step();
        assert_eq!(
            step.wake_at,
            wake_in.map(|secs| at(NOW + secs)),
            "streak {streak}"
        );
        let is_waiting = step
            .waiting
            .get("c")
            .is_some_and(|why| why.reason == "CrashLoopBackOff");
        assert_eq!(is_waiting, wake_in.is_some(), "streak {streak}");
        assert_eq!(step.stages.is_empty(), wake_in.is_some(), "streak {streak}");
    };
    check(0, 0, None);
    check(1, 0, Some(10));
    check(1, 9, Some(1));
    check(1, 10, None);
    check(2, 0, Some(20));
    check(5, 0, Some(160));
    check(6, 0, Some(300));
    check(40, 0, Some(300));
}

#[test]
fn the_message_of_a_crash_loop_names_wait_container_and_pod() {
    let scene = Scene::new(simple()).with(vec![seen_container("c", 2, exited(1, NOW - 1, NOW))]);
    let message = &scene.step().waiting["c"].message;
    assert_eq!(
        message,
        "back-off 20s restarting failed container=c pod=p_default(u)"
    );
}

#[test]
fn ten_good_minutes_end_a_crash_loop() {
    let check = |ran: i64, plan: &str| {
        let scene =
            Scene::new(simple()).with(vec![seen_container("c", 7, exited(1, NOW - ran, NOW))]);
        assert_eq!(scene.plan(), plan, "ran {ran}");
    };
    check(600, "");
    check(601, "start c#8~1");
}

#[test]
fn a_container_of_upstreams_kubelet_has_no_streak_and_its_restart_count_stands_in() {
    let mut dead = seen_container("c", 3, exited(1, NOW - 1, NOW));
    dead.crash_streak = None;
    assert_eq!(
        Scene::new(simple()).with(vec![dead]).step().wake_at,
        Some(at(NOW + 40))
    );
}

#[test]
fn another_image_leaves_the_crash_loop_behind() {
    let mut dead = seen_container("c", 7, exited(1, NOW - 1, NOW));
    dead.spec_hash = Some("0".to_owned());
    assert_eq!(Scene::new(simple()).with(vec![dead]).plan(), "start c#8~1");
}

#[test]
fn a_container_that_never_started_is_removed_and_made_again_with_the_same_count_and_streak() {
    let scene = Scene::new(simple()).with(vec![seen_container("c", 2, ContainerState::Created)]);
    assert_eq!(scene.plan(), "remove c-2; start c#2~2");
}

#[test]
fn a_container_the_runtime_lost_is_stopped_first() {
    let scene = Scene::new(simple()).with(vec![seen_container("c", 0, ContainerState::Unknown)]);
    assert_eq!(scene.plan(), "stop c-0 30s Unknown; start c#1~0");
}

#[test]
fn a_changed_container_is_stopped_whatever_its_restart_policy() {
    let mut old = seen_container("c", 0, running());
    old.spec_hash = Some("0".to_owned());
    let scene = Scene::new(pod("Never", vec![], vec![container("c")])).with(vec![old]);
    assert_eq!(scene.plan(), "stop c-0 30s Changed; start c#1~0");
}

#[test]
fn failing_probes_stop_a_container_with_the_probes_own_grace() {
    let check = |verdicts: ContainerProbes, plan: &str| {
        let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
        scene.probes.insert(ContainerName::new("c"), verdicts);
        assert_eq!(scene.plan(), plan);
    };
    let failed = Verdict::Failure { grace: None };
    let failed_in_a_hurry = Verdict::Failure {
        grace: Some(GracePeriod::from_secs(3)),
    };
    check(probes(Verdict::Success, Verdict::Success), "");
    check(
        probes(failed, Verdict::Success),
        "stop c-0 30s NotLive; start c#1~0",
    );
    check(
        probes(failed_in_a_hurry, Verdict::Success),
        "stop c-0 3s NotLive; start c#1~0",
    );
    check(
        probes(Verdict::Pending, failed),
        "stop c-0 30s NotStarted; start c#1~0",
    );
}

#[test]
fn init_containers_run_one_after_the_other() {
    let two = || {
        Scene::new(pod(
            "Always",
            vec![container("i"), container("j")],
            vec![container("c")],
        ))
    };
    let done = |name: &str| seen_container(name, 0, exited(0, NOW - 20, NOW - 10));
    assert_eq!(two().with(vec![]).plan(), "start i");
    assert_eq!(
        two().with(vec![seen_container("i", 0, running())]).plan(),
        ""
    );
    assert_eq!(two().with(vec![done("i")]).plan(), "start j");
    // The runtime may have forgotten the first one.
    assert_eq!(two().with(vec![done("j")]).plan(), "start c");
    assert_eq!(
        two().with(vec![seen_container("c", 0, running())]).plan(),
        ""
    );
}

#[test]
fn a_failed_init_container_is_tried_again_unless_the_policy_forbids_it() {
    let check = |policy: &str, plan: &str| {
        let scene = Scene::new(pod(policy, vec![container("i")], vec![container("c")]))
            .with(vec![seen_container("i", 0, exited(1, NOW - 20, NOW - 10))]);
        assert_eq!(scene.plan(), plan, "{policy}");
    };
    check("Always", "start i#1~1");
    check("OnFailure", "start i#1~1");
    check("Never", "stop s-0");
}

#[test]
fn a_sidecar_counts_as_done_once_it_runs_and_has_started() {
    let scene = |probe: bool| {
        let mut side = sidecar("s");
        side.startup_probe = probe.then(Probe::default);
        Scene::new(pod(
            "Always",
            vec![side, container("i")],
            vec![container("c")],
        ))
        .with(vec![seen_container("s", 0, running())])
    };
    assert_eq!(scene(false).plan(), "start i");
    assert_eq!(scene(true).plan(), "");
    let mut started = scene(true);
    started.probes.insert(
        ContainerName::new("s"),
        probes(Verdict::Pending, Verdict::Success),
    );
    assert_eq!(started.plan(), "start i");
}

#[test]
fn a_sidecar_comes_back_at_any_time() {
    let spec = || {
        pod(
            "Never",
            vec![sidecar("s"), container("i")],
            vec![container("c")],
        )
    };
    let dead = || seen_container("s", 0, exited(0, NOW - 20, NOW - 10));
    let during = Scene::new(spec()).with(vec![seen_container("i", 0, running()), dead()]);
    assert_eq!(during.plan(), "start s#1~1");
    let after = Scene::new(spec()).with(vec![seen_container("c", 0, running()), dead()]);
    assert_eq!(after.plan(), "start s#1~1");
    let forgotten = Scene::new(spec()).with(vec![seen_container("c", 0, running())]);
    assert_eq!(forgotten.plan(), "start s");
}

#[test]
fn sidecars_do_not_keep_a_pod_alive_whose_work_is_done() {
    let scene = Scene::new(pod("Never", vec![sidecar("s")], vec![container("c")])).with(vec![
        seen_container("c", 0, exited(0, NOW - 20, NOW - 10)),
        seen_container("s", 0, running()),
    ]);
    assert_eq!(scene.plan(), "stop s-0 30s PodEnds; stop s-0");
}

#[test]
fn sidecars_stop_last_and_in_reverse_order() {
    let mut scene = Scene::new(pod(
        "Always",
        vec![sidecar("s"), sidecar("t")],
        vec![container("a"), container("b")],
    ))
    .with(
        ["a", "b", "t", "s"]
            .map(|name| seen_container(name, 0, running()))
            .to_vec(),
    );
    scene.wish = Wish::End { grace: None };
    assert_eq!(scene.plan(), "stop a-0 30s PodEnds, stop b-0 30s PodEnds");
    // The regular ones took ten seconds: the sidecars share what is left.
    scene.state = PodState::Stopping {
        grace: GracePeriod::from_secs(30),
        since: at(NOW - 10),
    };
    scene.seen.containers.drain(..2);
    assert_eq!(scene.plan(), "stop t-0 20s PodEnds");
    scene.seen.containers.remove(0);
    scene.state = PodState::Stopping {
        grace: GracePeriod::from_secs(30),
        since: at(NOW - 40),
    };
    assert_eq!(scene.plan(), "stop s-0 2s PodEnds");
    scene.seen.containers.clear();
    assert_eq!(scene.plan(), "stop s-0");
}

#[test]
fn a_failed_pull_shows_its_error_then_backs_off_then_is_tried_again() {
    let check = |failed_ago: i64, count: u32, reason: Option<&str>, plan: &str| {
        let mut scene = Scene::new(simple()).with(vec![]);
        let kind = FailureKind::ImagePull {
            image: "busybox".to_owned(),
        };
        let at = at(NOW - failed_ago);
        let failure = Failure {
            kind,
            reason: "ErrImagePull",
            message: "no such image".to_owned(),
            count,
            at,
        };
        scene.failures.insert(ContainerName::new("c"), failure);
        let step = scene.step();
        assert_eq!(
            step.waiting.get("c").map(|why| why.reason),
            reason,
            "{failed_ago} s ago"
        );
        assert_eq!(in_words(&step), plan, "{failed_ago} s ago");
    };
    check(0, 1, Some("ErrImagePull"), "");
    check(2, 1, Some("ImagePullBackOff"), "");
    check(10, 1, None, "start c");
    check(10, 2, Some("ImagePullBackOff"), "");
    check(20, 2, None, "start c");
}

#[test]
fn another_failure_of_a_container_keeps_its_reason_until_the_next_try() {
    let mut scene = Scene::new(simple()).with(vec![]);
    let message = "no command".to_owned();
    let failure = Failure {
        kind: FailureKind::Other,
        reason: "CreateContainerError",
        message,
        count: 3,
        at: at(NOW - 1),
    };
    scene.failures.insert(ContainerName::new("c"), failure);
    let step = scene.step();
    assert_eq!(step.waiting["c"].reason, "CreateContainerError");
    assert_eq!(step.wake_at, Some(at(NOW + 3)));
}

#[test]
fn a_failed_sandbox_is_tried_again_after_a_growing_pause() {
    let check = |count: u32, ago: i64, plan: &str| {
        let mut scene = Scene::new(simple());
        let message = "no network".to_owned();
        let at = at(NOW - ago);
        scene.pod_failure = Some(Failure {
            kind: FailureKind::Other,
            reason: "FailedCreatePodSandBox",
            message,
            count,
            at,
        });
        assert_eq!(scene.plan(), plan, "try {count}, {ago} s ago");
    };
    check(1, 0, "");
    check(1, 1, "sandbox 0");
    check(4, 7, "");
    check(4, 8, "sandbox 0");
    check(40, 10, "sandbox 0");
}

#[test]
fn old_corpses_are_removed_with_their_logs() {
    let scene = Scene::new(simple()).with(vec![
        seen_container("c", 3, running()),
        seen_container("c", 2, exited(1, NOW - 90, NOW - 80)),
        seen_container("c", 1, exited(1, NOW - 190, NOW - 180)),
    ]);
    assert_eq!(scene.plan(), "remove c-1 and log");
}

#[test]
fn a_restarted_agent_makes_sure_of_the_set_up_of_a_running_pod_and_touches_no_container() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.setup = Setup::default();
    assert_eq!(scene.plan(), "cgroup, files, volumes");
}

#[test]
fn a_forgotten_pod_goes_step_by_step() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.wish = Wish::Forget { grace: None };
    let step = scene.step();
    assert_eq!(step.next, stopping(30));
    assert_eq!(in_words(&step), "stop c-0 30s PodEnds; stop s-0");

    let mut scene = scene.sandboxes(vec![sandbox(0, false)]);
    scene.state = step.next;
    scene.seen.containers[0].state = exited(0, NOW - 20, NOW);
    assert_eq!(scene.plan(), "release volumes");
    scene.setup.volumes = Presence::Absent;
    assert_eq!(scene.plan(), "remove cgroup");
    scene.setup.cgroup = Presence::Absent;
    assert_eq!(scene.plan(), "remove c-0; remove s-0");
    scene.seen.containers.clear();
    scene.seen.sandboxes.clear();
    assert_eq!(scene.plan(), "remove files, remove logs");
    scene.setup.files = Presence::Absent;
    scene.setup.logs = Presence::Absent;
    assert_eq!(scene.step(), Step::rest(PodState::Gone));
}

#[test]
fn a_terminal_pod_is_taken_down_but_keeps_its_corpses() {
    let mut scene = Scene::new(pod("Never", vec![], vec![container("c")]))
        .with(vec![seen_container("c", 0, exited(0, NOW - 20, NOW - 10))]);
    scene.phase = Phase::Succeeded;
    assert_eq!(scene.plan(), "stop s-0");
    let mut scene = scene.sandboxes(vec![sandbox(0, false)]);
    scene.setup.volumes = Presence::Absent;
    scene.setup.cgroup = Presence::Absent;
    assert_eq!(scene.step(), Step::rest(PodState::Settled));
}

#[test]
fn a_second_kill_cannot_buy_more_time() {
    let check = |asked: Option<i64>, grace: i64| {
        let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
        scene.state = stopping(5);
        scene.wish = Wish::End {
            grace: asked.map(GracePeriod::from_secs),
        };
        assert_eq!(scene.step().next, stopping(grace), "asked {asked:?}");
    };
    check(None, 5);
    check(Some(50), 5);
    check(Some(3), 3);
    check(Some(0), 1);
}

#[test]
fn what_nobody_asked_for_gets_a_second() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.pod = None;
    scene.wish = Wish::Forget { grace: None };
    assert_eq!(scene.step().next, stopping(1));
    assert_eq!(scene.plan(), "stop c-0 2s PodEnds; stop s-0");
}

#[test]
fn nothing_starts_once_a_pod_has_left_running() {
    let states = [
        stopping(5),
        PodState::Stopped,
        PodState::Settled,
        PodState::Gone,
    ];
    for state in states {
        let mut scene = Scene::new(simple()).with(vec![]);
        scene.state = state;
        let starts = scene.step().stages.into_iter().flatten().any(|action| {
            matches!(
                action,
                Action::Start { .. } | Action::CreateSandbox { .. } | Action::EnsureCgroup
            )
        });
        assert!(!starts, "{state:?}");
    }
}

#[test]
fn ephemeral_containers_start_once() {
    use k8s_openapi::api::core::v1::EphemeralContainer;
    let mut spec = simple();
    let debug = EphemeralContainer {
        name: "d".to_owned(),
        image: Some("busybox".to_owned()),
        ..Default::default()
    };
    spec.spec.as_mut().unwrap().ephemeral_containers = Some(vec![debug]);
    let fresh = Scene::new(spec.clone()).with(vec![seen_container("c", 0, running())]);
    assert_eq!(fresh.plan(), "start d");
    let kinds: Vec<ContainerKind> = fresh
        .step()
        .stages
        .into_iter()
        .flatten()
        .filter_map(|action| match action {
            Action::Start { kind, .. } => Some(kind),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [ContainerKind::Ephemeral]);
    let ended = Scene::new(spec).with(vec![
        seen_container("c", 0, running()),
        seen_container("d", 0, exited(1, NOW - 20, NOW - 10)),
    ]);
    assert_eq!(ended.plan(), "");
}

#[test]
fn a_container_that_we_stop_waits_for_the_one_that_died_before_it() {
    // As upstream: the wait is that of the streak, counted from the end of the container before.
    let check = |streak: u32, died_ago: Option<i64>, plan: &str| {
        let mut containers = vec![seen_container("c", streak, running())];
        containers.extend(
            died_ago.map(|ago| seen_container("c", 0, exited(137, NOW - ago - 5, NOW - ago))),
        );
        let mut scene = Scene::new(simple()).with(containers);
        let verdicts = probes(Verdict::Failure { grace: None }, Verdict::Success);
        scene.probes.insert(ContainerName::new("c"), verdicts);
        assert_eq!(scene.plan(), plan, "streak {streak}");
    };
    check(0, None, "stop c-0 30s NotLive; start c#1~0");
    check(0, Some(3), "stop c-0 30s NotLive; start c#1~1");
    check(1, Some(3), "stop c-1 30s NotLive");
    check(1, Some(10), "stop c-1 30s NotLive; start c#2~2");
}

/// 8.5, 8.10: running containers take new bounds, those whose policy says so restart, and the pod's bounds follow before starts.
#[test]
fn granted_resources_are_put_in_force_before_anything_starts() {
    let names = |list: &str| -> std::collections::BTreeSet<ContainerName> {
        list.split_whitespace().map(ContainerName::new).collect()
    };
    let check = |updates: &str, restarts: &str, containers: Vec<ObservedContainer>, plan: &str| {
        let two = pod("Never", vec![], vec![container("a"), container("b")]);
        let mut scene = Scene::new(two).with(containers);
        scene.resize.updates = names(updates);
        scene.resize.restarts = names(restarts);
        assert_eq!(scene.plan(), plan, "{updates}/{restarts}");
    };
    let runs = |name: &str| seen_container(name, 0, running());
    check("", "", vec![runs("a"), runs("b")], "");
    check("a", "", vec![runs("a"), runs("b")], "resize a");
    check("a b", "", vec![runs("a"), runs("b")], "resize a+b");
    check(
        "a",
        "b",
        vec![runs("a"), runs("b")],
        "stop b-0 30s Resized; resize a; start b#1~0",
    );
    check("b", "", vec![runs("a")], "resize ; start b");
    let done = seen_container("b", 0, exited(0, NOW - 20, NOW - 10));
    check("b", "", vec![runs("a"), done], "");
}

/// 8.10: the pod's own resources need no container's.
#[test]
fn resources_of_the_pod_itself_are_put_in_force_too() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.resize.is_pod_level = true;
    assert_eq!(scene.plan(), "resize ");
}

/// 8.10: a resize that failed is tried again after a pause, and nothing else waits for it.
#[test]
fn a_failed_resize_waits_alone() {
    let two = pod("Always", vec![], vec![container("a"), container("b")]);
    let mut scene = Scene::new(two).with(vec![seen_container("a", 0, running())]);
    scene.resize.updates.insert(ContainerName::new("a"));
    scene.resize.failure = Some(Failure {
        kind: FailureKind::Other,
        reason: "Error",
        message: "no".to_owned(),
        count: 1,
        at: at(NOW),
    });
    let step = scene.step();
    assert_eq!(in_words(&step), "start b");
    assert_eq!(step.wake_at, Some(at(NOW + 1)));
}

/// 8.6: a sidecar and an init container that runs are resized like any other.
#[test]
fn init_containers_and_sidecars_are_resized() {
    let list = pod(
        "Always",
        vec![sidecar("s"), container("i")],
        vec![container("c")],
    );
    let mut scene = Scene::new(list).with(vec![
        seen_container("i", 0, running()),
        seen_container("s", 0, running()),
    ]);
    scene.resize.updates.insert(ContainerName::new("i"));
    scene.resize.updates.insert(ContainerName::new("s"));
    assert_eq!(scene.plan(), "resize s+i");
    let mut scene = Scene::new(pod("Always", vec![sidecar("s")], vec![container("c")])).with(vec![
        seen_container("c", 0, running()),
        seen_container("s", 0, running()),
    ]);
    scene.resize.restarts.insert(ContainerName::new("s"));
    assert_eq!(scene.plan(), "stop s-0 30s Resized; resize ; start s#1~0");
}

/// 8.5, 8.6: the first rule that fits an exit code stands above the container's policy, and that above the pod's.
#[test]
fn rules_about_exit_codes_come_first_then_the_containers_policy_then_the_pods() {
    let check = |pods: &str, own: Option<&str>, rules: &str, code: i32, restarts: bool| {
        let rules: Vec<k8s_openapi::api::core::v1::ContainerRestartRule> = rules
            .split_whitespace()
            .map(|rule| {
                let (operator, codes) = rule.split_once(':').unwrap();
                k8s_openapi::api::core::v1::ContainerRestartRule {
                    action: "Restart".to_owned(),
                    exit_codes: Some(
                        k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes {
                            operator: operator.to_owned(),
                            values: Some(codes.split(',').map(|it| it.parse().unwrap()).collect()),
                        },
                    ),
                }
            })
            .collect();
        let mine = Container {
            restart_policy: own.map(str::to_owned),
            restart_policy_rules: Some(rules),
            ..container("c")
        };
        let dead = seen_container("c", 0, exited(code, NOW - 20, NOW - 10));
        let pod = pod(pods, vec![], vec![mine.clone()]);
        assert_eq!(
            should_restart(&pod, &mine, Some(&dead)),
            restarts,
            "{pods} {own:?} {code}"
        );
    };
    check("Never", None, "", 1, false);
    check("Never", Some("Always"), "", 0, true);
    check("Always", Some("Never"), "", 1, false);
    check("Always", Some("OnFailure"), "", 0, false);
    check("Never", Some("OnFailure"), "", 1, true);
    check("Never", Some("Never"), "In:42", 42, true);
    check("Never", Some("Never"), "In:42", 43, false);
    check("Never", Some("Never"), "NotIn:1,2", 3, true);
    check("Never", Some("Never"), "NotIn:1,2 In:7", 2, false);
    check("Never", Some("Never"), "NotIn:1,2 In:2", 2, true);
}

/// 8.5, 8.6: everything is removed without grace, the containers that asked for it last; sandbox, volumes and logs stay.
#[test]
fn a_pod_that_starts_anew_in_place_is_cleared_of_containers_first() {
    let rule = k8s_openapi::api::core::v1::ContainerRestartRule {
        action: "RestartAllContainers".to_owned(),
        exit_codes: Some(
            k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes {
                operator: "In".to_owned(),
                values: Some(vec![42]),
            },
        ),
    };
    let source = Container {
        restart_policy: Some("Never".to_owned()),
        restart_policy_rules: Some(vec![rule]),
        ..container("source")
    };
    let all = pod(
        "Never",
        vec![container("i"), sidecar("s")],
        vec![container("c"), source],
    );
    let mut scene = Scene::new(all).with(vec![
        seen_container("source", 0, exited(42, NOW - 20, NOW - 10)),
        seen_container("c", 0, running()),
        seen_container("s", 0, running()),
        seen_container("i", 0, exited(0, NOW - 40, NOW - 30)),
    ]);
    scene.is_restarting_all = true;
    assert_eq!(
        scene.plan(),
        "stop c-0 0s AllRestart; remove c-0; stop s-0 0s AllRestart; remove i-0, remove s-0; remove source-0"
    );
    scene.seen.containers.clear();
    scene.is_restarting_all = false;
    assert_eq!(scene.plan(), "start i");
}

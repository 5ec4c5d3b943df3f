//! The rules of phase, conditions, addresses and what stays of the previous status.

use ferrolet_types::{
    Timestamp,
    observed::{NetworkMode, ObservedContainer, ObservedSandbox},
    pod::Phase,
};
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};

use super::support::{World, exited, of, running, said, sandbox};
use ferrolet_pod::EndReason;

use crate::{Stage, StatusOverride};

fn two(policy: &str) -> World {
    World::new(json!({
        "restartPolicy": policy,
        "containers": [{ "name": "a" }, { "name": "b" }],
    }))
}

fn with_init(policy: &str) -> World {
    World::new(json!({
        "restartPolicy": policy,
        "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }],
        "containers": [{ "name": "c" }],
    }))
}

/// Phase.
#[test]
fn the_phase_of_regular_containers_follows_states_and_policy() {
    let check = |policy: &str, seen: Vec<ObservedContainer>, expected: &str| {
        let world = two(policy).seeing(seen);
        assert_eq!(world.phase(), expected, "{policy} {:?}", world.observation);
    };
    let (a, b) = (|code| exited("a", 0, code), |code| exited("b", 0, code));
    check("Always", vec![], "Pending");
    check("Always", vec![running("a", 0)], "Pending");
    check("Always", vec![running("a", 0), running("b", 0)], "Running");
    check("Always", vec![running("a", 0), b(1)], "Running");
    check("Always", vec![a(0), b(0)], "Running");
    check("OnFailure", vec![a(0), b(1)], "Running");
    check("OnFailure", vec![a(0), b(0)], "Succeeded");
    check("Never", vec![a(0), b(0)], "Succeeded");
    check("Never", vec![a(0), b(1)], "Failed");
    check("Never", vec![running("a", 0), b(1)], "Running");
}

/// Phase: pending until initialised.
#[test]
fn the_phase_of_init_containers_and_sidecars_comes_first() {
    let check = |policy: &str, seen: Vec<ObservedContainer>, expected: &str| {
        let world = with_init(policy).seeing(seen);
        assert_eq!(world.phase(), expected, "{policy} {:?}", world.observation);
    };
    let (done, side, c) = (|| exited("i", 0, 0), || running("s", 0), || running("c", 0));
    check("Never", vec![exited("i", 0, 1)], "Failed");
    check("Always", vec![exited("i", 0, 1)], "Pending");
    check("Always", vec![running("i", 0)], "Pending");
    check("Always", vec![side(), done()], "Pending");
    check("Always", vec![c(), side(), done()], "Running");
    // A sidecar that is down between two runs leaves the pod running.
    check("Always", vec![c(), exited("s", 0, 1), done()], "Running");
    check("Never", vec![exited("c", 0, 0), exited("s", 0, 137), done()], "Succeeded");
    check("Never", vec![exited("c", 0, 0), side(), done()], "Running");
}

/// Phase; sidecars restart at any time.
#[test]
fn a_sidecar_that_starts_again_does_not_make_its_pod_pending() {
    let probe = json!({ "exec": { "command": ["true"] } });
    let world = World::new(json!({
        "initContainers": [{ "name": "s", "restartPolicy": "Always", "startupProbe": probe }],
        "containers": [{ "name": "c" }],
    }));
    let mut world = world.seeing(vec![running("s", 1), running("c", 0), exited("s", 0, 1)]);
    world.fact("s").started = Some(false);
    assert_eq!(world.phase(), "Running");
    world.observation.containers[1].sandbox = "older".into();
    assert_eq!(world.phase(), "Pending", "only the sandbox in use counts");
}

/// Terminating: the final status is computed as terminal.
#[test]
fn exit_codes_alone_name_the_phase_of_a_stopped_pod() {
    let check = |stage: Stage, code: i32, source: &str, expected: &str| {
        let mut world = World::of_one("Always").seeing(vec![exited("c", 0, code)]).at(stage);
        let annotation = [("kubernetes.io/config.source".to_owned(), source.to_owned())];
        world.pod.metadata.annotations = Some(annotation.into());
        assert_eq!(world.phase(), expected, "{stage:?} {code} {source}");
    };
    check(Stage::Terminating, 0, "api", "Running");
    check(Stage::Stopped, 0, "api", "Succeeded");
    check(Stage::Stopped, 137, "api", "Failed");
    check(Stage::Stopped, 0, "file", "Running");
    check(Stage::Terminated, 0, "file", "Running");
}

/// A terminal phase stays.
#[test]
fn nothing_leads_out_of_a_terminal_phase() {
    let check = |api: &str, previous: Option<&str>, expected: &str, reason: Option<&str>| {
        let status = |phase: &str| PodStatus {
            phase: Some(phase.to_owned()),
            reason: Some("Told".to_owned()),
            ..PodStatus::default()
        };
        let mut world = World::of_one("Always").seeing(vec![running("c", 0)]);
        world.pod.status = Some(status(api));
        world.previous = previous.map(status);
        let found = world.status();
        assert_eq!(found.phase.as_deref(), Some(expected), "{api} {previous:?}");
        assert_eq!(found.reason.as_deref(), reason, "{api} {previous:?}");
    };
    check("Pending", Some("Pending"), "Running", None);
    check("Running", Some("Failed"), "Failed", Some("Told"));
    check("Failed", None, "Failed", Some("Told"));
    check("Succeeded", Some("Failed"), "Succeeded", None);
}

/// Rejection; active deadline: phase, reason and message.
#[test]
fn a_verdict_names_phase_reason_and_readiness() {
    let mut world = World::of_one("Always").seeing(vec![running("c", 0)]);
    let disruption = serde_json::from_value(json!({
        "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
    }));
    world.verdict = Some(StatusOverride::Ended {
        phase: Phase::Failed,
        reason: EndReason::Evicted,
        message: "why".to_owned(),
        conditions: vec![disruption.unwrap()],
    });
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    assert_eq!(status.message.as_deref(), Some("why"));
    assert_eq!(said(&status, "Ready"), "False PodFailed");
    assert_eq!(said(&status, "DisruptionTarget"), "True TerminationByKubelet");
    let later = World::of_one("Always").seeing(vec![exited("c", 0, 137)]);
    let later = later.after(status).at(Stage::Stopped).status();
    assert_eq!(later.reason.as_deref(), Some("Evicted"), "stays without the verdict");
    assert_eq!(said(&later, "DisruptionTarget"), "True TerminationByKubelet");
}

/// The last status of a pod that was killed with a status of its own.
#[test]
fn who_had_to_go_and_ended_well_has_succeeded() {
    let check = |why: EndReason, code: i32, phase: &str, reason: Option<&str>| {
        let mut world = World::of_one("Always").seeing(vec![exited("c", 0, code)]);
        world.verdict = Some(StatusOverride::Ended {
            phase: Phase::Failed,
            reason: why,
            message: "why".to_owned(),
            conditions: Vec::new(),
        });
        let status = world.at(Stage::Stopped).status();
        assert_eq!(status.phase.as_deref(), Some(phase));
        assert_eq!(status.reason.as_deref(), reason);
    };
    check(EndReason::Preempting, 0, "Succeeded", None);
    check(EndReason::Preempting, 137, "Failed", Some("Preempting"));
    check(EndReason::Evicted, 0, "Succeeded", None);
    check(EndReason::Terminated, 1, "Failed", Some("Terminated"));
    check(EndReason::DeadlineExceeded, 0, "Failed", Some("DeadlineExceeded"));
}

/// Condition PodReadyToStartContainers.
#[test]
fn the_sandbox_condition_says_what_is_wrong() {
    let check = |sandboxes: Vec<ObservedSandbox>, expected: &str| {
        let mut world = World::of_one("Always");
        world.observation.sandboxes = sandboxes;
        let expected = match expected {
            "" => "True".to_owned(),
            message => format!("False PodSandboxNotReady {message}"),
        };
        assert_eq!(said(&world.status(), "PodReadyToStartContainers"), expected);
    };
    let host = ObservedSandbox { network: NetworkMode::Node, ..sandbox(true) };
    let mute = ObservedSandbox { ips: vec![], ..sandbox(true) };
    check(vec![sandbox(true)], "");
    check(vec![sandbox(true), sandbox(false)], "");
    check(vec![], "no pod sandbox exists");
    check(vec![sandbox(false), sandbox(true)], "pod sandbox is not ready");
    check(
        vec![sandbox(true), sandbox(true)],
        "multiple pod sandboxes are ready and need to be reconciled",
    );
    check(vec![host], "network namespace mode changed and sandbox needs to be recreated");
    check(vec![mute], "pod sandbox has no IP address");
}

/// Conditions Initialized, ContainersReady and Ready.
#[test]
fn readiness_and_initialisation_name_the_containers_they_miss() {
    let status = with_init("Always").status();
    assert_eq!(
        said(&status, "Initialized"),
        "False ContainersNotInitialized containers with incomplete status: [i s]"
    );
    assert_eq!(
        said(&status, "ContainersReady"),
        "False ContainersNotReady containers with unready status: [s c]"
    );
    let seen = vec![running("s", 0), exited("i", 0, 0)];
    let status = with_init("Always").seeing(seen).status();
    assert_eq!(said(&status, "Initialized"), "True");
    assert_eq!(
        said(&status, "Ready"),
        "False ContainersNotReady containers with unready status: [c]"
    );
    // What was initialised stays so when its sandbox is lost and all begins again.
    let again = with_init("Always").after(status).status();
    assert_eq!(said(&again, "Initialized"), "True");
}

/// Readiness gates.
#[test]
fn gates_hold_readiness_back_until_their_condition_is_true() {
    let check = |conditions: Value, expected: &str| {
        let mut world = World::new(json!({
            "containers": [{ "name": "c" }], "readinessGates": [{ "conditionType": "x/y" }],
        }));
        world.observation.containers = vec![running("c", 0)];
        let status = json!({ "phase": "Running", "conditions": conditions });
        world.pod.status = serde_json::from_value(status).unwrap();
        let status = world.status();
        assert_eq!(said(&status, "Ready"), expected);
        assert_eq!(said(&status, "ContainersReady"), "True");
    };
    check(
        json!([]),
        "False ReadinessGatesNotReady corresponding condition of pod readiness gate \"x/y\" does not exist.",
    );
    check(
        json!([{ "type": "x/y", "status": "Unknown" }]),
        "False ReadinessGatesNotReady the status of pod readiness gate \"x/y\" is not \"True\", but Unknown",
    );
    check(json!([{ "type": "x/y", "status": "True" }]), "True");
}

/// Conditions of others are kept.
#[test]
fn conditions_keep_their_order_and_those_of_others_come_first() {
    let mut world = World::of_one("Always");
    let status = json!({ "conditions": [
        { "type": "Ready", "status": "True" },
        { "type": "x/y", "status": "True" },
    ]});
    world.pod.status = serde_json::from_value(status).unwrap();
    let resize = json!({ "type": "PodResizePending", "status": "True", "reason": "Deferred" });
    world.resize = vec![serde_json::from_value(resize).unwrap()];
    let kinds = |world: &World| {
        let conditions = world.status().conditions.unwrap();
        conditions.into_iter().map(|c| c.type_).collect::<Vec<_>>()
    };
    let own =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    assert_eq!(kinds(&world)[..2], ["x/y", "PodResizePending"]);
    assert_eq!(kinds(&world)[2..], own);
    let stopped = world.at(Stage::Stopped);
    assert_eq!(kinds(&stopped)[0], "x/y");
    assert_eq!(kinds(&stopped)[1..], own, "a stopped pod is not resized");
}

/// Transition times.
#[test]
fn times_of_change_move_only_with_the_status() {
    let time = |status: &PodStatus, kind: &str| {
        let mut list = status.conditions.iter().flatten();
        let condition = list.find(|condition| condition.type_ == kind).unwrap();
        let time = condition.last_transition_time.as_ref().unwrap();
        time.0.as_second()
    };
    let early = World::of_one("Always").status();
    let mut world = World::of_one("Always").seeing(vec![running("c", 0)]);
    world.now = Timestamp::from_second(200);
    let late = world.after(early.clone()).status();
    assert_eq!((time(&early, "Ready"), time(&late, "Ready")), (100, 200));
    assert_eq!(time(&late, "PodScheduled"), 100);
    assert_eq!(late.start_time, early.start_time, "a pod starts once");
}

/// ObservedGeneration.
#[test]
fn the_generation_is_told_where_the_api_counts_it() {
    let check = |generation: Option<i64>, old: Option<i64>, expected: Option<i64>| {
        let mut world = World::of_one("Always");
        world.pod.metadata.generation = generation;
        let status = world.after(PodStatus { observed_generation: old, ..PodStatus::default() });
        assert_eq!(status.status().observed_generation, expected);
        for condition in status.status().conditions.unwrap() {
            assert_eq!(condition.observed_generation, generation);
        }
    };
    check(None, None, None);
    check(Some(2), Some(1), Some(2));
    check(Some(2), Some(3), Some(3));
}

/// Addresses.
#[test]
fn addresses_come_one_of_each_family_the_nodes_first() {
    let check = |hosts: &[&str], sandbox_ips: &[&str], host_network: bool, expected: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|ip| (*ip).to_owned()).collect::<Vec<_>>();
        let mut world = World::of_one("Always");
        world.pod.spec.as_mut().unwrap().host_network = Some(host_network);
        world.host_ips = owned(hosts);
        world.observation.sandboxes[0].ips = owned(sandbox_ips);
        let status = world.status();
        let found: Vec<_> = status.pod_ips.iter().flatten().map(|pod| &pod.ip).collect();
        assert_eq!(found, expected, "{hosts:?} {sandbox_ips:?}");
        assert_eq!(status.pod_ip.as_ref(), found.first().copied());
        assert_eq!(status.host_ip.as_deref(), hosts.first().copied());
        assert_eq!(status.host_ips.map_or(0, |list| list.len()), hosts.len());
    };
    let both = ["fd00::7", "10.88.0.7", "10.88.0.8"];
    check(&["10.0.0.1"], &both, false, &["10.88.0.7", "fd00::7"]);
    check(&["fd00::1"], &both, false, &["fd00::7", "10.88.0.7"]);
    check(&[], &["10.88.0.7"], false, &["10.88.0.7"]);
    check(&["10.0.0.1"], &[], false, &[]);
    check(&["10.0.0.1", "fd00::1"], &[], true, &["10.0.0.1", "fd00::1"]);
    check(&[], &[], true, &[]);
}

/// Addresses are kept when all sandboxes have stopped.
#[test]
fn a_stopped_pod_keeps_its_address() {
    let before = World::of_one("Always").status();
    let mut world = World::of_one("Always").after(before);
    world.observation.sandboxes = vec![sandbox(false)];
    assert_eq!(world.status().pod_ip.as_deref(), Some("10.88.0.7"));
    world.observation.sandboxes.clear();
    assert_eq!(world.status().pod_ip.as_deref(), Some("10.88.0.7"));
}

/// Allocated resources in status.
#[test]
fn a_pod_asks_for_the_sum_or_for_its_largest_moment() {
    let container = |name: &str, cpu: &str| json!({ "name": name, "resources": { "requests": { "cpu": cpu } } });
    let check = |spec: Value, expected: &str| {
        let status = World::new(spec).status();
        let amounts = status.allocated_resources.clone().unwrap();
        assert_eq!(amounts["cpu"].0, expected);
        let shown = status.resources.unwrap().requests.unwrap();
        assert_eq!(shown["cpu"].0, expected);
    };
    let sidecar = |cpu: &str| {
        let mut container = container("s", cpu);
        container["restartPolicy"] = json!("Always");
        container
    };
    let regular = json!([container("a", "100m"), container("b", "150m")]);
    check(json!({ "containers": regular }), "250m");
    check(json!({ "containers": regular, "initContainers": [container("i", "1")] }), "1");
    check(
        json!({ "containers": regular, "initContainers": [sidecar("100m"), container("i", "1")] }),
        "1100m",
    );
    check(
        json!({ "containers": regular, "initContainers": [container("i", "10m"), sidecar("100m")] }),
        "350m",
    );
    check(
        json!({
            "containers": regular,
            "resources": { "requests": { "cpu": "2" } },
            "overhead": { "cpu": "50m" },
        }),
        "2050m",
    );
}

/// Termination message: 12 KiB in a pod; times.
#[test]
fn messages_share_their_room_and_times_lose_their_fractions() {
    let long = "ä".repeat(8000);
    let mut end = exited("a", 0, 1);
    if let ferrolet_types::observed::ContainerState::Exited(exit) = &mut end.state {
        exit.message = long;
        exit.finished_at = Timestamp::from_nanos(12_999_999_999).unwrap();
    }
    let status = two("Never").seeing(vec![end]).status();
    let end = of(&status, "a").state.clone().unwrap().terminated.unwrap();
    assert_eq!(end.message.unwrap().len(), 6 * 1024);
    assert_eq!(end.finished_at.unwrap().0, Timestamp::from_second(12).0);
}

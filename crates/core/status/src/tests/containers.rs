//! The rules of container statuses, one test each.

use super::support::{self, World, brief, container, exited, of, running};
use crate::Stage;
use ferrolet_types::observed::{ContainerState, ObservedContainer, ObservedResources};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use serde_json::{Value, json};

/// A pod with a plain init container, a sidecar and a regular container.
fn layered() -> World {
    World::new(json!({
        "initContainers": [
            { "name": "first" },
            { "name": "side", "restartPolicy": "Always" },
        ],
        "containers": [{ "name": "c" }],
    }))
}

fn was_running(name: &str) -> PodStatus {
    let status = json!({ "containerStatuses": [{
        "name": name, "image": "i", "imageID": "", "ready": true, "restartCount": 4,
        "containerID": "containerd://c-4", "started": true, "state": { "running": {} },
    }]});
    serde_json::from_value(status).unwrap()
}

/// Container states: ContainerCreating and PodInitializing.
#[test]
fn what_was_never_made_waits_for_creation_or_for_initialisation() {
    let check = |world: World, reason: &str| {
        let expected = format!("waiting {reason}, -, 0");
        assert_eq!(brief(of(&world.status(), "c")), expected);
    };
    check(World::of_one("Always"), "ContainerCreating");
    check(layered(), "PodInitializing");
}

/// Container states: the newest and the one before it.
#[test]
fn the_two_newest_containers_of_a_name_are_told() {
    let check = |seen: Vec<ObservedContainer>, expected: &str| {
        let status = World::of_one("Always").seeing(seen).status();
        assert_eq!(brief(of(&status, "c")), expected);
    };
    check(vec![running("c", 0)], "running, -, 0");
    check(vec![running("c", 1), exited("c", 0, 3)], "running, Error 3, 1");
    check(vec![exited("c", 2, 5), exited("c", 1, 4), exited("c", 0, 3)], "Error 5, Error 4, 2");
    check(vec![container("c", 0, ContainerState::Created)], "waiting , -, 0");
}

/// ContainerStatusUnknown, exit code 137.
#[test]
fn a_running_container_that_vanished_ended_in_an_unknown_way() {
    let world = World::of_one("Always").after(was_running("c"));
    let status = world.status();
    let expected = "waiting ContainerCreating, ContainerStatusUnknown 137, 5";
    assert_eq!(brief(of(&status, "c")), expected);
    assert_eq!(status.phase.as_deref(), Some("Running"));

    let again = World::of_one("Always").after(status).status();
    assert_eq!(brief(of(&again, "c")), expected, "counted once");

    let deleted = World::of_one("Always").after(was_running("c")).deleted();
    let expected = "waiting ContainerCreating, ContainerStatusUnknown 137, 4";
    assert_eq!(brief(of(&deleted.status(), "c")), expected);
}

/// What the API was told of an end stays.
#[test]
fn an_end_once_told_outlives_the_container() {
    let ended = World::of_one("Never").seeing(vec![exited("c", 0, 3)]).status();
    let status = World::of_one("Never").after(ended.clone()).status();
    assert_eq!(of(&status, "c"), of(&ended, "c"));
}

/// ContainerStatusUnknown for what the runtime lost.
#[test]
fn a_container_the_runtime_lost_sight_of_failed_if_it_ran() {
    let seen = || vec![container("c", 4, ContainerState::Unknown)];
    let status = World::of_one("Never").after(was_running("c")).seeing(seen()).status();
    assert_eq!(brief(of(&status, "c")), "ContainerStatusUnknown 137, -, 5");
    let status = World::of_one("Never").seeing(seen()).status();
    assert_eq!(brief(of(&status, "c")), "waiting , -, 4");
}

/// A regular container proves that every init container was done.
#[test]
fn a_lost_init_container_counts_as_done_once_a_regular_one_exists() {
    let status = layered().seeing(vec![running("c", 0)]).status();
    assert_eq!(brief(of(&status, "first")), "Completed 0, -, 0");
    assert!(of(&status, "first").ready);
    assert_eq!(brief(of(&status, "side")), "waiting PodInitializing, -, 0");
}

/// The reason cache shows only where something will start.
#[test]
fn a_failed_start_is_told_only_of_what_will_start() {
    let check = |world: World, expected: &str| {
        let status = world.waiting("c", "CrashLoopBackOff").status();
        assert_eq!(brief(of(&status, "c")), expected);
    };
    let ended = |policy: &str, code: i32| {
        World::of_one(policy).seeing(vec![exited("c", 1, code), exited("c", 0, 9)])
    };
    check(ended("Always", 0), "waiting CrashLoopBackOff, Completed 0, 1");
    check(ended("OnFailure", 2), "waiting CrashLoopBackOff, Error 2, 1");
    check(ended("OnFailure", 0), "Completed 0, Error 9, 1");
    check(ended("Never", 2), "Error 2, Error 9, 1");
    check(ended("Always", 2).deleted(), "Error 2, Error 9, 1");
    check(World::of_one("Never"), "waiting CrashLoopBackOff, -, 0");
    check(World::of_one("Always").seeing(vec![running("c", 0)]), "running, -, 0");
    let init = layered().seeing(vec![exited("first", 0, 0)]);
    let status = init.waiting("first", "CrashLoopBackOff").status();
    assert_eq!(brief(of(&status, "first")), "Completed 0, -, 0");
}

/// Restart rules.
#[test]
fn rules_on_exit_codes_come_before_policies() {
    let world = |code: i32| {
        let world = World::new(json!({ "restartPolicy": "Never", "containers": [{
            "name": "c", "restartPolicy": "Never", "restartPolicyRules": [
                { "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } },
            ],
        }]}));
        world.seeing(vec![exited("c", 0, code)])
    };
    assert_eq!(world(42).phase(), "Running");
    assert_eq!(world(41).phase(), "Failed");
    let status = world(42).waiting("c", "CrashLoopBackOff").status();
    assert_eq!(brief(of(&status, "c")), "waiting CrashLoopBackOff, Error 42, 0");
}

/// Order of statuses.
#[test]
fn regular_containers_are_sorted_and_init_containers_are_not() {
    let world = World::new(json!({
        "initContainers": [{ "name": "z" }, { "name": "y" }],
        "containers": [{ "name": "b" }, { "name": "a" }],
    }));
    let status = world.status();
    let names = |list: Option<Vec<ContainerStatus>>| {
        list.into_iter().flatten().map(|s| s.name).collect::<Vec<_>>()
    };
    assert_eq!(names(status.container_statuses), ["a", "b"]);
    assert_eq!(names(status.init_container_statuses), ["z", "y"]);
}

/// Initial results, started and ready.
#[test]
fn started_and_ready_follow_probes_or_their_absence() {
    let probe = json!({ "exec": { "command": ["true"] } });
    let check = |probes: &[&str], facts: (Option<bool>, Option<bool>), old: bool, expected| {
        let mut container = json!({ "name": "c" });
        for name in probes {
            container[*name] = probe.clone();
        }
        let mut world = World::new(json!({ "containers": [container] }));
        world.observation.containers = vec![running("c", 4)];
        world.previous = old.then(|| was_running("c"));
        (world.fact("c").started, world.fact("c").ready) = facts;
        let status = world.status();
        let found = (of(&status, "c").started, of(&status, "c").ready);
        assert_eq!(found, expected, "{probes:?} {facts:?} {old}");
    };
    let (both, none) = (["startupProbe", "readinessProbe"], (None, None));
    check(&[], none, false, (Some(true), true));
    check(&both, none, false, (Some(false), false));
    check(&["readinessProbe"], none, false, (Some(true), false));
    check(&both, (Some(true), None), false, (Some(true), false));
    check(&both, (Some(true), Some(true)), false, (Some(true), true));
    check(&both, (Some(false), Some(true)), false, (Some(false), false));
    // After a restart of the agent the probes have not spoken yet.
    check(&both, none, true, (Some(true), true));
    check(&both, (None, Some(false)), true, (Some(true), false));
}

/// Results belong to one container id.
#[test]
fn a_new_container_does_not_inherit_the_verdicts_on_the_old_one() {
    let probe = json!({ "exec": { "command": ["true"] } });
    let spec = json!({ "containers": [{ "name": "c", "readinessProbe": probe }] });
    let world = World::new(spec).after(was_running("c"));
    let status = world.seeing(vec![running("c", 5)]).status();
    assert!(!of(&status, "c").ready);
}

/// Who is probed, and what the others show.
#[test]
fn init_containers_are_ready_once_done_and_sidecars_while_running() {
    let seen = vec![running("side", 0), exited("first", 0, 0)];
    let status = layered().seeing(seen).status();
    let told = |name: &str| (of(&status, name).started, of(&status, name).ready);
    assert_eq!(told("first"), (Some(false), true));
    assert_eq!(told("side"), (Some(true), true));
    assert_eq!(told("c"), (Some(false), false));
}

/// Volume mounts.
#[test]
fn mounts_say_how_deep_read_only_goes() {
    let check = |mount: Value, supported: bool, expected: Value| {
        let mut world = World::new(json!({ "containers": [{
            "name": "c", "volumeMounts": [mount],
        }]}));
        world.runtime.has_recursive_read_only = supported;
        let mounts = of(&world.status(), "c").volume_mounts.clone();
        assert_eq!(serde_json::to_value(mounts).unwrap(), json!([expected]));
    };
    let mount = |more: Value| {
        let mut mount = json!({ "name": "v", "mountPath": "/v" });
        mount.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        mount
    };
    let read_only = |mode: &str| mount(json!({ "readOnly": true, "recursiveReadOnly": mode }));
    check(mount(json!({})), true, mount(json!({})));
    check(mount(json!({ "readOnly": true })), true, read_only("Disabled"));
    check(read_only("IfPossible"), true, read_only("Enabled"));
    check(read_only("IfPossible"), false, read_only("Disabled"));
    check(read_only("Enabled"), true, read_only("Enabled"));
}

/// Actuated resources in status.
#[test]
fn what_a_pods_cgroup_has_is_told_from_the_moment_it_runs() {
    let cgroup = ObservedResources { memory_limit: 64 << 20, ..ObservedResources::default() };
    let shown = |world: &World| world.status().resources.unwrap().limits;
    let mut waits = World::of_one("Always");
    waits.pod_cgroup = Some(cgroup);
    assert_eq!((waits.phase().as_str(), shown(&waits)), ("Pending", None));
    let runs = waits.seeing(vec![running("c", 0)]);
    assert_eq!(runs.phase(), "Running");
    let memory = shown(&runs).map(|it| it["memory"].0.clone());
    assert_eq!(memory.as_deref(), Some("64Mi"), "one write tells both");
}

#[test]
fn resources_in_force_are_told_in_the_units_of_the_api() {
    let check = |spec: Value, seen: ObservedResources, expected: Value| {
        let world = World::new(json!({ "containers": [{ "name": "c", "resources": spec }] }));
        let container = ObservedContainer { resources: Some(seen), ..running("c", 0) };
        let status = world.seeing(vec![container]).status();
        let found = serde_json::to_value(&of(&status, "c").resources).unwrap();
        assert_eq!(found, expected);
    };
    let seen = |cpu_shares, cpu_quota, memory_limit| ObservedResources {
        cpu_shares,
        cpu_quota,
        cpu_period: 100_000,
        memory_limit,
    };
    let full = |request: &str, limit: &str, memory: &str| {
        json!({
            "requests": { "cpu": request, "memory": "8Mi" },
            "limits": { "cpu": limit, "memory": memory },
        })
    };
    // A resize under way: the specification is ahead of what is in force.
    check(full("150m", "300m", "64Mi"), seen(102, 20_000, 32 << 20), full("100m", "200m", "32Mi"));
    // Below what the kernel can tell apart the specification is shown.
    check(full("1m", "5m", "64Mi"), seen(2, 1_000, 64 << 20), full("1m", "5m", "64Mi"));
    check(json!({}), seen(2, 0, 0), json!({}));
}

/// StopSignal (gate ContainerStopSignals).
#[test]
fn the_stop_signal_is_told_where_its_gate_is_on() {
    let mut world = World::of_one("Always").seeing(vec![running("c", 0)]);
    assert_eq!(of(&world.status(), "c").stop_signal, None);
    world.runtime.shows_stop_signal = true;
    assert_eq!(of(&world.status(), "c").stop_signal.as_deref(), Some("SIGTERM"));
}

/// RestartAllContainers: condition, states and counts.
#[test]
fn a_restart_in_place_removes_everything_and_counts_on() {
    let spec = json!({ "restartPolicy": "Never", "containers": [
        { "name": "a" },
        { "name": "c", "restartPolicy": "Never", "restartPolicyRules": [{
            "action": "RestartAllContainers",
            "exitCodes": { "operator": "In", "values": [42] },
        }]},
    ]});
    let world = || World::new(spec.clone());
    let said = |status: &PodStatus| support::said(status, "AllContainersRestarting");
    let before = world().seeing(vec![running("a", 0), running("c", 0)]).status();
    assert_eq!(said(&before), "False");
    let triggered = world().after(before).seeing(vec![running("a", 0), exited("c", 0, 42)]);
    let triggered = triggered.status();
    assert_eq!(
        said(&triggered),
        "True RestartAllContainersStarted container exited with restart policy rule"
    );
    let swept = world().after(triggered).status();
    assert_eq!(said(&swept), "False");
    let removed = "waiting RestartingAllContainers, RestartingAllContainers 137, 1";
    assert_eq!(brief(of(&swept, "a")), removed);
    assert_eq!(brief(of(&swept, "c")), removed);
    assert_eq!(swept.phase.as_deref(), Some("Running"));
    let anew = world().after(swept).seeing(vec![running("a", 0), running("c", 0)]);
    let anew = anew.status();
    assert_eq!(brief(of(&anew, "a")), "running, RestartingAllContainers 137, 1");
    assert_eq!(support::said(&anew, "Initialized"), "True");
}

/// Terminating: containers without an end count as failed.
#[test]
fn what_never_ended_failed_when_the_pod_is_gone() {
    let unknown = "ContainerStatusUnknown 137, -, 0";
    let gone = |world: World| world.at(Stage::Terminated).status();
    let status = gone(World::of_one("Always"));
    assert_eq!(brief(of(&status, "c")), unknown);
    assert_eq!(status.phase.as_deref(), Some("Failed"));

    let status = gone(layered());
    assert_eq!(brief(of(&status, "first")), unknown, "the first was tried");
    assert_eq!(brief(of(&status, "side")), "waiting PodInitializing, -, 0");
    assert_eq!(brief(of(&status, "c")), "waiting PodInitializing, -, 0");

    let status = gone(layered().seeing(vec![exited("side", 0, 137), exited("first", 0, 0)]));
    assert_eq!(brief(of(&status, "side")), "Error 137, -, 0");
    assert_eq!(brief(of(&status, "c")), "waiting PodInitializing, -, 0");

    let mut world = World::of_one("Always");
    let source = [("kubernetes.io/config.source".to_owned(), "file".to_owned())];
    world.pod.metadata.annotations = Some(source.into());
    assert_eq!(gone(world).phase.as_deref(), Some("Pending"), "static");
}

#[test]
fn an_end_that_was_made_up_stays_the_state_and_is_nobodys_last() {
    let waiting = |world: World| world.waiting("c", "ErrImageNeverPull").at(Stage::Terminated);
    let first = waiting(World::of_one("Always")).status();
    assert_eq!(brief(of(&first, "c")), "ContainerStatusUnknown 137, -, 0");
    let second = waiting(World::of_one("Always").after(first)).status();
    assert_eq!(brief(of(&second, "c")), "ContainerStatusUnknown 137, -, 0");
}

/// The status of the recorded rich pod, times and ids included.
#[test]
fn the_rich_pod_is_told_to_the_last_field() {
    let recorded: Pod =
        serde_json::from_str(include_str!("../../tests/golden/rich/pod.json")).unwrap();
    let expected = recorded.status.clone().unwrap();
    let mut world = rich::world(&recorded);
    for second in 0..4 {
        rich::advance(&mut world, &expected, second);
        let status = world.status();
        world.pod.status = Some(status.clone());
        world.previous = Some(status);
    }
    let as_json = |status: &PodStatus| serde_json::to_value(status).unwrap();
    assert_eq!(as_json(&world.previous.unwrap()), as_json(&expected));
}

mod rich {
    use super::*;
    use ferrolet_types::{Timestamp, observed::ObservedUser};

    pub(super) fn world(recorded: &Pod) -> World {
        let mut world = World::of_one("Always");
        world.pod = Pod { status: None, ..recorded.clone() };
        world.observation.sandboxes.clear();
        world
    }

    /// What was true that many seconds after the pod arrived.
    pub(super) fn advance(world: &mut World, expected: &PodStatus, second: i64) {
        let arrived = expected.start_time.as_ref().unwrap().0.as_second();
        let at = |second: i64| Timestamp::from_second(arrived + second);
        world.now = at(second);
        let make = |name: &str, state: ContainerState| {
            let id = of(expected, name).container_id.as_deref().unwrap();
            ObservedContainer {
                id: id.strip_prefix("containerd://").unwrap().into(),
                image: "docker.io/library/busybox:latest".to_owned(),
                image_ref: of(expected, name).image_id.clone(),
                user: Some(ObservedUser {
                    uid: 1001,
                    gid: 0,
                    supplemental_groups: vec![0, 2000, 3000],
                }),
                ..container(name, 0, state)
            }
        };
        let runs = |second: i64| ContainerState::Running { started_at: at(second) };
        if second >= 1 {
            let ips = vec![expected.pod_ip.clone().unwrap()];
            world.observation.sandboxes =
                vec![ferrolet_types::observed::ObservedSandbox { ips, ..support::sandbox(true) }];
            let mut first = exited("first", 0, 0).state;
            if let ContainerState::Exited(exit) = &mut first {
                (exit.started_at, exit.finished_at) = (Some(at(1)), at(1));
            }
            world.observation.containers = vec![make("side", runs(1)), make("first", first)];
        }
        if second >= 2 {
            let mut main = make("main", runs(2));
            main.resources = Some(ObservedResources {
                cpu_shares: 102,
                cpu_quota: 50_000,
                cpu_period: 100_000,
                memory_limit: 64 << 20,
            });
            world.observation.containers.insert(0, main);
            world.fact("main").ready = Some(true);
        }
        // The unlimited memory of cgroup v1.
        world.pod_cgroup = (second >= 3).then_some(ObservedResources {
            cpu_shares: 102,
            memory_limit: 9_223_372_036_854_771_712,
            ..ObservedResources::default()
        });
    }
}

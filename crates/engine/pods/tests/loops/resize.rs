//! Resources that change while a pod runs: granted, put in force, refused, kept over a crash.

use ferrolet_ports::metrics::{self, process};
use std::sync::Arc;

use ferrolet_node::{NodeSettings, NodeState};
use ferrolet_ports::RuntimeErrorKind;
use ferrolet_resources::ClassBounds;
use ferrolet_testkit::{Act, Call, ROOT_DIRECTORY, World, pod, roomy_node};
use ferrolet_types::{Pod, PodChange, PodUid, Quantity, pod::PodView as _};
use k8s_openapi::api::core::v1::{ContainerResizePolicy, PodCondition};

use crate::rig::*;

/// A guaranteed pod of one container.
fn sure(name: &str, cpu: &str, memory: &str) -> Pod {
    pod(name).container("main", IMAGE).limits("main", cpu, memory).build()
}

fn of_generation(pod: &Pod, generation: i64) -> Pod {
    let mut pod = (**pod).clone();
    pod.metadata.generation = Some(generation);
    Arc::new(pod)
}

fn node(cpu_milli: i64) -> NodeState {
    let amounts = [
        ("cpu", Quantity::from_milli(cpu_milli)),
        ("memory", Quantity::from_bytes(1 << 30)),
        ("pods", Quantity::from_value(10)),
    ];
    let allocatable = amounts.map(|(name, amount)| (name.to_owned(), amount)).into();
    NodeState { allocatable, ..declaring(Vec::new()) }
}

/// A node with room and with these features.
fn declaring(declared_features: Vec<String>) -> NodeState {
    let node = roomy_node();
    let settings = NodeSettings { declared_features, ..(*node.settings).clone() };
    NodeState { settings: Arc::new(settings), ..node }
}

fn condition(agent: &Agent, uid: &PodUid, kind: &str) -> Option<PodCondition> {
    let conditions = agent.status(uid)?.conditions?;
    conditions.into_iter().find(|it| it.type_ == kind)
}

fn reasons(world: &World) -> Vec<String> {
    let said = world.recorded_events().into_iter().map(|(_, it)| it.reason);
    said.filter(|it| it.starts_with("Resize")).collect()
}

async fn runs(agent: &Agent, uid: &PodUid) {
    eventually("it runs", SOON, || agent.container_state(uid, "main").running.is_some()).await;
}

fn bounded(world: &World, uid: &PodUid) -> Vec<String> {
    let journal = world.journal_of(uid).into_iter();
    journal
        .filter_map(|entry| match entry.act {
            Act::ContainerBounded { name, memory, cpu_quota } => {
                Some(format!("{name} {} {cpu_quota}", memory >> 20))
            }
            Act::CgroupBounded { memory, cpu_quota, .. } => {
                Some(format!("pod {:?} {cpu_quota:?}", memory.map(|it| it >> 20)))
            }
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_gets_other_bounds_without_a_restart() {
    let world = world();
    let agent = Agent::start(&world);
    let (small, large) = (sure("web", "100m", "32Mi"), sure("web", "200m", "64Mi"));
    let uid = small.uid();
    agent.add(&small).await;
    runs(&agent, &uid).await;
    let large = of_generation(&large, 2);
    agent.tell([PodChange::Updated(large)]).await;
    eventually("it is resized", SOON, || reasons(&world) == ["ResizeStarted", "ResizeCompleted"])
        .await;
    assert_eq!(
        bounded(&world, &uid),
        [
            "pod Some(64) None",
            "main 64 10000",
            "pod None Some(20000)",
            "pod None None",
            "main 64 20000"
        ]
    );
    assert_eq!(starts_of(&world, &uid, "main").len(), 1);
    let shown = agent.container(&uid, "main").unwrap();
    let resources = shown.resources.unwrap();
    assert_eq!(resources.limits.unwrap()["memory"].0, "64Mi");
    assert_eq!(resources.requests.unwrap()["cpu"].0, "200m");
    assert_eq!(shown.allocated_resources.unwrap()["memory"].0, "64Mi");
    assert_eq!(condition(&agent, &uid, "PodResizeInProgress"), None);
    for file in ["allocated_pods_state", "actuated_pods_state"] {
        let text = world.file(&format!("{ROOT_DIRECTORY}/{file}")).unwrap();
        assert!(text.contains("64Mi"), "{file}: {text}");
    }
    let timed = process().samples_of(metrics::KUBELET_POD_RESIZE_DURATION_MILLISECONDS);
    assert!(timed.iter().any(|it| it.labels == ["true"]), "{timed:?}");
}

/// An update for which the node lacks a feature is told, once for each, and a node that has
/// it says nothing.
#[tokio::test(start_paused = true)]
async fn an_update_that_the_node_cannot_do_is_told() {
    let whole = |cpu: &str, generation: i64| {
        let mut pod = (*pod("web").container("main", IMAGE).build()).clone();
        let resources = serde_json::json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
        pod.metadata.generation = Some(generation);
        let spec = pod.spec.as_mut().unwrap();
        spec.resources = Some(serde_json::from_value(resources).unwrap());
        Arc::new(pod)
    };
    let feature = "InPlacePodLevelResourcesVerticalScaling";
    let missing = format!("Pod requires node features that are not available: {feature}");
    for (declared, expected) in [(vec![], vec![missing]), (vec![feature.to_owned()], vec![])] {
        let world = world();
        let agent = Agent::with_node(&world, declaring(declared));
        let small = whole("100m", 1);
        let uid = small.uid();
        agent.add(&small).await;
        runs(&agent, &uid).await;
        agent.tell([PodChange::Updated(whole("200m", 2))]).await;
        eventually("the update is seen", SOON, || {
            agent.status(&uid).and_then(|it| it.observed_generation) == Some(2)
        })
        .await;
        let said = world.recorded_events().into_iter().map(|(_, it)| it);
        let told = said.filter(|it| it.reason == "FailedNodeDeclaredFeaturesCheck");
        let told: Vec<String> = told.map(|it| it.message).collect();
        assert_eq!(told, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_restart_restarts_once_also_over_a_crash() {
    let world = world();
    let agent = Agent::start(&world);
    let with_policy = |memory: &str| {
        pod("web")
            .container("main", IMAGE)
            .limits("main", "100m", memory)
            .edit_container("main", |container| {
                container.resize_policy = Some(vec![ContainerResizePolicy {
                    resource_name: "memory".to_owned(),
                    restart_policy: "RestartContainer".to_owned(),
                }]);
            })
            .build()
    };
    let (small, large) = (with_policy("32Mi"), with_policy("64Mi"));
    let uid = small.uid();
    agent.add(&small).await;
    runs(&agent, &uid).await;
    agent.tell([PodChange::Updated(large.clone())]).await;
    eventually("it restarts", SOON, || {
        agent.container(&uid, "main").is_some_and(|it| it.restart_count == 1)
            && reasons(&world).last().is_some_and(|it| it == "ResizeCompleted")
    })
    .await;
    drop(agent);
    let agent = Agent::start(&world);
    agent.add(&large).await;
    runs(&agent, &uid).await;
    tokio::time::sleep(secs(30)).await;
    assert_eq!(starts_of(&world, &uid, "main").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resize_without_room_waits_until_another_pod_goes() {
    let world = world();
    let agent = Agent::with_node(&world, node(300));
    let (web, other) = (sure("web", "100m", "32Mi"), sure("other", "100m", "32Mi"));
    let uid = web.uid();
    agent.add(&web).await;
    agent.add(&other).await;
    runs(&agent, &uid).await;
    let wider = of_generation(&sure("web", "250m", "32Mi"), 2);
    agent.tell([PodChange::Updated(wider)]).await;
    eventually("it is deferred", SOON, || condition(&agent, &uid, "PodResizePending").is_some())
        .await;
    let pending = condition(&agent, &uid, "PodResizePending").unwrap();
    assert_eq!(pending.reason.as_deref(), Some("Deferred"));
    assert_eq!(
        pending.message.as_deref(),
        Some("Node didn't have enough resource: cpu, requested: 250, used: 100, capacity: 300")
    );
    assert_eq!(pending.observed_generation, Some(2));
    let shown = agent.container(&uid, "main").unwrap();
    assert_eq!(shown.allocated_resources.unwrap()["cpu"].0, "100m");
    agent.remove(&other).await;
    eventually("it is resized", SOON, || {
        reasons(&world) == ["ResizeDeferred", "ResizeStarted", "ResizeCompleted"]
    })
    .await;
    assert_eq!(condition(&agent, &uid, "PodResizePending"), None);
    let accepted = process().samples_of(metrics::KUBELET_POD_DEFERRED_ACCEPTED_RESIZES_TOTAL);
    assert!(accepted.iter().any(|it| it.labels == ["pods_removed"]), "{accepted:?}");
    let waited = process().samples_of(metrics::KUBELET_POD_DEFERRED_RESIZE_DURATION_SECONDS);
    assert!(waited.iter().any(|it| it.labels == ["normal", "accepted"]), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deferred_resize_survives_the_agent_and_can_be_taken_back() {
    let world = world();
    let agent = Agent::with_node(&world, node(200));
    let (web, wider) = (sure("web", "100m", "32Mi"), sure("web", "1", "32Mi"));
    let uid = web.uid();
    agent.add(&web).await;
    runs(&agent, &uid).await;
    agent.tell([PodChange::Updated(wider.clone())]).await;
    eventually("it is deferred", SOON, || condition(&agent, &uid, "PodResizePending").is_some())
        .await;
    drop(agent);
    let agent = Agent::with_node(&world, node(200));
    agent.add(&wider).await;
    eventually("it is deferred again", SOON, || {
        condition(&agent, &uid, "PodResizePending").is_some()
    })
    .await;
    let shown = agent.container(&uid, "main").unwrap();
    assert_eq!(shown.allocated_resources.unwrap()["cpu"].0, "100m");
    assert_eq!(bounded(&world, &uid), [""; 0]);
    agent.tell([PodChange::Updated(web)]).await;
    eventually("it is taken back", SOON, || condition(&agent, &uid, "PodResizePending").is_none())
        .await;
    assert_eq!(starts_of(&world, &uid, "main").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_refuses_is_asked_again_and_the_pod_says_so() {
    let world = world();
    let agent = Agent::start(&world);
    let (small, large) = (sure("web", "100m", "32Mi"), sure("web", "200m", "32Mi"));
    let uid = small.uid();
    agent.add(&small).await;
    runs(&agent, &uid).await;
    world.fail_next(Call::UpdateContainer, 2, RuntimeErrorKind::Unknown, "not today");
    agent.tell([PodChange::Updated(large)]).await;
    eventually("it says so", SOON, || {
        condition(&agent, &uid, "PodResizeInProgress")
            .is_some_and(|it| it.reason.as_deref() == Some("Error"))
    })
    .await;
    eventually("it is resized", secs(20), || {
        reasons(&world) == ["ResizeStarted", "ResizeError", "ResizeCompleted"]
    })
    .await;
    assert_eq!(condition(&agent, &uid, "PodResizeInProgress"), None);
}

/// Actuation: the runtime hears of a resize first and may refuse it; one that does not know
/// such calls refuses nothing.
#[tokio::test(start_paused = true)]
async fn a_runtime_may_refuse_a_resize_before_anything_is_written() {
    for (kind, message, is_refused) in [
        (RuntimeErrorKind::Internal, "too much", true),
        (RuntimeErrorKind::Unknown, "not implemented yet", false),
    ] {
        let world = world();
        let agent = Agent::start(&world);
        let (small, large) = (sure("web", "100m", "32Mi"), sure("web", "100m", "64Mi"));
        let uid = small.uid();
        agent.add(&small).await;
        runs(&agent, &uid).await;
        world.fail_next(Call::AnnounceResources, 1, kind, message);
        agent.tell([PodChange::Updated(large)]).await;
        eventually("it is resized", secs(20), || {
            reasons(&world).last().is_some_and(|it| it == "ResizeCompleted")
        })
        .await;
        let events = world.recorded_events().into_iter();
        let refusals = events.filter(|(_, it)| {
            it.message.contains("UpdatePodSandboxResources (resource=memory); resize rejected")
        });
        assert_eq!(refusals.count(), usize::from(is_refused), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn burstable_pods_weigh_what_they_were_granted_together() {
    let world = world();
    let agent = Agent::start(&world);
    let burst = |cpu: &str| {
        pod("web")
            .container("main", IMAGE)
            .edit_container("main", |container| {
                let list = [(
                    "cpu".to_owned(),
                    k8s_openapi::apimachinery::pkg::api::resource::Quantity(cpu.to_owned()),
                )];
                container.resources.get_or_insert_default().requests =
                    Some(list.into_iter().collect());
            })
            .build()
    };
    agent.add(&burst("500m")).await;
    eventually("it weighs", SOON, || world.class_bounds().burstable.cpu_shares == Some(512)).await;
    agent.tell([PodChange::Updated(burst("1"))]).await;
    eventually("it weighs more", SOON, || world.class_bounds().burstable.cpu_shares == Some(1024))
        .await;
    // Upstream writes it every minute, whoever has written there in between.
    world.overwrite_class_bounds(ClassBounds::default());
    eventually("it weighs as much again", secs(61), || {
        world.class_bounds().burstable.cpu_shares == Some(1024)
    })
    .await;
    agent.remove(&burst("1")).await;
    eventually("nobody is left", SOON, || world.class_bounds().burstable.cpu_shares == Some(2))
        .await;
}

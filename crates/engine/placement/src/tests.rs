use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_node::{CpuCore, MachineTopology, NumaNode};
use ferrolet_placement::{
    Placement,
    cpu::{CpuOptions, CpuSet, StaticCpus},
    topology::{TopologyPolicy, TopologyRules, TopologyScope},
};
use ferrolet_ports::{Placing as _, PodsView, Runtime as _, StateFiles as _};
use ferrolet_testkit::World;
use ferrolet_types::Pod;
use serde_json::json;

use crate::{Desk, Doors, Settings, build, reconcile::plan};

const FILE: &str = "cpu_manager_state";

fn placement(n_cpus: u32) -> Placement {
    let core = |cpu| CpuCore { id: cpu, socket: 0, threads: vec![cpu], uncore_cache: None };
    let cores = (0..n_cpus).map(core).collect();
    let machine = MachineTopology { nodes: vec![NumaNode { cores, ..NumaNode::default() }] };
    let (policy, scope) = (TopologyPolicy::None, TopologyScope::Container);
    let rules = TopologyRules::new(policy, scope, &BTreeMap::new(), &machine).unwrap();
    let reserved = CpuSet::parse("0").unwrap();
    let cpus = StaticCpus::new(&machine, 1, &reserved, CpuOptions::default(), policy).unwrap();
    Placement::new(rules, Some(cpus), None)
}

/// A pod with one container of that many processors; zero for one that shares.
fn pod(uid: &str, n_cpus: u32, phase: &str) -> Pod {
    let amounts = json!({ "cpu": n_cpus.to_string(), "memory": "64Mi" });
    let resources = match n_cpus {
        0 => json!({}),
        _ => json!({ "requests": amounts, "limits": amounts }),
    };
    let pod = json!({
        "metadata": { "name": uid, "namespace": "default", "uid": uid },
        "spec": { "containers": [{ "name": "c", "image": "i", "resources": resources }] },
        "status": {
            "phase": phase,
            "containerStatuses": [{
                "name": "c",
                "containerID": format!("containerd://{uid}-id"),
                "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "state": { "running": {} },
            }],
        },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

struct Shown(Vec<Pod>);

impl PodsView for Shown {
    fn pods(&self) -> Vec<Pod> {
        self.0.clone()
    }
}

/// What the plan would tell, as text.
fn told(desk: &Desk, shown: &[Pod]) -> Vec<String> {
    let updates = plan(desk, shown);
    updates.iter().map(|it| format!("{} {}", it.id, it.cpus)).collect()
}

async fn start(world: &World, n_cpus: u32) -> (Arc<Desk>, ferrolet_ports::Part) {
    let settings = Settings {
        placement: placement(n_cpus),
        reconcile_period: Duration::from_secs(10),
        has_free_quota: true,
    };
    let doors = Doors {
        pods: Arc::new(Shown(Vec::new())),
        runtime: world.runtime(),
        state_files: world.state_files(),
    };
    build(settings, doors).await
}

#[test]
fn others_are_moved_when_somebody_gets_a_processor_and_when_he_ends() {
    let desk = Desk::new(placement(2), true);
    desk.all_known();
    let (sharing, owner) = (pod("a", 0, "Running"), pod("b", 1, "Running"));
    desk.admit(&sharing, Some(&[])).unwrap();
    assert_eq!(told(&desk, std::slice::from_ref(&sharing)), ["a-id 0-1"]);
    desk.admit(&owner, Some(std::slice::from_ref(&sharing))).unwrap();
    let shown = [sharing.clone(), owner.clone()];
    assert_eq!(told(&desk, &shown), ["a-id 0", "b-id 1"]);
    let refused = desk.admit(&pod("d", 1, "Pending"), Some(&shown)).unwrap_err();
    assert_eq!(refused.reason, "UnexpectedAdmissionError");
    assert_eq!(
        refused.message,
        "Allocate failed due to not enough cpus available to satisfy request: requested=1, available=0, which is unexpected"
    );
    assert_eq!(told(&desk, &[sharing.clone(), pod("b", 1, "Succeeded")]), ["a-id 0-1"]);
}

#[test]
fn a_pod_that_was_admitted_a_moment_ago_keeps_its_processors() {
    let desk = Desk::new(placement(2), true);
    desk.all_known();
    let owner = pod("b", 1, "Running");
    desk.admit(&owner, Some(&[])).unwrap();
    assert!(told(&desk, &[]).is_empty());
    assert!(desk.is_unthrottled(&"b".into()));
    assert_eq!(told(&desk, &[owner]), ["b-id 1"]);
    assert!(told(&desk, &[]).is_empty());
    assert!(!desk.is_unthrottled(&"b".into()), "it was seen, and is gone now");
}

#[tokio::test(start_paused = true)]
async fn a_container_starts_when_its_processors_are_written_down_and_has_them_after_a_restart() {
    let world = World::new();
    let (desk, part) = start(&world, 2).await;
    let owner = pod("b", 1, "Pending");
    desk.admit(&owner, Some(&[])).unwrap();
    let placing = desk.place(&owner, "c");
    let mut loops = part.loops.into_iter();
    let mut keep = loops.next().unwrap();
    let placed = tokio::select! {
        placed = placing => placed,
        () = &mut keep => unreachable!("it runs for ever"),
    };
    assert_eq!((placed.cpus.as_str(), placed.mems.as_str()), ("1", ""));
    assert!(placed.is_unthrottled);
    let file = world.state_files().read(FILE).await.unwrap().unwrap();
    let text = String::from_utf8(file).unwrap();
    assert!(text.contains(r#""defaultCpuSet":"0","entries":{"b":{"c":"1"}}"#), "{text}");
    drop(keep);

    let (desk, _) = start(&world, 2).await;
    desk.meet(&owner);
    assert_eq!(told(&desk, std::slice::from_ref(&owner)), ["b-id 1"]);
    // A machine with more processors: upstream would not start.
    let (desk, _) = start(&world, 4).await;
    desk.meet(&owner);
    let shown = [owner, pod("a", 0, "Running")];
    assert_eq!(told(&desk, &shown), ["b-id 1", "a-id 0,2-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_used_is_set_aside_and_pods_get_their_processors_anew() {
    for bad in ["", "{", r#"{"policyName":"static","defaultCpuSet":"0-1","checksum":7}"#] {
        let world = World::new();
        world.state_files().write(FILE, bad.as_bytes().to_vec()).await.unwrap();
        let (desk, _) = start(&world, 2).await;
        let owner = pod("b", 1, "Running");
        desk.meet(&owner);
        assert_eq!(told(&desk, &[owner]), ["b-id 1"], "{bad}");
        let aside = world.state_files().read("cpu_manager_state.unreadable").await.unwrap();
        assert_eq!(aside.as_deref(), Some(bad.as_bytes()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_told_and_asked_again_when_it_refuses() {
    let world = World::new();
    let desk = Arc::new(Desk::new(placement(2), true));
    let shown = Arc::new(Shown(vec![pod("a", 0, "Running")]));
    let runtime = world.runtime();
    let period = Duration::from_secs(10);
    let reconciling = crate::reconcile::reconcile(&desk, shown.as_ref(), runtime.as_ref(), period);
    let _ = tokio::time::timeout(Duration::from_secs(25), reconciling).await;
    // The runtime does not know the container: nothing was noted, so it is told again.
    assert_eq!(told(&desk, &shown.0), ["a-id 0-1"]);
    assert!(runtime.list().await.is_ok());
}

//! Over any order of starts, ends and restarts: nobody's processor or memory is given twice, nothing
//! is lost, and the same history leads to the same places.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use ferrolet_node::{CpuCore, HugePages, MachineTopology, NumaNode};
use ferrolet_placement::{
    Placement, PodAsk,
    checkpoint::{decode_cpus, decode_memory, encode_cpus, encode_memory},
    cpu::{CpuOptions, CpuSet, OptionGates, StaticCpus},
    memory::{NodeReservation, StaticMemory},
    topology::{TopologyPolicy, TopologyRules, TopologyScope},
};
use ferrolet_types::{Amounts, PodUid, Quantity};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// Sockets, nodes and cores of any number, some cores with fewer threads than others.
fn machine(random: &mut fastrand::Rng) -> MachineTopology {
    let n_sockets = random.u32(1..=4);
    let per_socket = random.u32(1..=2);
    let n_threads = random.u32(1..=2);
    let mut next = 0;
    let mut nodes = Vec::new();
    for id in 0..n_sockets * per_socket {
        let mut cores = Vec::new();
        for core in 0..random.u32(1..=6) {
            let n = if random.u8(..) < 30 { 1 } else { n_threads };
            let threads = (next..next + n).collect();
            next += n;
            let uncore_cache = random.bool().then_some(id * 8 + core / 2);
            cores.push(CpuCore { id: core, socket: id / per_socket, threads, uncore_cache });
        }
        let huge_pages = vec![HugePages { page_bytes: 2 << 20, n_pages: random.u64(0..64) }];
        let memory_bytes = random.u64(1..=4) << 30;
        let distances = Some(vec![10; 8]);
        nodes.push(NumaNode { id, memory_bytes, huge_pages, distances, cores });
    }
    MachineTopology { nodes }
}

fn options(random: &mut fastrand::Rng) -> CpuOptions {
    let on = |names: &[&str]| -> BTreeMap<String, String> {
        names.iter().map(|name| ((*name).to_owned(), "true".to_owned())).collect()
    };
    let styles: [&[&str]; 6] = [
        &[],
        &["full-pcpus-only"],
        &["distribute-cpus-across-numa"],
        &["distribute-cpus-across-cores", "strict-cpu-reservation"],
        &["prefer-align-cpus-by-uncorecache"],
        &["distribute-cpus-across-numa", "full-pcpus-only"],
    ];
    let gates = OptionGates { alpha: true, beta: true };
    CpuOptions::parse(&on(styles[random.usize(..styles.len())]), gates).unwrap()
}

fn start(machine: &MachineTopology, seed: u64) -> Placement {
    let mut random = fastrand::Rng::with_seed(seed);
    let policies = [
        TopologyPolicy::None,
        TopologyPolicy::BestEffort,
        TopologyPolicy::Restricted,
        TopologyPolicy::SingleNumaNode,
    ];
    let policy = policies[random.usize(..4)];
    let scope = if random.bool() { TopologyScope::Pod } else { TopologyScope::Container };
    let rules = TopologyRules::new(policy, scope, &BTreeMap::new(), machine).unwrap();
    let options = options(&mut random);
    let cpus = StaticCpus::new(machine, 1, &CpuSet::EMPTY, options, policy).unwrap();
    let kept = Amounts::from([("memory".to_owned(), Quantity::from_bytes(1 << 29))]);
    let given = [NodeReservation { node: 0, limits: kept.clone() }];
    let memory = StaticMemory::new(machine, &kept, &given).unwrap();
    Placement::new(rules, Some(cpus), Some(memory))
}

fn pod(random: &mut fastrand::Rng, number: u32) -> PodAsk {
    let container = |random: &mut fastrand::Rng, name: String| {
        let cpu = random.u32(1..=4).to_string();
        let memory = format!("{}Mi", random.u32(1..=12) * 256);
        let mut amounts = json!({ "cpu": cpu, "memory": memory });
        if random.u8(..) < 40 {
            amounts["hugepages-2Mi"] = json!("4Mi");
        }
        json!({ "name": name, "resources": { "requests": amounts, "limits": amounts } })
    };
    let mut init = Vec::new();
    for at in 0..random.u32(0..=2) {
        let mut one = container(random, format!("i{at}"));
        if random.bool() {
            one["restartPolicy"] = json!("Always");
        }
        init.push(one);
    }
    let n = random.u32(1..=2);
    let regular: Vec<Value> = (0..n).map(|at| container(random, format!("c{at}"))).collect();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "p", "uid": format!("p{number}") },
        "spec": { "initContainers": init, "containers": regular },
    }))
    .unwrap();
    PodAsk::of(&pod)
}

fn check(placement: &Placement, seed: u64) {
    let cpus = placement.cpus.as_ref().unwrap();
    let mut given: BTreeMap<&PodUid, CpuSet> = BTreeMap::new();
    for (uid, _, own) in cpus.assignments.iter() {
        let all = given.entry(uid).or_default();
        *all = all.union(own);
    }
    let total: usize = given.values().map(CpuSet::len).sum();
    let exclusive = cpus.assignments.exclusive();
    assert_eq!(total, exclusive.len(), "{seed}: a CPU is two pods'");
    assert_eq!(exclusive.n_common(cpus.reserved()), 0, "{seed}: a reserved CPU is somebody's");
    assert_eq!(exclusive.n_common(&cpus.assignments.shared), 0, "{seed}: somebody's CPU is shared");
    assert_eq!(exclusive.union(&cpus.assignments.shared), cpus.pool(), "{seed}: a CPU is lost");
    let memory = &placement.memory.as_ref().unwrap().assignments;
    let mut blocks: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, _, all) in memory.iter() {
        all.iter().for_each(|it| *blocks.entry(&it.kind).or_default() += it.size);
    }
    for kind in ["memory", "hugepages-2Mi"] {
        let tables = memory.nodes.values().map(|node| node.tables[kind]);
        let reserved: u64 = tables
            .map(|it| {
                assert_eq!(it.free + it.reserved, it.allocatable, "{seed}: {kind} is lost");
                it.reserved
            })
            .sum();
        let named = blocks.get(kind).copied().unwrap_or(0);
        assert_eq!(reserved, named, "{seed}: {kind} is nobody's");
    }
}

fn restart(machine: &MachineTopology, seed: u64, before: &Placement) -> Placement {
    let mut next = start(machine, seed);
    let (cpus, memory) = (before.cpus.as_ref().unwrap(), before.memory.as_ref().unwrap());
    let (policy, written) = decode_cpus(&encode_cpus(&cpus.assignments)).unwrap();
    let notes = next.cpus.as_mut().unwrap().restore(&policy, &written);
    assert_eq!(notes, Vec::<String>::new());
    let (policy, written) = decode_memory(&encode_memory(&memory.assignments)).unwrap();
    let notes = next.memory.as_mut().unwrap().restore(&policy, &written);
    assert_eq!(notes, Vec::<String>::new());
    next
}

fn play(seed: u64) -> (Placement, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let machine = machine(&mut random);
    let mut placement = start(&machine, seed);
    let (mut living, mut n_given): (Vec<PodAsk>, usize) = (Vec::new(), 0);
    for number in 0..random.u32(1..30) {
        match random.u8(..10) {
            0..=5 => {
                let pod = pod(&mut random, number);
                living.push(pod.clone());
                placement.retain(|uid, _| living.iter().any(|it| it.uid == *uid));
                if placement.admit(&pod).is_err() {
                    living.pop();
                    placement.retain(|uid, _| living.iter().any(|it| it.uid == *uid));
                } else {
                    n_given += 1;
                    check(&placement, seed);
                    pod.containers.iter().for_each(|it| placement.starts(&pod, &it.name));
                }
            }
            6..=8 if !living.is_empty() => {
                living.swap_remove(random.usize(..living.len()));
                placement.retain(|uid, _| living.iter().any(|it| it.uid == *uid));
            }
            _ => {
                placement = restart(&machine, seed, &placement);
                for pod in &living {
                    let before = placement.place(&pod.uid, &pod.containers[0].name);
                    let _ = placement.admit(pod);
                    let after = placement.place(&pod.uid, &pod.containers[0].name);
                    assert!(!before.has_own_cpus || before.cpus == after.cpus, "{seed}: moved");
                }
            }
        }
        check(&placement, seed);
    }
    placement.retain(|_, _| false);
    check(&placement, seed);
    let cpus = placement.cpus.as_ref().unwrap();
    assert_eq!(cpus.assignments.shared, cpus.pool(), "{seed}");
    (placement, n_given)
}

#[test]
fn nothing_is_given_twice_and_nothing_is_lost() {
    let n_given: usize = (0..400).map(|seed| play(seed).1).sum();
    assert!(n_given > 1000, "{n_given}");
}

#[test]
fn the_same_history_leads_to_the_same_places() {
    for seed in 1000..1020 {
        assert_eq!(play(seed).0, play(seed).0, "{seed}");
    }
}

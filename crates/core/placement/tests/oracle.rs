//! Upstream's answers to random questions, recorded from its own managers (`tests/oracle/placement`),
//! and ours to the same. Each difference is one of those that ADR 0041 lists, or a failure.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{collections::BTreeMap, io::Read as _};

use ferrolet_node::{CpuCore, HugePages, MachineTopology, NumaNode};
use ferrolet_placement::{
    Placement, PodAsk,
    checkpoint::{
        decode_cpus, decode_memory, encode_cpus, encode_memory, encode_no_cpus, encode_no_memory,
    },
    cpu::{
        CacheAlignment, CpuLayout, CpuOptions, CpuOrder, CpuSet, Distribution, OptionGates,
        StaticCpus, take_distributed, take_packed,
    },
    memory::{NodeReservation, StaticMemory},
    topology::{ProviderHints, TopologyHint, TopologyPolicy, TopologyRules, TopologyScope, merge},
};
use ferrolet_types::{Amounts, PodUid, Quantity};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

const TAKE: &[u8] = include_bytes!("../../../../tests/oracle/recorded/placement-take.jsonl.gz");
const MERGE: &[u8] = include_bytes!("../../../../tests/oracle/recorded/placement-merge.jsonl.gz");
const ADMIT: &[u8] = include_bytes!("../../../../tests/oracle/recorded/placement-admit.jsonl.gz");

struct Recorded {
    question: Value,
    answer: Value,
    error: String,
}

fn recorded(packed: &[u8]) -> Vec<Recorded> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        Recorded {
            question: value["q"].take(),
            answer: value["a"].take(),
            error: value["e"].as_str().unwrap_or_default().to_owned(),
        }
    };
    text.lines().map(line).collect()
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn options(value: &Value) -> BTreeMap<String, String> {
    let all = value.as_object().into_iter().flatten();
    all.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect()
}

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

#[test]
fn processors_are_chosen_as_upstream_chooses_them() {
    let (mut n_same, mut n_uneven, mut n_overwritten) = (0, 0, 0);
    for (at, case) in recorded(TAKE).iter().enumerate() {
        let q = &case.question;
        let mut nodes: BTreeMap<u32, BTreeMap<u32, CpuCore>> = BTreeMap::new();
        for cpu in list(&q["CPUs"]) {
            let core = nodes.entry(number(&cpu["Node"])).or_default();
            let core = core.entry(number(&cpu["Core"])).or_default();
            core.socket = number(&cpu["Socket"]);
            core.uncore_cache = Some(number(&cpu["Cache"]));
            core.threads.push(number(&cpu["ID"]));
        }
        let node = |(id, cores): (u32, BTreeMap<u32, CpuCore>)| NumaNode {
            id,
            cores: cores.into_values().collect(),
            ..NumaNode::default()
        };
        let machine = MachineTopology { nodes: nodes.into_iter().map(node).collect() };
        let layout = CpuLayout::of(&machine);
        let free = CpuSet::parse(q["Available"].as_str().unwrap()).unwrap();
        let n = size(q["N"].as_u64().unwrap());
        let order = match q["Spread"] == true {
            true => CpuOrder::Spread,
            false => CpuOrder::Packed,
        };
        let is_distributed = q["Distributed"] == true;
        let ours = if is_distributed {
            let how = Distribution {
                group: size(q["Group"].as_u64().unwrap()),
                order,
                is_aligned_by_socket: q["AlignBySocket"] == true,
            };
            take_distributed(&layout, &free, n, how)
        } else {
            let caches = match q["Uncore"] == true {
                true => CacheAlignment::Preferred,
                false => CacheAlignment::Ignored,
            };
            take_packed(&layout, &free, n, order, caches)
        };
        let (text, error) = match &ours {
            Ok(cpus) => (cpus.to_string(), String::new()),
            Err(error) => (String::new(), error.to_string()),
        };
        if text == case.answer.as_str().unwrap_or_default() && error == case.error {
            n_same += 1;
            continue;
        }
        let mine = ours.clone().unwrap_or_default();
        assert!(mine.len() == n && mine.is_subset(&free), "{at}: {text} {error}: {q}");
        let is_uneven = |groups: &BTreeMap<u32, CpuSet>| {
            let mut sizes = groups.values().map(CpuSet::len);
            let first = sizes.next();
            sizes.any(|size| Some(size) != first)
        };
        if is_uneven(&layout.cores) || is_uneven(&layout.sockets) {
            n_uneven += 1;
        } else if is_distributed && layout.nodes.len() > 4 {
            n_overwritten += 1;
        } else {
            panic!("{at}: ours {text:?} {error:?}, upstream {} {:?}: {q}", case.answer, case.error);
        }
    }
    println!("take: {n_same} same, {n_uneven} on uneven machines, {n_overwritten} overwritten");
    assert!(n_same > 20 * (n_uneven + n_overwritten), "{n_same} {n_uneven} {n_overwritten}");
}

#[test]
fn hints_are_merged_as_upstream_merges_them() {
    for (at, case) in recorded(MERGE).iter().enumerate() {
        let q = &case.question;
        let node = |it: &Value| NumaNode {
            id: number(&it["node_id"]),
            distances: Some(list(&it["distances"]).iter().map(|it| it.as_u64().unwrap()).collect()),
            ..NumaNode::default()
        };
        let machine = MachineTopology { nodes: list(&q["Nodes"]).iter().map(node).collect() };
        let policy = TopologyPolicy::parse(q["Policy"].as_str().unwrap()).unwrap();
        let scope = TopologyScope::Container;
        let rules = TopologyRules::new(policy, scope, &options(&q["Options"]), &machine).unwrap();
        let hint = |it: &Value| TopologyHint {
            nodes: (it["Any"] != true).then(|| list(&it["Nodes"]).iter().map(number).collect()),
            is_preferred: it["Preferred"] == true,
        };
        let provider = |it: &Value| -> ProviderHints {
            let all = it.as_object().into_iter().flatten();
            all.map(|(name, hints)| {
                let hints = hints.as_array().map(|all| all.iter().map(hint).collect());
                (name.clone(), hints)
            })
            .collect()
        };
        let providers: Vec<ProviderHints> = list(&q["Providers"]).iter().map(provider).collect();
        let (hint, admit) = merge(&rules, &providers);
        let mut ours = json!({ "admit": admit, "preferred": hint.is_preferred });
        if let Some(nodes) = hint.nodes {
            ours["nodes"] = json!(nodes.iter().collect::<Vec<_>>());
        }
        assert_eq!(ours, case.answer, "{at}: {q}");
    }
}

fn machine(value: &Value) -> MachineTopology {
    let core = |it: &Value| CpuCore {
        id: number(&it["core_id"]),
        socket: number(&it["socket_id"]),
        threads: list(&it["thread_ids"]).iter().map(number).collect(),
        uncore_cache: list(&it["uncore_caches"]).first().map(|it| number(&it["id"])),
    };
    let pages = |it: &Value| HugePages {
        page_bytes: it["page_size"].as_u64().unwrap() * 1024,
        n_pages: it["num_pages"].as_u64().unwrap(),
    };
    let node = |it: &Value| NumaNode {
        id: number(&it["node_id"]),
        memory_bytes: it["memory"].as_u64().unwrap(),
        huge_pages: list(&it["hugepages"]).iter().map(pages).collect(),
        distances: Some(list(&it["distances"]).iter().map(|it| it.as_u64().unwrap()).collect()),
        cores: list(&it["cores"]).iter().map(core).collect(),
    };
    MachineTopology { nodes: list(&value["topology"]).iter().map(node).collect() }
}

fn amounts(value: &Value) -> Amounts {
    let all = value.as_object().into_iter().flatten();
    all.map(|(name, it)| (name.clone(), Quantity::parse(it.as_str().unwrap()).unwrap())).collect()
}

/// The managers of one question, or why there are none, as the oracle says it.
fn start(q: &Value) -> Result<Placement, Value> {
    let machine = machine(&q["Machine"]);
    let policy = TopologyPolicy::parse(q["TopologyPolicy"].as_str().unwrap()).unwrap();
    let scope = TopologyScope::parse(q["TopologyScope"].as_str().unwrap()).unwrap();
    let rules = TopologyRules::new(policy, scope, &options(&q["TopologyOptions"]), &machine)
        .map_err(|it| json!({ "topology": it.to_string() }))?;
    let whole = amounts(&q["Reservation"]);
    let refused = |error: String| json!({ "cpu": format!("new static policy error: {error}") });
    let cpus = (q["CPUPolicy"] == "static").then(|| {
        let gates = OptionGates { alpha: true, beta: true };
        let options = CpuOptions::parse(&options(&q["CPUOptions"]), gates)
            .map_err(|it| refused(it.to_string()))?;
        let n = size(u64::try_from(whole["cpu"].value()).unwrap());
        let reserved = CpuSet::parse(q["ReservedCPUs"].as_str().unwrap()).unwrap();
        StaticCpus::new(&machine, n, &reserved, options, policy)
            .map_err(|it| refused(it.to_string()))
    });
    let cpus = cpus.transpose()?;
    let memory = (q["MemoryPolicy"] == "Static").then(|| {
        let given: Vec<NodeReservation> = list(&q["ReservedMemory"])
            .iter()
            .map(|it| NodeReservation {
                node: number(&it["NumaNode"]),
                limits: amounts(&it["Limits"]),
            })
            .collect();
        StaticMemory::new(&machine, &whole, &given)
            .map_err(|it| json!({ "memory": it.to_string() }))
    });
    Ok(Placement::new(rules, cpus, memory.transpose()?))
}

fn admit(placement: &mut Placement, pods: &mut Vec<PodAsk>, pod: PodAsk) -> Value {
    if !pods.contains(&pod) {
        pods.push(pod.clone());
    }
    let lives = |uid: &PodUid, name: &str| {
        pods.iter().any(|it| it.uid == *uid && it.containers.iter().any(|it| it.name == name))
    };
    placement.retain(lives);
    if let Err(refusal) = placement.admit(&pod) {
        pods.retain(|it| it.uid != pod.uid);
        let rejection = refusal.rejection();
        return json!({ "admit": false, "reason": rejection.reason, "message": rejection.message });
    }
    let mut containers = json!({});
    for container in &pod.containers {
        placement.starts(&pod, &container.name);
        let place = placement.place(&pod.uid, &container.name);
        let own = match place.has_own_cpus {
            true => place.cpus.to_string(),
            false => String::new(),
        };
        let blocks = placement.memory.as_ref();
        let blocks = blocks.and_then(|it| it.assignments.get(&pod.uid, &container.name));
        let block = |it: &ferrolet_placement::memory::MemoryBlock| {
            let nodes: Vec<u32> = it.nodes.iter().collect();
            json!({ "numaAffinity": nodes, "size": it.size, "type": it.kind })
        };
        let blocks = blocks.map(|all| all.iter().map(block).collect::<Vec<_>>());
        containers[&container.name] =
            json!({ "cpus": own, "affinity": place.cpus.to_string(), "memory": blocks });
    }
    json!({ "admit": true, "reason": "", "message": "", "containers": containers })
}

/// The state files as an earlier life left them, read by the next one.
fn restart(q: &Value, placement: &Placement) -> Placement {
    let mut next = start(q).unwrap();
    if let (Some(before), Some(now)) = (&placement.cpus, &mut next.cpus) {
        let (policy, written) = decode_cpus(&encode_cpus(&before.assignments)).unwrap();
        assert_eq!(written, before.assignments);
        assert_eq!(now.restore(&policy, &written), Vec::<String>::new());
        assert_eq!(now.assignments, before.assignments);
    }
    if let (Some(before), Some(now)) = (&placement.memory, &mut next.memory) {
        let (policy, written) = decode_memory(&encode_memory(&before.assignments)).unwrap();
        assert_eq!(written, before.assignments);
        assert_eq!(now.restore(&policy, &written), Vec::<String>::new());
    }
    next
}

fn play(q: &Value) -> Value {
    let mut placement = match start(q) {
        Ok(placement) => placement,
        Err(refused) => return refused,
    };
    let (mut pods, mut steps): (Vec<PodAsk>, Vec<Value>) = (Vec::new(), Vec::new());
    for step in list(&q["Steps"]) {
        if step["Add"].is_object() {
            let pod: Pod = serde_json::from_value(step["Add"].clone()).unwrap();
            steps.push(admit(&mut placement, &mut pods, PodAsk::of(&pod)));
        } else if step["Restart"] == true {
            placement = restart(q, &placement);
            let again: Vec<Value> =
                pods.clone().into_iter().map(|pod| admit(&mut placement, &mut pods, pod)).collect();
            steps.push(
                json!({ "again": if again.is_empty() { Value::Null } else { json!(again) } }),
            );
        } else {
            let uid = PodUid::new(step["Remove"].as_str().unwrap());
            pods.retain(|it| it.uid != uid);
            steps.push(json!({ "removed": step["Remove"] }));
        }
    }
    let cpus = placement.cpus.as_ref();
    let memory = placement.memory.as_ref();
    let file = |content: Vec<u8>| serde_json::from_slice::<Value>(&content).unwrap();
    json!({
        "steps": steps,
        "cpu_manager_state": file(cpus.map_or_else(encode_no_cpus, |it| encode_cpus(&it.assignments))),
        "memory_manager_state": file(memory.map_or_else(encode_no_memory, |it| encode_memory(&it.assignments))),
        "allocatable": cpus.map(StaticCpus::allocatable).unwrap_or_default().to_string(),
    })
}

/// Go's maps have no order, so neither have upstream's blocks; checksums over them follow.
fn without_order(mut answer: Value) -> Value {
    fn sort(value: &mut Value) -> bool {
        let mut has_many = false;
        match value {
            Value::Array(all) => {
                for it in all.iter_mut() {
                    has_many |= sort(it);
                }
                if all.iter().all(|it| it["numaAffinity"].is_array()) {
                    has_many |= all.len() > 1;
                    all.sort_by_key(|it| it["type"].to_string());
                }
            }
            Value::Object(all) => {
                for it in all.values_mut() {
                    has_many |= sort(it);
                }
            }
            _ => {}
        }
        has_many
    }
    let data = answer["memory_manager_state"]["data"].as_str().map(str::to_owned);
    let data = data.and_then(|it| serde_json::from_str::<Value>(&it).ok());
    if let Some(mut data) = data {
        if sort(&mut data) {
            answer["memory_manager_state"]["checksum"] = Value::Null;
            answer["memory_manager_state"]["dataChecksum"] = Value::Null;
        }
        answer["memory_manager_state"]["data"] = data;
    }
    sort(&mut answer);
    answer
}

#[test]
fn pods_get_the_processors_and_memory_that_upstream_gives_them() {
    let mut n_same = 0;
    let mut n_listed: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, case) in recorded(ADMIT).iter().enumerate() {
        let q = &case.question;
        let ours = without_order(play(q));
        let upstream = without_order(case.answer.clone());
        if ours == upstream {
            n_same += 1;
            continue;
        }
        if let Some(why) = listed(q, &ours, &upstream, &case.error) {
            *n_listed.entry(why).or_default() += 1;
            continue;
        }
        for (step, (mine, theirs)) in
            list(&ours["steps"]).iter().zip(list(&upstream["steps"])).enumerate()
        {
            if mine != theirs {
                println!("step {step}: {}\n ours {mine}\n them {theirs}", q["Steps"][step]);
                break;
            }
        }
        for part in ["allocatable", "cpu", "cpu_manager_state", "memory", "memory_manager_state"] {
            if ours.get(part) != upstream.get(part) {
                println!("{part}:\n ours {}\n them {}", ours[part], upstream[part]);
            }
        }
        let mut short = q.clone();
        short["Steps"] = Value::Null;
        short["Machine"] = Value::Null;
        panic!("{at}: {short} {}", case.error);
    }
    println!("admit: {n_same} same, {n_listed:?}");
    // What upstream answers with a choice of its own, and we with another.
    let n_other: usize = ["uneven", "overwritten"].iter().filter_map(|it| n_listed.get(it)).sum();
    assert!(n_same > 20 * n_other, "{n_same} {n_listed:?}");
}

/// The differences that ADR 0041 lists.
fn listed(q: &Value, ours: &Value, upstream: &Value, error: &str) -> Option<&'static str> {
    let layout = CpuLayout::of(&machine(&q["Machine"]));
    let is_uneven = |groups: &BTreeMap<u32, CpuSet>| {
        let mut sizes = groups.values().map(CpuSet::len);
        let first = sizes.next();
        sizes.any(|size| Some(size) != first)
    };
    let is_distributed = q["CPUOptions"].get("distribute-cpus-across-numa").is_some();
    if !ours["steps"].is_array() {
        return None;
    }
    // Upstream ends itself, or never ends.
    if error == "hang" || error.starts_with("panic") {
        return Some("broken");
    }
    // Upstream cannot read what it wrote itself; until then everybody got the same.
    let before = upstream["steps"].as_array().filter(|_| upstream["restart"].is_object());
    if before.is_some_and(|before| list(&ours["steps"]).starts_with(before)) {
        return Some("unread");
    }
    // Everybody got the same, and only what the dead had is in a file still or not any more: upstream
    // takes it back when somebody asks for that very resource, or from another thread meanwhile.
    if ours["steps"] == upstream["steps"] {
        return Some("stale");
    }
    // Upstream gives processors away twice.
    if is_uneven(&layout.cores) || is_uneven(&layout.sockets) {
        return Some("uneven");
    }
    // Upstream overwrites the combination of nodes that it has chosen.
    (is_distributed && layout.nodes.len() > 4).then_some("overwritten")
}

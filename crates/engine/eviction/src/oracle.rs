//! Upstream's own answers, recorded (`tests/oracle`), and ours beside them.
//!
//! Where upstream's answer depends on the order of a map there are several, and ours is one of
//! them. Ours is another one on purpose in these cases:
//!
//! - a pod whose statistics are missing goes last, not first ([`is_missing_first`])
//! - a transition period of zero keeps a condition only while its cause lasts, where upstream's
//!   kubelet never shows it; no question has it
//! - `containerfs` is looked at from the first look on, upstream's from the second; the first look
//!   of every question finds healthy disks
//! - a percentage of exactly `0.0%` is a threshold that is never met for upstream, and so for us

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::Read as _,
    time::Duration,
};

use ferrolet_config::{
    CommandLine, Invocation, NamedText,
    config::{Signal, Threshold, ThresholdValue},
    load,
};
use ferrolet_eviction::{
    Candidate, FileSystems, GraceLimits, Memory, NodeReclaim, Pressure, effective_thresholds, look,
    node_reclaim, pressure_of, rank, resource_of, still_met, verdict,
};
use ferrolet_node::NodeState;
use ferrolet_ports::{
    CgroupFigures, CgroupUsage, CpuFigures, DiskUsage, FileRoom, FileSystemMeans, InUse,
    LayerUsage, MeansReading, MemoryFigures, MemoryMeans, MemoryUsage, PodUsage, ProcessFigures,
    ProcessRoom, UsageFigures, UsageSnapshot, VolumeUsage, Whose,
};
use ferrolet_resources::{InsufficientResource, admit, choose_victims};
use ferrolet_types::{ContainerId, Pod, PodUid, Quantity, Timestamp, pod::PodView as _};
use k8s_openapi::api::core::v1::Pod as PodObject;
use serde_json::{Value, json};

use crate::{
    candidates::{Measured, candidate},
    observe::observations,
};

const THRESHOLDS: &[u8] = include_bytes!("../../../../tests/oracle/recorded/thresholds.jsonl.gz");
const PREEMPT: &[u8] = include_bytes!("../../../../tests/oracle/recorded/preempt.jsonl.gz");
const EVICT: &[u8] = include_bytes!("../../../../tests/oracle/recorded/evict.jsonl.gz");

fn rows(recorded: &[u8]) -> Vec<(Value, Value)> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(recorded).read_to_string(&mut text).unwrap();
    let row = |line: &str| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        (row["in"].take(), row["out"].take())
    };
    text.lines().map(row).collect()
}

/// The configuration's thresholds, or that it is refused.
fn thresholds_of(maps: &Value) -> Option<Vec<Threshold>> {
    let fields = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "evictionHard": maps["Hard"],
        "evictionSoft": maps["Soft"],
        "evictionSoftGracePeriod": maps["Grace"],
        "evictionMinimumReclaim": maps["Reclaim"],
    });
    let text = NamedText { name: "question".to_owned(), text: fields.to_string() };
    let Ok(Invocation::Run(command_line)) = CommandLine::parse(Vec::new()) else {
        panic!("no arguments are a run");
    };
    load(&command_line, Some(text), &[]).ok().map(|it| it.config.eviction.thresholds)
}

fn is_pods_enforced(maps: &Value) -> bool {
    maps["Allocatable"].as_array().is_some_and(|it| it.contains(&json!("pods")))
}

/// A value in one form: an amount in bytes or a percentage.
fn shown(value: ThresholdValue) -> String {
    match value {
        ThresholdValue::Quantity(quantity) => format!("{}", quantity.value()),
        ThresholdValue::Percent(percent) => format!("{percent:.3}%"),
    }
}

fn upstreams(value: &Value) -> String {
    match value {
        Value::String(quantity) => format!("{}", Quantity::parse(quantity).unwrap().value()),
        Value::Number(part) => format!("{:.3}%", part.as_f64().unwrap() * 100.0),
        _ => String::new(),
    }
}

#[test]
fn thresholds_are_read_as_upstreams() {
    let (mut n_refused, mut n_read, mut others) = (0, 0, Vec::new());
    for (question, answer) in rows(THRESHOLDS) {
        let found = thresholds_of(&question);
        let (Some(expected), Some(found)) = (answer.as_array(), &found) else {
            n_refused += 1;
            if answer.is_null() != found.is_none() {
                others.push(format!("{question}\nours {found:?}\nupstream's {answer}"));
            }
            continue;
        };
        n_read += 1;
        // Those of containerfs are never the user's, for upstream a moment later.
        let mut own = effective_thresholds(found, FileSystems::One, is_pods_enforced(&question));
        own.retain(|it| {
            !matches!(it.signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree)
        });
        let own: BTreeSet<[String; 4]> = own
            .iter()
            .map(|it| {
                let grace = it.grace_period.unwrap_or_default().as_nanos();
                let reclaim = it.minimum_reclaim.map(shown).unwrap_or_default();
                [it.signal.as_str().to_owned(), shown(it.value), grace.to_string(), reclaim]
            })
            .collect();
        let expected: BTreeSet<[String; 4]> = expected
            .iter()
            .map(|it| {
                let signal = it[0].as_str().unwrap().to_owned();
                [signal, upstreams(&it[1]), it[2].to_string(), upstreams(&it[3])]
            })
            .filter(|it| !it[0].starts_with("containerfs"))
            .collect();
        if own != expected {
            others.push(format!("{question}\nours {own:?}\nupstream's {expected:?}"));
        }
    }
    assert!(others.is_empty(), "{} differ\n{}", others.len(), first(&others));
    assert!(n_refused > 500 && n_read > 500, "{n_refused} {n_read}");
}

fn first(all: &[String]) -> String {
    all.iter().take(3).cloned().collect::<Vec<_>>().join("\n\n")
}

/// Pods of the API, as they come to a node.
fn pod_of(value: &Value) -> PodObject {
    let mut pod = value.clone();
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "api"});
    let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
    let containers = pod["spec"]["containers"].as_array().unwrap().iter();
    let statuses: Vec<Value> = containers
        .map(|it| {
            let name = it["name"].as_str().unwrap();
            json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": format!("x://{uid}-{name}")})
        })
        .collect();
    pod["status"] = json!({"phase": "Running", "containerStatuses": statuses});
    serde_json::from_value(pod).unwrap()
}

#[test]
fn a_critical_pod_costs_the_same_pods_their_place() {
    for (question, answer) in rows(PREEMPT) {
        let pod = pod_of(&question["Pod"]);
        let others: Vec<PodObject> =
            question["Others"].as_array().unwrap().iter().map(pod_of).collect();
        let others: Vec<&PodObject> = others.iter().collect();
        let number = |it: &Value, name: &str| it[name].as_i64().unwrap();
        let missing: Vec<InsufficientResource> = question["Missing"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| InsufficientResource {
                name: it["Name"].as_str().unwrap().to_owned(),
                requested: number(it, "Requested"),
                used: number(it, "Used"),
                capacity: number(it, "Capacity"),
            })
            .collect();
        let found = match choose_victims(&pod, &others, &missing) {
            Ok(victims) => {
                let mut names: Vec<String> =
                    victims.iter().map(|it| it.metadata.name.clone().unwrap()).collect();
                names.sort();
                json!({"killed": names})
            }
            Err(why) => {
                json!({"error": format!("preemption: error finding a set of pods to preempt: {why}")})
            }
        };
        assert_eq!(found, answer, "{question}");
    }
}

/// Plays one question: what each look came to, in the recorded form, and among how many thresholds
/// upstream's could have chosen there.
fn play(question: &Value) -> (Vec<Value>, Vec<usize>) {
    let configured = thresholds_of(&question["Thresholds"]).unwrap();
    let disks = &question["Disks"];
    let layout = match (disks["Images"].as_bool().unwrap(), disks["Containers"].as_bool().unwrap())
    {
        (false, _) => FileSystems::One,
        (true, false) => FileSystems::ImagesAndContainersApart,
        (true, true) => FileSystems::ImagesApart,
    };
    let is_enforced = is_pods_enforced(&question["Thresholds"]);
    let thresholds = effective_thresholds(&configured, layout, is_enforced);
    let transition = Duration::from_secs(question["TransitionSecond"].as_u64().unwrap());
    let max_pod = Some(Duration::from_secs(question["MaxGrace"].as_u64().unwrap()));
    let mut pods: Vec<PodObject> =
        question["Pods"].as_array().unwrap().iter().map(pod_of).collect();
    let (mut memory, mut now) = (Memory::default(), 1_800_000_000);
    let (mut steps, mut choices) = (Vec::new(), Vec::new());
    for step in question["Steps"].as_array().unwrap() {
        now += step["AfterSeconds"].as_i64().unwrap();
        let summary = &step["Summary"];
        let seen = observations(&reading(&summary["node"]), 0);
        let at = Timestamp::from_second(now);
        let outlook = look(&thresholds, transition, &memory, &seen, at);
        memory = outlook.memory.clone();
        let (mut met, mut given_up, mut killed) = (vec![], vec![], vec![]);
        if let Some(threshold) = outlook.due.first() {
            met.push(resource_of(threshold.signal).to_string());
            given_up.extend(node_reclaim(threshold.signal, layout).iter().map(|it| match it {
                NodeReclaim::DeadContainers => "containers",
                NodeReclaim::UnusedImages => "images",
            }));
            let is_enough = !given_up.is_empty() && !still_met(&thresholds, &seen);
            let measured = measured(&summary["pods"]);
            let candidates: Vec<Candidate> =
                pods.iter().map(|it| candidate(it, &measured)).collect();
            let ranked = rank(threshold.signal, layout, &candidates);
            if let Some(victim) = ranked.first().filter(|_| !is_enough) {
                let limits = GraceLimits { max_pod };
                let verdict = verdict(victim, threshold, &outlook.due, &seen, limits);
                killed.push(json!({"pod": victim.name, "grace": verdict.grace.as_secs(),
                    "message": verdict.message, "annotations": as_go_map(&verdict.annotations)}));
                let gone = victim.uid.clone();
                pods.retain(|it| it.uid() != gone);
            }
        }
        let of_memory = |it: &&Threshold| pressure_of(it.signal) == Pressure::Memory;
        let n_memory = outlook.due.iter().filter(of_memory).count();
        choices.push(if n_memory > 0 { n_memory } else { outlook.due.len() });
        let short = |it| outlook.pressures.contains(&it);
        steps.push(json!({"killed": killed, "gc": given_up, "met": met,
            "memory": short(Pressure::Memory), "disk": short(Pressure::Disk),
            "pid": short(Pressure::Pid), "admit": admission(&outlook.pressures)}));
    }
    (steps, choices)
}

fn as_go_map(annotations: &BTreeMap<&'static str, String>) -> String {
    if annotations.is_empty() {
        return "map[]".to_owned();
    }
    let all: Vec<String> = annotations.iter().map(|(key, it)| format!("{key}:{it}")).collect();
    format!("map[{}]", all.join(" "))
}

/// What a pod that asks for nothing is told.
fn admission(pressures: &BTreeSet<Pressure>) -> String {
    let mut node = NodeState::example();
    node.facts.pressure = ferrolet_node::Pressure {
        memory: pressures.contains(&Pressure::Memory),
        disk: pressures.contains(&Pressure::Disk),
        pid: pressures.contains(&Pressure::Pid),
    };
    let pod = json!({"metadata": {"uid": "x"}, "spec": {"containers": [{"name": "x"}]}});
    let message = admit(&pod_of(&pod), &node, &[]).err().map(|it| it.message).unwrap_or_default();
    // Upstream's order is that of a map, and the recording is sorted.
    let Some((before, rest)) = message.split_once('[') else {
        return message;
    };
    let (names, after) = rest.split_once(']').unwrap();
    let names: BTreeSet<&str> = names.split(' ').collect();
    let names: Vec<&str> = names.into_iter().collect();
    format!("{before}[{}]{after}", names.join(" "))
}

fn reading(node: &Value) -> MeansReading {
    let memory = |it: &Value| {
        let working_set = it["workingSetBytes"].as_u64()?;
        let capacity = it["availableBytes"].as_u64()? + working_set;
        Some(MemoryMeans { capacity, working_set, usage: it["usageBytes"].as_u64()? })
    };
    let disk = |it: &Value| {
        let room = FileRoom {
            capacity: it["capacityBytes"].as_u64()?,
            available: it["availableBytes"].as_u64()?,
            inodes: it["inodes"].as_u64()?,
            inodes_free: it["inodesFree"].as_u64()?,
            ..FileRoom::default()
        };
        Some(FileSystemMeans { device: 0, room })
    };
    let limit = &node["rlimit"];
    MeansReading {
        at: node["memory"]["time"].as_str().unwrap().parse().map(Timestamp).unwrap(),
        memory: memory(&node["memory"]),
        pods_memory: memory(&node["systemContainers"][0]["memory"]),
        pods_usage: None,
        node_fs: disk(&node["fs"]),
        image_fs: disk(&node["runtime"]["imageFs"]),
        container_fs: disk(&node["runtime"]["containerFs"]),
        processes: Some(ProcessRoom {
            max: limit["maxpid"].as_u64().unwrap(),
            n: limit["curproc"].as_u64().unwrap(),
        }),
    }
}

fn usage(bytes: u64) -> CgroupUsage {
    CgroupUsage {
        at: Timestamp::from_second(0),
        cpu_nanos: None,
        cpu_nano_cores: None,
        memory: Some(MemoryUsage {
            usage: bytes,
            working_set: bytes,
            rss: 0,
            limit: None,
            page_faults: 0,
            major_page_faults: 0,
        }),
        swap_bytes: None,
        swap_limit_bytes: None,
    }
}

fn cgroup(whose: Whose, n_processes: u64) -> CgroupFigures {
    CgroupFigures {
        whose,
        path: String::new(),
        made: Timestamp::from_second(0),
        usage: usage(0),
        cpu: CpuFigures::default(),
        memory: MemoryFigures::default(),
        n_threads: None,
        max_threads: None,
        processes: ProcessFigures { n_processes, ..ProcessFigures::default() },
        devices: Vec::new(),
        pressure: None,
        interfaces: Vec::new(),
    }
}

fn measured(pods: &Value) -> Measured {
    let at = Timestamp::from_second(0);
    let number = |it: &Value| it.as_u64().unwrap_or(0);
    let in_use =
        |it: &Value| InUse { bytes: number(&it["usedBytes"]), inodes: number(&it["inodesUsed"]) };
    let mut snapshot = UsageSnapshot { node: usage(0), all_pods: None, pods: Vec::new() };
    let mut figures = UsageFigures { at, cgroups: Vec::new(), disks: Vec::new(), processes: None };
    let mut disk = DiskUsage {
        at,
        node: FileRoom::default(),
        logs: FileRoom::default(),
        container_logs: Vec::new(),
        pod_files: Vec::new(),
        volumes: Vec::new(),
    };
    let mut layers = Vec::new();
    for pod in pods.as_array().unwrap() {
        let uid = PodUid::new(pod["podRef"]["uid"].as_str().unwrap());
        let mut containers = Vec::new();
        for container in pod["containers"].as_array().unwrap() {
            let name = container["name"].as_str().unwrap();
            let id = ContainerId::new(format!("{uid}-{name}"));
            let memory = number(&container["memory"]["workingSetBytes"]);
            containers.push((id.clone(), usage(memory)));
            layers.push(LayerUsage { id, at: None, used: in_use(&container["rootfs"]) });
            disk.container_logs.push((uid.clone(), name.to_owned(), in_use(&container["logs"])));
        }
        for volume in pod["volume"].as_array().into_iter().flatten() {
            let room = FileRoom {
                used: number(&volume["usedBytes"]),
                inodes_used: number(&volume["inodesUsed"]),
                ..FileRoom::default()
            };
            disk.volumes.push(VolumeUsage {
                uid: uid.clone(),
                name: volume["name"].as_str().unwrap().to_owned(),
                volume: None,
                at,
                room,
                is_on_node: true,
            });
        }
        let total = usage(number(&pod["memory"]["workingSetBytes"]));
        snapshot.pods.push(PodUsage { uid: uid.clone(), total, containers });
        let n_processes = number(&pod["process_stats"]["process_count"]);
        figures.cgroups.push(cgroup(Whose::Pod(uid), n_processes));
    }
    let measured = Measured::default().with_memory(&snapshot).with_processes(&figures);
    measured.with_layers(&layers).with_disk(&disk)
}

/// True when upstream's choice rests on statistics that are missing.
fn is_missing_first(question: &Value) -> bool {
    let n_pods = question["Pods"].as_array().unwrap().len();
    let steps = question["Steps"].as_array().unwrap();
    steps.iter().any(|it| it["Summary"]["pods"].as_array().unwrap().len() < n_pods)
}

/// How our answer relates to the recorded ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Beside {
    Same,
    /// The order of upstream's map went another way in every recorded run.
    OtherOrder,
    MissingStatistics,
    Other,
}

fn compare(question: &Value, answers: &[Value]) -> Beside {
    let (own, choices) = play(question);
    let mut alike: Vec<&Value> = answers.iter().collect();
    for (at, step) in own.iter().enumerate() {
        alike.retain(|it| it[at] == *step);
        match (alike.is_empty(), is_missing_first(question), choices[at] > 1) {
            (false, _, _) => {}
            (true, true, _) => return Beside::MissingStatistics,
            (true, false, true) => return Beside::OtherOrder,
            (true, false, false) => return Beside::Other,
        }
    }
    Beside::Same
}

#[test]
fn every_look_comes_to_what_upstreams_comes_to() {
    let (mut counts, mut others): (HashMap<Beside, usize>, _) = (HashMap::new(), Vec::new());
    for (question, answers) in rows(EVICT) {
        let answers = answers.as_array().unwrap();
        let beside = compare(&question, answers);
        *counts.entry(beside).or_default() += 1;
        if beside == Beside::Other {
            let (own, _) = play(&question);
            others.push(format!("{question}\nours {}\nupstream's {}", json!(own), json!(answers)));
        }
    }
    assert!(others.is_empty(), "{counts:?}\n{}", first(&others));
    assert!(counts[&Beside::Same] > 900, "{counts:?}");
    assert!(counts.get(&Beside::OtherOrder).is_none_or(|n| *n < 50), "{counts:?}");
}

/// A pod without statistics goes only when nobody else can.
#[test]
fn nobody_goes_for_want_of_statistics_while_another_can() {
    for (question, _) in rows(EVICT) {
        let (own, _) = play(&question);
        let steps = question["Steps"].as_array().unwrap().iter().zip(&own);
        let mut gone: BTreeSet<String> = BTreeSet::new();
        for (step, came) in steps {
            let known: BTreeSet<&str> = step["Summary"]["pods"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["podRef"]["uid"].as_str().unwrap())
                .collect();
            for victim in came["killed"].as_array().unwrap() {
                let name = victim["pod"].as_str().unwrap();
                let others = question["Pods"].as_array().unwrap().iter().map(pod_of);
                let could_go = others.map(Pod::new).any(|it| {
                    let uid = it.uid();
                    !it.is_critical()
                        && known.contains(uid.as_str())
                        && !gone.contains(uid.as_str())
                });
                assert!(known.contains(name) || !could_go, "{question}");
                gone.insert(name.to_owned());
            }
        }
    }
}

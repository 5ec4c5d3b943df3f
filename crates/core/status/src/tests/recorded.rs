//! What upstream's kubelet 1.37.1 answered in a real cluster, reproduced from the facts that led
//! there.
//!
//! Each file in `golden/` holds a pod, the facts of each step that was seen by a watch, and the
//! recorded status at the end. Times and container ids were not recorded; everything else must be
//! equal, and so must each step's line.

use std::{collections::BTreeMap, path::Path};

use crate::{
    ContainerFact, RunningContainers, RuntimeFacts, Stage, StatusInputs, StatusOverride, compute,
    merge_for_api, plan_patch,
};
use ferrolet_pod::{EndReason, Waiting};
use ferrolet_types::{
    ContainerName, PodUid, Timestamp,
    observed::{
        ContainerState, Exit, NetworkMode, ObservedContainer, ObservedResources, ObservedSandbox,
        ObservedUser, PodObservation, TerminationMessageSource,
    },
    pod::Phase,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use serde_json::{Map, Value, json};

use super::support::waiting_reason;

const POD_IP: &str = "10.88.0.7";
const HOST_IP: &str = "10.87.0.1";

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "every recording in the directory is replayed, also one that nobody listed"
)]
fn every_recorded_status_follows_from_its_facts() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut n_cases = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let case: Value = serde_json::from_str(&text).unwrap();
        replay(path.file_stem().unwrap().to_str().unwrap(), &case);
        n_cases += 1;
    }
    assert!(n_cases >= 30, "only {n_cases} recordings found");
}

/// Computes, merges and patches step by step, as worker and reporter do together.
fn replay(name: &str, case: &Value) {
    let mut pod: Pod = serde_json::from_value(case["pod"].clone()).unwrap();
    pod.status = Some(PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() });
    let mut previous: Option<PodStatus> = None;
    for (n_step, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let now = Timestamp::from_second(1_000 + i64::try_from(n_step).unwrap());
        apply_changes(&mut pod, step, now);
        let facts = Facts::read(&pod, case, step);
        let computed = compute(&facts.inputs(&pod, previous.as_ref(), now)).status;
        let running = match step["running"].as_str() {
            Some("gone") => RunningContainers::Gone,
            _ => RunningContainers::Possible,
        };
        // A rejected pod has no worker, so nothing of it can run.
        let running = match facts.verdict {
            Some(StatusOverride::Rejected { .. }) => RunningContainers::Gone,
            _ => running,
        };
        let merged = merge_for_api(&pod, computed.clone(), running, now);
        let api = pod.status.take().unwrap();
        let patched = match plan_patch(&PodUid::new("UID"), &api, &merged) {
            Some(patch) => apply_patch(&api, &patch),
            None => serde_json::to_value(&api).unwrap(),
        };
        assert_eq!(patched, serde_json::to_value(&merged).unwrap(), "{name}");
        assert_eq!(line(&pod, &merged), step["line"], "{name} step {n_step}");
        pod.status = Some(merged);
        previous = Some(computed);
    }
    let mut last = serde_json::to_value(pod.status.unwrap()).unwrap();
    forget(&mut last);
    let recorded = case["final"].as_object().unwrap();
    for (field, value) in recorded {
        assert_eq!(&last[field], value, "{name} {field}");
    }
    let fields = |map: &Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(last.as_object().unwrap()), fields(recorded), "{name}");
}

/// What the API server did to the pod since the step before.
fn apply_changes(pod: &mut Pod, step: &Value, now: Timestamp) {
    let spec = pod.spec.as_mut().unwrap();
    if let Some(added) = step["spec"].get("ephemeralContainers") {
        spec.ephemeral_containers = serde_json::from_value(added.clone()).unwrap();
    }
    if let Some(resources) = step.get("container_resources") {
        spec.containers[0].resources = serde_json::from_value(resources.clone()).unwrap();
    }
    if let Some(generation) = step["generation"].as_i64() {
        pod.metadata.generation = Some(generation);
    }
    if step["deleted"] == true {
        pod.metadata.generation = Some(2);
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now.0);
        pod.metadata.deletion_timestamp.get_or_insert(time);
    }
}

struct Facts {
    observation: PodObservation,
    containers: BTreeMap<ContainerName, ContainerFact>,
    stage: Stage,
    verdict: Option<StatusOverride>,
    pod_cgroup: Option<ObservedResources>,
    host_ips: Vec<String>,
}

impl Facts {
    fn read(pod: &Pod, case: &Value, step: &Value) -> Self {
        let mut containers: BTreeMap<ContainerName, ContainerFact> = BTreeMap::new();
        for (name, why) in entries(&step["waiting"]) {
            containers.entry(name).or_default().waiting =
                Some(Waiting { reason: waiting_reason(&text(&why[0])), message: text(&why[1]) });
        }
        for (name, verdict) in entries(&step["started"]) {
            containers.entry(name).or_default().started = verdict.as_bool();
        }
        for (name, verdict) in entries(&step["ready"]) {
            containers.entry(name).or_default().ready = verdict.as_bool();
        }
        let rejected = step
            .get("rejected")
            .map(|why| StatusOverride::Rejected { reason: text(&why[0]), message: text(&why[1]) });
        let ended = step.get("verdict").map(|why| StatusOverride::Ended {
            phase: Phase::Failed,
            reason: EndReason::parse(&text(&why[0])),
            message: text(&why[1]),
            conditions: Vec::new(),
        });
        Self {
            observation: observation(pod, case, step),
            containers,
            stage: match step["stage"].as_str() {
                None => Stage::Running,
                Some("terminating") => Stage::Terminating,
                Some("stopped") => Stage::Stopped,
                Some(other) => panic!("no stage {other}"),
            },
            verdict: rejected.or(ended),
            pod_cgroup: step.get("cgroup").map(resources),
            host_ips: vec![HOST_IP.to_owned()],
        }
    }

    fn inputs<'a>(
        &'a self,
        pod: &'a Pod,
        previous: Option<&'a PodStatus>,
        now: Timestamp,
    ) -> StatusInputs<'a> {
        StatusInputs {
            pod,
            previous,
            observation: &self.observation,
            runtime: RuntimeFacts {
                name: "containerd",
                has_recursive_read_only: true,
                shows_stop_signal: false,
            },
            containers: &self.containers,
            stage: self.stage,
            verdict: self.verdict.as_ref(),
            resize: &[],
            pod_cgroup: self.pod_cgroup,
            volume_health: const { &BTreeMap::new() },
            host_ips: &self.host_ips,
            now,
        }
    }
}

fn observation(pod: &Pod, case: &Value, step: &Value) -> PodObservation {
    let at = Timestamp::from_second(500);
    let is_host_network = pod.spec.as_ref().unwrap().host_network == Some(true);
    let is_ready = step["sandbox"] == "ready";
    let sandbox = ObservedSandbox {
        id: "box".into(),
        attempt: 0,
        is_ready,
        created_at: at,
        // The runtime forgets the address of a sandbox that it stopped.
        ips: if is_ready && !is_host_network { vec![POD_IP.to_owned()] } else { Vec::new() },
        network: if is_host_network { NetworkMode::Node } else { NetworkMode::Pod },
    };
    let user = case
        .get("user")
        .map_or((0, 0, vec![0]), |user| serde_json::from_value(user.clone()).unwrap());
    let container = |seen: &Value| ObservedContainer {
        id: format!("{}-{}", text(&seen[0]), seen[1]).into(),
        name: text(&seen[0]).into(),
        sandbox: "box".into(),
        state: if seen[2] == "running" {
            ContainerState::Running { started_at: at }
        } else {
            ContainerState::Exited(Exit {
                started_at: Some(at),
                finished_at: at,
                code: i32::try_from(seen[2]["exit"].as_i64().unwrap()).unwrap(),
                reason: text(&seen[2]["reason"]),
                message: text(&seen[2]["message"]),
            })
        },
        created_at: at,
        restart_count: u32::try_from(seen[1].as_u64().unwrap()).unwrap(),
        spec_hash: None,
        crash_streak: None,
        termination_message: TerminationMessageSource::default(),
        image: "docker.io/library/busybox:latest".to_owned(),
        image_ref: "sha256:ID".to_owned(),
        image_id: "sha256:ID".to_owned(),
        log_path: String::new(),
        mounts: Vec::new(),
        user: Some(ObservedUser { uid: user.0, gid: user.1, supplemental_groups: user.2.clone() }),
        resources: step.get("resources").map(resources),
        stop_signal: Some("SIGTERM".to_owned()),
    };
    PodObservation {
        uid: "UID".into(),
        key: None,
        sandboxes: match step["sandbox"].as_str() {
            Some("none") => Vec::new(),
            _ => vec![sandbox],
        },
        containers: step["seen"].as_array().unwrap().iter().map(container).collect(),
        at,
    }
}

fn resources(value: &Value) -> ObservedResources {
    let field = |name: &str| value[name].as_i64().unwrap_or(0);
    ObservedResources {
        cpu_shares: field("cpu_shares"),
        cpu_quota: field("cpu_quota"),
        cpu_period: field("cpu_period"),
        memory_limit: field("memory_limit"),
    }
}

fn entries(map: &Value) -> impl Iterator<Item = (ContainerName, &Value)> {
    let map = map.as_object().into_iter().flatten();
    map.map(|(name, value)| (ContainerName::from(name.as_str()), value))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A status on one line, as the recording of a watch writes it.
fn line(pod: &Pod, status: &PodStatus) -> String {
    const TOLD: [&str; 4] =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];
    let mut line = status.phase.clone().unwrap();
    if pod.metadata.deletion_timestamp.is_some() {
        line.push('*');
    }
    for condition in status.conditions.iter().flatten() {
        if TOLD.contains(&condition.type_.as_str()) {
            line += &format!(" {}={}", condition.type_, &condition.status[..1]);
        }
    }
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    for container in lists.into_iter().flatten().flatten() {
        line += &format!(" {}:{}", container.name, state(container));
        line += &format!("#{}", container.restart_count);
        line += if container.ready { "+" } else { "" };
    }
    line
}

fn state(status: &ContainerStatus) -> String {
    let state = status.state.as_ref().unwrap();
    if let Some(end) = &state.terminated {
        let reason = end.reason.as_deref().unwrap_or_default();
        return format!("terminated/{reason}/{}", end.exit_code);
    }
    match &state.waiting {
        Some(wait) => format!("waiting/{}", wait.reason.as_deref().unwrap_or_default()),
        None => "running".to_owned(),
    }
}

/// Drops what the recordings dropped.
fn forget(value: &mut Value) {
    const DROPPED: [&str; 6] = [
        "lastTransitionTime",
        "lastProbeTime",
        "startTime",
        "startedAt",
        "finishedAt",
        "containerID",
    ];
    match value {
        Value::Object(map) => {
            map.retain(|name, _| !DROPPED.contains(&name.as_str()));
            map.values_mut().for_each(forget);
        }
        Value::Array(list) => list.iter_mut().for_each(forget),
        Value::String(text) if text == POD_IP => *text = "POD_IP".to_owned(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The API server's side of a strategic merge patch, as far as a status needs it.
fn apply_patch(old: &PodStatus, patch: &Value) -> Value {
    assert_eq!(patch["metadata"], json!({ "uid": "UID" }));
    let Value::Object(mut status) = serde_json::to_value(old).unwrap() else {
        panic!("a status is an object");
    };
    let mut patch = patch["status"].as_object().unwrap().clone();
    for (field, key) in [("conditions", "type"), ("hostIPs", "ip"), ("podIPs", "ip")] {
        let changes = patch.remove(field);
        let Some(order) = patch.remove(&format!("$setElementOrder/{field}")) else {
            assert_eq!(changes, None, "{field} change without an order");
            continue;
        };
        let list = status.remove(field);
        let mut list = list.map_or(Vec::new(), |list| list.as_array().unwrap().clone());
        for change in changes.iter().flat_map(|list| list.as_array().unwrap()) {
            let found = list.iter_mut().find(|item| item[key] == change[key]);
            let change_map = change.as_object().unwrap();
            match found {
                _ if change["$patch"] == "delete" => list.retain(|item| item[key] != change[key]),
                Some(item) => merge(item.as_object_mut().unwrap(), change_map),
                None => list.push(change.clone()),
            }
        }
        let place = |item: &Value| {
            let mut order = order.as_array().unwrap().iter();
            order.position(|wanted| wanted[key] == item[key])
        };
        list.sort_by_key(place);
        if !list.is_empty() {
            status.insert(field.to_owned(), Value::Array(list));
        }
    }
    merge(&mut status, &patch);
    Value::Object(status)
}

fn merge(old: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match (old.get_mut(name), value) {
            (_, Value::Null) => {
                old.remove(name);
            }
            (Some(Value::Object(before)), Value::Object(after)) => merge(before, after),
            (_, value) => {
                old.insert(name.clone(), value.clone());
            }
        }
    }
}

//! The node's four conditions, in upstream's words and order. Pure.
//!
//! A condition keeps its place in the list and, while its status stays, its time of transition;
//! conditions of others are left alone. Matches upstream's condition setters: pressure first,
//! `Ready` last when the list is new.

use std::time::Duration;

use ferrolet_types::{Amounts, Timestamp};
use k8s_openapi::{api::core::v1::NodeCondition, apimachinery::pkg::apis::meta::v1::Time};

use crate::{NodeFacts, NodeSettings, RuntimeHealth};

/// A runtime that was silent for this long counts as down.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// One kind of pressure: its type, and reason, message and event for yes and for no.
struct Words {
    kind: &'static str,
    yes: [&'static str; 3],
    no: [&'static str; 3],
}

const MEMORY: Words = Words {
    kind: "MemoryPressure",
    yes: [
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
        "NodeHasInsufficientMemory",
    ],
    no: [
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
        "NodeHasSufficientMemory",
    ],
};
const DISK: Words = Words {
    kind: "DiskPressure",
    yes: ["KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"],
    no: ["KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"],
};
const PID: Words = Words {
    kind: "PIDPressure",
    yes: [
        "KubeletHasInsufficientPID",
        "kubelet has insufficient PID available",
        "NodeHasInsufficientPID",
    ],
    no: ["KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"],
};

/// Brings the list up to date; answers with the words of the events that follow from it.
pub(crate) fn update(
    list: &mut Vec<NodeCondition>,
    settings: &NodeSettings,
    facts: &NodeFacts,
    capacity: &Amounts,
    now: Timestamp,
) -> Vec<&'static str> {
    let mut events = Vec::new();
    let pressure = facts.pressure;
    for (words, is_short) in [(MEMORY, pressure.memory), (DISK, pressure.disk), (PID, pressure.pid)]
    {
        let status = if is_short { "True" } else { "False" };
        let [reason, message, event] = if is_short { words.yes } else { words.no };
        match find(list, words.kind) {
            // The reason stays what it was: nothing happened.
            Some(old) if old.status == status => old.last_heartbeat_time = Some(time(now)),
            Some(old) => {
                *old = condition(words.kind, status, reason, message, now);
                events.push(event);
            }
            None => {
                list.push(condition(words.kind, status, reason, message, now));
                events.push(event);
            }
        }
    }
    events.extend(update_ready(list, settings, facts, capacity, now));
    events
}

fn update_ready(
    list: &mut Vec<NodeCondition>,
    settings: &NodeSettings,
    facts: &NodeFacts,
    capacity: &Amounts,
    now: Timestamp,
) -> Option<&'static str> {
    if let (RuntimeHealth::Never { since, .. }, Some(old)) = (&facts.runtime, find(list, "Ready"))
        && now.since(*since) < SILENCE_LIMIT
    {
        // We do not know better yet than whoever wrote this before us.
        old.last_heartbeat_time = Some(time(now));
        return None;
    }
    let (is_ready, message) = match ready_message(settings, facts, capacity, now) {
        Ok(message) => (true, message),
        Err(message) => (false, message),
    };
    let (status, reason, event) = if is_ready {
        ("True", "KubeletReady", "NodeReady")
    } else {
        ("False", "KubeletNotReady", "NodeNotReady")
    };
    let mut ready = condition("Ready", status, reason, &message, now);
    match find(list, "Ready") {
        Some(old) => {
            let is_same = old.status == status;
            if is_same {
                ready.last_transition_time.clone_from(&old.last_transition_time);
            }
            *old = ready;
            (!is_same).then_some(event)
        }
        None => {
            list.push(ready);
            None
        }
    }
}

/// What the `Ready` condition says: `Ok` when the node is ready.
pub fn ready_message(
    settings: &NodeSettings,
    facts: &NodeFacts,
    capacity: &Amounts,
    now: Timestamp,
) -> Result<String, String> {
    let mut faults = runtime_faults(facts, now);
    faults.extend(facts.storage_fault.clone());
    faults.extend(facts.shutdown_fault.clone());
    let required = ["cpu", "memory", "pods", "ephemeral-storage"];
    let n_required = if settings.has_storage_isolation { 4 } else { 3 };
    let required = required.into_iter().take(n_required);
    let missing: Vec<&str> = required.filter(|it| !capacity.contains_key(*it)).collect();
    if !missing.is_empty() {
        let names = missing.join(", ");
        faults.push(format!("missing node capacity for resources: {names}"));
    }
    let is_ready = faults.is_empty();
    let mut message =
        if is_ready { "kubelet is posting ready status".to_owned() } else { in_one(faults) };
    if let Some(soft) = &facts.soft_faults {
        message = format!("{message}. WARNING: {soft}");
    }
    if is_ready { Ok(message) } else { Err(message) }
}

/// What keeps pods from running: the runtime, our own loops, the network.
pub fn runtime_faults(facts: &NodeFacts, now: Timestamp) -> Vec<String> {
    let mut faults = Vec::new();
    match &facts.runtime {
        RuntimeHealth::Never { .. } => {
            faults.push("container runtime status check may not have completed yet".to_owned());
        }
        RuntimeHealth::Silent { since, .. } if now.since(*since) >= SILENCE_LIMIT => {
            faults.push("container runtime is down".to_owned());
        }
        RuntimeHealth::Answered(_) | RuntimeHealth::Silent { .. } => {}
    }
    faults.extend(facts.loop_faults.iter().cloned());
    match facts.runtime.last() {
        Some(status) => {
            faults.extend(status.runtime_trouble());
            faults.extend(status.network_trouble());
        }
        None => faults.push("network state unknown".to_owned()),
    }
    faults
}

/// Several faults as one text, each once: a single one as it is, more in brackets.
fn in_one(faults: Vec<String>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for fault in faults {
        if !seen.contains(&fault) {
            seen.push(fault);
        }
    }
    match seen.as_slice() {
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn find<'a>(list: &'a mut [NodeCondition], kind: &str) -> Option<&'a mut NodeCondition> {
    list.iter_mut().find(|condition| condition.type_ == kind)
}

fn condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> NodeCondition {
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    }
}

fn time(now: Timestamp) -> Time {
    Time(now.to_second_precision().0)
}

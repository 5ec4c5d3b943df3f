//! One pod's status against the API's copy: what to patch, whether the object may go, how much it
//! hurries.
//!
//! Pure. In: the API's pod as last seen and the status we want there. Out: a patch or nothing.
//! Refuses: keeping anything.

use ferrolet_ports::{Remains, StatusUpdate};
use ferrolet_status::{
    RunningContainers, is_same_for_kubelet, merge_for_api, normalize, plan_patch,
};
use ferrolet_types::{
    Pod, PodUid, Timestamp,
    pod::{MIRROR_ANNOTATION, PodView as _},
};
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::Value;

/// How much a write hurries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Somebody waits for it: readiness changed, the pod is over, the object can go.
    Transition,
    /// News.
    Plain,
    /// Somebody else changed what is ours.
    Repair,
}

/// The pod of this node whose status an API pod shows: itself, or the static pod that it mirrors.
pub(crate) fn shown_pod(api: &Pod) -> PodUid {
    match api.annotation(MIRROR_ANNOTATION) {
        Some(hash) => PodUid::new(hash),
        None => api.uid(),
    }
}

/// The patch that brings the API's copy up to date; `None` when it is.
pub(crate) fn plan_write(api: &Pod, update: &StatusUpdate, now: Timestamp) -> Option<Value> {
    let empty = PodStatus::default();
    let old = api.status.as_ref().unwrap_or(&empty);
    plan_patch(&api.uid(), old, &wanted(api, update, now))
}

/// True when the API's copy says something else than we would, times apart.
pub(crate) fn differs(api: &Pod, update: &StatusUpdate) -> bool {
    let mut old = api.status.clone().unwrap_or_default();
    normalize(api, &mut old);
    // Times do not count here, so any moment will do.
    let moment = Timestamp::from_second(0);
    !is_same_for_kubelet(&old, &wanted(api, update, moment))
}

/// True when the API object has served its purpose: its deletion was asked for, it is over, and
/// nothing of it is left here.
pub(crate) fn may_delete(api: &Pod, update: &StatusUpdate) -> bool {
    update.remains == Remains::Settled
        && api.deletion_time().is_some()
        && !api.is_mirror()
        && api.api_phase().is_some_and(|phase| phase.is_terminal())
}

/// How much this status hurries.
pub(crate) fn urgency(api: &Pod, update: &StatusUpdate) -> Urgency {
    let is_over = |pod: &Pod| pod.api_phase().is_some_and(|phase| phase.is_terminal());
    if is_ready(api) != is_ready(&update.pod)
        || is_over(api) != is_over(&update.pod)
        || (update.remains == Remains::Settled && api.deletion_time().is_some())
    {
        Urgency::Transition
    } else {
        Urgency::Plain
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True")
}

/// The status that the API should have.
fn wanted(api: &Pod, update: &StatusUpdate, now: Timestamp) -> PodStatus {
    let empty = PodStatus::default();
    let old = api.status.as_ref().unwrap_or(&empty);
    let mut computed = update.pod.status.clone().unwrap_or_default();
    if api.is_mirror() {
        keep_times(old, &mut computed);
    }
    // A container that is told to have ended may still have a successor, and a sandbox holds the
    // pod's network.
    let running = match update.remains {
        Remains::Active => RunningContainers::Possible,
        Remains::Stopped | Remains::Settled => RunningContainers::Gone,
    };
    let mut wanted = merge_for_api(api, computed, running, now);
    // A generation that somebody already saw is not unseen by an older status.
    wanted.observed_generation = wanted.observed_generation.max(old.observed_generation);
    wanted
}

/// A static pod does not carry the API's status, so after a restart of ours its times begin anew;
/// the mirror remembers them.
fn keep_times(old: &PodStatus, computed: &mut PodStatus) {
    if old.start_time.is_some() {
        computed.start_time.clone_from(&old.start_time);
    }
    for condition in computed.conditions.iter_mut().flatten() {
        let mut known = old.conditions.iter().flatten();
        let same = |it: &&_| same_state(it, condition);
        if let Some(same) = known.find(same) {
            condition.last_transition_time.clone_from(&same.last_transition_time);
        }
    }
}

fn same_state(
    one: &k8s_openapi::api::core::v1::PodCondition,
    other: &k8s_openapi::api::core::v1::PodCondition,
) -> bool {
    one.type_ == other.type_ && one.status == other.status
}

//! What sources and the dispatcher ask for, and what was decided about the pod from outside.

use ferrolet_pod::{EndReason, Ending};
use ferrolet_status::StatusOverride;
use ferrolet_types::{
    Pod, PodKey, PodUid,
    pod::{Phase, PodView},
};
use k8s_openapi::api::core::v1::PodCondition;

use crate::grants::Assigned;

/// What is wanted of one pod.
pub(crate) struct Asked {
    uid: PodUid,
    key: Option<PodKey>,
    /// The specification with the resources that were granted.
    pod: Option<Pod>,
    /// The specification as its source wants it.
    desired: Option<Pod>,
    /// What the dispatcher handed over last.
    assigned: Option<Assigned>,
    /// What somebody outside the pod decided about it.
    verdict: Option<StatusOverride>,
}

impl Asked {
    pub(super) fn new(uid: PodUid, key: Option<PodKey>, pod: Option<Pod>) -> Self {
        let key = pod.as_ref().map(|pod| pod.key()).or(key);
        Self { uid, key, desired: pod.clone(), pod, assigned: None, verdict: None }
    }

    pub(crate) fn uid(&self) -> &PodUid {
        &self.uid
    }

    /// Its name; `None` until somebody knows it.
    pub(crate) fn key(&self) -> Option<&PodKey> {
        self.key.as_ref()
    }

    /// The specification with the resources that were granted; `None` for something that nobody
    /// asked for.
    pub(crate) fn pod(&self) -> Option<&Pod> {
        self.pod.as_ref()
    }

    /// The specification as its source wants it.
    pub(crate) fn desired(&self) -> Option<&Pod> {
        self.desired.as_ref()
    }

    pub(crate) fn verdict(&self) -> Option<&StatusOverride> {
        self.verdict.as_ref()
    }

    /// True when the node never took the pod.
    pub(crate) fn is_rejected(&self) -> bool {
        matches!(self.verdict, Some(StatusOverride::Rejected { .. }))
    }

    /// True when the node ended the pod because it could not afford it.
    pub(crate) fn is_evicted(&self) -> bool {
        let Some(StatusOverride::Ended { reason, .. }) = &self.verdict else {
            return false;
        };
        matches!(reason, EndReason::Evicted | EndReason::Preempting)
    }

    /// True when this is another version than the one before.
    pub(crate) fn is_news(&self, assigned: &Assigned) -> bool {
        self.assigned.as_ref().is_none_or(|old| !old.is_same_as(assigned))
    }

    pub(super) fn take(&mut self, assigned: Assigned) {
        self.key = Some(assigned.pod.key());
        self.pod = Some(assigned.pod.clone());
        self.desired = Some(assigned.desired.clone());
        self.assigned = Some(assigned);
    }

    /// The runtime's labels name a pod that nobody asked for.
    pub(super) fn note_key(&mut self, key: Option<&PodKey>) {
        if self.key.is_none() {
            self.key = key.cloned();
        }
    }

    /// Goes on with what an earlier life of the agent decided.
    pub(crate) fn recall(&mut self, verdict: Option<StatusOverride>) {
        self.verdict = verdict;
    }

    pub(super) fn reject(&mut self, reason: String, message: String) {
        self.verdict = Some(StatusOverride::Rejected { reason, message });
    }

    /// The node ends the pod: it fails, and what was made for it is taken away.
    pub(crate) fn end(&mut self, Ending { reason, message, disruption, .. }: Ending) {
        let conditions = disruption.map(disruption_target).into_iter().collect();
        self.verdict =
            Some(StatusOverride::Ended { phase: Phase::Failed, reason, message, conditions });
    }

    /// The node took the pod and cannot have it after all.
    pub(crate) fn reject_late(&mut self, reason: &str, message: &str) {
        let reason = EndReason::Other(reason.to_owned());
        self.end(Ending::new(reason, format!("Pod was rejected: {message}")));
    }
}

/// The condition of a pod that the node ends for its own sake.
fn disruption_target(message: String) -> PodCondition {
    PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some("TerminationByKubelet".to_owned()),
        message: Some(message),
        ..PodCondition::default()
    }
}

/// What an earlier life of the agent decided about a pod that it did not take: its status tells of
/// no containers.
pub(crate) fn earlier_rejection(pod: &Pod) -> Option<StatusOverride> {
    let status = pod.status.as_ref()?;
    let has_containers = status.container_statuses.as_ref().is_some_and(|it| !it.is_empty());
    if Phase::of(status) != Some(Phase::Failed) || has_containers {
        return None;
    }
    let message = status.message.as_deref()?;
    Some(StatusOverride::Rejected {
        reason: status.reason.clone()?,
        message: message.strip_prefix("Pod was rejected: ")?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_rejected_before_stays_rejected() {
        let check = |status: serde_json::Value, expected: Option<(&str, &str)>| {
            let pod = serde_json::json!({"metadata": {"name": "p"}, "status": status});
            let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
            let expected = expected.map(|(reason, message)| StatusOverride::Rejected {
                reason: reason.to_owned(),
                message: message.to_owned(),
            });
            assert_eq!(earlier_rejection(&pod.into()), expected);
        };
        let rejected = |phase: &str, message: &str| serde_json::json!({"phase": phase, "reason": "OutOfcpu", "message": message});
        check(rejected("Failed", "Pod was rejected: too much"), Some(("OutOfcpu", "too much")));
        check(rejected("Pending", "Pod was rejected: too much"), None);
        check(rejected("Failed", "The node was low on memory"), None);
        let mut ran = rejected("Failed", "Pod was rejected: by its own words");
        ran["containerStatuses"] = serde_json::json!([{"name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": ""}]);
        check(ran, None);
        check(serde_json::json!({}), None);
    }
}

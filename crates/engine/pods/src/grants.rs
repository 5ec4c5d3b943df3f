//! What each pod was granted, and whose resize waits for room. Pure; part of the dispatcher's
//! books.
//!
//! A desired specification that differs from the grant is a resize. It passes the same admission as
//! a new pod; one that is refused waits in line and is judged again whenever room may have
//! appeared, unless it can never happen on this node.

use std::{collections::BTreeMap, sync::Arc};

use ferrolet_node::NodeState;
use ferrolet_resources::{
    Infeasible, PodResources, Rejection, admit, check_resize, is_growing, pod_qos, with_resources,
};
use ferrolet_types::{
    Pod, PodUid, Qos, Timestamp,
    pod::{Phase, PodView},
};

use k8s_openapi::api::core::v1::PodCondition;

use crate::{
    records::ByPod,
    resizing::{DEFERRED, PENDING},
    roster::Gate,
};

/// A pod as its worker gets it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assigned {
    /// With the resources it was granted.
    pub(crate) pod: Pod,
    /// As its source wants it.
    pub(crate) desired: Pod,
    /// Why the two differ, when they do.
    pub(crate) pending: Option<Rejection>,
}

impl Assigned {
    /// True for the very same pods: looks at identities, not into specifications.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pod, &other.pod)
            && Arc::ptr_eq(&self.desired, &other.desired)
            && self.pending == other.pending
    }

    /// A pod that was granted what it asks for.
    pub(crate) fn whole(pod: Pod) -> Self {
        Self { desired: pod.clone(), pod, pending: None }
    }
}

/// What made somebody look at the line again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Pods came.
    Added,
    /// A pod asks for something else.
    Updated,
    /// Another pod's new resources are in force.
    Resized,
    /// Pods went.
    Removed,
    /// A pod has ended.
    Terminated,
    /// Nothing but time.
    Period,
}

impl Trigger {
    /// Upstream's word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "pods_added",
            Self::Updated => "pod_updated",
            Self::Resized => "pod_resized",
            Self::Removed => "pods_removed",
            Self::Terminated => "pod_terminated",
            Self::Period => "periodic_retry",
        }
    }
}

/// What came of a look at the line.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Judged {
    /// Pods whose grant or refusal has changed.
    pub(crate) changed: Vec<PodUid>,
    /// Resizes that can never happen here, by why.
    pub(crate) infeasible: Vec<Infeasible>,
    /// How many resizes were granted that had to wait.
    pub(crate) n_waited: usize,
}

/// Why a resize is refused.
enum Refused {
    ForNow(Rejection),
    ForGood(Infeasible),
}

/// The books of grants.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    granted: ByPod,
    refused: BTreeMap<PodUid, Rejection>,
    /// Pods whose resize is still to be judged, the oldest first.
    line: Vec<PodUid>,
}

impl Grants {
    /// Takes over what an earlier life of the agent had granted.
    pub(crate) fn were(&mut self, granted: ByPod) {
        self.granted = granted;
    }

    /// Grants a new pod what it asks for, unless an earlier life granted it something else.
    pub(crate) fn admit(&mut self, pod: &Pod) {
        self.granted.entry(pod.uid()).or_insert_with(|| PodResources::of(pod));
    }

    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.granted.remove(uid);
        self.refused.remove(uid);
        self.line.retain(|waiting| waiting != uid);
    }

    /// The pod with what it was granted.
    pub(crate) fn allocated(&self, pod: &Pod) -> Pod {
        let granted = self.granted.get(&pod.uid());
        granted
            .and_then(|granted| with_resources(pod, granted))
            .map_or_else(|| pod.clone(), Arc::new)
    }

    /// The pod as its worker gets it.
    pub(crate) fn assigned(&self, desired: &Pod) -> Assigned {
        Assigned {
            pod: self.allocated(desired),
            desired: desired.clone(),
            pending: self.refused.get(&desired.uid()).cloned(),
        }
    }

    /// A pod came, or came in another version: a resize that was not there before takes its place
    /// in the line.
    pub(crate) fn wants(&mut self, old: Option<&Pod>, new: &Pod) {
        let is_same = old.is_some_and(|old| PodResources::of(old).is_same(&PodResources::of(new)));
        if is_same {
            return;
        }
        let uid = new.uid();
        let differs =
            self.granted.get(&uid).is_some_and(|granted| with_resources(new, granted).is_some());
        if !differs {
            self.refused.remove(&uid);
            self.line.retain(|waiting| *waiting != uid);
        } else if !self.line.contains(&uid) {
            self.line.push(uid);
        }
    }

    /// True when somebody waits for room.
    pub(crate) fn has_line(&self) -> bool {
        !self.line.is_empty()
    }

    /// Judges everybody in the line again.
    pub(crate) fn retry(
        &mut self,
        wanted: &BTreeMap<PodUid, Pod>,
        gate: &Gate<'_>,
        is_counted: impl Fn(&PodUid, &Pod) -> bool,
    ) -> Judged {
        let mut line = std::mem::take(&mut self.line);
        line.sort_by_key(|uid| wanted.get(uid).map(|pod| self.rank(pod)));
        let mut judged = Judged::default();
        for uid in line {
            let Some(desired) = wanted.get(&uid).filter(|pod| may_resize(pod)) else {
                self.refused.remove(&uid);
                continue;
            };
            let before = self.refused.get(&uid).cloned();
            let others = wanted
                .iter()
                .filter(|(other, pod)| **other != uid && is_counted(other, pod))
                .map(|(_, pod)| self.allocated(pod))
                .collect::<Vec<Pod>>();
            match self.judge(desired, gate, &others) {
                Ok(()) => {
                    self.granted.insert(uid.clone(), PodResources::of(desired));
                    self.refused.remove(&uid);
                    let is_late = match before {
                        Some(why) => why.reason != Rejection::INFEASIBLE,
                        // It may have waited in an earlier life of the agent.
                        None => is_said_to_wait(desired),
                    };
                    judged.n_waited += usize::from(is_late);
                    judged.changed.push(uid);
                    continue;
                }
                Err(Refused::ForNow(why)) => {
                    self.line.push(uid.clone());
                    self.refused.insert(uid.clone(), why);
                }
                Err(Refused::ForGood(why)) => {
                    judged.infeasible.push(why);
                    self.refused.insert(uid.clone(), why.into());
                }
            }
            if self.refused.get(&uid) != before.as_ref() {
                judged.changed.push(uid);
            }
        }
        judged
    }

    fn judge(&self, desired: &Pod, gate: &Gate<'_>, others: &[Pod]) -> Result<(), Refused> {
        if let Some(rules) = &gate.rules {
            let checked = check_resize(desired, &self.allocated(desired), rules);
            checked.map_err(Refused::ForGood)?;
        }
        let others: Vec<&k8s_openapi::api::core::v1::Pod> =
            others.iter().map(AsRef::as_ref).collect();
        let node: Option<&NodeState> = gate.node;
        let admitted = node.map_or(Ok(()), |node| admit(desired, node, &others));
        admitted.map_err(Refused::ForNow)
    }

    /// Who comes first: whoever asks for no more, then the more important, then the guaranteed,
    /// then whoever is said to wait longest; else whoever came first.
    fn rank(&self, pod: &Pod) -> Rank {
        let since = waiting_since(pod);
        Rank {
            is_growing: is_growing(&self.allocated(pod), pod),
            unimportance: -i64::from(pod.spec_ref().priority.unwrap_or(0)),
            is_unsure: pod_qos(pod) != Qos::Guaranteed,
            is_new: since.is_none(),
            since,
        }
    }
}

/// A place in the line, compared field by field.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_growing: bool,
    unimportance: i64,
    is_unsure: bool,
    is_new: bool,
    since: Option<Timestamp>,
}

/// What the pod's status says of a resize that was not granted; that survives the agent.
fn pending(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == PENDING)
}

/// Since when its resize is said to wait.
fn waiting_since(pod: &Pod) -> Option<Timestamp> {
    Some(Timestamp(pending(pod)?.last_transition_time.as_ref()?.0))
}

fn is_said_to_wait(pod: &Pod) -> bool {
    let waits = |it: &PodCondition| it.status == "True" && it.reason.as_deref() == Some(DEFERRED);
    pending(pod).is_some_and(waits)
}

/// A pod that ends keeps what it has.
fn may_resize(pod: &Pod) -> bool {
    pod.deletion_time().is_none() && !pod.api_phase().is_some_and(Phase::is_terminal)
}

//! Who has a worker, who waits for one, and who is left over. Pure: it answers with what the
//! dispatcher shall do.
//!
//! Static pods of one name take turns: a changed manifest is a new pod, and it starts when the old
//! one is gone. That holds for an old one of an earlier life of the agent too.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use ferrolet_lifecycle::Wish;
use ferrolet_node::NodeState;
use ferrolet_ports::Placing;
use ferrolet_resources::{
    CgroupPolicy, ClassBounds, Infeasible, Rejection, ResizeRules, admit_or_preempt, class_bounds,
    pod_qos,
};
use ferrolet_types::{
    Pod, PodChange, PodKey, PodUid, Qos,
    pod::{Phase, PodView},
};

use crate::{
    grants::{Assigned, Grants, Trigger},
    records::ByPod,
};

/// What the dispatcher shall do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// Give this pod a worker.
    Start(Assigned),
    /// Give this pod a worker that only says why the node does not take it.
    Reject(Pod, Rejection),
    /// Give something that nobody asked for a worker that takes it down.
    TakeDown { uid: PodUid, key: Option<PodKey> },
    /// Tell the worker that its pod has to make room for a critical one.
    Preempt { uid: PodUid, missing: String, for_pod: PodKey },
    /// Hand the worker a new specification.
    Update(Assigned),
    /// Tell the worker that its pod shall end.
    Wish(PodUid, Wish),
    /// Count a resize that can never happen here.
    CountInfeasible(Infeasible),
    /// Count resizes that had to wait and were granted now.
    CountLate { trigger: Trigger, n: usize },
}

/// The books of the dispatcher.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// Every pod that a source wants.
    wanted: BTreeMap<PodUid, Pod>,
    /// Every pod that has a worker, with its name when it has one.
    at_work: HashMap<PodUid, Option<PodKey>>,
    /// Static pods whose name is still taken.
    queues: HashMap<PodKey, VecDeque<PodUid>>,
    all_sources_ready: bool,
    census: BTreeSet<PodUid>,
    /// Every pod the node has taken, in this life or an earlier one; it is not asked about again.
    admitted: BTreeSet<PodUid>,
    /// Pods that were told to make room; their place is free, although they may need a moment.
    preempted: BTreeSet<PodUid>,
    /// Static pods of an earlier life, by name, until somebody wants them or their name.
    earlier: HashMap<PodKey, Vec<PodUid>>,
    /// What each of them was granted.
    grants: Grants,
}

/// What admission looks at besides the pod.
pub(crate) struct Gate<'a> {
    /// The node; `None` takes everybody.
    pub(crate) node: Option<&'a NodeState>,
    /// What resizes depend on besides room; `None` allows them all.
    pub(crate) rules: Option<ResizeRules<'a>>,
    /// Who hands out processors and memory; `None` where nobody does.
    pub(crate) placing: Option<&'a dyn Placing>,
    /// Whether a pod that was taken still needs its resources.
    pub(crate) is_active: &'a dyn Fn(&PodUid) -> bool,
}

impl Roster {
    /// Notes pods that an earlier life of the agent had taken.
    pub(crate) fn lived_before(
        &mut self,
        pods: impl IntoIterator<Item = (PodUid, Option<PodKey>)>,
    ) {
        for (uid, key) in pods {
            if let Some(key) = key.filter(|_| is_manifest_hash(&uid)) {
                self.earlier.entry(key).or_default().push(uid.clone());
            }
            self.admitted.insert(uid);
        }
    }

    /// Takes over what an earlier life of the agent had granted.
    pub(crate) fn were_granted(&mut self, granted: ByPod) {
        self.grants.were(granted);
    }

    /// The latest version of a pod that somebody wants.
    pub(crate) fn wanted(&self, uid: &PodUid) -> Option<&Pod> {
        self.wanted.get(uid)
    }

    /// True for pods that were admitted.
    pub(crate) fn has_taken(&self, uid: &PodUid) -> bool {
        self.admitted.contains(uid)
    }

    /// True for pods that somebody wants or that have a worker.
    pub(crate) fn knows(&self, uid: &PodUid) -> bool {
        self.wanted.contains_key(uid) || self.at_work.contains_key(uid)
    }

    /// Judges resizes that wait for room again.
    pub(crate) fn retry_resizes(&mut self, trigger: Trigger, gate: &Gate<'_>) -> Vec<Command> {
        // Until every source has spoken, nobody knows how much room there is.
        if !self.all_sources_ready || !self.grants.has_line() {
            return Vec::new();
        }
        let admitted = &self.admitted;
        let is_counted = |uid: &PodUid, pod: &Pod| {
            admitted.contains(uid)
                && !pod.api_phase().is_some_and(Phase::is_terminal)
                && (gate.is_active)(uid)
        };
        let judged = self.grants.retry(&self.wanted, gate, is_counted);
        let changed = judged.changed.iter();
        let mut commands: Vec<Command> = changed
            .filter(|uid| self.at_work.contains_key(*uid))
            .filter_map(|uid| self.wanted.get(uid))
            .map(|pod| Command::Update(self.grants.assigned(pod)))
            .collect();
        commands.extend(judged.infeasible.into_iter().map(Command::CountInfeasible));
        if judged.n_waited > 0 {
            let n = judged.n_waited;
            commands.push(Command::CountLate { trigger, n });
        }
        commands
    }

    /// What pods have together: what those that live were granted.
    pub(crate) fn class_bounds(&self, gate: &Gate<'_>, policy: &CgroupPolicy) -> ClassBounds {
        let counts = |qos: Qos| match qos {
            Qos::Burstable => true,
            Qos::Guaranteed => policy.memory_qos.is_some_and(|it| it.is_reserving),
            Qos::BestEffort => false,
        };
        let living = self.wanted.iter().filter(|(uid, pod)| {
            // A pod's class never changes, so the others need no closer look.
            counts(pod_qos(pod))
                && self.admitted.contains(*uid)
                && !pod.api_phase().is_some_and(Phase::is_terminal)
                && (gate.is_active)(uid)
        });
        let granted: Vec<Pod> = living.map(|(_, pod)| self.grants.allocated(pod)).collect();
        class_bounds(granted.iter().map(AsRef::as_ref), policy)
    }

    /// Takes one change of one source.
    pub(crate) fn change(&mut self, change: PodChange, gate: &Gate<'_>) -> Vec<Command> {
        let trigger = match &change {
            PodChange::Added(_) => Trigger::Added,
            PodChange::Updated(_) | PodChange::Deleting(_) => Trigger::Updated,
            PodChange::Removed(_) => Trigger::Removed,
            PodChange::Reconcile(pod) => {
                let has_ended = |pod: &Pod| pod.api_phase().is_some_and(Phase::is_terminal);
                let old = self.wanted.get(&pod.uid());
                if has_ended(pod) && !old.is_some_and(has_ended) {
                    Trigger::Terminated
                } else {
                    Trigger::Resized
                }
            }
        };
        let mut commands = self.take(change, gate);
        commands.extend(self.retry_resizes(trigger, gate));
        commands
    }

    fn take(&mut self, change: PodChange, gate: &Gate<'_>) -> Vec<Command> {
        // The API's copy of a static pod is not a pod to run.
        if change.pod().is_mirror() {
            return Vec::new();
        }
        match change {
            PodChange::Added(pod) | PodChange::Updated(pod) => self.want(pod, gate),
            PodChange::Reconcile(pod) => self.refresh(pod),
            PodChange::Deleting(pod) => {
                let (uid, grace) = (pod.uid(), pod.deletion_grace());
                let mut commands = self.want(pod, gate);
                commands.push(Command::Wish(uid, Wish::End { grace }));
                commands
            }
            PodChange::Removed(pod) => self.unwant(&pod),
        }
    }

    /// Notes that every source has spoken; what is then unknown is nobody's.
    pub(crate) fn sources_ready(&mut self, gate: &Gate<'_>) -> Vec<Command> {
        self.all_sources_ready = true;
        let census = std::mem::take(&mut self.census);
        let left_over = census.into_iter().filter_map(|uid| self.left_over(uid, None));
        let mut commands: Vec<Command> = left_over.collect();
        commands.extend(self.retry_resizes(Trigger::Added, gate));
        commands
    }

    /// Takes the list of everything the runtime knows.
    pub(crate) fn take_census(&mut self, uids: Vec<PodUid>) -> Vec<Command> {
        if !self.all_sources_ready {
            self.census.extend(uids);
            return Vec::new();
        }
        uids.into_iter().filter_map(|uid| self.left_over(uid, None)).collect()
    }

    /// Something of this pod was found; when nobody wants it, it is taken down.
    pub(crate) fn left_over(&mut self, uid: PodUid, key: Option<PodKey>) -> Option<Command> {
        if !self.all_sources_ready
            || self.wanted.contains_key(&uid)
            || self.at_work.contains_key(&uid)
        {
            return None;
        }
        // The runtime's list has no names, but a static pod of an earlier life keeps its name until
        // it is gone.
        let key = key.or_else(|| {
            let mut earlier = self.earlier.iter();
            let known = earlier.find(|(_, uids)| uids.contains(&uid));
            known.map(|(key, _)| key.clone())
        });
        self.at_work.insert(uid.clone(), key.clone());
        Some(Command::TakeDown { uid, key })
    }

    /// A worker has nothing left to do.
    pub(crate) fn finished(&mut self, uid: &PodUid, gate: &Gate<'_>) -> Vec<Command> {
        let key = self.at_work.remove(uid).flatten();
        let mut commands = Vec::new();
        // The same pod may have come back while it was being taken down.
        if let Some(pod) = self.wanted.get(uid).cloned() {
            commands.extend(self.want(pod, gate));
        }
        let next = key.and_then(|key| {
            let next = self.queues.get_mut(&key)?.pop_front();
            if self.queues.get(&key).is_some_and(VecDeque::is_empty) {
                self.queues.remove(&key);
            }
            next
        });
        if let Some(pod) = next.and_then(|uid| self.wanted.get(&uid).cloned()) {
            commands.extend(self.want(pod, gate));
        }
        commands.extend(self.retry_resizes(Trigger::Removed, gate));
        commands
    }

    /// A worker panicked: its pod gets another one, to run or to be taken down.
    pub(crate) fn panicked(&mut self, uid: &PodUid, gate: &Gate<'_>) -> Vec<Command> {
        let key = self.at_work.remove(uid).flatten();
        match self.wanted.get(uid).cloned() {
            Some(pod) => self.want(pod, gate),
            None => {
                self.at_work.insert(uid.clone(), key.clone());
                let uid = uid.clone();
                vec![Command::TakeDown { uid, key }]
            }
        }
    }

    fn want(&mut self, pod: Pod, gate: &Gate<'_>) -> Vec<Command> {
        let (uid, key) = (pod.uid(), pod.key());
        let old = self.wanted.insert(uid.clone(), pod.clone());
        self.grants.wants(old.as_ref(), &pod);
        if self.at_work.contains_key(&uid) {
            return vec![if old.is_some() {
                Command::Update(self.grants.assigned(&pod))
            } else {
                // A worker that takes down what nobody wanted a moment ago finishes first.
                Command::Wish(uid, Wish::Renew { grace: None })
            }];
        }
        let mut commands = Vec::new();
        if pod.is_static() {
            commands = self.evict_predecessors(&uid, &key);
            let is_name_taken = self.at_work.values().flatten().any(|taken| *taken == key);
            if is_name_taken {
                let queue = self.queues.entry(key).or_default();
                if !queue.contains(&uid) {
                    queue.push_back(uid);
                }
                return commands;
            }
        }
        self.at_work.insert(uid, Some(key));
        match self.judge(&pod, gate) {
            Ok(preempted) => {
                commands.extend(preempted);
                commands.push(Command::Start(self.grants.assigned(&pod)));
            }
            Err(rejection) => commands.push(Command::Reject(pod, rejection)),
        }
        commands
    }

    /// Takes down what was made from earlier versions of a manifest. Its source has just shown the
    /// new version, so there is no other source to wait for: an edited API server must not wait for
    /// the API.
    fn evict_predecessors(&mut self, uid: &PodUid, key: &PodKey) -> Vec<Command> {
        let predecessors = self.earlier.remove(key).unwrap_or_default();
        let mut commands = Vec::new();
        for old in predecessors {
            if old == *uid || self.wanted.contains_key(&old) || self.at_work.contains_key(&old) {
                continue;
            }
            self.at_work.insert(old.clone(), Some(key.clone()));
            commands.push(Command::TakeDown { uid: old, key: Some(key.clone()) });
        }
        commands
    }

    /// Asks whether the node takes a pod; one that it took before, or that is about to end, is not
    /// asked about. Answers with whom it costs their place.
    fn judge(&mut self, pod: &Pod, gate: &Gate<'_>) -> Result<Vec<Command>, Rejection> {
        let uid = pod.uid();
        let mut commands = Vec::new();
        let is_ending =
            pod.deletion_time().is_some() || pod.api_phase().is_some_and(Phase::is_terminal);
        if let Some(node) = gate.node.filter(|_| !self.admitted.contains(&uid) && !is_ending) {
            let others = self.wanted.iter().filter(|(other, pod)| {
                **other != uid
                    && self.admitted.contains(*other)
                    && !self.preempted.contains(*other)
                    && !pod.api_phase().is_some_and(Phase::is_terminal)
                    && (gate.is_active)(other)
            });
            let others: Vec<Pod> = others.map(|(_, pod)| self.grants.allocated(pod)).collect();
            // Upstream hands out processors and memory before it looks whether the pod fits.
            if let Some(placing) = gate.placing {
                let living = self.all_sources_ready.then_some(others.as_slice());
                placing.admit(&self.grants.allocated(pod), living)?;
            }
            let others: Vec<&k8s_openapi::api::core::v1::Pod> =
                others.iter().map(AsRef::as_ref).collect();
            let place = admit_or_preempt(&self.grants.allocated(pod), node, &others)?;
            let missing = place.missing.unwrap_or_default();
            for victim in place.victims {
                let (uid, missing) = (victim.uid(), missing.clone());
                self.preempted.insert(uid.clone());
                commands.push(Command::Preempt { uid, missing, for_pod: pod.key() });
            }
        } else if let Some(placing) = gate.placing.filter(|_| !is_ending) {
            placing.meet(&self.grants.allocated(pod));
        }
        self.grants.admit(pod);
        self.admitted.insert(uid);
        Ok(commands)
    }

    fn refresh(&mut self, pod: Pod) -> Vec<Command> {
        let uid = pod.uid();
        if self.wanted.contains_key(&uid) && self.at_work.contains_key(&uid) {
            let old = self.wanted.insert(uid, pod.clone());
            self.grants.wants(old.as_ref(), &pod);
            return vec![Command::Update(self.grants.assigned(&pod))];
        }
        Vec::new()
    }

    fn unwant(&mut self, pod: &Pod) -> Vec<Command> {
        let uid = pod.uid();
        self.wanted.remove(&uid);
        self.admitted.remove(&uid);
        self.preempted.remove(&uid);
        self.grants.forget(&uid);
        if let Some(queue) = self.queues.get_mut(&pod.key()) {
            queue.retain(|waiting| *waiting != uid);
        }
        if self.at_work.contains_key(&uid) {
            return vec![Command::Wish(uid, Wish::Forget { grace: None })];
        }
        Vec::new()
    }
}

/// A static pod's UID is a hash of its manifest, 32 hex digits; the API hands out UUIDs, which have
/// dashes.
fn is_manifest_hash(uid: &PodUid) -> bool {
    let text = uid.as_str();
    text.len() == 32 && text.bytes().all(|it| it.is_ascii_hexdigit())
}

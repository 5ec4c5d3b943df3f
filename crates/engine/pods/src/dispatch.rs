//! The dispatcher: turns what happens into orders for workers. It never awaits work.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ferrolet_lifecycle::{Wish, doubling};
use ferrolet_ports::{EventKind, StoredPod};
use ferrolet_resources::{ClassBounds, ResizeRules, missing_for_update};
use ferrolet_types::{
    Eviction, EvictionReason, Pod, PodChange, PodChanges, PodKey, PodUid, VolumeHealthReport,
    hint::Hint,
    pod::{Phase, PodView},
    probe::ProbeReport,
};
use tokio::task::JoinSet;

use crate::{
    World,
    grants::{Assigned, Trigger},
    inbox::Inbox,
    memory::{Memory, earlier_rejection},
    metrics,
    records::ByPod,
    requested,
    resizing::Resizing,
    roster::{Command, Gate, Roster},
    tell::say_of_pod,
    worker::work,
};

/// First and longest pause before a pod whose worker panicked gets another one.
const FIRST_PANIC_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PANIC_PAUSE: Duration = Duration::from_secs(300);

/// Everything that can wake the dispatcher.
pub(crate) enum Event {
    /// Pods that have a directory: an earlier life of the agent had taken them.
    Earlier(Vec<StoredPod>),
    /// A source changed its mind.
    Changes(PodChanges),
    /// The runtime hinted at something.
    Hint(Hint),
    /// A probe's result changed.
    Probed(ProbeReport),
    /// Volumes that were refused are ready now.
    VolumesReady(PodUid),
    /// A driver says something new of a volume's health.
    VolumeHealth(VolumeHealthReport),
    /// Devices of a pod feel different, or their plugin is back.
    DevicesChanged(PodUid),
    /// The node cannot afford a pod any longer.
    Evicted(Eviction),
    /// Pods can be connected, or can no longer be.
    Network(Option<Arc<str>>),
    /// Room may have appeared for resizes that wait for it.
    RetryResizes,
    /// Directories or cgroups of pods were found on the node.
    LeftOver(Vec<(PodUid, Option<PodKey>)>),
    /// A worker ended: it is done, or it panicked.
    WorkerEnded { uid: PodUid, is_done: bool },
}

impl Event {
    /// True for what can change which pods live, or what they were granted.
    pub(crate) fn is_about_pods(&self) -> bool {
        match self {
            // Another status alone changes neither, unless it says that the pod is over.
            Self::Changes(changes) => changes.changes.iter().any(|change| match change {
                PodChange::Reconcile(pod) => pod.api_phase().is_some_and(Phase::is_terminal),
                PodChange::Added(_)
                | PodChange::Updated(_)
                | PodChange::Deleting(_)
                | PodChange::Removed(_) => true,
            }),
            Self::RetryResizes | Self::WorkerEnded { .. } => true,
            Self::Earlier(_)
            | Self::Hint(_)
            | Self::Probed(_)
            | Self::VolumesReady(_)
            | Self::VolumeHealth(_)
            | Self::DevicesChanged(_)
            | Self::Evicted(_)
            | Self::Network(_)
            | Self::LeftOver(_) => false,
        }
    }
}

/// Owns who has a worker.
pub(crate) struct Dispatcher {
    world: Arc<World>,
    roster: Roster,
    inboxes: BTreeMap<PodUid, Arc<Inbox>>,
    workers: JoinSet<()>,
    task_of: HashMap<tokio::task::Id, PodUid>,
    /// How often the workers of a pod panicked in a row.
    panics: HashMap<PodUid, u32>,
    network_trouble: Option<Arc<str>>,
    all_sources_ready: bool,
}

impl Dispatcher {
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self {
            world,
            roster: Roster::default(),
            inboxes: BTreeMap::new(),
            workers: JoinSet::new(),
            task_of: HashMap::new(),
            panics: HashMap::new(),
            network_trouble: Some("network state unknown".into()),
            all_sources_ready: false,
        }
    }

    /// What pods have together.
    pub(crate) fn class_bounds(&mut self) -> ClassBounds {
        let policy = self.world.settings.spec.resources.cgroups;
        let bounds = self.with_gate(|roster, gate| roster.class_bounds(gate, &policy));
        metrics::memory_reserved(&bounds);
        bounds
    }

    /// True once every source has spoken, so that left-overs may be looked for.
    pub(crate) fn all_sources_ready(&self) -> bool {
        self.all_sources_ready
    }

    /// Waits for a worker to end; never when there is none. Cancel-safe, as `join_next` is.
    pub(crate) async fn worker_ended(&mut self) -> Event {
        let Some(ended) = self.workers.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let (id, is_done) = match ended {
            Ok((id, ())) => (id, true),
            Err(error) => (error.id(), false),
        };
        let uid = self.task_of.remove(&id).expect("every worker is noted when it is spawned");
        Event::WorkerEnded { uid, is_done }
    }

    /// Handles one event.
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Earlier(stored) => {
                self.roster.lived_before(stored.into_iter().map(|pod| (pod.uid, pod.key)))
            }
            Event::Changes(changes) => self.change(changes),
            Event::Hint(Hint::Changed { uid, news }) => {
                if let Some(inbox) = self.inboxes.get(&uid) {
                    inbox.hint(news);
                }
            }
            Event::Hint(Hint::Census(uids)) => {
                let commands = self.roster.take_census(uids);
                self.obey(commands);
            }
            Event::VolumesReady(uid) => {
                if let Some(inbox) = self.inboxes.get(&uid) {
                    inbox.volumes_became_ready();
                }
            }
            Event::VolumeHealth(report) => {
                if let Some(inbox) = self.inboxes.get(&report.uid) {
                    inbox.report_health(report);
                }
            }
            Event::DevicesChanged(uid) => {
                if let Some(inbox) = self.inboxes.get(&uid) {
                    inbox.devices_changed();
                }
            }
            Event::Evicted(eviction) => {
                if let Some(inbox) = self.inboxes.get(&eviction.uid) {
                    inbox.evict(eviction);
                }
            }
            Event::Probed(report) => {
                if let Some(inbox) = self.inboxes.get(&report.uid) {
                    inbox.report(report);
                }
            }
            Event::Network(trouble) => {
                // The node changes in other ways too, and workers wake when they are told.
                if trouble == self.network_trouble {
                    return;
                }
                self.inboxes.values().for_each(|inbox| inbox.set_network(trouble.clone()));
                self.network_trouble = trouble;
            }
            Event::RetryResizes => {
                let retry = |roster: &mut Roster, gate: &Gate<'_>| {
                    roster.retry_resizes(Trigger::Period, gate)
                };
                let commands = self.with_gate(retry);
                self.obey(commands);
            }
            Event::LeftOver(found) => {
                for (uid, key) in found {
                    let command = self.roster.left_over(uid, key);
                    self.obey(command.into_iter().collect());
                }
            }
            Event::WorkerEnded { uid, is_done } => self.end_worker(&uid, is_done),
        }
    }

    /// What sources say. Once all of them have spoken, what nobody knows is forgotten.
    fn change(&mut self, changes: PodChanges) {
        for change in changes.changes {
            if let PodChange::Updated(new) = &change
                && let Some(old) = self.roster.wanted(&new.uid())
            {
                metrics::resizes_requested(&requested::changes(old, new));
                self.say_what_is_missing(old, new);
            }
            let commands = self.with_gate(|roster, gate| roster.change(change, gate));
            self.obey(commands);
        }
        if !changes.all_sources_ready || self.all_sources_ready {
            return;
        }
        self.all_sources_ready = true;
        self.world.board.complete();
        if let Some(placing) = &self.world.placing {
            placing.all_known();
        }
        let commands = self.with_gate(|roster, gate| roster.sources_ready(gate));
        self.obey(commands);
        self.world.records.retain(|uid| self.roster.knows(uid));
        self.world.answers.retain(|uid| self.roster.knows(uid));
        self.world.devices.retain(&|uid| self.roster.knows(uid));
        self.world.endings.retain(|uid| self.roster.knows(uid));
        // What drivers hold for a pod that is nowhere any more is taken back as its containers
        // would be.
        for uid in self.world.claims.holders() {
            let command = self.roster.left_over(uid, None);
            self.obey(command.into_iter().collect());
        }
    }

    /// A pod's worker is through with it, or panicked.
    fn end_worker(&mut self, uid: &PodUid, is_done: bool) {
        self.inboxes.remove(uid);
        let commands = if is_done {
            self.panics.remove(uid);
            let next = self.with_gate(|roster, gate| roster.finished(uid, gate));
            for command in &next {
                if let Command::Start(it) = command
                    && it.pod.uid() == *uid
                {
                    metrics::restarted(&it.pod);
                }
            }
            next
        } else {
            tracing::error!(pod_uid = %uid, "Pod worker panicked, starting it again");
            *self.panics.entry(uid.clone()).or_default() += 1;
            self.with_gate(|roster, gate| roster.panicked(uid, gate))
        };
        self.obey(commands);
    }

    /// Tells whoever updates a pod that runs here what this node cannot do.
    fn say_what_is_missing(&self, old: &Pod, new: &Pod) {
        if !self.roster.has_taken(&new.uid()) {
            return;
        }
        let node = self.world.node();
        if let Some(message) = missing_for_update(old, new, &node.settings.declared_features) {
            let events = self.world.events.as_ref();
            let reason = "FailedNodeDeclaredFeaturesCheck";
            say_of_pod(events, new, EventKind::Warning, reason, message);
        }
    }

    /// Takes over what an earlier life of the agent had granted.
    pub(crate) fn were_granted(&mut self, granted: ByPod) {
        self.roster.were_granted(granted);
    }

    fn with_gate<T>(&mut self, ask: impl FnOnce(&mut Roster, &Gate<'_>) -> T) -> T {
        let node = self.world.node();
        let board = self.world.board.clone();
        let world = self.world.clone();
        let gate = Gate {
            node: Some(&node),
            rules: Some(ResizeRules {
                node: &world.settings.spec.resources,
                has_static_cpus: world.settings.has_static_cpus,
                has_static_memory: world.settings.has_static_memory,
            }),
            placing: world.placing.as_deref(),
            is_active: &|uid| !board.is_terminal(uid),
        };
        ask(&mut self.roster, &gate)
    }

    fn obey(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Start(assigned) => {
                    let pod = &assigned.pod;
                    tracing::info!(pod = %pod.key(), pod_uid = %pod.uid(), source = pod.source().as_str(), "Pod is to run");
                    let now = self.world.clock.now();
                    metrics::worker_began(pod, now);
                    metrics::taken(pod);
                    let mut memory = Memory::new(pod.uid(), None, Some(pod.clone()), now);
                    memory.made.note_actuated(self.world.records.actuated(&pod.uid()));
                    memory.seen.told_before = self.world.answers.of(&pod.uid()).unwrap_or_default();
                    memory.made.resizing = Resizing::from_status(pod, now);
                    memory.asked.recall(earlier_rejection(pod));
                    // What the API may not have heard of.
                    if let Some(ending) = self.world.endings.of(&pod.uid()) {
                        memory.asked.end(ending);
                    }
                    let inbox = Inbox::new(Some(assigned), Wish::Run, self.network_trouble.clone());
                    self.spawn(memory, inbox);
                }
                Command::Reject(pod, rejection) => {
                    let (reason, message) = (rejection.reason, rejection.message);
                    metrics::rejected(&reason);
                    tracing::warn!(pod = %pod.key(), pod_uid = %pod.uid(), reason, message, "Pod is rejected");
                    say_of_pod(
                        self.world.events.as_ref(),
                        &pod,
                        EventKind::Warning,
                        &reason,
                        message.clone(),
                    );
                    let mut memory =
                        Memory::new(pod.uid(), None, Some(pod.clone()), self.world.clock.now());
                    memory.reject(reason, message);
                    let inbox = Inbox::new(
                        Some(Assigned::whole(pod)),
                        Wish::End { grace: None },
                        self.network_trouble.clone(),
                    );
                    self.spawn(memory, inbox);
                }
                Command::TakeDown { uid, key } => {
                    metrics::orphan();
                    tracing::info!(pod_uid = %uid, pod = key.as_ref().map(ToString::to_string), "Taking down what nobody asked for");
                    let memory = Memory::new(uid, key, None, self.world.clock.now());
                    self.spawn(
                        memory,
                        Inbox::new(
                            None,
                            Wish::Forget { grace: None },
                            self.network_trouble.clone(),
                        ),
                    );
                }
                Command::Preempt { uid, missing, for_pod } => {
                    tracing::warn!(pod_uid = %uid, missing, critical = %for_pod, "Pod makes room for a critical one");
                    if let Some(inbox) = self.inboxes.get(&uid) {
                        metrics::preempted(&missing);
                        inbox.evict(preemption(uid));
                    }
                }
                Command::Update(assigned) => {
                    if let Some(inbox) = self.inboxes.get(&assigned.pod.uid()) {
                        inbox.set_pod(assigned);
                    }
                }
                Command::Wish(uid, wish) => {
                    if let Some(inbox) = self.inboxes.get(&uid) {
                        inbox.wish(wish);
                    }
                }
                Command::CountInfeasible(why) => metrics::resize_refused(why.detail()),
                Command::CountLate { trigger, n } => metrics::resizes_late(trigger.word(), n),
            }
        }
    }

    fn spawn(&mut self, memory: Memory, inbox: Inbox) {
        let (uid, inbox) = (memory.asked.uid().clone(), Arc::new(inbox));
        self.inboxes.insert(uid.clone(), inbox.clone());
        let work = work(self.world.clone(), inbox, memory);
        let task = match self.panics.get(&uid) {
            None => self.workers.spawn(work),
            // What made the last worker panic may be there still.
            Some(n_panics) => {
                let pause = doubling(FIRST_PANIC_PAUSE, LONGEST_PANIC_PAUSE, n_panics - 1);
                self.workers.spawn(async move {
                    tokio::time::sleep(pause).await;
                    work.await;
                })
            }
        };
        self.task_of.insert(task.id(), uid);
    }
}

/// The order to make room for a critical pod, in upstream's words. Its containers get the grace
/// that they were promised.
fn preemption(uid: PodUid) -> Eviction {
    Eviction {
        uid,
        reason: EvictionReason::Preempting,
        message: "Preempted in order to admit critical pod".to_owned(),
        annotations: BTreeMap::new(),
        disruption: Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned()),
        grace: None,
    }
}

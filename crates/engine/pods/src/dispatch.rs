//! The dispatcher: turns what happens into orders for workers. It never awaits work.

use std::{collections::HashMap, sync::Arc};

use ferrolet_lifecycle::Wish;
use ferrolet_ports::EventKind;
use ferrolet_types::{PodChanges, PodKey, PodUid, hint::Hint, pod::PodView, probe::ProbeReport};
use tokio::task::JoinSet;

use crate::{
    World,
    inbox::Inbox,
    memory::Memory,
    roster::{Command, Gate, Roster},
    tell::say_of_pod,
    worker::work,
};

/// Everything that can wake the dispatcher.
pub(crate) enum Event {
    /// A source changed its mind.
    Changes(PodChanges),
    /// The runtime hinted at something.
    Hint(Hint),
    /// A probe's result changed.
    Probed(ProbeReport),
    /// Pods can be connected, or can no longer be.
    Network(bool),
    /// Directories or cgroups of pods were found on the node.
    LeftOver(Vec<(PodUid, Option<PodKey>)>),
    /// A worker ended: it is done, or it panicked.
    WorkerEnded { uid: PodUid, is_done: bool },
}

/// Owns who has a worker.
pub(crate) struct Dispatcher {
    world: Arc<World>,
    roster: Roster,
    inboxes: HashMap<PodUid, Arc<Inbox>>,
    workers: JoinSet<()>,
    task_of: HashMap<tokio::task::Id, PodUid>,
    is_network_ready: bool,
    all_sources_ready: bool,
}

impl Dispatcher {
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self {
            world,
            roster: Roster::default(),
            inboxes: HashMap::new(),
            workers: JoinSet::new(),
            task_of: HashMap::new(),
            is_network_ready: false,
            all_sources_ready: false,
        }
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
        let uid = self
            .task_of
            .remove(&id)
            .expect("every worker is noted when it is spawned");
        Event::WorkerEnded { uid, is_done }
    }

    /// Handles one event.
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Changes(changes) => {
                for change in changes.changes {
                    let commands = self.with_gate(|roster, gate| roster.change(change, gate));
                    self.obey(commands);
                }
                if changes.all_sources_ready && !self.all_sources_ready {
                    self.all_sources_ready = true;
                    let commands = self.roster.sources_ready();
                    self.obey(commands);
                }
            }
            Event::Hint(Hint::Changed { uid, news }) => {
                if let Some(inbox) = self.inboxes.get(&uid) {
                    inbox.hint(news);
                }
            }
            Event::Hint(Hint::Census(uids)) => {
                let commands = self.roster.take_census(uids);
                self.obey(commands);
            }
            Event::Probed(report) => {
                if let Some(inbox) = self.inboxes.get(&report.uid) {
                    inbox.report(report);
                }
            }
            Event::Network(is_ready) => {
                self.is_network_ready = is_ready;
                self.inboxes
                    .values()
                    .for_each(|inbox| inbox.set_network(is_ready));
            }
            Event::LeftOver(found) => {
                for (uid, key) in found {
                    let command = self.roster.left_over(uid, key);
                    self.obey(command.into_iter().collect());
                }
            }
            Event::WorkerEnded { uid, is_done } => {
                if !is_done {
                    tracing::error!(pod_uid = %uid, "Pod worker panicked, starting it again");
                }
                self.inboxes.remove(&uid);
                let commands = self.with_gate(|roster, gate| roster.finished(&uid, gate));
                self.obey(commands);
            }
        }
    }

    /// Notes pods that an earlier life of the agent had taken.
    pub(crate) fn were_admitted(&mut self, uids: impl IntoIterator<Item = PodUid>) {
        self.roster.were_admitted(uids);
    }

    fn with_gate<T>(&mut self, ask: impl FnOnce(&mut Roster, &Gate<'_>) -> T) -> T {
        let node = self.world.admission.borrow().clone();
        let board = self.world.board.clone();
        let gate = Gate {
            node: node.as_ref(),
            is_active: &|uid| !board.is_terminal(uid),
        };
        ask(&mut self.roster, &gate)
    }

    fn obey(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Start(pod) => {
                    tracing::info!(pod = %pod.key(), pod_uid = %pod.uid(), source = pod.source().as_str(), "Pod is to run");
                    let memory =
                        Memory::new(pod.uid(), None, Some(pod.clone()), self.world.clock.now());
                    let inbox = Inbox::new(Some(pod), Wish::Run, self.is_network_ready);
                    self.spawn(memory, inbox);
                }
                Command::Reject(pod, rejection) => {
                    let (reason, message) = (rejection.reason, rejection.message);
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
                    let inbox =
                        Inbox::new(Some(pod), Wish::End { grace: None }, self.is_network_ready);
                    self.spawn(memory, inbox);
                }
                Command::TakeDown { uid, key } => {
                    tracing::info!(pod_uid = %uid, pod = key.as_ref().map(ToString::to_string), "Taking down what nobody asked for");
                    let memory = Memory::new(uid, key, None, self.world.clock.now());
                    self.spawn(
                        memory,
                        Inbox::new(None, Wish::Forget { grace: None }, self.is_network_ready),
                    );
                }
                Command::Update(pod) => {
                    if let Some(inbox) = self.inboxes.get(&pod.uid()) {
                        inbox.set_pod(pod);
                    }
                }
                Command::Wish(uid, wish) => {
                    if let Some(inbox) = self.inboxes.get(&uid) {
                        inbox.wish(wish);
                    }
                }
            }
        }
    }

    fn spawn(&mut self, memory: Memory, inbox: Inbox) {
        let (uid, inbox) = (memory.uid.clone(), Arc::new(inbox));
        self.inboxes.insert(uid.clone(), inbox.clone());
        let task = self.workers.spawn(work(self.world.clone(), inbox, memory));
        self.task_of.insert(task.id(), uid);
    }
}

//! One worker per pod: look, plan a turn, show, execute, and wait for the next reason to do it
//! again.
//!
//! A wish that tightens interrupts what is being executed: dropping a runtime call abandons its
//! answer, not its effect, and the look that follows finds whatever it left behind.

mod act;
mod look;
mod show;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use ferrolet_lifecycle::{PodState, Step, StepEvent};
use ferrolet_pod::{asks_for_devices, uses_claims};
use ferrolet_ports::TRACED;
use ferrolet_resources::PodResources;
use ferrolet_types::{ContainerName, Pod, PodUid, Timestamp, pod::PodView as _};
use k8s_openapi::api::core::v1::Container;
use tokio::time::{Instant, sleep};
use tracing::{Instrument as _, Span};

use crate::{
    World,
    grants::Assigned,
    inbox::{Inbox, Orders},
    memory::Memory,
    metrics,
    probing::has_probes,
    start::runtime_handler,
    tell::{say_resize, say_step},
    turn::{NodeNow, Turn, plan_turn},
    working,
};

/// How long the trace of an update waits for the update to come into force. Collectors show a trace
/// by its root, so one that never ended would never be seen.
const LONGEST_TRACE: Duration = Duration::from_secs(600);

/// Serves one pod until nothing of it is left.
pub(crate) async fn work(world: Arc<World>, inbox: Arc<Inbox>, memory: Memory) {
    let mut worker = Worker { world, inbox, memory, has_update: false };
    let (mut must_look, mut is_first) = (true, true);
    let (mut trace, mut told_at) = (Span::none(), Instant::now());
    worker.register_objects();
    loop {
        let orders = worker.take_orders();
        let began = Instant::now();
        if !orders.trace.is_none() {
            (trace, told_at) = (orders.trace.clone(), began);
        }
        let span = worker.trace_turn(&trace);
        let is_news = |worker: &Worker| orders.news.iter().any(|it| worker.memory.seen.is_news(it));
        must_look |= orders.must_look || is_news(&worker);
        if must_look {
            worker.look().instrument(span.clone()).await;
        }
        worker.take_reports(&orders);
        let step = worker.take_turn(&orders);
        worker.publish();
        worker.tell_probes();
        let memory = &worker.memory;
        working::stands(memory.asked.uid(), memory.state, memory.asked.pod(), orders.wish);
        let is_update = std::mem::take(&mut worker.has_update);
        let operation = metrics::operation(step.next, std::mem::take(&mut is_first), is_update);
        if step.next == PodState::Gone {
            metrics::turn(operation, began.elapsed());
            return worker.forget();
        }
        must_look = !step.stages.is_empty();
        if step.stages.is_empty() {
            metrics::turn(operation, began.elapsed());
            worker.memory.made.effort.reset();
            drop((span, orders));
            // What was told is in force: its trace is whole. What waits for the network or for
            // another try is not, and the calls that come then belong to it.
            let is_held = step.hold.is_some() || worker.memory.made.pod_failure().is_some();
            if !is_held || told_at.elapsed() >= LONGEST_TRACE {
                trace = Span::none();
            }
            if worker.wait(step.wake_at, step.next).await == Woken::ByQuiet {
                worker.memory.made.doubt();
                must_look = true;
            }
        } else {
            worker.execute(step, orders.wish).instrument(span).await;
            metrics::turn(operation, began.elapsed());
        }
    }
}

struct Worker {
    world: Arc<World>,
    inbox: Arc<Inbox>,
    memory: Memory,
    /// The pod was changed since the last turn.
    has_update: bool,
}

impl Worker {
    /// One turn of the worker in the trace of what it was told.
    fn trace_turn(&self, trace: &Span) -> Span {
        tracing::trace_span!(
            target: TRACED,
            parent: trace,
            "syncPod",
            k8s.pod.uid = %self.memory.asked.uid(),
            k8s.pod = %self.memory.name(),
        )
    }

    fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    fn take_orders(&mut self) -> Orders {
        let orders = self.inbox.take();
        if let Some(assigned) = orders.pod.as_ref().filter(|it| self.memory.asked.is_news(it)) {
            self.take_assignment(assigned.clone());
            self.has_update = true;
        }
        orders
    }

    /// Takes another version of the pod, and notes what its resources have to do with the one
    /// before.
    fn take_assignment(&mut self, assigned: Assigned) {
        let (now, world) = (self.now(), &self.world);
        let granted = PodResources::of(&assigned.pod);
        let old = self.memory.asked.pod();
        let is_resize = old.is_some_and(|old| !PodResources::of(old).is_same(&granted));
        let resizing = &mut self.memory.made.resizing;
        let mut said = Vec::new();
        if is_resize {
            said.push(resizing.started(&assigned.pod, now));
        }
        said.extend(resizing.judged(&assigned.desired, assigned.pending.as_ref(), now));
        for said in said {
            say_resize(world, &assigned.pod, said);
        }
        if let Some(waited) = resizing.take_waited() {
            metrics::resize_waited(&assigned.pod, &waited);
        }
        if !self.memory.asked.is_rejected() {
            world.records.grant(self.memory.asked.uid(), granted);
        }
        self.memory.take_assigned(assigned);
    }

    /// Takes in what probes and drivers said, and that volumes are ready.
    fn take_reports(&mut self, orders: &Orders) {
        if orders.volumes_became_ready {
            self.memory.made.forget_pod_failure();
        }
        if orders.devices_changed {
            self.memory.made.forget_pod_failure();
            self.memory.made.forget_config_failures();
        }
        self.look_at_devices();
        orders.reports.iter().for_each(|report| self.memory.seen.take_report(report));
        for report in &orders.health {
            let (volume, conditions) = (report.volume.clone(), report.conditions.clone());
            self.memory.seen.note_volume_health(volume, conditions);
        }
    }

    /// How the pod's devices feel, where it has any.
    fn look_at_devices(&mut self) {
        let (memory, world) = (&mut self.memory, &self.world);
        let has_devices = |pod: &&Pod| asks_for_devices(pod) || uses_claims(pod);
        let Some(pod) = memory.asked.pod().filter(has_devices) else {
            return;
        };
        let of = |it: &Container| {
            let mut health = world.devices.health(memory.asked.uid(), &it.name);
            health.extend(world.claims.health(pod, it));
            (ContainerName::new(it.name.as_str()), health)
        };
        let felt = pod.spec_ref().containers.iter().map(of).collect();
        memory.seen.note_devices(felt);
    }

    /// Plans a turn and takes in what it came to: verdict, state, what waits, what is told.
    fn take_turn(&mut self, orders: &Orders) -> Step {
        let turn =
            self.with_node(|worker, node| plan_turn(&worker.memory, orders, node, worker.now()));
        let Turn { step, resize } = turn;
        let (world, memory) = (self.world.clone(), &mut self.memory);
        if let Some(actuated) = resize.first_actuated {
            world.records.put_in_force(memory.asked.uid(), &actuated);
            memory.made.note_actuated(Some(actuated));
        }
        memory.made.resizing = resize.resizing;
        if let Some(pod) = memory.asked.pod() {
            resize.said.into_iter().for_each(|said| say_resize(&world, pod, said));
            resize.waited.iter().for_each(|waited| metrics::resize_waited(pod, waited));
            let events: &[StepEvent] = &step.events;
            events.iter().for_each(|event| say_step(world.events.as_ref(), pod, event));
        }
        if let Some(failure) = memory.made.pod_failure() {
            tracing::debug!(pod = %memory.name(), message = %failure.message, "Pod waits after a failure");
        } else if !step.stages.is_empty() {
            tracing::trace!(pod = %memory.name(), stages = ?step.stages, "Pod step");
        }
        if let Some(ending) = &step.verdict {
            world.endings.note_verdict(memory.asked.uid(), ending);
            memory.asked.end(ending.clone());
        }
        memory.shown.take_waiting(&step);
        let is_new_state = memory.state != step.next;
        memory.state = step.next;
        if is_new_state {
            self.register_objects();
        }
        step
    }

    /// Asks something that depends on what is true of the node now.
    fn with_node<T>(&self, ask: impl FnOnce(&Self, &NodeNow<'_>) -> T) -> T {
        let (world, state) = (&self.world, self.world.node());
        let pod = self.memory.asked.pod();
        let handler = pod.and_then(|pod| runtime_handler(world, pod).ok()).unwrap_or_default();
        let node = NodeNow {
            resources: &world.settings.spec.resources,
            host_ips: &state.host_ips,
            back_off: world.settings.back_off,
            n_dead_kept: world.settings.n_dead_kept,
            has_recursive_read_only: world.knows_recursive_read_only(&handler),
            shows_stop_signal: world.settings.spec.has_stop_signals,
            holds_claims: world.claims.holds(self.memory.asked.uid()),
        };
        ask(self, &node)
    }

    /// Keeps what the pod refers to at hand for as long as it may start containers.
    fn register_objects(&self) {
        if let (Some(objects), Some(pod)) = (&self.world.objects, self.memory.asked.pod()) {
            match self.memory.state {
                PodState::Running | PodState::Stopping { .. } | PodState::Stopped => {
                    objects.register(pod)
                }
                PodState::Settled | PodState::Gone => {
                    objects.unregister(self.memory.asked.uid());
                }
            }
        }
    }

    /// Tells the probes what runs now.
    fn tell_probes(&self) {
        match self.memory.probed_pod(&self.world.node().host_ips) {
            Some(pod) => self.world.probing.watch_pod(pod),
            None if self.memory.asked.pod().is_some_and(has_probes) => {
                self.world.probing.forget(self.memory.asked.uid())
            }
            None => {}
        }
    }

    /// Nothing of the pod is left: nor of what all workers keep together.
    fn forget(&self) {
        let uid = self.memory.asked.uid();
        metrics::gone(uid);
        working::gone(uid);
        self.world.board.forget(uid);
        self.world.records.forget(uid);
        self.world.answers.retain(|known| known != uid);
        self.world.devices.release(uid);
        self.world.endings.retain(|known| known != uid);
    }

    /// Waits for a message or the time to decide again. A pod that runs and that nobody hears of is
    /// looked at all the same: what somebody breaks behind our back is not announced.
    async fn wait(&self, wake_at: Option<Timestamp>, state: PodState) -> Woken {
        let due = wake_at.map(|due| due.since(self.now()).max(Duration::from_millis(1)));
        let quiet = (state == PodState::Running)
            .then(|| quiet_for(self.memory.asked.uid(), self.world.settings.sync_frequency));
        tokio::select! {
            biased;
            // All are cancel-safe: a timer loses nothing, and a message stays in the inbox.
            () = self.inbox.changed() => Woken::ByWord,
            () = pause(due) => Woken::ByWord,
            () = pause(quiet) => Woken::ByQuiet,
        }
    }
}

/// Why a worker that waited goes on.
#[derive(PartialEq, Eq)]
enum Woken {
    /// It was told something, or it is time for what it planned.
    ByWord,
    /// Nobody said anything for long.
    ByQuiet,
}

/// Sleeps for so long, or for ever.
async fn pause(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// How long this pod may be quiet: the period, and up to half of it more so that pods which came
/// together are not looked at together.
fn quiet_for(uid: &PodUid, period: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let per_mille = u32::try_from(hasher.finish() % 500).unwrap_or(0);
    period + period / 1000 * per_mille
}

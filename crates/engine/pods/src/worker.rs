//! One worker per pod: look, decide, execute, and wait for the next reason to do it again.
//!
//! A wish that tightens interrupts what is being executed: dropping a runtime call abandons its answer, not its effect, and
//! the look that follows finds whatever it left behind.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_lifecycle::{
    Action, Facts, FailureKind, Kept, PodState, Presence, ResizeFacts, Step, Waiting, Wish, decide,
    kill_is_overdue_at,
};
use ferrolet_ports::{EventKind, Remains, RuntimeError, TRACED};
use ferrolet_resources::{
    PodResources, ResizeNeed, is_resizing, pod_cgroup, resize_needs, with_resources,
};
use ferrolet_status::{
    ContainerFact, RuntimeFacts, Stage, StatusInputs, StatusOverride, WaitingReason,
};
use ferrolet_types::{
    ContainerId, ContainerName, Eviction, Pod, Timestamp,
    observed::{ObservedResources, PodObservation},
    pod::{ContainerKind, Phase, PodView},
    probe::{ProbeReport, Told},
};
use k8s_openapi::api::core::v1::PodStatus;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{Instrument as _, Span};

use crate::{
    World,
    answers::Lives,
    execute::execute_stage,
    figures,
    grants::Assigned,
    inbox::{Heard, Inbox, Orders},
    last_words::{joined, last_words},
    memory::Memory,
    probing::{Probes, has_probes, with_probes},
    reading::{
        bounds_in_force, is_about_the_pod, is_evicted, is_restarting_all, phase_of,
        wants_recursive_read_only,
    },
    start::runtime_handler,
    tell::{ContainerEvents, Happened, pod_in_words, say_of_pod, say_resize},
    working,
};

/// First and longest pause before a runtime that does not answer is asked again about this pod.
const LOOK_AGAIN_FIRST: Duration = Duration::from_millis(200);
const LOOK_AGAIN_LONGEST: Duration = Duration::from_secs(5);

/// Serves one pod until nothing of it is left.
pub(crate) async fn work(world: Arc<World>, inbox: Arc<Inbox>, memory: Memory) {
    let mut worker = Worker { world, inbox, memory, has_update: false };
    let (mut must_look, mut is_first) = (true, true);
    let mut trace = Span::none();
    worker.register_objects();
    loop {
        let orders = worker.take_orders();
        let began = Instant::now();
        if !orders.trace.is_none() {
            trace = orders.trace.clone();
        }
        let turn = worker.trace_turn(&trace);
        must_look |= orders.must_look || orders.news.iter().any(|news| worker.memory.is_news(news));
        if must_look {
            worker.look().instrument(turn.clone()).await;
        }
        if orders.volumes_became_ready {
            worker.memory.pod_failure = None;
        }
        orders.reports.iter().for_each(|report| worker.memory.take_report(report));
        for report in &orders.health {
            let (volume, conditions) = (report.volume.clone(), report.conditions.clone());
            worker.memory.volume_health.insert(volume, conditions);
        }
        let step = worker.decide(&orders);
        let is_new_state = worker.memory.state != step.next;
        worker.memory.state = step.next;
        if is_new_state {
            worker.register_objects();
        }
        worker.publish(&step);
        worker.tell_probes();
        let memory = &worker.memory;
        working::stands(&memory.uid, memory.state, memory.pod.as_ref(), orders.wish);
        let is_update = std::mem::take(&mut worker.has_update);
        let operation = figures::operation(step.next, std::mem::take(&mut is_first), is_update);
        if step.next == PodState::Gone {
            figures::turn(operation, began.elapsed());
            figures::gone(&worker.memory.uid);
            working::gone(&worker.memory.uid);
            worker.world.board.forget(&worker.memory.uid);
            worker.world.records.forget(&worker.memory.uid);
            let uid = &worker.memory.uid;
            worker.world.answers.retain(|known| known != uid);
            return;
        }
        must_look = !step.stages.is_empty();
        if step.stages.is_empty() {
            figures::turn(operation, began.elapsed());
            worker.memory.effort.reset();
            // What was told is in force: its trace is whole.
            drop((turn, orders));
            trace = Span::none();
            worker.wait(step.wake_at).await;
        } else {
            worker.execute(step, orders.wish).instrument(turn).await;
            figures::turn(operation, began.elapsed());
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
            k8s.pod.uid = %self.memory.uid,
            k8s.pod = %self.name(),
        )
    }

    fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    fn take_orders(&mut self) -> Orders {
        let orders = self.inbox.take();
        if let Some(assigned) = &orders.pod
            && self.memory.assigned.as_ref().is_none_or(|old| !old.is_same_as(assigned))
        {
            self.take_assignment(assigned.clone());
            self.has_update = true;
        }
        if let Some(eviction) = &orders.eviction {
            self.take_eviction(eviction);
        }
        orders
    }

    /// Notes that the node cannot afford the pod any longer; the wish to end it came along.
    fn take_eviction(&mut self, eviction: &Eviction) {
        let is_at_work = self.memory.verdict.is_none() && self.memory.state == PodState::Running;
        let Some(pod) = self.memory.pod.clone().filter(|_| is_at_work) else {
            return;
        };
        let reason = "Evicted";
        let message = eviction.message.clone();
        let events = self.world.events.as_ref();
        say_of_pod(events, &pod, EventKind::Warning, reason, message.clone());
        self.memory.verdict = Some(StatusOverride::Ended {
            phase: Phase::Failed,
            reason: reason.to_owned(),
            message,
            conditions: Vec::new(),
        });
    }

    /// Takes another version of the pod, and notes what its resources have to do with the one before.
    fn take_assignment(&mut self, assigned: Assigned) {
        let now = self.now();
        let granted = PodResources::of(&assigned.pod);
        let is_resize =
            self.memory.pod.as_ref().is_some_and(|old| !PodResources::of(old).is_same(&granted));
        let resizing = &mut self.memory.resizing;
        let mut said = Vec::new();
        if is_resize {
            said.push(resizing.started(&assigned.pod, now));
        }
        said.extend(resizing.judged(&assigned.desired, assigned.pending.as_ref(), now));
        for said in said {
            say_resize(&self.world, &assigned.pod, said);
        }
        if let Some(waited) = self.memory.resizing.take_waited() {
            figures::resize_waited(&assigned.pod, &waited);
        }
        if !matches!(self.memory.verdict, Some(StatusOverride::Rejected { .. })) {
            self.world.records.grant(&self.memory.uid, granted);
        }
        self.memory.desired = Some(assigned.desired.clone());
        self.memory.take_pod(assigned.pod.clone());
        self.memory.assigned = Some(assigned);
    }

    /// Where granted resources are not in force, and what is to be said about that.
    fn look_at_resources(&mut self, now: Timestamp) -> ResizeFacts {
        let Some(pod) = self.memory.pod.clone() else {
            return ResizeFacts::default();
        };
        if self.memory.state != PodState::Running {
            self.memory.resizing.ended(now);
            if let Some(waited) = self.memory.resizing.take_waited() {
                figures::resize_waited(&pod, &waited);
            }
            return ResizeFacts::default();
        }
        let memory = &mut self.memory;
        let actuated = memory.actuated.get_or_insert_with(|| {
            // Nobody noted anything else, so what runs was made from what was granted.
            let granted = PodResources::of(&pod);
            self.world.records.put_in_force(&memory.uid, &granted);
            granted
        });
        let needs = resize_needs(&pod, actuated);
        let seen = &memory.seen;
        let is_under_way = is_resizing(&pod, &needs, |name| {
            let newest = seen.newest_container(name);
            newest.is_some_and(|it| it.state.is_running())
        });
        let said = memory.resizing.looked_at(&pod, is_under_way, now);
        said.into_iter().for_each(|said| say_resize(&self.world, &pod, said));
        let named = |need: ResizeNeed| {
            let those = needs.containers.iter().filter(|(_, it)| **it == need);
            those.map(|(name, _)| ContainerName::new(name.as_str())).collect()
        };
        ResizeFacts {
            updates: named(ResizeNeed::Update),
            restarts: named(ResizeNeed::Restart),
            is_pod_level: needs.is_pod_level,
            failure: self.memory.resizing.failure.clone(),
        }
    }

    /// Keeps what the pod refers to at hand for as long as it may start containers.
    fn register_objects(&self) {
        if let (Some(objects), Some(pod)) = (&self.world.objects, &self.memory.pod) {
            match self.memory.state {
                PodState::Running | PodState::Stopping { .. } | PodState::Stopped => {
                    objects.register(pod)
                }
                PodState::Settled | PodState::Gone => objects.unregister(&self.memory.uid),
            }
        }
    }

    /// Asks the runtime about this pod until it answers.
    async fn look(&mut self) {
        let mut pause = LOOK_AGAIN_FIRST;
        loop {
            match self.ask().await {
                Ok((seen, runtime_name)) => {
                    self.memory.runtime_name = runtime_name;
                    self.memory.look_at(seen);
                    self.look_for_cgroup().await;
                    return self.read_last_words().await;
                }
                Err(error) => {
                    tracing::debug!(pod = %self.name(), %error, "Pod cannot be inspected");
                    if pause == LOOK_AGAIN_FIRST && is_about_the_pod(error.kind) {
                        self.say_not_seen(&error);
                    }
                    self.show_before_first_look();
                    sleep(pause).await;
                    pause = (pause * 2).min(LOOK_AGAIN_LONGEST);
                }
            }
        }
    }

    /// Finds out once whether a pod that was found running has its cgroup; one that is not found running gets it with its start.
    async fn look_for_cgroup(&mut self) {
        let is_running = self.memory.seen.running().next().is_some();
        let Some(pod) = self.memory.pod.as_deref().filter(|_| is_running) else {
            return;
        };
        if self.memory.setup.cgroup != Presence::Unknown {
            return;
        }
        let cgroup = pod_cgroup(pod, &self.world.node.spec.resources.cgroups);
        match self.world.cgroups.exists(&cgroup).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(pod = %self.name(), "Pod runs without its cgroup");
                self.memory.setup.cgroup = Presence::Absent;
            }
            Err(error) => {
                tracing::debug!(pod = %self.name(), %error, "Pod's cgroup cannot be looked for");
            }
        }
    }

    /// Tells that nobody knows how the pod is.
    fn say_not_seen(&self, error: &RuntimeError) {
        if let Some(pod) = &self.memory.pod {
            let message = format!("error determining status: {error}");
            let events = self.world.events.as_ref();
            say_of_pod(events, pod, EventKind::Warning, "FailedSync", message);
        }
    }

    async fn ask(&self) -> Result<(PodObservation, String), RuntimeError> {
        let runtime_name = self.world.runtime_name().await?;
        if let Some(pod) = self.memory.pod.as_deref().filter(|pod| wants_recursive_read_only(pod)) {
            let handler = runtime_handler(&self.world, pod).unwrap_or_default();
            self.world.recursive_read_only(&handler).await?;
        }
        let asked = self.world.runtime.observe_pod(&self.memory.uid);
        Ok((figures::looked(asked).await?, runtime_name))
    }

    /// A pod that nobody could look at yet is shown as what its source says it is: pending, or as it was before.
    fn show_before_first_look(&mut self) {
        if self.memory.status.is_some() {
            return;
        }
        let before = self.memory.pod.clone().and_then(|pod| {
            let status = pod.status.clone().filter(|it| it.start_time.is_some())?;
            Some((pod, status))
        });
        match before {
            // Computed from nothing seen, the containers of an earlier life would all look dead.
            Some((pod, status)) => {
                self.world.board.publish(&pod, &status, Remains::Active);
                self.memory.status = Some(status);
            }
            None => self.publish(&Step::idle()),
        }
    }

    /// Reads the termination messages of containers that are newly dead and puts them where the runtime's message is.
    async fn read_last_words(&mut self) {
        for container in &mut self.memory.seen.containers {
            let ferrolet_types::observed::ContainerState::Exited(exit) = &mut container.state
            else {
                continue;
            };
            let words = match self.memory.last_words.get(&container.id) {
                Some(words) => words.clone(),
                None => {
                    let source = &container.termination_message;
                    let mount =
                        container.mounts.iter().find(|mount| mount.container_path == source.path);
                    let path = mount.map(|mount| mount.host_path.as_str()).unwrap_or_default();
                    let log = source.falls_back_to_logs.then_some(container.log_path.as_str());
                    let words = last_words(&self.world, exit, path, log).await;
                    self.memory.last_words.insert(container.id.clone(), words.clone());
                    words
                }
            };
            exit.message = joined(&exit.message, &words);
        }
    }

    /// Notes that the pod has outlived its deadline, once, and answers when it will.
    fn check_deadline(&mut self, now: Timestamp) -> Option<Timestamp> {
        let pod = self.memory.pod.clone()?;
        let started = self.memory.status.as_ref().or(pod.status.as_ref())?.start_time.as_ref()?;
        let due = ferrolet_lifecycle::deadline(&pod, Timestamp(started.0))?;
        if due <= now && self.memory.verdict.is_none() && self.memory.state == PodState::Running {
            let message =
                "Pod was active on the node longer than the specified deadline".to_owned();
            say_of_pod(
                self.world.events.as_ref(),
                &pod,
                EventKind::Normal,
                "DeadlineExceeded",
                message.clone(),
            );
            let reason = "DeadlineExceeded".to_owned();
            self.memory.verdict = Some(StatusOverride::Ended {
                phase: Phase::Failed,
                reason,
                message,
                conditions: Vec::new(),
            });
        }
        (due > now).then_some(due)
    }

    fn decide(&mut self, orders: &Orders) -> Step {
        let now = self.now();
        let deadline = self.check_deadline(now);
        let resize = self.look_at_resources(now);
        let computed = self.compute_status(now);
        let kept = match &computed {
            Some(status) if is_evicted(status) => Kept::Nothing,
            _ => Kept::within(self.world.node.n_dead_kept),
        };
        let (phase, is_restarting_all) = match computed {
            Some(status) => {
                (phase_of(&status).unwrap_or(Phase::Pending), is_restarting_all(&status))
            }
            None => (Phase::Running, false),
        };
        let memory = &self.memory;
        let probes =
            memory.probes.iter().map(|(name, probed)| (name.clone(), probed.verdicts)).collect();
        let facts = Facts {
            pod: memory.pod.as_deref(),
            wish: orders.wish,
            seen: &memory.seen,
            phase,
            setup: memory.setup,
            failures: &memory.failures,
            pod_failure: memory.pod_failure.as_ref(),
            probes: &probes,
            resize: &resize,
            is_restarting_all,
            network_trouble: orders.network_trouble.as_deref(),
            back_off: self.world.node.back_off,
            kept,
        };
        let mut step = decide(memory.state, &facts, now);
        step.wake_at = step.wake_at.into_iter().chain(deadline).min();
        step
    }

    /// Tells the probes what runs now.
    fn tell_probes(&self) {
        match self.memory.probed_pod(&self.world.spec().host_ips) {
            Some(pod) => self.world.probing.watch_pod(pod),
            None if self.memory.pod.as_ref().is_some_and(has_probes) => {
                self.world.probing.forget(&self.memory.uid)
            }
            None => {}
        }
    }

    /// Executes a step, stage by stage, until it is done, one of it fails, or the wish tightens.
    async fn execute(&mut self, step: Step, wish: Wish) {
        let (world, inbox, state) = (self.world.clone(), self.inbox.clone(), step.next);
        let pause = self.memory.effort.pause_before(&step.stages);
        if !pause.is_zero() {
            tokio::select! {
                biased;
                // The wish is looked at, not taken, and a timer loses nothing.
                () = inbox.tightened(wish, state) => return,
                () = sleep(pause) => {}
            }
        }
        let overdue = self.overdue_in(state);
        for stage in step.stages {
            self.memory.note_ends(&stage);
            let (mut is_told, mut reports) = (self.memory.is_overdue_told, Vec::new());
            let mut shown = None;
            let outcomes = {
                let mut work = std::pin::pin!(execute_stage(&world, &self.memory, stage));
                loop {
                    tokio::select! {
                        // First: a wish that came while we looked must not find its pod being started.
                        biased;
                        heard = inbox.heard(wish, state, &reports) => match heard {
                            Heard::Tightened => break tokio::select! {
                                // The work goes on until the runtime has made what it is making, and is not even begun where it makes nothing.
                                biased;
                                () = self.memory.making.over() => None,
                                outcomes = &mut work => Some(outcomes),
                            },
                            Heard::Reports(said) => {
                                shown = self.show_reports(&said, shown);
                                reports = said;
                            }
                        },
                        // Interrupting drops calls whose effects the next look finds; here the same work is waited for again.
                        outcomes = &mut work => break Some(outcomes),
                        // A timer loses nothing.
                        () = until(overdue), if !is_told => {
                            self.say_overdue();
                            is_told = true;
                        }
                    }
                }
            };
            self.memory.is_overdue_told = is_told;
            self.memory.status = shown.or(self.memory.status.take());
            let Some(outcomes) = outcomes else {
                tracing::debug!(pod = %self.name(), "Interrupted: the pod is to end");
                return;
            };
            let is_ok = outcomes.iter().all(|outcome| outcome.is_ok());
            let now = self.now();
            for outcome in outcomes {
                outcome.remember(&mut self.memory, &world, now);
            }
            if !is_ok {
                self.memory.effort.reset();
                return;
            }
        }
        self.memory.pod_failure = None;
    }

    /// Shows what probes say while the worker is in the middle of something, which may last: nobody should be sent to a container that has
    /// just said that it is not ready. Answers with the status that is shown, when it is another than the worker's own.
    fn show_reports(&self, said: &[ProbeReport], shown: Option<PodStatus>) -> Option<PodStatus> {
        if !matches!(self.memory.state, PodState::Running | PodState::Stopping { .. }) {
            return shown;
        }
        let previous = shown.as_ref().or(self.memory.status.as_ref());
        let probes = self.memory.probes_with(said);
        let status = self.compute_status_with(&probes, previous, self.now())?;
        let pod = self.memory.desired.as_ref()?;
        if previous == Some(&status) {
            return shown;
        }
        self.show((pod, previous), &status, Remains::Active);
        Some(status)
    }

    /// Shows a status, and notes what it says of a static pod's containers: nobody else remembers it for the agent's next life.
    fn show(
        &self,
        (pod, before): (&Pod, Option<&PodStatus>),
        status: &PodStatus,
        remains: Remains,
    ) {
        figures::published(pod, before, status, self.now());
        self.world.board.publish(pod, status, remains);
        if pod.is_static() && has_probes(pod) {
            let told = Told::all_of(status).map(|(id, told)| (ContainerId::new(id), told));
            let told: Lives = told.collect();
            // Before the first look nothing is known, not even that there is nothing.
            if !told.is_empty() {
                self.world.answers.note(&self.memory.uid, told);
            }
        }
    }

    /// When somebody loses patience with the end of a pod that was evicted.
    fn overdue_in(&self, state: PodState) -> Option<Instant> {
        let PodState::Stopping { grace, since } = state else {
            return None;
        };
        let is_evicted = matches!(&self.memory.verdict, Some(StatusOverride::Ended { reason, .. }) if reason == "Evicted");
        let due = is_evicted.then(|| kill_is_overdue_at(since, grace))?;
        Some(Instant::now() + due.since(self.now()))
    }

    fn say_overdue(&self) {
        if let Some(pod) = &self.memory.pod {
            let message = "Container runtime did not kill the pod within specified grace period.";
            let events = self.world.events.as_ref();
            let reason = "ExceededGracePeriod";
            say_of_pod(events, pod, EventKind::Warning, reason, message.to_owned());
        }
    }

    /// Waits for a message or the time to decide again.
    async fn wait(&self, wake_at: Option<Timestamp>) {
        let pause = wake_at.map(|due| due.since(self.now()).max(Duration::from_millis(1)));
        tokio::select! {
            biased;
            // Both are cancel-safe: a timer loses nothing, and a message stays in the inbox.
            () = self.inbox.changed() => {}
            () = async { match pause { Some(pause) => sleep(pause).await, None => std::future::pending().await } } => {}
        }
    }

    fn compute_status(&self, now: Timestamp) -> Option<PodStatus> {
        let memory = &self.memory;
        self.compute_status_with(&memory.probes, memory.status.as_ref(), now)
    }

    fn compute_status_with(
        &self,
        probes: &Probes,
        previous: Option<&PodStatus>,
        now: Timestamp,
    ) -> Option<PodStatus> {
        let memory = &self.memory;
        let pod = memory.pod.as_deref()?;
        let mut containers: BTreeMap<ContainerName, ContainerFact> = BTreeMap::new();
        for (name, waiting) in &memory.waiting {
            let fact = containers.entry(name.clone()).or_default();
            fact.waiting = Some(WaitingReason {
                reason: waiting.reason.to_owned(),
                message: waiting.message.clone(),
            });
        }
        for (name, actuated) in memory.actuated.iter().flat_map(|it| &it.containers) {
            let fact = containers.entry(ContainerName::new(name.as_str())).or_default();
            fact.actuated = Some(actuated.clone());
        }
        for (name, probed) in probes {
            let fact = containers.remove(name).unwrap_or_default();
            containers.insert(name.clone(), with_probes(fact, probed));
        }
        Some(ferrolet_status::compute(&StatusInputs {
            pod,
            previous,
            observation: &memory.seen,
            runtime: RuntimeFacts {
                name: &memory.runtime_name,
                has_recursive_read_only: self.world.knows_recursive_read_only(
                    &runtime_handler(&self.world, pod).unwrap_or_default(),
                ),
                shows_stop_signal: self.world.node.spec.has_stop_signals,
            },
            containers: &containers,
            stage: match memory.state {
                PodState::Running => Stage::Running,
                PodState::Stopping { .. } => Stage::Terminating,
                PodState::Stopped => Stage::Stopped,
                PodState::Settled | PodState::Gone => Stage::Terminated,
            },
            verdict: memory.verdict.as_ref(),
            resize: &memory.resizing.conditions(),
            pod_cgroup: self.pod_bounds(pod),
            volume_health: &memory.volume_health,
            host_ips: &self.world.spec().host_ips,
            now,
        }))
    }

    /// The bounds that the pod's cgroup has by now, as the kernel would tell them.
    fn pod_bounds(&self, pod: &k8s_openapi::api::core::v1::Pod) -> Option<ObservedResources> {
        let actuated = self.memory.actuated.as_ref()?;
        let node = &self.world.node.spec.resources;
        let in_force = with_resources(pod, actuated);
        let cgroup = pod_cgroup(in_force.as_ref().unwrap_or(pod), &node.cgroups);
        Some(bounds_in_force(&cgroup.limits, node.cgroup_mode))
    }

    /// Shows the new status, and says what newly holds containers back.
    fn publish(&mut self, step: &Step) {
        self.note_waiting(step);
        let now = self.now();
        let Some(status) = self.compute_status(now) else {
            return;
        };
        let remains = match self.memory.state {
            PodState::Running | PodState::Stopping { .. } => Remains::Active,
            PodState::Stopped => Remains::Stopped,
            PodState::Settled | PodState::Gone => Remains::Settled,
        };
        if self.memory.status.as_ref() == Some(&status) && remains == Remains::Active {
            return;
        }
        if let Some(pod) = &self.memory.desired {
            self.show((pod, self.memory.status.as_ref()), &status, remains);
        }
        let statuses = status.container_statuses.iter().flatten();
        if statuses.into_iter().any(|it| it.started == Some(true) && !it.ready) {
            // The world is about to hear that a container is not ready: let that be the latest news.
            self.world.probing.hurry(&self.memory.uid);
        }
        self.memory.status = Some(status);
    }

    fn note_waiting(&mut self, step: &Step) {
        let mut waiting = step.waiting.clone();
        // A failure that is being retried right now is still what the container waits for.
        for (name, failure) in &self.memory.failures {
            let why = Waiting { reason: failure.reason, message: failure.message.clone() };
            waiting.entry(name.clone()).or_insert(why);
        }
        // A container whose wait is over still waits until it runs.
        for action in step.stages.iter().flatten() {
            if let Action::Start { container, .. } = action
                && let Some(was) = self.memory.waiting.get(container)
                && was.reason == "CrashLoopBackOff"
            {
                waiting.entry(container.clone()).or_insert(was.clone());
            }
        }
        if let Some(pod) = &self.memory.pod {
            for (name, why) in &waiting {
                if self.memory.waiting.get(name).is_some_and(|was| was.reason == why.reason) {
                    continue;
                }
                let found = pod.find_container(name.as_str());
                let kind = found.map_or(ContainerKind::Ephemeral, |(kind, _)| kind);
                let tell =
                    ContainerEvents::new(self.world.events.as_ref(), pod, kind, name.as_str());
                match why.reason {
                    "CrashLoopBackOff" => tell.say(Happened::RestartBackOff(format!(
                        "Back-off restarting failed container {name} in pod {}",
                        pod_in_words(pod)
                    ))),
                    "ImagePullBackOff" => {
                        let failure = self.memory.failures.get(name);
                        let image = match failure.map(|it| &it.kind) {
                            Some(FailureKind::ImagePull { image }) => image.as_str(),
                            _ => found.and_then(|(_, it)| it.image.as_deref()).unwrap_or_default(),
                        };
                        tell.say(Happened::PullBackOff(format!(
                            "Back-off pulling image {image:?}"
                        )));
                        tell.say(Happened::Failed(why.reason.to_owned()));
                    }
                    _ => {}
                }
            }
            if let Some(hold) =
                step.hold.as_ref().filter(|hold| self.memory.hold.as_ref() != Some(hold))
            {
                say_of_pod(
                    self.world.events.as_ref(),
                    pod,
                    EventKind::Warning,
                    hold.reason,
                    hold.message.clone(),
                );
            }
            if let Some(failure) = &self.memory.pod_failure {
                tracing::debug!(pod = %self.name(), reason = failure.reason, message = %failure.message, "Pod waits after a failure");
            } else if !step.stages.is_empty()
                && matches!(step.next, PodState::Running)
                && step.wake_at.is_none()
            {
                tracing::trace!(pod = %self.name(), stages = ?step.stages, "Pod step");
            }
        }
        self.memory.waiting = waiting;
        self.memory.hold = step.hold.clone();
    }

    fn name(&self) -> String {
        self.memory.key.as_ref().map_or_else(|| self.memory.uid.to_string(), ToString::to_string)
    }
}

/// Waits for a moment, or for ever when there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

//! A pod that shall run: sandbox, then containers, each when its turn comes.

use ferrolet_pod::{
    Waiting, WaitingReason, asks_for_devices, containers_of, restart_policy_of,
    restarts_on_failure, should_start, uses_claims,
};
use ferrolet_types::{
    ContainerId, ContainerName, SandboxId, Timestamp,
    observed::{ContainerState, ObservedContainer},
    pod::{ContainerKind, PodView, RestartPolicy},
};
use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use crate::{
    Action, Facts, FailureKind, Hold, KeptContainers, PodState, RestartCount, SandboxNeed, Stage,
    StartError, StartFailure, Step, StopCause,
    backoff::{after_streak, aftermath, streak_by_now},
    end::{stop_everything, surplus},
    facts::{Presence, Verdict},
    init::{InitProgress, plan_init},
    reset, sandbox_need,
};

/// How long a fresh pull error is shown before it becomes a back-off.
const PULL_ERROR_SHOWN: std::time::Duration = std::time::Duration::from_secs(1);
/// How long an end is shown as such before it becomes a back-off; at most half of that. Upstream's
/// kubelet shows it until its next look.
const END_SHOWN: std::time::Duration = std::time::Duration::from_secs(1);

/// What to do with a pod that shall run.
pub(crate) fn run(pod: &Pod, facts: &Facts<'_>, now: Timestamp) -> Step {
    if has_lost_cgroup(pod, facts) {
        return Step {
            stages: stop_everything(facts, pod.grace_period()),
            ..Step::rest(PodState::Running)
        };
    }
    match sandbox_need(pod, facts.seen) {
        SandboxNeed::Usable(sandbox) => run_in(pod, &sandbox, facts, now),
        SandboxNeed::First => new_sandbox(pod, facts, 0, now),
        SandboxNeed::Replace { attempt, .. } => new_sandbox(pod, facts, attempt, now),
    }
}

/// True when containers run outside the pod's cgroup, which is not there: the node's cgroups were
/// moved. Nothing bounds such a pod, so it is killed once; what may restart is made anew in the
/// right place.
fn has_lost_cgroup(pod: &Pod, facts: &Facts<'_>) -> bool {
    let regular = &pod.spec_ref().containers;
    let is_regular = |it: &ObservedContainer| regular.iter().any(|of| of.name == it.name.as_str());
    facts.setup.cgroup == Presence::Absent && facts.seen.running().any(is_regular)
}

/// Clears the place, sets everything up and makes a sandbox; containers follow in the next step.
fn new_sandbox(pod: &Pod, facts: &Facts<'_>, attempt: u32, now: Timestamp) -> Step {
    let step = Step {
        stages: stop_everything(facts, pod.grace_period()),
        ..Step::rest(PodState::Running)
    };
    if !deserves_sandbox(pod, facts, attempt) {
        return step;
    }
    if let Some(due) =
        facts.pod_failure.map(|failure| failure.retry_at(&facts.back_off)).filter(|due| *due > now)
    {
        return Step { wake_at: Some(due), ..Step::rest(PodState::Running) };
    }
    if let Some(trouble) = facts.network_trouble.filter(|_| !pod.is_host_network()) {
        return Step { hold: Some(Hold::NetworkNotReady(trouble.to_owned())), ..step };
    }
    step.then(init_remains(pod, facts))
        .then(missing_devices(pod, facts))
        .then(missing_setup(facts))
        .then(claims_of_sandbox(pod))
        .then(vec![Action::CreateSandbox { attempt, replaces: attempt > 0 }])
}

/// What drivers have to prepare before a sandbox. Each new one asks anew: a claim may have changed
/// since.
fn claims_of_sandbox(pod: &Pod) -> Stage {
    uses_claims(pod).then_some(Action::PrepareClaims).into_iter().collect()
}

/// A pod that is done gets no new sandbox just to be torn down again.
fn deserves_sandbox(pod: &Pod, facts: &Facts<'_>, attempt: u32) -> bool {
    // A container that was made and never started is no history: the pod has yet to run.
    let has_history = facts.seen.containers.iter().any(|it| it.state != ContainerState::Created);
    let regular = &pod.spec_ref().containers;
    if pod.restart_policy() == RestartPolicy::Never && attempt > 0 && has_history {
        // A container's own policy or rule stands above the pod's. Upstream's kubelet leaves such a
        // pod without a sandbox for ever.
        let comes_back = |container: &Container| {
            let newest = facts.seen.newest_container(&container.name);
            let ended = newest.filter(|it| it.state.exit().is_some());
            ended.is_some() && should_start(pod, container, ended)
        };
        return regular.iter().any(comes_back);
    }
    let is_done = |container: &Container| {
        restart_policy_of(pod, container) == RestartPolicy::OnFailure
            && facts
                .seen
                .newest_container(&container.name)
                .is_some_and(|it| it.state.exit().is_some_and(|exit| exit.code == 0))
    };
    let ran_before =
        regular.iter().any(|container| facts.seen.newest_container(&container.name).is_some());
    !(ran_before && regular.iter().all(is_done))
}

/// Init containers of an earlier sandbox: they run again from the first one, so their remains only
/// confuse.
fn init_remains(pod: &Pod, facts: &Facts<'_>) -> Stage {
    let is_init = |it: &&ObservedContainer| {
        !it.state.is_running()
            && pod
                .spec_ref()
                .init_containers
                .iter()
                .flatten()
                .any(|init| init.name == it.name.as_str())
    };
    let dead = facts.seen.containers.iter().filter(is_init);
    dead.map(|it| Action::RemoveContainer {
        id: it.id.clone(),
        container: it.name.clone(),
        log_path: None,
    })
    .collect()
}

/// Devices that the pod may ask for. They come before all else: a pod that gets none is not this
/// node's, and nothing should have been made for it.
fn missing_devices(pod: &Pod, facts: &Facts<'_>) -> Stage {
    match facts.setup.devices {
        Presence::Unknown | Presence::Absent if asks_for_devices(pod) => {
            vec![Action::AllocateDevices]
        }
        Presence::Unknown | Presence::Absent | Presence::Present => Vec::new(),
    }
}

/// What this process has not made sure of yet.
fn missing_setup(facts: &Facts<'_>) -> Stage {
    let wanted = [
        (facts.setup.cgroup, Action::EnsureCgroup),
        (facts.setup.files, Action::EnsureFiles),
        (facts.setup.volumes, Action::EnsureVolumes),
    ];
    wanted
        .into_iter()
        .filter(|(is, _)| *is != Presence::Present)
        .map(|(_, action)| action)
        .collect()
}

/// Containers inside a usable sandbox.
fn run_in(pod: &Pod, sandbox: &SandboxId, facts: &Facts<'_>, now: Timestamp) -> Step {
    if facts.is_restarting_all {
        if let Some(due) = reset::due(pod, facts.seen).filter(|due| *due > now) {
            return Step { wake_at: Some(due), ..Step::rest(PodState::Running) };
        }
        let stages = reset::reset(pod, facts.seen);
        return Step { stages, ..Step::rest(PodState::Running) };
    }
    let mut plan = Plan::new(pod, sandbox, facts, now);
    for ephemeral in containers_of(pod, ContainerKind::Ephemeral) {
        if facts.seen.newest_container(&ephemeral.name).is_none() {
            plan.start(&ephemeral, ContainerKind::Ephemeral);
        }
    }
    match plan_init(&mut plan) {
        InitProgress::Failed => {
            return Step {
                stages: stop_everything(facts, pod.grace_period()),
                ..Step::rest(PodState::Running)
            };
        }
        InitProgress::UnderWay => return plan.into_step(),
        InitProgress::Done => {}
    }
    let mut is_alive = false;
    for container in &pod.spec_ref().containers {
        is_alive |= plan_regular(&mut plan, container);
    }
    if !is_alive {
        // Everything has ended for good: sidecars must not keep the pod alive.
        return Step {
            stages: stop_everything(facts, pod.grace_period()),
            ..Step::rest(PodState::Running)
        };
    }
    plan.into_step()
}

/// Plans one regular container; true when it runs or will run.
fn plan_regular(plan: &mut Plan<'_>, container: &Container) -> bool {
    let newest = plan.facts.seen.newest_container(&container.name);
    match newest.map(|it| (it, &it.state)) {
        Some((it, ContainerState::Running { .. })) => {
            let Some((cause, always_restarts)) = plan.why_stop(container, it) else {
                plan.keep(it);
                return true;
            };
            let restarts = always_restarts || restarts_on_failure(plan.pod, container);
            if restarts {
                plan.replace(container, ContainerKind::Regular, it, cause);
            } else {
                plan.stop(it, cause);
            }
            restarts
        }
        other => {
            if !should_start(plan.pod, container, other.map(|(it, _)| it)) {
                return false;
            }
            match other {
                Some((it, ContainerState::Unknown)) => {
                    plan.replace(container, ContainerKind::Regular, it, StopCause::Unknown);
                }
                _ => plan.start(container, ContainerKind::Regular),
            }
            true
        }
    }
}

/// A step under construction: stops first, then what is missing, then starts.
pub(crate) struct Plan<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) sandbox: &'a SandboxId,
    pub(crate) facts: &'a Facts<'a>,
    now: Timestamp,
    stops: Stage,
    starts: Vec<Stage>,
    /// Running containers that take new bounds.
    resized: Vec<(ContainerName, ContainerId)>,
    /// The pod's own bounds are not what its containers, those that are about to start included,
    /// were granted.
    must_resize_pod: bool,
    step: Step,
}

impl<'a> Plan<'a> {
    fn new(pod: &'a Pod, sandbox: &'a SandboxId, facts: &'a Facts<'a>, now: Timestamp) -> Self {
        Self {
            pod,
            sandbox,
            facts,
            now,
            stops: Vec::new(),
            starts: Vec::new(),
            resized: Vec::new(),
            must_resize_pod: facts.resize.is_pod_level,
            step: Step::rest(PodState::Running),
        }
    }

    /// Why a running container must stop, and whether it restarts whatever its policy says.
    pub(crate) fn why_stop(
        &self,
        container: &Container,
        it: &ObservedContainer,
    ) -> Option<(StopCause, bool)> {
        if !is_same_spec(container, it) {
            return Some((StopCause::Changed, true));
        }
        let probes = self.facts.probes.get(container.name.as_str());
        match probes.map(|probes| (probes.live, probes.started)) {
            Some((Verdict::Failure { .. }, _)) => Some((StopCause::NotLive, false)),
            Some((_, Verdict::Failure { .. })) => Some((StopCause::NotStarted, false)),
            _ if self.facts.resize.restarts.contains(&it.name) => Some((StopCause::Resized, true)),
            _ => None,
        }
    }

    /// True when a successor would be the same again, with the same image and resources: only then
    /// a crash counts against it.
    fn is_same_try(&self, container: &Container, it: &ObservedContainer) -> bool {
        let resize = self.facts.resize;
        let is_resized = resize.updates.contains(&it.name) || resize.restarts.contains(&it.name);
        is_same_spec(container, it) && !is_resized
    }

    /// Lets a running container be, but for its bounds.
    pub(crate) fn keep(&mut self, it: &ObservedContainer) {
        if self.facts.resize.updates.contains(&it.name) {
            self.resized.push((it.name.clone(), it.id.clone()));
        }
    }

    /// Stops one container; its successor, if any, follows once it is seen dead.
    pub(crate) fn stop(&mut self, it: &ObservedContainer, cause: StopCause) {
        let probes = self.facts.probes.get(&it.name);
        let own = match (&cause, probes) {
            (StopCause::NotLive, Some(probes)) => verdict_grace(probes.live),
            (StopCause::NotStarted, Some(probes)) => verdict_grace(probes.started),
            _ => None,
        };
        self.stops.push(Action::StopContainer {
            id: it.id.clone(),
            container: it.name.clone(),
            grace: own.unwrap_or_else(|| self.pod.grace_period()),
            cause,
            after: Vec::new(),
        });
    }

    /// Stops a container and starts its successor at once, unless the one that died before it tells
    /// to wait.
    pub(crate) fn replace(
        &mut self,
        container: &Container,
        kind: ContainerKind,
        it: &ObservedContainer,
        cause: StopCause,
    ) {
        self.stop(it, cause);
        let name = ContainerName::new(container.name.as_str());
        let mut earlier = self.facts.seen.containers_named(&container.name);
        let died_before = earlier.find_map(|container| container.state.exit());
        let streak = streak_by_now(it, self.is_same_try(container, it), self.now);
        let next_streak = match died_before {
            None => streak,
            Some(exit) => {
                let after = after_streak(streak, &self.facts.back_off);
                let due = exit.finished_at.after(after.wait);
                if due > self.now {
                    return self.wait(name, due, crash_loop(self.pod, container, after.wait));
                }
                after.next_streak
            }
        };
        self.start_now(name, kind, Some(it), next_streak);
    }

    /// Starts a container now, or says until when it waits.
    pub(crate) fn start(&mut self, container: &Container, kind: ContainerKind) {
        let name = ContainerName::new(container.name.as_str());
        let newest = self.facts.seen.newest_container(&container.name);
        // A container that was made and never started hands its streak on.
        let mut crash_streak = newest
            .filter(|it| it.state == ContainerState::Created)
            .and_then(|it| it.crash_streak)
            .unwrap_or(0);
        let dead = newest.and_then(|it| it.state.exit().map(|exit| (it, exit)));
        if let Some((it, exit)) = dead {
            let is_same = self.is_same_try(container, it);
            let after = aftermath(it, exit, is_same, &self.facts.back_off);
            crash_streak = after.next_streak;
            let due = exit.finished_at.after(after.wait);
            let shown_until = exit.finished_at.after(END_SHOWN.min(after.wait / 2));
            if shown_until > self.now {
                return self.step.wake(shown_until);
            }
            if due > self.now {
                return self.wait(name, due, crash_loop(self.pod, container, after.wait));
            }
        }
        let failure = self.facts.failures.get(&name);
        if let Some(failure) = failure.filter(|it| concerns(self.pod, container, &it.error)) {
            let due = failure.retry_at(&self.facts.back_off);
            if due > self.now {
                return self.wait_after(name, failure, due);
            }
        }
        self.start_now(name, kind, newest, crash_streak);
    }

    /// Waits until a failed start is tried again.
    fn wait_after(&mut self, name: ContainerName, failure: &StartFailure, due: Timestamp) {
        let shown_until = failure.at.after(PULL_ERROR_SHOWN);
        let why = match &failure.error.kind {
            FailureKind::ImagePull { image } if shown_until <= self.now => {
                pull_back_off(image, &failure.error)
            }
            FailureKind::ImagePull { .. } => {
                self.step.wake(shown_until);
                failure.error.waiting()
            }
            FailureKind::Other => failure.error.waiting(),
        };
        self.wait(name, due, why);
    }

    fn start_now(
        &mut self,
        container: ContainerName,
        kind: ContainerKind,
        newest: Option<&ObservedContainer>,
        crash_streak: u32,
    ) {
        let restarts = match newest {
            Some(it) => RestartCount::Exactly(
                it.restart_count + u32::from(it.state != ContainerState::Created),
            ),
            None => RestartCount::FromLogs,
        };
        let resize = self.facts.resize;
        self.must_resize_pod |=
            resize.updates.contains(&container) || resize.restarts.contains(&container);
        let start = Action::Start {
            container,
            kind,
            sandbox: self.sandbox.clone(),
            restarts,
            crash_streak,
        };
        // A container that was made and never started stands in the way of its own successor.
        let leftover = newest.filter(|it| it.state == ContainerState::Created).map(|it| {
            Action::RemoveContainer {
                id: it.id.clone(),
                container: it.name.clone(),
                log_path: None,
            }
        });
        self.stops.extend(leftover);
        match (kind, self.starts.last_mut()) {
            // Regular containers do not wait for one another, but for the postStart hooks of those
            // before them.
            (ContainerKind::Regular, Some(stage))
                if is_regular_stage(stage) && !has_post_start(self.pod, stage) =>
            {
                stage.push(start);
            }
            _ => self.starts.push(vec![start]),
        }
    }

    fn wait(&mut self, container: ContainerName, due: Timestamp, why: Waiting) {
        self.step.wake(due);
        self.step.waiting.insert(container, why);
    }

    /// The resize, unless there is none or its last failure tells to wait. A step for its own
    /// failure's sake wakes.
    fn resize(&mut self) -> Stage {
        if self.resized.is_empty() && !self.must_resize_pod {
            return Vec::new();
        }
        let failure = self.facts.resize.failure.as_ref();
        let due = failure.map(|failure| failure.retry_at(&self.facts.back_off));
        if let Some(due) = due.filter(|due| *due > self.now) {
            self.step.wake(due);
            return Vec::new();
        }
        vec![Action::Resize {
            sandbox: self.sandbox.clone(),
            containers: std::mem::take(&mut self.resized),
        }]
    }

    fn into_step(mut self) -> Step {
        let resize = self.resize();
        let setup = if self.starts.is_empty() && self.facts.setup.is_complete() {
            Vec::new()
        } else {
            missing_setup(self.facts)
        };
        let devices = missing_devices(self.pod, self.facts);
        let claims = match self.facts.setup.claims {
            // The sandbox is older than this process.
            Presence::Unknown | Presence::Absent
                if uses_claims(self.pod) && !self.starts.is_empty() =>
            {
                vec![Action::EnsureClaims]
            }
            Presence::Unknown | Presence::Absent | Presence::Present => Vec::new(),
        };
        let step = self.step.then(self.stops).then(devices).then(setup).then(claims);
        let mut step = step.then(resize);
        for stage in self.starts {
            step = step.then(stage);
        }
        match self.facts.kept {
            KeptContainers::Newest(n_kept) => step.then(surplus(self.facts.seen, n_kept)),
            // Its end is near, and takes everything along.
            KeptContainers::None => step,
        }
    }
}

fn is_regular_stage(stage: &Stage) -> bool {
    stage.iter().all(|action| matches!(action, Action::Start { kind: ContainerKind::Regular, .. }))
}

/// True when a postStart hook runs after one of these starts.
fn has_post_start(pod: &Pod, stage: &Stage) -> bool {
    let has_hook = |container: &ContainerName| {
        let found = pod.find_container(container.as_str());
        let lifecycle = found.and_then(|(_, container)| container.lifecycle.as_ref());
        lifecycle.is_some_and(|it| it.post_start.is_some())
    };
    stage.iter().any(|action| match action {
        Action::Start { container, .. } => has_hook(container),
        _ => false,
    })
}

fn verdict_grace(verdict: Verdict) -> Option<ferrolet_types::GracePeriod> {
    match verdict {
        Verdict::Failure { grace } => grace,
        Verdict::Pending | Verdict::Success => None,
    }
}

/// False when a start failed for an image that the container needs no longer.
fn concerns(pod: &Pod, container: &Container, error: &StartError) -> bool {
    match &error.kind {
        FailureKind::ImagePull { image } => wants_image(pod, container, image),
        FailureKind::Other => true,
    }
}

/// True when a container needs this image: to run from, or as one of its volumes.
fn wants_image(pod: &Pod, container: &Container, image: &str) -> bool {
    let mounts = container.volume_mounts.iter().flatten();
    let is_mounted = |volume: &&Volume| mounts.clone().any(|mount| mount.name == volume.name);
    let mut volumes = pod.spec_ref().volumes.iter().flatten().filter(is_mounted);
    let is_it = |volume: &Volume| {
        let source = volume.image.as_ref();
        source.and_then(|it| it.reference.as_deref()) == Some(image)
    };
    container.image.as_deref() == Some(image) || volumes.any(is_it)
}

/// True when the container was made from the specification as it is now.
pub(crate) fn is_same_spec(container: &Container, it: &ObservedContainer) -> bool {
    it.spec_hash.as_deref().is_none_or(|hash| hash == ferrolet_types::pod::spec_hash(container))
}

fn crash_loop(pod: &Pod, container: &Container, wait: std::time::Duration) -> Waiting {
    let (key, uid) = (pod.key(), pod.uid());
    Waiting {
        reason: WaitingReason::CrashLoopBackOff,
        message: format!(
            "back-off {} restarting failed container={} pod={}_{}({uid})",
            ferrolet_types::format_go_duration(wait),
            container.name,
            key.name,
            key.namespace
        ),
    }
}

fn pull_back_off(image: &str, error: &StartError) -> Waiting {
    let StartError { reason, message, .. } = error;
    let message = if message.is_empty() {
        format!("Back-off pulling image {image:?}")
    } else {
        format!("Back-off pulling image {image:?}: {reason}: {message}")
    };
    Waiting { reason: WaitingReason::ImagePullBackOff, message }
}

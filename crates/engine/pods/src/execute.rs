//! Executes what was decided: one arm per action, one call and one outcome per arm. A choice found
//! here is a bug in `decide`.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_lifecycle::{
    Action, AfterRefusal, Claim, Presence, Refusal, RestartCount, Stage, StartError, StopCause,
    after_refusal, left_to_stop,
};
use ferrolet_pod::{WaitingReason, kind_of_container, restarts_on_failure};
use ferrolet_ports::{
    DeviceError, EventKind, HookCall, HookMoment, RuntimeError, RuntimeErrorKind, VolumeError,
    VolumeMount,
};
use ferrolet_resources::{PodResources, pod_cgroup};
use ferrolet_types::{
    ContainerId, ContainerName, GracePeriod, Pod, Timestamp,
    pod::{ContainerKind, PodView},
};
use futures::future::join_all;
use tokio::time::{Instant, timeout};

use crate::{
    World,
    memory::{Memory, Part},
    metrics,
    resize::resize,
    start::{StartOrder, create_sandbox, start_container},
    tell::{ContainerEvents, Happened, say_of_pod, say_resize},
    turns::Turns,
    userns::release_users,
};

/// What came of one action.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Done, nothing to remember: the next look shows it.
    Done,
    /// Something is there, or gone, for certain.
    Setup(Part, Presence),
    /// Volumes are mounted.
    Volumes(BTreeMap<String, VolumeMount>),
    /// Resources were put in force, or as many as the runtime accepted.
    Resized { actuated: PodResources, error: Option<String> },
    /// The runtime keeps something that nobody needs any more.
    LeftBehind { id: String },
    /// A container was started.
    Started { container: ContainerName },
    /// A container could not be started.
    NotStarted { container: ContainerName, error: StartError },
    /// This node cannot have the pod after all.
    Rejected { reason: &'static str, message: String },
    /// Somebody else has something to do for the pod first.
    Awaited { reason: &'static str, message: String },
    /// Something about the pod as a whole failed.
    Failed { reason: &'static str, message: String },
}

impl Outcome {
    pub(crate) fn is_ok(&self) -> bool {
        !matches!(
            self,
            Self::NotStarted { .. }
                | Self::Rejected { .. }
                | Self::Awaited { .. }
                | Self::Failed { .. }
        )
    }

    /// Keeps what the next decision needs to know.
    pub(crate) fn remember(self, memory: &mut Memory, world: &World, now: Timestamp) {
        match self {
            Self::Done => {}
            Self::Setup(part, presence) => memory.made.note_setup(part, presence),
            Self::Volumes(volumes) => memory.made.note_volumes(volumes),
            Self::Resized { actuated, error } => {
                memory.made.note_actuated(Some(actuated));
                if let (Some(pod), Some(message)) = (memory.asked.pod(), error) {
                    tracing::warn!(pod = %pod.key(), %message, "Pod cannot be resized");
                    let said = memory.made.resizing.failed(pod, &message, now);
                    said.into_iter().for_each(|said| say_resize(world, pod, said));
                }
            }
            Self::LeftBehind { id } => memory.leave_behind(&id),
            Self::Started { container } => {
                memory.shown.forget_waiting(&container);
                let in_force = memory.made.note_started(memory.asked.pod(), &container);
                in_force.into_iter().for_each(|it| {
                    world.records.put_in_force(memory.asked.uid(), it);
                });
            }
            Self::NotStarted { container, error } => {
                if let Some(pod) = memory.asked.pod() {
                    let kind = kind_of_container(pod, container.as_str());
                    let tell =
                        ContainerEvents::new(world.events.as_ref(), pod, kind, container.as_str());
                    if let Some(text) = event_text(&error) {
                        tell.say(Happened::Failed(text));
                    }
                }
                memory.made.note_start_failure(&container, error, now);
            }
            Self::Rejected { reason, message } => {
                tracing::warn!(pod = memory.name(), reason, message, "Pod is rejected");
                metrics::rejected(reason);
                if let Some(pod) = memory.asked.pod() {
                    let events = world.events.as_ref();
                    say_of_pod(events, pod, EventKind::Warning, reason, message.clone());
                }
                memory.asked.reject_late(reason, &message);
            }
            Self::Awaited { reason, message } => {
                tracing::debug!(pod = memory.name(), reason, message, "Pod waits");
                memory.made.note_pod_failure(message, now);
            }
            Self::Failed { reason, message } => {
                tracing::warn!(pod = memory.name(), reason, error = %message, "Pod cannot be synced");
                if let Some(pod) = memory.asked.pod() {
                    say_of_pod(
                        world.events.as_ref(),
                        pod,
                        EventKind::Warning,
                        reason,
                        message.clone(),
                    );
                }
                memory.made.note_pod_failure(message, now);
            }
        }
    }
}

/// Executes the actions of one stage side by side.
pub(crate) async fn execute_stage(world: &World, memory: &Memory, stage: Stage) -> Vec<Outcome> {
    let turns = Turns::of(&stage);
    join_all(stage.into_iter().map(|action| execute(world, memory, &turns, action))).await
}

async fn execute(world: &World, memory: &Memory, turns: &Turns, action: Action) -> Outcome {
    let Some(key) = memory.asked.key() else {
        // Without a name there is nothing on disk that could be found; containers carry their own
        // ids.
        return execute_nameless(world, memory, turns, action).await;
    };
    match (action, memory.asked.pod()) {
        (Action::AllocateDevices, Some(pod)) => allocate_devices(world, memory, pod).await,
        (Action::EnsureCgroup, Some(pod)) => ensure_cgroup(world, pod).await,
        (Action::EnsureFiles, Some(_)) => {
            match world.files.ensure_pod(key, memory.asked.uid()).await {
                Ok(()) => Outcome::Setup(Part::Files, Presence::Present),
                Err(error) => {
                    failed("Failed", format!("error making pod data directories: {error}"))
                }
            }
        }
        (Action::EnsureVolumes, Some(pod)) => match world.volumes.ensure(pod).await {
            Ok(volumes) => Outcome::Volumes(volumes),
            Err(error) if error.rejects_pod() => {
                Outcome::Rejected { reason: error.reason, message: error.message }
            }
            Err(error) if error.is_expected() => {
                Outcome::Awaited { reason: error.reason, message: error.message }
            }
            Err(error) => failed(error.reason, error.message),
        },
        (Action::PrepareClaims, Some(pod)) => claims_ready(world.claims.prepare(pod).await),
        (Action::EnsureClaims, Some(pod)) => claims_ready(world.claims.ensure(pod).await),
        (Action::CreateSandbox { attempt, replaces }, Some(pod)) => {
            if replaces {
                let message = "Pod sandbox changed, it will be killed and re-created.".to_owned();
                say_of_pod(
                    world.events.as_ref(),
                    pod,
                    EventKind::Normal,
                    "SandboxChanged",
                    message,
                );
            }
            match create_sandbox(world, memory, pod, attempt).await {
                Ok(()) => Outcome::Done,
                Err(message) => failed("FailedCreatePodSandBox", message),
            }
        }
        (Action::Resize { sandbox, containers }, Some(pod)) => {
            resize(world, memory, pod, &sandbox, containers).await
        }
        (Action::Start { container, kind, sandbox, restarts, crash_streak }, Some(pod)) => {
            let order =
                StartOrder { container: container.clone(), kind, sandbox, restarts, crash_streak };
            let starting = start_container(world, memory, pod, order);
            match metrics::container(kind, starting).await {
                Ok(()) => Outcome::Started { container },
                Err(error) => Outcome::NotStarted { container, error },
            }
        }
        (Action::RemoveContainer { id, container, log_path: Some(log) }, _) => {
            match world.runtime.remove_container(&id).await {
                Ok(()) => done(
                    world.files.remove_container_log(&log, (key, container.as_str(), &id)).await,
                ),
                Err(error) => not_removed(memory, id.as_str(), &error),
            }
        }
        (Action::RemoveLogs, _) => match world.files.remove_logs(key, memory.asked.uid()).await {
            Ok(()) => Outcome::Setup(Part::Logs, Presence::Absent),
            Err(error) => failed("FailedSync", error.to_string()),
        },
        (action, _) => execute_nameless(world, memory, turns, action).await,
    }
}

/// Actions that need no more than ids.
async fn execute_nameless(
    world: &World,
    memory: &Memory,
    turns: &Turns,
    action: Action,
) -> Outcome {
    match action {
        Action::StopContainer { id, container, grace, cause, after } => {
            if memory.shown.is_new_end(&id) {
                announce_end(world, memory, &container, &cause);
            }
            stop(world, memory, turns, (&id, &container), (grace, &after)).await
        }
        Action::StopSandbox { id } => match world.runtime.stop_sandbox(&id).await {
            Ok(()) => Outcome::Done,
            Err(error) => not_killed("KillPodSandbox", memory.asked.uid().as_str(), &error),
        },
        Action::RemoveContainer { id, .. } => match world.runtime.remove_container(&id).await {
            Ok(()) => Outcome::Done,
            Err(error) => not_removed(memory, id.as_str(), &error),
        },
        Action::RemoveSandbox { id } => match world.runtime.remove_sandbox(&id).await {
            Ok(()) => Outcome::Done,
            Err(error) => not_removed(memory, id.as_str(), &error),
        },
        Action::LowerCpu => {
            lower_cpu(world, memory).await;
            Outcome::Done
        }
        Action::UnprepareClaims => match world.claims.unprepare(memory.asked.uid()).await {
            Ok(()) => Outcome::Setup(Part::Claims, Presence::Absent),
            Err(message) => failed("FailedSync", format!("error syncing pod: {message}")),
        },
        Action::ReleaseVolumes { lower_after } => {
            match release_volumes(world, memory, lower_after).await {
                Ok(()) => Outcome::Setup(Part::Volumes, Presence::Absent),
                Err(error) => failed(error.reason, error.message),
            }
        }
        Action::RemoveCgroup => {
            match metrics::cgroup("destroy", world.cgroups.remove(memory.asked.uid())).await {
                Ok(()) => {
                    give_back_users(world, memory).await;
                    world.devices.release(memory.asked.uid());
                    Outcome::Setup(Part::Cgroup, Presence::Absent)
                }
                Err(error) => failed("FailedSync", error.to_string()),
            }
        }
        Action::RemoveFiles => match world.files.remove_pod(memory.asked.uid()).await {
            Ok(()) => Outcome::Setup(Part::Files, Presence::Absent),
            Err(error) => failed("FailedSync", error.to_string()),
        },
        Action::RemoveLogs => Outcome::Setup(Part::Logs, Presence::Absent),
        Action::AllocateDevices
        | Action::EnsureCgroup
        | Action::EnsureFiles
        | Action::EnsureVolumes
        | Action::PrepareClaims
        | Action::EnsureClaims
        | Action::CreateSandbox { .. }
        | Action::Resize { .. }
        | Action::Start { .. } => failed("FailedSync", "the pod has no specification".to_owned()),
    }
}

async fn release_volumes(
    world: &World,
    memory: &Memory,
    lower_after: Duration,
) -> Result<(), VolumeError> {
    let mut releasing = world.volumes.release(memory.asked.uid());
    if let Ok(released) = timeout(lower_after, &mut releasing).await {
        return released;
    }
    lower_cpu(world, memory).await;
    releasing.await
}

/// A favour to the node, and no reason for the pod's end to fail.
async fn lower_cpu(world: &World, memory: &Memory) {
    let lowered = metrics::cgroup("update", world.cgroups.lower_cpu(memory.asked.uid())).await;
    if let Err(error) = lowered {
        let uid = memory.asked.uid();
        tracing::info!(pod = %uid, %error, "What is left of a pod that has ended could not be slowed down");
    }
}

/// A removal that failed: told as the rule about refusals says.
fn not_removed(memory: &Memory, id: &str, error: &RuntimeError) -> Outcome {
    let claim = match memory.asked.pod() {
        Some(_) => Claim::Wanted,
        None => Claim::Unclaimed,
    };
    match after_refusal(refusal_of(error.kind), claim) {
        AfterRefusal::GoOn => {
            tracing::warn!(pod = memory.name(), id, %error, "The runtime keeps what is left of a container; the pod goes on without it");
            Outcome::LeftBehind { id: id.to_owned() }
        }
        AfterRefusal::TryAgain => failed("FailedSync", format!("error removing {id}: {error}")),
    }
}

/// Whether a runtime that refuses will go on refusing.
fn refusal_of(kind: RuntimeErrorKind) -> Refusal {
    match kind {
        RuntimeErrorKind::FailedPrecondition => Refusal::Standing,
        RuntimeErrorKind::Unavailable
        | RuntimeErrorKind::DeadlineExceeded
        | RuntimeErrorKind::NotFound
        | RuntimeErrorKind::AlreadyExists
        | RuntimeErrorKind::Unimplemented
        | RuntimeErrorKind::InvalidArgument
        | RuntimeErrorKind::PermissionDenied
        | RuntimeErrorKind::ResourceExhausted
        | RuntimeErrorKind::Canceled
        | RuntimeErrorKind::Internal
        | RuntimeErrorKind::Unknown => Refusal::Passing,
    }
}

/// A pod that runs nothing any more needs no users of its own.
async fn give_back_users(world: &World, memory: &Memory) {
    let has_users = |pod: &Pod| pod.spec_ref().host_users == Some(false);
    if memory.asked.pod().is_none_or(has_users) {
        release_users(world, memory.asked.uid()).await;
    }
}

async fn allocate_devices(world: &World, memory: &Memory, pod: &Pod) -> Outcome {
    let running = memory.seen.observation().running();
    let running = running.map(|it| it.name.to_string()).collect();
    match world.devices.allocate(pod, &running).await {
        Ok(()) => Outcome::Setup(Part::Devices, Presence::Present),
        Err(DeviceError::Refused { reason, message }) => Outcome::Rejected { reason, message },
        Err(DeviceError::NotYet { reason, message }) => failed(reason, message),
    }
}

fn claims_ready(prepared: Result<(), String>) -> Outcome {
    match prepared {
        Ok(()) => Outcome::Setup(Part::Claims, Presence::Present),
        Err(why) => {
            let message = format!("Failed to prepare dynamic resources: {why}");
            failed("FailedPrepareDynamicResources", message)
        }
    }
}

async fn ensure_cgroup(world: &World, pod: &Pod) -> Outcome {
    let cgroup = pod_cgroup(pod, &world.cgroup_policy(pod));
    match metrics::cgroup("create", world.cgroups.ensure(&cgroup)).await {
        Ok(()) => Outcome::Setup(Part::Cgroup, Presence::Present),
        Err(error) => {
            let message = format!(
                "unable to ensure pod container exists: failed to create container for {}: {error}",
                pod.uid()
            );
            failed("FailedCreatePodContainer", message)
        }
    }
}

/// Runs the hook, waits for those who go before, and signals; all of it within the grace.
async fn stop(
    world: &World,
    memory: &Memory,
    turns: &Turns,
    (id, container): (&ContainerId, &ContainerName),
    (grace, after): (GracePeriod, &[ContainerId]),
) -> Outcome {
    let began = Instant::now();
    let rest = async {
        let left = grace.0.saturating_sub(began.elapsed());
        // Who has no time left does not wait; who waits too long goes out of turn.
        let _ = timeout(left, turns.wait_for(after)).await;
        let left = left_to_stop(grace, began.elapsed());
        world.runtime.stop_container(id, left).await
    };
    match run_pre_stop_and(world, memory, (id, container), grace, rest).await {
        Ok(()) => {
            turns.ended(id);
            Outcome::Done
        }
        Err(error) => not_killed("KillContainer", container.as_str(), &error),
    }
}

/// A stop that failed, in the words of upstream's sync results.
fn not_killed(action: &str, target: &str, error: &RuntimeError) -> Outcome {
    let cause = error.to_string();
    let why = format!("failed to {action:?} for {target:?} with {action}Error: {cause:?}");
    failed("FailedKillPod", format!("error killing pod: {why}"))
}

/// Says that a container is being stopped, and why.
fn announce_end(world: &World, memory: &Memory, container: &ContainerName, cause: &StopCause) {
    if let Some(pod) = memory.asked.pod() {
        let found = pod.find_container(container.as_str());
        let kind = kind_of_container(pod, container.as_str());
        let restarts = matches!(cause, StopCause::Changed | StopCause::Resized)
            || found.is_some_and(|(_, it)| restarts_on_failure(pod, it));
        let message = cause.message(container.as_str(), kind, restarts);
        ContainerEvents::new(world.events.as_ref(), pod, kind, container.as_str())
            .say(Happened::Killing(message));
    } else if let Some(key) = memory.asked.key() {
        // Nobody knows any more what part of which specification it was.
        let message = cause.message(container.as_str(), ContainerKind::Regular, false);
        ContainerEvents::of_orphan(
            world.events.as_ref(),
            (memory.asked.uid(), key),
            container.as_str(),
        )
        .say(Happened::Killing(message));
    }
}

/// Runs the container's preStop hook within the grace, and then the rest. A hook that takes longer
/// goes on beside the rest, and what it does in the container ends with that.
async fn run_pre_stop_and<T>(
    world: &World,
    memory: &Memory,
    (id, container): (&ContainerId, &ContainerName),
    grace: GracePeriod,
    rest: impl Future<Output = T>,
) -> T {
    // Without time there is no hook; the process gets its moment all the same.
    let call = (!grace.0.is_zero()).then(|| pre_stop(memory, id, container));
    let Some((kind, call)) = call.flatten() else {
        return rest.await;
    };
    let pod = &call.pod;
    let mut hook = world.hooks.run(&call);
    let has_failed = match timeout(grace.0, &mut hook).await {
        Ok(Ok(())) => return rest.await,
        Ok(Err(error)) => {
            tracing::warn!(pod = %pod.key(), %container, %error, "PreStop hook failed");
            hook = Box::pin(std::future::pending());
            true
        }
        Err(_elapsed) => {
            tracing::warn!(pod = %pod.key(), %container, "PreStop hook did not complete in the grace period");
            // A sleep that is cut short has done its work.
            let is_sleep = call.handler.sleep.is_some();
            if is_sleep {
                hook = Box::pin(std::future::pending());
            }
            !is_sleep
        }
    };
    if has_failed {
        let tell = ContainerEvents::new(world.events.as_ref(), pod, kind, container.as_str());
        tell.say(Happened::HookFailed(HookMoment::PreStop));
    }
    let beside = async {
        let _ = hook.await;
        std::future::pending().await
    };
    tokio::select! {
        // The hook is no more than company: whoever finishes, the rest is what is waited for.
        biased;
        done = rest => done,
        never = beside => never,
    }
}

/// The container's preStop hook, if it has one.
fn pre_stop(
    memory: &Memory,
    id: &ContainerId,
    container: &ContainerName,
) -> Option<(ContainerKind, HookCall)> {
    let pod = memory.asked.pod()?;
    let (kind, spec) = pod.find_container(container.as_str())?;
    let handler = spec.lifecycle.as_ref()?.pre_stop.clone()?;
    let newest = memory.seen.observation().newest_sandbox();
    let call = HookCall {
        pod: pod.clone(),
        pod_ip: newest.and_then(|it| it.ips.first().cloned()),
        container: spec.clone(),
        id: id.clone(),
        handler,
    };
    Some((kind, call))
}

/// Runs the container's preStop hook and stops it, because its start did not go well.
pub(crate) async fn stop_after_pre_stop(
    world: &World,
    memory: &Memory,
    id: &ContainerId,
    container: &ContainerName,
    grace: GracePeriod,
) -> Result<(), RuntimeError> {
    let began = Instant::now();
    let rest = async {
        let left = left_to_stop(grace, began.elapsed());
        world.runtime.stop_container(id, left).await
    };
    run_pre_stop_and(world, memory, (id, container), grace, rest).await
}

fn failed(reason: &'static str, message: String) -> Outcome {
    Outcome::Failed { reason, message }
}

fn done<E: std::fmt::Display>(result: Result<(), E>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(error) => failed("FailedSync", error.to_string()),
    }
}

/// What follows `Error:` in the event of a start that failed: the reason where another event has
/// told the story, else the story; nothing where the story needs no end.
fn event_text(error: &StartError) -> Option<String> {
    match error.reason {
        WaitingReason::PostStartHookError => None,
        WaitingReason::CreateContainerConfigError
        | WaitingReason::CreateContainerError
        | WaitingReason::RunContainerError => Some(error.message.clone()),
        WaitingReason::CrashLoopBackOff
        | WaitingReason::ImagePullBackOff
        | WaitingReason::ErrImagePull
        | WaitingReason::ErrImageNeverPull
        | WaitingReason::InvalidImageName
        | WaitingReason::ImageInspectError
        | WaitingReason::RegistryUnavailable
        | WaitingReason::SignatureValidationFailed => Some(error.reason.to_string()),
    }
}

/// The number a container's log file gets.
pub(crate) fn restart_number(restarts: RestartCount, newest_log: Option<u32>) -> u32 {
    match (restarts, newest_log) {
        (RestartCount::Exactly(count), _) => count,
        (RestartCount::FromLogs, Some(newest)) => newest.saturating_add(1),
        (RestartCount::FromLogs, None) => 0,
    }
}

//! The statuses of a pod's containers.
//!
//! Owned by `compute`. In: the specification, the observation, the previous statuses, each
//! container's facts. Out: one status per container of the specification, whatever the runtime
//! remembers: regular and ephemeral ones by name, init ones in the specification's order.
//!
//! ```text
//! nothing seen:  waiting (ContainerCreating | PodInitializing) ── was running ──▶ the same, last state unknown (137)
//! seen:          newest ▶ state, second newest ▶ last state ── start failed since ──▶ waiting, exit moves to last state
//! ```

use ferrolet_pod::{containers_of, full_container_id, should_start};
use ferrolet_types::{
    Timestamp,
    observed::{ContainerState as Seen, ObservedContainer},
    pod::{ContainerKind, PodView, ProbeKind, init_kind},
};
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, ContainerUser, LinuxContainerUser,
        VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{
    inputs::{ContainerFact, Stage, StatusInputs},
    resources::container_resources,
    restart::{self, RESTARTING_ALL},
};

/// Reason of an end that nobody saw.
pub(crate) const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
/// Exit code of an end that nobody saw: that of a killed process.
pub(crate) const UNKNOWN_EXIT: i32 = 137;
/// Said of a container that has no end although its pod has.
pub(crate) const NOT_LOCATED: &str =
    "The container could not be located when the pod was terminated";
const VANISHED: &str = "The container could not be located when the pod was deleted.  The container used to be Running";
const REMOVED: &str = "The container is removed because RestartAllContainers in place";
const INIT_LOST: &str = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally";

/// The statuses of all containers of a pod.
pub(crate) struct Statuses {
    /// Regular ones, by name.
    pub(crate) regular: Vec<ContainerStatus>,
    /// Init containers and sidecars, in the specification's order.
    pub(crate) init: Vec<ContainerStatus>,
    /// Ephemeral ones, by name.
    pub(crate) ephemeral: Vec<ContainerStatus>,
}

/// Computes the status of every container in the specification.
pub(crate) fn statuses(inputs: &StatusInputs<'_>) -> Statuses {
    let spec = inputs.pod.spec_ref();
    let old = inputs.old();
    let view = View {
        inputs,
        is_restarting_all: restart::is_restarting_all(inputs.pod, inputs.observation, old),
        has_regular: has_regular(inputs),
    };
    let init = spec.init_containers.iter().flatten();
    let ephemeral = containers_of(inputs.pod, ContainerKind::Ephemeral);
    let mut regular = view.list(
        spec.containers.iter().map(|c| (ContainerKind::Regular, c)),
        old.container_statuses.as_ref(),
    );
    let mut ephemeral = view.list(
        ephemeral.iter().map(|c| (ContainerKind::Ephemeral, c.as_ref())),
        old.ephemeral_container_statuses.as_ref(),
    );
    regular.sort_by(|a, b| a.name.cmp(&b.name));
    ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    Statuses {
        regular,
        init: view.list(init.map(|c| (init_kind(c), c)), old.init_container_statuses.as_ref()),
        ephemeral,
    }
}

/// True when the runtime holds a regular container that at least got made: init containers must be
/// through.
fn has_regular(inputs: &StatusInputs<'_>) -> bool {
    inputs.pod.spec_ref().containers.iter().any(|container| {
        let newest = inputs.observation.newest_container(&container.name);
        newest.is_some_and(|seen| !matches!(seen.state, Seen::Unknown))
    })
}

/// What is the same for all containers of the pod.
struct View<'a> {
    inputs: &'a StatusInputs<'a>,
    is_restarting_all: bool,
    has_regular: bool,
}

impl View<'_> {
    fn list<'c>(
        &self,
        containers: impl Iterator<Item = (ContainerKind, &'c Container)>,
        old: Option<&Vec<ContainerStatus>>,
    ) -> Vec<ContainerStatus> {
        let status = |(kind, container): (ContainerKind, &Container)| {
            let mut old = old.into_iter().flatten();
            let old = old.find(|status| status.name == container.name);
            self.status(kind, container, old)
        };
        containers.map(status).collect()
    }

    fn status(
        &self,
        kind: ContainerKind,
        container: &Container,
        old: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let mut seen = self.inputs.observation.containers_named(&container.name);
        let newest = seen.next();
        let mut status = match newest {
            Some(newest) => self.seen(container, newest, old),
            None => self.unseen(container, old),
        };
        if let Some(second) = seen.next() {
            status.last_state = Some(self.state(second, old));
        }
        self.apply_waiting(kind, container, newest, &mut status);
        self.apply_probes(kind, container, old, &mut status);
        if kind == ContainerKind::Regular {
            let fact = self.inputs.fact(&container.name);
            let devices = fact.map(|it| it.devices.clone());
            status.allocated_resources_status = devices.filter(|devices| !devices.is_empty());
        }
        status
    }

    /// A container the runtime holds nothing of.
    fn unseen(&self, container: &Container, old: Option<&ContainerStatus>) -> ContainerStatus {
        let old_state = old.and_then(|old| old.state.as_ref());
        let was_terminated = old_state.is_some_and(|state| state.terminated.is_some());
        let was_running = old_state.is_some_and(|state| state.running.is_some());
        let was_waiting = old_state.is_some_and(|state| state.waiting.is_some());
        let mut status = match old {
            // An end, once told, stands.
            Some(old) if was_terminated => old.clone(),
            _ => ContainerStatus {
                name: container.name.clone(),
                image: container.image.clone().unwrap_or_default(),
                state: Some(waiting(self.default_reason(), "")),
                last_state: Some(old.and_then(|old| old.last_state.clone()).unwrap_or_default()),
                restart_count: old.map_or(0, |old| old.restart_count),
                volume_mounts: self.volume_mounts(container),
                ..ContainerStatus::default()
            },
        };
        let last = status.last_state.get_or_insert_default();
        if self.is_restarting_all && old.is_some() && !was_waiting {
            last.terminated = Some(unseen_end(RESTARTING_ALL, REMOVED));
            status.state = Some(waiting(RESTARTING_ALL, REMOVED));
            status.restart_count += 1;
        } else if was_running && last.terminated.is_none() {
            // Without this the pod would fall back to Pending although it ran.
            last.terminated = Some(unseen_end(STATUS_UNKNOWN, VANISHED));
            if self.inputs.pod.metadata.deletion_timestamp.is_none() {
                status.restart_count += 1;
            }
        }
        status
    }

    /// A container the runtime holds.
    fn seen(
        &self,
        container: &Container,
        seen: &ObservedContainer,
        old: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let id = self.full_id(seen);
        let state = self.state(seen, old);
        let old_end = old.and_then(|old| old.state.as_ref()?.terminated.clone());
        let count = i32::try_from(seen.restart_count).unwrap_or(i32::MAX);
        let old_count = old.map_or(0, |old| old.restart_count);
        let lost_sight = matches!(seen.state, Seen::Unknown) && state.terminated.is_some();
        // A restart in place removes what was counted before, so the counter and the last end live
        // on in the status.
        let follows_an_end = seen.state.is_running() && old_end.is_some() && old_count >= count;
        let is_same = old.and_then(|old| old.container_id.as_deref()) == Some(id.as_str());
        let old_last = old.and_then(|old| old.last_state.as_ref()?.terminated.clone());
        let last = if is_same { None } else { old_end }.or(old_last);
        let was_running = old.is_some_and(|old| is_running(old.state.as_ref()));
        let fact = self.inputs.fact(&container.name);
        let old_mounts = old.and_then(|old| old.volume_mounts.clone());
        ContainerStatus {
            name: container.name.clone(),
            image: seen.image.clone(),
            image_id: seen.image_ref.clone(),
            container_id: Some(id),
            state: Some(state),
            last_state: Some(ContainerState { terminated: last, ..ContainerState::default() }),
            restart_count: count.max(old_count) + i32::from(lost_sight || follows_an_end),
            volume_mounts: old_mounts.or_else(|| self.volume_mounts(container)),
            resources: Some(container_resources(
                container,
                seen,
                fact,
                old.filter(|_| is_same && was_running),
            )),
            allocated_resources: container
                .resources
                .as_ref()
                .and_then(|resources| resources.requests.clone())
                .filter(|requests| !requests.is_empty()),
            user: seen.user.as_ref().map(|user| ContainerUser {
                linux: Some(LinuxContainerUser {
                    uid: user.uid,
                    gid: user.gid,
                    supplemental_groups: Some(user.supplemental_groups.clone())
                        .filter(|groups| !groups.is_empty()),
                }),
            }),
            stop_signal: seen.stop_signal.clone().filter(|_| self.inputs.runtime.shows_stop_signal),
            ..ContainerStatus::default()
        }
    }

    /// The state of one container of the runtime.
    fn state(&self, seen: &ObservedContainer, old: Option<&ContainerStatus>) -> ContainerState {
        match &seen.state {
            Seen::Running { started_at } => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(time(*started_at)) }),
                ..ContainerState::default()
            },
            Seen::Exited(exit) => terminated(ContainerStateTerminated {
                container_id: Some(self.full_id(seen)),
                exit_code: exit.code,
                reason: text(&exit.reason),
                message: text(&exit.message),
                started_at: exit.started_at.map(time),
                finished_at: Some(time(exit.finished_at)),
                signal: None,
            }),
            // It ran and nobody saw it end: that is a failure, and not the same as never having
            // run.
            Seen::Unknown if old.is_some_and(|old| is_running(old.state.as_ref())) => {
                let reason = if self.is_restarting_all { RESTARTING_ALL } else { STATUS_UNKNOWN };
                terminated(unseen_end(reason, NOT_LOCATED))
            }
            Seen::Created | Seen::Unknown => waiting("", ""),
        }
    }

    /// What will start but did not is waiting, and says why.
    fn apply_waiting(
        &self,
        kind: ContainerKind,
        container: &Container,
        newest: Option<&ObservedContainer>,
        status: &mut ContainerStatus,
    ) {
        if matches!(kind, ContainerKind::Init | ContainerKind::Sidecar) {
            let exit = newest.and_then(|seen| seen.state.exit());
            if exit.is_some_and(|exit| exit.code == 0) {
                return;
            }
            let is_waiting = status.state.as_ref().is_some_and(|s| s.waiting.is_some());
            let is_lost = newest.is_none() && self.has_regular && is_waiting;
            if is_lost && kind == ContainerKind::Init {
                status.state = Some(terminated(ContainerStateTerminated {
                    reason: text("Completed"),
                    message: text(INIT_LOST),
                    ..ContainerStateTerminated::default()
                }));
                return;
            }
        }
        // An end that was made up for a container that never was is not the last state of anything.
        let is_over = self.inputs.stage == Stage::Terminated && newest.is_none();
        if is_over || !should_start(self.inputs.pod, container, newest) {
            return;
        }
        let reason = |fact: &ContainerFact| fact.waiting.clone();
        let Some(why) = self.inputs.fact(&container.name).and_then(reason) else {
            return;
        };
        let state = status.state.take().unwrap_or_default();
        if state.terminated.is_some() {
            status.last_state = Some(state);
        }
        status.state = Some(waiting(why.reason.as_str(), &why.message));
    }

    /// `started` and `ready`, from the probes' verdicts or for want of probes.
    fn apply_probes(
        &self,
        kind: ContainerKind,
        container: &Container,
        old: Option<&ContainerStatus>,
        status: &mut ContainerStatus,
    ) {
        let is_running = is_running(status.state.as_ref());
        // After the agent restarted there is no verdict yet; what was told of this very container
        // still holds.
        let same = old.filter(|old| old.container_id == status.container_id && is_running);
        let fact = self.inputs.fact(&container.name);
        let started = is_running
            && fact.and_then(|fact| fact.started).unwrap_or_else(|| {
                same.is_some_and(|old| old.started == Some(true))
                    || !has_probe(container, ProbeKind::Startup)
            });
        let ready = started
            && fact.and_then(|fact| fact.ready).unwrap_or_else(|| {
                same.is_some_and(|old| old.ready) || !has_probe(container, ProbeKind::Readiness)
            });
        match kind {
            ContainerKind::Ephemeral => {}
            ContainerKind::Regular | ContainerKind::Sidecar => {
                (status.started, status.ready) = (Some(started), ready);
            }
            ContainerKind::Init => {
                let end = status.state.as_ref().and_then(|s| s.terminated.as_ref());
                (status.started, status.ready) =
                    (Some(started), end.is_some_and(|end| end.exit_code == 0));
            }
        }
    }

    fn default_reason(&self) -> &'static str {
        match self.inputs.pod.spec_ref().init_containers.as_deref() {
            None | Some([]) => "ContainerCreating",
            Some(_) => "PodInitializing",
        }
    }

    fn full_id(&self, seen: &ObservedContainer) -> String {
        full_container_id(self.inputs.runtime.name, &seen.id)
    }

    fn volume_mounts(&self, container: &Container) -> Option<Vec<VolumeMountStatus>> {
        let mounts = container.volume_mounts.iter().flatten();
        let statuses = mounts.map(|mount| {
            let is_read_only = mount.read_only == Some(true);
            let is_recursive = match mount.recursive_read_only.as_deref() {
                Some("Enabled" | "IfPossible") => self.inputs.runtime.has_recursive_read_only,
                _ => false,
            };
            let mode = if is_recursive { "Enabled" } else { "Disabled" };
            VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only: is_read_only.then_some(true),
                recursive_read_only: is_read_only.then(|| mode.to_owned()),
                volume_status: None,
            }
        });
        Some(statuses.collect()).filter(|list: &Vec<_>| !list.is_empty())
    }
}

/// An end that nobody saw.
pub(crate) fn unseen_end(reason: &str, message: &str) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: UNKNOWN_EXIT,
        reason: text(reason),
        message: text(message),
        ..ContainerStateTerminated::default()
    }
}

/// The API's time.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(at.0)
}

/// A text of the API: absent when empty.
pub(crate) fn text(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// A state that has ended.
pub(crate) fn terminated(end: ContainerStateTerminated) -> ContainerState {
    ContainerState { terminated: Some(end), ..ContainerState::default() }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: text(reason), message: text(message) }),
        ..ContainerState::default()
    }
}

fn is_running(state: Option<&ContainerState>) -> bool {
    state.is_some_and(|state| state.running.is_some())
}

fn has_probe(container: &Container, kind: ProbeKind) -> bool {
    kind.of(container).is_some()
}

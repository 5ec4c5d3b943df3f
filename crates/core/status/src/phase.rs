//! The pod's phase, told from its containers' statuses.
//!
//! Owned by `compute`. In: the specification and the computed statuses. Out: a phase. Never looks
//! at the previous phase; that a terminal phase stays is `compute`'s rule.

use ferrolet_pod::restarts_after;
use ferrolet_types::pod::{Phase, PodView, is_sidecar};
use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus, Pod};

use crate::restart::RESTARTING_ALL;

/// What the phase depends on besides the statuses.
#[derive(Clone, Copy)]
pub(crate) struct PhaseFacts {
    /// True when no container will start again, whatever the policy says.
    pub(crate) is_over: bool,
    /// True when a regular container exists in the sandbox in use.
    pub(crate) is_initialized: bool,
}

/// Where a container stands, as far as the phase cares.
enum Standing<'a> {
    Running(&'a ContainerStatus),
    Ended(&'a ContainerStateTerminated),
    /// Waiting to start again.
    Between(&'a ContainerStateTerminated),
    /// Waiting to start for the first time.
    New,
    Unknown,
}

#[derive(Default)]
struct Counts {
    has_failed_for_good: bool,
    n_pending_init: usize,
    n_pending_sidecars: usize,
    n_unknown: usize,
    n_running: usize,
    n_waiting: usize,
    n_stopped: usize,
    n_final: usize,
    n_succeeded: usize,
}

/// The phase that these statuses amount to.
pub(crate) fn phase(
    pod: &Pod,
    init: &[ContainerStatus],
    regular: &[ContainerStatus],
    facts: PhaseFacts,
) -> Phase {
    let spec = pod.spec_ref();
    let mut counts = Counts::default();
    for container in spec.init_containers.iter().flatten() {
        let standing = standing(init, container);
        if is_sidecar(container) {
            counts.sidecar(standing);
        } else {
            counts.init(pod, container, standing);
        }
    }
    for container in &spec.containers {
        counts.regular(pod, container, standing(regular, container));
    }
    counts.phase(pod, facts)
}

impl Counts {
    fn init(&mut self, pod: &Pod, container: &Container, standing: Standing<'_>) {
        match standing {
            Standing::Ended(end) | Standing::Between(end) => {
                let is_failed = end.exit_code != 0;
                self.has_failed_for_good |= is_failed && !comes_back(pod, container, end);
            }
            Standing::Running(_) | Standing::New | Standing::Unknown => self.n_pending_init += 1,
        }
    }

    /// A sidecar's own end says nothing of the pod.
    fn sidecar(&mut self, standing: Standing<'_>) {
        match standing {
            Standing::Running(status) => {
                self.n_running += 1;
                self.n_pending_sidecars += usize::from(status.started != Some(true));
            }
            Standing::Ended(_) | Standing::Between(_) => {}
            Standing::New => {
                self.n_pending_sidecars += 1;
                self.n_waiting += 1;
            }
            Standing::Unknown => self.n_unknown += 1,
        }
    }

    fn regular(&mut self, pod: &Pod, container: &Container, standing: Standing<'_>) {
        match standing {
            Standing::Running(_) => self.n_running += 1,
            Standing::Ended(end) => {
                self.n_stopped += 1;
                self.n_final += usize::from(!comes_back(pod, container, end));
                self.n_succeeded += usize::from(end.exit_code == 0);
            }
            Standing::Between(end) => {
                self.n_stopped += 1;
                self.n_final += usize::from(!comes_back(pod, container, end));
            }
            Standing::New => self.n_waiting += 1,
            Standing::Unknown => self.n_unknown += 1,
        }
    }

    fn phase(&self, pod: &Pod, facts: PhaseFacts) -> Phase {
        if self.has_failed_for_good {
            return Phase::Failed;
        }
        // A sidecar that restarts after the pod got going does not make the pod new again.
        let is_initializing =
            self.n_pending_init > 0 || self.n_pending_sidecars > 0 && !facts.is_initialized;
        if is_initializing || self.n_waiting > 0 || self.n_unknown > 0 {
            return Phase::Pending;
        }
        if self.n_running > 0 {
            return Phase::Running;
        }
        if self.n_stopped == 0 {
            return Phase::Pending;
        }
        // A static pod has no terminal phase: its manifest is still there and it would start again.
        let is_final = facts.is_over && !pod.is_static() || self.n_final == self.n_stopped;
        match (is_final, self.n_succeeded == self.n_stopped) {
            (false, _) => Phase::Running,
            (true, true) => Phase::Succeeded,
            (true, false) => Phase::Failed,
        }
    }
}

fn comes_back(pod: &Pod, container: &Container, end: &ContainerStateTerminated) -> bool {
    end.reason.as_deref() == Some(RESTARTING_ALL) || restarts_after(pod, container, end.exit_code)
}

fn standing<'a>(statuses: &'a [ContainerStatus], container: &Container) -> Standing<'a> {
    let Some(status) = statuses.iter().find(|s| s.name == container.name) else {
        return Standing::Unknown;
    };
    let Some(state) = &status.state else {
        return Standing::Unknown;
    };
    if state.running.is_some() {
        return Standing::Running(status);
    }
    if let Some(end) = &state.terminated {
        return Standing::Ended(end);
    }
    if state.waiting.is_none() {
        return Standing::Unknown;
    }
    match status.last_state.as_ref().and_then(|last| last.terminated.as_ref()) {
        Some(end) => Standing::Between(end),
        None => Standing::New,
    }
}

//! What the worker of a pod tells the probes, and what they tell it: plain data for both sides.
//!
//! A worker says what runs ([`PodProbes`]) whenever that changes, first of all before it starts any container; the probes
//! answer with a [`ProbeReport`] whenever a result changes. A worker begins each new container with every result at
//! [`ProbeResult::Pending`] and needs no report to get there.

use k8s_openapi::api::core::v1::PodStatus;

use crate::{ContainerId, ContainerName, GracePeriod, Pod, PodUid, Timestamp, pod::ProbeKind};

/// A pod to be probed, as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct PodProbes {
    /// The pod; its specification names the probes.
    pub pod: Pod,
    /// Its addresses, the primary one first. For a pod on the node's network: the node's.
    pub pod_ips: Vec<String>,
    /// Those of its containers that run now. Who is missing here is not probed.
    pub running: Vec<RunningContainer>,
    /// How far the pod is.
    pub stage: ProbeStage,
}

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningContainer {
    /// Its name in the pod.
    pub name: ContainerName,
    /// Its handle; another one means another life, and results begin anew.
    pub id: ContainerId,
    /// When its process began.
    pub started_at: Timestamp,
    /// What the last status that was published said of this very container; `None` when it said nothing.
    pub told: Option<Told>,
}

/// What a published status said of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Told {
    /// It had started.
    pub started: bool,
    /// It was ready.
    pub ready: bool,
}

/// How far a probed pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStage {
    /// Its containers shall run: every probe counts.
    Running,
    /// Its containers are being stopped: only readiness still matters.
    Terminating,
}

/// A probe's result changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// Whose container.
    pub uid: PodUid,
    /// Which container.
    pub container: ContainerName,
    /// Which life of it; a report about another one is old news.
    pub container_id: ContainerId,
    /// Which probe.
    pub kind: ProbeKind,
    /// What it says now.
    pub result: ProbeResult,
}

/// What a probe says of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// Nothing yet.
    Pending,
    /// Well.
    Success,
    /// Not well.
    Failure {
        /// The probe's own grace for the stop that follows.
        grace: Option<GracePeriod>,
    },
}

impl Told {
    /// What the pod's own status says of the container with that id.
    pub fn by_status(pod: &Pod, id: &ContainerId) -> Option<Self> {
        let mut all = Self::all_of(pod.status.as_ref()?);
        all.find(|(it, _)| *it == id.as_str()).map(|(_, told)| told)
    }

    /// What a status says of each container that it names by its id.
    pub fn all_of(status: &PodStatus) -> impl Iterator<Item = (&str, Self)> {
        let init = status.init_container_statuses.iter().flatten();
        let all = init.chain(status.container_statuses.iter().flatten());
        all.filter_map(|it| {
            // The API writes `containerd://id`, the runtime just the id.
            let (_, id) = it.container_id.as_deref()?.rsplit_once("://")?;
            let told = Self { started: it.started == Some(true), ready: it.ready };
            Some((id, told))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1 as api;

    use super::*;

    #[test]
    fn a_status_speaks_only_of_the_container_it_names() {
        let status = |id: &str, started, ready| api::ContainerStatus {
            container_id: Some(id.to_owned()),
            started: Some(started),
            ready,
            ..Default::default()
        };
        let pod: Pod = Arc::new(api::Pod {
            status: Some(api::PodStatus {
                container_statuses: Some(vec![status("containerd://a1", true, true)]),
                init_container_statuses: Some(vec![status("containerd://b2", true, false)]),
                ..Default::default()
            }),
            ..Default::default()
        });
        let check = |id: &str, told: Option<(bool, bool)>| {
            let told = told.map(|(started, ready)| Told { started, ready });
            assert_eq!(Told::by_status(&pod, &id.into()), told, "{id}");
        };
        check("a1", Some((true, true)));
        check("b2", Some((true, false)));
        check("1", None);
        check("c3", None);
    }
}

//! The worker's side of probing: tells the probes what runs, and keeps what they answer about the
//! containers that run now.

use std::collections::BTreeMap;

use ferrolet_lifecycle::{ContainerProbes, PodState, Verdict};
use ferrolet_pod::{init_and_regular, told_of};
use ferrolet_status::ContainerFact;
use ferrolet_types::{
    ContainerId, ContainerName, Pod,
    observed::{ContainerState, PodObservation},
    pod::{PodView, ProbeKind},
    probe::{PodProbes, ProbeReport, ProbeResult, ProbeStage, RunningContainer},
};
use k8s_openapi::api::core::v1::Container;

use crate::memory::{Memory, Seen};

/// What probes say of one life of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    pub(crate) id: ContainerId,
    pub(crate) verdicts: ContainerProbes,
}

/// What probes say of a pod's containers.
pub(crate) type Probes = BTreeMap<ContainerName, Probed>;

const NOTHING_YET: ContainerProbes =
    ContainerProbes { started: Verdict::Pending, live: Verdict::Pending, ready: Verdict::Pending };

impl Seen {
    /// Takes a probe's report; one about an earlier life of the container is old news.
    pub(crate) fn take_report(&mut self, report: &ProbeReport) {
        let mut probes = std::mem::take(&mut self.probes);
        take_report(&mut probes, self.observation(), report);
        self.probes = probes;
    }

    /// What probes say once these reports are taken in too.
    pub(crate) fn probes_with(&self, reports: &[ProbeReport]) -> Probes {
        let mut probes = self.probes.clone();
        let reports = reports.iter();
        reports.for_each(|report| take_report(&mut probes, self.observation(), report));
        probes
    }

    /// Drops what probes said of containers that are no longer the newest of their name.
    pub(crate) fn forget_old_verdicts(&mut self) {
        let mut probes = std::mem::take(&mut self.probes);
        probes.retain(|name, probed| {
            let newest = self.observation().newest_container(name.as_str());
            newest.is_some_and(|it| it.id == probed.id)
        });
        self.probes = probes;
    }

    /// Goes on from what an earlier life of the agent told of containers that still run; probes
    /// that have spoken know better.
    pub(crate) fn recall_verdicts(&mut self) {
        let mut probes = std::mem::take(&mut self.probes);
        for container in self.observation().running() {
            let Some(told) = self.told_before.get(&container.id) else {
                continue;
            };
            let verdict = |was_well| match was_well {
                true => Verdict::Success,
                false => Verdict::Pending,
            };
            let probed = || Probed {
                id: container.id.clone(),
                verdicts: ContainerProbes {
                    started: verdict(told.started),
                    ready: verdict(told.ready),
                    ..NOTHING_YET
                },
            };
            probes.entry(container.name.clone()).or_insert_with(probed);
        }
        self.probes = probes;
    }
}

impl Memory {
    /// What the probes need to know of the pod; `None` when it has none, or nothing of it runs any
    /// more.
    pub(crate) fn probed_pod(&self, host_ips: &[String]) -> Option<PodProbes> {
        let pod = self.asked.pod().filter(|pod| has_probes(pod))?;
        let stage = match self.state {
            PodState::Running => ProbeStage::Running,
            PodState::Stopping { .. } => ProbeStage::Terminating,
            PodState::Stopped | PodState::Settled | PodState::Gone => return None,
        };
        let seen = self.seen.observation();
        let sandbox_ips = seen.newest_sandbox().map(|it| it.ips.clone()).unwrap_or_default();
        let pod_ips = if pod.is_host_network() { host_ips.to_vec() } else { sandbox_ips };
        let running = seen.containers.iter().filter_map(|it| match it.state {
            ContainerState::Running { started_at } => Some(RunningContainer {
                name: it.name.clone(),
                id: it.id.clone(),
                started_at,
                told: told_of(pod, &it.id).or_else(|| self.seen.told_before.get(&it.id).copied()),
            }),
            ContainerState::Created | ContainerState::Exited(_) | ContainerState::Unknown => None,
        });
        Some(PodProbes { pod: pod.clone(), pod_ips, running: running.collect(), stage })
    }
}

fn take_report(probes: &mut Probes, seen: &PodObservation, report: &ProbeReport) {
    let newest = seen.newest_container(report.container.as_str());
    if newest.is_none_or(|it| it.id != report.container_id) {
        return;
    }
    let fresh = || Probed { id: report.container_id.clone(), verdicts: NOTHING_YET };
    let probed = probes.entry(report.container.clone()).or_insert_with(fresh);
    if probed.id != report.container_id {
        *probed = fresh();
    }
    let verdict = match report.result {
        ProbeResult::Pending => Verdict::Pending,
        ProbeResult::Success => Verdict::Success,
        ProbeResult::Failure { grace } => Verdict::Failure { grace },
    };
    match report.kind {
        ProbeKind::Liveness => probed.verdicts.live = verdict,
        ProbeKind::Readiness => probed.verdicts.ready = verdict,
        ProbeKind::Startup => probed.verdicts.started = verdict,
    }
}

/// True when any container of the pod declares a probe.
pub(crate) fn has_probes(pod: &Pod) -> bool {
    let probed = |container: &Container| {
        [ProbeKind::Liveness, ProbeKind::Readiness, ProbeKind::Startup]
            .iter()
            .any(|kind| kind.of(container).is_some())
    };
    init_and_regular(pod.spec_ref()).any(probed)
}

/// The facts of a container's probes, added to what is known of it.
pub(crate) fn with_probes(mut fact: ContainerFact, probed: &Probed) -> ContainerFact {
    let said = |verdict: Verdict| match verdict {
        Verdict::Pending => None,
        Verdict::Success => Some(true),
        Verdict::Failure { .. } => Some(false),
    };
    fact.started = said(probed.verdicts.started);
    fact.ready = said(probed.verdicts.ready);
    fact
}

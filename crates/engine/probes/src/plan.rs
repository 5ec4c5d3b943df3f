//! Which probe runs when, and what its outcomes mean: the pure half. Owned by the loop in `run`;
//! knows no socket and no clock.
//!
//! Every pod has its containers, every container its life (one runtime id) and up to three probes.
//! In: what runs, outcomes, and `now`. Out: launches that are due, and reports of results that
//! changed.
//!
//! ```text
//!              new life                    threshold reached
//!   (no life) ─────────► gated ──► ticking ─────────────────► held      liveness failed, startup decided, pod terminating
//!        ▲                 │ startup succeeded  ▲ │ else                   │
//!        │                 └────────────────────┘ └─► ticking              │
//!        └────────────────────────── life over ◄───────────────────────────┘
//! ```
//!
//! Rhythm, as upstream's (`pkg/kubelet/prober/worker.go`): ticks lie on a grid that begins when the
//! pod is first watched, before its containers run; a readiness probe also runs at once when its
//! container begins, when the startup probe succeeds, and when somebody hurries, and its grid
//! begins anew there. Two differences on purpose: counts begin anew with each life, and only
//! containers found running by a young agent are spread over their period, not those it starts
//! itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ferrolet_types::pod::{ContainerKind, PodView as _, ProbeKind};
use ferrolet_types::probe::{PodProbes, ProbeReport, ProbeStage};
use ferrolet_types::{ContainerId, ContainerName, Pod, PodUid, Timestamp};

use crate::container::ContainerPlan;
use crate::rule::Moment;

/// The present, in both senses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) moment: Moment,
    pub(crate) wall: Timestamp,
}

/// Everything that is probed, and when next.
#[derive(Default)]
pub(crate) struct Plan {
    pods: HashMap<PodUid, PodPlan>,
    due: BTreeSet<(Moment, Place)>,
    n_launched: u64,
}

/// Where a probe stands in the plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    uid: PodUid,
    container: usize,
    kind: ProbeKind,
}

/// One launch of one probe; an outcome with another ticket comes too late.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    place: Place,
    serial: u64,
}

/// A probe to run now.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) ticket: Ticket,
    pub(crate) target: Target,
}

/// What to probe.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) pod: Pod,
    pub(crate) pod_ip: Option<Arc<str>>,
    pub(crate) container: ContainerName,
    pub(crate) id: ContainerId,
    pub(crate) kind: ProbeKind,
}

/// What an outcome counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Success,
    Failure,
    /// The probe itself did not work: says nothing of the container.
    Nothing,
}

/// What followed from something that happened.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    /// Results that changed.
    pub(crate) reports: Vec<ProbeReport>,
    /// Launches that nobody waits for any more.
    pub(crate) over: Vec<Ticket>,
}

struct PodPlan {
    pod: Pod,
    pod_ip: Option<Arc<str>>,
    stage: ProbeStage,
    containers: Vec<ContainerPlan>,
}

impl Plan {
    /// Takes in how a pod is now. `jitter` answers with numbers from 0 to 1.
    pub(crate) fn watch(
        &mut self,
        order: &PodProbes,
        now: Now,
        mut jitter: impl FnMut() -> f64,
    ) -> Changes {
        let uid = order.pod.uid();
        let mut changes = Changes::default();
        let plan = self.pods.entry(uid.clone()).or_insert_with(|| PodPlan {
            pod: order.pod.clone(),
            pod_ip: None,
            stage: ProbeStage::Running,
            containers: containers_of(&order.pod, now.moment),
        });
        if plan.containers.is_empty() {
            self.pods.remove(&uid);
            return changes;
        }
        plan.pod = order.pod.clone();
        if plan.pod_ip.as_deref() != order.pod_ips.first().map(String::as_str) {
            plan.pod_ip = order.pod_ips.first().map(|it| it.as_str().into());
        }
        if order.stage == ProbeStage::Terminating {
            plan.stage = ProbeStage::Terminating;
        }
        for (index, container) in plan.containers.iter_mut().enumerate() {
            let over = |(kind, serial)| Ticket { place: place(&uid, index, kind), serial };
            let running = order.running.iter().find(|it| it.name == *container.name());
            if container.life() != running.map(|it| &it.id) {
                changes.over.extend(container.end_life().map(over));
                if let Some(running) = running {
                    let reports = container.begin_life(running, &uid, now, &mut jitter);
                    changes.reports.extend(reports);
                }
            }
            if plan.stage == ProbeStage::Terminating {
                let (ended, report) = container.wind_down(&uid, now.moment);
                changes.over.extend(ended.into_iter().map(over));
                changes.reports.extend(report);
            }
        }
        self.reschedule(&uid, now.moment);
        changes
    }

    /// Wants a readiness probe at once of every container of the pod that is not ready.
    pub(crate) fn hurry(&mut self, uid: &PodUid, now: Moment) {
        let Some(plan) = self.pods.get_mut(uid) else {
            return;
        };
        for container in &mut plan.containers {
            container.hurry_readiness(now);
        }
        self.reschedule(uid, now);
    }

    /// Drops a pod; answers with its launches that are under way.
    pub(crate) fn forget(&mut self, uid: &PodUid) -> Vec<Ticket> {
        let mut over = Vec::new();
        for container in self.pods.get_mut(uid).iter_mut().flat_map(|it| &mut it.containers) {
            over.push(container.end_life().collect::<Vec<_>>());
        }
        self.reschedule(uid, Moment::default());
        self.pods.remove(uid);
        let tickets = over.into_iter().enumerate().flat_map(|(index, ended)| {
            ended
                .into_iter()
                .map(move |(kind, serial)| Ticket { place: place(uid, index, kind), serial })
        });
        tickets.collect()
    }

    /// When the next probe is due.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next probe that is due by now; it counts as under way from here on.
    pub(crate) fn launch(&mut self, now: Moment) -> Option<Launch> {
        if self.next_due()? > now {
            return None;
        }
        let (at, place) = self.due.pop_first()?;
        self.n_launched += 1;
        let serial = self.n_launched;
        let pod = self.pods.get_mut(&place.uid);
        let pod = pod.expect("a pod leaves the timetable before it leaves the plan");
        let container = &mut pod.containers[place.container];
        let id = container.launch(place.kind, serial, at);
        let target = Target {
            pod: pod.pod.clone(),
            pod_ip: pod.pod_ip.clone(),
            container: container.name().clone(),
            id,
            kind: place.kind,
        };
        let ticket = Ticket { place, serial };
        Some(Launch { ticket, target })
    }

    /// True while the outcome of this launch still matters.
    pub(crate) fn is_awaited(&self, ticket: &Ticket) -> bool {
        let pod = self.pods.get(&ticket.place.uid);
        let container = pod.and_then(|it| it.containers.get(ticket.place.container));
        container.is_some_and(|it| it.awaits(ticket.place.kind, ticket.serial))
    }

    /// Takes in how a launch ended.
    pub(crate) fn judge(
        &mut self,
        ticket: &Ticket,
        count: Count,
        now: Moment,
    ) -> Option<ProbeReport> {
        if !self.is_awaited(ticket) {
            return None;
        }
        let uid = &ticket.place.uid;
        let container = &mut self.pods.get_mut(uid)?.containers[ticket.place.container];
        let report = container.judge(uid, ticket.place.kind, count, now);
        self.reschedule(uid, now);
        report
    }

    /// Brings the timetable of one pod in line with its state.
    fn reschedule(&mut self, uid: &PodUid, now: Moment) {
        let Some(plan) = self.pods.get_mut(uid) else {
            return;
        };
        for (index, container) in plan.containers.iter_mut().enumerate() {
            for (kind, was, is) in container.rebook(now) {
                let place = place(uid, index, kind);
                if let Some(was) = was {
                    self.due.remove(&(was, place.clone()));
                }
                if let Some(is) = is {
                    self.due.insert((is, place));
                }
            }
        }
    }
}

fn place(uid: &PodUid, container: usize, kind: ProbeKind) -> Place {
    Place { uid: uid.clone(), container, kind }
}

/// The containers of a pod that have probes: regular ones and sidecars.
fn containers_of(pod: &Pod, now: Moment) -> Vec<ContainerPlan> {
    [ContainerKind::Sidecar, ContainerKind::Regular]
        .into_iter()
        .flat_map(|kind| ferrolet_pod::containers_of(pod, kind))
        .filter_map(|container| ContainerPlan::of(&container, now))
        .collect()
}

#[cfg(test)]
mod tests;

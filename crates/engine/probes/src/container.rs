//! One container in the plan: its life and its probes. Pure; part of `plan`, which owns it.

use std::time::Duration;

use ferrolet_types::pod::ProbeKind;
use ferrolet_types::probe::{ProbeReport, ProbeResult, RunningContainer};
use ferrolet_types::{ContainerId, ContainerName, PodUid};
use k8s_openapi::api::core::v1::Container;

use crate::plan::{Count, Now};
use crate::rule::{Moment, Rule};

const FAILED: ProbeResult = ProbeResult::Failure { grace: None };

/// A container that has probes.
pub(crate) struct ContainerPlan {
    name: ContainerName,
    life: Option<ContainerId>,
    probes: Vec<ProbePlan>,
}

struct ProbePlan {
    kind: ProbeKind,
    rule: Rule,
    /// Where the grid of ticks begins.
    anchor: Moment,
    /// The end of the initial delay.
    not_before: Moment,
    result: ProbeResult,
    /// What the last outcomes counted for, and how many of them in a row.
    last: (Count, u32),
    /// Decided for the rest of this life.
    is_held: bool,
    /// Somebody hurried while a launch was under way.
    is_wanted_again: bool,
    /// The launch under way: its serial, and when it was due.
    under_way: Option<(u64, Moment)>,
    /// When it is due next, provided that nothing keeps it from running.
    next: Option<Moment>,
    /// When the timetable says it is due.
    booked: Option<Moment>,
}

impl ContainerPlan {
    /// The plan of a container; `None` when it has no probes.
    pub(crate) fn of(container: &Container, now: Moment) -> Option<Self> {
        let kinds = [ProbeKind::Startup, ProbeKind::Readiness, ProbeKind::Liveness];
        let probes: Vec<_> = kinds
            .into_iter()
            .filter_map(|kind| Some(ProbePlan::new(kind, Rule::of(kind.of(container)?), now)))
            .collect();
        (!probes.is_empty()).then(|| Self {
            name: container.name.as_str().into(),
            life: None,
            probes,
        })
    }

    pub(crate) fn name(&self) -> &ContainerName {
        &self.name
    }

    pub(crate) fn life(&self) -> Option<&ContainerId> {
        self.life.as_ref()
    }

    /// A container began to run, or was found running: results begin anew, or go on from what was
    /// told.
    pub(crate) fn begin_life(
        &mut self,
        running: &RunningContainer,
        uid: &PodUid,
        now: Now,
        jitter: &mut impl FnMut() -> f64,
    ) -> Vec<ProbeReport> {
        let age = now.wall.since(running.started_at);
        let uptime = now.moment.0;
        // A container that began before the agent was found by it. What was told names its very id,
        // so it holds whatever its age; upstream trusts it only after ten seconds, and lets the
        // readiness of younger ones flap.
        let is_kept = age > uptime;
        let told = running.told.unwrap_or_default();
        self.life = Some(running.id.clone());
        let mut news = Vec::new();
        for probe in &mut self.probes {
            let rule = probe.rule;
            *probe = ProbePlan {
                booked: probe.booked,
                ..ProbePlan::new(probe.kind, rule, probe.anchor)
            };
            let delay_left = rule.initial_delay.saturating_sub(age);
            probe.not_before = now.moment.after(delay_left);
            if age > uptime && uptime < rule.period {
                probe.anchor = now.moment.after(rule.period.mul_f64(jitter()));
                probe.not_before = probe.not_before.max(probe.anchor);
            } else if probe.kind == ProbeKind::Readiness {
                probe.anchor = now.moment;
            }
            // Only what the worker cannot know is news: it begins with nothing told and every
            // result pending.
            let is_news;
            (probe.result, is_news) = match (probe.kind, is_kept) {
                (ProbeKind::Liveness, _) => (ProbeResult::Success, false),
                (ProbeKind::Readiness, true) => (ProbeResult::Pending, false),
                (ProbeKind::Readiness, false) => (FAILED, told.ready),
                (ProbeKind::Startup, true) if told.started => (ProbeResult::Success, true),
                (ProbeKind::Startup, _) => (ProbeResult::Pending, told.started),
            };
            // A startup probe that has succeeded has nothing left to find out.
            probe.is_held =
                probe.kind == ProbeKind::Startup && probe.result == ProbeResult::Success;
            if is_news {
                news.push((probe.kind, probe.result));
            }
        }
        news.into_iter().filter_map(|(kind, result)| self.report(uid, kind, result)).collect()
    }

    /// The container runs no more; answers with the launches under way.
    pub(crate) fn end_life(&mut self) -> impl Iterator<Item = (ProbeKind, u64)> {
        self.life = None;
        let ended = self.probes.iter_mut().filter_map(ProbePlan::abandon);
        ended.collect::<Vec<_>>().into_iter()
    }

    /// The pod is being stopped: liveness and startup matter no more. Who had not started counts as
    /// started from here on, so that its readiness can be told.
    pub(crate) fn wind_down(
        &mut self,
        uid: &PodUid,
        now: Moment,
    ) -> (Vec<(ProbeKind, u64)>, Option<ProbeReport>) {
        let mut ended = Vec::new();
        let mut is_released = false;
        for probe in &mut self.probes {
            if probe.kind == ProbeKind::Readiness {
                continue;
            }
            probe.is_held = true;
            ended.extend(probe.abandon());
            let is_pending = probe.result == ProbeResult::Pending && self.life.is_some();
            if probe.kind == ProbeKind::Startup && is_pending {
                probe.result = ProbeResult::Success;
                is_released = true;
            }
        }
        if !is_released {
            return (ended, None);
        }
        self.hurry_readiness(now);
        let report = self.report(uid, ProbeKind::Startup, ProbeResult::Success);
        (ended, report)
    }

    /// Wants a readiness probe at once, unless it is ready or cannot be probed yet.
    pub(crate) fn hurry_readiness(&mut self, now: Moment) {
        if self.life.is_none() || !self.is_started() {
            return;
        }
        if let Some(probe) = self.probe_mut(ProbeKind::Readiness)
            && probe.result != ProbeResult::Success
            && probe.not_before <= now
        {
            if probe.under_way.is_some() {
                probe.is_wanted_again = true;
            } else {
                probe.anchor = now;
                probe.next = Some(now);
            }
        }
    }

    /// Marks a probe as under way; answers with the life it looks at.
    pub(crate) fn launch(&mut self, kind: ProbeKind, serial: u64, due: Moment) -> ContainerId {
        let probe = self.probe_mut(kind).expect("only its probes were booked");
        probe.next = None;
        probe.booked = None;
        probe.under_way = Some((serial, due));
        self.life.clone().expect("only the living are booked")
    }

    pub(crate) fn awaits(&self, kind: ProbeKind, serial: u64) -> bool {
        let mut probes = self.probes.iter();
        probes.any(|it| it.kind == kind && it.under_way.is_some_and(|(it, _)| it == serial))
    }

    /// Takes in how the launch under way ended; answers with the result when it changed.
    pub(crate) fn judge(
        &mut self,
        uid: &PodUid,
        kind: ProbeKind,
        count: Count,
        now: Moment,
    ) -> Option<ProbeReport> {
        let result = self.probe_mut(kind)?.judge(count, now)?;
        if kind == ProbeKind::Startup && result == ProbeResult::Success {
            self.hurry_readiness(now);
        }
        self.report(uid, kind, result)
    }

    /// What the timetable must change: the probe, when it was booked for, and when it shall be.
    pub(crate) fn rebook(
        &mut self,
        now: Moment,
    ) -> Vec<(ProbeKind, Option<Moment>, Option<Moment>)> {
        let is_started = self.is_started();
        let is_alive = self.life.is_some();
        let mut changes = Vec::new();
        for probe in &mut self.probes {
            let is_its_turn = probe.kind == ProbeKind::Startup || is_started;
            let is_open = is_alive && is_its_turn && !probe.is_held && probe.under_way.is_none();
            let grid = || probe.rule.tick(probe.anchor, probe.not_before.max(now));
            probe.next = is_open.then(|| probe.next.unwrap_or_else(grid));
            if probe.next != probe.booked {
                changes.push((probe.kind, probe.booked, probe.next));
                probe.booked = probe.next;
            }
        }
        changes
    }

    /// True when it has no startup probe, or that has succeeded.
    fn is_started(&self) -> bool {
        let mut probes = self.probes.iter();
        let startup = probes.find(|it| it.kind == ProbeKind::Startup);
        startup.is_none_or(|it| it.result == ProbeResult::Success)
    }

    fn probe_mut(&mut self, kind: ProbeKind) -> Option<&mut ProbePlan> {
        self.probes.iter_mut().find(|it| it.kind == kind)
    }

    fn report(&self, uid: &PodUid, kind: ProbeKind, result: ProbeResult) -> Option<ProbeReport> {
        Some(ProbeReport {
            uid: uid.clone(),
            container: self.name.clone(),
            container_id: self.life.clone()?,
            kind,
            result,
        })
    }
}

impl ProbePlan {
    fn new(kind: ProbeKind, rule: Rule, anchor: Moment) -> Self {
        Self {
            kind,
            rule,
            anchor,
            not_before: anchor,
            result: ProbeResult::Pending,
            last: (Count::Nothing, 0),
            is_held: false,
            is_wanted_again: false,
            under_way: None,
            next: None,
            booked: None,
        }
    }

    fn abandon(&mut self) -> Option<(ProbeKind, u64)> {
        self.is_wanted_again = false;
        let (serial, _) = self.under_way.take()?;
        Some((self.kind, serial))
    }

    /// Counts an outcome and sets the next tick; answers with the result when it changed.
    fn judge(&mut self, count: Count, now: Moment) -> Option<ProbeResult> {
        let (_, due) = self.under_way.take()?;
        // A tick that passed meanwhile is made good at once; more than one are not.
        let after = due.after(Duration::from_nanos(1));
        self.next = Some(self.rule.tick(self.anchor, after).max(now));
        let result = self.decide(count);
        if std::mem::take(&mut self.is_wanted_again) && self.result != ProbeResult::Success {
            self.anchor = now;
            self.next = Some(now);
        }
        result
    }

    fn decide(&mut self, count: Count) -> Option<ProbeResult> {
        if count == Count::Nothing {
            return None;
        }
        let (last, n) = self.last;
        let n = if last == count { n.saturating_add(1) } else { 1 };
        self.last = (count, n);
        let (threshold, result) = match (count, self.kind) {
            (Count::Success | Count::Nothing, _) => (self.rule.n_successes, ProbeResult::Success),
            (Count::Failure, ProbeKind::Readiness) => (self.rule.n_failures, FAILED),
            (Count::Failure, _) => {
                let grace = self.rule.grace;
                (self.rule.n_failures, ProbeResult::Failure { grace })
            }
        };
        if n < threshold {
            return None;
        }
        // A container that failed for good will be restarted; until then nobody shall disturb it.
        self.is_held = match self.kind {
            ProbeKind::Startup => true,
            ProbeKind::Liveness => count == Count::Failure,
            ProbeKind::Readiness => false,
        };
        let is_new = self.result != result;
        self.result = result;
        is_new.then_some(result)
    }
}

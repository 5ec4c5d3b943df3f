//! The rules of probes as tables: pods are told, time passes, outcomes come in, launches
//! and reports are compared.

use std::time::Duration;

use ferrolet_testkit::pod;
use ferrolet_types::GracePeriod;
use ferrolet_types::probe::{ProbeResult, RunningContainer, Told};
use k8s_openapi::api::core::v1::Probe;

use super::*;
use ProbeKind::{Liveness, Readiness, Startup};
use ProbeResult::{Pending, Success};

type Results = Vec<(ProbeKind, ProbeResult)>;

const FAILED: ProbeResult = ProbeResult::Failure { grace: None };

/// A pod `p` with one container `c`, and a plan for it.
struct Bench {
    plan: Plan,
    pod: Pod,
    now: Moment,
    jitter: f64,
}

/// Time the agent began at, by the wall clock.
fn wall(now: Moment) -> Timestamp {
    Timestamp::from_second(1_000_000).after(now.0)
}

fn at(seconds: f64) -> Moment {
    Moment(Duration::from_secs_f64(seconds))
}

/// Delay, period, failures, successes.
fn probe((delay, period, failures, successes): (i32, i32, i32, i32)) -> Probe {
    Probe {
        initial_delay_seconds: Some(delay),
        period_seconds: Some(period),
        failure_threshold: Some(failures),
        success_threshold: Some(successes),
        ..Default::default()
    }
}

impl Bench {
    fn new(probes: &[(ProbeKind, Probe)]) -> Self {
        let edit = |container: &mut k8s_openapi::api::core::v1::Container| {
            for (kind, probe) in probes.iter().cloned() {
                match kind {
                    Liveness => container.liveness_probe = Some(probe),
                    Readiness => container.readiness_probe = Some(probe),
                    Startup => container.startup_probe = Some(probe),
                }
            }
        };
        Self {
            plan: Plan::default(),
            pod: pod("p").container("c", "i").edit_container("c", edit).build(),
            now: at(100.0),
            jitter: 0.0,
        }
    }

    fn tell(&mut self, running: Option<RunningContainer>, stage: ProbeStage) -> Changes {
        let order = PodProbes {
            pod: self.pod.clone(),
            pod_ips: vec!["10.0.0.1".to_owned()],
            running: running.into_iter().collect(),
            stage,
        };
        let now = Now { moment: self.now, wall: wall(self.now) };
        self.plan.watch(&order, now, || self.jitter)
    }

    /// The container runs, since `age` seconds.
    fn run(&mut self, id: &str, age: f64, told: Option<Told>) -> Changes {
        let running = RunningContainer {
            name: "c".into(),
            id: id.into(),
            started_at: Timestamp(wall(self.now).0 - Duration::from_secs_f64(age)),
            told,
        };
        self.tell(Some(running), ProbeStage::Running)
    }

    /// Lets time pass; every probe ends at once as `judge` says. Answers with who ran when, and
    /// what was reported.
    fn pass(
        &mut self,
        seconds: f64,
        mut judge: impl FnMut(ProbeKind) -> Count,
    ) -> (Vec<(f64, ProbeKind)>, Results) {
        let end = self.now.after(Duration::from_secs_f64(seconds));
        let (mut ran, mut reports) = (Vec::new(), Vec::new());
        while let Some(due) = self.plan.next_due().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let launch = self.plan.launch(self.now).unwrap();
            let kind = launch.target.kind;
            ran.push((self.now.0.as_secs_f64() - 100.0, kind));
            let report = self.plan.judge(&launch.ticket, judge(kind), self.now);
            reports.extend(report.map(|it| (it.kind, it.result)));
        }
        self.now = end;
        (ran, reports)
    }
}

fn told(started: bool, ready: bool) -> Option<Told> {
    Some(Told { started, ready })
}

fn results(changes: &Changes) -> Results {
    let reports = changes.reports.iter();
    reports.map(|it| (it.kind, it.result)).collect()
}

/// Workers and initial delay.
#[test]
fn probes_tick_on_the_pods_grid_and_readiness_also_begins_at_once() {
    // Watched at 0, runs from `start`; who runs when within 30 seconds.
    let check = |kind, (delay, period), start: f64, expected: &[f64]| {
        let mut bench = Bench::new(&[(kind, probe((delay, period, 3, 1)))]);
        bench.tell(None, ProbeStage::Running);
        bench.pass(start, |_| Count::Success);
        bench.run("c1", 0.0, None);
        let (ran, _) = bench.pass(30.0 - start, |_| Count::Success);
        let ran: Vec<f64> = ran.into_iter().map(|it| it.0).collect();
        assert_eq!(ran, expected, "{kind:?} {delay} {period}");
    };
    check(Liveness, (0, 10), 2.0, &[10.0, 20.0, 30.0]);
    check(Liveness, (5, 10), 2.0, &[10.0, 20.0, 30.0]);
    check(Liveness, (9, 10), 2.0, &[20.0, 30.0]);
    check(Liveness, (8, 10), 2.0, &[10.0, 20.0, 30.0]);
    check(Startup, (0, 10), 2.0, &[10.0]);
    check(Readiness, (0, 10), 2.0, &[2.0, 12.0, 22.0]);
    check(Readiness, (15, 10), 2.0, &[22.0]);
    check(Readiness, (0, 12), 0.0, &[0.0, 12.0, 24.0]);
}

/// Thresholds and initial results.
#[test]
fn a_result_takes_its_threshold_of_equal_outcomes_in_a_row() {
    // Outcomes in order (+ success, - failure, ? error); where in the order the result became what.
    let check = |kind, failures, successes, outcomes: &str, expected: &[(usize, ProbeResult)]| {
        let mut bench = Bench::new(&[(kind, probe((0, 1, failures, successes)))]);
        bench.run("c1", 0.0, None);
        let mut reports = Vec::new();
        for (index, outcome) in outcomes.chars().enumerate() {
            let count = match outcome {
                '+' => Count::Success,
                '-' => Count::Failure,
                _ => Count::Nothing,
            };
            bench.now = bench.plan.next_due().unwrap_or(bench.now);
            if let Some(launch) = bench.plan.launch(bench.now) {
                let report = bench.plan.judge(&launch.ticket, count, bench.now);
                reports.extend(report.map(|it| (index, it.result)));
            }
        }
        assert_eq!(reports, expected, "{kind:?} {failures} {successes} {outcomes}");
    };
    check(Liveness, 3, 1, "--+---", &[(5, FAILED)]);
    check(Liveness, 1, 1, "-", &[(0, FAILED)]);
    check(Liveness, 3, 1, "--?-", &[(3, FAILED)]);
    // A liveness failure is final for this life.
    check(Liveness, 1, 1, "-++", &[(0, FAILED)]);
    check(Liveness, 3, 1, "+++", &[]);
    check(Readiness, 3, 1, "---+", &[(3, Success)]);
    check(Readiness, 3, 2, "+-++", &[(3, Success)]);
    check(Readiness, 2, 1, "+-+--+", &[(0, Success), (4, FAILED), (5, Success)]);
    check(Readiness, 1, 1, "???", &[]);
    // So is anything a startup probe decides.
    check(Startup, 3, 1, "--+---", &[(2, Success)]);
    check(Startup, 2, 1, "--+", &[(1, FAILED)]);
}

/// Gate between types.
#[test]
fn until_it_has_started_only_the_startup_probe_runs() {
    let mut bench = Bench::new(&[
        (Startup, probe((0, 3, 10, 1))),
        (Readiness, probe((0, 10, 3, 1))),
        (Liveness, probe((0, 10, 3, 1))),
    ]);
    bench.run("c1", 0.0, None);
    let mut n = 0;
    let (ran, reports) = bench.pass(20.0, |kind| {
        n += 1;
        if kind == Startup && n < 3 { Count::Failure } else { Count::Success }
    });
    let expected = [
        (0.0, Startup),
        (3.0, Startup),
        (6.0, Startup),
        (6.0, Readiness),
        (10.0, Liveness),
        (16.0, Readiness),
        (20.0, Liveness),
    ];
    assert_eq!(ran, expected);
    assert_eq!(reports, [(Startup, Success), (Readiness, Success)]);
}

/// After a liveness failure or any startup result: held until the container id changes.
#[test]
fn a_failed_container_is_left_alone_until_another_takes_its_place() {
    for kind in [Liveness, Startup] {
        let mut strict = probe((0, 5, 1, 1));
        strict.termination_grace_period_seconds = Some(7);
        let mut bench = Bench::new(&[(kind, strict)]);
        bench.run("c1", 0.0, None);
        let grace = Some(GracePeriod::from_secs(7));
        let failed = (kind, ProbeResult::Failure { grace });
        let (ran, reports) = bench.pass(60.0, |_| Count::Failure);
        assert_eq!((ran.len(), reports), (1, vec![failed]), "{kind:?}");
        bench.run("c1", 60.0, None);
        assert_eq!(bench.pass(60.0, |_| Count::Failure).0, [], "{kind:?}");
        bench.run("c2", 0.0, None);
        let (ran, reports) = bench.pass(4.0, |_| Count::Failure);
        assert_eq!((ran.len(), reports), (1, vec![failed]), "{kind:?}");
    }
}

#[test]
fn counts_begin_anew_with_each_life() {
    let mut bench = Bench::new(&[(Liveness, probe((0, 1, 3, 1)))]);
    bench.run("c1", 0.0, None);
    assert_eq!(bench.pass(1.5, |_| Count::Failure).0.len(), 2);
    bench.run("c2", 0.0, None);
    let (ran, reports) = bench.pass(2.0, |_| Count::Failure);
    assert_eq!((ran.len(), reports), (2, vec![]));
}

/// Kubelet restart.
#[test]
fn results_of_containers_found_running_are_kept_over_a_restart_of_the_agent() {
    let all = || {
        [
            (Startup, probe((0, 10, 3, 1))),
            (Readiness, probe((0, 10, 3, 1))),
            (Liveness, probe((0, 10, 3, 1))),
        ]
    };
    // Uptime of the agent, age of the container, what was told; reports at first sight and who is
    // probed in the first period.
    let check = |uptime, age, told, first: &[(ProbeKind, ProbeResult)], probed: &[ProbeKind]| {
        let mut bench = Bench::new(&all());
        bench.now = at(uptime);
        let changes = bench.run("c1", age, told);
        assert_eq!(results(&changes), first, "{uptime} {age} {told:?}");
        let (ran, _) = bench.pass(9.0, |_| Count::Failure);
        let ran: Vec<ProbeKind> = ran.into_iter().map(|it| it.1).collect();
        assert_eq!(ran, probed, "{uptime} {age} {told:?}");
    };
    let both = [Liveness, Readiness];
    check(1.0, 60.0, told(true, true), &[(Startup, Success)], &both);
    check(1.0, 60.0, told(true, false), &[(Startup, Success)], &both);
    check(1.0, 60.0, told(false, false), &[], &[Startup]);
    check(1.0, 60.0, None, &[], &[Startup]);
    check(1.0, 1.5, told(true, true), &[(Startup, Success)], &both);
    // Began after the agent did: what was told holds no more.
    let anew = [(Startup, Pending), (Readiness, FAILED)];
    check(10.0, 9.0, told(true, true), &anew, &[Startup]);
    check(1.0, 0.5, None, &[], &[Startup]);
    check(100.0, 50.0, told(true, true), &anew, &[Startup]);
}

#[test]
fn a_kept_readiness_falls_only_with_its_threshold() {
    let mut bench = Bench::new(&[(Readiness, probe((0, 1, 3, 1)))]);
    bench.now = at(5.0);
    assert_eq!(results(&bench.run("c1", 60.0, told(true, true))), []);
    assert_eq!(bench.pass(1.5, |_| Count::Failure).1, []);
    assert_eq!(bench.pass(1.0, |_| Count::Failure).1, [(Readiness, FAILED)]);
}

/// Start jitter.
#[test]
fn only_containers_found_by_a_young_agent_are_spread_over_their_period() {
    // Uptime, age, jitter; when the first probe runs.
    let check = |uptime, age, jitter, expected| {
        let mut bench = Bench::new(&[(Readiness, probe((0, 10, 3, 1)))]);
        (bench.now, bench.jitter) = (at(uptime), jitter);
        bench.run("c1", age, None);
        bench.plan.hurry(&bench.pod.uid(), bench.now);
        let due = bench.plan.next_due();
        assert_eq!(due, Some(at(uptime + expected)), "{uptime} {age}");
    };
    check(1.0, 60.0, 0.7, 7.0);
    check(1.0, 1.5, 0.25, 2.5);
    check(1.0, 0.0, 0.7, 0.0);
    check(11.0, 60.0, 0.7, 0.0);
}

/// Pod being deleted.
#[test]
fn while_a_pod_ends_only_readiness_goes_on() {
    let mut bench = Bench::new(&[
        (Startup, probe((0, 5, 10, 1))),
        (Readiness, probe((0, 5, 1, 1))),
        (Liveness, probe((0, 5, 1, 1))),
    ]);
    bench.run("c1", 0.0, None);
    let launch = bench.plan.launch(bench.now).unwrap();
    assert_eq!(launch.target.kind, Startup);
    let running = RunningContainer {
        name: "c".into(),
        id: "c1".into(),
        started_at: wall(bench.now),
        told: None,
    };
    let changes = bench.tell(Some(running.clone()), ProbeStage::Terminating);
    assert_eq!(results(&changes), [(Startup, Success)]);
    assert_eq!(changes.over, std::slice::from_ref(&launch.ticket));
    let late = bench.plan.judge(&launch.ticket, Count::Failure, bench.now);
    assert_eq!(late, None);
    let (ran, reports) = bench.pass(6.0, |_| Count::Success);
    assert_eq!(ran, [(0.0, Readiness), (5.0, Readiness)]);
    assert_eq!(reports, [(Readiness, Success)]);
    // There is no way back, and no second report.
    let changes = bench.tell(Some(running), ProbeStage::Running);
    assert_eq!(changes, Changes::default());
    let (ran, reports) = bench.pass(5.0, |_| Count::Failure);
    assert_eq!((ran, reports), (vec![(10.0, Readiness)], vec![(Readiness, FAILED)]));
}

#[test]
fn a_probe_that_outlasts_its_period_is_made_good_once_and_never_doubled() {
    let mut bench = Bench::new(&[(Liveness, probe((0, 1, 3, 1)))]);
    bench.run("c1", 0.0, None);
    let launch = bench.plan.launch(bench.now).unwrap();
    bench.now = at(103.5);
    assert!(bench.plan.launch(bench.now).is_none());
    bench.plan.judge(&launch.ticket, Count::Success, bench.now);
    let (ran, _) = bench.pass(2.0, |_| Count::Success);
    assert_eq!(ran, [(3.5, Liveness), (4.0, Liveness), (5.0, Liveness)]);
}

/// Not ready container.
#[test]
fn who_hurries_is_served_at_once_unless_all_is_well() {
    let mut bench = Bench::new(&[(Readiness, probe((0, 10, 3, 1)))]);
    let uid = bench.pod.uid();
    bench.run("c1", 0.0, None);
    bench.pass(3.0, |_| Count::Failure);
    bench.plan.hurry(&uid, bench.now);
    let (ran, _) = bench.pass(10.5, |_| Count::Success);
    assert_eq!(ran, [(3.0, Readiness), (13.0, Readiness)]);
    bench.plan.hurry(&uid, bench.now);
    assert_eq!(bench.plan.next_due(), Some(at(123.0)), "it is ready");
    // One that is under way is followed by another.
    let launch = {
        bench.now = at(123.0);
        bench.plan.launch(bench.now).unwrap()
    };
    let mut failing = Bench::new(&[(Readiness, probe((0, 10, 3, 1)))]);
    failing.run("c1", 0.0, None);
    let under_way = failing.plan.launch(failing.now).unwrap();
    failing.plan.hurry(&uid, failing.now);
    failing.now = at(100.5);
    failing.plan.judge(&under_way.ticket, Count::Failure, failing.now);
    assert_eq!(failing.plan.next_due(), Some(at(100.5)));
    bench.plan.judge(&launch.ticket, Count::Success, bench.now);
    assert_eq!(bench.plan.next_due(), Some(at(133.0)));
}

/// InitialDelaySeconds.
#[test]
fn nobody_hurries_past_the_initial_delay() {
    let mut bench = Bench::new(&[(Readiness, probe((5, 2, 3, 1)))]);
    bench.run("c1", 0.0, None);
    bench.plan.hurry(&bench.pod.uid(), bench.now);
    assert_eq!(bench.plan.next_due(), Some(at(106.0)));
}

#[test]
fn outcomes_of_a_former_life_or_a_forgotten_pod_count_for_nothing() {
    let mut bench = Bench::new(&[(Liveness, probe((0, 1, 1, 1)))]);
    bench.run("c1", 0.0, None);
    let old = bench.plan.launch(bench.now).unwrap();
    let changes = bench.run("c2", 0.0, None);
    assert_eq!(changes.over, std::slice::from_ref(&old.ticket));
    assert_eq!(bench.plan.judge(&old.ticket, Count::Failure, bench.now), None);
    let new = bench.plan.launch(bench.now).unwrap();
    assert_eq!(new.target.id, "c2".into());
    let over = bench.plan.forget(&bench.pod.uid());
    assert_eq!(over, std::slice::from_ref(&new.ticket));
    assert_eq!(bench.plan.judge(&new.ticket, Count::Failure, bench.now), None);
    assert!(bench.plan.next_due().is_none() && bench.plan.pods.is_empty());
}

/// Container not running.
#[test]
fn a_container_that_ended_is_not_probed() {
    let mut bench = Bench::new(&[(Liveness, probe((0, 1, 1, 1)))]);
    bench.run("c1", 0.0, None);
    bench.tell(None, ProbeStage::Running);
    assert_eq!(bench.plan.next_due(), None);
}

#[test]
fn pods_without_probes_leave_no_trace() {
    let mut bench = Bench::new(&[]);
    assert_eq!(bench.run("c1", 0.0, None), Changes::default());
    assert!(bench.plan.pods.is_empty());
}

/// Workers: regular containers and sidecars only.
#[test]
fn sidecars_are_probed_and_plain_init_containers_are_not() {
    let with = |container: &mut k8s_openapi::api::core::v1::Container| {
        container.readiness_probe = Some(Probe::default());
    };
    let pod = pod("p")
        .init("init", "i")
        .sidecar("side", "i")
        .container("c", "i")
        .edit_container("init", with)
        .edit_container("side", with)
        .build();
    let names = containers_of(&pod, at(0.0));
    let names: Vec<_> = names.iter().map(|it| it.name().as_str()).collect();
    assert_eq!(names, ["side"]);
}

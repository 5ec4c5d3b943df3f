//! What is measured, and what the rounds say about it. Pure: numbers in, rows out.
//!
//! A figure is the median of its rounds. Upstream's kubelet is the control group: it does the same
//! work in every round, so the spread of its values is the noise of the machine. Above [`BOUND`]
//! the figure does not hold, and no ratio is computed from it; whether its goal is met is said only
//! if every round of ours says the same against every one of upstream's.

use std::collections::BTreeMap;

/// The greatest spread of the control group, `(greatest - smallest) / median`, at which a figure
/// still holds.
pub(super) const BOUND: f64 = 0.25;
/// The size that the goals are about.
const GOAL_PODS: usize = 100;

/// How a figure is counted and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    CpuSeconds,
    /// Of one core.
    Percent,
    Megabytes,
    Count,
    Milliseconds,
    /// Megabytes a second.
    Throughput,
}

impl Unit {
    /// A spread below this says nothing, however small the figure is.
    fn resolution(self) -> f64 {
        match self {
            Unit::Seconds => 0.05,
            Unit::CpuSeconds => 0.03,
            Unit::Percent => 0.1,
            Unit::Megabytes | Unit::Count | Unit::Milliseconds => 2.0,
            Unit::Throughput => 10.0,
        }
    }

    /// A value for people.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Unit::Seconds | Unit::CpuSeconds if value < 10.0 => format!("{value:.2} s"),
            Unit::Seconds | Unit::CpuSeconds => format!("{value:.1} s"),
            Unit::Percent => format!("{value:.2} %"),
            Unit::Megabytes => format!("{value:.1} MB"),
            Unit::Count => format!("{value:.0}"),
            Unit::Milliseconds => format!("{value:.1} ms"),
            Unit::Throughput => format!("{value:.0} MB/s"),
        }
    }
}

/// What we want of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// At most this part of upstream's.
    AtMost(f64),
    /// At least this part of upstream's.
    AtLeast(f64),
    /// Below this, whatever upstream's is.
    Below(f64),
    Zero,
}

/// One thing that is measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    /// Its name in JSON.
    pub(super) key: String,
    pub(super) label: String,
    pub(super) unit: Unit,
    pub(super) goal: Option<Goal>,
}

/// The values of one leg, by key.
pub(super) type Values = BTreeMap<String, f64>;

/// What the rounds say about one figure.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) figure: Figure,
    pub(super) ours: f64,
    pub(super) upstream: f64,
    /// Of the control group.
    pub(super) spread: f64,
    pub(super) verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// The machine was too noisy for a figure; the outcome is there when noise cannot change it.
    Noisy { outcome: Option<Outcome> },
    /// The ratio is missing when upstream's value is zero, the outcome when nobody set a goal.
    Holds { ratio: Option<f64>, outcome: Option<Outcome> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Met,
    Missed,
}

/// Every figure of a race with these bursts, in the order of the table.
// tidy: a table, one figure after another
pub(super) fn catalogue(bursts: &[usize], n_rate: usize) -> Vec<Figure> {
    let mut all = Vec::new();
    let mut add = |key: String, label: String, unit: Unit, goal: Option<Goal>| {
        all.push(Figure { key, label, unit, goal });
    };
    add(
        "start_ready".into(),
        "process start to node Ready".into(),
        Unit::Seconds,
        Some(Goal::AtMost(0.5)),
    );
    for (key, word) in [("p50", "p50"), ("p99", "p99")] {
        add(
            format!("rate_{key}"),
            format!("one pod a second ({n_rate}), create to Ready, {word}"),
            Unit::Seconds,
            None,
        );
    }
    for n in bursts {
        let goal = |goal: f64| (*n == GOAL_PODS).then_some(Goal::AtMost(goal));
        for (key, word, goal) in [
            ("p50", "p50", goal(0.6)),
            ("p90", "p90", None),
            ("p99", "p99", None),
            ("last", "last", goal(1.0)),
        ] {
            add(
                format!("burst_{n}_{key}"),
                format!("burst of {n}, create to Ready, {word}"),
                Unit::Seconds,
                goal,
            );
        }
        add(
            format!("burst_{n}_cpu"),
            format!("burst of {n}, CPU of the agent"),
            Unit::CpuSeconds,
            goal(1.0 / 3.0),
        );
        add(
            format!("delete_{n}"),
            format!("deletion of {n}, until the last is gone"),
            Unit::Seconds,
            goal(1.0),
        );
        add(
            format!("delete_{n}_cpu"),
            format!("deletion of {n}, CPU of the agent"),
            Unit::CpuSeconds,
            None,
        );
    }
    let most = bursts.last().copied().unwrap_or_default();
    let goal = |goal: f64| (most == GOAL_PODS).then_some(Goal::AtMost(goal));
    add(
        "restart_ready".into(),
        format!("kill -9 to Ready again, {most} pods"),
        Unit::Seconds,
        None,
    );
    add(
        "restart_containers".into(),
        "containers restarted by that".into(),
        Unit::Count,
        Some(Goal::Zero),
    );
    add(
        "restart_relapses".into(),
        "pods shown not Ready by that".into(),
        Unit::Count,
        Some(Goal::Zero),
    );
    for (key, when, memory, cpu) in [
        ("idle", "no pods".to_owned(), None, None),
        ("full", format!("{most} pods"), goal(0.25), goal(0.2)),
    ] {
        for (part, label, unit, goal) in [
            ("rss", "RSS", Unit::Megabytes, memory),
            ("pss", "PSS", Unit::Megabytes, None),
            ("cpu", "CPU at rest", Unit::Percent, cpu),
            ("threads", "threads", Unit::Count, None),
        ] {
            add(format!("{key}_{part}"), format!("{when}, {label}"), unit, goal);
        }
    }
    all
}

/// Figures that a leg should have brought but did not.
pub(super) fn missing(figures: &[Figure], legs: &[Values]) -> Vec<String> {
    figures
        .iter()
        .filter(|figure| {
            !legs.iter().all(|leg| leg.get(&figure.key).is_some_and(|value| value.is_finite()))
        })
        .map(|figure| figure.key.clone())
        .collect()
}

/// One row for each figure that both sides have.
pub(super) fn rows(figures: &[Figure], ours: &[Values], upstream: &[Values]) -> Vec<Row> {
    let of = |legs: &[Values], key: &str| -> Vec<f64> {
        legs.iter().filter_map(|leg| leg.get(key).copied()).collect()
    };
    figures
        .iter()
        .filter_map(|figure| row(figure, &of(ours, &figure.key), &of(upstream, &figure.key)))
        .collect()
}

fn row(figure: &Figure, rounds: &[f64], upstream: &[f64]) -> Option<Row> {
    let (ours, control) = (median(rounds)?, median(upstream)?);
    let range = range(upstream);
    let spread = if range > 0.0 { range / control } else { 0.0 };
    let verdict = if spread > BOUND && range > figure.unit.resolution() {
        Verdict::Noisy { outcome: figure.goal.and_then(|goal| unanimous(goal, rounds, upstream)) }
    } else {
        Verdict::Holds {
            ratio: (control > 0.0).then(|| ours / control),
            outcome: figure.goal.map(|goal| outcome(goal, ours, control)),
        }
    };
    Some(Row { figure: figure.clone(), ours, upstream: control, spread, verdict })
}

/// What every round of ours says against every one of upstream's, if it is the same.
fn unanimous(goal: Goal, ours: &[f64], upstream: &[f64]) -> Option<Outcome> {
    let mut all =
        ours.iter().flat_map(|ours| upstream.iter().map(move |it| outcome(goal, *ours, *it)));
    let first = all.next()?;
    all.all(|it| it == first).then_some(first)
}

fn outcome(goal: Goal, ours: f64, upstream: f64) -> Outcome {
    let is_met = match goal {
        Goal::AtMost(part) => ours <= upstream * part,
        Goal::AtLeast(part) => ours >= upstream * part,
        Goal::Below(bound) => ours < bound,
        Goal::Zero => ours <= 0.0,
    };
    if is_met { Outcome::Met } else { Outcome::Missed }
}

/// The middle value, or the mean of the two middle ones.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(*lower, upper))
}

fn range(values: &[f64]) -> f64 {
    let greatest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    greatest - smallest
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two rounds of two figures: one that holds, and one that the control group makes noisy.
    pub(in super::super) fn sample() -> Vec<Row> {
        let figures: Vec<Figure> = catalogue(&[100], 10)
            .into_iter()
            .filter(|it| ["start_ready", "burst_100_p50"].contains(&it.key.as_str()))
            .collect();
        let leg = |start: f64, burst: f64| -> Values {
            [("start_ready", start), ("burst_100_p50", burst)]
                .map(|(key, value)| (key.to_owned(), value))
                .into()
        };
        let ours = [leg(0.2, 5.0), leg(0.3, 7.0)];
        let upstream = [leg(0.8, 10.0), leg(0.8, 20.0)];
        rows(&figures, &ours, &upstream)
    }

    #[test]
    fn the_median_is_the_middle() {
        let cases: [(&[f64], Option<f64>); 4] = [
            (&[], None),
            (&[3.0], Some(3.0)),
            (&[9.0, 1.0, 5.0], Some(5.0)),
            (&[4.0, 1.0, 2.0, 9.0], Some(3.0)),
        ];
        for (values, expected) in cases {
            assert_eq!(median(values), expected, "{values:?}");
        }
    }

    #[test]
    fn a_figure_holds_only_if_the_control_group_agrees_with_itself() {
        let met = Some(Outcome::Met);
        type Case<'a> = (&'a [f64], &'a [f64], Unit, Option<Goal>, Verdict);
        let cases: [Case<'_>; 8] = [
            (
                &[0.4, 0.3],
                &[1.0, 1.1],
                Unit::Seconds,
                Some(Goal::AtMost(0.5)),
                Verdict::Holds { ratio: Some(1.0 / 3.0), outcome: met },
            ),
            (&[1.0], &[1.0, 1.5], Unit::Seconds, None, Verdict::Noisy { outcome: None }),
            // However noisy: the slowest of ours beats the fastest of theirs by more than was asked
            // for.
            (
                &[0.1, 0.4],
                &[1.0, 1.5],
                Unit::Seconds,
                Some(Goal::AtMost(0.5)),
                Verdict::Noisy { outcome: met },
            ),
            (
                &[0.1, 0.6],
                &[1.0, 1.5],
                Unit::Seconds,
                Some(Goal::AtMost(0.5)),
                Verdict::Noisy { outcome: None },
            ),
            // A third more, but of so little that no clock here can tell.
            (
                &[0.03],
                &[0.06, 0.06, 0.08],
                Unit::Seconds,
                None,
                Verdict::Holds { ratio: Some(0.5), outcome: None },
            ),
            (
                &[0.0],
                &[0.0],
                Unit::Count,
                Some(Goal::Zero),
                Verdict::Holds { ratio: None, outcome: met },
            ),
            (
                &[1.0],
                &[0.0],
                Unit::Count,
                Some(Goal::Zero),
                Verdict::Holds { ratio: None, outcome: Some(Outcome::Missed) },
            ),
            (
                &[8.0],
                &[4.0],
                Unit::Megabytes,
                Some(Goal::AtMost(1.0)),
                Verdict::Holds { ratio: Some(2.0), outcome: Some(Outcome::Missed) },
            ),
        ];
        for (ours, upstream, unit, goal, expected) in cases {
            let figure = Figure { key: "x".into(), label: "x".into(), unit, goal };
            let row = row(&figure, ours, upstream).unwrap();
            match (row.verdict, expected) {
                (
                    Verdict::Holds { ratio: Some(one), outcome },
                    Verdict::Holds { ratio: Some(other), outcome: wanted },
                ) => {
                    assert!((one - other).abs() < 1e-9, "{one} and {other}");
                    assert_eq!(outcome, wanted);
                }
                (found, wanted) => assert_eq!(found, wanted, "{ours:?} {upstream:?}"),
            }
        }
    }

    #[test]
    fn goals_are_about_a_hundred_pods() {
        let goals = |bursts: &[usize]| {
            catalogue(bursts, 10)
                .into_iter()
                .filter(|it| matches!(it.goal, Some(Goal::AtMost(_))))
                .map(|it| it.key)
                .collect::<Vec<_>>()
        };
        assert_eq!(goals(&[3]), ["start_ready"]);
        assert_eq!(
            goals(&[50, 100]),
            [
                "start_ready",
                "burst_100_p50",
                "burst_100_last",
                "burst_100_cpu",
                "delete_100",
                "full_rss",
                "full_cpu"
            ]
        );
    }

    #[test]
    fn keys_are_unique_and_a_figure_that_is_not_there_is_named() {
        let figures = catalogue(&[50, 100], 10);
        let mut leg: Values = figures.iter().map(|it| (it.key.clone(), 1.0)).collect();
        assert_eq!(leg.len(), figures.len());
        assert!(missing(&figures, &[leg.clone()]).is_empty());
        leg.insert("idle_pss".into(), f64::NAN);
        leg.remove("delete_50");
        assert_eq!(missing(&figures, &[leg]), ["delete_50", "idle_pss"]);
    }
}

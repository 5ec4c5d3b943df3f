//! The rows as text, for the terminal and for the page. Pure.

use super::score::{BOUND, Goal, Outcome, Row, Verdict};

/// The cells of one row, as both kinds of table show them.
struct Cells {
    label: String,
    ours: String,
    upstream: String,
    ratio: String,
    goal: String,
}

/// A table for the terminal.
pub(super) fn text(rows: &[Row], opponent: &str) -> String {
    let cells: Vec<Cells> = rows.iter().map(|row| cells(row, opponent)).collect();
    let width = cells.iter().map(|it| it.label.len()).max().unwrap_or(0);
    let mut out =
        format!("{:<width$} {:>10} {opponent:>10} {:>6}  goal\n", "", "ferrolet", "ratio");
    for it in cells {
        let line = format!(
            "{:<width$} {:>10} {:>10} {:>6}  {}",
            it.label, it.ours, it.upstream, it.ratio, it.goal
        );
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A table for the page.
pub(super) fn markdown(rows: &[Row], opponent: &str) -> String {
    let mut out = format!(
        "| | Ferrolet | {opponent} | ratio | goal |\n| --- | ---: | ---: | ---: | --- |\n",
    );
    for it in rows.iter().map(|row| cells(row, opponent)) {
        out.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            it.label, it.ours, it.upstream, it.ratio, it.goal
        ));
    }
    out
}

/// One line on the goals: how many are met, and which are not.
pub(super) fn summary(rows: &[Row]) -> String {
    let with_goal: Vec<&Row> = rows.iter().filter(|row| row.figure.goal.is_some()).collect();
    let labels = |wanted: fn(&Verdict) -> bool| -> Vec<&str> {
        with_goal
            .iter()
            .filter(|row| wanted(&row.verdict))
            .map(|row| row.figure.label.as_str())
            .collect()
    };
    let missed = labels(|it| {
        matches!(
            it,
            Verdict::Noisy { outcome: Some(Outcome::Missed) }
                | Verdict::Holds { outcome: Some(Outcome::Missed), .. }
        )
    });
    let noisy = labels(|it| *it == Verdict::Noisy { outcome: None });
    let n_met = with_goal.len() - missed.len() - noisy.len();
    let mut out = format!("{n_met} of {} goals met", with_goal.len());
    for (word, labels) in [("missed", missed), ("too noisy to say", noisy)] {
        if !labels.is_empty() {
            out.push_str(&format!("; {word}: {}", labels.join("; ")));
        }
    }
    out
}

fn cells(row: &Row, opponent: &str) -> Cells {
    let show = |value: f64| row.figure.unit.show(value);
    let label = row.figure.label.clone();
    match row.verdict {
        Verdict::Noisy { outcome } => Cells {
            label,
            ours: "noisy".into(),
            upstream: "noisy".into(),
            ratio: "-".into(),
            goal: format!(
                "{}{opponent} spreads by {:.0} % (bound: {:.0} %)",
                match (row.figure.goal, outcome) {
                    (Some(goal), Some(outcome)) =>
                        format!("{}, {} in every round; ", wish(goal), word(outcome)),
                    _ => String::new(),
                },
                row.spread * 100.0,
                BOUND * 100.0
            ),
        },
        Verdict::Holds { ratio, outcome } => Cells {
            label,
            ours: show(row.ours),
            upstream: show(row.upstream),
            ratio: ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            goal: match (row.figure.goal, outcome) {
                (Some(goal), Some(outcome)) => format!("{}, {}", wish(goal), word(outcome)),
                _ => String::new(),
            },
        },
    }
}

fn wish(goal: Goal) -> String {
    match goal {
        Goal::AtMost(part) => format!("at most {part:.2}"),
        Goal::AtLeast(part) => format!("at least {part:.2}"),
        Goal::Below(bound) => format!("below {bound:.0}"),
        Goal::Zero => "none".into(),
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Met => "met",
        Outcome::Missed => "MISSED",
    }
}

#[cfg(test)]
mod tests {
    use super::super::score::tests::sample;
    use super::*;

    #[test]
    fn the_table_shows_ratios_goals_and_noise() {
        let expected = [
            "                                     ferrolet   upstream  ratio  goal\n",
            "process start to node Ready            0.25 s     0.80 s   0.31  at most 0.50, met\n",
            "burst of 100, create to Ready, p50      noisy      noisy      -  upstream spreads by 67 % (bound: 25 %)\n",
        ];
        assert_eq!(text(&sample(), "upstream"), expected.concat());
        assert!(markdown(&sample(), "upstream").contains(
            "| process start to node Ready | 0.25 s | 0.80 s | 0.31 | at most 0.50, met |"
        ));
    }

    #[test]
    fn the_summary_names_what_is_not_met() {
        assert_eq!(
            summary(&sample()),
            "1 of 2 goals met; too noisy to say: burst of 100, create to Ready, p50"
        );
    }
}

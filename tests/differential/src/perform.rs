//! Plays cases on a stage, many at a time, and puts their answers together.
//!
//! ```text
//! rounds (pure) ──► first all cases that leave the agent alone: the next begins when one ends
//!                   then, for each time table of killing and starting the agent, its cases at once
//! loop: arrivals of the watch ──► histories;   steps that are due ──► stage;   time over ──► answer, clear
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::answer::{Answer, Event};
use crate::case::{Action, Case, Step};
use crate::history::History;
use crate::normalise::Names;
use crate::stage::Stage;
use crate::times;

/// How long to wait for an arrival before looking at the clock again.
const LOOK: Duration = Duration::from_millis(20);
/// Cases do not all begin in the same instant, which no node likes and no case is about.
const GAP: Duration = Duration::from_millis(400);

/// Answers by case.
pub(crate) type Answers = BTreeMap<String, Answer>;

/// Cases that run together.
#[derive(Debug)]
struct Round<'c> {
    cases: Vec<&'c Case>,
    /// What happens to the agent; then all cases begin at the same time.
    agent: Vec<Step>,
}

/// Plays all cases, in namespaces that begin with `prefix`, `n_at_once` at a time.
pub(crate) fn perform(
    stage: &mut Stage<'_>,
    cases: &[&Case],
    prefix: &str,
    n_at_once: usize,
) -> Result<Answers> {
    let namespace = |case: &Case| format!("{prefix}-{}", case.name);
    let names: Vec<String> = cases.iter().map(|case| namespace(case)).collect();
    stage.create_namespaces(&names)?;
    let mut answers = Answers::new();
    for round in rounds(cases, n_at_once) {
        let n_at_once = if round.agent.is_empty() { n_at_once } else { round.cases.len() };
        let mut play = Play {
            waiting: round.cases.into(),
            agent: round.agent.into(),
            is_agent_up: true,
            running: Vec::new(),
            began: Instant::now(),
            last_start: None,
            n_at_once,
            prefix,
        };
        play.run(stage, &mut answers)?;
    }
    Ok(answers)
}

fn rounds<'c>(cases: &[&'c Case], n_at_once: usize) -> Vec<Round<'c>> {
    let (with, without): (Vec<&Case>, Vec<&Case>) =
        cases.iter().partition(|it| !it.agent_schedule().is_empty());
    let mut rounds = vec![Round { cases: without, agent: Vec::new() }];
    for case in with {
        let agent = case.agent_schedule();
        let fitting = rounds.iter_mut().find(|it| it.agent == agent && it.cases.len() < n_at_once);
        match fitting {
            Some(round) => round.cases.push(case),
            None => rounds.push(Round { cases: vec![case], agent }),
        }
    }
    rounds.retain(|it| !it.cases.is_empty());
    rounds
}

struct Play<'c> {
    waiting: VecDeque<&'c Case>,
    running: Vec<Run<'c>>,
    agent: VecDeque<Step>,
    is_agent_up: bool,
    began: Instant,
    last_start: Option<Instant>,
    n_at_once: usize,
    prefix: &'c str,
}

/// One case while it is watched.
struct Run<'c> {
    case: &'c Case,
    namespace: String,
    began: Instant,
    n_steps_done: usize,
    pods: BTreeMap<String, History>,
    said: Vec<String>,
}

impl<'c> Play<'c> {
    fn run(&mut self, stage: &mut Stage<'_>, answers: &mut Answers) -> Result<()> {
        while !self.waiting.is_empty() || !self.running.is_empty() {
            ensure!(!stage.scene.bench.is_interrupted(), "interrupted");
            if self.is_agent_up {
                stage.node.node.expect_running()?;
            }
            self.tend_agent(stage)?;
            self.start_next(stage)?;
            while let Some(arrival) = stage.pods.next(LOOK)? {
                self.take(&arrival.kind, arrival.object, arrival.at);
                if self.is_due() {
                    break;
                }
            }
            for run in &mut self.running {
                run.step(stage)?;
            }
            let is_over = |run: &Run<'_>| run.began.elapsed() >= run.case.watch;
            while let Some(index) = self.running.iter().position(is_over) {
                let run = self.running.remove(index);
                answers.insert(run.case.name.clone(), run.end(stage)?);
            }
        }
        Ok(())
    }

    /// Whether something has to happen before more arrivals are taken.
    fn is_due(&self) -> bool {
        let agent = self.agent.front().is_some_and(|it| self.began.elapsed() >= it.at);
        agent || self.running.iter().any(Run::is_due)
    }

    fn tend_agent(&mut self, stage: &mut Stage<'_>) -> Result<()> {
        while let Some(step) = self.agent.front() {
            if self.began.elapsed() < step.at {
                break;
            }
            match step.action {
                Action::KillAgent => {
                    stage.node.node.kill()?;
                    self.is_agent_up = false;
                }
                _ => {
                    stage.node.node.launch()?;
                    self.is_agent_up = true;
                }
            }
            self.agent.pop_front();
        }
        Ok(())
    }

    fn start_next(&mut self, stage: &mut Stage<'_>) -> Result<()> {
        // With an agent that is killed at a certain time, everybody has to be there in time.
        let gap = if self.agent.is_empty() { GAP } else { Duration::ZERO };
        while self.running.len() < self.n_at_once
            && self.last_start.is_none_or(|it| it.elapsed() >= gap)
            && let Some(case) = self.waiting.pop_front()
        {
            let namespace = format!("{}-{}", self.prefix, case.name);
            let said = stage.begin(case, &namespace)?;
            self.last_start = Some(Instant::now());
            self.running.push(Run {
                case,
                namespace,
                began: Instant::now(),
                n_steps_done: 0,
                pods: BTreeMap::new(),
                said,
            });
        }
        Ok(())
    }

    fn take(&mut self, kind: &str, pod: Value, at: Instant) {
        let namespace = &pod["metadata"]["namespace"];
        let run = self.running.iter_mut().find(|it| *namespace == it.namespace.as_str());
        let name = pod["metadata"]["name"].as_str().map(str::to_owned);
        // A case that is over has nothing more to learn.
        if let (Some(run), Some(name)) = (run, name) {
            run.pods.entry(name).or_default().take(kind, pod, at);
        }
    }
}

impl Run<'_> {
    fn is_due(&self) -> bool {
        let elapsed = self.began.elapsed();
        let next = self.case.steps.get(self.n_steps_done);
        elapsed >= self.case.watch || next.is_some_and(|it| elapsed >= it.at)
    }

    fn step(&mut self, stage: &mut Stage<'_>) -> Result<()> {
        while let Some(step) = self.case.steps.get(self.n_steps_done) {
            if self.began.elapsed() < step.at {
                break;
            }
            let said = stage
                .act(self.case, &self.namespace, &step.action)
                .with_context(|| format!("step of {} at {:?}", self.case.name, step.at))?;
            self.said.extend(said);
            self.n_steps_done += 1;
        }
        Ok(())
    }

    fn end(self, stage: &mut Stage<'_>) -> Result<Answer> {
        let names = stage.names(&self.namespace);
        let mut answer = Answer {
            events: events(&stage.kubelet_events(&self.namespace)?, &names),
            said: self.said.iter().map(|it| names.text(it)).collect(),
            ..Answer::default()
        };
        for (name, history) in &self.pods {
            let name = names.text(name);
            let faults = times::faults(&history.last);
            if !faults.is_empty() {
                answer.times.insert(name.clone(), faults);
            }
            answer.last.insert(name.clone(), history.status(&names));
            answer.sequence.insert(name.clone(), history.states.clone());
            if history.is_gone {
                answer.gone.insert(name, history.gone_after);
            }
        }
        stage.clear(self.case, &self.namespace)?;
        Ok(answer)
    }
}

/// Events of one kind add up, whichever process of the agent sent them; in the order of their first
/// time.
fn events(found: &[Value], names: &Names) -> Vec<Event> {
    let mut found: Vec<&Value> = found.iter().collect();
    found.sort_by_key(|it| it["firstTimestamp"].as_str().unwrap_or_default().to_owned());
    let mut events: Vec<Event> = Vec::new();
    for object in found {
        let text = |value: &Value| names.text(value.as_str().unwrap_or_default());
        let count = object["series"]["count"].as_u64().or(object["count"].as_u64());
        let event = Event {
            pod: text(&object["involvedObject"]["name"]),
            field: text(&object["involvedObject"]["fieldPath"]),
            kind: text(&object["type"]),
            reason: text(&object["reason"]),
            message: text(&object["message"]),
            count: count.unwrap_or(1),
        };
        let is_same = |it: &&mut Event| {
            (&it.pod, &it.field, &it.kind, &it.reason, &it.message)
                == (&event.pod, &event.field, &event.kind, &event.reason, &event.message)
        };
        match events.iter_mut().find(is_same) {
            Some(other) => other.count += event.count,
            None => events.push(event),
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::case;

    #[test]
    fn cases_that_kill_the_agent_meet_only_those_of_the_same_time_table() {
        let text = "cases:\n\
            - {name: a, seconds: 9, pod: {}}\n\
            - {name: b, seconds: 9, pod: {}, steps: [{at: 3, agent: kill}, {at: 4, agent: start}]}\n\
            - {name: c, seconds: 9, pod: {}}\n\
            - {name: d, seconds: 9, pod: {}, steps: [{at: 2, agent: kill}, {at: 4, agent: start}]}\n\
            - {name: e, seconds: 9, pod: {}, steps: [{at: 1, delete: p}, {at: 3, agent: kill}, {at: 4, agent: start}]}\n\
            - {name: f, seconds: 9, pod: {}, steps: [{at: 3, agent: kill}, {at: 4, agent: start}]}\n";
        let cases = case::parse("g", text).unwrap();
        let cases: Vec<&Case> = cases.iter().collect();
        let names =
            |round: &Round<'_>| round.cases.iter().map(|it| it.name.clone()).collect::<String>();
        let rounds: Vec<String> = rounds(&cases, 2).iter().map(names).collect();
        assert_eq!(rounds, ["ac", "be", "d", "f"]);
    }

    #[test]
    fn events_of_one_kind_add_up() {
        let event = |message: &str, time: &str, count: u64| {
            json!({
                "involvedObject": {"name": "p", "fieldPath": "spec.containers{c}"},
                "type": "Normal", "reason": "Started", "message": message, "firstTimestamp": time, "count": count,
            })
        };
        let all = [event("b", "2", 1), event("a", "3", 2), event("a", "1", 1)];
        let shown: Vec<(String, u64)> =
            events(&all, &Names::default()).into_iter().map(|it| (it.message, it.count)).collect();
        assert_eq!(shown, [("a".to_owned(), 3), ("b".to_owned(), 1)]);
    }
}

//! Pods that are to be started once: whether every one has come up, and which never will.
//!
//! For an agent that starts what it was given and leaves (`--run-once-within`). In: the pods that
//! were asked for, as they are shown, and whether there is time left. Out: a verdict. Refuses:
//! clocks, and starting or ending anything.

use ferrolet_pod::restarts_after;
use ferrolet_types::{
    Pod,
    pod::{Phase, PodView as _},
};
use k8s_openapi::api::core::v1::{Container, ContainerState};

use crate::{headline, why};

/// Whether there is time left to wait for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Some.
    Left,
    /// None.
    Over,
}

/// What came of pods that were to be started once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceVerdict {
    /// Some are still on their way.
    Waiting,
    /// Each of them runs, or has done its work.
    Done,
    /// These did not come up, each with the word that says why.
    Failed(Vec<String>),
}

/// A pod that was asked for.
#[derive(Clone, Debug)]
pub struct OncePod {
    /// As people call it.
    pub name: String,
    /// As it is shown; nothing before the first look at it.
    pub shown: Option<Pod>,
}

/// How far one pod has come.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Up,
    OnTheWay,
    Lost,
}

/// Looks at all of them. A pod that is lost does not end the wait for the others.
pub fn judge_once(pods: &[OncePod], patience: Patience) -> OnceVerdict {
    let mut lost = Vec::new();
    let mut is_waiting = false;
    for pod in pods {
        match (progress(pod.shown.as_ref()), patience) {
            (Progress::Up, _) => {}
            (Progress::OnTheWay, Patience::Left) => is_waiting = true,
            (Progress::OnTheWay, Patience::Over) | (Progress::Lost, _) => {
                let said = pod.shown.as_ref().map(in_words);
                let said = said.unwrap_or_else(|| "not looked at".to_owned());
                lost.push(format!("{}: {said}", pod.name));
            }
        }
    }
    match (is_waiting, lost.is_empty()) {
        (true, _) => OnceVerdict::Waiting,
        (false, true) => OnceVerdict::Done,
        (false, false) => OnceVerdict::Failed(lost),
    }
}

/// The word that kubectl would show, and the first piece of evidence that the status holds.
fn in_words(pod: &Pod) -> String {
    let word = headline(pod);
    let told = why(pod).into_iter().map(|it| it.message);
    match told.into_iter().find(|it| !it.is_empty()) {
        Some(message) => format!("{word} ({message})"),
        None => word,
    }
}

fn progress(shown: Option<&Pod>) -> Progress {
    let Some((pod, status)) = shown.and_then(|pod| Some((pod, pod.status.as_ref()?))) else {
        return Progress::OnTheWay;
    };
    match Phase::of(status) {
        Some(Phase::Succeeded) => Progress::Up,
        Some(Phase::Failed) => Progress::Lost,
        Some(Phase::Running) => {
            let statuses = status.container_statuses.iter().flatten();
            let states: Vec<_> = statuses.map(|it| (&it.name, it.state.as_ref())).collect();
            let is_up = |container: &Container| {
                let state = states.iter().find(|(name, _)| **name == container.name);
                state.is_some_and(|(_, state)| state.is_some_and(|it| has_run(pod, container, it)))
            };
            let mut regular = pod.spec_ref().containers.iter();
            if regular.all(is_up) { Progress::Up } else { Progress::OnTheWay }
        }
        Some(Phase::Pending | Phase::Unknown) | None => Progress::OnTheWay,
    }
}

/// It runs, or it ended and nobody would start it again.
fn has_run(pod: &Pod, container: &Container, state: &ContainerState) -> bool {
    let Some(ended) = &state.terminated else {
        return state.running.is_some();
    };
    !restarts_after(pod, container, ended.exit_code)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    /// Containers `a`, `b` … in these states; a number is the code of one that ended.
    fn shown(policy: &str, phase: &str, states: &[&str]) -> Pod {
        let names: Vec<String> =
            (b'a'..).map(|it| char::from(it).to_string()).take(states.len()).collect();
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let statuses: Vec<Value> = names
            .iter()
            .zip(states)
            .map(|(name, state)| {
                let state = match state.parse::<i32>() {
                    Ok(code) => json!({"terminated": {"exitCode": code}}),
                    Err(_) if *state == "runs" => json!({"running": {}}),
                    Err(_) => json!({"waiting": {"reason": state}}),
                };
                json!({"name": name, "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0})
            })
            .collect();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"restartPolicy": policy, "containers": containers},
            "status": {"phase": phase, "containerStatuses": statuses},
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn named(name: &str, shown: Option<Pod>) -> OncePod {
        OncePod { name: name.to_owned(), shown }
    }

    #[test]
    fn a_pod_is_up_when_each_container_runs_or_will_not_come_back() {
        for (policy, phase, states, expected) in [
            ("Always", "Pending", &["ContainerCreating"][..], Progress::OnTheWay),
            ("Always", "Running", &["runs"], Progress::Up),
            ("Always", "Running", &["runs", "ContainerCreating"], Progress::OnTheWay),
            ("Always", "Running", &["runs", "0"], Progress::OnTheWay),
            ("Always", "Running", &["CrashLoopBackOff"], Progress::OnTheWay),
            ("OnFailure", "Running", &["runs", "0"], Progress::Up),
            ("OnFailure", "Running", &["runs", "1"], Progress::OnTheWay),
            ("Never", "Running", &["runs", "1"], Progress::Up),
            ("Never", "Succeeded", &["0"], Progress::Up),
            ("Never", "Failed", &["1"], Progress::Lost),
        ] {
            let pod = shown(policy, phase, states);
            assert_eq!(progress(Some(&pod)), expected, "{policy} {phase} {states:?}");
        }
        assert_eq!(progress(None), Progress::OnTheWay);
    }

    #[test]
    fn a_container_that_a_rule_brings_back_is_not_up() {
        for (code, action, expected) in [
            (42, "Restart", Progress::OnTheWay),
            (42, "RestartAllContainers", Progress::OnTheWay),
            (7, "Restart", Progress::Up),
        ] {
            let mut pod = Arc::unwrap_or_clone(shown("Never", "Running", &["runs", "42"]));
            let rule = json!({"action": action, "exitCodes": {"operator": "In", "values": [code]}});
            let container = &mut pod.spec.as_mut().unwrap().containers[1];
            container.restart_policy = Some("Never".to_owned());
            container.restart_policy_rules = Some(vec![serde_json::from_value(rule).unwrap()]);
            assert_eq!(progress(Some(&Arc::new(pod))), expected, "{action} {code}");
        }
    }

    #[test]
    fn the_agent_leaves_when_all_are_up_or_time_is_over_and_names_those_that_are_not() {
        let up = || named("up", Some(shown("Always", "Running", &["runs"])));
        let slow = || named("slow", Some(shown("Always", "Pending", &["ErrImagePull"])));
        let lost = || named("lost", Some(shown("Never", "Failed", &["3"])));
        let of_lost = "lost: ExitCode:3 (ended with exit code 3)";
        let unseen = || named("unseen", None);
        let failed =
            |list: &[&str]| OnceVerdict::Failed(list.iter().map(|it| (*it).to_owned()).collect());
        for (pods, patience, expected) in [
            (vec![], Patience::Left, OnceVerdict::Done),
            (vec![up()], Patience::Left, OnceVerdict::Done),
            (vec![up(), slow()], Patience::Left, OnceVerdict::Waiting),
            (vec![unseen()], Patience::Left, OnceVerdict::Waiting),
            (vec![lost(), slow()], Patience::Left, OnceVerdict::Waiting),
            (vec![lost(), up()], Patience::Left, failed(&[of_lost])),
            (
                vec![up(), slow(), unseen()],
                Patience::Over,
                failed(&["slow: ErrImagePull", "unseen: not looked at"]),
            ),
        ] {
            assert_eq!(judge_once(&pods, patience), expected, "{pods:?}");
        }
    }
}

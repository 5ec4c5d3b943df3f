//! What a watch saw of one pod, put together: its states in order, its last status, and how long
//! its end took.
//!
//! Pure: arrivals in, lines out. A state is one line: phase (`*` while it is being deleted), the
//! conditions that a kubelet owns, and each container with state, reason, exit code, restarts and
//! readiness.

use std::time::Instant;

use serde_json::Value;

use crate::normalise::Names;

/// One pod name over the time of a case; another pod of the same name goes on where the first
/// ended.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) states: Vec<String>,
    /// The last object; kept when the pod is gone.
    pub(crate) last: Value,
    asked_to_go: Option<Instant>,
    pub(crate) gone_after: Option<f64>,
    pub(crate) is_gone: bool,
}

const CONDITIONS: [&str; 4] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];

impl History {
    /// Takes in one event of the watch.
    pub(crate) fn take(&mut self, kind: &str, object: Value, at: Instant) {
        let is_leaving = !object["metadata"]["deletionTimestamp"].is_null();
        if is_leaving {
            self.asked_to_go.get_or_insert(at);
        }
        self.is_gone = kind == "DELETED";
        let state = if self.is_gone {
            // Nobody asked first: it was removed at once.
            let asked = self.asked_to_go.take().unwrap_or(at);
            let took = at.saturating_duration_since(asked).as_secs_f64();
            self.gone_after = Some((took * 10.0).round() / 10.0);
            "gone".to_owned()
        } else {
            line(&object)
        };
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
        self.last = object;
    }

    /// The last status, without what belongs to the run.
    pub(crate) fn status(&self, names: &Names) -> Value {
        names.value(&self.last["status"])
    }
}

fn line(pod: &Value) -> String {
    let status = &pod["status"];
    let mut words = vec![status["phase"].as_str().unwrap_or("-").to_owned()];
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        words[0].push('*');
    }
    let conditions = status["conditions"].as_array();
    for kind in CONDITIONS {
        let found = conditions.into_iter().flatten().find(|it| it["type"] == kind);
        if let Some(condition) = found {
            let value = condition["status"].as_str().unwrap_or_default();
            words.push(format!("{kind}={}", value.chars().next().unwrap_or('-')));
        }
    }
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in status[list].as_array().into_iter().flatten() {
            words.push(container_word(container));
        }
    }
    words.join(" ")
}

/// `name:terminated/Error/1#2+`: state, reason, exit code, restarts, `+` when ready.
fn container_word(container: &Value) -> String {
    let name = container["name"].as_str().unwrap_or_default();
    let states = container["state"].as_object();
    let (state, facts) = match states.and_then(|it| it.iter().next()) {
        Some((state, facts)) => (state.as_str(), facts),
        None => ("-", &Value::Null),
    };
    let mut word = format!("{name}:{state}");
    if let Some(reason) = facts["reason"].as_str() {
        word.push_str(&format!("/{reason}"));
    }
    if let Some(code) = facts["exitCode"].as_i64() {
        word.push_str(&format!("/{code}"));
    }
    word.push_str(&format!("#{}", container["restartCount"]));
    if container["ready"] == true {
        word.push('+');
    }
    word
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn states_are_lines_and_repetitions_are_left_out() {
        let began = Instant::now();
        let pod = |leaving: Value, state: Value| {
            json!({
                "metadata": {"deletionTimestamp": leaving},
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
                    "containerStatuses": [{"name": "c", "state": state, "restartCount": 1, "ready": true}],
                },
            })
        };
        let ended = json!({"terminated": {"reason": "Error", "exitCode": 3}});
        let mut history = History::default();
        let running = json!({"running": {}});
        history.take("ADDED", pod(Value::Null, running.clone()), began);
        history.take("MODIFIED", pod(Value::Null, running.clone()), began);
        history.take("MODIFIED", pod(json!("now"), running), began);
        history.take("MODIFIED", pod(json!("now"), ended.clone()), began);
        history.take("DELETED", pod(json!("now"), ended), began + Duration::from_millis(2140));
        assert_eq!(
            history.states,
            [
                "Running Ready=T c:running#1+",
                "Running* Ready=T c:running#1+",
                "Running* Ready=T c:terminated/Error/3#1+",
                "gone",
            ]
        );
        assert_eq!(history.gone_after, Some(2.1));
    }
}

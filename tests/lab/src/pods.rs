//! Pods as the agent reports them on `/pods`, read through a few named questions.

use anyhow::{Context, Result};
use serde_json::Value;

/// One pod of the list.
#[derive(Debug, Clone)]
pub struct PodView(pub Value);

/// One container's status inside a pod.
#[derive(Debug, Clone)]
pub struct ContainerView(pub Value);

/// The pods of a v1 PodList.
pub fn parse_list(text: &str) -> Result<Vec<PodView>> {
    let list: Value =
        serde_json::from_str(text).with_context(|| format!("PodList, got {text:.200}"))?;
    // Go writes an empty list as null.
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.into_iter().map(PodView).collect())
}

impl PodView {
    #[must_use]
    pub fn name(&self) -> &str {
        text(&self.0["metadata"]["name"])
    }

    #[must_use]
    pub fn namespace(&self) -> &str {
        text(&self.0["metadata"]["namespace"])
    }

    #[must_use]
    pub fn uid(&self) -> &str {
        text(&self.0["metadata"]["uid"])
    }

    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.0["metadata"]["annotations"][key].as_str()
    }

    #[must_use]
    pub fn phase(&self) -> &str {
        text(&self.0["status"]["phase"])
    }

    #[must_use]
    pub fn ip(&self) -> Option<&str> {
        self.0["status"]["podIP"].as_str().filter(|ip| !ip.is_empty())
    }

    /// The status (`True`, `False`) of one condition.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&str> {
        self.0["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == kind)?["status"]
            .as_str()
    }

    /// All containers: init first, then regular.
    #[must_use]
    pub fn containers(&self) -> Vec<ContainerView> {
        ["initContainerStatuses", "containerStatuses"]
            .iter()
            .filter_map(|list| self.0["status"][*list].as_array())
            .flatten()
            .cloned()
            .map(ContainerView)
            .collect()
    }

    /// One container by name.
    pub fn container(&self, name: &str) -> Result<ContainerView> {
        self.containers()
            .into_iter()
            .find(|it| it.name() == name)
            .with_context(|| format!("no status of container {name} in {}", self.0["status"]))
    }

    /// Restarts over all containers.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.containers().iter().map(ContainerView::restarts).sum()
    }

    /// The word a person wants in the STATUS column: the first telling container reason, else the
    /// phase.
    #[must_use]
    pub fn state(&self) -> String {
        let waiting =
            self.containers().into_iter().find_map(|it| it.waiting_reason().map(str::to_owned));
        let ended = || self.containers().into_iter().find_map(|it| it.failure().map(str::to_owned));
        match self.phase() {
            "Succeeded" => "Succeeded".to_owned(),
            phase => waiting.or_else(ended).unwrap_or_else(|| phase.to_owned()),
        }
    }
}

impl ContainerView {
    #[must_use]
    pub fn name(&self) -> &str {
        text(&self.0["name"])
    }

    /// The runtime's id, without the `containerd://` in front.
    #[must_use]
    pub fn id(&self) -> &str {
        text(&self.0["containerID"]).rsplit("://").next().unwrap_or_default()
    }

    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0["ready"].as_bool().unwrap_or(false)
    }

    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0["state"]["running"].is_object()
    }

    /// When it began to run, as the agent says it; empty unless it runs.
    #[must_use]
    pub fn started_at(&self) -> &str {
        text(&self.0["state"]["running"]["startedAt"])
    }

    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.0["restartCount"].as_u64().unwrap_or(0)
    }

    #[must_use]
    pub fn waiting_reason(&self) -> Option<&str> {
        self.0["state"]["waiting"]["reason"].as_str()
    }

    #[must_use]
    pub fn waiting_message(&self) -> Option<&str> {
        self.0["state"]["waiting"]["message"].as_str()
    }

    #[must_use]
    pub fn exit_code(&self) -> Option<i64> {
        self.0["state"]["terminated"]["exitCode"].as_i64()
    }

    #[must_use]
    pub fn terminated_reason(&self) -> Option<&str> {
        self.0["state"]["terminated"]["reason"].as_str()
    }

    #[must_use]
    pub fn last_exit_code(&self) -> Option<i64> {
        self.0["lastState"]["terminated"]["exitCode"].as_i64()
    }

    fn failure(&self) -> Option<&str> {
        self.terminated_reason().filter(|_| self.exit_code() != Some(0))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_state_of_a_pod_is_the_word_that_tells_most() {
        let waiting = json!([{"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        let failed =
            json!([{"name": "a", "state": {"terminated": {"reason": "Error", "exitCode": 1}}}]);
        let done =
            json!([{"name": "a", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]);
        let running = json!([{"name": "a", "state": {"running": {}}}]);
        let cases = [
            ("Running", &waiting, "CrashLoopBackOff"),
            ("Failed", &failed, "Error"),
            ("Succeeded", &done, "Succeeded"),
            ("Running", &done, "Running"),
            ("Running", &running, "Running"),
        ];
        for (phase, containers, expected) in cases {
            let pod = PodView(json!({"status": {"phase": phase, "containerStatuses": containers}}));
            assert_eq!(pod.state(), expected);
        }
    }

    #[test]
    fn an_empty_list_may_be_null() {
        assert!(parse_list(r#"{"kind":"PodList","items":null}"#).unwrap().is_empty());
    }
}

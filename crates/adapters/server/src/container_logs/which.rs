//! Which run of a container a log request means: pure, from the container's status, as upstream
//! chooses.

use k8s_openapi::api::core::v1::ContainerStatus;

/// Why there is no log to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoLog {
    NotAvailable,
    NoPrevious,
    Terminated,
    Waiting { reason: String },
    NotYet,
}

impl NoLog {
    /// Upstream's words.
    pub(super) fn words(&self, container: &str, pod: &str) -> String {
        let who = format!("container {container:?} in pod {pod:?}");
        match self {
            Self::NotAvailable => format!("{who} is not available"),
            Self::NoPrevious => format!("previous terminated {who} not found"),
            Self::Terminated => format!("{who} is terminated"),
            Self::Waiting { reason } => match reason.as_str() {
                "ErrImagePull" => format!("{who} is waiting to start: image can't be pulled"),
                "ImagePullBackOff" => {
                    format!("{who} is waiting to start: trying and failing to pull image")
                }
                reason => format!("{who} is waiting to start: {reason}"),
            },
            Self::NotYet => format!("{who} is waiting to start - no logs yet"),
        }
    }
}

/// The id of the run, as the status writes it.
pub(super) fn run_of(status: Option<&ContainerStatus>, previous: bool) -> Result<String, NoLog> {
    let status = status.ok_or(NoLog::NotAvailable)?;
    let last = status.last_state.as_ref();
    let last = last.and_then(|state| state.terminated.as_ref());
    let last_id = last.map(|it| it.container_id.clone().unwrap_or_default());
    let last_id = last_id.as_deref().filter(|id| !id.is_empty());
    if previous {
        return last_id.map(str::to_owned).ok_or(NoLog::NoPrevious);
    }
    let state = status.state.as_ref();
    if state.is_some_and(|state| state.running.is_some()) {
        return Ok(status.container_id.clone().unwrap_or_default());
    }
    if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
        let own = ended.container_id.as_deref().filter(|id| !id.is_empty());
        // A run that never began has no log; the one before it has.
        let id = own.or(last_id).ok_or(NoLog::Terminated)?;
        return Ok(id.to_owned());
    }
    if last.is_some() {
        return last_id.map(str::to_owned).ok_or(NoLog::Terminated);
    }
    match state.and_then(|state| state.waiting.as_ref()) {
        Some(waiting) => Err(NoLog::Waiting { reason: waiting.reason.clone().unwrap_or_default() }),
        None => Err(NoLog::NotYet),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_run_that_is_meant_is_found_or_its_absence_explained() {
        let check = |status: Value, previous: bool, expected: Result<&str, &str>| {
            let mut whole =
                json!({"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0});
            whole.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
            let parsed: ContainerStatus = serde_json::from_value(whole).unwrap();
            let got = run_of(Some(&parsed), previous).map_err(|no| no.words("c", "p"));
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(got, expected, "{status}");
        };
        let ended = |id: &str| json!({"terminated": {"exitCode": 0, "containerID": id}});
        let running =
            json!({"state": {"running": {}}, "containerID": "r://2", "lastState": ended("r://1")});
        check(running.clone(), false, Ok("r://2"));
        check(running, true, Ok("r://1"));
        let first = json!({"state": {"running": {}}, "containerID": "r://1"});
        check(first, true, Err("previous terminated container \"c\" in pod \"p\" not found"));
        check(json!({"state": ended("r://1")}), false, Ok("r://1"));
        check(json!({"state": ended(""), "lastState": ended("r://0")}), false, Ok("r://0"));
        check(
            json!({"state": ended("")}),
            false,
            Err("container \"c\" in pod \"p\" is terminated"),
        );
        let backing_off = json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended("r://1")});
        check(backing_off, false, Ok("r://1"));
        for (reason, words) in [
            ("ErrImagePull", "image can't be pulled"),
            ("ImagePullBackOff", "trying and failing to pull image"),
            ("ContainerCreating", "ContainerCreating"),
        ] {
            let words = format!("container \"c\" in pod \"p\" is waiting to start: {words}");
            check(json!({"state": {"waiting": {"reason": reason}}}), false, Err(&words));
        }
        check(
            json!({}),
            false,
            Err("container \"c\" in pod \"p\" is waiting to start - no logs yet"),
        );
        assert_eq!(run_of(None, false), Err(NoLog::NotAvailable));
    }
}

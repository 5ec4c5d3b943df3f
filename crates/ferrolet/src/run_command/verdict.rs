//! What became of a pod, from its status. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

/// What is told of a pod that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The code of the first container that failed; 0 when none did.
    pub(super) code: u8,
    /// Why it failed, where no container says so.
    pub(super) why: Option<String>,
}

/// The verdict on a pod whose phase is final.
pub(super) fn of(pod: &Pod) -> Option<Verdict> {
    let status = pod.status.as_ref()?;
    match status.phase.as_deref() {
        Some("Succeeded") => Some(Verdict { code: 0, why: None }),
        Some("Failed") => {
            let code = in_order(status).find_map(failure);
            let words = [status.reason.as_deref(), status.message.as_deref()];
            let words: Vec<&str> =
                words.into_iter().flatten().filter(|it| !it.is_empty()).collect();
            let why = (!words.is_empty()).then(|| words.join(": "));
            Some(Verdict { code: code.unwrap_or(1), why })
        }
        _ => None,
    }
}

/// Whether lines of the log need a name.
pub(super) fn has_several_containers(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let count = |it: &k8s_openapi::api::core::v1::PodSpec| {
        it.containers.len() + it.init_containers.as_ref().map_or(0, Vec::len)
    };
    spec.map_or(0, count) > 1
}

/// Init containers first.
fn in_order(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

fn failure(container: &ContainerStatus) -> Option<u8> {
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    // An exit code has eight bits; anything else is a failure all the same.
    (code != 0).then(|| u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap()
    }

    fn ended(name: &str, code: i32) -> serde_json::Value {
        json!({
            "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code } },
        })
    }

    #[test]
    fn the_code_is_the_first_failed_containers() {
        let check = |status, expected: Option<u8>| {
            assert_eq!(of(&pod(status)).map(|it| it.code), expected);
        };
        check(json!({ "phase": "Running" }), None);
        check(json!({ "phase": "Pending" }), None);
        check(json!({ "phase": "Succeeded", "containerStatuses": [ended("a", 0)] }), Some(0));
        let both = json!([ended("a", 0), ended("b", 3), ended("c", 4)]);
        check(json!({ "phase": "Failed", "containerStatuses": both }), Some(3));
        let init = json!([ended("i", 9)]);
        check(
            json!({ "phase": "Failed", "initContainerStatuses": init, "containerStatuses": both }),
            Some(9),
        );
        check(json!({ "phase": "Failed" }), Some(1));
    }

    #[test]
    fn a_refused_pod_says_why() {
        let status = json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "too much" });
        let why = of(&pod(status)).unwrap().why;
        assert_eq!(why.as_deref(), Some("OutOfcpu: too much"));
    }
}

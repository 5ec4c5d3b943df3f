//! Times of a pod's status, which answers leave out because they differ from run to run: whether they
//! are there, and in an order in which things can have happened.
//!
//! Pure. In: a pod as the API shows it. Out: what is wrong, in words; nothing for every honest
//! kubelet. Refuses: comparing times of two kubelets.

use serde_json::Value;

/// What the runtime says of something that never began.
const NEVER: &str = "1970-01-01T00:00:00Z";

/// Everything that is wrong with the times of a pod.
pub(crate) fn faults(pod: &Value) -> Vec<String> {
    let status = &pod["status"];
    let mut faults = Vec::new();
    for condition in status["conditions"].as_array().into_iter().flatten() {
        if moment(&condition["lastTransitionTime"]).is_none() {
            faults.push(format!("condition {} has no time", text(&condition["type"])));
        }
    }
    let mut has_containers = false;
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in status[list].as_array().into_iter().flatten() {
            has_containers = true;
            of_container(container, &mut faults);
        }
    }
    if has_containers && moment(&status["startTime"]).is_none() {
        faults.push("the pod has no startTime".to_owned());
    }
    faults
}

fn of_container(container: &Value, faults: &mut Vec<String>) {
    let name = text(&container["name"]);
    let (state, before) = (&container["state"], &container["lastState"]);
    if state["running"].is_object() && moment(&state["running"]["startedAt"]).is_none() {
        faults.push(format!("{name} runs since no time"));
    }
    for (which, ended) in [("state", &state["terminated"]), ("lastState", &before["terminated"])] {
        // Nobody knows when it ended; upstream leaves both times out.
        if !ended.is_object() || ended["reason"] == "ContainerStatusUnknown" {
            continue;
        }
        match (moment(&ended["startedAt"]), moment(&ended["finishedAt"])) {
            (_, None) => faults.push(format!("{name} ended at no time in {which}")),
            (Some(started), Some(finished)) if started != NEVER && started > finished => {
                faults.push(format!("{name} ended before it began in {which}"));
            }
            _ => {}
        }
    }
    let earlier = moment(&before["terminated"]["finishedAt"]);
    let later = ["running", "terminated"].iter().find_map(|it| moment(&state[*it]["startedAt"]));
    if let (Some(earlier), Some(later)) = (earlier, later)
        && later != NEVER
        && later < earlier
    {
        faults.push(format!("{name} began before its last end"));
    }
}

/// A time as text; times of the API are written alike, so that their order is that of the text.
fn moment(value: &Value) -> Option<&str> {
    value.as_str().filter(|it| it.len() == NEVER.len() && it.ends_with('Z'))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: u32) -> String {
        format!("2026-01-01T00:00:{second:02}Z")
    }

    fn check(edit: impl FnOnce(&mut Value), expected: &[&str]) {
        let mut pod = json!({"status": {
            "startTime": at(1),
            "conditions": [{"type": "Ready", "lastTransitionTime": at(2)}],
            "containerStatuses": [{
                "name": "c",
                "lastState": {"terminated": {"startedAt": at(3), "finishedAt": at(4)}},
                "state": {"running": {"startedAt": at(5)}},
            }],
        }});
        edit(&mut pod);
        assert_eq!(faults(&pod), expected);
    }

    #[test]
    fn times_are_there_and_in_order() {
        check(|_| {}, &[]);
        check(|pod| pod["status"]["startTime"] = Value::Null, &["the pod has no startTime"]);
        let container = |pod: &mut Value| pod["status"]["containerStatuses"][0].clone();
        check(
            |pod| {
                let mut it = container(pod);
                it["state"] = json!({"running": {}});
                it["lastState"]["terminated"]["finishedAt"] = json!(at(2));
                pod["status"]["containerStatuses"][0] = it;
            },
            &["c runs since no time", "c ended before it began in lastState"],
        );
        check(
            |pod| {
                let state = json!({"terminated": {"startedAt": at(3), "finishedAt": at(9)}});
                pod["status"]["containerStatuses"][0]["state"] = state;
                pod["status"]["conditions"][0]["lastTransitionTime"] = json!("soon");
            },
            &["condition Ready has no time", "c began before its last end"],
        );
        check(
            |pod| {
                // One that never began, and one of which nobody knows anything.
                let never = json!({"terminated": {"startedAt": NEVER, "finishedAt": at(9)}});
                let unknown = json!({"terminated": {"reason": "ContainerStatusUnknown"}});
                pod["status"]["containerStatuses"][0]["state"] = never;
                pod["status"]["containerStatuses"][0]["lastState"] = unknown;
            },
            &[],
        );
        check(
            |pod| {
                let ended = json!({"terminated": {"startedAt": at(6)}});
                pod["status"]["containerStatuses"][0]["state"] = ended;
            },
            &["c ended at no time in state"],
        );
    }
}

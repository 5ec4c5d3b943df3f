//! What pods ask for, in the words of upstream's metrics. Pure.

use ferrolet_resources::pod_qos;
use ferrolet_types::{Pod, Quantity, pod::PodView, pod::is_sidecar};
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};

/// A change of what a container asks for: the resource, `requests` or `limits`, and what happens to
/// it.
pub(crate) type Change = [&'static str; 3];

/// What a new version of a pod changes of what its containers ask for. Init containers that end are
/// not resized.
pub(crate) fn changes(old: &Pod, new: &Pod) -> Vec<Change> {
    let resizable = |pod: &Pod| -> Vec<Container> {
        let spec = pod.spec_ref();
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|it| is_sidecar(it)).cloned();
        sidecars.chain(spec.containers.iter().cloned()).collect()
    };
    let after = resizable(new);
    let mut changes = Vec::new();
    for before in resizable(old) {
        let Some(after) = after.iter().find(|it| it.name == before.name) else {
            continue;
        };
        for resource in ["memory", "cpu"] {
            for kind in ["requests", "limits"] {
                let (was, is) = (amount(&before, kind, resource), amount(after, kind, resource));
                changes.extend(operation(was, is).map(|operation| [operation, kind, resource]));
            }
        }
    }
    changes
}

fn amount(container: &Container, kind: &str, resource: &str) -> Quantity {
    let resources = container.resources.as_ref();
    let amounts = resources.and_then(|it| match kind {
        "requests" => it.requests.as_ref(),
        _ => it.limits.as_ref(),
    });
    let text = amounts.and_then(|it| it.get(resource));
    text.and_then(|it| Quantity::parse(&it.0).ok()).unwrap_or(Quantity::ZERO)
}

fn operation(was: Quantity, is: Quantity) -> Option<&'static str> {
    match (was == Quantity::ZERO, is == Quantity::ZERO) {
        (true, true) => None,
        (true, false) => Some("add"),
        (false, true) => Some("remove"),
        (false, false) if is > was => Some("increase"),
        (false, false) if is < was => Some("decrease"),
        (false, false) => None,
    }
}

/// At which level a pod that is taken asks for resources, and its class.
pub(crate) fn levels(pod: &Pod) -> (&'static str, String) {
    let asks = |it: Option<&ResourceRequirements>| {
        it.is_some_and(|it| {
            let amounts = [&it.requests, &it.limits];
            amounts.into_iter().flatten().any(|it| !it.is_empty())
        })
    };
    let spec = pod.spec_ref();
    let containers = spec.containers.iter();
    let mut containers = containers.chain(spec.init_containers.iter().flatten());
    let is_in_containers = containers.any(|it| asks(it.resources.as_ref()));
    let level = match (asks(spec.resources.as_ref()), is_in_containers) {
        (true, true) => "pod_and_container_level",
        (true, false) => "pod_level",
        (false, true) => "container_level",
        (false, false) => "",
    };
    (level, pod_qos(pod).as_str().to_lowercase())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn pod(resources: Value, of_pod: Value) -> Pod {
        let whole = json!({"spec": {"containers": [{"name": "main", "resources": resources}],
            "initContainers": [{"name": "once", "resources": {"requests": {"cpu": "1"}}}],
            "resources": of_pod}});
        Arc::new(serde_json::from_value(whole).unwrap())
    }

    #[test]
    fn changes_are_told_by_resource_requirement_and_operation() {
        let old = json!({"requests": {"cpu": "100m", "memory": "10Mi"}, "limits": {"cpu": "1"}});
        let check = |new: Value, expected: &[Change]| {
            let got = changes(&pod(old.clone(), json!(null)), &pod(new.clone(), json!(null)));
            assert_eq!(got, expected, "{new}");
        };
        check(old.clone(), &[]);
        check(
            json!({"requests": {"cpu": "0.1", "memory": "20Mi"}, "limits": {"memory": "30Mi"}}),
            &[
                ["increase", "requests", "memory"],
                ["add", "limits", "memory"],
                ["remove", "limits", "cpu"],
            ],
        );
        check(
            json!({"requests": {"cpu": "50m", "memory": "10Mi"}, "limits": {"cpu": "1"}}),
            &[["decrease", "requests", "cpu"]],
        );
    }

    #[test]
    fn levels_say_where_resources_are_asked_for() {
        let some = json!({"requests": {"cpu": "1"}});
        let check = |of_container: &Value, of_pod: &Value, expected: &str| {
            let mut pod = Arc::unwrap_or_clone(pod(of_container.clone(), of_pod.clone()));
            pod.spec.as_mut().unwrap().init_containers = None;
            assert_eq!(levels(&Arc::new(pod)).0, expected);
        };
        check(&json!(null), &json!(null), "");
        check(&some, &json!(null), "container_level");
        check(&json!(null), &some, "pod_level");
        check(&some, &some, "pod_and_container_level");
        assert_eq!(levels(&pod(json!(null), json!(null))).1, "burstable");
    }
}

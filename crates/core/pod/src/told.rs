//! What a pod's status says of its containers that are probed.

use ferrolet_types::{ContainerId, probe::Told};
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::bare_container_id;

/// What the pod's own status says of the container with that id.
pub fn told_of(pod: &Pod, id: &ContainerId) -> Option<Told> {
    told_by(pod.status.as_ref()?).find(|(it, _)| *it == id.as_str()).map(|(_, told)| told)
}

/// What a status says of each container that it names by its id.
pub fn told_by(status: &PodStatus) -> impl Iterator<Item = (&str, Told)> {
    let init = status.init_container_statuses.iter().flatten();
    let all = init.chain(status.container_statuses.iter().flatten());
    all.filter_map(|it| {
        let id = bare_container_id(it.container_id.as_deref()?);
        let told = Told { started: it.started == Some(true), ready: it.ready };
        Some((id, told))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_speaks_only_of_the_container_it_names() {
        let of = |id: &str, started: bool, ready: bool| json!([{"name": "c", "containerID": id, "started": started, "ready": ready, "image": "", "imageID": "", "restartCount": 0}]);
        let pod: Pod = serde_json::from_value(json!({"status": {
            "containerStatuses": of("containerd://a1", true, true),
            "initContainerStatuses": of("containerd://b2", true, false),
        }}))
        .unwrap();
        let check = |id: &str, told: Option<(bool, bool)>| {
            let told = told.map(|(started, ready)| Told { started, ready });
            assert_eq!(told_of(&pod, &id.into()), told, "{id}");
        };
        check("a1", Some((true, true)));
        check("b2", Some((true, false)));
        check("1", None);
        check("c3", None);
    }
}

//! The containers of a pod, by kind.
//!
//! Ephemeral containers have a type of their own in the API; here they have the shape of all others.

use std::borrow::Cow;

use ferrolet_types::pod::{ContainerKind, PodView, ephemeral_as_container, init_kind};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus};

use crate::bare_container_id;

/// Every container of the specification: init containers and sidecars in their order, then regular
/// ones, then ephemeral ones.
pub fn all_containers(pod: &Pod) -> impl Iterator<Item = (ContainerKind, Cow<'_, Container>)> {
    let spec = pod.spec_ref();
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|it| (init_kind(it), Cow::Borrowed(it)));
    let regular = spec.containers.iter().map(|it| (ContainerKind::Regular, Cow::Borrowed(it)));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral =
        ephemeral.map(|it| (ContainerKind::Ephemeral, Cow::Owned(ephemeral_as_container(it))));
    init.chain(regular).chain(ephemeral)
}

/// The containers of one kind, in the specification's order.
pub fn containers_of(pod: &Pod, kind: ContainerKind) -> Vec<Cow<'_, Container>> {
    let all = all_containers(pod).filter(|(it, _)| *it == kind);
    all.map(|(_, container)| container).collect()
}

/// Init containers, sidecars and regular containers: those that the pod was made with.
pub fn init_and_regular(spec: &PodSpec) -> impl Iterator<Item = &Container> + Clone {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// The kind of the container of that name; what stands in no list of the pod is taken for an
/// ephemeral one.
pub fn kind_of_container(pod: &Pod, name: &str) -> ContainerKind {
    pod.find_container(name).map_or(ContainerKind::Ephemeral, |(kind, _)| kind)
}

/// The statuses of all containers: init containers and sidecars, then regular ones, then ephemeral
/// ones.
pub fn container_statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    lists.into_iter().flatten().flatten()
}

/// Names and ids of the containers that the pod has now, as its status says.
pub fn container_ids(pod: &Pod) -> Vec<(&str, &str)> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    fn named(it: &ContainerStatus) -> Option<(&str, &str)> {
        Some((&it.name, bare_container_id(it.container_id.as_deref()?)))
    }
    container_statuses(status).filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_come_in_order_and_ephemeral_ones_are_among_them() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "containers": [{"name": "web"}],
            "initContainers": [{"name": "first"}, {"name": "proxy", "restartPolicy": "Always"}],
            "ephemeralContainers": [{"name": "debug", "image": "busybox"}],
        }}))
        .unwrap();
        let all: Vec<_> = all_containers(&pod).map(|(kind, it)| (kind, it.name.clone())).collect();
        let expected = [
            (ContainerKind::Init, "first"),
            (ContainerKind::Sidecar, "proxy"),
            (ContainerKind::Regular, "web"),
            (ContainerKind::Ephemeral, "debug"),
        ];
        assert_eq!(all, expected.map(|(kind, name)| (kind, name.to_owned())));
        for (kind, name) in expected {
            let names: Vec<_> =
                containers_of(&pod, kind).iter().map(|it| it.name.clone()).collect();
            assert_eq!(names, [name]);
            assert_eq!(kind_of_container(&pod, name), kind);
        }
        let made_with: Vec<_> = init_and_regular(pod.spec_ref()).map(|it| &it.name).collect();
        assert_eq!(made_with, ["first", "proxy", "web"]);
    }

    #[test]
    fn statuses_of_every_kind_are_found() {
        let of = |name: &str| json!([{"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0}]);
        let status: PodStatus = serde_json::from_value(json!({
            "containerStatuses": of("web"), "initContainerStatuses": of("first"),
            "ephemeralContainerStatuses": of("debug"),
        }))
        .unwrap();
        let names: Vec<_> = container_statuses(&status).map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["first", "web", "debug"]);
    }
}

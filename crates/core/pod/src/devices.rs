//! Whether a pod may ask for devices.

use ferrolet_types::{is_native_resource, pod::PodView};
use k8s_openapi::api::core::v1::Pod;

use crate::init_and_regular;

/// True when a container asks for a resource that is not Kubernetes' own: a plugin may offer it.
/// Whether one does is for whoever keeps the book of devices.
pub fn asks_for_devices(pod: &Pod) -> bool {
    init_and_regular(pod.spec_ref()).any(|container| {
        let limits = container.resources.as_ref().and_then(|it| it.limits.as_ref());
        limits.into_iter().flatten().any(|(name, _)| !is_native_resource(name))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_resources_of_others_may_be_devices() {
        let check = |limits: serde_json::Value, expected: bool| {
            let pod =
                json!({"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(asks_for_devices(&pod), expected);
        };
        check(json!({}), false);
        check(json!({"cpu": "1", "hugepages-2Mi": "2Mi", "node.kubernetes.io/x": "1"}), false);
        check(json!({"cpu": "1", "example.com/gpu": "1"}), true);
        let init = json!({"spec": {"containers": [{"name": "c"}], "initContainers": [
            {"name": "i", "resources": {"limits": {"example.com/gpu": "1"}}}]}});
        assert!(asks_for_devices(&serde_json::from_value(init).unwrap()));
    }
}

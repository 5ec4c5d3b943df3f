//! What a pod asks for, container by container, and what one of them may take over from another.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_pod::init_and_regular;
use ferrolet_types::{
    Quantity,
    pod::{ContainerKind, PodView, init_kind},
};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::DeviceBook;

/// Devices that one container asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAsk {
    /// Which container.
    pub container: String,
    /// Of which resource.
    pub resource: String,
    /// How many.
    pub n: usize,
}

/// What the containers of a pod ask of plugins, in the order in which they are served: init
/// containers first. Requests equal limits for such resources, so limits are enough. What dynamic
/// resource allocation serves instead is left out, and so is what no plugin has ever offered here.
pub fn asks(pod: &Pod, book: &DeviceBook) -> Vec<DeviceAsk> {
    let mut asks = Vec::new();
    for container in init_and_regular(pod.spec_ref()) {
        let limits = container.resources.as_ref().and_then(|it| it.limits.as_ref());
        for (resource, amount) in limits.into_iter().flatten() {
            let n = Quantity::parse(&amount.0).map_or(0, Quantity::value);
            let n = usize::try_from(n).unwrap_or(0);
            if n > 0
                && book.is_device_resource(resource)
                && !is_claimed(pod, &container.name, resource)
            {
                let container = container.name.clone();
                asks.push(DeviceAsk { container, resource: resource.clone(), n });
            }
        }
    }
    asks
}

/// True when a claim stands for what a container asks of an extended resource.
pub(crate) fn is_claimed(pod: &Pod, container: &str, resource: &str) -> bool {
    let status = pod.status.as_ref().and_then(|it| it.extended_resource_claim_status.as_ref());
    let mut mappings = status.into_iter().flat_map(|it| &it.request_mappings);
    mappings.any(|it| it.container_name == container && it.resource_name == resource)
}

/// Devices that a container may take over: init containers before it have them and will be gone.
/// Sidecars and regular containers keep what they took.
pub fn reusable(
    pod: &Pod,
    container: &str,
    book: &DeviceBook,
) -> BTreeMap<String, BTreeSet<String>> {
    let spec = pod.spec_ref();
    let init = spec.init_containers.iter().flatten().map(|it| (init_kind(it), it));
    let regular = spec.containers.iter().map(|it| (ContainerKind::Regular, it));
    let before = init.chain(regular).take_while(|(_, it)| it.name != container);
    let mut free: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (kind, Container { name, .. }) in before {
        for (resource, allocation) in book.allocations(&pod.uid(), name).into_iter().flatten() {
            let free = free.entry(resource.clone()).or_default();
            match kind {
                ContainerKind::Init => free.extend(allocation.devices()),
                ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral => {
                    let kept = allocation.devices();
                    free.retain(|id| !kept.contains(id));
                }
            }
        }
    }
    free
}

//! What others see of devices: how they feel in a pod's status, and who has which.

use std::collections::BTreeMap;

use ferrolet_devices::DeviceBook;
use ferrolet_ports::{Given, GivenDevices, GivenView};
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use k8s_openapi::api::core::v1::{Container, ResourceHealth, ResourceStatus};

use crate::Devices;

/// The devices of a container as its status lists them.
pub(crate) fn health(book: &DeviceBook, uid: &PodUid, container: &str) -> Vec<ResourceStatus> {
    let of = |(resource, devices): (&str, BTreeMap<String, bool>)| ResourceStatus {
        name: resource.to_owned(),
        resources: Some(
            devices
                .into_iter()
                .map(|(id, is_healthy)| ResourceHealth {
                    resource_id: id,
                    health: Some(if is_healthy { "Healthy" } else { "Unhealthy" }.to_owned()),
                    ..ResourceHealth::default()
                })
                .collect(),
        ),
    };
    book.health(uid, container).into_iter().map(of).collect()
}

/// One line for each device and NUMA node, as upstream has it.
impl GivenView for Devices {
    fn allocatable(&self) -> Given {
        let devices = self.look(|book| {
            let all = book.allocatable().into_iter();
            let lines = all.flat_map(|(resource, devices)| {
                devices.into_iter().flat_map(move |(id, nodes)| lines(resource, id, nodes))
            });
            lines.collect::<Vec<GivenDevices>>()
        });
        Given { devices, ..Given::default() }
    }

    fn given_to(&self, pod: &Pod, container: &Container) -> Given {
        let devices = self.look(|book| {
            let mut all = Vec::new();
            for (resource, allocation) in
                book.allocations(&pod.uid(), &container.name).into_iter().flatten()
            {
                let mut nodes: BTreeMap<&String, Vec<i64>> = BTreeMap::new();
                for (node, ids) in &allocation.ids {
                    for id in ids {
                        let near = nodes.entry(id).or_default();
                        // Negative: close to none.
                        near.extend(Some(*node).filter(|node| *node >= 0));
                    }
                }
                all.extend(nodes.into_iter().flat_map(|(id, near)| lines(resource, id, &near)));
            }
            all
        });
        Given { devices, ..Given::default() }
    }
}

fn lines(resource: &str, id: &str, nodes: &[i64]) -> Vec<GivenDevices> {
    let line = |numa_nodes: Vec<i64>| GivenDevices {
        resource: resource.to_owned(),
        ids: vec![id.to_owned()],
        numa_nodes,
    };
    match nodes {
        [] => vec![line(Vec::new())],
        nodes => nodes.iter().map(|node| line(vec![*node])).collect(),
    }
}

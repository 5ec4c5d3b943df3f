//! Ports of the node that pods ask for.

use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::Pod;

/// True when no other pod has one of the node's ports that this pod asks for.
pub(super) fn are_free(pod: &Pod, others: &[&Pod]) -> bool {
    let taken: Vec<HostPort<'_>> = others.iter().flat_map(|other| host_ports(other)).collect();
    host_ports(pod).iter().all(|asked| !taken.iter().any(|port| port.clashes_with(asked)))
}

struct HostPort<'a> {
    ip: &'a str,
    protocol: &'a str,
    port: i32,
}

impl HostPort<'_> {
    fn clashes_with(&self, other: &Self) -> bool {
        let is_everywhere = |ip: &str| ip == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || is_everywhere(self.ip) || is_everywhere(other.ip))
    }
}

/// Regular containers and sidecars hold their ports for the pod's whole life.
fn host_ports(pod: &Pod) -> Vec<HostPort<'_>> {
    let spec = pod.spec_ref();
    let sidecars =
        spec.init_containers.iter().flatten().filter(|it| ferrolet_types::pod::is_sidecar(it));
    let ports =
        sidecars.chain(&spec.containers).flat_map(|container| container.ports.iter().flatten());
    let hosted = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let ip = port.host_ip.as_deref().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0");
        Some(HostPort { ip, protocol: port.protocol.as_deref().unwrap_or("TCP"), port: number })
    });
    hosted.collect()
}

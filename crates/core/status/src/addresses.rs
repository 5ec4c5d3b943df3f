//! The addresses of a pod and its node.
//!
//! Owned by `compute`. In: the newest sandbox, the node's addresses, the previous status. Out:
//! `podIP(s)` and `hostIP(s)`.

use std::net::IpAddr;

use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::{HostIP, PodIP, PodStatus};

use crate::inputs::StatusInputs;

/// Fills in the four address fields.
pub(crate) fn fill(status: &mut PodStatus, inputs: &StatusInputs<'_>) {
    let hosts: Vec<&String> = inputs.host_ips.iter().take(2).collect();
    let mut pods = pod_ips(inputs);
    // A pod on the node's network is where the node is.
    if inputs.pod.is_host_network() {
        if pods.is_empty() {
            pods.extend(hosts.first().map(|ip| (*ip).clone()));
        }
        if let ([only], [_, second]) = (pods.as_slice(), hosts.as_slice())
            && is_v6(only) != is_v6(second)
        {
            pods.push((*second).clone());
        }
    }
    status.host_ip = hosts.first().map(|ip| (*ip).clone());
    status.host_ips = non_empty(hosts.into_iter().map(|ip| HostIP { ip: ip.clone() }));
    status.pod_ip = pods.first().cloned();
    status.pod_ips = non_empty(pods.into_iter().map(|ip| PodIP { ip }));
}

/// The sandbox's addresses, the node's family first and one of each; those told before, once no
/// sandbox is left to ask.
fn pod_ips(inputs: &StatusInputs<'_>) -> Vec<String> {
    let sandboxes = &inputs.observation.sandboxes;
    let newest = sandboxes.first().filter(|sandbox| sandbox.is_ready);
    let told: Vec<String> = match newest {
        Some(sandbox) if !sandbox.ips.is_empty() => sandbox.ips.clone(),
        _ if sandboxes.iter().any(|sandbox| sandbox.is_ready) => Vec::new(),
        _ => {
            let old = inputs.old();
            let many = old.pod_ips.iter().flatten().map(|pod| pod.ip.clone());
            let many: Vec<String> = many.collect();
            if many.is_empty() { old.pod_ip.clone().into_iter().collect() } else { many }
        }
    };
    let prefers_v6 = inputs.host_ips.first().is_some_and(|ip| is_v6(ip));
    let parsed: Vec<IpAddr> = told.iter().filter_map(|ip| ip.parse().ok()).collect();
    let of = |v6: bool| parsed.iter().find(move |ip| ip.is_ipv6() == v6);
    let ordered = of(prefers_v6).into_iter().chain(of(!prefers_v6));
    ordered.map(ToString::to_string).collect()
}

fn is_v6(ip: &str) -> bool {
    ip.contains(':')
}

fn non_empty<T>(items: impl Iterator<Item = T>) -> Option<Vec<T>> {
    Some(items.collect()).filter(|list: &Vec<T>| !list.is_empty())
}

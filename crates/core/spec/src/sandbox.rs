//! A pod's sandbox as a request.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_resources::{QuotaMode, overhead_resources, sandbox_resources, sysctl_with_dots};
use ferrolet_types::pod::PodView as _;
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod};

use crate::{
    PortMapping, SandboxInputs, SandboxSpec, SpecError,
    dns::pod_dns,
    hosts::{kernel_hostname, pod_hostname},
    labels::{sandbox_annotations, sandbox_labels},
    security::sandbox_security,
};

/// What to ask a runtime for so that a pod's containers have a place.
pub fn sandbox_spec(pod: &Pod, inputs: &SandboxInputs<'_>) -> Result<SandboxSpec, SpecError> {
    let hostname = if pod.is_host_network() {
        String::new()
    } else {
        kernel_hostname(pod, pod_hostname(pod, &inputs.dns.cluster_domain)?)?
    };
    let resources = &inputs.settings.resources;
    Ok(SandboxSpec {
        uid: pod.uid(),
        key: pod.key(),
        attempt: inputs.attempt,
        hostname,
        log_directory: inputs.log_directory.clone(),
        dns: pod_dns(pod, inputs.dns).spec,
        port_mappings: port_mappings(pod),
        labels: sandbox_labels(pod),
        annotations: sandbox_annotations(pod),
        cgroup_parent: inputs.cgroup_parent.clone(),
        sysctls: sysctls(pod, &inputs.settings.default_sysctls),
        security: sandbox_security(pod, &inputs.user_mappings, &inputs.extra_groups)?,
        resources: sandbox_resources(pod, resources, QuotaMode::Enforced),
        overhead: overhead_resources(pod, resources),
        runtime_handler: inputs.runtime_handler.clone(),
    })
}

/// Parameters that each IPC namespace has for itself.
const OF_IPC: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shm_rmid_forced",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
];

/// Kernel parameters by the names that runtimes understand, whichever way the pod separates their
/// parts: its own over the node's defaults.
fn sysctls(pod: &Pod, defaults: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let context = pod.spec_ref().security_context.as_ref();
    let list = context.and_then(|context| context.sysctls.as_ref());
    let own = list.into_iter().flatten();
    let own = own.map(|sysctl| (sysctl_with_dots(&sysctl.name), sysctl.value.clone()));
    let defaults = defaults.iter().map(|(name, value)| (sysctl_with_dots(name), value.clone()));
    defaults.filter(|(name, _)| has_own(pod, name)).chain(own).collect()
}

/// True when the pod has the namespace that a parameter belongs to: the host's are not touched.
fn has_own(pod: &Pod, name: &str) -> bool {
    let spec = pod.spec_ref();
    if OF_IPC.contains(&name) || name.starts_with("fs.mqueue.") {
        return spec.host_ipc != Some(true);
    }
    if name.starts_with("user.") {
        return spec.host_users == Some(false);
    }
    !pod.is_host_network() && (name.starts_with("net.") || name == "kernel.domainname")
}

/// Every port of every regular container; a name, or for nameless ports a combination, counts once
/// per container.
fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    pod.spec_ref().containers.iter().flat_map(container_ports).collect()
}

fn container_ports(container: &Container) -> Vec<PortMapping> {
    let mut seen = BTreeSet::new();
    let ports = container.ports.iter().flatten();
    let fresh = ports.filter(|port| seen.insert(port_key(port)));
    fresh
        .map(|port| PortMapping {
            protocol: protocol(port),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

fn port_key(port: &ContainerPort) -> String {
    if let Some(name) = port.name.as_ref().filter(|name| !name.is_empty()) {
        return name.clone();
    }
    let host_ip = port.host_ip.as_deref().unwrap_or_default();
    let host_port = port.host_port.unwrap_or(0);
    format!("{}-{host_ip}:{}:{host_port}", protocol(port), port.container_port)
}

fn protocol(port: &ContainerPort) -> &'static str {
    match port.protocol.as_deref() {
        Some("UDP") => "UDP",
        Some("SCTP") => "SCTP",
        _ => "TCP",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Sysctls: runtimes know dots only.
    #[test]
    fn kernel_parameters_are_named_with_dots() {
        let pod: Pod = serde_json::from_value(
            json!({"spec": {"containers": [], "securityContext": {"sysctls": [
            {"name": "kernel/shm_rmid_forced", "value": "1"},
            {"name": "net.ipv4.tcp_syncookies", "value": "0"},
            {"name": "net/ipv4/conf/eth0.1/arp_accept", "value": "1"},
            {"name": "net.ipv4.conf.eth0/2.arp_accept", "value": "2"}]}}}),
        )
        .unwrap();
        let found: Vec<(String, String)> = sysctls(&pod, &BTreeMap::new()).into_iter().collect();
        let expected = [
            ("kernel.shm_rmid_forced", "1"),
            ("net.ipv4.conf.eth0/1.arp_accept", "1"),
            ("net.ipv4.conf.eth0/2.arp_accept", "2"),
            ("net.ipv4.tcp_syncookies", "0"),
        ];
        assert_eq!(found, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }

    #[test]
    fn defaults_of_the_node_reach_the_namespaces_that_a_pod_has_for_itself() {
        let defaults =
            ["kernel/shmmax", "net.core.somaxconn", "user.max_ipc_namespaces", "vm.swappiness"];
        let defaults = defaults.map(|name| (name.to_owned(), "5".to_owned())).into();
        let check = |spec: serde_json::Value, expected: &[(&str, &str)]| {
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            let found = sysctls(&pod, &defaults);
            let found: Vec<_> = found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(found, expected);
        };
        let both = [("kernel.shmmax", "5"), ("net.core.somaxconn", "5")];
        check(json!({"containers": []}), &both);
        check(json!({"containers": [], "hostNetwork": true}), &both[..1]);
        check(json!({"containers": [], "hostIPC": true}), &both[1..]);
        check(
            json!({"containers": [], "hostIPC": true, "hostUsers": false, "hostNetwork": true}),
            &[("user.max_ipc_namespaces", "5")],
        );
        let own = json!({"sysctls": [{"name": "kernel/shmmax", "value": "9"}]});
        check(
            json!({"containers": [], "hostNetwork": true, "securityContext": own}),
            &[("kernel.shmmax", "9")],
        );
    }

    #[test]
    fn ports_count_once_per_container() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "a", "ports": [
                {"containerPort": 80}, {"containerPort": 80}, {"containerPort": 80, "protocol": "UDP", "hostPort": 1},
                {"name": "x", "containerPort": 81}, {"name": "x", "containerPort": 82}]},
            {"name": "b", "ports": [{"containerPort": 80, "hostIP": "::1", "protocol": "SCTP"}]}]}}))
        .unwrap();
        let found: Vec<String> = port_mappings(&pod)
            .iter()
            .map(|p| format!("{} {}>{} {}", p.protocol, p.host_port, p.container_port, p.host_ip))
            .collect();
        assert_eq!(found, ["TCP 0>80 ", "UDP 1>80 ", "TCP 0>81 ", "SCTP 0>80 ::1"]);
    }
}

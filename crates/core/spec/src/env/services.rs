//! Variables that tell a container where services are, in the two old conventions: `X_SERVICE_HOST`
//! and Docker's links.

use std::{collections::BTreeMap, sync::Arc};

use ferrolet_types::pod::PodView as _;
use k8s_openapi::api::core::v1::{Pod, Service};

/// Variables of the services that the pod sees: those of its namespace unless it declines
/// (`enableServiceLinks`), and `kubernetes` always. Services without a cluster address have none.
/// Sorted by service name.
pub(crate) fn variables(pod: &Pod, services: &[Arc<Service>]) -> Vec<(String, String)> {
    let namespace = pod.key().namespace;
    let has_links = pod.spec_ref().enable_service_links.unwrap_or(true);
    let mut seen: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in services.iter().filter(|it| address_of(it).is_some()) {
        let meta = &service.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let home = meta.namespace.as_deref().unwrap_or_default();
        if home == "default" && name == "kubernetes" {
            seen.entry(name).or_insert(service);
        } else if has_links && home == &*namespace {
            seen.insert(name, service);
        }
    }
    seen.iter().flat_map(|(name, service)| of_service(name, service)).collect()
}

fn of_service(name: &str, service: &Service) -> Vec<(String, String)> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref());
    let ports = ports.unwrap_or_default();
    let (Some(address), Some(first)) = (address_of(service), ports.first()) else {
        return Vec::new();
    };
    let prefix = variable_name(name);
    let mut variables = vec![
        (format!("{prefix}_SERVICE_HOST"), address.to_owned()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
    ];
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let name = format!("{prefix}_SERVICE_PORT_{}", variable_name(name));
            variables.push((name, port.port.to_string()));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().filter(|name| !name.is_empty());
        let protocol = protocol.unwrap_or("TCP");
        let lower = protocol.to_lowercase();
        let url = format!("{lower}://{}", host_and_port(address, port.port));
        if index == 0 {
            variables.push((format!("{prefix}_PORT"), url.clone()));
        }
        let link = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        variables.push((link.clone(), url));
        variables.push((format!("{link}_PROTO"), lower));
        variables.push((format!("{link}_PORT"), port.port.to_string()));
        variables.push((format!("{link}_ADDR"), address.to_owned()));
    }
    variables
}

/// The service's address in the cluster, if it has one.
fn address_of(service: &Service) -> Option<&str> {
    let address = service.spec.as_ref()?.cluster_ip.as_deref()?;
    Some(address).filter(|address| !matches!(*address, "" | "None"))
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

fn host_and_port(host: &str, port: i32) -> String {
    if host.contains(':') {
        return format!("[{host}]:{port}");
    }
    format!("{host}:{port}")
}

//! The files that every container of a pod sees unless it brings its own: `hosts`, `hostname`, `resolv.conf`.

use std::path::Path;

use ferrolet_cri_proto as cri;

use super::{
    error::RuntimeError,
    files::{read_node_file, write},
};

/// The pod's name for its machine: its own, or the node's.
pub(crate) fn hostname(config: &cri::PodSandboxConfig) -> String {
    if config.hostname.is_empty() {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    } else {
        config.hostname.clone()
    }
}

/// Writes them into the pod's directory.
pub(crate) fn write_all(
    directory: &Path,
    config: &cri::PodSandboxConfig,
    hostname: &str,
) -> Result<(), RuntimeError> {
    let hosts = read_node_file(Path::new("/etc/hosts"))?;
    let resolver = match &config.dns_config {
        Some(dns) if *dns != cri::DnsConfig::default() => resolv_conf(dns).into_bytes(),
        _ => read_node_file(Path::new("/etc/resolv.conf"))?,
    };
    write(&directory.join("hosts"), &hosts, 0o644)?;
    write(&directory.join("hostname"), format!("{hostname}\n").as_bytes(), 0o644)?;
    write(&directory.join("resolv.conf"), &resolver, 0o644)
}

fn resolv_conf(dns: &cri::DnsConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text += &format!("search {}\n", dns.searches.join(" "));
    }
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    if !dns.options.is_empty() {
        text += &format!("options {}\n", dns.options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_is_configured_as_asked() {
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
        let dns = cri::DnsConfig {
            servers: texts(&["10.96.0.10", "fd00::10"]),
            searches: texts(&["default.svc.cluster.local", "svc.cluster.local"]),
            options: texts(&["ndots:5"]),
        };
        let expected = "search default.svc.cluster.local svc.cluster.local\n\
            nameserver 10.96.0.10\nnameserver fd00::10\noptions ndots:5\n";
        assert_eq!(resolv_conf(&dns), expected);
        assert_eq!(resolv_conf(&cri::DnsConfig { searches: Vec::new(), ..dns }).lines().count(), 3);
    }
}

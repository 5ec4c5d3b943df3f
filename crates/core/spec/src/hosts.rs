//! What a pod is called: its host name, its domain, and the hosts file its containers see.
//!
//! In: a pod, the cluster's domain, addresses, and for pods on the node's network the node's own
//! hosts file. Out: text. Refuses: writing the file, and deciding which container mounts it.

use ferrolet_types::pod::PodView as _;
use k8s_openapi::api::core::v1::{HostAlias, Pod};

use crate::names::{label_fault, subdomain_fault};

/// A name is 64 bytes for the kernel, one of them the end mark.
const HOSTNAME_MAX: usize = 63;
/// Upstream lets a full name take all 64.
const FQDN_MAX: usize = 64;

/// A pod's short name and its domain; the domain may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hostname {
    /// The first label.
    pub name: String,
    /// The rest, without a leading dot.
    pub domain: String,
}

/// Why a pod cannot be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what the variants are")]
pub enum HostnameError {
    #[error("pod HostnameOverride {name:?} is not a valid DNS subdomain: {fault}")]
    Override { name: String, fault: String },
    #[error("pod Hostname {name:?} is not a valid DNS label: {fault}")]
    Hostname { name: String, fault: String },
    #[error("pod Subdomain {name:?} is not a valid DNS label: {fault}")]
    Subdomain { name: String, fault: String },
    #[error("hostname for pod {pod:?} was invalid: {name:?}")]
    Empty { pod: String, name: String },
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long \
         ({FQDN_MAX} characters is the max, {} characters requested)", fqdn.len()
    )]
    FqdnTooLong { fqdn: String },
}

/// The pod's name and domain: `hostnameOverride` alone, else `hostname` or the pod's name, cut to
/// 63 bytes.
pub fn pod_hostname(pod: &Pod, cluster_domain: &str) -> Result<Hostname, HostnameError> {
    let spec = pod.spec_ref();
    let key = pod.key();
    if let Some(name) = &spec.hostname_override {
        if let Some(fault) = subdomain_fault(name) {
            let name = name.clone();
            return Err(HostnameError::Override { name, fault });
        }
        let name = cut(&key.name, name)?;
        let domain = String::new();
        return Ok(Hostname { name, domain });
    }
    let own = spec.hostname.as_deref().filter(|name| !name.is_empty());
    if let Some((name, fault)) = own.and_then(|name| Some((name, label_fault(name)?))) {
        let name = name.to_owned();
        return Err(HostnameError::Hostname { name, fault });
    }
    let name = cut(&key.name, own.unwrap_or(&key.name))?;
    let domain = match spec.subdomain.as_deref().filter(|name| !name.is_empty()) {
        None => String::new(),
        Some(subdomain) => match label_fault(subdomain) {
            None => format!("{subdomain}.{}.svc.{cluster_domain}", key.namespace),
            Some(fault) => {
                let name = subdomain.to_owned();
                return Err(HostnameError::Subdomain { name, fault });
            }
        },
    };
    Ok(Hostname { name, domain })
}

/// The name the kernel is given: the short one, or with `setHostnameAsFQDN` the full one.
pub(crate) fn kernel_hostname(pod: &Pod, hostname: Hostname) -> Result<String, HostnameError> {
    let is_full = pod.spec_ref().set_hostname_as_fqdn.unwrap_or(false);
    if !is_full || hostname.domain.is_empty() {
        return Ok(hostname.name);
    }
    let fqdn = format!("{}.{}", hostname.name, hostname.domain);
    if fqdn.len() > FQDN_MAX {
        return Err(HostnameError::FqdnTooLong { fqdn });
    }
    Ok(fqdn)
}

/// The hosts file of a pod with addresses of its own.
pub fn hosts_file(pod: &Pod, hostname: &Hostname, pod_ips: &[String]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    let Hostname { name, domain } = hostname;
    for ip in pod_ips {
        text += &if domain.is_empty() {
            format!("{ip}\t{name}\n")
        } else {
            format!("{ip}\t{name}.{domain}\t{name}\n")
        };
    }
    text + &aliases(pod)
}

/// The hosts file of a pod on the node's network: the node's own, with the pod's aliases.
pub fn node_hosts_file(pod: &Pod, node_hosts: &str) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{node_hosts}{}", aliases(pod))
}

fn aliases(pod: &Pod) -> String {
    let aliases = pod.spec_ref().host_aliases.as_deref().unwrap_or_default();
    if aliases.is_empty() {
        return String::new();
    }
    let line = |alias: &HostAlias| {
        let names = alias.hostnames.as_deref().unwrap_or_default();
        format!("{}\t{}\n", alias.ip, names.join("\t"))
    };
    let lines: String = aliases.iter().map(line).collect();
    format!("\n# Entries added by HostAliases.\n{lines}")
}

fn cut(pod: &str, name: &str) -> Result<String, HostnameError> {
    if name.len() <= HOSTNAME_MAX {
        return Ok(name.to_owned());
    }
    let short = name[..name.floor_char_boundary(HOSTNAME_MAX)].trim_end_matches(['-', '.']);
    if short.is_empty() {
        let (pod, name) = (pod.to_owned(), name.to_owned());
        return Err(HostnameError::Empty { pod, name });
    }
    Ok(short.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}))
            .unwrap()
    }

    fn named(pod: &Pod) -> Result<String, String> {
        let hostname = pod_hostname(pod, "cluster.local").map_err(|e| e.to_string())?;
        kernel_hostname(pod, hostname).map_err(|e| e.to_string())
    }

    /// Hostname.
    #[test]
    fn pods_are_named_by_their_specification() {
        let long = "a".repeat(62);
        let check = |name: &str, spec: Value, expected: &str| {
            assert_eq!(named(&pod(name, spec)).unwrap(), expected);
        };
        check("web", json!({}), "web");
        check("web", json!({"hostname": "h"}), "h");
        check("web", json!({"hostname": "h", "subdomain": "s"}), "h");
        check(
            "web",
            json!({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true}),
            "h.s.ns.svc.cluster.local",
        );
        check("web", json!({"setHostnameAsFQDN": true}), "web");
        check(
            "web",
            json!({"hostname": "h", "subdomain": "s", "hostnameOverride": "over.example"}),
            "over.example",
        );
        check(&format!("{long}-bcd"), json!({}), &long);
        check(&format!("{long}bcd"), json!({}), &format!("{long}b"));
    }

    #[test]
    fn bad_names_are_refused_with_upstreams_texts() {
        let check = |spec: Value, start: &str| {
            let error = named(&pod("web", spec)).unwrap_err();
            assert!(error.starts_with(start), "{error}");
        };
        check(
            json!({"hostname": "a.b"}),
            "pod Hostname \"a.b\" is not a valid DNS label: must not contain dots",
        );
        check(
            json!({"subdomain": "X"}),
            "pod Subdomain \"X\" is not a valid DNS label: a lowercase RFC 1123 label",
        );
        check(
            json!({"hostnameOverride": "X"}),
            "pod HostnameOverride \"X\" is not a valid DNS subdomain: a lowercase",
        );
        let long = "s".repeat(60);
        check(
            json!({"subdomain": long, "setHostnameAsFQDN": true}),
            "failed to construct FQDN from pod hostname and cluster domain, FQDN web.ssss",
        );
    }

    /// /etc/hosts.
    #[test]
    fn the_hosts_file_lists_addresses_and_aliases() {
        let with_aliases =
            json!({"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}, {"ip": "5.6.7.8"}]});
        let pod = pod("web", with_aliases);
        let hostname =
            |domain: &str| Hostname { name: "web".to_owned(), domain: domain.to_owned() };
        let head = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
                    fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";
        let tail = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n5.6.7.8\t\n";
        let ips = ["10.0.0.2".to_owned(), "fd00::2".to_owned()];
        assert_eq!(
            hosts_file(&pod, &hostname(""), &ips),
            format!("{head}10.0.0.2\tweb\nfd00::2\tweb\n{tail}")
        );
        assert_eq!(
            hosts_file(&pod, &hostname("s.ns"), &ips[..1]),
            format!("{head}10.0.0.2\tweb.s.ns\tweb\n{tail}")
        );
        assert_eq!(
            node_hosts_file(&pod, "127.0.0.1 node\n"),
            format!("# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n{tail}")
        );
        assert_eq!(
            node_hosts_file(&Pod::default(), "x"),
            "# Kubernetes-managed hosts file (host network).\nx"
        );
    }
}

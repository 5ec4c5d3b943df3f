//! Name resolution inside a pod: its policy applied to the node's resolver, within the limits of
//! old resolvers.
//!
//! In: a pod and [`NodeDns`]. Out: [`PodDns`], the configuration and what there is to say about it
//! as events. Refuses: reading the resolver's file.

use ferrolet_types::pod::PodView as _;
use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};

use crate::DnsSpec;

const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
/// Some resolvers abort on longer ones.
const MAX_DOMAIN_CHARS: usize = 253;
/// Searches that a cluster's domain adds.
const CLUSTER_SEARCHES: usize = 3;

/// The node's side of name resolution.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NodeDns {
    /// Servers of the cluster (`clusterDNS`).
    pub cluster_dns: Vec<String>,
    /// The cluster's domain (`clusterDomain`); may be empty.
    pub cluster_domain: String,
    /// The resolver's configuration; `None` when `resolvConf` is set to nothing, which switches
    /// lookups off.
    pub resolv_conf: Option<ResolvConf>,
    /// The node's addresses.
    pub node_ips: Vec<String>,
}

/// What a `resolv.conf` says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ResolvConf {
    /// Name servers, added up over all lines.
    pub servers: Vec<String>,
    /// Search domains of the last such line.
    pub searches: Vec<String>,
    /// Options, the last value of each.
    pub options: Vec<String>,
}

/// A line of a `resolv.conf` names no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Encountered error while parsing resolv conf file. Error: nameserver list is empty ")]
pub struct ResolvConfError;

/// A pod's name resolution, and what to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDns {
    /// What the sandbox gets.
    pub spec: DnsSpec,
    /// Warnings.
    pub notices: Vec<Notice>,
}

/// A warning for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about.
    pub about: NoticeAbout,
    /// The event's reason.
    pub reason: &'static str,
    /// The event's message.
    pub message: String,
}

/// The object an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeAbout {
    /// The pod at hand.
    Pod,
    /// This node.
    Node,
}

/// Reads a resolver's configuration.
pub fn parse_resolv_conf(text: &str) -> Result<ResolvConf, ResolvConfError> {
    let mut conf = ResolvConf::default();
    for line in text.lines().map(str::trim) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                let server = words.next().ok_or(ResolvConfError)?;
                conf.servers.push(server.to_owned());
            }
            Some("search") => {
                let kept = words.filter(|word| *word != ".");
                // The same domain with and without its final dot must count once.
                let bare = kept.map(|word| word.strip_suffix('.').unwrap_or(word).to_owned());
                conf.searches = bare.collect();
            }
            Some("options") => words.for_each(|word| set_option(&mut conf.options, word)),
            _ => {}
        }
    }
    Ok(conf)
}

/// Warns, once at start, when the node's resolver file could not be read or when its searches
/// cannot be carried into pods.
pub fn check_resolv_conf(
    read: Result<&str, &str>,
    path: &str,
    cluster_domain: &str,
) -> Option<Notice> {
    let parsed = read.map_err(str::to_owned).and_then(|text| {
        let parsed = parse_resolv_conf(text);
        parsed.map_err(|error| error.to_string())
    });
    let message = match parsed {
        Ok(conf) => excess(&conf, path, cluster_domain)?,
        Err(cause) => cause,
    };
    Some(Notice { about: NoticeAbout::Node, reason: "CheckLimitsForResolvConf", message })
}

/// What a resolver file has too much of.
fn excess(conf: &ResolvConf, path: &str, cluster_domain: &str) -> Option<String> {
    let is_clustered = !cluster_domain.is_empty();
    let most = MAX_SEARCHES - if is_clustered { CLUSTER_SEARCHES } else { 0 };
    if conf.searches.len() > most {
        Some(format!(
            "Resolv.conf file '{path}' contains search line consisting of more than {most} domains!"
        ))
    } else if conf.searches.iter().any(|s| s.len() > MAX_DOMAIN_CHARS) {
        Some(format!(
            "Resolv.conf file {path:?} contains a search path which length is more than allowed {MAX_DOMAIN_CHARS} chars!"
        ))
    } else if conf.searches.join(" ").len() > MAX_SEARCH_CHARS {
        Some(format!(
            "Resolv.conf file '{path}' contains search line which length is more than allowed {MAX_SEARCH_CHARS} chars!"
        ))
    } else {
        None
    }
}

/// How a pod resolves names.
pub fn pod_dns(pod: &Pod, node: &NodeDns) -> PodDns {
    let mut notices = Vec::new();
    let policy = pod.spec_ref().dns_policy.as_deref();
    let base = match policy {
        Some("None") => ResolvConf::default(),
        Some("Default") => hosts_own(node),
        Some("ClusterFirst") | None if pod.is_host_network() => hosts_own(node),
        // What the API does not know counts as ClusterFirst.
        _ if node.cluster_dns.is_empty() => {
            notices.extend(missing_cluster_dns(pod));
            hosts_own(node)
        }
        _ => clusters(pod, node),
    };
    let mut spec =
        DnsSpec { servers: base.servers, searches: base.searches, options: base.options };
    if let Some(own) = &pod.spec_ref().dns_config {
        add_config(&mut spec, own);
    }
    fit(&mut spec, &mut notices);
    PodDns { spec, notices }
}

fn hosts_own(node: &NodeDns) -> ResolvConf {
    if let Some(conf) = &node.resolv_conf {
        return conf.clone();
    }
    // Naming the node itself keeps the runtime from falling back to a file of its own.
    let local = |ip: &String| if ip.contains(':') { "::1" } else { "127.0.0.1" }.to_owned();
    let mut servers: Vec<String> = node.node_ips.iter().map(local).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    ResolvConf { servers, searches: vec![".".to_owned()], options: Vec::new() }
}

fn clusters(pod: &Pod, node: &NodeDns) -> ResolvConf {
    let own = node.resolv_conf.iter().flat_map(|conf| &conf.searches);
    let domain = &node.cluster_domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        searches.push(format!("{}.svc.{domain}", pod.key().namespace));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    searches.extend(own.cloned());
    if !domain.is_empty() {
        searches = unique(searches);
    }
    ResolvConf { servers: node.cluster_dns.clone(), searches, options: vec!["ndots:5".to_owned()] }
}

fn missing_cluster_dns(pod: &Pod) -> [Notice; 2] {
    let reason = "MissingClusterDNS";
    let message = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                   \"ClusterFirst\" policy. Falling back to \"Default\" policy.";
    [
        Notice { about: NoticeAbout::Node, reason, message: message.to_owned() },
        Notice {
            about: NoticeAbout::Pod,
            reason,
            message: format!("pod: \"{}\". {message}", crate::labels::describe(pod)),
        },
    ]
}

fn add_config(spec: &mut DnsSpec, own: &PodDNSConfig) {
    let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    spec.servers.extend(list(&own.nameservers));
    spec.servers = unique(std::mem::take(&mut spec.servers));
    spec.searches.extend(list(&own.searches));
    spec.searches = unique(std::mem::take(&mut spec.searches));
    for option in own.options.iter().flatten() {
        let name = option.name.as_deref().unwrap_or_default();
        let value = option.value.as_deref().filter(|value| !value.is_empty());
        let text = value.map_or_else(|| name.to_owned(), |value| format!("{name}:{value}"));
        set_option(&mut spec.options, &text);
    }
}

fn fit(spec: &mut DnsSpec, notices: &mut Vec<Notice>) {
    let mut warn = |message: String| {
        notices.push(Notice { about: NoticeAbout::Pod, reason: "DNSConfigForming", message });
    };
    if spec.servers.len() > MAX_SERVERS {
        spec.servers.truncate(MAX_SERVERS);
        warn(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            spec.servers.join(" ")
        ));
    }
    let n_given = spec.searches.len();
    spec.searches.truncate(MAX_SEARCHES);
    spec.searches.retain(|search| search.len() <= MAX_DOMAIN_CHARS);
    while spec.searches.join(" ").len() > MAX_SEARCH_CHARS {
        spec.searches.pop();
    }
    if spec.searches.len() < n_given {
        warn(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            spec.searches.join(" ")
        ));
    }
}

/// Sets an option, replacing an earlier value of the same name in its place.
fn set_option(options: &mut Vec<String>, option: &str) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    let wanted = name(option);
    match options.iter_mut().find(|other| name(other) == wanted) {
        Some(other) => option.clone_into(other),
        None => options.push(option.to_owned()),
    }
}

fn unique(list: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::with_capacity(list.len());
    for item in list {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;

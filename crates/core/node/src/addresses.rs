//! Which addresses the node has: what was asked for, else what its name says, else where its
//! default route goes. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, NodeAddress};

use crate::{HostAddresses, NodeSettings};

/// Why the node's addresses are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// An address that no node can have.
    #[error("node IP {ip} cannot be {what}")]
    Unfit {
        /// The address.
        ip: IpAddr,
        /// What it is.
        what: &'static str,
    },
    /// An address of some other machine.
    #[error("node IP {0} is on none of the host's network interfaces")]
    NotHere(IpAddr),
    /// Neither name nor route gave one.
    #[error("no address found for node {0}")]
    NoneFound(String),
}

/// The annotation by which a cloud controller learns which addresses were asked for.
pub(crate) const PROVIDED_IP_ANNOTATION: &str = "alpha.kubernetes.io/provided-node-ip";

/// The addresses; `previous` are those that the API has, which a cloud controller may have set.
pub(crate) fn addresses(
    settings: &NodeSettings,
    host: &HostAddresses,
    previous: &[NodeAddress],
) -> Result<Vec<NodeAddress>, AddressError> {
    let (first, second) = given(settings);
    for ip in [first, second].into_iter().flatten() {
        check(ip, host)?;
    }
    if settings.has_external_cloud {
        if !previous.is_empty() {
            return Ok(previous.to_vec());
        }
        if settings.node_ips.is_empty() {
            return Ok(vec![address("Hostname", &settings.hostname)]);
        }
    }
    let mut list = match (first, second) {
        (Some(first), Some(second)) => vec![first, second],
        (Some(first), None) => vec![first],
        (None, _) => vec![find(settings, host)?],
    };
    let hostname = address("Hostname", &settings.hostname);
    let list = list.drain(..).map(|ip| address("InternalIP", &ip.to_string()));
    Ok(list.chain([hostname]).collect())
}

/// True when the addresses that the name service has for the node's name matter.
pub fn looks_up_name(settings: &NodeSettings) -> bool {
    let waits_for_cloud = settings.has_external_cloud && settings.node_ips.is_empty();
    given(settings).0.is_none() && settings.hostname.parse::<IpAddr>().is_err() && !waits_for_cloud
}

/// The node's addresses as its pods show them: internal ones before external ones, the first, and
/// the first of the other family. Matches upstream's `GetNodeHostIPs`.
pub fn host_ips(node: &Node) -> Vec<String> {
    let all = node.status.iter().flat_map(|it| it.addresses.iter().flatten());
    let of = |kind: &'static str| {
        let listed = all.clone().filter(move |it| it.type_ == kind);
        listed.filter_map(|it| it.address.parse::<IpAddr>().ok())
    };
    let mut all = of("InternalIP").chain(of("ExternalIP"));
    let Some(first) = all.next() else {
        return Vec::new();
    };
    let second = all.find(|ip| ip.is_ipv4() != first.is_ipv4());
    let both = [Some(first), second].into_iter().flatten();
    both.map(|ip| ip.to_string()).collect()
}

/// What the annotation for cloud controllers should say; `None` when it should not be there.
pub(crate) fn provided_ip(settings: &NodeSettings, host: &HostAddresses) -> Option<String> {
    let (first, second) = given(settings);
    let first = first.filter(|_| settings.has_external_cloud)?;
    let all = [Some(first), second].into_iter().flatten();
    let all: Vec<IpAddr> = all.collect();
    if all.iter().any(|ip| check(*ip, host).is_err()) {
        return None;
    }
    let texts: Vec<String> = all.iter().map(IpAddr::to_string).collect();
    Some(texts.join(","))
}

/// The two addresses that were asked for; an unspecified one only names a family.
fn given(settings: &NodeSettings) -> (Option<IpAddr>, Option<IpAddr>) {
    let at = |index: usize| settings.node_ips.get(index).copied();
    let is_real = |ip: &IpAddr| !ip.is_unspecified();
    (at(0).filter(is_real), at(1).filter(is_real))
}

fn find(settings: &NodeSettings, host: &HostAddresses) -> Result<IpAddr, AddressError> {
    if let Ok(ip) = settings.hostname.parse() {
        return Ok(ip);
    }
    let prefers_v4 = settings.node_ips.first().is_none_or(IpAddr::is_ipv4);
    let fits = |ip: &&IpAddr| check(**ip, host).is_ok();
    let mut named = host.by_name.iter().filter(fits);
    let by_name = named.clone().find(|ip| ip.is_ipv4() == prefers_v4);
    let by_route = if prefers_v4 {
        host.default_v4.or(host.default_v6)
    } else {
        host.default_v6.or(host.default_v4)
    };
    let found = by_name.or_else(|| named.next()).copied().or(by_route);
    found.ok_or_else(|| AddressError::NoneFound(settings.name.clone()))
}

fn check(ip: IpAddr, host: &HostAddresses) -> Result<(), AddressError> {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let unfit = [
        (ip.is_loopback(), "a loopback address"),
        (ip.is_multicast(), "a multicast address"),
        (is_link_local, "a link-local address"),
        (ip.is_unspecified(), "the unspecified address"),
    ];
    if let Some((_, what)) = unfit.into_iter().find(|(is_so, _)| *is_so) {
        return Err(AddressError::Unfit { ip, what });
    }
    if !host.interfaces.contains(&ip) {
        return Err(AddressError::NotHere(ip));
    }
    Ok(())
}

fn address(kind: &str, text: &str) -> NodeAddress {
    NodeAddress { type_: kind.to_owned(), address: text.to_owned() }
}

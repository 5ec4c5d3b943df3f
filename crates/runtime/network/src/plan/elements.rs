//! The moving parts of the packet filter: elements of its sets and maps.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::attachment::{Attachment, HostPort, Protocol};

/// The sets and maps that pods add elements to; IPv4 and IPv6 have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Set {
    /// Link and address: what may come from a pod.
    Sources4,
    Sources6,
    /// Protocol and port of any address of the node, to a pod's address and port.
    Ports4,
    Ports6,
    /// The same for one address of the node.
    AddressPorts4,
    AddressPorts6,
    /// A pod's address twice: it reaches itself by its host port.
    Selves4,
    Selves6,
}

impl Set {
    pub(crate) const ALL: [Self; 8] = [
        Self::Sources4,
        Self::Sources6,
        Self::Ports4,
        Self::Ports6,
        Self::AddressPorts4,
        Self::AddressPorts6,
        Self::Selves4,
        Self::Selves6,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sources4 => "sources4",
            Self::Sources6 => "sources6",
            Self::Ports4 => "ports4",
            Self::Ports6 => "ports6",
            Self::AddressPorts4 => "address-ports4",
            Self::AddressPorts6 => "address-ports6",
            Self::Selves4 => "selves4",
            Self::Selves6 => "selves6",
        }
    }
}

/// One element, as the kernel has it: every part of a key begins on a boundary of four bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Element {
    pub(crate) set: Set,
    pub(crate) key: Vec<u8>,
    /// What a map leads to; empty in a set.
    pub(crate) value: Vec<u8>,
}

/// All elements of a pod whose host end has that index.
pub(crate) fn elements(attachment: &Attachment, index: u32) -> BTreeSet<Element> {
    let addresses: Vec<IpAddr> = attachment.ips().collect();
    let mut all = BTreeSet::new();
    for address in &addresses {
        let octets = octets(*address);
        let either = |four, six| if address.is_ipv6() { six } else { four };
        let key = [index.to_ne_bytes().as_slice(), &octets].concat();
        all.insert(Element { set: either(Set::Sources4, Set::Sources6), key, value: Vec::new() });
        if !attachment.ports.is_empty() {
            let key = [octets.as_slice(), &octets].concat();
            all.insert(Element { set: either(Set::Selves4, Set::Selves6), key, value: Vec::new() });
        }
    }
    for port in &attachment.ports {
        all.extend(addresses.iter().filter_map(|address| mapping(port, *address)));
    }
    all
}

/// The way from a host port to that address of a pod; none if they are of different families.
fn mapping(port: &HostPort, address: IpAddr) -> Option<Element> {
    let host = port.address();
    if host.is_some_and(|it| it.is_ipv6() != address.is_ipv6()) {
        return None;
    }
    let host = host.filter(|it| !it.is_unspecified());
    let set = match (host.is_some(), address.is_ipv6()) {
        (false, false) => Set::Ports4,
        (false, true) => Set::Ports6,
        (true, false) => Set::AddressPorts4,
        (true, true) => Set::AddressPorts6,
    };
    let number = match port.protocol() {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    };
    let mut key = host.map(octets).unwrap_or_default();
    key.extend_from_slice(&[number, 0, 0, 0]);
    key.extend_from_slice(&padded(port.host_port)?);
    let mut value = octets(address);
    value.extend_from_slice(&padded(port.container_port)?);
    Some(Element { set, key, value })
}

fn padded(port: u32) -> Option<[u8; 4]> {
    let [a, b] = u16::try_from(port).ok()?.to_be_bytes();
    Some([a, b, 0, 0])
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => Ipv4Addr::octets(&address).to_vec(),
        IpAddr::V6(address) => Ipv6Addr::octets(&address).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(ports: Vec<HostPort>) -> Attachment {
        let addresses = vec!["10.88.0.2".to_owned(), "fd00::2".to_owned()];
        Attachment { sandbox: "a".to_owned(), addresses, ports, ..Attachment::default() }
    }

    fn port(address: &str) -> HostPort {
        HostPort {
            protocol: 1,
            container_port: 53,
            host_port: 0x1234,
            host_address: address.to_owned(),
        }
    }

    fn sets(attachment: &Attachment) -> Vec<&'static str> {
        elements(attachment, 7).iter().map(|it| it.set.name()).collect()
    }

    #[test]
    fn a_pod_without_ports_has_only_its_sources() {
        assert_eq!(sets(&attachment(vec![])), ["sources4", "sources6"]);
        let first = elements(&attachment(vec![]), 7).into_iter().next().unwrap();
        assert_eq!(first.key, [&7u32.to_ne_bytes()[..], &[10, 88, 0, 2]].concat());
    }

    #[test]
    fn a_port_is_in_the_map_of_its_family_and_address() {
        let all = |address| sets(&attachment(vec![port(address)]));
        let own = ["sources4", "sources6", "selves4", "selves6"];
        let with = |names: &[&'static str]| {
            let mut all: Vec<&str> = own[..2].to_vec();
            all.extend(names);
            all.extend(&own[2..]);
            all
        };
        assert_eq!(all(""), with(&["ports4", "ports6"]));
        assert_eq!(all("0.0.0.0"), with(&["ports4"]));
        assert_eq!(all("::"), with(&["ports6"]));
        assert_eq!(all("127.0.0.1"), with(&["address-ports4"]));
        assert_eq!(all("fd00::1"), with(&["address-ports6"]));
        let mapped = mapping(&port("1.2.3.4"), "10.88.0.2".parse().unwrap()).unwrap();
        assert_eq!(mapped.key, [1, 2, 3, 4, 17, 0, 0, 0, 0x12, 0x34, 0, 0]);
        assert_eq!(mapped.value, [10, 88, 0, 2, 0, 53, 0, 0]);
    }
}

//! Links, addresses, neighbours, routes and queues, as messages of rtnetlink and back.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::message::{
    F_CREATE, F_EXCLUSIVE, F_REPLACE, Heard, Message, attributes, find, number, text,
};
use crate::plan::elements::octets;
use crate::plan::pod::{Mac, POD_LINK};

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const SET_LINK: u16 = 19;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const NEW_QUEUE: u16 = 36;

const UP: u32 = 1;
const INET: u8 = 2;
const INET6: u8 = 10;
/// Whose our routes are, and addresses in pods; `ip` shows it. No number that somebody else has.
pub(crate) const OURS: u8 = 157;
const PERMANENT: u16 = 0x80;
const MAIN_TABLE: u8 = 254;
const SCOPE_LINK: u8 = 253;
/// Not looked for on the link, and no route of its own.
const NO_DETECTION: u32 = 0x02;
/// The group of links that are about to go; nobody else's number.
const DOOMED: u32 = 0x0066_726c;
/// The root of a link's queues, and the largest queue that is ours.
const ROOT: u32 = 0xffff_ffff;

/// A link, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) counters: Counters,
}

/// What went through a link, from the link's own point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received.
    pub rx_bytes: u64,
    /// Received.
    pub rx_packets: u64,
    /// Received and wrong.
    pub rx_errors: u64,
    /// Sent.
    pub tx_bytes: u64,
    /// Sent.
    pub tx_packets: u64,
    /// Not sent.
    pub tx_errors: u64,
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv6() { INET6 } else { INET }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv6() { 128 } else { 32 }
}

/// The fixed part of messages about links.
fn link_part(index: u32, flags: u32, mask: u32) -> Vec<u8> {
    let mut part = vec![0; 4];
    for value in [index, flags, mask] {
        part.extend_from_slice(&value.to_ne_bytes());
    }
    part
}

/// What a pair of links is made with.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) link: &'a str,
    pub(crate) host_mac: Mac,
    pub(crate) pod_mac: Mac,
    pub(crate) mtu: u32,
    pub(crate) namespace: BorrowedFd<'a>,
}

/// A pair of links, the other one made in the pod's namespace: moving it there would cost a wait.
pub(crate) fn new_pair(pair: &Pair<'_>) -> Message {
    let what = format!("create link {} with {POD_LINK} in pod", pair.link);
    let mut message = Message::new(what, NEW_LINK, F_CREATE | F_EXCLUSIVE, &link_part(0, 0, 0));
    let common = |message: &mut Message, name: &str, mac: Mac| {
        message.attribute(1, &mac);
        message.text(3, name);
        message.number(4, pair.mtu);
    };
    common(&mut message, pair.link, pair.host_mac);
    message.nest(18, |info| {
        info.text(1, "veth");
        info.nest(2, |data| {
            data.nest(1, |peer| {
                peer.raw(&link_part(0, 0, 0));
                common(peer, POD_LINK, pair.pod_mac);
                peer.number(28, pair.namespace.as_raw_fd().cast_unsigned());
            });
        });
    });
    message
}

pub(crate) fn delete_link(index: u32) -> Message {
    Message::new(format!("delete link {index}"), DELETE_LINK, 0, &link_part(index, 0, 0))
}

/// Puts a link among those that go together.
pub(crate) fn doom(index: u32) -> Message {
    let mut message =
        Message::new(format!("mark link {index}"), SET_LINK, 0, &link_part(index, 0, 0));
    message.number(27, DOOMED);
    message
}

/// Deletes all that were marked: the kernel's waits are for all of them together.
pub(crate) fn delete_doomed() -> Message {
    let mut message = Message::new("delete marked links", DELETE_LINK, 0, &link_part(0, 0, 0));
    message.number(27, DOOMED);
    message
}

pub(crate) fn up(index: u32) -> Message {
    Message::new(format!("bring up link {index}"), SET_LINK, 0, &link_part(index, UP, UP))
}

/// A link that makes no address by itself.
pub(crate) fn no_own_address(index: u32) -> Message {
    let what = format!("set IPv6 address mode of link {index}");
    let mut message = Message::new(what, SET_LINK, 0, &link_part(index, 0, 0));
    message.nest(26, |spec| spec.nest(INET6.into(), |inet6| inet6.attribute(8, &[1])));
    message
}

/// IPv4 settings of a link: forwards; no redirects; packets of 127.0.0.1 if they may pass.
pub(crate) fn host_settings(index: u32, from_loopback: bool) -> Message {
    const FORWARDING: u16 = 1;
    const SEND_REDIRECTS: u16 = 6;
    const ROUTE_LOCALNET: u16 = 26;
    let what = format!("set IPv4 settings of link {index}");
    let mut message = Message::new(what, SET_LINK, 0, &link_part(index, 0, 0));
    message.nest(26, |spec| {
        spec.nest(INET.into(), |inet| {
            inet.nest(1, |settings| {
                settings.number(FORWARDING, 1);
                settings.number(SEND_REDIRECTS, 0);
                settings.number(ROUTE_LOCALNET, from_loopback.into());
            });
        });
    });
    message
}

/// One link by its index.
pub(crate) fn get_link(index: u32) -> Message {
    Message::new(format!("look up link {index}"), GET_LINK, 0, &link_part(index, 0, 0))
}

/// All links, or one.
pub(crate) fn get_links(name: Option<&str>) -> Message {
    let what = name.map_or_else(|| "list links".to_owned(), |it| format!("look up link {it}"));
    let mut message = Message::new(what, GET_LINK, 0, &link_part(0, 0, 0));
    if let Some(name) = name {
        message.text(3, name);
    }
    message
}

pub(crate) fn link(heard: Heard<'_>) -> Option<Link> {
    let (index, rest) = (number(heard.body, 4)?, heard.body.get(16..)?);
    let mut link = Link { index, name: String::new(), mtu: 0, counters: Counters::default() };
    for (kind, value) in attributes(rest).filter(|_| heard.kind == NEW_LINK) {
        match kind {
            3 => link.name = text(value),
            4 => link.mtu = number(value, 0)?,
            23 => link.counters = counters(value),
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

fn counters(value: &[u8]) -> Counters {
    let nth = |n: usize| value.get(n * 8..).and_then(<[u8]>::first_chunk).copied();
    let nth = |n| nth(n).map(u64::from_ne_bytes).unwrap_or_default();
    Counters {
        rx_packets: nth(0),
        tx_packets: nth(1),
        rx_bytes: nth(2),
        tx_bytes: nth(3),
        rx_errors: nth(4),
        tx_errors: nth(5),
    }
}

/// An address of a link, alone in its network.
pub(crate) fn add_address(index: u32, address: IpAddr, mark: u8) -> Message {
    let what = format!("add address {address}");
    let flags = F_CREATE | F_REPLACE;
    address_message(what, NEW_ADDRESS, flags, (index, mark), address)
}

pub(crate) fn delete_address(index: u32, address: IpAddr, mark: u8) -> Message {
    let what = format!("delete address {address}");
    address_message(what, DELETE_ADDRESS, 0, (index, mark), address)
}

fn address_message(
    what: String,
    kind: u16,
    flags: u16,
    (index, mark): (u32, u8),
    address: IpAddr,
) -> Message {
    let mut part = vec![family(address), bits(address), 0, 0];
    part.extend_from_slice(&index.to_ne_bytes());
    let mut message = Message::new(what, kind, flags, &part);
    message.attribute(2, &octets(address));
    message.attribute(1, &octets(address));
    message.number(8, NO_DETECTION);
    message.attribute(11, &[mark]);
    message
}

pub(crate) fn get_addresses() -> Message {
    Message::new("list addresses", GET_ADDRESS, 0, &[0; 8])
}

/// An address with this mark, and its link.
pub(crate) fn own_address(heard: Heard<'_>, mark: u8) -> Option<(u32, IpAddr)> {
    let (index, rest) = (number(heard.body, 4)?, heard.body.get(8..)?);
    if heard.kind != NEW_ADDRESS || find(rest, 11)? != [mark] {
        return None;
    }
    let address = find(rest, 2).or_else(|| find(rest, 1))?;
    Some((index, read_address(address)?))
}

fn read_address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => value.first_chunk::<4>().map(|it| (*it).into()),
        16 => value.first_chunk::<16>().map(|it| (*it).into()),
        _ => None,
    }
}

/// Who has an address, for ever: nobody asks on the link.
pub(crate) fn neighbour(index: u32, address: IpAddr, mac: Mac) -> Message {
    let mut part = vec![family(address), 0, 0, 0];
    part.extend_from_slice(&index.to_ne_bytes());
    part.extend_from_slice(&PERMANENT.to_ne_bytes());
    part.extend_from_slice(&[0, 0]);
    let what = format!("add neighbour {address}");
    let mut message = Message::new(what, NEW_NEIGHBOUR, F_CREATE | F_REPLACE, &part);
    message.attribute(1, &octets(address));
    message.attribute(2, &mac);
    message
}

/// That address is behind this link.
pub(crate) fn route_to(index: u32, address: IpAddr) -> Message {
    let scope = if address.is_ipv6() { 0 } else { SCOPE_LINK };
    let what = format!("add route to {address}");
    let mut message = route(what, address, bits(address), scope);
    message.attribute(1, &octets(address));
    message.number(4, index);
    message
}

/// Everything is behind that gateway.
pub(crate) fn default_route(index: u32, gateway: IpAddr) -> Message {
    let mut message = route(format!("add default route by {gateway}"), gateway, 0, 0);
    message.attribute(5, &octets(gateway));
    message.number(4, index);
    message
}

fn route(what: String, like: IpAddr, length: u8, scope: u8) -> Message {
    const UNICAST: u8 = 1;
    let mut part = vec![family(like), length, 0, 0, MAIN_TABLE, OURS, scope, UNICAST];
    part.extend_from_slice(&[0; 4]);
    Message::new(what, NEW_ROUTE, F_CREATE | F_REPLACE, &part)
}

pub(crate) fn get_routes() -> Message {
    Message::new("list routes", GET_ROUTE, 0, &[0; 12])
}

/// The link of a default route.
pub(crate) fn default_link(heard: Heard<'_>) -> Option<u32> {
    let [_, length, _, _, table, ..] = heard.body.first_chunk::<12>()?;
    let is_default = heard.kind == NEW_ROUTE && *length == 0 && *table == MAIN_TABLE;
    find(heard.body.get(12..)?, 4).filter(|_| is_default).and_then(|it| number(it, 0))
}

/// Lets no more than so many bits a second out of a link; what is too much waits for at most 25 ms.
pub(crate) fn shape(index: u32, bits_per_second: u64) -> Message {
    const ETHERNET: u8 = 1;
    let rate = (bits_per_second / 8).max(1);
    let small = u32::try_from(rate).unwrap_or(u32::MAX);
    // As much as one tick of the slowest clock lets pass, and at least some whole segments.
    let burst = u32::try_from(rate / 100).unwrap_or(u32::MAX).clamp(128 * 1024, 64 << 20);
    let limit = u32::try_from(rate / 40).unwrap_or(u32::MAX).clamp(64 * 1024, 64 << 20) + burst;
    let mut part = vec![0; 4];
    for value in [index, 0, ROOT, 0] {
        part.extend_from_slice(&value.to_ne_bytes());
    }
    let what = format!("limit link {index} to {bits_per_second} bit/s");
    let mut message = Message::new(what, NEW_QUEUE, F_CREATE | F_REPLACE, &part);
    message.text(1, "tbf");
    message.nest(2, |options| {
        let mut parameters = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
        parameters.extend_from_slice(&small.to_ne_bytes());
        parameters.extend_from_slice(&[0; 12]);
        for value in [limit, 0, 0] {
            parameters.extend_from_slice(&value.to_ne_bytes());
        }
        options.attribute(1, &parameters);
        if rate > u64::from(u32::MAX) {
            options.attribute(4, &rate.to_ne_bytes());
        }
        options.number(6, burst);
    });
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::message::messages;

    proptest! {
        #[test]
        fn whatever_the_kernel_says_is_read_without_harm(kind in 16u16..30, body in prop::collection::vec(any::<u8>(), 0..300)) {
            let heard = Heard { kind, flags: 0, sequence: 0, body: &body };
            let _ = (link(heard), own_address(heard, OURS), default_link(heard));
        }
    }

    #[test]
    fn an_address_of_ours_is_known_again() {
        let check = |message: &Message, expected: Option<&str>| {
            let bytes = message.finished(1, 0);
            let heard = messages(&bytes).next().unwrap();
            let expected = expected.map(|it| (3, it.parse().unwrap()));
            assert_eq!(own_address(heard, OURS), expected);
        };
        for address in ["10.88.0.1", "fd00::1"] {
            check(&add_address(3, address.parse().unwrap(), OURS), Some(address));
        }
        let mut foreign = Message::new("", NEW_ADDRESS, 0, &[2, 24, 0, 0, 3, 0, 0, 0]);
        foreign.attribute(2, &[192, 0, 2, 1]);
        check(&foreign, None);
    }

    #[test]
    fn the_default_route_says_which_link_leads_out() {
        let read = |message: &Message| {
            let bytes = message.finished(1, 0);
            default_link(messages(&bytes).next().unwrap())
        };
        assert_eq!(read(&default_route(4, "169.254.1.1".parse().unwrap())), Some(4));
        assert_eq!(read(&route_to(4, "10.88.0.2".parse().unwrap())), None);
    }
}

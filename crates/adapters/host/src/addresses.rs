//! The machine's own addresses, from the kernel's tables under `/proc/net`.
//!
//! Pure parsers and one thin reader; no name service, no packet. Refuses: choosing which address is
//! the node's.

use std::{
    fs,
    io::Read as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ferrolet_node::HostAddresses;

/// More than the table of a machine with thousands of routes.
const TABLE_LIMIT: u64 = 64 << 20;
/// Link-local and loopback scopes of `/proc/net/if_inet6`; neither reaches another machine.
const SCOPE_GLOBAL: &str = "00";

/// Reads the kernel's tables, loopback included. A kernel without one of them has no such
/// addresses.
pub fn read_addresses() -> HostAddresses {
    let text = |name: &str| {
        // An interface may have any name; one that is no text must not hide the others.
        let mut text = Vec::new();
        let table = fs::File::open(format!("/proc/net/{name}"));
        // What was read before an error still counts.
        table.and_then(|table| table.take(TABLE_LIMIT).read_to_end(&mut text)).ok();
        String::from_utf8_lossy(&text).into_owned()
    };
    describe(&text("fib_trie"), &text("route"), &text("if_inet6"), &text("ipv6_route"))
}

fn describe(fib_trie: &str, route: &str, if_inet6: &str, ipv6_route: &str) -> HostAddresses {
    let v4 = local_v4(fib_trie);
    let v6 = addresses_v6(if_inet6);
    let default_v4 = default_network_v4(route).and_then(|networks| {
        v4.iter().find(|ip| networks.iter().any(|network| network.contains(**ip))).copied()
    });
    let default_v6 = default_interface_v6(ipv6_route).and_then(|interface| {
        v6.iter().find(|it| it.interface == interface && it.is_global).map(|it| it.ip)
    });
    let all = v4.into_iter().map(IpAddr::V4).chain(v6.into_iter().map(|it| IpAddr::V6(it.ip)));
    HostAddresses {
        interfaces: all.collect(),
        by_name: Vec::new(),
        default_v4: default_v4.map(IpAddr::V4),
        default_v6: default_v6.map(IpAddr::V6),
    }
}

/// Addresses that the routing trie marks as the machine's own: a leaf followed by `/32 host LOCAL`.
fn local_v4(fib_trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut leaf = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL")
            && let Some(address) = leaf
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

struct Network {
    address: u32,
    mask: u32,
}

impl Network {
    fn contains(&self, ip: Ipv4Addr) -> bool {
        u32::from(ip) & self.mask == self.address
    }
}

/// The networks that the interface of the default route is connected to.
fn default_network_v4(route: &str) -> Option<Vec<Network>> {
    let rows: Vec<Vec<&str>> =
        route.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    // The table prints addresses as the machine stores them.
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::from_le);
    let field = |row: &[&str], index: usize| {
        row.get(index).and_then(|text| number(text)).map(u32::swap_bytes)
    };
    let default = rows.iter().find(|row| field(row, 1) == Some(0) && field(row, 7) == Some(0))?;
    let interface = *default.first()?;
    let connected =
        rows.iter().filter(|row| row.first() == Some(&interface) && field(row, 2) == Some(0));
    Some(
        connected
            .filter_map(|row| Some(Network { address: field(row, 1)?, mask: field(row, 7)? }))
            .filter(|network| network.mask != 0)
            .collect(),
    )
}

struct AddressV6 {
    ip: Ipv6Addr,
    interface: String,
    is_global: bool,
}

fn addresses_v6(if_inet6: &str) -> Vec<AddressV6> {
    let rows = if_inet6.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let parsed = rows.filter_map(|row| {
        Some(AddressV6 {
            ip: u128::from_str_radix(row.first()?, 16).ok().map(Ipv6Addr::from)?,
            is_global: *row.get(3)? == SCOPE_GLOBAL,
            interface: (*row.get(5)?).to_owned(),
        })
    });
    parsed.collect()
}

/// The interface of the default route: destination and prefix are zero, and it is not the
/// loopback's unreachable one.
fn default_interface_v6(ipv6_route: &str) -> Option<String> {
    let rows = ipv6_route.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let mut defaults =
        rows.filter(|row| row.len() >= 10 && is_zero(row[0]) && is_zero(row[1]) && row[9] != "lo");
    defaults.next().map(|row| row[9].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
     +-- 192.0.2.0/24 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
Local:
           |-- 192.0.2.2
              /32 host LOCAL
";
    const ROUTE: &str =
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
    const V6: &str = "fd000000000000000000000000000002 04 40 00 82     eth0
00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
";
    const V6_ROUTE: &str = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    #[test]
    fn the_kernels_tables_tell_every_address_and_the_default_ones() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let found = describe(TRIE, ROUTE, V6, V6_ROUTE);
        let all = ["127.0.0.1", "192.0.2.2", "fd00::2", "::1", "fe80::fc:ff:fe00:1"].map(ip);
        assert_eq!(found.interfaces, all);
        assert_eq!(found.default_v4, Some(ip("192.0.2.2")));
        assert_eq!(found.default_v6, Some(ip("fd00::2")));
    }

    #[test]
    fn a_machine_without_a_default_route_has_no_default_address() {
        let found = describe(TRIE, "Iface\n", "", "");
        assert_eq!((found.default_v4, found.default_v6), (None, None));
    }
}

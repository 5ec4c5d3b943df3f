//! Ranges of addresses: `10.88.0.0/16`, `fd00:88::/64`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// A range of pods' addresses, or of destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    first: IpAddr,
    prefix: u8,
}

/// A text that is no range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a range of addresses such as 10.88.0.0/16")]
pub struct RangeError(pub String);

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let wrong = || RangeError(text.to_owned());
        let (address, prefix) = text.trim().split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        if prefix > bits(address) {
            return Err(wrong());
        }
        let range = Self { first: address, prefix };
        Ok(Self { first: from_number(number(address) & !range.host_mask(), address), prefix })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl Range {
    /// One address only.
    pub(crate) fn only(address: IpAddr) -> Self {
        Self { first: address, prefix: bits(address) }
    }

    /// True for IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.first.is_ipv6()
    }

    /// True if the address is one of the range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv6() == self.is_ipv6()
            && number(address) & !self.host_mask() == number(self.first)
    }

    fn host_mask(&self) -> u128 {
        let n_host_bits = u32::from(bits(self.first) - self.prefix);
        1u128.checked_shl(n_host_bits).map_or(u128::MAX, |it| it - 1)
    }

    /// The first and the last address, as numbers.
    pub(crate) fn ends(&self) -> (u128, u128) {
        (number(self.first), number(self.first) | self.host_mask())
    }

    /// The node's own address among the pods' ones.
    pub(crate) fn gateway(&self) -> Option<IpAddr> {
        let (first, last) = self.ends();
        // A range of one or two addresses has none to give away.
        (last - first >= 3).then(|| from_number(first + 1, self.first))
    }

    /// The first and the last address that a pod may have: not the network's own, not the node's, and in IPv4 not the
    /// one for everybody.
    pub(crate) fn pods(&self) -> Option<(u128, u128)> {
        let (first, last) = self.ends();
        self.gateway()?;
        Some((first + 2, if self.is_ipv6() { last } else { last - 1 }))
    }

    /// The address of this family with that number.
    pub(crate) fn address(&self, number: u128) -> IpAddr {
        from_number(number, self.first)
    }
}

/// Ranges of one family as first and last address that neither overlap nor touch.
pub(crate) fn merged(ranges: &[Range], is_ipv6: bool) -> Vec<(IpAddr, IpAddr)> {
    let of_family = ranges.iter().filter(|it| it.is_ipv6() == is_ipv6);
    let mut ends: Vec<(u128, u128)> = of_family.map(Range::ends).collect();
    ends.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::new();
    for (first, last) in ends {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    let like =
        if is_ipv6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
    merged.into_iter().map(|(a, b)| (from_number(a, like), from_number(b, like))).collect()
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv6() { 128 } else { 32 }
}

pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn from_number(number: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => {
            Ipv4Addr::from(u32::try_from(number & u128::from(u32::MAX)).unwrap_or_default()).into()
        }
        IpAddr::V6(_) => Ipv6Addr::from(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_begins_where_its_prefix_says() {
        assert_eq!(range("10.88.3.4/16").to_string(), "10.88.0.0/16");
        assert_eq!(range("fd00:88::5/64").to_string(), "fd00:88::/64");
        assert_eq!(range("0.0.0.0/0").ends(), (0, 0xffff_ffff));
        assert_eq!(range("::/0").ends(), (0, u128::MAX));
        for wrong in ["", "10.88.0.0", "10.88.0.0/33", "::/129", "10.88/16", "x/8", "10.0.0.0/-1"] {
            let refused: Result<Range, _> = wrong.parse();
            assert_eq!(refused, Err(RangeError(wrong.to_owned())));
        }
    }

    #[test]
    fn the_node_and_the_network_have_addresses_that_no_pod_gets() {
        let check = |text: &str, gateway: &str, first: &str, last: &str| {
            let it = range(text);
            let pods = it.pods().unwrap();
            let got = [it.gateway().unwrap(), it.address(pods.0), it.address(pods.1)];
            assert_eq!(got.map(|it| it.to_string()), [gateway, first, last]);
        };
        check("10.88.0.0/16", "10.88.0.1", "10.88.0.2", "10.88.255.254");
        check("10.88.0.0/30", "10.88.0.1", "10.88.0.2", "10.88.0.2");
        check("fd00::/126", "fd00::1", "fd00::2", "fd00::3");
        assert_eq!(range("10.88.0.0/31").pods(), None);
        assert_eq!(range("10.88.0.0/32").pods(), None);
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_one() {
        let ranges = ["10.1.0.0/16", "10.0.0.0/16", "10.0.5.0/24", "10.3.0.0/16", "fd00::/64"];
        let ranges = ranges.map(range);
        let text = |it: Vec<(IpAddr, IpAddr)>| -> Vec<String> {
            it.into_iter().map(|(a, b)| format!("{a}-{b}")).collect()
        };
        assert_eq!(
            text(merged(&ranges, false)),
            ["10.0.0.0-10.1.255.255", "10.3.0.0-10.3.255.255"]
        );
        assert_eq!(text(merged(&ranges, true)), ["fd00::-fd00::ffff:ffff:ffff:ffff"]);
    }
}

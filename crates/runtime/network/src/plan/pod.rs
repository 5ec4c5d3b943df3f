//! A pod's two links, as names and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{attachment::Attachment, plan::names::Names};

/// The pod's end.
pub(crate) const POD_LINK: &str = "eth0";
/// Where a pod sends everything: nobody has these addresses, both ends know the hardware behind them.
pub(crate) const GATEWAY_4: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1));
pub(crate) const GATEWAY_6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

/// A hardware address.
pub(crate) type Mac = [u8; 6];

/// What there should be for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodPlan {
    pub(crate) link: String,
    pub(crate) host_mac: Mac,
    pub(crate) pod_mac: Mac,
    pub(crate) addresses: Vec<IpAddr>,
    /// True if processes of the node may reach the pod from 127.0.0.1: only for one with host ports.
    pub(crate) from_loopback: bool,
}

impl PodPlan {
    pub(crate) fn of(names: &Names, attachment: &Attachment) -> Self {
        let id = &attachment.sandbox;
        Self {
            link: names.link(id),
            host_mac: mac(id, 0x06),
            pod_mac: mac(id, 0x0a),
            addresses: attachment.ips().collect(),
            from_loopback: !attachment.ports.is_empty(),
        }
    }

    pub(crate) fn has_ipv6(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv6)
    }

    /// The gateways that the pod's addresses need.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let has_ipv4 = self.addresses.iter().any(IpAddr::is_ipv4);
        let both = [(has_ipv4, GATEWAY_4), (self.has_ipv6(), GATEWAY_6)];
        both.into_iter().filter(|it| it.0).map(|it| it.1)
    }
}

/// A locally administered address; the first byte tells the ends apart.
fn mac(sandbox: &str, first: u8) -> Mac {
    // FNV-1a: the same id has the same address after a restart.
    let hash = fnv(sandbox.as_bytes());
    let [_, _, _, rest @ ..] = hash.to_be_bytes();
    let mut mac = [first; 6];
    mac[1..].copy_from_slice(&rest);
    mac
}

pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_same_after_a_restart_and_no_others() {
        let attachment = |sandbox: &str| Attachment {
            sandbox: sandbox.to_owned(),
            addresses: vec!["10.88.0.2".to_owned(), "fd00::2".to_owned()],
            ..Attachment::default()
        };
        let names = Names::of("ferrolet");
        let plan = |sandbox| PodPlan::of(&names, &attachment(sandbox));
        let (a, b) = (plan("aaaa"), plan("bbbb"));
        assert_eq!(a, plan("aaaa"));
        assert_ne!((a.pod_mac, &a.link), (b.pod_mac, &b.link));
        assert_ne!(a.pod_mac, a.host_mac);
        // Local, and one station's.
        assert!([a.pod_mac[0], a.host_mac[0]].iter().all(|it| it & 3 == 2));
        assert_eq!(a.gateways().collect::<Vec<_>>(), [GATEWAY_4, GATEWAY_6]);
        assert!(!a.from_loopback);
    }
}

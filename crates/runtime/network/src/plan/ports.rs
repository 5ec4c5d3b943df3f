//! Host ports: who has which.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thiserror::Error;

use crate::attachment::{Attachment, HostPort};

/// A port of the node that another pod has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PortError {
    /// Two pods want the same.
    #[error("host port {port} is taken by sandbox {sandbox}")]
    Taken {
        /// The port and its protocol, and its address if it was asked for.
        port: String,
        /// Who has it.
        sandbox: String,
    },
    /// What CRI sent is no port.
    #[error("host port {port}: {reason}")]
    Wrong {
        /// What was asked for.
        port: String,
        /// Why not.
        reason: &'static str,
    },
}

/// Which sandbox has which port. Derived from records, like addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(BTreeMap<Key, String>);

/// Address if asked for, family, protocol, port.
type Key = (Option<IpAddr>, Option<bool>, i32, u32);

fn key(port: &HostPort) -> Key {
    let address = port.address();
    let specific = address.filter(|it| !it.is_unspecified());
    // An unspecified address means all of its family.
    (specific, address.map(|it| it.is_ipv6()), port.protocol, port.host_port)
}

impl Ports {
    /// Notes the ports of a sandbox, or says who has one of them.
    pub(crate) fn take(&mut self, sandbox: &str, ports: &[HostPort]) -> Result<(), PortError> {
        for port in ports {
            check(port)?;
            if let Some(other) = self.owner(port).filter(|it| *it != sandbox) {
                return Err(PortError::Taken { port: port.to_string(), sandbox: other.to_owned() });
            }
        }
        self.note(sandbox, ports);
        Ok(())
    }

    /// Who has this port; one for both families and one for one of them are the same.
    fn owner(&self, port: &HostPort) -> Option<&str> {
        let (address, family, protocol, number) = key(port);
        let families = match (address, family) {
            (None, None) => vec![None, Some(false), Some(true)],
            (None, one) => vec![None, one],
            (Some(_), one) => vec![one],
        };
        let mut owners =
            families.into_iter().filter_map(|it| self.0.get(&(address, it, protocol, number)));
        owners.next().map(String::as_str)
    }

    pub(crate) fn note(&mut self, sandbox: &str, ports: &[HostPort]) {
        for port in ports {
            self.0.insert(key(port), sandbox.to_owned());
        }
    }

    pub(crate) fn give_back(&mut self, attachment: &Attachment) {
        self.0.retain(|_, sandbox| *sandbox != attachment.sandbox);
    }
}

fn check(port: &HostPort) -> Result<(), PortError> {
    let wrong = |reason| Err(PortError::Wrong { port: port.to_string(), reason });
    let is_port = |it: u32| (1..=65535).contains(&it);
    if !is_port(port.host_port) || !is_port(port.container_port) {
        return wrong("ports are from 1 to 65535");
    }
    if !port.host_address.is_empty() && port.address().is_none() {
        return wrong("the host's address is none");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::Protocol;

    fn port(address: &str, protocol: Protocol, host_port: u32) -> HostPort {
        HostPort {
            protocol: protocol.into(),
            host_port,
            container_port: 80,
            host_address: address.to_owned(),
        }
    }

    #[test]
    fn a_port_has_one_owner_for_each_address_family_and_protocol() {
        let mut ports = Ports::default();
        let mut check = |sandbox: &str, port: HostPort, expected: Result<(), &str>| {
            let got = ports.take(sandbox, &[port]).map_err(|it| it.to_string());
            assert_eq!(got, expected.map_err(str::to_owned));
        };
        check("a", port("", Protocol::Tcp, 80), Ok(()));
        check("a", port("", Protocol::Tcp, 80), Ok(()));
        check("b", port("", Protocol::Tcp, 80), Err("host port 80/TCP is taken by sandbox a"));
        check("b", port("", Protocol::Udp, 80), Ok(()));
        check("b", port("10.0.0.1", Protocol::Tcp, 80), Ok(()));
        let message = "host port 10.0.0.1:80/TCP is taken by sandbox b";
        check("c", port("10.0.0.1", Protocol::Tcp, 80), Err(message));
        check("c", port("0.0.0.0", Protocol::Tcp, 81), Ok(()));
        check("d", port("", Protocol::Tcp, 81), Err("host port 81/TCP is taken by sandbox c"));
        check("d", port("::", Protocol::Tcp, 81), Ok(()));
        check("d", port("", Protocol::Tcp, 0), Err("host port 0/TCP: ports are from 1 to 65535"));
        check(
            "d",
            port("x", Protocol::Sctp, 9),
            Err("host port x:9/SCTP: the host's address is none"),
        );
    }

    #[test]
    fn a_sandbox_that_ends_gives_all_its_ports_back() {
        let mut ports = Ports::default();
        ports.take("a", &[port("", Protocol::Tcp, 80)]).unwrap();
        ports.give_back(&Attachment { sandbox: "a".to_owned(), ..Attachment::default() });
        ports.take("b", &[port("", Protocol::Tcp, 80)]).unwrap();
    }
}

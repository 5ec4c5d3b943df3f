//! A sandbox's network as it is recorded: all that restoring and taking down need.
//!
//! The service keeps an [`Attachment`] in the sandbox's record, byte for byte as it got it. Fields are only added.

use std::fmt;
use std::net::IpAddr;

use prost::{Enumeration, Message};

/// The network of one sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct Attachment {
    /// The sandbox's id.
    #[prost(string, tag = "1")]
    pub sandbox: String,
    /// The pod's addresses, as texts; the first one is what the pod is known by.
    #[prost(string, repeated, tag = "2")]
    pub addresses: Vec<String>,
    /// The ports of the node that lead to it.
    #[prost(message, repeated, tag = "3")]
    pub ports: Vec<HostPort>,
    /// What the pod may send and receive.
    #[prost(message, optional, tag = "4")]
    pub bandwidth: Option<Bandwidth>,
    /// Who made it.
    #[prost(enumeration = "Maker", tag = "5")]
    pub maker: i32,
}

/// Who made a sandbox's network, and so who takes it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Maker {
    /// The built-in network.
    BuiltIn = 0,
    /// Plugins, by CNI.
    Cni = 1,
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Protocol {
    /// TCP.
    Tcp = 0,
    /// UDP.
    Udp = 1,
    /// SCTP.
    Sctp = 2,
}

/// A port of the node that leads to one of the pod; in CRI's terms a mapping with a `host_port`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HostPort {
    /// Its protocol; numbered as in CRI.
    #[prost(enumeration = "Protocol", tag = "1")]
    pub protocol: i32,
    /// The pod's port.
    #[prost(uint32, tag = "2")]
    pub container_port: u32,
    /// The node's port.
    #[prost(uint32, tag = "3")]
    pub host_port: u32,
    /// The one address of the node where it is; empty: all.
    #[prost(string, tag = "4")]
    pub host_address: String,
}

/// Bits a second.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Bandwidth {
    /// To the pod; 0: as much as there is.
    #[prost(uint64, tag = "1")]
    pub ingress: u64,
    /// From the pod; 0: as much as there is.
    #[prost(uint64, tag = "2")]
    pub egress: u64,
}

impl Attachment {
    /// The pod's addresses.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().filter_map(|it| it.parse().ok())
    }
}

impl HostPort {
    /// The address of the node that was asked for.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.host_address.parse().ok()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol() {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        };
        if !self.host_address.is_empty() {
            write!(f, "{}:", self.host_address)?;
        }
        write!(f, "{}/{protocol}", self.host_port)
    }
}

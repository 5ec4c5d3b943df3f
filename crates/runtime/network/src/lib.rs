//! The network of pods: built in and routed, or by CNI plugins where a configuration says so.
//!
//! ```text
//!  service ─► PodNetwork: restore, setup, teardown, status, set_ranges, usage
//!               │                ┌─ plan        pure: addresses, ports, links, elements, differences
//!               ├─ run ─ routed ─┤
//!               │   one thread   └─ netlink     messages of rtnetlink and nf_tables
//!               └─ cni ── plugins of /opt/cni/bin, each a child with a deadline
//! ```
//!
//! **How the service uses it.** [`Network::start`] once, in the node's network namespace; [`PodNetwork::restore`] once, with the
//! [`Attachment`] of every sandbox that has a record, oldest first, before anything else; [`PodNetwork::setup`] with the
//! descriptor of a new sandbox's network namespace, whose `lo` is up, and the answer goes into the sandbox's record
//! unchanged; [`PodNetwork::teardown`] with that attachment, as often as it takes. Sandboxes of the node's own network have
//! nothing to do with this crate. [`PodNetwork::set_ranges`] is `UpdateRuntimeConfig`; [`PodNetwork::status`] is the
//! condition `NetworkReady`; [`connect`] is a port-forward.
//!
//! Nothing is stored but CNI's cached results: addresses and ports in use follow from the records, so what crashed in the
//! middle is found by `restore` as something that no record names, and taken away.
//!
//! It refuses: a host port that another sandbox has, bandwidth annotations that are no quantity, plugins whose name has
//! a slash, output of plugins beyond its bounds.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attachment;
mod cni;
mod inside;
mod netlink;
mod network;
mod plan;
mod routed;
mod run;
mod sysctl;

#[cfg(test)]
mod real_tests;

pub use attachment::{Attachment, Bandwidth, HostPort, Maker, Protocol};
pub use cni::{CniError, CniSettings};
pub use inside::{connect, read_interfaces};
pub use netlink::route::Counters;
pub use netlink::socket::NetlinkError;
pub use network::{
    Answer, Network, NetworkError, PodNetwork, Restored, Settings, SetupError, SetupRequest, Status,
};
pub use plan::bandwidth::BandwidthError;
pub use plan::pool::PoolError;
pub use plan::ports::PortError;
pub use plan::range::{Range, RangeError};

//! The few chains that a kubelet keeps in the packet filter, for other programs' sake
//! (`makeIPTablesUtilChains`).
//!
//! ```text
//!  can a family be used? ─ no ──► it is left alone
//!      │ yes
//!      v
//!  make what is wanted ─► place canaries ─► look for the first one each minute ─┐
//!      ▲                                                                        │ it is gone: somebody has emptied the tables
//!      └────────────── wait for the others to go too, five seconds at most ◄────┘
//! ```
//!
//! `plan` says what there has to be, with which words the programs are asked for it, and what their
//! exit codes mean; it is pure. [`keep_chains`] carries it out through the port
//! [`PacketFilter`](ferrolet_ports::PacketFilter), and owns nothing but its timers. The agent
//! itself needs none of this, so no failure here is more than a line in the log. Refuses: every
//! other rule, and taking anything away, also its own when the agent leaves. Upstream:
//! `pkg/kubelet/kubelet_network_linux.go`, `pkg/util/iptables`.
#![forbid(unsafe_code)]

mod plan;
mod run;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ferrolet_ports::{PacketFilter, Part};

pub use run::keep_chains;

/// Keeps the chains beside everything else: no pod waits for them.
pub fn build(filter: Arc<dyn PacketFilter>) -> Part {
    Part::new("chains").with_loop(keep_chains(filter))
}

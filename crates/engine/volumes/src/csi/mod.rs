//! Volumes of CSI drivers: names, what a driver is told, and the calls in their order.
//!
//! ```text
//!  attached? ─► record ─► stage ─► record ─► publish ─► group          for the node, then for the pod
//!  unpublish ─► record gone ─► nobody else? ─► unstage ─► record gone
//! ```
//!
//! `rules` is pure; `shell` does, and `device` for volumes without a file system, `growth` for those that grow; `node` tells the cluster which drivers this node has, `limits` asks
//! them again how many volumes it takes. What is mounted is known from records on disk, so a restart forgets nothing that has to be taken away.

mod device;
mod growth;
mod limits;
mod node;
mod rules;
mod shell;

pub use limits::{LimitDoors, follow_limits};
pub use node::{NodeDoors, publish_drivers};
#[cfg(test)]
pub(crate) use rules::attachment_name as attachment_of;
pub(crate) use rules::{check_node, hash as hash_of};
pub use shell::InUse;
pub(crate) use shell::{CSI, CsiShell, Kept, handle_of, node_place};

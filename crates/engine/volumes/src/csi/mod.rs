//! Volumes of CSI drivers: names, what a driver is told, and the calls behind each step.
//!
//! ```text
//!  attached? ─► record ─► stage ─► record ─► publish          for the node, then for the pod
//!  unpublish ─► record gone ─► nobody else? ─► unstage ─► record gone
//! ```
//!
//! `rules` is pure; `plugin` is asked by the engine, `mounter` brings one volume to one pod, `device`
//! does for volumes without a file system; `node` tells the cluster which drivers this node has,
//! `limits` asks them again how many volumes it takes. What is mounted is known from records on disk
//! (`vol_data.json`), so a restart forgets nothing that has to be taken away.

mod device;
mod limits;
mod mounter;
mod node;
mod plugin;
mod rules;

pub use limits::{LimitDoors, follow_limits};
pub use node::{NodeDoors, publish_drivers};
pub(crate) use plugin::{CSI, CsiPlugin, handle_of, node_place};
#[cfg(test)]
pub(crate) use rules::attachment_name as attachment_of;
pub(crate) use rules::{check_node, hash as hash_of};

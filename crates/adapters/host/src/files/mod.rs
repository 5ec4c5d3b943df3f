//! The directories and log files of pods, in upstream's layout.
//!
//! [`NodeFiles`] implements the port `PodFiles`; `names` spells, `tail` reads logs from their end.
//! Owned by the pod workers. Names and uids come from manifests and paths come back from the
//! runtime, so each is checked to be a plain name or to lie below its directory, and then opened
//! through [`ferrolet_linux::rooted`].
//!
//! Must never happen: a container's file system deciding where we read, write or delete; deleting
//! what is mounted.

mod names;
mod store;
mod tail;
#[cfg(test)]
mod tests;

pub use names::{link_name, log_directory_name};
pub use store::{CONTAINER_LINKS, NodeFiles, NodeFilesSettings};

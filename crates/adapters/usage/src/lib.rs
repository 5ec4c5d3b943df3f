//! What is used, from cgroup files: the port `Usage`, for v1 and v2; and what is left, the port
//! `NodeMeans`.
//!
//! In: the mounted hierarchies and the name of the pods' cgroup. Out: a snapshot of the node, each
//! pod and each container, slim ([`read`]) or with more detail ([`whole`]); and what pods have on
//! disk ([`disk`]). The tree itself says who is there, so nothing has to be told about pods; the
//! directories' names carry the identities. One reading serves everybody for as long as they say
//! that it may be old (ADR 0022), and nothing is read while nobody asks. Refuses: names and policy;
//! a second collector (upstream has two).

#![forbid(unsafe_code)]

mod cgroup;
mod disk;
mod files;
mod means;
mod names;
mod parse;
mod process;
mod read;
mod reader;
#[cfg(test)]
mod tests;
mod whole;

pub use process::OwnProcess;
pub use reader::{UsageReader, UsageSettings};

//! What pulls need of the node: their memory on disk, the node's docker configuration, and plugins
//! as child processes.
//!
//! Implements the ports `PullFiles` and `RegistryLogins`. Must never happen: reading without a
//! bound, a plugin that outlives its time, a secret in an error.

mod logins;
mod records;
#[cfg(test)]
mod tests;

pub use logins::{LoginPlaces, NodeLogins};
pub use records::NodePullFiles;

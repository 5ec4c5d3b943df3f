//! What cannot be run as it was asked for, in words for whoever asked.

/// A request that makes no sense, or asks for what this runtime does not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A part that every request has.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Nothing to execute.
    #[error("neither the container nor its image names a command")]
    NoCommand,
    /// A name that is no capability.
    #[error("unknown capability {0:?}")]
    Capability(String),
    /// Whose group it would be is not said.
    #[error("group {0} is given without a user")]
    GroupWithoutUser(i64),
    /// An id that the kernel does not have.
    #[error("{what} {id} is out of range")]
    Id {
        /// What it was meant to be.
        what: &'static str,
        /// The number.
        id: i64,
    },
    /// A setting of the kernel that would be the node's.
    #[error("sysctl {0:?} is not in a namespace of the pod's own")]
    Sysctl(String),
    /// A path that has to begin at the root.
    #[error("{what} {path:?} is not an absolute path")]
    Path {
        /// What it is the path of.
        what: &'static str,
        /// The path.
        path: String,
    },
    /// Letters other than `r`, `w` and `m`.
    #[error("permissions {permissions:?} of device {path:?}")]
    Permissions {
        /// The device.
        path: String,
        /// What was asked for.
        permissions: String,
    },
    /// A number that a pod's users cannot be mapped with.
    #[error("the pod's user namespace has no map of ids")]
    NoIdMap,
    /// What this runtime does not do.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
}

//! Why a pod or a container cannot be turned into a request.

use crate::{EnvError, HostnameError, MountError, SecurityError};

/// A part of the specification that cannot be carried out. Its text is upstream's: it becomes the
/// waiting message of the container (reason `CreateContainerConfigError`) or the end of a
/// sandbox's failure event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The environment.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// Users and profiles.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// Mounts and devices.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The host name.
    #[error(transparent)]
    Hostname(#[from] HostnameError),
}

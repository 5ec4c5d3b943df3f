//! Why a request was not done, and the gRPC code that a kubelet understands.

use std::{io, path::PathBuf};

use ferrolet_runtime_client::{CallError, ConnectError, StartError};
use ferrolet_runtime_images::StoreError;
use ferrolet_runtime_plan::{Refusal, cdi::UnknownDevices};
use tonic::Status;

use super::network::NetworkError;
use crate::chain::chain;

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// There is no such sandbox.
    #[error("sandbox {0:?} not found")]
    NoSandbox(String),
    /// There is no such container.
    #[error("container {0:?} not found")]
    NoContainer(String),
    /// There is no such image.
    #[error("image {0:?} not found")]
    NoImage(String),
    /// Somebody has the name.
    #[error("name {name:?} is reserved for {holder:?}")]
    NameTaken {
        /// The name.
        name: String,
        /// Whose it is.
        holder: String,
    },
    /// The request makes no sense.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No such way to run pods.
    #[error("no runtime for {0:?} is configured")]
    NoHandler(String),
    /// The pod has no monitor that could do it.
    #[error("sandbox {0:?} is not ready")]
    NotReady(String),
    /// The container is not where it would have to be.
    #[error("container {id:?} is {state}, it has to be {needed}")]
    WrongState {
        /// The container.
        id: String,
        /// Where it is.
        state: &'static str,
        /// Where it would have to be.
        needed: &'static str,
    },
    /// The pod's monitor or the spawner did not do it.
    #[error("{0}")]
    Monitor(&'static str, #[source] CallError),
    /// The pod's monitor was not reached.
    #[error("make sandbox")]
    Connect(#[from] ConnectError),
    /// There is no spawner.
    #[error("make sandbox")]
    Spawner(#[from] StartError),
    /// The disk refused.
    #[error("{attempt} {}", path.display())]
    Disk {
        /// What was attempted.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Devices that no vendor's file has.
    #[error(transparent)]
    Cdi(#[from] UnknownDevices),
    /// A profile of system calls that is none.
    #[error("seccomp profile {}: {problem}", path.display())]
    Seccomp {
        /// The file.
        path: PathBuf,
        /// Its field, and what is the matter.
        problem: String,
    },
    /// The pod could not be connected.
    #[error("set up the network of the pod")]
    Network(#[from] NetworkError),
    /// The image store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It took too long.
    #[error("{attempt}: not done within {seconds} s")]
    Overdue {
        /// What was attempted.
        attempt: &'static str,
        /// For how long it was waited.
        seconds: u64,
    },
    /// A command took longer than its caller allowed.
    #[error("command timed out after {0} s: everything that it started was killed")]
    CommandOverdue(i64),
}

impl From<RuntimeError> for Status {
    fn from(error: RuntimeError) -> Self {
        let message = chain(&error);
        match error {
            RuntimeError::NoSandbox(_)
            | RuntimeError::NoContainer(_)
            | RuntimeError::NoImage(_) => Self::not_found(message),
            RuntimeError::NameTaken { .. } => Self::already_exists(message),
            RuntimeError::Refused(_)
            | RuntimeError::NoHandler(_)
            | RuntimeError::Seccomp { .. } => Self::invalid_argument(message),
            RuntimeError::Cdi(_) | RuntimeError::NotReady(_) | RuntimeError::WrongState { .. } => {
                Self::failed_precondition(message)
            }
            RuntimeError::CommandOverdue(_) | RuntimeError::Overdue { .. } => {
                Self::deadline_exceeded(message)
            }
            RuntimeError::Monitor(..)
            | RuntimeError::Connect(_)
            | RuntimeError::Spawner(_)
            | RuntimeError::Disk { .. }
            | RuntimeError::Network(_)
            | RuntimeError::Store(_) => Self::internal(message),
        }
    }
}

//! The node's certificates: asked for, stored, rotated; and the one it signs itself.
//!
//! [`bootstrap`] gets the first client certificate with a bootstrap token; [`Rotation`] keeps a
//! client or serving certificate fresh through certificate signing requests; [`self_signed`] makes
//! the serving certificate of a node without that. Files are behind [`CertStore`], with upstream's
//! names, so that a node can be switched over and back. Refuses: approving anything, keeping keys
//! anywhere but in the store and in memory.

mod bootstrap;
mod facts;
mod issue;
mod metrics;
mod rotate;
mod serving;
#[cfg(test)]
mod tests;
mod wanted;

use std::io;

use ferrolet_ports::{CertStore, Pair, PairName};
use tokio::task::spawn_blocking;

pub use bootstrap::{BootstrapError, bootstrap, is_usable};
pub use facts::{CertificateFacts, FactsError};
pub use issue::IssueError;
pub use metrics::CertificateMetrics;
pub use rotate::{Rotation, RotationOutcome};
pub use serving::{ServingDoors, ServingError, ServingSettings, Signer, serving_pair};
pub use wanted::{Least, Wanted, self_signed, serving_for};

/// Has files read and written where nobody else waits: a disk takes its time to keep something.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

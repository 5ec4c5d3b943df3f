//! Snapshots that others may look at, and the checks that say how a loop feels.

use ferrolet_types::Pod;

/// The pods of this node with their current status, for the server.
pub trait PodsView: Send + Sync {
    /// Every pod, with `status` filled in.
    fn pods(&self) -> Vec<Pod>;
}

/// One named health check.
pub trait HealthCheck: Send + Sync {
    /// Its name, as `/healthz?verbose` shows it.
    fn name(&self) -> &'static str;
    /// `Ok` while all is well, else the reason.
    fn check(&self) -> Result<(), String>;
}

//! The looking put together: containers, the kernel's log.

use std::sync::Arc;

use ferrolet_ports::{Clock, Events, KernelLog, Part, Runtime};
use ferrolet_types::hint::Hint;
use tokio::sync::mpsc;

use crate::{LastListing, ListingHealth, metrics, watch_containers, watch_kernel};

/// Hints on their way to the sync loop.
const HINTS: usize = 1000;

/// What is looked at.
pub struct Doors {
    /// Containers.
    pub runtime: Arc<dyn Runtime>,
    /// What the kernel says, where it may be read.
    pub kernel_log: Option<Box<dyn KernelLog>>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// What was seen.
pub struct Observed {
    /// Pods that had better be looked at.
    pub hints: mpsc::Receiver<Hint>,
    /// When the runtime was last listed.
    pub listing: Arc<ListingHealth>,
}

/// Puts the looking together.
pub fn build(doors: Doors) -> (Observed, Part) {
    metrics::begin();
    let Doors { runtime, kernel_log, events, clock } = doors;
    let (hint_sender, hints) = mpsc::channel(HINTS);
    let listing = Arc::new(ListingHealth::default());
    let mut part = Part::new("observe")
        .with_metrics(LastListing::new(listing.clone(), clock))
        .with_loop(watch_containers(runtime, hint_sender, listing.clone()));
    if let Some(log) = kernel_log {
        part.add_loop(watch_kernel(log, events));
    }
    (Observed { hints, listing }, part)
}

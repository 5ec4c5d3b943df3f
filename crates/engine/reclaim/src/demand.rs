//! What is given back at once because the node runs short, beside the loops that do it in time.

use std::sync::Arc;

use ferrolet_ports::{Collectors, Fut, RuntimeError};
use tokio::sync::Mutex;

use crate::{containers, images};

/// The collectors, for whoever watches over the node's means.
pub(crate) struct NodeCollectors {
    /// Shared with the loop, which knows how old images are; whoever comes second waits.
    pub(crate) images: Arc<Mutex<images::Collector>>,
    pub(crate) containers: Arc<containers::Doors>,
    pub(crate) dead: containers::Policy,
}

impl Collectors for NodeCollectors {
    fn remove_dead_containers(&self) -> Fut<'_, Result<usize, RuntimeError>> {
        Box::pin(containers::remove_remains(&self.containers, &self.dead))
    }

    fn remove_unused_images(&self) -> Fut<'_, Result<usize, RuntimeError>> {
        Box::pin(async { self.images.lock().await.remove_unused().await })
    }
}

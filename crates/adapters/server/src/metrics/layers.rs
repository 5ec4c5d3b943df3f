//! What the runtime keeps on disk, asked at most every ten seconds: it looks at its own stores no
//! more often.

use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::{FileRoom, LayerUsage, StoreUsage};
use ferrolet_types::Timestamp;
use tokio::sync::Mutex;

use super::Figures;
use crate::summary::Stores;

const FRESH: Duration = Duration::from_secs(10);

/// The last answer.
#[derive(Default)]
pub(crate) struct Layers {
    kept: Mutex<Option<(Timestamp, Arc<Kept>)>>,
}

/// What the runtime said.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) layers: Vec<LayerUsage>,
    pub(crate) stores: Stores,
}

impl Layers {
    /// What the runtime says; what it would not tell is missing.
    pub(crate) async fn read(&self, figures: &Figures) -> Arc<Kept> {
        // Held while asking, so that callers at the same time wait for one answer.
        let mut kept = self.kept.lock().await;
        let now = figures.clock.now();
        if let Some((at, last)) = &*kept
            && now.since(*at) < FRESH
        {
            return last.clone();
        }
        let (layers, stores) = tokio::join!(figures.disk.written_layers(), figures.disk.stores());
        let mut answer = Kept::default();
        match layers {
            Ok(layers) => answer.layers = layers,
            Err(error) => {
                tracing::warn!(err = %error, "The runtime does not tell what containers have written")
            }
        }
        match stores {
            Ok(stores) => {
                answer.stores.images = room(figures, stores.images.as_ref(), now).await;
                let containers = stores.containers.or(stores.images);
                answer.stores.containers = room(figures, containers.as_ref(), now).await;
            }
            Err(error) => {
                tracing::warn!(err = %error, "The runtime does not tell where images are")
            }
        }
        let answer = Arc::new(answer);
        *kept = Some((now, answer.clone()));
        answer
    }
}

async fn room(
    figures: &Figures,
    store: Option<&StoreUsage>,
    now: Timestamp,
) -> Option<(Timestamp, FileRoom)> {
    let store = store?;
    let room = figures.usage.room_at(&store.place).await.ok()?;
    let room = FileRoom { used: store.used.bytes, inodes_used: store.used.inodes, ..room };
    Some((store.at.unwrap_or(now), room))
}

//! The part put together: the book of an earlier life, and the loop that keeps it true.

use std::sync::Arc;

use ferrolet_node::DeviceResources;
use ferrolet_ports::{Clock, DevicePlugins, Part, PluginNews, StateFiles};
use ferrolet_types::PodUid;
use tokio::sync::{mpsc, watch};

use crate::{Devices, keep};

/// Pods whose devices changed, on their way to the sync loop.
const CHANGED: usize = 64;

/// What is set about devices.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Statuses of pods tell how their devices feel (gate `ResourceHealthStatus`).
    pub shows_health: bool,
}

/// What devices need.
pub struct Doors {
    /// The plugins.
    pub plugins: Arc<dyn DevicePlugins>,
    /// What becomes of them.
    pub news: mpsc::Receiver<PluginNews>,
    /// The directory of the checkpoint.
    pub files: Arc<dyn StateFiles>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// What others need of devices.
pub struct Built {
    /// Devices of pods.
    pub devices: Arc<Devices>,
    /// What the node has of them.
    pub amounts: watch::Receiver<DeviceResources>,
    /// Pods whose devices feel different, or whose plugin is back.
    pub changed: mpsc::Receiver<PodUid>,
}

/// Reads what an earlier life of the agent knew and puts the part together.
pub async fn build(settings: Settings, doors: Doors) -> (Built, Part) {
    let (book, is_new) = keep::load(&doors).await;
    let (amount_sender, amounts) = watch::channel(DeviceResources::default());
    let (changed_sender, changed) = mpsc::channel(CHANGED);
    let devices = Arc::new(Devices::new(settings, book, doors.plugins.clone(), is_new));
    devices.show(&amount_sender);
    let part = Part::new("devices").with_loop(keep::run(
        devices.clone(),
        doors,
        amount_sender,
        changed_sender,
    ));
    (Built { devices, amounts, changed }, part)
}

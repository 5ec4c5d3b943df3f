//! The part put together: the books of an earlier life, and the loops that keep them true.

use std::sync::Arc;

use ferrolet_claims::ClaimRules;
use ferrolet_ports::{ClaimDrivers, ClaimObjects, Clock, DriverNews, Part, StateFiles, once_open};
use ferrolet_types::PodUid;
use tokio::sync::{mpsc, watch};

use crate::{Claims, keep, metrics::InUse};

/// Pods whose claims changed, on their way to the sync loop.
const CHANGED: usize = 64;

/// What is set about claims.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whose claims a pod may use, and what drivers are spared.
    pub rules: ClaimRules,
    /// Statuses of pods tell how their devices feel (gate `ResourceHealthStatus`).
    pub shows_health: bool,
    /// They tell why, too (gate `ResourceHealthStatusMessage`).
    pub shows_messages: bool,
}

/// What claims need.
pub struct Doors {
    /// The drivers.
    pub drivers: Arc<dyn ClaimDrivers>,
    /// What becomes of them.
    pub news: mpsc::Receiver<DriverNews>,
    /// The API's objects, and whether the node may speak for itself; a node on its own has none.
    pub cluster: Option<(Arc<dyn ClaimObjects>, watch::Receiver<bool>)>,
    /// The node's own directory.
    pub files: Arc<dyn StateFiles>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// What others need of claims.
pub struct Built {
    /// Claims of pods.
    pub claims: Arc<Claims>,
    /// Pods whose devices feel different, or that waited for a driver which is there.
    pub changed: mpsc::Receiver<PodUid>,
}

/// Reads what an earlier life of the agent knew and puts the part together.
pub async fn build(settings: Settings, doors: Doors) -> (Built, Part) {
    let books = keep::load(&doors).await;
    let (changed_sender, changed) = mpsc::channel(CHANGED);
    let objects = doors.cluster.as_ref().map(|(objects, _)| objects.clone());
    let claims = Arc::new(Claims::new(
        settings,
        books,
        (doors.drivers.clone(), objects),
        doors.clock.clone(),
    ));
    let mut part = Part::new("claims").with_metrics(InUse(claims.clone()));
    if let Some((objects, joined)) = doors.cluster.clone() {
        let wiper = claims.clone();
        let wiping = async move { wiper.wiping.run(objects.as_ref()).await };
        part.add_loop(once_open(joined, wiping));
    }
    part.add_loop(keep::run(claims.clone(), doors, changed_sender));
    (Built { claims, changed }, part)
}

//! The desk put together: what it is told, its doors, its loops.

use std::{sync::Arc, time::Duration};

use ferrolet_placement::Placement;
use ferrolet_ports::{Part, PodsView, Runtime, StateFiles};

use crate::{
    Desk,
    keep::{keep, load},
    metrics::PlacementMetrics,
    reconcile::reconcile,
};

/// How containers are placed on this node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The policies on this machine, with nothing given yet.
    pub placement: Placement,
    /// How often containers are compared with what they should run on.
    pub reconcile_period: Duration,
    /// Containers with processors of their own are not throttled on them
    /// (`DisableCPUQuotaWithExclusiveCPUs`).
    pub has_free_quota: bool,
}

/// The doors.
pub struct Doors {
    /// Who runs.
    pub pods: Arc<dyn PodsView>,
    /// Containers.
    pub runtime: Arc<dyn Runtime>,
    /// Checkpoints that survive the agent.
    pub state_files: Arc<dyn StateFiles>,
}

/// Reads what an earlier life wrote, and puts the desk together.
pub async fn build(settings: Settings, doors: Doors) -> (Arc<Desk>, Part) {
    let mut placement = settings.placement;
    load(&mut placement, doors.state_files.as_ref()).await;
    let desk = Arc::new(Desk::new(placement, settings.has_free_quota));
    let mut part = Part::new("placement").with_metrics(PlacementMetrics(desk.clone()));
    let (keeper, files) = (desk.clone(), doors.state_files);
    part.add_loop(async move { keep(&keeper, files.as_ref()).await });
    if desk.has_static_cpus() {
        let (told, pods, runtime) = (desk.clone(), doors.pods, doors.runtime);
        let period = settings.reconcile_period;
        part.add_loop(async move {
            reconcile(&told, pods.as_ref(), runtime.as_ref(), period).await;
        });
    }
    (desk, part)
}

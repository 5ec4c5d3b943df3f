//! What takes space back, put together.

use std::sync::Arc;

use ferrolet_ports::{
    Clock, Collectors, Disks, Events, ImagePlace, Images, LogReopen, LogStore, Part, PodsView,
    PullFiles, Runtime, RuntimeDisk, Usage,
};
use ferrolet_types::Eviction;
use tokio::sync::{Mutex, mpsc, watch};

use crate::{containers, demand::NodeCollectors, images, logs, metrics, storage};

/// What is taken back, and when.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Images that nobody needs.
    pub images: watch::Receiver<images::Policy>,
    /// Logs that grew too big; `None` leaves them alone.
    pub logs: watch::Receiver<Option<logs::Policy>>,
    /// Remains of containers.
    pub containers: containers::Policy,
    /// Pods that break their limits on local storage have to go.
    pub keeps_storage_limits: bool,
}

/// The doors of everything that takes back.
pub struct Doors {
    /// Containers.
    pub runtime: Arc<dyn Runtime>,
    /// Images.
    pub images: Arc<dyn Images>,
    /// Where images are kept.
    pub place: Arc<dyn ImagePlace>,
    /// How full that is.
    pub disks: Arc<dyn Disks>,
    /// What was pulled.
    pub records: Arc<dyn PullFiles>,
    /// Logs, and links to them.
    pub logs: Arc<dyn LogStore>,
    /// Moves the writer of a log on.
    pub reopen: Arc<dyn LogReopen>,
    /// What containers wrote.
    pub layers: Arc<dyn RuntimeDisk>,
    /// What pods have on disk.
    pub usage: Arc<dyn Usage>,
    /// Who is there.
    pub pods: Arc<dyn PodsView>,
    /// Who has to go.
    pub evictions: mpsc::Sender<Eviction>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// Puts the loops together; answers with what gives back at once, too.
pub fn build(settings: Settings, doors: Doors) -> (Arc<dyn Collectors>, Part) {
    let Doors { runtime, pods, logs, events, clock, .. } = doors;
    let mut part = Part::new("reclaim").with_metrics(metrics::rotations());
    let image_doors = images::Doors {
        images: doors.images,
        runtime: runtime.clone(),
        pods: pods.clone(),
        place: doors.place,
        disks: doors.disks,
        records: doors.records,
        events: events.clone(),
        clock: clock.clone(),
    };
    let policy = *settings.images.borrow();
    let collector = Arc::new(Mutex::new(images::Collector::new(image_doors, policy)));
    part.add_loop(images::run(collector.clone(), settings.images));
    let log_doors = logs::Doors {
        store: logs.clone(),
        runtime: runtime.clone(),
        reopen: doors.reopen,
        clock: clock.clone(),
    };
    part.add_loop(logs::run(log_doors, settings.logs));
    if settings.keeps_storage_limits {
        let tally = part.tally();
        part.add_loop(storage::run(storage::Doors {
            pods: pods.clone(),
            usage: doors.usage,
            layers: doors.layers,
            evictions: doors.evictions,
            tally,
        }));
    }
    let container_doors = Arc::new(containers::Doors { runtime, pods, logs, events, clock });
    part.add_loop(containers::run_shared(container_doors.clone(), settings.containers));
    let collectors = NodeCollectors {
        images: collector,
        containers: container_doors,
        dead: settings.containers,
    };
    (Arc::new(collectors), part)
}

//! What takes space back: images, logs and remains of containers, wired.

use std::{path::PathBuf, sync::Arc};

use ferrolet_config::Loaded;
use ferrolet_cri::CriClient;
use ferrolet_host::{
    files::CONTAINER_LINKS,
    log_store::{NodeDisks, NodeLogStore},
    pulls::NodePullFiles,
};
use ferrolet_ports::{Clock, Events, PodsView, Tally, Usage};
use ferrolet_reclaim::{containers, images, logs, storage};
use ferrolet_types::Eviction;
use tokio::{sync::mpsc, task::JoinSet};

/// Orders to end pods on their way to the sync loop.
const EVICTIONS: usize = 16;

/// Starts the three loops.
pub(super) fn start(
    loaded: &Loaded,
    cri: &Arc<CriClient>,
    pods: Arc<dyn PodsView>,
    events: Arc<dyn Events>,
    clock: Arc<dyn Clock>,
    tasks: &mut JoinSet<()>,
) {
    let (config, flags) = (&loaded.config, &loaded.flags);
    let collection = &config.images.collection;
    tasks.spawn(images::run(
        images::Doors {
            images: cri.clone(),
            runtime: cri.clone(),
            pods: pods.clone(),
            place: cri.clone(),
            disks: Arc::new(NodeDisks),
            records: Arc::new(NodePullFiles::new(&flags.root_dir)),
            events: events.clone(),
            clock: clock.clone(),
        },
        images::Policy {
            minimum_age: collection.minimum_age,
            maximum_age: collection.maximum_age,
            high_percent: collection.high_threshold,
            low_percent: collection.low_threshold,
        },
    ));
    let store = Arc::new(NodeLogStore::new(
        config.sources.pod_logs_dir.clone(),
        PathBuf::from(CONTAINER_LINKS),
    ));
    let rotation = &config.container_logs;
    let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    if let Some(max_size) = rotation.max_size {
        tasks.spawn(logs::run(
            logs::Doors {
                store: store.clone(),
                runtime: cri.clone(),
                reopen: cri.clone(),
                clock: clock.clone(),
            },
            logs::Policy {
                max_size,
                max_files: count(rotation.max_files),
                max_workers: count(rotation.max_workers),
                interval: rotation.monitor_interval,
            },
        ));
    }
    tasks.spawn(containers::run(
        containers::Doors { runtime: cri.clone(), pods, logs: store, events, clock },
        containers::Policy {
            minimum_age: flags.minimum_container_ttl,
            per_container: flags.maximum_dead_containers_per_container.map(count),
            in_all: flags.maximum_dead_containers.map(count),
        },
    ));
}

/// Starts the loop that keeps limits on local storage, where they are to be kept; answers with the pods that have to go.
pub(super) fn keep_limits(
    loaded: &Loaded,
    (pods, usage, layers): (Arc<dyn PodsView>, Arc<dyn Usage>, Arc<CriClient>),
    figures: Arc<Tally>,
    tasks: &mut JoinSet<()>,
) -> mpsc::Receiver<Eviction> {
    let (sender, evictions) = mpsc::channel(EVICTIONS);
    if loaded.config.volumes.local_storage_isolation {
        tasks.spawn(storage::run(storage::Doors {
            pods,
            usage,
            layers,
            evictions: sender,
            figures,
        }));
    }
    evictions
}

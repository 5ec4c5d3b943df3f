//! The loop: every ten seconds, the pods whose turn has come.

use std::{collections::BTreeMap, sync::Arc};

use ferrolet_pod::container_ids;
use ferrolet_ports::{DiskUsage, PodsView, RuntimeDisk, Tally, Usage, metrics};
use ferrolet_resources::{StorageUse, has_storage_limits, is_local_volume, storage_breach};
use ferrolet_types::{
    Eviction, EvictionReason, GracePeriod, Pod, PodUid,
    pod::{Phase, PodView as _},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::pace::{PERIOD, Pace};

/// A pod that breaks a limit gets no time to break it further; one second, as upstream.
const AT_ONCE: i64 = 1;

/// The doors of the limits on local storage.
pub struct Doors {
    /// Who is there, with containers' ids.
    pub pods: Arc<dyn PodsView>,
    /// What pods have on disk.
    pub usage: Arc<dyn Usage>,
    /// What containers wrote.
    pub layers: Arc<dyn RuntimeDisk>,
    /// Who has to go.
    pub evictions: mpsc::Sender<Eviction>,
    /// How many went, and why.
    pub tally: Arc<Tally>,
}

/// Keeps the limits until nobody takes orders any more.
pub async fn run(doors: Doors) {
    let mut pace = Pace::default();
    while !doors.evictions.is_closed() {
        look(&doors, &mut pace).await;
        sleep(PERIOD).await;
    }
}

async fn look(doors: &Doors, pace: &mut Pace) {
    let pods: Vec<Pod> = doors.pods.pods().into_iter().filter(is_limited).collect();
    pace.retain(|uid| pods.iter().any(|pod| pod.uid() == *uid));
    let due: Vec<&Pod> =
        pods.iter().filter(|pod| pace.is_due(&pod.uid(), Instant::now())).collect();
    if due.is_empty() {
        return;
    }
    let layers = Layers::read(doors).await;
    for pod in due {
        let (uid, began) = (pod.uid(), Instant::now());
        let disk = match doors.usage.disk_of(&uid).await {
            Ok(disk) => disk,
            Err(error) => {
                tracing::warn!(pod = %pod.key(), %error, "What a pod has on disk cannot be measured");
                continue;
            }
        };
        pace.measured(&uid, Instant::now(), began.elapsed());
        let used = storage_use(pod, &uid, &disk, &layers);
        let Some(breach) = storage_breach(pod, &used) else {
            continue;
        };
        let message = breach.message();
        tracing::warn!(pod = %pod.key(), message, "Pod breaks its limit on local storage");
        let eviction = Eviction {
            uid,
            reason: EvictionReason::Evicted,
            message,
            annotations: BTreeMap::new(),
            disruption: None,
            grace: Some(GracePeriod::from_secs(AT_ONCE)),
        };
        if doors.evictions.send(eviction).await.is_ok() {
            doors.tally.add(metrics::KUBELET_EVICTIONS, [breach.signal()], 1.0);
        }
    }
}

/// True for pods that are measured: limited, alive, and such that may be evicted.
fn is_limited(pod: &Pod) -> bool {
    has_storage_limits(pod)
        && !pod.is_critical()
        && pod.deletion_time().is_none()
        && !pod.api_phase().is_some_and(Phase::is_terminal)
}

/// What containers wrote, by id, and whether that counts for them: where images live on a disk of
/// their own, it does not.
#[derive(Default)]
struct Layers {
    written: BTreeMap<String, u64>,
    have_own_disk: bool,
}

impl Layers {
    async fn read(doors: &Doors) -> Self {
        let written = match doors.layers.written_layers().await {
            Ok(written) => written,
            Err(error) => {
                tracing::warn!(%error, "The runtime does not say what containers wrote");
                return Self::default();
            }
        };
        Self {
            written: written
                .into_iter()
                .map(|layer| (layer.id.as_str().to_owned(), layer.used.bytes))
                .collect(),
            have_own_disk: have_own_disk(doors).await.unwrap_or(false),
        }
    }
}

/// True when the runtime's store is not on the node's own file system; `None` when it does not
/// tell.
async fn have_own_disk(doors: &Doors) -> Option<bool> {
    let store = doors.layers.stores().await.ok()?.images?;
    let store = doors.usage.room_at(&store.place).await.ok()?;
    let node = doors.usage.disk_of(&PodUid::new("")).await.ok()?.node;
    // No two file systems of a node are alike in both.
    Some((store.capacity, store.inodes) != (node.capacity, node.inodes))
}

/// What a pod has on disk.
fn storage_use(pod: &Pod, uid: &PodUid, disk: &DiskUsage, layers: &Layers) -> StorageUse {
    let volumes: Vec<(String, u64)> = disk
        .volumes
        .iter()
        .filter(|volume| volume.uid == *uid)
        .map(|volume| (volume.name.clone(), volume.room.used))
        .collect();
    let named = pod.spec_ref().volumes.as_deref().unwrap_or_default();
    let local = disk.volumes.iter().filter(|volume| {
        let source = named.iter().find(|it| it.name == volume.name);
        volume.uid == *uid && volume.is_on_node && source.is_some_and(is_local_volume)
    });
    // What could not be counted to its end is as much as a number can say.
    let mut total = local.fold(0, |sum: u64, volume| sum.saturating_add(volume.room.used));
    for (_, used) in disk.pod_files.iter().filter(|(owner, _)| owner == uid) {
        total = total.saturating_add(used.bytes);
    }
    let mut containers: BTreeMap<String, u64> = BTreeMap::new();
    for (owner, container, used) in &disk.container_logs {
        if owner == uid {
            let own = containers.entry(container.clone()).or_default();
            *own = own.saturating_add(used.bytes);
            total = total.saturating_add(used.bytes);
        }
    }
    for (container, id) in container_ids(pod) {
        let Some(written) = layers.written.get(id) else {
            continue;
        };
        total = total.saturating_add(*written);
        if !layers.have_own_disk {
            let own = containers.entry(container.to_owned()).or_default();
            *own = own.saturating_add(*written);
        }
    }
    StorageUse { volumes, containers: containers.into_iter().collect(), total }
}

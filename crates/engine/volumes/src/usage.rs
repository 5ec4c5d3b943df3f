//! How full volumes are, where their directories do not tell: which volume of the pod a directory
//! is, and what drivers say.
//!
//! ```text
//!  Usage::disk (host: directories and mounts) ─┐
//!  the table: directory ─► volume, driver ─────┼─► the same reading with names, and drivers' volumes added
//!  drivers: NodeGetVolumeStats ────────────────┘
//! ```
//!
//! Asked on demand and kept as long as the reading below it: nothing is asked while nobody asks us.
//! A driver that does not answer in time leaves its volume out. Refuses: formats and names of
//! claims; those are the server's business.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{
    CsiDrivers, CsiHealthAsk, Detail, DiskUsage, FileRoom, Fut, HostError, NodeMounts, RecordPlace,
    Usage, UsageFigures, UsageSnapshot, VolumeMode, VolumePlace, VolumeSource, VolumeSpec,
    VolumeUsage,
};
use ferrolet_types::PodUid;
use futures::future::join_all;
use tokio::time::timeout;

use crate::{
    VolumeEngine,
    csi::{CSI, handle_of, node_place},
};

/// A driver that takes longer to say how full a volume is, is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// A CSI driver's volume: driver, its name for the volume, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverVolume {
    pub(crate) driver: String,
    pub(crate) handle: String,
    path: String,
    staging_path: String,
    is_inline: bool,
}

impl DriverVolume {
    /// The driver's volume that a pod has or wants; `None` when it is no driver's.
    pub(crate) fn of(mounts: &dyn NodeMounts, uid: &PodUid, spec: &VolumeSpec) -> Option<Self> {
        let VolumeSource::Csi(csi) = &spec.source else {
            return None;
        };
        let place =
            VolumePlace { uid: uid.clone(), plugin: CSI.to_owned(), name: spec.name.clone() };
        let handle = handle_of(csi, uid, spec);
        let (path, staged) = match spec.mode {
            VolumeMode::Filesystem => {
                (mounts.driver_path(&RecordPlace::Pod(place)), node_place(&csi.driver, &handle))
            }
            VolumeMode::Block => {
                let name = spec.name.clone();
                (mounts.driver_device(&place), RecordPlace::Device { name })
            }
        };
        Some(Self {
            driver: csi.driver.clone(),
            handle,
            path: path.display().to_string(),
            staging_path: mounts.driver_path(&staged).display().to_string(),
            is_inline: csi.is_inline,
        })
    }
}

/// A driver's volume that outlives pods, and whose it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastingVolume {
    pub(crate) uid: PodUid,
    /// Its name in the pod.
    pub(crate) volume: String,
    pub(crate) driver: String,
    /// What the driver is asked with; without paths while it is not there.
    pub(crate) ask: CsiHealthAsk,
}

/// Volumes of pods by the name of their directories.
type NamedVolumes = BTreeMap<(PodUid, String), NamedVolume>;

struct NamedVolume {
    /// Its name in the pod.
    volume: String,
    /// The driver, once it has made the volume ready.
    ready_driver: Option<DriverVolume>,
}

impl VolumeEngine {
    /// Volumes of drivers that pods have, or that were asked for. Those that live and die with
    /// their pods are left out.
    pub(crate) fn lasting_volumes(&self) -> Vec<LastingVolume> {
        let mut lasting = Vec::new();
        self.table.for_each(|uid, volume, row| {
            let driver = row.found.as_ref().and_then(|it| it.driver.as_ref());
            let Some(it) = driver.filter(|it| !it.is_inline) else {
                return;
            };
            let is_ready = row.state.progress().published().is_some();
            let at = |path: &String| if is_ready { path.clone() } else { String::new() };
            lasting.push(LastingVolume {
                uid: uid.clone(),
                volume: volume.to_owned(),
                driver: it.driver.clone(),
                ask: CsiHealthAsk {
                    volume: it.handle.clone(),
                    path: at(&it.path),
                    staging_path: at(&it.staging_path),
                },
            });
        });
        lasting
    }

    fn named_volumes(&self) -> NamedVolumes {
        let mut named = NamedVolumes::new();
        self.table.for_each(|uid, volume, row| {
            let Some(found) = &row.found else {
                return;
            };
            let is_ready = row.state.progress().published().is_some();
            let it = NamedVolume {
                volume: volume.to_owned(),
                ready_driver: found.driver.clone().filter(|_| is_ready),
            };
            named.insert((uid.clone(), found.name.clone()), it);
        });
        named
    }

    /// The reading with volumes' names, and with what drivers say of theirs.
    async fn complete(&self, disk: &DiskUsage) -> DiskUsage {
        let named = self.named_volumes();
        let told = ask_drivers(self.doors.drivers.as_ref(), &named).await;
        let now = self.doors.clock.now();
        let mut whole = disk.clone();
        for volume in &mut whole.volumes {
            let key = (volume.uid.clone(), volume.name.clone());
            volume.volume = named.get(&key).map(|it| it.volume.clone());
        }
        for ((uid, name), room) in told {
            let volume = named.get(&(uid.clone(), name.clone())).map(|it| it.volume.clone());
            whole.volumes.push(VolumeUsage { uid, name, volume, at: now, room, is_on_node: false });
        }
        whole
    }
}

/// What drivers that can tell say of their volumes, all at the same time.
async fn ask_drivers(
    drivers: &dyn CsiDrivers,
    named: &NamedVolumes,
) -> Vec<((PodUid, String), FileRoom)> {
    let volumes: Vec<(&(PodUid, String), &DriverVolume)> =
        named.iter().filter_map(|(key, it)| Some((key, it.ready_driver.as_ref()?))).collect();
    let names: BTreeSet<&str> = volumes.iter().map(|(_, it)| it.driver.as_str()).collect();
    let abilities = names.into_iter().map(async |name| {
        let asked = timeout(PATIENCE, drivers.abilities(name)).await;
        let tells = matches!(asked, Ok(Ok(abilities)) if abilities.tells_usage);
        tells.then_some(name)
    });
    let telling: BTreeSet<&str> = join_all(abilities).await.into_iter().flatten().collect();
    let volumes = volumes.iter();
    let asked = volumes.filter(|(_, it)| telling.contains(it.driver.as_str()));
    let asked = asked.map(async |(key, driven)| {
        let usage = drivers.usage(&driven.driver, &driven.handle, &driven.path);
        match timeout(PATIENCE, usage).await {
            Ok(Ok(room)) => Some(((*key).clone(), room)),
            Ok(Err(error)) => {
                tracing::debug!(driver = driven.driver, %error, "Driver does not say how full a volume is");
                None
            }
            Err(_elapsed) => {
                tracing::warn!(driver = driven.driver, handle = driven.handle, "Driver takes too long to say how full a volume is");
                None
            }
        }
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// Whether the usage of volumes is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeStats {
    /// It is measured when somebody asks.
    Shown,
    /// Nobody measures it, and drivers are not asked (`volumeStatsAggPeriod` below zero).
    Hidden,
}

/// Usage with the names of volumes and what drivers say of theirs.
pub struct NamedUsage {
    inner: Arc<dyn Usage>,
    engine: Arc<VolumeEngine>,
    volumes: VolumeStats,
    /// The last reading of the disks, and what was made of it.
    last: tokio::sync::Mutex<Option<(Arc<DiskUsage>, Arc<DiskUsage>)>>,
}

impl NamedUsage {
    /// Completes what the host reads.
    pub fn new(inner: Arc<dyn Usage>, engine: Arc<VolumeEngine>, volumes: VolumeStats) -> Self {
        Self { inner, engine, volumes, last: tokio::sync::Mutex::default() }
    }
}

impl Usage for NamedUsage {
    fn snapshot(&self, max_age: Duration) -> Fut<'_, Result<Arc<UsageSnapshot>, HostError>> {
        self.inner.snapshot(max_age)
    }

    fn figures(
        &self,
        detail: Detail,
        max_age: Duration,
    ) -> Fut<'_, Result<Arc<UsageFigures>, HostError>> {
        self.inner.figures(detail, max_age)
    }

    fn disk(&self) -> Fut<'_, Result<Arc<DiskUsage>, HostError>> {
        Box::pin(async move {
            let disk = self.inner.disk().await?;
            // Held while drivers are asked, so that callers at the same time wait for one answer.
            let mut last = self.last.lock().await;
            if let Some((of, whole)) = &*last
                && Arc::ptr_eq(of, &disk)
            {
                return Ok(whole.clone());
            }
            let whole = match self.volumes {
                VolumeStats::Shown => self.engine.complete(&disk).await,
                VolumeStats::Hidden => DiskUsage { volumes: Vec::new(), ..DiskUsage::clone(&disk) },
            };
            let whole = Arc::new(whole);
            *last = Some((disk, whole.clone()));
            Ok(whole)
        })
    }

    fn disk_of<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<DiskUsage, HostError>> {
        self.inner.disk_of(uid)
    }

    fn room_at<'a>(&'a self, place: &'a str) -> Fut<'a, Result<FileRoom, HostError>> {
        self.inner.room_at(place)
    }
}

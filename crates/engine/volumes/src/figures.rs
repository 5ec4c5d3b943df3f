//! How full volumes are, where their directories do not tell: which volume of the pod a directory is, and what drivers say.
//!
//! ```text
//!  Usage::disk (host: directories and mounts) ─┐
//!  Standing: directory ─► volume, driver ──────┼─► the same reading with names, and drivers' volumes added
//!  drivers: NodeGetVolumeStats ────────────────┘
//! ```
//!
//! Asked on demand and kept as long as the reading below it: nothing is asked while nobody asks us. A driver that does not
//! answer in time leaves its volume out. Refuses: formats and names of claims; those are the server's business.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ferrolet_ports::{
    CsiDrivers, Detail, DiskUsage, FileRoom, Fut, HostError, RecordPlace, Usage, UsageFigures,
    UsageSnapshot, VolumePlace, VolumeUsage,
};
use ferrolet_types::PodUid;
use futures::future::join_all;
use tokio::time::timeout;

use crate::{
    VolumeEngine,
    csi::{CSI, handle_of},
    plan::PodPlan,
    provided::{Backing, Form, Provided},
};

/// A driver that takes longer to say how full a volume is, is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Provided volumes that pods have, by pod and name of the directory.
#[derive(Default)]
pub(crate) struct Standing {
    known: Mutex<BTreeMap<(PodUid, String), Stands>>,
}

/// One provided volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stands {
    volume: String,
    driver: Option<Driven>,
}

/// A driver's volume: driver, its name for the volume, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Driven {
    driver: String,
    handle: String,
    path: String,
}

impl Standing {
    fn known(&self) -> MutexGuard<'_, BTreeMap<(PodUid, String), Stands>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn forget(&self, uid: &PodUid) {
        self.known().retain(|(owner, _), _| owner != uid);
    }
}

impl VolumeEngine {
    /// Notes which volume of the pod a directory is.
    pub(crate) fn note_standing(&self, plan: &PodPlan, volume: &str, provided: &Provided) {
        let driver = match &provided.backing {
            Backing::Csi(csi) => {
                let place = VolumePlace {
                    uid: plan.uid.clone(),
                    plugin: CSI.to_owned(),
                    name: provided.spec_name.clone(),
                };
                let mounts = &self.doors.mounts;
                let path = match provided.form {
                    Form::Files => mounts.driver_path(&RecordPlace::Pod(place)),
                    Form::Device => mounts.driver_device(&place),
                };
                Some(Driven {
                    driver: csi.driver.clone(),
                    handle: handle_of(csi, plan, provided),
                    path: path.display().to_string(),
                })
            }
            _ => None,
        };
        let stands = Stands {
            volume: volume.to_owned(),
            driver,
        };
        let key = (plan.uid.clone(), provided.spec_name.clone());
        self.standing.known().insert(key, stands);
    }

    /// The reading with volumes' names, and with what drivers say of theirs.
    async fn complete(&self, disk: &DiskUsage) -> DiskUsage {
        let known = self.standing.known().clone();
        let told = ask_drivers(self.doors.drivers.as_ref(), &known).await;
        let now = self.doors.clock.now();
        let mut whole = disk.clone();
        for volume in &mut whole.volumes {
            let key = (volume.uid.clone(), volume.name.clone());
            volume.volume = known.get(&key).map(|it| it.volume.clone());
        }
        for ((uid, name), room) in told {
            let volume = known
                .get(&(uid.clone(), name.clone()))
                .map(|it| it.volume.clone());
            whole.volumes.push(VolumeUsage {
                uid,
                name,
                volume,
                at: now,
                room,
                is_on_node: false,
            });
        }
        whole
    }
}

/// What drivers that can tell say of their volumes, all at the same time.
async fn ask_drivers(
    drivers: &dyn CsiDrivers,
    known: &BTreeMap<(PodUid, String), Stands>,
) -> Vec<((PodUid, String), FileRoom)> {
    let names: BTreeSet<&str> = known
        .values()
        .filter_map(|it| Some(it.driver.as_ref()?.driver.as_str()))
        .collect();
    let abilities = names.into_iter().map(async |name| {
        let asked = timeout(PATIENCE, drivers.abilities(name)).await;
        let tells = matches!(asked, Ok(Ok(abilities)) if abilities.tells_usage);
        tells.then_some(name)
    });
    let telling: BTreeSet<&str> = join_all(abilities).await.into_iter().flatten().collect();
    let volumes = known.iter().filter_map(|(key, stands)| {
        let driven = stands.driver.as_ref()?;
        telling
            .contains(driven.driver.as_str())
            .then_some((key, driven))
    });
    let asked = volumes.map(async |(key, driven)| {
        let usage = drivers.usage(&driven.driver, &driven.handle, &driven.path);
        match timeout(PATIENCE, usage).await {
            Ok(Ok(room)) => Some((key.clone(), room)),
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

/// Usage with the names of volumes and the figures of drivers.
pub struct NamedUsage {
    inner: Arc<dyn Usage>,
    engine: Arc<VolumeEngine>,
    /// The last reading of the disks, and what was made of it.
    kept: tokio::sync::Mutex<Option<(Arc<DiskUsage>, Arc<DiskUsage>)>>,
}

impl NamedUsage {
    /// Completes what the host reads.
    pub fn new(inner: Arc<dyn Usage>, engine: Arc<VolumeEngine>) -> Self {
        Self {
            inner,
            engine,
            kept: tokio::sync::Mutex::default(),
        }
    }
}

impl Usage for NamedUsage {
    fn snapshot(&self) -> Fut<'_, Result<Arc<UsageSnapshot>, HostError>> {
        self.inner.snapshot()
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
            let mut kept = self.kept.lock().await;
            if let Some((of, whole)) = &*kept
                && Arc::ptr_eq(of, &disk)
            {
                return Ok(whole.clone());
            }
            let whole = Arc::new(self.engine.complete(&disk).await);
            *kept = Some((disk, whole.clone()));
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

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
    CsiDrivers, CsiHealthAsk, Detail, DiskUsage, FileRoom, Fut, HostError, RecordPlace, Usage,
    UsageFigures, UsageSnapshot, VolumePlace, VolumeUsage,
};
use ferrolet_types::PodUid;
use futures::future::join_all;
use tokio::time::timeout;

use crate::{
    VolumeEngine,
    csi::{CSI, handle_of, node_place},
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
    progress: Progress,
}

impl Stands {
    /// The driver, once it has made the volume ready.
    fn ready_driver(&self) -> Option<&Driven> {
        let driver = self.driver.as_ref();
        driver.filter(|_| self.progress == Progress::Ready)
    }
}

/// How far a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Somebody was asked for it.
    Tried,
    /// It is there.
    Ready,
}

/// A driver's volume: driver, its name for the volume, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Driven {
    driver: String,
    handle: String,
    path: String,
    staging_path: String,
    is_inline: bool,
}

/// A driver's volume that outlives pods, and whose it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrivenVolume {
    pub(crate) uid: PodUid,
    /// Its name in the pod.
    pub(crate) volume: String,
    pub(crate) driver: String,
    /// What the driver is asked with; without paths while it is not there.
    pub(crate) ask: CsiHealthAsk,
}

impl Standing {
    fn known(&self) -> MutexGuard<'_, BTreeMap<(PodUid, String), Stands>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Volumes of drivers that pods have, or that were asked for. Those that live and die with their pods are left out.
    pub(crate) fn driven(&self) -> Vec<DrivenVolume> {
        let known = self.known();
        let driven = known.iter().filter_map(|((uid, _), stands)| {
            let it = stands.driver.as_ref().filter(|it| !it.is_inline)?;
            let at = |path: &String| match stands.progress {
                Progress::Tried => String::new(),
                Progress::Ready => path.clone(),
            };
            Some(DrivenVolume {
                uid: uid.clone(),
                volume: stands.volume.clone(),
                driver: it.driver.clone(),
                ask: CsiHealthAsk {
                    volume: it.handle.clone(),
                    path: at(&it.path),
                    staging_path: at(&it.staging_path),
                },
            })
        });
        driven.collect()
    }

    pub(crate) fn forget(&self, uid: &PodUid) {
        self.known().retain(|(owner, _), _| owner != uid);
    }
}

impl VolumeEngine {
    /// Notes which volume of the pod a directory is, and how far it is. What was ready once stays so.
    pub(crate) fn note_standing(
        &self,
        plan: &PodPlan,
        volume: &str,
        provided: &Provided,
        progress: Progress,
    ) {
        let driver = match &provided.backing {
            Backing::Csi(csi) => {
                let place = VolumePlace {
                    uid: plan.uid.clone(),
                    plugin: CSI.to_owned(),
                    name: provided.spec_name.clone(),
                };
                let mounts = &self.doors.mounts;
                let handle = handle_of(csi, plan, provided);
                let (path, staged) = match provided.form {
                    Form::Files => (
                        mounts.driver_path(&RecordPlace::Pod(place)),
                        node_place(&csi.driver, &handle),
                    ),
                    Form::Device => {
                        let name = provided.spec_name.clone();
                        (mounts.driver_device(&place), RecordPlace::Device { name })
                    }
                };
                Some(Driven {
                    driver: csi.driver.clone(),
                    handle,
                    path: path.display().to_string(),
                    staging_path: mounts.driver_path(&staged).display().to_string(),
                    is_inline: csi.is_inline,
                })
            }
            _ => None,
        };
        let stands = Stands { volume: volume.to_owned(), driver, progress };
        let key = (plan.uid.clone(), provided.spec_name.clone());
        let mut known = self.standing.known();
        let is_ready = known.get(&key).is_some_and(|it| it.progress == Progress::Ready);
        if progress == Progress::Ready || !is_ready {
            known.insert(key, stands);
        }
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
            let volume = known.get(&(uid.clone(), name.clone())).map(|it| it.volume.clone());
            whole.volumes.push(VolumeUsage { uid, name, volume, at: now, room, is_on_node: false });
        }
        whole
    }
}

/// What drivers that can tell say of their volumes, all at the same time.
async fn ask_drivers(
    drivers: &dyn CsiDrivers,
    known: &BTreeMap<(PodUid, String), Stands>,
) -> Vec<((PodUid, String), FileRoom)> {
    let volumes: Vec<(&(PodUid, String), &Driven)> =
        known.iter().filter_map(|(key, stands)| Some((key, stands.ready_driver()?))).collect();
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

/// Whether figures of volumes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeFigures {
    /// They are measured when somebody asks.
    Shown,
    /// Nobody measures them, and drivers are not asked (`volumeStatsAggPeriod` below zero).
    Hidden,
}

/// Usage with the names of volumes and the figures of drivers.
pub struct NamedUsage {
    inner: Arc<dyn Usage>,
    engine: Arc<VolumeEngine>,
    volumes: VolumeFigures,
    /// The last reading of the disks, and what was made of it.
    kept: tokio::sync::Mutex<Option<(Arc<DiskUsage>, Arc<DiskUsage>)>>,
}

impl NamedUsage {
    /// Completes what the host reads.
    pub fn new(inner: Arc<dyn Usage>, engine: Arc<VolumeEngine>, volumes: VolumeFigures) -> Self {
        Self { inner, engine, volumes, kept: tokio::sync::Mutex::default() }
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
            let mut kept = self.kept.lock().await;
            if let Some((of, whole)) = &*kept
                && Arc::ptr_eq(of, &disk)
            {
                return Ok(whole.clone());
            }
            let whole = match self.volumes {
                VolumeFigures::Shown => self.engine.complete(&disk).await,
                VolumeFigures::Hidden => {
                    DiskUsage { volumes: Vec::new(), ..DiskUsage::clone(&disk) }
                }
            };
            let whole = Arc::new(whole);
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

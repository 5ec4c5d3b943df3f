//! The plugin of CSI drivers: what stands on the node for them, and taking it away.

use std::{collections::BTreeMap, sync::Arc};

use ferrolet_ports::{
    ClusterObjects, CsiDrivers, CsiError, CsiVolume, Fut, MountAsk, NodeMounts, NodePart,
    NodeVolume, OnNode, PodPlace, Record, RecordPlace, StorageObjects, Unstaged, VolumeFault,
    VolumeMode, VolumeMounter, VolumePlace, VolumePlugin, VolumeSource, VolumeSpec, VolumeStep,
};
use ferrolet_types::PodUid;

use super::{
    mounter::CsiMounter,
    rules::{DriverRules, hash, inline_handle, unique_name},
};

/// The directory of drivers' volumes.
pub(crate) const CSI: &str = "kubernetes.io~csi";

/// Volumes of CSI drivers.
pub(crate) struct CsiPlugin {
    pub(crate) drivers: Arc<dyn CsiDrivers>,
    pub(crate) storage: Arc<dyn StorageObjects>,
    pub(crate) objects: Option<Arc<dyn ClusterObjects>>,
    pub(crate) mounts: Arc<dyn NodeMounts>,
    pub(crate) node_name: String,
}

impl VolumePlugin for CsiPlugin {
    fn serves(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Csi(_))
    }

    fn owns_directory(&self, directory: &str) -> bool {
        directory == CSI
    }

    fn owns(&self, volume: &NodeVolume) -> bool {
        matches!(volume, NodeVolume::Csi { .. } | NodeVolume::CsiDevice { .. })
    }

    fn mounter<'a>(
        &'a self,
        ask: MountAsk<'a>,
    ) -> Fut<'a, Result<Box<dyn VolumeMounter + 'a>, VolumeFault>> {
        Box::pin(async move {
            let VolumeSource::Csi(volume) = &ask.spec.source else {
                return Err(VolumeFault::lasting("not a driver's volume".to_owned()));
            };
            let rules = self.rules_of(&volume.driver).await?;
            rules.check_mode(&volume.driver, mode_of(volume)).map_err(|why| {
                VolumeFault::later(format!(
                    "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: {why}"
                ))
            })?;
            let abilities = self.drivers.abilities(&volume.driver).await.map_err(|error| {
                let (attempt, step) = match ask.spec.mode {
                    VolumeMode::Block => (
                        "blockMapper.SetUpDevice failed to get CSI client",
                        VolumeStep::SetUpDevice,
                    ),
                    VolumeMode::Filesystem if volume.is_inline => {
                        ("mounter.SetUpAt failed to get CSI client", VolumeStep::SetUp)
                    }
                    VolumeMode::Filesystem => (
                        "attacher.MountDevice failed to create newCsiDriverClient",
                        VolumeStep::MountDevice,
                    ),
                };
                VolumeFault::later(format!("kubernetes.io/csi: {attempt}: {error}")).at(step)
            })?;
            let mounter = CsiMounter::new(self, ask, volume, rules, abilities);
            Ok(Box::new(mounter) as Box<dyn VolumeMounter + 'a>)
        })
    }

    fn node_part<'a>(&'a self, place: PodPlace<'a>) -> Fut<'a, Result<NodePart, VolumeFault>> {
        Box::pin(async move {
            let (record_place, step) = match place {
                PodPlace::Files(place) => (RecordPlace::Pod(place.clone()), VolumeStep::SetUp),
                PodPlace::Device(place) => {
                    (RecordPlace::Device { name: place.name.clone() }, VolumeStep::Unmap)
                }
            };
            let records = self.mounts.records().await;
            let records = records.map_err(|error| VolumeFault::from(error).at(step))?;
            let record = records.into_iter().find(|(it, _)| *it == record_place);
            let volume = record.and_then(|(_, record)| volume_of(&record_place, &record?));
            // Without a record nobody can be asked; what is not mounted can go.
            Ok(volume.map_or(NodePart::Nothing, NodePart::Volume))
        })
    }

    fn unpublish<'a>(
        &'a self,
        place: PodPlace<'a>,
        volume: Option<&'a NodeVolume>,
    ) -> Fut<'a, Result<(), VolumeFault>> {
        Box::pin(async move {
            match place {
                PodPlace::Files(place) => self.unpublish_files(place, volume).await,
                PodPlace::Device(place) => self.unpublish_device(place, volume).await,
            }
        })
    }

    fn unstage<'a>(&'a self, volume: &'a NodeVolume) -> Fut<'a, Result<Unstaged, VolumeFault>> {
        Box::pin(async move {
            match volume {
                NodeVolume::Csi { driver, handle } => self.unstage_files(driver, handle).await,
                NodeVolume::CsiDevice { driver, handle, name } => {
                    self.unstage_device(name, driver, handle).await
                }
                NodeVolume::Flex { .. } | NodeVolume::Disk(_) | NodeVolume::Local { .. } => {
                    Ok(Unstaged::Gone)
                }
            }
        })
    }

    fn on_node(&self) -> Fut<'_, Result<Vec<OnNode>, VolumeFault>> {
        Box::pin(async move {
            let records = self.mounts.records().await?;
            if let Some((place, _)) = records.iter().find(|(_, record)| record.is_none()) {
                return Err(VolumeFault::later(unreadable(place)));
            }
            let known = records.iter().filter_map(|(place, it)| Some((place, it.as_ref()?)));
            let found = known.filter_map(|(place, record)| {
                let is_inline =
                    record.get("volumeLifecycleMode").map(String::as_str) == Some("Ephemeral");
                let (driver, handle) = (driver_of(place, record)?, record.get("volumeHandle")?);
                let name = unique_name(driver, handle);
                Some(OnNode {
                    volume: volume_of(place, record)?,
                    unique_names: (!is_inline).then_some(name).into_iter().collect(),
                    // Whether a pod has it is asked when it is taken away.
                    is_left_over: !matches!(place, RecordPlace::Pod(_)),
                })
            });
            Ok(found.collect())
        })
    }
}

impl CsiPlugin {
    async fn rules_of(&self, driver: &str) -> Result<DriverRules, VolumeFault> {
        match self.storage.get_driver(driver).await {
            Ok(found) => Ok(DriverRules::of(Some(&found))),
            Err(error) if error.is_not_found() => Ok(DriverRules::of(None)),
            Err(error) => Err(VolumeFault::later(format!(
                "kubernetes.io/csi: CSIDriver {driver:?} cannot be read: {}",
                error.message
            ))),
        }
    }

    /// The other pods that have files of a volume, with what is known of it.
    pub(super) async fn other_pods(
        &self,
        uid: &PodUid,
    ) -> Result<Vec<(VolumePlace, Record)>, VolumeFault> {
        let records = self.mounts.records().await?;
        let others = records.into_iter().filter_map(|(place, record)| match place {
            RecordPlace::Pod(place) if place.uid != *uid => {
                Some((place, record.unwrap_or_default()))
            }
            _ => None,
        });
        Ok(others.collect())
    }

    pub(super) async fn secrets(
        &self,
        reference: &Option<(String, String)>,
        what: &str,
    ) -> Result<BTreeMap<String, String>, VolumeFault> {
        let Some((namespace, name)) = reference else {
            return Ok(BTreeMap::new());
        };
        let found = self.storage.get_volume_secret(namespace, name).await;
        let found = found.map_err(|error| {
            VolumeFault::later(format!(
                "fetching {what} {namespace}/{name} failed: {}",
                error.message
            ))
        })?;
        let data = found.data.into_iter().flatten();
        Ok(data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned())).collect())
    }

    pub(super) async fn save(
        &self,
        place: &RecordPlace,
        pairs: &[(&str, &str)],
    ) -> Result<(), VolumeFault> {
        let record = pairs.iter();
        let record = record.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Ok(self.mounts.save_record(place, &record.collect()).await?)
    }

    /// After a final refusal nothing is left to take away; after any other the record stays until
    /// the driver was asked to.
    pub(super) async fn give_up(&self, place: &RecordPlace, error: &CsiError) {
        if error.is_final()
            && let Err(error) = self.mounts.remove_record(place).await
        {
            tracing::warn!(?place, %error, "Record of a volume that was refused stays");
        }
    }

    async fn unpublish_files(
        &self,
        place: &VolumePlace,
        volume: Option<&NodeVolume>,
    ) -> Result<(), VolumeFault> {
        let record_place = RecordPlace::Pod(place.clone());
        if let Some(NodeVolume::Csi { driver, handle }) = volume {
            let path = self.mounts.driver_path(&record_place).display().to_string();
            let unpublished = self.drivers.unpublish(driver, handle, &path).await;
            unpublished.map_err(|error| {
                VolumeFault::later(format!(
                    "kubernetes.io/csi: Unmounter.TearDownAt failed: {error}"
                ))
            })?;
        }
        Ok(self.mounts.remove_record(&record_place).await?)
    }

    async fn unstage_files(&self, driver: &str, handle: &str) -> Result<Unstaged, VolumeFault> {
        let records = self.mounts.records().await?;
        for (place, record) in &records {
            let RecordPlace::Pod(_) = place else {
                continue;
            };
            let Some(record) = record else {
                let fault = VolumeFault::later(unreadable(place));
                return Err(fault.at(VolumeStep::UnmountDevice));
            };
            if record.get("driverName").map(String::as_str) == Some(driver)
                && record.get("volumeHandle").map(String::as_str) == Some(handle)
            {
                return Ok(Unstaged::Used);
            }
        }
        let place = node_place(driver, handle);
        if records.iter().any(|(it, _)| *it == place) {
            let path = self.mounts.driver_path(&place).display().to_string();
            let unstaged = self.drivers.unstage(driver, handle, &path).await;
            unstaged.map_err(|error| {
                VolumeFault::later(format!(
                    "kubernetes.io/csi: attacher.UnmountDevice failed: {error}"
                ))
                .at(VolumeStep::UnmountDevice)
            })?;
            let removed = self.mounts.remove_record(&place).await;
            removed.map_err(|error| VolumeFault::from(error).at(VolumeStep::UnmountDevice))?;
        }
        Ok(Unstaged::Gone)
    }
}

/// Why nobody can say that a volume is not in use.
fn unreadable(place: &RecordPlace) -> String {
    format!("the record of a mounted volume cannot be read: {place:?}")
}

/// The volume that a record is about.
fn volume_of(place: &RecordPlace, record: &Record) -> Option<NodeVolume> {
    let (driver, handle) = (driver_of(place, record)?.to_owned(), record.get("volumeHandle")?);
    let handle = handle.clone();
    Some(match place {
        RecordPlace::Pod(_) | RecordPlace::Node { .. } => NodeVolume::Csi { driver, handle },
        RecordPlace::Device { name } => {
            NodeVolume::CsiDevice { driver, handle, name: name.clone() }
        }
    })
}

fn driver_of<'a>(place: &'a RecordPlace, record: &'a Record) -> Option<&'a str> {
    match place {
        RecordPlace::Node { driver, .. } => Some(driver),
        RecordPlace::Pod(_) | RecordPlace::Device { .. } => {
            record.get("driverName").map(String::as_str)
        }
    }
}

/// The driver's name for a volume.
pub(crate) fn handle_of(volume: &CsiVolume, uid: &PodUid, spec: &VolumeSpec) -> String {
    if volume.is_inline {
        return inline_handle(uid.as_str(), &spec.name);
    }
    volume.handle.clone()
}

/// Where a volume is staged.
pub(crate) fn node_place(driver: &str, handle: &str) -> RecordPlace {
    RecordPlace::Node { driver: driver.to_owned(), hash: hash(handle) }
}

/// How long a volume lives, in the API's words.
pub(super) fn mode_of(volume: &CsiVolume) -> &'static str {
    if volume.is_inline { "Ephemeral" } else { "Persistent" }
}

//! Raw devices of drivers: the same calls as for files, with a device at the end instead of a
//! directory.
//!
//! ```text
//!  attached? ─► record ─► stage ─► link ─► publish ─► held, locked and handed to the pod
//!  let go ─► unpublish ─► link gone ─► no other link? ─► unstage ─► record gone
//! ```
//!
//! Who uses a device is told by the links in pods' directories; what it is, by the one record of
//! it.

use ferrolet_ports::{NodeVolume, RecordPlace, Unstaged, VolumeFault, VolumePlace, VolumeStep};

use super::{
    mounter::CsiMounter,
    plugin::{CSI, CsiPlugin},
};

impl CsiMounter<'_> {
    /// Makes the device ready for the node.
    pub(super) async fn stage_device(&self) -> Result<(), VolumeFault> {
        let name = self.ask.spec.name.as_str();
        let place = RecordPlace::Device { name: name.to_owned() };
        let secrets = self.plugin.secrets(&self.volume.stage_secret, "NodeStageSecretRef").await?;
        let attachment = self.attachment();
        let record = [
            ("specVolID", name),
            ("volumeHandle", &self.handle),
            ("driverName", &self.volume.driver),
            ("nodeName", &self.plugin.node_name),
            ("attachmentID", &attachment),
        ];
        self.plugin.save(&place, &record).await?;
        if self.abilities.stages {
            self.ask_to_stage(&place, secrets).await?;
        }
        Ok(())
    }

    /// Makes the device ready for the pod.
    pub(super) async fn publish_device(&self) -> Result<(), VolumeFault> {
        let (volume, place, mounts) = (self.volume, &self.place, &self.plugin.mounts);
        let secrets = self.plugin.secrets(&volume.publish_secret, "NodePublishSecretRef").await?;
        mounts.announce_device(place).await?;
        let ask = self.publish_ask(self.attributes(), secrets);
        if let Err(error) = self.plugin.drivers.publish(&volume.driver, &ask).await {
            if error.is_final()
                && let Err(error) = mounts.unmap_device(place).await
            {
                tracing::warn!(?place, %error, "Link to a device that was refused stays");
            }
            return Err(VolumeFault::refused(error.message));
        }
        Ok(())
    }
}

impl CsiPlugin {
    /// Takes a raw device away from a pod.
    pub(super) async fn unpublish_device(
        &self,
        place: &VolumePlace,
        volume: Option<&NodeVolume>,
    ) -> Result<(), VolumeFault> {
        let at = |fault: VolumeFault| fault.at(VolumeStep::Unmap);
        let let_go = self.mounts.let_go_device(place).await;
        let_go.map_err(|error| at(error.into()))?;
        if let Some(NodeVolume::CsiDevice { driver, handle, .. }) = volume {
            let path = self.mounts.driver_device(place).display().to_string();
            let unpublished = self.drivers.unpublish(driver, handle, &path).await;
            unpublished.map_err(|error| {
                at(VolumeFault::later(format!(
                    "kubernetes.io/csi: blockMapper.unpublishVolumeForBlock failed: {error}"
                )))
            })?;
        }
        let unmapped = self.mounts.unmap_device(place).await;
        unmapped.map_err(|error| at(error.into()))
    }

    /// Takes a raw device away from the node unless some pod has it.
    pub(super) async fn unstage_device(
        &self,
        name: &str,
        driver: &str,
        handle: &str,
    ) -> Result<Unstaged, VolumeFault> {
        let at = |fault: VolumeFault| fault.at(VolumeStep::UnmapDevice);
        let users = self.mounts.device_users(CSI, name).await;
        if !users.map_err(|error| at(error.into()))?.is_empty() {
            return Ok(Unstaged::Used);
        }
        let place = RecordPlace::Device { name: name.to_owned() };
        let records = self.mounts.records().await.map_err(|error| at(error.into()))?;
        if !records.iter().any(|(it, _)| *it == place) {
            return Ok(Unstaged::Gone);
        }
        let abilities = self.drivers.abilities(driver).await;
        let abilities = abilities.map_err(|error| {
            at(VolumeFault::later(format!(
                "kubernetes.io/csi: blockMapper.TearDownDevice failed to get CSI client: {error}"
            )))
        })?;
        if abilities.stages {
            let path = self.mounts.driver_path(&place).display().to_string();
            let unstaged = self.drivers.unstage(driver, handle, &path).await;
            unstaged.map_err(|error| {
                at(VolumeFault::later(format!(
                    "kubernetes.io/csi: blockMapper.unstageVolumeForBlock failed: {error}"
                )))
            })?;
        }
        let removed = self.mounts.remove_record(&place).await;
        removed.map_err(|error| at(error.into()))?;
        Ok(Unstaged::Gone)
    }
}

//! Raw devices of drivers: the same calls as for files, with a device at the end instead of a directory.
//!
//! ```text
//!  attached? ─► record ─► stage ─► link ─► publish ─► held, locked and handed to the pod
//!  let go ─► unpublish ─► link gone ─► no other link? ─► unstage ─► record gone
//! ```
//!
//! Who uses a device is told by the links in pods' directories; what it is, by the one record of it.

use std::collections::BTreeMap;

use ferrolet_ports::{CsiPublish, CsiStage, RecordPlace, VolumeMount, VolumePlace};

use super::{
    rules::{attachment_name, pod_attributes, unique_name},
    shell::{CSI, CsiShell, Job, lock, turn_name},
};
use crate::{
    fault::{Fault, Step},
    provide::place_of,
    run::mount_of,
};

impl CsiShell<'_> {
    /// Makes a driver's raw device ready for a pod. The caller holds the volume's turn.
    pub(super) async fn set_up_device(
        &self,
        job: &Job<'_>,
        context: BTreeMap<String, String>,
    ) -> Result<VolumeMount, Fault> {
        let (plan, provided) = (job.plan, job.provided);
        let place = place_of(plan, CSI, &provided.spec_name);
        let staging_path = self.stage_device(job, &context).await?;
        let path = self.mounts().driver_device(&place).display().to_string();
        let key = (plan.uid.clone(), provided.spec_name.clone());
        let is_published = lock(&self.kept.published).contains_key(&key);
        if !is_published {
            let published = self.publish_device(job, &place, context, &staging_path);
            published.await?;
            lock(&self.kept.published).insert(key, job.published());
        }
        self.grow(job, &path, &staging_path).await?;
        let link = self.mounts().map_device(&place, &path).await;
        let link = link.map_err(|error| Fault::from(error).at(Step::MapBlock))?;
        Ok(VolumeMount {
            device: Some(link.display().to_string()),
            group: provided.group,
            ..mount_of(String::new(), provided.is_read_only, false)
        })
    }

    /// Makes the device ready for the node, once; answers where it is staged, if it is.
    async fn stage_device(
        &self,
        job: &Job<'_>,
        context: &BTreeMap<String, String>,
    ) -> Result<String, Fault> {
        let at = |fault: Fault| fault.at(Step::SetUpDevice);
        let (driver, name) = (&job.volume.driver, &job.provided.spec_name);
        let place = RecordPlace::Device { name: name.clone() };
        let path = self.mounts().driver_path(&place).display().to_string();
        let staging_path = if job.abilities.stages { path.clone() } else { String::new() };
        let key = unique_name(driver, &job.handle);
        if lock(&self.kept.staged).contains(&key) {
            return Ok(staging_path);
        }
        let secrets = self.secrets(&job.volume.stage_secret, "NodeStageSecretRef");
        let secrets = secrets.await.map_err(at)?;
        let attachment = attachment_name(&job.handle, driver, self.node_name);
        let record = [
            ("specVolID", name.as_str()),
            ("volumeHandle", &job.handle),
            ("driverName", driver),
            ("nodeName", self.node_name),
            ("attachmentID", &attachment),
        ];
        self.save(&place, &record).await.map_err(at)?;
        if job.abilities.stages {
            let staged = self.ask_to_stage(job, &place, (path, context), secrets);
            staged.await.map_err(at)?;
        }
        lock(&self.kept.staged).insert(key);
        Ok(staging_path)
    }

    async fn publish_device(
        &self,
        job: &Job<'_>,
        place: &VolumePlace,
        publish_context: BTreeMap<String, String>,
        staging_path: &str,
    ) -> Result<(), Fault> {
        let at = |fault: Fault| fault.at(Step::Map);
        let volume = job.volume;
        let secrets = self.secrets(&volume.publish_secret, "NodePublishSecretRef");
        let secrets = secrets.await.map_err(at)?;
        let mut attributes = volume.attributes.clone();
        if job.rules.wants_pod {
            let account = &job.plan.service_account;
            attributes.extend(pod_attributes(job.plan, account, false));
        }
        let announced = self.mounts().announce_device(place).await;
        announced.map_err(|error| at(Fault::from(error)))?;
        let ask = CsiPublish {
            stage: CsiStage {
                volume: job.handle.clone(),
                path: self.mounts().driver_device(place).display().to_string(),
                capability: self.capability(job),
                publish_context,
                attributes,
                secrets,
            },
            staging_path: staging_path.to_owned(),
            is_read_only: job.provided.is_read_only,
        };
        if let Err(error) = self.drivers.publish(&volume.driver, &ask).await {
            if error.is_final()
                && let Err(error) = self.mounts().unmap_device(place).await
            {
                tracing::warn!(?place, %error, "Link to a device that was refused stays");
            }
            return Err(at(Fault::refused(error.message)));
        }
        Ok(())
    }

    /// Takes a driver's raw device away from a pod, and from the node when nobody else has it.
    pub(crate) async fn take_away_device(&self, place: &VolumePlace) -> Result<(), Fault> {
        let at = |fault: Fault| fault.at(Step::Unmap);
        let let_go = self.mounts().let_go_device(place).await;
        let_go.map_err(|error| at(Fault::from(error)))?;
        let node_place = RecordPlace::Device { name: place.name.clone() };
        let records = self.mounts().records().await.map_err(Fault::from);
        let records = records.map_err(at)?;
        let record = records.iter().find(|(it, _)| *it == node_place);
        let known = record
            .and_then(|(_, record)| Some((record.get("driverName")?, record.get("volumeHandle")?)));
        let Some((driver, handle)) = known else {
            // Without a record nobody can be asked; what is not mounted can go.
            let unmapped = self.mounts().unmap_device(place).await;
            return unmapped.map_err(|error| at(Fault::from(error)));
        };
        let turn = self.provider.shared.turn(&turn_name(driver, handle));
        let _turn = turn.lock().await;
        let path = self.mounts().driver_device(place).display().to_string();
        let unpublished = self.drivers.unpublish(driver, handle, &path).await;
        unpublished.map_err(|error| {
            at(Fault::later(format!(
                "kubernetes.io/csi: blockMapper.unpublishVolumeForBlock failed: {error}"
            )))
        })?;
        let unmapped = self.mounts().unmap_device(place).await;
        unmapped.map_err(|error| at(Fault::from(error)))?;
        let key = (place.uid.clone(), place.name.clone());
        lock(&self.kept.published).remove(&key);
        self.leave_node_device(&place.name, driver, handle).await
    }

    /// Takes a raw device away from the node unless some pod has it. The caller holds the volume's turn.
    pub(super) async fn leave_node_device(
        &self,
        name: &str,
        driver: &str,
        handle: &str,
    ) -> Result<(), Fault> {
        let at = |fault: Fault| fault.at(Step::UnmapDevice);
        let users = self.mounts().device_users(CSI, name).await;
        if !users.map_err(|error| at(Fault::from(error)))?.is_empty() {
            return Ok(());
        }
        let place = RecordPlace::Device { name: name.to_owned() };
        let abilities = self.drivers.abilities(driver).await;
        let abilities = abilities.map_err(|error| {
            at(Fault::later(format!(
                "kubernetes.io/csi: blockMapper.TearDownDevice failed to get CSI client: {error}"
            )))
        })?;
        if abilities.stages {
            let path = self.mounts().driver_path(&place).display().to_string();
            let unstaged = self.drivers.unstage(driver, handle, &path).await;
            unstaged.map_err(|error| {
                at(Fault::later(format!(
                    "kubernetes.io/csi: blockMapper.unstageVolumeForBlock failed: {error}"
                )))
            })?;
        }
        let removed = self.mounts().remove_record(&place).await;
        removed.map_err(|error| at(Fault::from(error)))?;
        let unique = unique_name(driver, handle);
        lock(&self.kept.staged).remove(&unique);
        self.kept.note_disuse(&unique);
        Ok(())
    }
}

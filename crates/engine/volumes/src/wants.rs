//! What a provided volume wants besides itself before it can be mounted: a label, names and passwords.

use ferrolet_ports::Disk;

use crate::{
    Attaching, VolumeEngine,
    attached::verify,
    fault::{Fault, Step},
    plan::{PlannedVolume, PodPlan},
    provided::{DiskVolume, Provided},
    selinux::{Labelled, mount_label},
};

impl VolumeEngine {
    /// Makes sure that the cluster knows a disk to be used and attached here, where that is a controller's business.
    pub(crate) async fn await_disk(
        &self,
        plan: &PodPlan,
        volume: &DiskVolume,
    ) -> Result<(), Fault> {
        let key = volume.disk.key();
        self.shared.note_disk(&plan.uid, key.clone());
        match (self.doors.attaching, &self.doors.storage) {
            (Attaching::ByController, Some(storage)) => {
                self.shared.note_name(key, volume.cluster_name.clone());
                let verified = verify(storage.as_ref(), &self.csi, &volume.cluster_name);
                verified.await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Finds out which disks an earlier life of ours left in use, before anybody may conclude that they are not.
    pub(crate) async fn recall_disks(&self) {
        if self.doors.attaching == Attaching::Ourselves {
            return;
        }
        let known = self.doors.mounts.known_disks().await;
        let known = known.unwrap_or_else(|error| {
            tracing::warn!(%error, "Disks of other machines cannot be listed");
            Vec::new()
        });
        for disk in known {
            for name in disk.cluster_names() {
                self.csi.note_use(&name);
                self.shared.note_name(disk.clone(), name);
            }
        }
    }

    /// The disk with the names and passwords that it wants.
    pub(crate) async fn with_secrets(
        &self,
        plan: &PodPlan,
        volume: &DiskVolume,
    ) -> Result<DiskVolume, Fault> {
        let mut whole = volume.clone();
        if let (Some((namespace, name)), Some(storage)) = (&volume.secret, &self.doors.storage) {
            let own: &str = &plan.key.namespace;
            let namespace = Some(namespace.as_str()).filter(|it| !it.is_empty());
            let namespace = namespace.unwrap_or(own);
            let found = storage.get_volume_secret(namespace, name).await;
            let found = found.map_err(|error| {
                let why = &error.message;
                Fault::later(format!("couldn't get secret {namespace}/{name} error: {why}"))
                    .at(Step::WaitForAttach)
            })?;
            let data = found.data.into_iter().flatten();
            let secrets = data
                .map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned()))
                .collect();
            if let Disk::Iscsi(disk) = &mut whole.disk {
                disk.secrets = secrets;
            }
        }
        Ok(whole)
    }

    /// The label to mount a volume with, where whoever mounts it can do that.
    pub(crate) fn selinux_label(
        &self,
        plan: &PodPlan,
        planned: &PlannedVolume,
        provided: &Provided,
    ) -> Result<Option<String>, Fault> {
        let Some(node) = &self.doors.selinux else {
            return Ok(None);
        };
        let modes = provided.access_modes.as_slice();
        let labelled = Labelled {
            asked: &planned.selinux,
            access_modes: provided.claim.is_some().then_some(modes),
            is_recursive: plan.relabels_files,
        };
        mount_label(node, &labelled).map_err(Fault::unprocessed)
    }
}

//! What a provided volume wants besides itself before it can be mounted: a label, names and passwords.

use ferrolet_ports::Disk;

use crate::{
    VolumeEngine,
    fault::{Fault, Step},
    plan::{PlannedVolume, PodPlan},
    provided::{DiskVolume, Provided},
    selinux::{Labelled, mount_label},
};

impl VolumeEngine {
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
                Fault::later(format!(
                    "couldn't get secret {namespace}/{name} error: {why}"
                ))
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

//! Taking a pod's volumes away: from the pod, by what stands in its directory alone; then from the
//! node, by what the table knows to have been begun for it.
//!
//! In: a pod. Out: nothing of it is left, or upstream's sentence about the first volume that stays.
//! One that cannot go does not keep the others. What the node cannot give back is left to
//! `left_over`, where the pod need not wait for that.

use ferrolet_ports::{
    HostError, NodePart, NodeVolume, PodPlace, Retry, Unstaged, VolumeError, VolumeFault,
    VolumePlace, VolumePlugin, VolumeStep,
};
use ferrolet_types::PodUid;
use futures::future::join_all;

use crate::{VolumeEngine, operations, plan::Plugin};

const FAILED_UNMOUNT: &str = "FailedUnMount";

impl VolumeEngine {
    /// Takes away what stands in the pod's directory.
    pub(crate) async fn release_pod(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let files = &self.doors.files;
        let stored = files.stored(uid).await.map_err(|it| refused(None, &it))?;
        // Side by side, because the kernel takes its time over each unmount; parts before the
        // volumes they are parts of.
        let parts = stored.sub_paths.iter().map(async |volume| {
            let removed = files.remove_sub_paths(uid, volume).await;
            removed.map_err(|error| refused(Some(volume), &error))
        });
        join_all(parts).await.into_iter().collect::<Result<(), _>>()?;
        for place in &stored.devices {
            let taken = match self.plugin_at(place) {
                Some(plugin) => self.unmount(plugin, PodPlace::Device(place)).await,
                None => self
                    .doors
                    .mounts
                    .unmap_device(place)
                    .await
                    .map_err(|error| VolumeFault::from(error).at(VolumeStep::Unmap)),
            };
            taken.map_err(|fault| told(&place.name, &fault))?;
        }
        let volumes = stored.volumes.iter().map(|place| self.release_volume(place));
        // One that cannot go does not keep the others; the first is reported.
        join_all(volumes).await.into_iter().collect()
    }

    async fn release_volume(&self, place: &VolumePlace) -> Result<(), VolumeError> {
        if Plugin::ALL.iter().any(|it| it.directory() == place.plugin) {
            let removed = self.doors.files.remove_volume(place);
            let removed = operations::unmount(&place.plugin, removed).await;
            return removed.map_err(|error| refused(Some(&place.name), &error));
        }
        let Some(plugin) = self.plugin_at(place) else {
            return Err(VolumeError {
                volume: Some(place.name.clone()),
                reason: FAILED_UNMOUNT,
                message: format!(
                    "UnmountVolume.TearDown failed for volume {:?} : volumes of plugin {} are not supported yet",
                    place.name,
                    place.plugin.replace('~', "/")
                ),
                retry: Retry::Later,
            });
        };
        let unmount = self.unmount(plugin, PodPlace::Files(place));
        operations::unmount(&place.plugin, unmount).await.map_err(|fault| {
            let fault = match fault.step {
                VolumeStep::SetUp => fault.at(VolumeStep::TearDown),
                _ => fault,
            };
            told(&place.name, &fault)
        })
    }

    fn plugin_at(&self, place: &VolumePlace) -> Option<&dyn VolumePlugin> {
        let mut plugins = self.plugins.iter();
        plugins.find(|it| it.owns_directory(&place.plugin)).map(AsRef::as_ref)
    }

    /// Takes a volume away from a pod, and from the node when nobody else has it.
    async fn unmount(
        &self,
        plugin: &dyn VolumePlugin,
        place: PodPlace<'_>,
    ) -> Result<(), VolumeFault> {
        let part = match self.table.node_volume(place.place()) {
            Some(volume) => NodePart::Volume(volume),
            None => plugin.node_part(place).await?,
        };
        let volume = match &part {
            NodePart::Volume(volume) => Some(volume),
            NodePart::Nothing | NodePart::Unknown => None,
        };
        let turn = volume.map(|it| self.table.turn(it));
        let turn = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        plugin.unpublish(place, volume).await?;
        self.table.unpublished(place.place());
        match &part {
            NodePart::Volume(volume) => self.unstage(plugin, volume, &place.place().uid).await?,
            NodePart::Nothing => {}
            NodePart::Unknown => {
                drop(turn);
                self.sweep_plugin(plugin, |_| true).await;
            }
        }
        Ok(())
    }

    /// Takes a volume away from the node unless another pod has it or wants it. The caller holds its
    /// turn.
    async fn unstage(
        &self,
        plugin: &dyn VolumePlugin,
        volume: &NodeVolume,
        uid: &PodUid,
    ) -> Result<(), VolumeFault> {
        if !self.table.is_wanted(volume, Some(uid))
            && plugin.unstage(volume).await? == Unstaged::Gone
        {
            self.table.left_node(volume, Some(uid));
        }
        Ok(())
    }

    /// Takes away from the node what the pod had or wanted there and nobody else has. What was
    /// begun and never came to the pod left nothing in its directory.
    pub(crate) async fn release_node(&self, uid: &PodUid) -> Result<(), VolumeError> {
        for volume in self.table.node_volumes_of(uid) {
            let Some(plugin) = self.plugins.iter().find(|it| it.owns(&volume)) else {
                continue;
            };
            let turn = self.table.turn(&volume);
            let _turn = turn.lock().await;
            match self.unstage(plugin.as_ref(), &volume, uid).await {
                Ok(()) => {}
                // A driver of its own cares for it, and may have gone: the pod does not wait.
                Err(fault) if is_drivers(&volume) => {
                    let why = fault.message;
                    tracing::warn!(?volume, why, "Volume that nobody uses stays");
                    self.left_over.send_replace(());
                }
                Err(fault) => {
                    return Err(VolumeError {
                        volume: None,
                        reason: fault.reason(),
                        message: fault.message,
                        retry: fault.retry,
                    });
                }
            }
        }
        Ok(())
    }
}

fn is_drivers(volume: &NodeVolume) -> bool {
    matches!(volume, NodeVolume::Csi { .. } | NodeVolume::CsiDevice { .. })
}

fn refused(volume: Option<&str>, error: &HostError) -> VolumeError {
    VolumeError {
        volume: volume.map(str::to_owned),
        reason: FAILED_UNMOUNT,
        message: match volume {
            Some(name) => format!("UnmountVolume.TearDown failed for volume {name:?} : {error}"),
            None => error.to_string(),
        },
        retry: error.retry,
    }
}

fn told(volume: &str, fault: &VolumeFault) -> VolumeError {
    VolumeError {
        volume: Some(volume.to_owned()),
        reason: fault.reason(),
        message: fault.sentence(volume),
        retry: fault.retry,
    }
}

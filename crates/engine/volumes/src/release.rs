//! Taking a pod's volumes away, from what stands in its directory alone.
//!
//! In: a pod. Out: nothing of it is left, or upstream's sentence about the first volume that stays. One that cannot go does
//! not keep the others. Refuses: remembering who had what; disk and mount table know.

use ferrolet_ports::{HostError, Retry, VolumeError};
use ferrolet_types::PodUid;
use futures::future::join_all;

use crate::{
    VolumeEngine,
    csi::CSI,
    fault::{Fault, Step},
    flex::is_driver,
    operations,
    plan::Plugin,
    provide::{FC, ISCSI, LOCAL, NFS},
};

const FAILED_UNMOUNT: &str = "FailedUnMount";

impl VolumeEngine {
    pub(crate) async fn release_stored(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let refused = |volume: Option<&str>, error: HostError| VolumeError {
            volume: volume.map(str::to_owned),
            reason: FAILED_UNMOUNT,
            message: match volume {
                Some(name) => {
                    format!("UnmountVolume.TearDown failed for volume {name:?} : {error}")
                }
                None => error.to_string(),
            },
            retry: error.retry,
        };
        let files = &self.doors.files;
        let stored = files.stored(uid).await.map_err(|it| refused(None, it))?;
        // Side by side, because the kernel takes its time over each unmount; parts before the volumes they are parts of.
        let parts = stored.sub_paths.iter().map(async |volume| {
            let removed = files.remove_sub_paths(uid, volume).await;
            removed.map_err(|error| refused(Some(volume), error))
        });
        join_all(parts).await.into_iter().collect::<Result<(), _>>()?;
        for place in &stored.devices {
            let taken = match (place.plugin.as_str(), self.csi_shell()) {
                (CSI, Some(shell)) => shell.take_away_device(place).await,
                _ => self.provider().take_away_device(place).await,
            };
            taken.map_err(|fault| told(&place.name, &fault))?;
        }
        let volumes = stored.volumes.iter().map(async |place| {
            if Plugin::ALL.iter().any(|it| it.directory() == place.plugin) {
                let removed = operations::unmount(&place.plugin, files.remove_volume(place)).await;
                return removed.map_err(|error| refused(Some(&place.name), error));
            }
            let taken = match (place.plugin.as_str(), self.csi_shell()) {
                (LOCAL | NFS | ISCSI | FC, _) => {
                    let provider = self.provider();
                    Some(operations::unmount(&place.plugin, provider.take_away(place)).await)
                }
                (CSI, Some(shell)) => {
                    Some(operations::unmount(&place.plugin, shell.take_away(place)).await)
                }
                (plugin, _) if is_driver(plugin) => {
                    let shell = self.flex_shell();
                    Some(operations::unmount(plugin, shell.take_away(place)).await)
                }
                _ => None,
            };
            if let Some(taken) = taken {
                return taken.map_err(|fault| {
                    let fault = match fault.step {
                        Step::SetUp => fault.at(Step::TearDown),
                        _ => fault,
                    };
                    told(&place.name, &fault)
                });
            }
            Err(VolumeError {
                volume: Some(place.name.clone()),
                reason: FAILED_UNMOUNT,
                message: format!(
                    "UnmountVolume.TearDown failed for volume {:?} : volumes of plugin {} are not supported yet",
                    place.name,
                    place.plugin.replace('~', "/")
                ),
                retry: Retry::Later,
            })
        });
        // One that cannot go does not keep the others; the first is reported.
        join_all(volumes).await.into_iter().collect()
    }

    /// Takes away from the node what the pod had or wanted there and nobody else has.
    pub(crate) async fn release_node(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let unnamed = |fault: Fault| VolumeError {
            volume: None,
            reason: fault.reason(),
            message: fault.message,
            retry: fault.retry,
        };
        self.provider().release_disks(uid).await.map_err(unnamed)?;
        self.flex_shell().release(uid).await.map_err(unnamed)
    }
}

fn told(volume: &str, fault: &Fault) -> VolumeError {
    VolumeError {
        volume: Some(volume.to_owned()),
        reason: fault.reason(),
        message: fault.sentence(volume),
        retry: fault.retry,
    }
}

//! The fake volumes: ready at once, unless a test breaks one by name.

use std::collections::BTreeMap;

use ferrolet_ports::{Fut, PodVolumes, Retry, SubPath, VolumeError, VolumeMount};
use ferrolet_types::pod::PodView as _;
use ferrolet_types::{Pod, PodUid};

use crate::faults::Fault;
use crate::files::pod_directory;
use crate::{Act, Call, World};

const FAILED_MOUNT: &str = "FailedMount";

/// Setting up and looking at volumes.
impl World {
    /// Volumes of that name cannot be made ready, for that reason; `None` mends them.
    pub fn break_volume(&self, volume: &str, message: Option<&str>) {
        let volume = volume.to_owned();
        self.change(|state| match message {
            Some(message) => {
                let fault = (FAILED_MOUNT, message.to_owned());
                state.bad_volumes.insert(volume, fault)
            }
            None => state.bad_volumes.remove(&volume),
        });
    }

    /// Volumes of that name find no room on this node, now and later.
    pub fn leave_no_room_for_volume(&self, volume: &str, message: &str) {
        let fault = (VolumeError::NODE_IS_FULL, message.to_owned());
        self.change(|state| state.bad_volumes.insert(volume.to_owned(), fault));
    }

    /// The names of a pod's volumes that are set up; `None` when none ever was.
    pub fn ready_volumes(&self, uid: &PodUid) -> Option<Vec<String>> {
        self.look(|state| state.volumes.get(uid).cloned())
    }
}

/// The port of volumes on a [`World`].
pub struct FakeVolumes {
    world: World,
}

impl FakeVolumes {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }
}

fn refusal(volume: Option<String>, message: String) -> VolumeError {
    VolumeError { volume, reason: FAILED_MOUNT, message, retry: Retry::Later }
}

fn refused(fault: Fault) -> VolumeError {
    refusal(None, fault.message)
}

impl PodVolumes for FakeVolumes {
    fn ensure<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> Fut<'a, Result<BTreeMap<String, VolumeMount>, VolumeError>> {
        Box::pin(async move {
            let uid = pod.uid();
            let guard = self.world.enter(Call::EnsureVolumes, Some(uid.clone()));
            let _guard = guard.await.map_err(refused)?;
            let volumes = pod.spec_ref().volumes.as_deref().unwrap_or_default();
            self.world.change(|state| {
                for volume in volumes {
                    if let Some((reason, message)) = state.bad_volumes.get(&volume.name) {
                        return Err(VolumeError {
                            reason,
                            ..refusal(Some(volume.name.clone()), message.clone())
                        });
                    }
                }
                // A pod without volumes has nothing mounted that could be in the way later.
                if !volumes.is_empty() {
                    let names = volumes.iter().map(|it| it.name.clone()).collect();
                    if state.volumes.insert(uid.clone(), names).is_none() {
                        state.write(Some(&uid), Act::VolumesReady);
                    }
                }
                let mounts = volumes.iter().map(|volume| {
                    let host_path = volume.host_path.as_ref().map_or_else(
                        || format!("{}/volumes/{}", pod_directory(&uid), volume.name),
                        |it| it.path.clone(),
                    );
                    let image = volume.image.as_ref().and_then(|it| it.reference.clone());
                    let mount = VolumeMount {
                        host_path,
                        is_read_only: false,
                        image,
                        selinux_relabel: false,
                        device: None,
                        group: None,
                    };
                    (volume.name.clone(), mount)
                });
                Ok(mounts.collect())
            })
        })
    }

    fn sub_path<'a>(&'a self, part: &'a SubPath) -> Fut<'a, Result<String, VolumeError>> {
        Box::pin(async move {
            let guard = self.world.enter(Call::SubPath, Some(part.uid.clone()));
            let _guard = guard.await.map_err(refused)?;
            let leaves_volume =
                part.path.starts_with('/') || part.path.split('/').any(|it| it == "..");
            if leaves_volume {
                let message = format!("subPath {:?} leaves the volume", part.path);
                return Err(refusal(Some(part.volume.clone()), message));
            }
            let directory = pod_directory(&part.uid);
            let (volume, container) = (&part.volume, &part.container);
            Ok(format!("{directory}/volume-subpaths/{volume}/{container}/{}", part.index))
        })
    }

    fn release<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), VolumeError>> {
        Box::pin(async move {
            let guard = self.world.enter(Call::ReleaseVolumes, Some(uid.clone()));
            let _guard = guard.await.map_err(refused)?;
            self.world.change(|state| {
                if state.volumes.remove(uid).is_some() {
                    state.write(Some(uid), Act::VolumesReleased);
                }
            });
            Ok(())
        })
    }
}

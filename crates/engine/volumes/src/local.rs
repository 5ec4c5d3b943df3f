//! `local` persistent volumes: a directory or a device of the node that an administrator set aside.
//!
//! A directory is shown at the pod's place; a device is mounted once for the node first, or handed
//! over as it is.

use std::sync::Arc;

use ferrolet_ports::{
    AttachedBy, DeviceMount, Fut, MountAccess, MountAsk, MountNeeds, NodeMounts, NodePart,
    NodeVolume, OnNode, Ownership, PathKind, PodPlace, Repeats, Unstaged, VolumeFault, VolumeFiles,
    VolumeMode, VolumeMount, VolumeMounter, VolumePlace, VolumePlugin, VolumeSource, VolumeStep,
};

use crate::paths::has_backstep;

/// The directory of local volumes.
pub(crate) const LOCAL: &str = "kubernetes.io~local-volume";
const LOCAL_PLUGIN: &str = "kubernetes.io/local-volume";
const LOCAL_MOUNTS: &str = "kubernetes.io/local-volume/mounts";

/// Local volumes.
pub(crate) struct LocalPlugin {
    pub(crate) files: Arc<dyn VolumeFiles>,
    pub(crate) mounts: Arc<dyn NodeMounts>,
}

struct LocalMounter<'a> {
    plugin: &'a LocalPlugin,
    ask: MountAsk<'a>,
    path: &'a str,
    file_system: &'a str,
    place: VolumePlace,
    /// The directory to show: the volume's own, or where its device is mounted.
    source: String,
    is_device: bool,
    link: Option<String>,
}

impl VolumePlugin for LocalPlugin {
    fn serves(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Local { .. })
    }

    fn owns_directory(&self, directory: &str) -> bool {
        directory == LOCAL
    }

    fn owns(&self, volume: &NodeVolume) -> bool {
        matches!(volume, NodeVolume::Local { .. })
    }

    fn mounter<'a>(
        &'a self,
        ask: MountAsk<'a>,
    ) -> Fut<'a, Result<Box<dyn VolumeMounter + 'a>, VolumeFault>> {
        Box::pin(async move {
            let VolumeSource::Local { path, file_system } = &ask.spec.source else {
                return Err(VolumeFault::lasting("not a local volume".to_owned()));
            };
            if has_backstep(path) {
                let why = format!("invalid path: {path} must not contain '..'");
                return Err(VolumeFault::lasting(why));
            }
            let mounter = LocalMounter {
                plugin: self,
                place: ask.place(LOCAL),
                source: path.clone(),
                is_device: false,
                link: None,
                path,
                file_system,
                ask,
            };
            Ok(Box::new(mounter) as Box<dyn VolumeMounter + 'a>)
        })
    }

    fn node_part<'a>(&'a self, place: PodPlace<'a>) -> Fut<'a, Result<NodePart, VolumeFault>> {
        let part = match place {
            PodPlace::Files(place) => {
                NodePart::Volume(NodeVolume::Local { name: place.name.clone() })
            }
            PodPlace::Device(_) => NodePart::Nothing,
        };
        Box::pin(async { Ok(part) })
    }

    fn unpublish<'a>(
        &'a self,
        place: PodPlace<'a>,
        _: Option<&'a NodeVolume>,
    ) -> Fut<'a, Result<(), VolumeFault>> {
        Box::pin(unpublish(self.mounts.as_ref(), place))
    }

    fn unstage<'a>(&'a self, volume: &'a NodeVolume) -> Fut<'a, Result<Unstaged, VolumeFault>> {
        Box::pin(async move {
            if let NodeVolume::Local { name } = volume {
                let unmounted = self.mounts.unmount_device(LOCAL_PLUGIN, name).await;
                unmounted
                    .map_err(|error| VolumeFault::from(error).at(VolumeStep::UnmountDevice))?;
            }
            Ok(Unstaged::Gone)
        })
    }

    fn on_node(&self) -> Fut<'_, Result<Vec<OnNode>, VolumeFault>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl VolumeMounter for LocalMounter<'_> {
    fn needs(&self) -> MountNeeds {
        let is_files = self.ask.spec.mode == VolumeMode::Filesystem;
        MountNeeds {
            node_volume: Some(NodeVolume::Local { name: self.ask.spec.name.clone() }),
            attached_by: AttachedBy::Plugin,
            stages: is_files,
            repeats: Repeats::EachTime,
            may_grow: false,
            ownership: if self.ask.spec.is_read_only {
                Ownership::NotOurs
            } else {
                Ownership::Required
            },
        }
    }

    fn attach(&mut self, _: String) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let path = self.path;
            let kind = self.plugin.files.path_kind(path).await?;
            let missing = || VolumeFault::later(format!("path {path:?} does not exist"));
            match (kind.ok_or_else(missing)?, self.ask.spec.mode) {
                (PathKind::BlockDevice, _) => self.is_device = true,
                (_, VolumeMode::Block) => {
                    let why = format!("{path} is not a block device");
                    return Err(VolumeFault::later(why).at(VolumeStep::Map));
                }
                (PathKind::Directory, VolumeMode::Filesystem) => {}
                (_, VolumeMode::Filesystem) => {
                    let why = "only directory and block device are supported".to_owned();
                    return Err(VolumeFault::later(why).at(VolumeStep::MountDevice));
                }
            }
            Ok(())
        })
    }

    fn stage(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            if !self.is_device {
                return Ok(());
            }
            let ask = DeviceMount {
                directory: LOCAL_MOUNTS.to_owned(),
                name: self.ask.spec.name.clone(),
                device: self.path.to_owned(),
                file_system: self.file_system.to_owned(),
                options: self.ask.spec.mount_options.clone(),
                access: MountAccess::of(self.ask.spec),
            };
            let mounted = self.plugin.mounts.mount_device(&ask).await;
            let mounted =
                mounted.map_err(|error| VolumeFault::from(error).at(VolumeStep::MountDevice))?;
            self.source = mounted.display().to_string();
            Ok(())
        })
    }

    fn publish(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let access = MountAccess::of(self.ask.spec);
            Ok(self.plugin.mounts.bind(&self.place, &self.source, access).await?)
        })
    }

    fn map(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let link = self.plugin.mounts.map_device(&self.place, self.path).await;
            let link = link.map_err(|error| VolumeFault::from(error).at(VolumeStep::Map))?;
            self.link = Some(link.display().to_string());
            Ok(())
        })
    }

    fn mount(&self) -> VolumeMount {
        let (spec, link) = (self.ask.spec, self.link.clone());
        let path = self.plugin.files.volume_path(&self.place).display().to_string();
        let is_raw = link.is_some();
        VolumeMount {
            device: link,
            group: spec.group,
            ..VolumeMount::at(if is_raw { String::new() } else { path }, spec.is_read_only, !is_raw)
        }
    }
}

/// Takes away what the node itself has mounted, or mapped, for a pod.
pub(crate) async fn unpublish(
    mounts: &dyn NodeMounts,
    place: PodPlace<'_>,
) -> Result<(), VolumeFault> {
    match place {
        PodPlace::Files(place) => Ok(mounts.unmount(place).await?),
        PodPlace::Device(place) => {
            let unmapped = mounts.unmap_device(place).await;
            unmapped.map_err(|error| VolumeFault::from(error).at(VolumeStep::Unmap))
        }
    }
}

//! Disks of other machines, by iSCSI and Fibre Channel: attached, mounted once for the node, and
//! shown to pods; or handed over as they are.

use ferrolet_ports::{
    AttachedBy, Detached, DeviceMount, Disk, DiskForm, DiskKind, DiskVolume, Fut, MountAccess,
    MountAsk, MountNeeds, NodePart, NodeVolume, OnNode, Ownership, PodPlace, Repeats, Unstaged,
    VolumeFault, VolumeMode, VolumeMount, VolumeMounter, VolumePlace, VolumePlugin, VolumeSource,
    VolumeStep,
};

use crate::RareDoors;

/// Disks of other machines.
pub(crate) struct DiskPlugin {
    pub(crate) doors: RareDoors,
}

struct DiskMounter<'a> {
    doors: &'a RareDoors,
    ask: MountAsk<'a>,
    volume: &'a DiskVolume,
    place: VolumePlace,
    device: String,
    /// Where the device is mounted for the node.
    source: String,
    link: Option<String>,
}

impl VolumePlugin for DiskPlugin {
    fn serves(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Disk(_))
    }

    fn owns_directory(&self, directory: &str) -> bool {
        DiskKind::ALL.iter().any(|it| directory_of(*it) == directory)
    }

    fn owns(&self, volume: &NodeVolume) -> bool {
        matches!(volume, NodeVolume::Disk(_))
    }

    fn mounter<'a>(
        &'a self,
        ask: MountAsk<'a>,
    ) -> Fut<'a, Result<Box<dyn VolumeMounter + 'a>, VolumeFault>> {
        Box::pin(async move {
            let VolumeSource::Disk(volume) = &ask.spec.source else {
                return Err(VolumeFault::lasting("not a disk".to_owned()));
            };
            let mounter = DiskMounter {
                doors: &self.doors,
                place: ask.place(&directory_of(volume.disk.key().kind)),
                device: String::new(),
                source: String::new(),
                link: None,
                volume,
                ask,
            };
            Ok(Box::new(mounter) as Box<dyn VolumeMounter + 'a>)
        })
    }

    fn node_part<'a>(&'a self, _: PodPlace<'a>) -> Fut<'a, Result<NodePart, VolumeFault>> {
        Box::pin(async { Ok(NodePart::Unknown) })
    }

    fn unpublish<'a>(
        &'a self,
        place: PodPlace<'a>,
        _: Option<&'a NodeVolume>,
    ) -> Fut<'a, Result<(), VolumeFault>> {
        Box::pin(async move {
            match place {
                PodPlace::Files(place) => Ok(self.doors.mounts.unmount(place).await?),
                PodPlace::Device(place) => {
                    let unmapped = self.doors.mounts.unmap_device(place).await;
                    unmapped.map_err(|error| VolumeFault::from(error).at(VolumeStep::Unmap))
                }
            }
        })
    }

    fn unstage<'a>(&'a self, volume: &'a NodeVolume) -> Fut<'a, Result<Unstaged, VolumeFault>> {
        Box::pin(async move {
            let NodeVolume::Disk(disk) = volume else {
                return Ok(Unstaged::Gone);
            };
            let detached = self.doors.mounts.detach_disk(disk).await;
            let detached =
                detached.map_err(|error| VolumeFault::from(error).at(VolumeStep::UnmountDevice))?;
            Ok(match detached {
                Detached::Gone => Unstaged::Gone,
                Detached::Used => Unstaged::Used,
            })
        })
    }

    fn on_node(&self) -> Fut<'_, Result<Vec<OnNode>, VolumeFault>> {
        Box::pin(async move {
            let known = self.doors.mounts.known_disks().await?;
            let unused = self.doors.mounts.unused_disks().await?;
            let is_by_controller = self.doors.is_by_controller();
            let found = known.into_iter().map(|disk| OnNode {
                unique_names: if is_by_controller { disk.cluster_names() } else { Vec::new() },
                is_left_over: unused.contains(&disk),
                volume: NodeVolume::Disk(disk),
            });
            Ok(found.collect())
        })
    }
}

impl DiskMounter<'_> {
    fn form(&self) -> (DiskForm, VolumeStep) {
        match self.ask.spec.mode {
            VolumeMode::Filesystem => (DiskForm::Files, VolumeStep::WaitForAttach),
            VolumeMode::Block => (DiskForm::Raw, VolumeStep::WaitForDevice),
        }
    }

    /// The disk with the names and passwords that it wants.
    async fn with_secrets(&self) -> Result<Disk, VolumeFault> {
        let mut whole = self.volume.disk.clone();
        let (Some((namespace, name)), Some(storage)) = (&self.volume.secret, &self.doors.storage)
        else {
            return Ok(whole);
        };
        let own: &str = &self.ask.key.namespace;
        let namespace = Some(namespace.as_str()).filter(|it| !it.is_empty()).unwrap_or(own);
        let found = storage.get_volume_secret(namespace, name).await.map_err(|error| {
            let why = &error.message;
            VolumeFault::later(format!("couldn't get secret {namespace}/{name} error: {why}"))
                .at(VolumeStep::WaitForAttach)
        })?;
        let data = found.data.into_iter().flatten();
        let secrets =
            data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned()));
        if let Disk::Iscsi(disk) = &mut whole {
            disk.secrets = secrets.collect();
        }
        Ok(whole)
    }
}

impl VolumeMounter for DiskMounter<'_> {
    fn needs(&self) -> MountNeeds {
        let spec = self.ask.spec;
        let unique_name = self.volume.unique_name.clone();
        MountNeeds {
            node_volume: Some(NodeVolume::Disk(self.volume.disk.key())),
            attached_by: if self.doors.is_by_controller() {
                AttachedBy::Controller { unique_name }
            } else {
                AttachedBy::Plugin
            },
            stages: spec.mode == VolumeMode::Filesystem,
            repeats: Repeats::EachTime,
            may_grow: false,
            ownership: if spec.is_read_only { Ownership::NotOurs } else { Ownership::Required },
        }
    }

    fn attach(&mut self, _: String) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let disk = self.with_secrets().await?;
            let (form, step) = self.form();
            let device = self.doors.mounts.attach_disk(&disk, form).await;
            self.device = device.map_err(|error| VolumeFault {
                wants_pause: true,
                ..VolumeFault::from(error).at(step)
            })?;
            Ok(())
        })
    }

    fn stage(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let ask = DeviceMount {
                directory: self.volume.disk.directory(DiskForm::Files),
                name: self.volume.disk.key().name,
                device: self.device.clone(),
                file_system: self.volume.file_system.clone(),
                options: self.ask.spec.mount_options.clone(),
                access: MountAccess::of(self.ask.spec),
            };
            let mounted = self.doors.mounts.mount_device(&ask).await;
            let mounted =
                mounted.map_err(|error| VolumeFault::from(error).at(VolumeStep::MountDevice))?;
            self.source = mounted.display().to_string();
            Ok(())
        })
    }

    fn publish(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let access = MountAccess::of(self.ask.spec);
            Ok(self.doors.mounts.bind(&self.place, &self.source, access).await?)
        })
    }

    fn map(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let mapped =
                self.doors.mounts.map_disk(&self.place, &self.volume.disk, &self.device).await;
            let link = mapped.map_err(|error| VolumeFault::from(error).at(VolumeStep::MapBlock))?;
            self.link = Some(link.display().to_string());
            Ok(())
        })
    }

    fn mount(&self) -> VolumeMount {
        let (spec, link) = (self.ask.spec, self.link.clone());
        let path = self.doors.files.volume_path(&self.place).display().to_string();
        let is_raw = link.is_some();
        VolumeMount {
            device: link,
            group: spec.group,
            ..VolumeMount::at(if is_raw { String::new() } else { path }, spec.is_read_only, !is_raw)
        }
    }
}

/// The directory of such disks in pods' directories.
fn directory_of(kind: DiskKind) -> String {
    kind.plugin().replace('/', "~")
}

//! One volume of a driver on its way to one pod: the commands behind each step.

use ferrolet_ports::{
    AttachedBy, DeviceMount, ExpandFault, FlexAbilities, FlexCommand, FlexError, FlexPlace,
    FlexVolume, Fut, GrownBytes, MountAccess, MountAsk, MountNeeds, NodeVolume, Ownership, Repeats,
    VolumeFault, VolumeMount, VolumeMounter, VolumePlace, VolumeStep,
};

use super::{
    FlexPlugin, node_place, refused,
    rules::{Extra, of_pod, of_secret, options, unique_name},
};

pub(super) struct FlexMounter<'a> {
    plugin: &'a FlexPlugin,
    ask: MountAsk<'a>,
    volume: &'a FlexVolume,
    abilities: FlexAbilities,
    place: VolumePlace,
    /// Where it is attached, if it is.
    device: String,
    /// It was mounted for the pod by an earlier life of ours.
    was_mounted: bool,
}

impl<'a> FlexMounter<'a> {
    pub(super) fn new(
        plugin: &'a FlexPlugin,
        ask: MountAsk<'a>,
        volume: &'a FlexVolume,
        abilities: FlexAbilities,
    ) -> Self {
        let place = ask.place(&volume.driver.replace('/', "~"));
        let device = ask.published.clone().unwrap_or_default();
        Self { plugin, ask, volume, abilities, place, device, was_mounted: false }
    }

    fn path(&self) -> String {
        self.plugin.doors.files.volume_path(&self.place).display().to_string()
    }

    /// What the driver is told of the volume, whoever the pod is.
    fn options(&self) -> String {
        options(self.volume, self.ask.spec, &Extra::new())
    }

    async fn mount_device(&self) -> Result<(), VolumeFault> {
        let (driver, name) = (self.volume.driver.as_str(), self.ask.spec.name.as_str());
        let stand = self.plugin.doors.flex.make_place(&node_place(driver, name)).await?;
        if stand.is_mounted {
            return Ok(());
        }
        let words = [stand.path.display().to_string(), self.device.clone(), self.options()];
        match self.plugin.call(driver, FlexCommand::MountDevice, words).await {
            Ok(_) => Ok(()),
            // A driver that attaches nothing has nothing to mount for the node either.
            Err(FlexError::NotSupported) if self.device.is_empty() => Ok(()),
            Err(FlexError::NotSupported) => {
                let ask = DeviceMount {
                    directory: format!("kubernetes.io/flexvolume/{driver}/mounts"),
                    name: name.to_owned(),
                    device: self.device.clone(),
                    file_system: self.volume.file_system.clone(),
                    options: Vec::new(),
                    access: MountAccess::of(self.ask.spec),
                };
                self.plugin.doors.mounts.mount_device(&ask).await?;
                Ok(())
            }
            Err(error) => Err(refused(&error)),
        }
    }

    async fn mount_for_pod(&self, path: String) -> Result<(), VolumeFault> {
        let (driver, spec) = (self.volume.driver.as_str(), self.ask.spec);
        let mut extra = of_pod(&self.ask);
        extra.extend(self.secret().await?);
        let words = [path, options(self.volume, spec, &extra)];
        match self.plugin.call(driver, FlexCommand::Mount, words).await {
            Ok(_) => Ok(()),
            Err(FlexError::NotSupported) => {
                let doors = &self.plugin.doors;
                let from = doors.flex.look_at(&node_place(driver, &spec.name)).await?;
                let from = from.ok_or_else(|| refused(&FlexError::NotSupported))?;
                let from = from.path.display().to_string();
                Ok(doors.mounts.bind(&self.place, &from, MountAccess::of(spec)).await?)
            }
            Err(error) => Err(refused(&error)),
        }
    }

    async fn secret(&self) -> Result<Extra, VolumeFault> {
        let Some((namespace, name)) = &self.volume.secret else {
            return Ok(Extra::new());
        };
        let own: &str = &self.ask.key.namespace;
        let namespace = Some(namespace.as_str()).filter(|it| !it.is_empty()).unwrap_or(own);
        let storage = self.plugin.doors.storage.as_ref();
        let storage =
            storage.ok_or_else(|| VolumeFault::later("cannot get kube client".to_owned()))?;
        let found = storage.get_volume_secret(namespace, name).await;
        let found = found.map_err(|error| error.message);
        found.and_then(|secret| of_secret(&secret, &self.volume.driver)).map_err(|why| {
            VolumeFault::later(format!("couldn't get secret {namespace}/{name} err: {why}"))
        })
    }
}

impl VolumeMounter for FlexMounter<'_> {
    fn needs(&self) -> MountNeeds {
        let (driver, spec) = (self.volume.driver.clone(), self.ask.spec);
        let name = spec.name.clone();
        let attaches = self.abilities.attaches;
        let gives = self.abilities.takes_group && !spec.is_read_only && !self.was_mounted;
        MountNeeds {
            attached_by: if attaches && self.plugin.doors.is_by_controller() {
                AttachedBy::Controller { unique_name: unique_name(&driver, &name) }
            } else {
                AttachedBy::Plugin
            },
            // What is never mounted for the node is not shared, and a driver that hangs must not
            // hold up other pods.
            node_volume: attaches.then_some(NodeVolume::Flex { driver, name }),
            stages: attaches,
            repeats: Repeats::OnceAttached,
            may_grow: self.abilities.grows_files && spec.claim.is_some(),
            // Upstream lets a pod start whose volume cannot be given away.
            ownership: if gives { Ownership::BestEffort } else { Ownership::NotOurs },
        }
    }

    fn attach(&mut self, device: String) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            if !self.abilities.attaches {
                return Ok(());
            }
            let driver = self.volume.driver.as_str();
            let device = if self.plugin.doors.is_by_controller() {
                device
            } else {
                let words = [self.options(), self.plugin.doors.settings.node_name.clone()];
                match self.plugin.call(driver, FlexCommand::Attach, words).await {
                    Ok(answer) => answer.device,
                    Err(FlexError::NotSupported) => String::new(),
                    Err(error) => return Err(refused(&error).at(VolumeStep::Attach)),
                }
            };
            let words = [device.clone(), self.options()];
            self.device = match self.plugin.call(driver, FlexCommand::WaitForAttach, words).await {
                Ok(answer) => answer.device,
                Err(FlexError::NotSupported) => device,
                Err(error) => return Err(refused(&error).at(VolumeStep::WaitForAttach)),
            };
            Ok(())
        })
    }

    fn stage(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            self.mount_device().await.map_err(|fault| fault.at(VolumeStep::MountDevice))
        })
    }

    fn publish(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let own = FlexPlace::Pod(self.place.clone());
            let stand = self.plugin.doors.flex.make_place(&own).await?;
            if stand.is_mounted {
                self.was_mounted = true;
                return Ok(());
            }
            let mounted = self.mount_for_pod(stand.path.display().to_string()).await;
            if mounted.is_err() {
                // The first failure is the one to report. What the driver left in its place stays,
                // and is told of at the end.
                self.plugin.doors.flex.clear_place(&own).await.ok();
            }
            mounted
        })
    }

    /// The driver is told, or the file system's own program.
    fn expand(&mut self, bytes: GrownBytes) -> Fut<'_, Result<(), ExpandFault>> {
        Box::pin(async move {
            let path = self.path();
            let words = [
                self.options(),
                self.device.clone(),
                path.clone(),
                bytes.now.to_string(),
                bytes.before.to_string(),
            ];
            let called = self.plugin.call(&self.volume.driver, FlexCommand::ExpandFs, words).await;
            let grown = match called {
                Ok(_) => Ok(()),
                Err(FlexError::NotSupported) => {
                    let grown = self.plugin.doors.mounts.grow_files(&self.device, &path).await;
                    grown.map_err(VolumeFault::from)
                }
                Err(error) => Err(refused(&error)),
            };
            grown.map_err(|fault| {
                let fault = fault.at(VolumeStep::Expand);
                ExpandFault::Failed(VolumeFault { wants_pause: true, ..fault })
            })
        })
    }

    fn device(&self) -> &str {
        &self.device
    }

    fn mount(&self) -> VolumeMount {
        let spec = self.ask.spec;
        let relabels = self.abilities.relabels && !spec.is_read_only;
        VolumeMount {
            group: spec.group,
            ..VolumeMount::at(self.path(), spec.is_read_only, relabels)
        }
    }
}

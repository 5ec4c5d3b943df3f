//! Volumes of flexVolume drivers: programs that are started for each call.
//!
//! ```text
//!  attaches?  no ───────────────────────────────────────────────► mount ─► the pod's
//!             yes ─► attached ─► waitforattach ─► mountdevice ─┘
//!  unmount ─► nobody else has it ─► unmountdevice ─► detach
//! ```
//!
//! [`rules`] says what a driver is told, [`mounter`] tells it on the way to a pod, and the plugin on
//! the way back. Who uses a volume is read from directories, so a restart forgets nothing. Refuses:
//! raw devices and mount options, which the protocol has no words for.

mod mounter;
mod rules;

use ferrolet_ports::{
    FlexAnswer, FlexCall, FlexCommand, FlexError, FlexPlace, Fut, MountAsk, NodePart, NodeVolume,
    OnNode, PodPlace, Unstaged, VolumeFault, VolumeMode, VolumeMounter, VolumePlace, VolumePlugin,
    VolumeSource, VolumeStep,
};

use self::{
    mounter::FlexMounter,
    rules::{Extra, options, unique_name},
};
use crate::RareDoors;

/// Volumes of flexVolume drivers.
pub(crate) struct FlexPlugin {
    pub(crate) doors: RareDoors,
}

impl VolumePlugin for FlexPlugin {
    fn serves(&self, source: &VolumeSource) -> bool {
        matches!(source, VolumeSource::Flex(_))
    }

    /// Everything else has our own vendor's name.
    fn owns_directory(&self, directory: &str) -> bool {
        !directory.starts_with("kubernetes.io~")
    }

    fn owns(&self, volume: &NodeVolume) -> bool {
        matches!(volume, NodeVolume::Flex { .. })
    }

    fn mounter<'a>(
        &'a self,
        ask: MountAsk<'a>,
    ) -> Fut<'a, Result<Box<dyn VolumeMounter + 'a>, VolumeFault>> {
        Box::pin(async move {
            let mounter = self.look_at(ask).await?;
            Ok(Box::new(mounter) as Box<dyn VolumeMounter + 'a>)
        })
    }

    fn node_part<'a>(&'a self, place: PodPlace<'a>) -> Fut<'a, Result<NodePart, VolumeFault>> {
        Box::pin(async move {
            let (PodPlace::Files(place) | PodPlace::Device(place)) = place;
            let (driver, name) = (driver_of(place), place.name.clone());
            let abilities = self.doors.flex.abilities(&driver).await;
            // One that does not answer may have attached it.
            let is_attached = abilities.map_or(true, |it| it.attaches);
            Ok(if is_attached {
                NodePart::Volume(NodeVolume::Flex { driver, name })
            } else {
                NodePart::Nothing
            })
        })
    }

    fn unpublish<'a>(
        &'a self,
        place: PodPlace<'a>,
        _: Option<&'a NodeVolume>,
    ) -> Fut<'a, Result<(), VolumeFault>> {
        Box::pin(self.unmount(place.place()))
    }

    fn unstage<'a>(&'a self, volume: &'a NodeVolume) -> Fut<'a, Result<Unstaged, VolumeFault>> {
        Box::pin(async move {
            let NodeVolume::Flex { driver, name } = volume else {
                return Ok(Unstaged::Gone);
            };
            let left = self.leave_node(driver, name).await;
            left.map_err(|fault| fault.at(VolumeStep::UnmountDevice))
        })
    }

    fn on_node(&self) -> Fut<'_, Result<Vec<OnNode>, VolumeFault>> {
        Box::pin(async move {
            let stored = self.doors.flex.stored().await?;
            let is_by_controller = self.doors.is_by_controller();
            let found = stored.into_iter().map(|(driver, name)| OnNode {
                unique_names: if is_by_controller {
                    vec![unique_name(&driver, &name)]
                } else {
                    Vec::new()
                },
                // Whether a pod has it is asked when it is taken away.
                is_left_over: true,
                volume: NodeVolume::Flex { driver, name },
            });
            Ok(found.collect())
        })
    }
}

impl FlexPlugin {
    /// Asks the driver what it can do, and what it calls the volume.
    async fn look_at<'a>(&'a self, ask: MountAsk<'a>) -> Result<FlexMounter<'a>, VolumeFault> {
        let VolumeSource::Flex(volume) = &ask.spec.source else {
            return Err(VolumeFault::lasting("not a flexVolume".to_owned()));
        };
        let (driver, name) = (volume.driver.as_str(), ask.spec.name.as_str());
        let abilities = self.doors.flex.abilities(driver).await.map_err(|error| {
            let why =
                format!("failed to get Plugin from volumeSpec for volume {name:?} err={error}");
            VolumeFault {
                // One that is there and fails had better be left alone for a while.
                wants_pause: error != FlexError::Missing,
                ..VolumeFault::unprocessed(why)
            }
        })?;
        if ask.spec.mode == VolumeMode::Block {
            let why = "volumes of this kind are not handed over as raw devices".to_owned();
            return Err(VolumeFault::lasting(why).at(VolumeStep::Map));
        }
        if !ask.spec.mount_options.is_empty() {
            let why = "mount options are not supported for this volume type".to_owned();
            return Err(VolumeFault::later(why).at(VolumeStep::MountOptions));
        }
        if abilities.attaches && ask.published.is_none() {
            let told = options(volume, ask.spec, &Extra::new());
            let named = self.call(driver, FlexCommand::GetVolumeName, [told]).await;
            // The name that it answers has never been used by anybody.
            if let Err(FlexError::Failed(why)) = named {
                return Err(VolumeFault {
                    wants_pause: true,
                    ..VolumeFault::unprocessed(format!(
                        "failed to GetUniqueVolumeNameFromSpec for volumeSpec {name:?} using volume plugin {driver:?} err=failed to GetVolumeName from volumePlugin for volumeSpec {name:?} err={why}"
                    ))
                });
            }
        }
        Ok(FlexMounter::new(self, ask, volume, abilities))
    }

    async fn unmount(&self, place: &VolumePlace) -> Result<(), VolumeFault> {
        let driver = driver_of(place);
        let own = FlexPlace::Pod(place.clone());
        let abilities = self.doors.flex.abilities(&driver).await;
        let stand = self.doors.flex.look_at(&own).await?;
        match (&abilities, stand) {
            (Ok(_), Some(stand)) => {
                let words = [stand.path.display().to_string()];
                match self.call(&driver, FlexCommand::Unmount, words).await {
                    Ok(_) | Err(FlexError::NotSupported) => {}
                    Err(error) => return Err(refused(&error)),
                }
            }
            // It may know of more to take away than the mount that we see.
            (Err(error), Some(stand)) if stand.is_mounted => {
                let why = match error {
                    FlexError::Broken(why) => format!(": {why}"),
                    _ => String::new(),
                };
                let why = format!("no volume plugin matched name: {driver}{why}");
                return Err(VolumeFault::later(why));
            }
            // Nothing was mounted, so nobody has to be asked.
            _ => {}
        }
        Ok(self.doors.flex.clear_place(&own).await?)
    }

    /// Takes a volume away from the node unless some pod has it.
    async fn leave_node(&self, driver: &str, name: &str) -> Result<Unstaged, VolumeFault> {
        let flex = &self.doors.flex;
        if !flex.users(driver, name).await?.is_empty() {
            return Ok(Unstaged::Used);
        }
        let place = node_place(driver, name);
        let stand = flex.look_at(&place).await?;
        let abilities = flex.abilities(driver).await;
        if let Some(stand) = &stand {
            if stand.is_mounted {
                let words = [stand.path.display().to_string()];
                match self.call(driver, FlexCommand::UnmountDevice, words).await {
                    Ok(_) | Err(FlexError::NotSupported) => {}
                    Err(error) => return Err(refused(&error)),
                }
            }
            flex.clear_place(&place).await?;
        }
        let is_attached = abilities.is_ok_and(|it| it.attaches);
        if is_attached && !self.doors.is_by_controller() {
            let words = [name.to_owned(), self.doors.settings.node_name.clone()];
            match self.call(driver, FlexCommand::Detach, words).await {
                Ok(_) | Err(FlexError::NotSupported) => {}
                Err(error) => return Err(refused(&error)),
            }
        }
        Ok(Unstaged::Gone)
    }

    async fn call(
        &self,
        driver: &str,
        command: FlexCommand,
        words: impl IntoIterator<Item = String>,
    ) -> Result<FlexAnswer, FlexError> {
        let call = FlexCall { command, words: words.into_iter().collect() };
        self.doors.flex.call(driver, &call).await
    }
}

fn driver_of(place: &VolumePlace) -> String {
    place.plugin.replace('~', "/")
}

fn node_place(driver: &str, volume: &str) -> FlexPlace {
    FlexPlace::Node { driver: driver.to_owned(), volume: volume.to_owned() }
}

fn refused(error: &FlexError) -> VolumeFault {
    VolumeFault::refused(error.to_string())
}

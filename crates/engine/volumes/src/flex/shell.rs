//! The calls to a driver in their order, each volume one at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use ferrolet_ports::{
    Clock, DeviceMount, FlexAbilities, FlexAnswer, FlexCall, FlexCommand, FlexDrivers, FlexError,
    FlexPlace, StorageObjects, VolumeMount, VolumePlace,
};
use ferrolet_types::PodUid;

use super::rules::{Extra, of_pod, of_secret, options, unique_name};
use crate::{
    attached::verify,
    csi,
    fault::{Fault, Step},
    kept::Turn,
    plan::PodPlan,
    provide::{Provider, access_of, place_of},
    provided::{FlexVolume, Form, Provided},
    run::mount_of,
};

/// Who attaches volumes to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attaching {
    /// A controller of the cluster, which says so in the node's status.
    ByController,
    /// We do.
    Ourselves,
}

/// What is remembered between calls. Forgetting it costs a few calls that change nothing.
#[derive(Default)]
pub(crate) struct Kept {
    /// Volumes that drivers have mounted for pods: a driver need not leave a mount to be seen.
    mounted: Mutex<BTreeMap<VolumePlace, Mounted>>,
    /// Volumes that pods have or want attached, by pod: driver and name.
    begun: Mutex<BTreeMap<PodUid, BTreeSet<(String, String)>>>,
}

/// A volume that is mounted for a pod.
#[derive(Clone, Debug)]
struct Mounted {
    /// Where it is attached, if it is.
    device: String,
    /// Its claim may be told to grow while the pod runs; nobody announces that.
    may_grow: bool,
}

impl Kept {
    /// True when some volume of the pod has to be looked at from time to time.
    pub(crate) fn is_looked_after(&self, uid: &PodUid) -> bool {
        let mounted = lock(&self.mounted);
        let mut own = mounted.iter().filter(|(place, _)| place.uid == *uid);
        own.any(|(_, it)| it.may_grow)
    }

    fn is_wanted(&self, driver: &str, volume: &str) -> bool {
        let begun = lock(&self.begun);
        let mut all = begun.values().flatten();
        all.any(|(it, name)| it == driver && name == volume)
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True for the directory of a driver among those of volumes: everything else has our own vendor's name.
pub(crate) fn is_driver(plugin: &str) -> bool {
    !plugin.starts_with("kubernetes.io~")
}

/// What the calls need.
pub(crate) struct FlexShell<'a> {
    pub(crate) drivers: &'a dyn FlexDrivers,
    pub(crate) storage: Option<&'a dyn StorageObjects>,
    pub(crate) provider: Provider<'a>,
    pub(crate) kept: &'a Kept,
    /// What the node says that it uses.
    pub(crate) in_use: &'a csi::Kept,
    pub(crate) node_name: &'a str,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) attaching: Attaching,
}

impl FlexShell<'_> {
    /// Makes a driver's volume ready for a pod.
    pub(crate) async fn set_up(
        &self,
        plan: &PodPlan,
        provided: &Provided,
        volume: &FlexVolume,
    ) -> Result<VolumeMount, Fault> {
        let (driver, name) = (volume.driver.as_str(), provided.spec_name.as_str());
        let abilities = self.drivers.abilities(driver).await.map_err(|error| {
            let why =
                format!("failed to get Plugin from volumeSpec for volume {name:?} err={error}");
            Fault {
                // One that is there and fails had better be left alone for a while.
                wants_pause: error != FlexError::Missing,
                ..Fault::unprocessed(why)
            }
        })?;
        if provided.form == Form::Device {
            let why = "volumes of this kind are not handed over as raw devices".to_owned();
            return Err(Fault::lasting(why).at(Step::Map));
        }
        if !provided.options.is_empty() {
            let why = "mount options are not supported for this volume type".to_owned();
            return Err(Fault::later(why).at(Step::MountOptions));
        }
        let place = place_of(plan, &driver.replace('/', "~"), name);
        // What is never mounted for the node is not shared, and a driver that hangs must not hold up other pods.
        let turn = abilities.attaches.then(|| self.turn(driver, name));
        let _turn = held(&turn).await;
        let path = self.provider.files.volume_path(&place);
        let before = lock(&self.kept.mounted).get(&place).cloned();
        let mounted = match before {
            Some(before) => before,
            None => {
                let device = if abilities.attaches {
                    self.bring(plan, provided, volume).await?
                } else {
                    String::new()
                };
                self.mount(plan, provided, volume, &place, abilities).await?;
                let mounted =
                    Mounted { device, may_grow: abilities.grows_files && provided.claim.is_some() };
                lock(&self.kept.mounted).insert(place, mounted.clone());
                mounted
            }
        };
        if mounted.may_grow {
            self.grow(plan, provided, volume, (&mounted.device, &path)).await?;
        }
        let is_read_only = provided.is_read_only;
        Ok(VolumeMount {
            group: provided.group,
            ..mount_of(
                path.display().to_string(),
                is_read_only,
                abilities.relabels && !is_read_only,
            )
        })
    }

    /// Has the volume attached and mounted for the node; answers with its device.
    async fn bring(
        &self,
        plan: &PodPlan,
        provided: &Provided,
        volume: &FlexVolume,
    ) -> Result<String, Fault> {
        let (driver, name) = (volume.driver.as_str(), provided.spec_name.as_str());
        let told = options(volume, provided, &Extra::new());
        let named = self.call(driver, FlexCommand::GetVolumeName, [told.clone()]);
        // The name that it answers has never been used by anybody.
        if let Err(FlexError::Failed(why)) = named.await {
            return Err(Fault {
                wants_pause: true,
                ..Fault::unprocessed(format!(
                    "failed to GetUniqueVolumeNameFromSpec for volumeSpec {name:?} using volume plugin {driver:?} err=failed to GetVolumeName from volumePlugin for volumeSpec {name:?} err={why}"
                ))
            });
        }
        lock(&self.kept.begun)
            .entry(plan.uid.clone())
            .or_default()
            .insert((driver.to_owned(), name.to_owned()));
        let device = self.attached(driver, name, &told).await?;
        let words = [device.clone(), told.clone()];
        let device = match self.call(driver, FlexCommand::WaitForAttach, words).await {
            Ok(answer) => answer.device,
            Err(FlexError::NotSupported) => device,
            Err(error) => return Err(refused(&error).at(Step::WaitForAttach)),
        };
        let at = |fault: Fault| fault.at(Step::MountDevice);
        let place = node_place(driver, name);
        let stand = self.drivers.make_place(&place).await;
        let stand = stand.map_err(|error| at(Fault::from(error)))?;
        if stand.is_mounted {
            return Ok(device);
        }
        let words = [stand.path.display().to_string(), device.clone(), told];
        match self.call(driver, FlexCommand::MountDevice, words).await {
            Ok(_) => {}
            // A driver that attaches nothing has nothing to mount for the node either.
            Err(FlexError::NotSupported) if device.is_empty() => {}
            Err(FlexError::NotSupported) => {
                let ask = DeviceMount {
                    directory: format!("kubernetes.io/flexvolume/{driver}/mounts"),
                    name: name.to_owned(),
                    device: device.clone(),
                    file_system: volume.file_system.clone(),
                    options: Vec::new(),
                    access: access_of(provided),
                };
                let mounted = self.provider.mounts.mount_device(&ask).await;
                mounted.map_err(|error| at(Fault::from(error)))?;
            }
            Err(error) => return Err(at(refused(&error))),
        }
        Ok(device)
    }

    /// The device of a volume that is attached to this node.
    async fn attached(&self, driver: &str, name: &str, told: &str) -> Result<String, Fault> {
        let (Attaching::ByController, Some(storage)) = (self.attaching, self.storage) else {
            let words = [told.to_owned(), self.node_name.to_owned()];
            return match self.call(driver, FlexCommand::Attach, words).await {
                Ok(answer) => Ok(answer.device),
                Err(FlexError::NotSupported) => Ok(String::new()),
                Err(error) => Err(refused(&error).at(Step::Attach)),
            };
        };
        verify(storage, self.in_use, &unique_name(driver, name)).await
    }

    async fn mount(
        &self,
        plan: &PodPlan,
        provided: &Provided,
        volume: &FlexVolume,
        place: &VolumePlace,
        abilities: FlexAbilities,
    ) -> Result<(), Fault> {
        let driver = volume.driver.as_str();
        let own = FlexPlace::Pod(place.clone());
        let stand = self.drivers.make_place(&own).await?;
        if stand.is_mounted {
            // By an earlier life of ours.
            return Ok(());
        }
        let path = stand.path.display().to_string();
        let mounted = async {
            let mut extra = of_pod(plan);
            extra.extend(self.secret(plan, volume).await?);
            let words = [path.clone(), options(volume, provided, &extra)];
            match self.call(driver, FlexCommand::Mount, words).await {
                Ok(_) => Ok(()),
                Err(FlexError::NotSupported) => {
                    let from = node_place(driver, &provided.spec_name);
                    let from = self.drivers.look_at(&from).await?;
                    let from = from.ok_or_else(|| refused(&FlexError::NotSupported))?;
                    let from = from.path.display().to_string();
                    let mounts = self.provider.mounts;
                    Ok(mounts.bind(place, &from, access_of(provided)).await?)
                }
                Err(error) => Err(refused(&error)),
            }
        };
        if let Err(fault) = mounted.await {
            // The first failure is the one to report. What the driver left in its place stays, and is told of at the end.
            self.drivers.clear_place(&own).await.ok();
            return Err(fault);
        }
        if !provided.is_read_only && abilities.takes_group {
            // Upstream lets a pod start whose volume cannot be given away.
            if let Err(fault) = self.provider.give_to_group(plan, &path).await {
                let why = fault.message;
                tracing::warn!(driver, path, why, "Volume cannot be given to its pod's group");
            }
        }
        Ok(())
    }

    async fn secret(&self, plan: &PodPlan, volume: &FlexVolume) -> Result<Extra, Fault> {
        let Some((namespace, name)) = &volume.secret else {
            return Ok(Extra::new());
        };
        let own: &str = &plan.key.namespace;
        let namespace = Some(namespace.as_str()).filter(|it| !it.is_empty());
        let namespace = namespace.unwrap_or(own);
        let storage =
            self.storage.ok_or_else(|| Fault::later("cannot get kube client".to_owned()))?;
        let found = storage.get_volume_secret(namespace, name).await;
        let found = found.map_err(|error| error.message);
        found.and_then(|secret| of_secret(&secret, &volume.driver)).map_err(|why| {
            Fault::later(format!("couldn't get secret {namespace}/{name} err: {why}"))
        })
    }

    /// Takes a driver's volume away from a pod, and from the node when nobody else has it.
    pub(crate) async fn take_away(&self, place: &VolumePlace) -> Result<(), Fault> {
        let driver = place.plugin.replace('~', "/");
        let own = FlexPlace::Pod(place.clone());
        let abilities = self.drivers.abilities(&driver).await;
        let is_shared = abilities.as_ref().is_ok_and(|it| it.attaches);
        let turn = is_shared.then(|| self.turn(&driver, &place.name));
        let _turn = held(&turn).await;
        let stand = self.drivers.look_at(&own).await?;
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
                return Err(Fault::later(why));
            }
            // Nothing was mounted, so nobody has to be asked.
            _ => {}
        }
        self.drivers.clear_place(&own).await?;
        lock(&self.kept.mounted).remove(place);
        if let Some(begun) = lock(&self.kept.begun).get_mut(&place.uid) {
            begun.remove(&(driver.clone(), place.name.clone()));
        }
        self.leave_node(&driver, &place.name).await
    }

    /// Takes volumes away from the node that a pod wanted and was never given.
    pub(crate) async fn release(&self, uid: &PodUid) -> Result<(), Fault> {
        let begun = lock(&self.kept.begun).get(uid).cloned();
        for (driver, volume) in begun.unwrap_or_default() {
            let turn = self.turn(&driver, &volume);
            let _turn = turn.lock().await;
            if let Some(begun) = lock(&self.kept.begun).get_mut(uid) {
                begun.remove(&(driver.clone(), volume.clone()));
            }
            if let Err(fault) = self.leave_node(&driver, &volume).await {
                let mut begun = lock(&self.kept.begun);
                begun.entry(uid.clone()).or_default().insert((driver, volume));
                return Err(fault);
            }
        }
        lock(&self.kept.begun).remove(uid);
        Ok(())
    }

    /// Takes a volume away from the node unless some pod has it or wants it. The caller holds the volume's turn.
    async fn leave_node(&self, driver: &str, volume: &str) -> Result<(), Fault> {
        let at = |fault: Fault| fault.at(Step::UnmountDevice);
        if self.kept.is_wanted(driver, volume) {
            return Ok(());
        }
        let users = self.drivers.users(driver, volume).await;
        if !users.map_err(|error| at(Fault::from(error)))?.is_empty() {
            return Ok(());
        }
        let place = node_place(driver, volume);
        let stand = self.drivers.look_at(&place).await;
        let stand = stand.map_err(|error| at(Fault::from(error)))?;
        let abilities = self.drivers.abilities(driver).await;
        if let Some(stand) = &stand {
            if stand.is_mounted {
                let words = [stand.path.display().to_string()];
                match self.call(driver, FlexCommand::UnmountDevice, words).await {
                    Ok(_) | Err(FlexError::NotSupported) => {}
                    Err(error) => return Err(at(refused(&error))),
                }
            }
            let cleared = self.drivers.clear_place(&place).await;
            cleared.map_err(|error| at(Fault::from(error)))?;
        }
        let is_attached = abilities.is_ok_and(|it| it.attaches);
        if is_attached && !self.is_by_controller() {
            let words = [volume.to_owned(), self.node_name.to_owned()];
            match self.call(driver, FlexCommand::Detach, words).await {
                Ok(_) | Err(FlexError::NotSupported) => {}
                Err(error) => return Err(at(refused(&error))),
            }
        }
        self.in_use.note_disuse(&unique_name(driver, volume));
        Ok(())
    }

    /// Finds out what an earlier life of ours left in use, before anybody may conclude that it is not.
    pub(crate) async fn recall(&self) {
        if !self.is_by_controller() {
            return;
        }
        for (driver, volume) in self.stored().await {
            self.in_use.note_use(&unique_name(&driver, &volume));
        }
    }

    /// Takes volumes away that no pod has, left over from an earlier life; one that is on its way to somebody is left alone.
    pub(crate) async fn sweep(&self) {
        for (driver, volume) in self.stored().await {
            let turn = self.turn(&driver, &volume);
            let Ok(_turn) = turn.try_lock() else {
                continue;
            };
            if let Err(fault) = self.leave_node(&driver, &volume).await {
                let why = fault.message;
                tracing::warn!(driver, volume, why, "Volume that nobody uses stays");
            }
        }
    }

    async fn stored(&self) -> Vec<(String, String)> {
        self.drivers.stored().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "Volumes of drivers cannot be listed");
            Vec::new()
        })
    }

    /// The turn at a volume that pods may share.
    fn turn(&self, driver: &str, volume: &str) -> Turn {
        let name = format!("flexvolume {}", unique_name(driver, volume));
        self.provider.shared.turn(&name)
    }

    fn is_by_controller(&self) -> bool {
        self.attaching == Attaching::ByController && self.storage.is_some()
    }

    pub(super) async fn call(
        &self,
        driver: &str,
        command: FlexCommand,
        words: impl IntoIterator<Item = String>,
    ) -> Result<FlexAnswer, FlexError> {
        let call = FlexCall { command, words: words.into_iter().collect() };
        self.drivers.call(driver, &call).await
    }
}

async fn held(turn: &Option<Turn>) -> Option<tokio::sync::MutexGuard<'_, ()>> {
    match turn {
        Some(turn) => Some(turn.lock().await),
        None => None,
    }
}

fn node_place(driver: &str, volume: &str) -> FlexPlace {
    FlexPlace::Node { driver: driver.to_owned(), volume: volume.to_owned() }
}

pub(super) fn refused(error: &FlexError) -> Fault {
    Fault::refused(error.to_string())
}

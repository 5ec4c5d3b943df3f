//! Setting up and taking away volumes that somebody else provides: the node's part, one operation per volume at a time.
//!
//! Two pods may use one volume, so besides the pod's turn there is a turn per volume ([`Shared`]): a device is mounted once,
//! and taken away when the last pod has gone. In: a [`Provided`] and whose it is. Out: where it stands, or upstream's
//! sentence. Remembers nothing but turns and gifts; who still uses a volume is read from disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ferrolet_ports::{
    Detached, DeviceMount, DiskForm, DiskKey, DiskKind, Event, EventKind, EventObject, Events,
    GroupGift, MountAccess, PathKind, ProgramMount, ProvidedVolumes, VolumeFiles, VolumeMount,
    VolumePlace,
};
use ferrolet_types::PodUid;
use tokio::time::{Instant, sleep_until};

use crate::{
    csi,
    fault::{Fault, Step},
    gifts::{Before, Gifts},
    paths::has_backstep,
    plan::PodPlan,
    provided::{Backing, DiskVolume, Form, Provided},
    run::mount_of,
};

/// The directory of local volumes.
pub(crate) const LOCAL: &str = "kubernetes.io~local-volume";
/// The directory of NFS volumes.
pub(crate) const NFS: &str = "kubernetes.io~nfs";
const LOCAL_PLUGIN: &str = "kubernetes.io/local-volume";
const LOCAL_MOUNTS: &str = "kubernetes.io/local-volume/mounts";
/// The directory of iSCSI volumes.
pub(crate) const ISCSI: &str = "kubernetes.io~iscsi";
/// The directory of Fibre Channel volumes.
pub(crate) const FC: &str = "kubernetes.io~fc";

/// A walk through a volume that takes longer than this is told of, and then again every so often.
const FIRST_WORD: Duration = Duration::from_secs(30);
const MORE_WORDS: Duration = Duration::from_secs(60);

/// Turns at volumes that pods may share.
#[derive(Default)]
pub(crate) struct Shared {
    turns: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
    /// Disks of other machines that pods have or want.
    disks: Mutex<BTreeMap<PodUid, BTreeSet<DiskKey>>>,
    /// What the cluster calls disks that it was told to be in use.
    names: Mutex<BTreeMap<DiskKey, BTreeSet<String>>>,
    gifts: Gifts,
}

impl Shared {
    /// The turn at one volume: whoever holds it is the only one.
    pub(crate) fn turn(&self, volume: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(volume).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        turns.insert(volume.to_owned(), Arc::downgrade(&turn));
        turn
    }

    fn disks(&self) -> MutexGuard<'_, BTreeMap<PodUid, BTreeSet<DiskKey>>> {
        self.disks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_disk(&self, uid: &PodUid, disk: DiskKey) {
        self.disks().entry(uid.clone()).or_default().insert(disk);
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<DiskKey, BTreeSet<String>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_name(&self, disk: DiskKey, name: String) {
        self.names().entry(disk).or_default().insert(name);
    }

    fn is_wanted(&self, disk: &DiskKey) -> bool {
        self.disks().values().any(|disks| disks.contains(disk))
    }

    fn disks_of(&self, uid: &PodUid) -> BTreeSet<DiskKey> {
        self.disks().get(uid).cloned().unwrap_or_default()
    }
}

/// What providing needs.
pub(crate) struct Provider<'a> {
    pub(crate) files: &'a dyn VolumeFiles,
    pub(crate) mounts: &'a dyn ProvidedVolumes,
    pub(crate) events: &'a dyn Events,
    pub(crate) shared: &'a Shared,
    /// What the node says that it uses.
    pub(crate) in_use: &'a csi::Kept,
}

impl Provider<'_> {
    /// Makes a local or remote volume ready for the pod. Host paths and drivers' volumes are others' business.
    pub(crate) async fn set_up(
        &self,
        plan: &PodPlan,
        provided: &Provided,
    ) -> Result<VolumeMount, Fault> {
        match &provided.backing {
            Backing::Local { path, file_system } => {
                self.local(plan, provided, path, file_system).await
            }
            Backing::Nfs { source } => self.nfs(plan, provided, source).await,
            Backing::Disk(volume) => self.disk(plan, provided, volume).await,
            Backing::Unsupported(kind) => {
                Err(Fault::unprocessed(format!("volumes of kind {kind} are not supported")))
            }
            Backing::HostPath { .. } | Backing::Csi(_) | Backing::Flex(_) => {
                Err(Fault::lasting("not a local or remote volume".to_owned()))
            }
        }
    }

    async fn local(
        &self,
        plan: &PodPlan,
        provided: &Provided,
        path: &str,
        file_system: &str,
    ) -> Result<VolumeMount, Fault> {
        if has_backstep(path) {
            let why = format!("invalid path: {path} must not contain '..'");
            return Err(Fault::lasting(why));
        }
        let place = place_of(plan, LOCAL, &provided.spec_name);
        let turn = self.shared.turn(&format!("{LOCAL}/{}", provided.spec_name));
        let _turn = turn.lock().await;
        let kind = self.files.path_kind(path).await?;
        let missing = || Fault::later(format!("path {path:?} does not exist"));
        let kind = kind.ok_or_else(missing)?;
        if provided.form == Form::Device {
            if kind != PathKind::BlockDevice {
                return Err(Fault::later(format!("{path} is not a block device")).at(Step::Map));
            }
            let link = self.mounts.map_device(&place, path).await;
            let link = link.map_err(|error| Fault::from(error).at(Step::Map))?;
            return Ok(VolumeMount {
                device: Some(link.display().to_string()),
                group: provided.group,
                ..mount_of(String::new(), provided.is_read_only, false)
            });
        }
        let source = match kind {
            PathKind::Directory => path.to_owned(),
            PathKind::BlockDevice => {
                let ask = DeviceMount {
                    directory: LOCAL_MOUNTS.to_owned(),
                    name: provided.spec_name.clone(),
                    device: path.to_owned(),
                    file_system: file_system.to_owned(),
                    options: provided.options.clone(),
                    access: access_of(provided),
                };
                let mounted = self.mounts.mount_device(&ask).await;
                let mounted = mounted.map_err(|error| Fault::from(error).at(Step::MountDevice))?;
                mounted.display().to_string()
            }
            _ => {
                let why = "only directory and block device are supported".to_owned();
                return Err(Fault::later(why).at(Step::MountDevice));
            }
        };
        self.mounts.bind(&place, &source, access_of(provided)).await?;
        self.finish(plan, provided, &place).await
    }

    async fn nfs(
        &self,
        plan: &PodPlan,
        provided: &Provided,
        source: &str,
    ) -> Result<VolumeMount, Fault> {
        let place = place_of(plan, NFS, &provided.spec_name);
        let mut options = provided.options.clone();
        if provided.is_read_only {
            options.push("ro".to_owned());
        }
        let ask = ProgramMount { kind: "nfs".to_owned(), source: source.to_owned(), options };
        let mounted = self.mounts.mount_by_program(&place, &ask).await;
        mounted.map_err(|error| Fault { wants_pause: true, ..Fault::from(error) })?;
        // Upstream leaves ownership to the server.
        let path = self.files.volume_path(&place).display().to_string();
        Ok(VolumeMount { group: provided.group, ..mount_of(path, provided.is_read_only, false) })
    }

    /// A disk of another machine, with the secrets that it wants.
    async fn disk(
        &self,
        plan: &PodPlan,
        provided: &Provided,
        volume: &DiskVolume,
    ) -> Result<VolumeMount, Fault> {
        let (disk, key) = (&volume.disk, volume.disk.key());
        let place = place_of(plan, plugin_of(key.kind), &provided.spec_name);
        let turn = self.shared.turn(&disk_turn(&key));
        let _turn = turn.lock().await;
        let (form, step) = match provided.form {
            Form::Files => (DiskForm::Files, Step::WaitForAttach),
            Form::Device => (DiskForm::Raw, Step::WaitForDevice),
        };
        let device = self.mounts.attach_disk(disk, form).await;
        let device =
            device.map_err(|error| Fault { wants_pause: true, ..Fault::from(error).at(step) })?;
        if form == DiskForm::Raw {
            let link = self.mounts.map_disk(&place, disk, &device).await;
            let link = link.map_err(|error| Fault::from(error).at(Step::MapBlock))?;
            return Ok(VolumeMount {
                device: Some(link.display().to_string()),
                group: provided.group,
                ..mount_of(String::new(), provided.is_read_only, false)
            });
        }
        let ask = DeviceMount {
            directory: disk.directory(form),
            name: key.name,
            device,
            file_system: volume.file_system.clone(),
            options: provided.options.clone(),
            access: access_of(provided),
        };
        let mounted = self.mounts.mount_device(&ask).await;
        let mounted = mounted.map_err(|error| Fault::from(error).at(Step::MountDevice))?;
        let source = mounted.display().to_string();
        self.mounts.bind(&place, &source, access_of(provided)).await?;
        self.finish(plan, provided, &place).await
    }

    /// Takes the disks away that a pod had or wanted, each unless somebody else has it.
    pub(crate) async fn release_disks(&self, uid: &PodUid) -> Result<(), Fault> {
        for disk in self.shared.disks_of(uid) {
            let turn = self.shared.turn(&disk_turn(&disk));
            let _turn = turn.lock().await;
            let detached = self.mounts.detach_disk(&disk).await;
            let detached = detached.map_err(|error| Fault::from(error).at(Step::UnmountDevice))?;
            if let Some(disks) = self.shared.disks().get_mut(uid) {
                disks.remove(&disk);
            }
            self.note_disuse(&disk, detached);
        }
        self.shared.disks().remove(uid);
        Ok(())
    }

    /// Lets the cluster have a disk that is gone from here and that nobody waits for. The caller holds the disk's turn.
    fn note_disuse(&self, disk: &DiskKey, detached: Detached) {
        if detached == Detached::Used || self.shared.is_wanted(disk) {
            return;
        }
        for name in self.shared.names().remove(disk).unwrap_or_default() {
            self.in_use.note_disuse(&name);
        }
    }

    /// Takes disks away that an earlier life of ours left; one that is on its way to somebody is left alone.
    pub(crate) async fn sweep_disks(&self) {
        let unused = self.mounts.unused_disks().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "Disks of other machines cannot be listed");
            Vec::new()
        });
        for disk in unused {
            let turn = self.shared.turn(&disk_turn(&disk));
            let Ok(_turn) = turn.try_lock() else {
                continue;
            };
            match self.mounts.detach_disk(&disk).await {
                Ok(detached) => self.note_disuse(&disk, detached),
                Err(error) => tracing::warn!(?disk, %error, "Disk that nobody uses stays"),
            }
        }
    }

    async fn finish(
        &self,
        plan: &PodPlan,
        provided: &Provided,
        place: &VolumePlace,
    ) -> Result<VolumeMount, Fault> {
        let path = self.files.volume_path(place).display().to_string();
        if !provided.is_read_only {
            self.give_once(plan, place, &path).await?;
        }
        Ok(VolumeMount { group: provided.group, ..mount_of(path, provided.is_read_only, true) })
    }

    /// Gives the volume to the pod's group, unless that was done already. One that pods share keeps the group of the first.
    async fn give_once(
        &self,
        plan: &PodPlan,
        place: &VolumePlace,
        path: &str,
    ) -> Result<(), Fault> {
        let Some(group) = plan.group else {
            return Ok(());
        };
        let gifts = &self.shared.gifts;
        match gifts.before(place) {
            Before::Given => return Ok(()),
            Before::GivenForAnother(other) if place.plugin == LOCAL => {
                if other != group {
                    let message = format!(
                        "The requested fsGroup is {group}, but the volume {} has GID {other}. The volume may not be shareable.",
                        place.name
                    );
                    self.warn_pod(plan, "AlreadyMountedVolume", message);
                }
                gifts.note(place, other);
                return Ok(());
            }
            Before::GivenForAnother(_) | Before::Nothing => {}
        }
        self.give_to_group(plan, path).await?;
        gifts.note(place, group);
        Ok(())
    }

    fn warn_pod(&self, plan: &PodPlan, reason: &str, message: String) {
        self.events.record(Event {
            object: EventObject::Pod {
                uid: plan.uid.clone(),
                key: plan.key.clone(),
                field_path: None,
            },
            kind: EventKind::Warning,
            reason: reason.to_owned(),
            message,
        });
    }

    /// Gives the volume to the pod's group, and says so from time to time when that takes long.
    pub(crate) async fn give_to_group(&self, plan: &PodPlan, path: &str) -> Result<(), Fault> {
        let Some(group) = plan.group else {
            return Ok(());
        };
        let gift = GroupGift { group, change: plan.group_change };
        let walked = Arc::new(AtomicU64::new(0));
        let walk = self.mounts.give_to_group(path, gift, Arc::clone(&walked));
        tokio::pin!(walk);
        let shown = path.find(plan.uid.as_str()).map_or(path, |at| &path[at..]);
        let mut next = Instant::now() + FIRST_WORD;
        let mut is_first = true;
        loop {
            tokio::select! {
                // Cancel-safe: the walk is kept across turns of the loop.
                given = &mut walk => return Ok(given?),
                () = sleep_until(next) => {
                    let message = if is_first {
                        format!(
                            "Setting volume ownership for {shown} is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
                        )
                    } else {
                        format!(
                            "Setting volume ownership for {shown}, processed {} files.",
                            walked.load(Ordering::Relaxed)
                        )
                    };
                    is_first = false;
                    next += MORE_WORDS;
                    self.warn_pod(plan, "VolumePermissionChangeInProgress", message);
                }
            }
        }
    }

    /// Takes a provided volume away from a pod, and from the node when nobody else has it.
    pub(crate) async fn take_away(&self, place: &VolumePlace) -> Result<(), Fault> {
        let turn = self.shared.turn(&format!("{}/{}", place.plugin, place.name));
        let _turn = turn.lock().await;
        self.mounts.unmount(place).await?;
        self.shared.gifts.forget(place);
        if place.plugin == LOCAL {
            let unmounted = self.mounts.unmount_device(LOCAL_PLUGIN, &place.name).await;
            unmounted.map_err(|error| Fault::from(error).at(Step::UnmountDevice))?;
        }
        self.sweep_after(place).await;
        Ok(())
    }

    /// Takes a raw device away from a pod.
    pub(crate) async fn take_away_device(&self, place: &VolumePlace) -> Result<(), Fault> {
        let unmapped = self.mounts.unmap_device(place).await;
        unmapped.map_err(|error| Fault::from(error).at(Step::Unmap))?;
        self.sweep_after(place).await;
        Ok(())
    }

    /// Takes disks away that nobody has, where the pod got its own in an earlier life of ours and we do not know which.
    async fn sweep_after(&self, place: &VolumePlace) {
        let is_disk = [ISCSI, FC].contains(&place.plugin.as_str());
        if is_disk && self.shared.disks_of(&place.uid).is_empty() {
            self.sweep_disks().await;
        }
    }
}

fn plugin_of(kind: DiskKind) -> &'static str {
    match kind {
        DiskKind::Iscsi => ISCSI,
        DiskKind::Fc => FC,
    }
}

fn disk_turn(disk: &DiskKey) -> String {
    format!("{} disk {}", plugin_of(disk.kind), disk.name)
}

pub(crate) fn place_of(plan: &PodPlan, plugin: &str, name: &str) -> VolumePlace {
    VolumePlace { uid: plan.uid.clone(), plugin: plugin.to_owned(), name: name.to_owned() }
}

pub(crate) fn access_of(provided: &Provided) -> MountAccess {
    if provided.is_read_only { MountAccess::ReadOnly } else { MountAccess::ReadWrite }
}

//! Disks of other machines on this node: where they stand, who has them, and when they may go. The
//! same for every kind.
//!
//! ```text
//! plugins/kubernetes.io/iscsi/iface-<interface>/<portal>-<target>-lun-<n>        a disk, mounted once for the node
//! plugins/kubernetes.io/fc/<names>[-lun-<n>]
//! plugins/kubernetes.io/<kind>/volumeDevices/…/<the same>/<uid>                  the same without a file system, held for a pod
//!                                                        …/iscsi.json            what to log out of, under the mount if there is one
//! ```
//!
//! Who has a disk is read from the mount table and from these directories, so a restart forgets
//! nothing. How a disk is reached is the business of [`iscsi`] and [`fc`]. Refuses: letting a disk
//! go that some pod has in whatever form, and deciding when.

#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
};

use ferrolet_linux::{
    mountinfo,
    rooted::{Durability, Kind, Rooted},
};
use ferrolet_ports::{Disk, DiskForm, DiskKey, DiskKind, FcDisk, HostError};
use ferrolet_types::PodUid;

use super::{
    fc, iscsi,
    layout::{DEVICES, plain},
    mounts::{WhenBusy, unmount_all},
};

const RECORD: &str = "iscsi.json";
const RECORD_LIMIT: usize = 64 * 1024;
const PRIVATE: u32 = 0o750;

/// A disk that no pod has.
#[derive(Debug)]
pub(super) struct Left {
    disk: Disk,
    /// Its directories, below the root.
    places: Vec<PathBuf>,
    target: iscsi::Target,
}

/// What became of a disk that was to be let go.
#[derive(Debug)]
pub(super) enum LetGo {
    /// Some pod has it.
    Used,
    /// There is nothing to take away.
    Gone,
    /// That has to be taken away.
    Left(Left),
}

/// A directory of a disk.
#[derive(Debug)]
struct Place {
    key: DiskKey,
    form: DiskForm,
    /// Below the root.
    beneath: PathBuf,
}

/// Makes the disk's directory and notes what has to be known to take it away one day.
pub(super) fn note(root: &Rooted, disk: &Disk, form: DiskForm) -> io::Result<()> {
    let (directory, name) = (directory(disk, form)?, disk.key().name);
    plain(&name)?;
    let parent = root.ensure_directory(directory, PRIVATE)?;
    parent.ensure_directory_across(&name, PRIVATE)?;
    let Disk::Iscsi(disk) = disk else {
        // Its name says all.
        return Ok(());
    };
    match parent.directory(&name) {
        Ok(own) => {
            let text = iscsi::record_of(disk).to_string();
            own.write_atomically(RECORD, text.as_bytes(), 0o600, Durability::Synced)
        }
        // Mounted on already, so it was noted before.
        Err(cause) if cause.raw_os_error() == Some(rustix::io::Errno::XDEV.raw_os_error()) => {
            Ok(())
        }
        Err(cause) => Err(cause),
    }
}

/// Where the disk is held for pods that have it as it is.
pub(super) fn raw_directory(disk: &Disk) -> io::Result<PathBuf> {
    let name = disk.key().name;
    Ok(directory(disk, DiskForm::Raw)?.join(plain(&name)?))
}

/// The directories in which disks of that plugin are held for the pod. A pod gives all of its disks
/// back at the same time, so it does not matter which of its volumes each is.
pub(super) fn held_for(root: &Rooted, plugin: &str, uid: &PodUid) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for place in all(root)? {
        let is_of = place.key.kind.plugin().replace('/', "~") == plugin;
        let is_raw = place.form == DiskForm::Raw;
        if is_of && is_raw && root.kind(place.beneath.join(uid.as_str()))?.is_some() {
            found.push(place.beneath);
        }
    }
    Ok(found)
}

/// True for the plugin of such disks.
pub(super) fn is_plugin(plugin: &str) -> bool {
    let mut kinds = DiskKind::ALL.iter();
    kinds.any(|it| it.plugin().replace('/', "~") == plugin)
}

/// Disks that are here and that no pod has.
pub(super) fn unused(root: &Rooted) -> io::Result<Vec<DiskKey>> {
    let table = mountinfo::read()?;
    let known = all(root)?;
    let mut found: Vec<DiskKey> = Vec::new();
    for place in &known {
        if !found.contains(&place.key) && !is_used(root, &table, &known, &place.key)? {
            found.push(place.key.clone());
        }
    }
    Ok(found)
}

/// Disks that are here.
pub(super) fn known(root: &Rooted) -> io::Result<Vec<DiskKey>> {
    let mut keys: Vec<DiskKey> = all(root)?.into_iter().map(|it| it.key).collect();
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// Unmounts a disk that no pod has, and answers with what to take away; somebody may have it after
/// all.
pub(super) fn let_go(root: &Rooted, key: &DiskKey) -> io::Result<LetGo> {
    let table = mountinfo::read()?;
    let known = all(root)?;
    if is_used(root, &table, &known, key)? {
        return Ok(LetGo::Used);
    }
    let mut own = known.iter().filter(|it| it.key == *key).peekable();
    if own.peek().is_none() {
        return Ok(LetGo::Gone);
    }
    let mut places = Vec::new();
    let mut disk = match key.kind {
        DiskKind::Iscsi => None,
        DiskKind::Fc => FcDisk::of_name(&key.name).map(Disk::Fc),
    };
    for place in own {
        if place.form == DiskForm::Files {
            unmount_all(root, &place.beneath, WhenBusy::Refuse)?;
        }
        if disk.is_none() {
            disk = recorded(root, &place.beneath)?;
        }
        places.push(place.beneath.clone());
    }
    let Some(disk) = disk else {
        // Nobody knows any more what it was; an empty directory is no harm.
        for place in places {
            root.remove_directory(&place)?;
        }
        return Ok(LetGo::Gone);
    };
    Ok(LetGo::Left(Left { target: target_of(&disk, &known), disk, places }))
}

/// Forgets a disk that is gone.
pub(super) fn forget(root: &Rooted, left: &Left) -> io::Result<()> {
    for place in &left.places {
        root.unlink(place.join(RECORD))?;
        root.remove_directory(place)?;
    }
    Ok(())
}

/// Brings the disk to this node and answers with its device.
pub(super) async fn attach(disk: &Disk) -> Result<String, HostError> {
    match disk {
        Disk::Iscsi(disk) => iscsi::System::default().attach(disk).await,
        Disk::Fc(disk) => fc::System::default().attach(disk).await,
    }
}

/// Lets the kernel forget a disk that was let go.
pub(super) async fn detach(left: &Left) -> Result<(), HostError> {
    match &left.disk {
        Disk::Iscsi(disk) => iscsi::System::default().detach(disk, left.target).await,
        Disk::Fc(disk) => fc::System::default().detach(disk).await,
    }
}

fn directory(disk: &Disk, form: DiskForm) -> io::Result<PathBuf> {
    if let Disk::Iscsi(disk) = disk {
        plain(&format!("iface-{}", disk.own_interface()))?;
    }
    Ok(Path::new("plugins").join(disk.directory(form)))
}

/// Every directory of a disk.
fn all(root: &Rooted) -> io::Result<Vec<Place>> {
    let mut found = Vec::new();
    for kind in DiskKind::ALL {
        for form in [DiskForm::Files, DiskForm::Raw] {
            let top = Path::new("plugins").join(kind.directory(form));
            let parents = match kind {
                DiskKind::Fc => vec![top],
                DiskKind::Iscsi => {
                    let interfaces = names(root, &top)?.into_iter();
                    let interfaces = interfaces.filter(|it| it.starts_with("iface-"));
                    interfaces.map(|it| top.join(it)).collect()
                }
            };
            for parent in parents {
                for name in names(root, &parent)? {
                    // Fibre Channel has no directory between those of disks and the plugin's
                    // others.
                    if kind == DiskKind::Fc && form == DiskForm::Files && name == DEVICES {
                        continue;
                    }
                    found.push(Place {
                        beneath: parent.join(&name),
                        key: DiskKey { kind, name },
                        form,
                    });
                }
            }
        }
    }
    Ok(found)
}

fn names(root: &Rooted, directory: &Path) -> io::Result<Vec<String>> {
    let entries = match root.directory(directory) {
        Ok(directory) => directory.entries()?,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(cause),
    };
    let directories = entries.into_iter().filter(|it| it.kind == Kind::Directory);
    let mut names: Vec<String> = directories.filter_map(|it| it.name.into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// True when some pod has the disk: what is mounted at its place is mounted for a pod too, or it is
/// held for one as it is.
fn is_used(
    root: &Rooted,
    table: &[mountinfo::Mount],
    known: &[Place],
    key: &DiskKey,
) -> io::Result<bool> {
    let real = root.real_path()?;
    for place in known.iter().filter(|it| it.key == *key) {
        let is_used = match place.form {
            DiskForm::Files => {
                let top = real.join("plugins").join(key.kind.plugin());
                let point = real.join(&place.beneath);
                let own = table.iter().rfind(|it| it.point == point);
                own.is_some_and(|own| {
                    let mut alike = table.iter().filter(|it| it.device == own.device);
                    alike.any(|it| !it.point.starts_with(&top))
                })
            }
            DiskForm::Raw => {
                let entries = root.directory(&place.beneath)?.entries()?;
                let is_record = |name: &str| name == RECORD || name.starts_with('.');
                let mut entries = entries.iter().map(|it| it.name.to_string_lossy());
                entries.any(|name| !is_record(&name))
            }
        };
        if is_used {
            return Ok(true);
        }
    }
    Ok(false)
}

fn recorded(root: &Rooted, place: &Path) -> io::Result<Option<Disk>> {
    match root.read(place.join(RECORD), RECORD_LIMIT) {
        Ok(text) => Ok(iscsi::disk_of(&text).map(Disk::Iscsi)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Whether the disk's machine has other disks here.
fn target_of(disk: &Disk, known: &[Place]) -> iscsi::Target {
    let own = disk.key();
    let Disk::Iscsi(disk) = disk else {
        return iscsi::Target::Unused;
    };
    let portal = disk.portals.first().map_or("", String::as_str);
    let prefix = format!("{portal}-{}-lun-", disk.target);
    let mut others = known.iter().filter(|it| it.key != own);
    let is_shared =
        others.any(|it| it.key.kind == DiskKind::Iscsi && it.key.name.starts_with(&prefix));
    if is_shared { iscsi::Target::Used } else { iscsi::Target::Unused }
}

//! Raw devices of pods, in upstream's places.
//!
//! ```text
//! pods/<uid>/volumeDevices/<plugin>/<name>                          link to the device
//! plugins/<plugin>/volumeDevices/<name>/<uid>                       the device held for one pod; a loop device over it
//! plugins/kubernetes.io/csi/volumeDevices/<name>/dev/<uid>            keeps it open, so that it is seen to be in use
//! plugins/kubernetes.io/{iscsi,fc}/volumeDevices/…/<disk>/<uid>     a disk of another machine ([`disks`]), held the same way
//! plugins/kubernetes.io/csi/volumeDevices/publish/<name>/<uid>      where a driver shows it
//! ```
//!
//! The link of a driver's device is made before the driver is asked and goes after its last answer:
//! so a crash at any point leaves enough to take the device away. Blocking; names are ours and
//! reached beneath descriptors. Refuses: policy.

use std::{
    ffi::OsStr,
    io,
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use ferrolet_linux::rooted::{Kind, Rooted};
use ferrolet_ports::VolumePlace;
use ferrolet_types::PodUid;
use rustix::fs::{FileType, Mode};

use super::{
    disks,
    layout::{DEVICES, plain},
    mounts::{self, NAMED, WhenBusy, open_across, unmount_all},
    node_mounts::ADMINISTRATORS,
};

const PRIVATE: u32 = 0o750;
const CSI: &str = "kubernetes.io~csi";
const CSI_DEVICES: &str = "plugins/kubernetes.io/csi/volumeDevices";
/// Where the kernel says what loop devices stand for.
const BLOCK_DEVICES: &str = "/sys/block";

/// A device that was mapped.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Where it is held, with all links resolved.
    pub(super) held: PathBuf,
    /// It is a block device that nobody keeps open yet.
    pub(super) is_to_be_locked: bool,
}

/// Holds a device for a pod in a directory and links it.
pub(super) fn map(
    root: &Rooted,
    place: &VolumePlace,
    directory: &Path,
    device: &Path,
) -> io::Result<Mapped> {
    check(place)?;
    let source = rustix::fs::open(device, ADMINISTRATORS, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode);
    // The link first: by it the pod is known to have the device, whatever becomes of us in between.
    link(root, place, device)?;
    let held = root.ensure_directory(directory, PRIVATE)?;
    let uid = place.uid.as_str();
    if held.kind(uid)?.is_none() {
        held.create_new(uid, 0o640)?;
    }
    let target = open_across(held.as_fd(), Path::new(uid), NAMED)?;
    if !is_covered(&held, uid)? {
        mounts::bind(source.as_fd(), target.as_fd())?;
    }
    let held = held.real_path()?.join(uid);
    Ok(Mapped {
        is_to_be_locked: kind == FileType::BlockDevice && loops_over(&held)?.is_empty(),
        held,
    })
}

/// Loop devices that keep the pod's device open.
pub(super) fn locks(root: &Rooted, place: &VolumePlace) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in held_directories(root, place)? {
        match root.directory(directory) {
            Ok(held) => found.extend(loops_over(&held.real_path()?.join(place.uid.as_str()))?),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(found)
}

/// Lets the device go; the link stays.
pub(super) fn let_go(root: &Rooted, place: &VolumePlace) -> io::Result<()> {
    for directory in held_directories(root, place)? {
        let held = directory.join(place.uid.as_str());
        unmount_all(root, &held, WhenBusy::Detach)?;
        root.unlink(&held)?;
        // That of another machine's disk is needed until the disk has gone.
        if !disks::is_plugin(&place.plugin) {
            remove_if_empty(root, &directory)?;
        }
    }
    Ok(())
}

/// Takes away what a driver left at its place, and the link.
pub(super) fn unmap(root: &Rooted, place: &VolumePlace) -> io::Result<()> {
    check(place)?;
    if place.plugin == CSI {
        let published = published_path(place);
        // A mount that the driver left stops this with an error: its device is still there.
        match root.kind(&published)? {
            Some(Kind::Directory) => root.remove_directory(&published)?,
            Some(_) => root.unlink(&published)?,
            None => {}
        }
        let parent = published.parent().expect("it stands in a directory");
        remove_if_empty(root, parent)?;
    }
    root.unlink(link_path(place))
}

/// Makes room for what a driver will show, and the link to it.
pub(super) fn announce(root: &Rooted, place: &VolumePlace, target: &Path) -> io::Result<()> {
    check(place)?;
    let published = published_path(place);
    let parent = published.parent().expect("it stands in a directory");
    root.ensure_directory(parent, PRIVATE)?;
    link(root, place, target)
}

/// Pods that have a link to the device.
pub(super) fn users(root: &Rooted, plugin: &str, name: &str) -> io::Result<Vec<PodUid>> {
    let (plugin, name) = (plain(plugin)?, plain(name)?);
    let pods = match root.directory("pods") {
        Ok(pods) => pods,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(cause),
    };
    let mut users = Vec::new();
    for pod in pods.entries()? {
        let link = Path::new(&pod.name).join(DEVICES).join(plugin).join(name);
        if pod.kind == Kind::Directory
            && pods.kind(link)?.is_some()
            && let Some(uid) = pod.name.to_str()
        {
            users.push(PodUid::new(uid));
        }
    }
    Ok(users)
}

fn link(root: &Rooted, place: &VolumePlace, target: &Path) -> io::Result<()> {
    let link = link_path(place);
    let parent = link.parent().expect("a link stands in a directory");
    let links = root.ensure_directory(parent, PRIVATE)?;
    let name = place.name.as_str();
    if links.kind(name)? == Some(Kind::Link) && links.read_link(name)? != target {
        links.unlink(name)?;
    }
    if links.kind(name)?.is_none() {
        links.symlink(target, name)?;
    }
    Ok(())
}

fn check(place: &VolumePlace) -> io::Result<()> {
    for name in [place.uid.as_str(), &place.plugin, &place.name] {
        plain(name)?;
    }
    Ok(())
}

/// Where devices are held for the volume's pod.
fn held_directories(root: &Rooted, place: &VolumePlace) -> io::Result<Vec<PathBuf>> {
    check(place)?;
    if disks::is_plugin(&place.plugin) {
        return disks::held_for(root, &place.plugin, &place.uid);
    }
    Ok(vec![held_directory(place)])
}

/// Where a device is held that is known by the volume's name.
pub(super) fn held_directory(place: &VolumePlace) -> PathBuf {
    if place.plugin == CSI {
        return Path::new(CSI_DEVICES).join(&place.name).join("dev");
    }
    ["plugins", &place.plugin, DEVICES, &place.name].iter().collect()
}

/// Where a driver shows its device to one pod.
pub(super) fn published_path(place: &VolumePlace) -> PathBuf {
    [CSI_DEVICES, "publish", &place.name, place.uid.as_str()].iter().collect()
}

pub(super) fn link_path(place: &VolumePlace) -> PathBuf {
    let names = ["pods", place.uid.as_str(), DEVICES, &place.plugin, &place.name];
    names.iter().collect()
}

fn is_covered(directory: &Rooted, name: &str) -> io::Result<bool> {
    match directory.open_named(name) {
        Ok(_plain) => Ok(false),
        Err(cause) if mounts::is(&cause, rustix::io::Errno::XDEV) => Ok(true),
        Err(cause) => Err(cause),
    }
}

fn remove_if_empty(root: &Rooted, directory: &Path) -> io::Result<()> {
    match root.remove_directory(directory) {
        // Another pod's.
        Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other,
    }
}

/// Loop devices that stand for a path.
fn loops_over(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(BLOCK_DEVICES) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let file = Path::new(BLOCK_DEVICES).join(&name).join("loop/backing_file");
        // One that stands for nothing, and whatever is no loop device, has no such file.
        let Ok(text) = std::fs::read(file) else {
            continue;
        };
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let stands_for = text.strip_suffix(b" (deleted)").unwrap_or(text);
        if Path::new(OsStr::from_bytes(stands_for)) == path {
            found.push(Path::new("/dev").join(name));
        }
    }
    Ok(found)
}

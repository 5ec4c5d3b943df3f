//! What is known of drivers' volumes, on disk beside their mounts: `vol_data.json`, in upstream's
//! place and form.
//!
//! ```text
//! pods/<uid>/volumes/kubernetes.io~csi/<name>/vol_data.json        mount/ beside it is the driver's
//! plugins/kubernetes.io/csi/<driver>/<hash>/vol_data.json          globalmount/ beside it
//! plugins/kubernetes.io/csi/volumeDevices/<name>/data/vol_data.json
//! ```
//!
//! Written before the driver is asked for anything, removed after its last answer: so a crash at
//! any point leaves enough to take the volume away. Refuses: removing a record while something is
//! mounted beside it.

use std::{
    io,
    path::{Path, PathBuf},
};

use ferrolet_linux::rooted::{Durability, Kind, Rooted, is_plain_name};
use ferrolet_ports::{Record, RecordPlace, Records, VolumePlace};
use ferrolet_types::PodUid;

use super::{layout::VOLUMES, mounts::mounted_on};

const RECORD: &str = "vol_data.json";
const CSI: &str = "plugins/kubernetes.io/csi";
const CSI_PODS: &str = "kubernetes.io~csi";
const DEVICES: &str = "volumeDevices";
const LONGEST_RECORD: usize = 64 * 1024;

/// The directory that holds the record.
fn directory(place: &RecordPlace) -> PathBuf {
    match place {
        RecordPlace::Pod(place) => {
            ["pods", place.uid.as_str(), VOLUMES, CSI_PODS, &place.name].iter().collect()
        }
        RecordPlace::Node { driver, hash } => Path::new(CSI).join(driver).join(hash),
        RecordPlace::Device { name } => Path::new(CSI).join(DEVICES).join(name).join("data"),
    }
}

/// Where the driver mounts, beside the record.
pub(super) fn mount_path(place: &RecordPlace) -> PathBuf {
    match place {
        RecordPlace::Pod(_) => directory(place).join("mount"),
        RecordPlace::Node { .. } => directory(place).join("globalmount"),
        RecordPlace::Device { name } => Path::new(CSI).join(DEVICES).join("staging").join(name),
    }
}

fn check(place: &RecordPlace) -> io::Result<()> {
    let names: Vec<&str> = match place {
        RecordPlace::Pod(place) => vec![place.uid.as_str(), &place.name],
        RecordPlace::Node { driver, hash } => vec![driver, hash],
        RecordPlace::Device { name } => vec![name],
    };
    match names.into_iter().find(|name| !is_plain_name(name)) {
        None => Ok(()),
        Some(name) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is not a plain name"),
        )),
    }
}

/// Writes the record; for the node's own mounts the driver also finds the directory to mount on.
pub(super) fn save(root: &Rooted, place: &RecordPlace, record: &Record) -> io::Result<()> {
    check(place)?;
    let beside = root.ensure_directory(directory(place), 0o750)?;
    match place {
        RecordPlace::Pod(_) => {}
        RecordPlace::Node { .. } => beside.ensure_directory_across("globalmount", 0o750)?,
        RecordPlace::Device { .. } => drop(root.ensure_directory(mount_path(place), 0o750)?),
    }
    let mut text = serde_json::to_vec(record).map_err(io::Error::other)?;
    text.push(b'\n');
    beside.write_atomically(RECORD, &text, 0o600, Durability::Synced)
}

/// Removes mount directory, record and what held them.
pub(super) fn remove(root: &Rooted, place: &RecordPlace) -> io::Result<()> {
    check(place)?;
    if is_mounted(root, place)? {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "something is still mounted there",
        ));
    }
    let mount = mount_path(place);
    if let RecordPlace::Device { name } = place {
        return remove_device(root, name);
    }
    match root.kind(&mount)? {
        Some(Kind::Directory) => root.remove_directory(&mount)?,
        Some(_) => root.unlink(&mount)?,
        None => {}
    }
    let directory = directory(place);
    root.unlink(directory.join(RECORD))?;
    root.remove_directory(&directory)
}

/// What a raw device leaves on the node: nothing of it is a volume's content.
fn remove_device(root: &Rooted, name: &str) -> io::Result<()> {
    let devices = Path::new(CSI).join(DEVICES);
    let published = devices.join("publish").join(name);
    match root.remove_directory(published) {
        Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty => return Err(cause),
        other => other?,
    }
    // A driver may leave what it made for itself in its place; a mount stops us.
    root.remove_tree(devices.join("staging").join(name))?;
    root.remove_tree(devices.join(name))
}

pub(super) fn is_mounted(root: &Rooted, place: &RecordPlace) -> io::Result<bool> {
    check(place)?;
    let mount = mount_path(place);
    let (Some(parent), Some(name)) = (mount.parent(), mount.file_name().and_then(|it| it.to_str()))
    else {
        return Ok(false);
    };
    let parent = match root.directory(parent) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    match parent.kind(name)? {
        None => Ok(false),
        Some(Kind::Directory) => Ok(mounted_on(&parent, name)?.is_some()),
        Some(_) => match parent.open_named(name) {
            Ok(_plain) => Ok(false),
            Err(cause) if super::mounts::is(&cause, rustix::io::Errno::XDEV) => Ok(true),
            Err(cause) => Err(cause),
        },
    }
}

/// Every record there is.
pub(super) fn all(root: &Rooted) -> io::Result<Records> {
    let mut places = Vec::new();
    for uid in names_in(root, Path::new("pods"))? {
        let directory: PathBuf = ["pods", &uid, VOLUMES, CSI_PODS].iter().collect();
        for name in names_in(root, &directory)? {
            places.push(RecordPlace::Pod(VolumePlace {
                uid: PodUid::new(uid.as_str()),
                plugin: CSI_PODS.to_owned(),
                name,
            }));
        }
    }
    for driver in names_in(root, Path::new(CSI))? {
        if driver == DEVICES {
            continue;
        }
        for hash in names_in(root, &Path::new(CSI).join(&driver))? {
            places.push(RecordPlace::Node { driver: driver.clone(), hash });
        }
    }
    for name in names_in(root, &Path::new(CSI).join(DEVICES))? {
        if name != "staging" && name != "publish" {
            places.push(RecordPlace::Device { name });
        }
    }
    let records = places.into_iter().map(|place| {
        let record = read(root, &place)?;
        Ok((place, record))
    });
    records.collect()
}

/// What the record says. Nothing when it is missing, or damaged and of no use; `None` when it cannot
/// be read and something is mounted beside it.
fn read(root: &Rooted, place: &RecordPlace) -> io::Result<Option<Record>> {
    let text = root.read(directory(place).join(RECORD), LONGEST_RECORD);
    let record = text.and_then(|text| Ok(serde_json::from_slice(&text)?));
    match record {
        Ok(record) => Ok(Some(record)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Some(Record::new())),
        Err(error) => {
            tracing::warn!(?place, %error, "Record of a volume cannot be read");
            Ok((!is_mounted(root, place)?).then(Record::new))
        }
    }
}

fn names_in(root: &Rooted, directory: &Path) -> io::Result<Vec<String>> {
    let entries = match root.directory(directory) {
        Ok(directory) => directory.entries()?,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(cause),
    };
    let mut names: Vec<String> = entries
        .into_iter()
        .filter(|entry| entry.kind == Kind::Directory)
        .filter_map(|entry| entry.name.into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

//! Where volumes of drivers stand, in upstream's places. Blocking; names are reached beneath
//! descriptors.
//!
//! ```text
//! pods/<uid>/volumes/<vendor>~<driver>/<name>                            the volume, mounted for one pod
//! plugins/kubernetes.io/flexvolume/<vendor>/<driver>/mounts/<name>       a volume that is attached, mounted for the node
//! ```

use std::{
    io,
    path::{Path, PathBuf},
};

use ferrolet_linux::rooted::{Kind, Rooted};
use ferrolet_ports::FlexPlace;
use ferrolet_types::PodUid;

use crate::{
    layout::{PRIVATE, VOLUMES, plain, relative},
    mounts::{WhenBusy, mounted_on, unmount_all},
};

const DRIVERS: &str = "plugins/kubernetes.io/flexvolume";
const MOUNTS: &str = "mounts";
/// A driver's name has a vendor and a word or two.
const DEEPEST: usize = 4;

/// The directory of a place, and its name in it.
pub(super) fn parts(place: &FlexPlace) -> io::Result<(PathBuf, String)> {
    match place {
        FlexPlace::Pod(place) => {
            let whole = Path::new("pods").join(relative(place)?);
            let parent = whole.parent().expect("a volume stands in a directory");
            Ok((parent.to_owned(), place.name.clone()))
        }
        FlexPlace::Node { driver, volume } => {
            let mut directory = PathBuf::from(DRIVERS);
            for word in driver.split('/') {
                directory.push(plain(word)?);
            }
            Ok((directory.join(MOUNTS), plain(volume)?.to_owned()))
        }
    }
}

/// Makes the directory; true when something is mounted on it.
pub(super) fn make(root: &Rooted, place: &FlexPlace) -> io::Result<bool> {
    let (directory, name) = parts(place)?;
    let parent = root.ensure_directory(directory, PRIVATE)?;
    parent.ensure_directory_across(&name, PRIVATE)?;
    Ok(mounted_on(&parent, &name)?.is_some())
}

/// Whether something is mounted there; `None` when there is no such directory.
pub(super) fn look(root: &Rooted, place: &FlexPlace) -> io::Result<Option<bool>> {
    let (directory, name) = parts(place)?;
    let parent = match root.directory(directory) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if parent.kind(&name)?.is_none() {
        return Ok(None);
    }
    Ok(Some(mounted_on(&parent, &name)?.is_some()))
}

/// Unmounts what is there and removes the directory, which must be empty then.
pub(super) fn clear(root: &Rooted, place: &FlexPlace) -> io::Result<()> {
    let (directory, name) = parts(place)?;
    let whole = directory.join(name);
    let when_busy = match place {
        FlexPlace::Pod(_) => WhenBusy::Detach,
        FlexPlace::Node { .. } => WhenBusy::Refuse,
    };
    unmount_all(root, &whole, when_busy)?;
    root.remove_directory(whole)
}

/// Pods that have a directory for the volume.
pub(super) fn users(root: &Rooted, driver: &str, volume: &str) -> io::Result<Vec<PodUid>> {
    let plugin = driver.replace('/', "~");
    let (plugin, volume) = (plain(&plugin)?, plain(volume)?);
    let pods = match root.directory("pods") {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut users = Vec::new();
    for pod in pods.entries()? {
        let place = Path::new(&pod.name).join(VOLUMES).join(plugin).join(volume);
        if pod.kind == Kind::Directory
            && pods.kind(place)?.is_some()
            && let Some(uid) = pod.name.to_str()
        {
            users.push(PodUid::new(uid));
        }
    }
    Ok(users)
}

/// Volumes that have a directory for the node.
pub(super) fn stored(root: &Rooted) -> io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    match root.directory(DRIVERS) {
        Ok(drivers) => below(&drivers, "", DEEPEST, &mut found)?,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(cause),
    }
    found.sort();
    Ok(found)
}

fn below(
    directory: &Rooted,
    driver: &str,
    deepest: usize,
    found: &mut Vec<(String, String)>,
) -> io::Result<()> {
    for name in names(directory)? {
        let own = directory.directory(&name)?;
        if name == MOUNTS && !driver.is_empty() {
            let volumes = names(&own)?.into_iter();
            found.extend(volumes.map(|volume| (driver.to_owned(), volume)));
        } else if deepest > 1 {
            let driver = match driver {
                "" => name,
                vendor => format!("{vendor}/{name}"),
            };
            below(&own, &driver, deepest - 1, found)?;
        }
    }
    Ok(())
}

fn names(directory: &Rooted) -> io::Result<Vec<String>> {
    let entries = directory.entries()?.into_iter();
    let directories = entries.filter(|entry| entry.kind == Kind::Directory);
    Ok(directories.filter_map(|entry| entry.name.into_string().ok()).collect())
}

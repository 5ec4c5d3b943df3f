//! Taking volumes away, from what disk and mount table say alone.
//!
//! First what is mounted, then the marker, then the content; nothing is deleted while something is
//! mounted in the way, because deletion never crosses a mount point. Interrupted anywhere, a second
//! call goes on where the first stopped.

use std::{io, path::PathBuf};

use ferrolet_linux::rooted::{Kind, Removed, Rooted};
use ferrolet_ports::{StoredVolumes, VolumePlace};
use ferrolet_types::PodUid;

use super::{
    layout::{DEVICES, EMPTY_DIR, SUB_PATHS, VOLUMES, marker_directory, plain, relative},
    mounts::{WhenBusy, unmount_all},
};

/// Entries of a volume that are removed before others have their turn.
const SLICE: usize = 10_000;

/// What is left of a pod's volumes on disk.
pub(super) fn stored(pods: &Rooted, uid: &PodUid) -> io::Result<StoredVolumes> {
    let mut found = StoredVolumes::default();
    let Some(pod) = open_if_there(pods, plain(uid.as_str())?)? else {
        return Ok(found);
    };
    if let Some(sub_paths) = open_if_there(&pod, SUB_PATHS)? {
        found.sub_paths = names(&sub_paths)?;
    }
    found.volumes = places(&pod, VOLUMES, uid, |kind| kind == Kind::Directory)?;
    found.devices = places(&pod, DEVICES, uid, |kind| kind == Kind::Link)?;
    Ok(found)
}

/// What stands in a pod's directory by plugin and name.
fn places(
    pod: &Rooted,
    top: &str,
    uid: &PodUid,
    is_one: impl Fn(Kind) -> bool,
) -> io::Result<Vec<VolumePlace>> {
    let mut found = Vec::new();
    let Some(plugins) = open_if_there(pod, top)? else {
        return Ok(found);
    };
    for plugin in names(&plugins)? {
        let Some(directory) = open_if_there(&plugins, &plugin)? else {
            continue;
        };
        let entries = directory.entries()?.into_iter();
        let mut names: Vec<String> = entries
            .filter(|entry| is_one(entry.kind))
            .filter_map(|entry| entry.name.into_string().ok())
            .collect();
        names.sort();
        found.extend(names.into_iter().map(|name| VolumePlace {
            uid: uid.clone(),
            plugin: plugin.clone(),
            name,
        }));
    }
    Ok(found)
}

/// Unmounts what is mounted in a volume, and takes its marker away.
pub(super) fn unmount(pods: &Rooted, place: &VolumePlace) -> io::Result<()> {
    unmount_all(pods, &relative(place)?, WhenBusy::Detach)?;
    let marker = match place.plugin.as_str() {
        EMPTY_DIR => place.name.clone(),
        _ => format!("wrapped_{}", place.name),
    };
    // The marker goes first: a volume without one is set up anew, a marker without a volume would
    // claim too much.
    pods.remove_tree(marker_directory(&place.uid, &marker)?)
}

/// Takes a part of a volume's content away, and at last the volume.
pub(super) fn slice(pods: &Rooted, place: &VolumePlace) -> io::Result<Removed> {
    pods.remove_some(relative(place)?, SLICE)
}

/// Takes away every part of a volume that was mounted on its own, and the directories that held
/// them.
pub(super) fn sub_paths(pods: &Rooted, uid: &PodUid, volume: &str) -> io::Result<()> {
    let all: PathBuf = [plain(uid.as_str())?, SUB_PATHS].iter().collect();
    let place = all.join(plain(volume)?);
    unmount_all(pods, &place, WhenBusy::Detach)?;
    pods.remove_tree(&place)?;
    match pods.remove_directory(&all) {
        // Other volumes have parts there.
        Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other,
    }
}

fn open_if_there(parent: &Rooted, name: &str) -> io::Result<Option<Rooted>> {
    match parent.kind(name)? {
        Some(Kind::Directory) => parent.directory(name).map(Some),
        _ => Ok(None),
    }
}

/// Names in a directory that can be ours; nothing else is touched.
fn names(directory: &Rooted) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = directory
        .entries()?
        .into_iter()
        .filter(|entry| entry.kind == Kind::Directory)
        .filter_map(|entry| entry.name.into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

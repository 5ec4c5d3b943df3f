//! The open ends of a layer, tied to the layers below.
//!
//! In: the layer's directory, its [`OpenEnds`], and the directories of the layers below, the highest first. Done to the
//! layer: directories that it does not list look as they do below, and hard links to files below exist. Layers below
//! are only read: a link shares the file, which nobody ever writes to.

use std::io;

use rustix::{
    fs::{AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid},
    io::Errno,
};

use super::{OpenEnds, lossy};
use crate::directory::{Directory, is_directory, is_whiteout};

/// Why a layer does not fit those below.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// A hard link to a file that no layer has.
    #[error("{path:?} is a hard link to {target:?}, which no layer below has")]
    NoTarget {
        /// The link.
        path: String,
        /// What it should name.
        target: String,
    },
    /// Files beneath what is a link below.
    #[error("{path:?} has entries in this layer, but is a link in a layer below")]
    Link {
        /// The directory that is a link.
        path: String,
    },
    /// The kernel refused.
    #[error("{step} {path:?}")]
    Kernel {
        /// What was attempted.
        step: &'static str,
        /// On what.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Settles the open ends of `layer`.
pub fn settle(
    layer: &Directory,
    open_ends: &OpenEnds,
    below: &[Directory],
) -> Result<(), SettleError> {
    for path in &open_ends.unlisted {
        if is_hidden(layer, path)? {
            continue;
        }
        match find(below, path)? {
            Some(found) if is_directory(&found.stat) => {
                let directory = layer.beneath(path).map_err(failed("open directory", path))?;
                copy_looks(&directory, &found.stat)
                    .map_err(failed("take over the looks of", path))?;
            }
            Some(found) if rustix::fs::FileType::from_raw_mode(found.stat.st_mode).is_symlink() => {
                return Err(SettleError::Link { path: lossy(path) });
            }
            // Nothing there, or something that the directory hides.
            _ => {}
        }
    }
    for (path, target) in &open_ends.links {
        let no_target = || SettleError::NoTarget { path: lossy(path), target: lossy(target) };
        let found =
            find(below, target)?.filter(|it| !is_directory(&it.stat)).ok_or_else(no_target)?;
        let (parent, name) = split(path);
        let parent = layer.beneath(parent).map_err(failed("open directory", parent))?;
        let (_, target_name) = split(target);
        rustix::fs::linkat(&found.parent, target_name, &parent, name, AtFlags::empty())
            .map_err(failed("link", path))?;
    }
    Ok(())
}

struct Found {
    parent: Directory,
    stat: Stat,
}

/// What the layers show under a path, as overlay would: the highest that has it, unless it is hidden before.
fn find(layers: &[Directory], path: &[u8]) -> Result<Option<Found>, SettleError> {
    for layer in layers {
        let mut current = layer.beneath(b"").map_err(failed("open layer above", path))?;
        let mut is_opaque = false;
        let mut components = path.split(|&byte| byte == b'/').peekable();
        while let Some(name) = components.next() {
            is_opaque |= current.hides_below().map_err(failed("look at", path))?;
            let stat = match current.stat(name) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => break,
                Err(error) => return Err(failed("look at", path)(error)),
            };
            if is_whiteout(&stat) {
                return Ok(None);
            }
            if components.peek().is_none() {
                return Ok(Some(Found { parent: current, stat }));
            }
            if !is_directory(&stat) {
                return Ok(None);
            }
            current = current.beneath(name).map_err(failed("open directory", path))?;
        }
        if is_opaque {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Whether the layer itself hides what is below a directory of its own: then it is a new one.
fn is_hidden(layer: &Directory, path: &[u8]) -> Result<bool, SettleError> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    for end in [0].into_iter().chain(ends) {
        let ancestor = layer.beneath(&path[..end]).map_err(failed("open directory", path))?;
        if ancestor.hides_below().map_err(failed("look at", path))? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn copy_looks(directory: &Directory, stat: &Stat) -> Result<(), Errno> {
    rustix::fs::fchown(
        directory,
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )?;
    rustix::fs::fchmod(directory, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let time =
        Timespec { tv_sec: stat.st_mtime, tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or(0) };
    rustix::fs::futimens(directory, &Timestamps { last_access: time, last_modification: time })
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

fn failed<E: Into<io::Error>>(step: &'static str, path: &[u8]) -> impl FnOnce(E) -> SettleError {
    move |source| SettleError::Kernel { step, path: lossy(path), source: source.into() }
}

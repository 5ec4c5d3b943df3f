//! Parts of volumes, mounted on their own: the door that two of the kubelet's worst holes came
//! through.
//!
//! The kernel resolves the whole path beneath the volume's descriptor in one call
//! (`RESOLVE_BENEATH`): links that stay inside are followed, as config maps need it; anything that
//! leads out is refused, however fast it is swapped. What was found is bound from its descriptor to
//! a place of ours, and the runtime is told that place. No name is ever resolved twice.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use ferrolet_linux::rooted::{Kind, Rooted};
use ferrolet_ports::SubPathBind;
use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::{
    layout::{PRIVATE, SUB_PATHS, plain},
    mounts::{self, NAMED, is, open_across, open_resolved},
};

const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
const NAMED_DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FOUND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Mounts the part at its place below the pods' directory and answers with that place.
pub(super) fn bind(pods: &Rooted, part: &SubPathBind) -> io::Result<PathBuf> {
    let found = open_part(&part.volume_path, Path::new(&part.path))?;
    let index = part.index.to_string();
    let container: PathBuf =
        [plain(part.uid.as_str())?, SUB_PATHS, plain(&part.volume)?, plain(&part.container)?]
            .iter()
            .collect();
    let place = container.join(&index);
    let directory = pods.ensure_directory(&container, PRIVATE)?;

    loop {
        match open_across(directory.as_fd(), Path::new(&index), NAMED) {
            Ok(there) if is_covered(&directory, &index)? => {
                if is_same(&there, &found)? {
                    return Ok(place);
                }
                // A part of an earlier life of the container: its file was replaced since.
                drop(there);
                mounts::unmount(pods, &place, mounts::WhenBusy::Detach)?;
            }
            Ok(_plain) => break,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => break,
            Err(cause) => return Err(cause),
        }
    }
    let target = make_target(&directory, &index, &found)?;
    mounts::bind(found.as_fd(), target.as_fd())?;
    Ok(place)
}

/// Finds the part inside the volume, making directories that are missing.
pub(super) fn open_part(volume: &Path, part: &Path) -> io::Result<OwnedFd> {
    let steps_are_plain =
        part.components().all(|step| matches!(step, Component::Normal(_) | Component::CurDir));
    if !steps_are_plain {
        return Err(io::Error::from(Errno::INVAL));
    }
    // The volume's own path is ours or the administrator's, and may be a link.
    let top = rustix::fs::open(volume, NAMED_DIRECTORY, Mode::empty())?;
    match open_resolved(top.as_fd(), part, FOUND, INSIDE) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => make_part(&top, part),
        Err(cause) if is(&cause, Errno::XDEV) => open_through_absolute_link(&top, volume, part),
        other => other,
    }
}

/// An absolute link may still end inside the volume. Where it ends is found by name, but opened
/// without any link.
fn open_through_absolute_link(top: &OwnedFd, volume: &Path, part: &Path) -> io::Result<OwnedFd> {
    let volume = std::fs::canonicalize(volume)?;
    let end = std::fs::canonicalize(volume.join(part))?;
    let inside = end.strip_prefix(&volume).map_err(|_| io::Error::from(Errno::XDEV))?;
    if inside.as_os_str().is_empty() {
        return top.try_clone();
    }
    open_across(top.as_fd(), inside, FOUND)
}

/// Makes what is missing of the path, step by step, like the volume's own directory.
fn make_part(top: &OwnedFd, part: &Path) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(top)?.st_mode & 0o7777);
    let steps: Vec<_> =
        part.components().filter(|step| matches!(step, Component::Normal(_))).collect();
    let mut current = top.try_clone()?;
    let mut walked = PathBuf::new();
    let mut steps = steps.into_iter();
    for step in steps.by_ref() {
        walked.push(step);
        match open_resolved(top.as_fd(), &walked, NAMED_DIRECTORY, INSIDE) {
            Ok(found) => current = found,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                current = make_step(current.as_fd(), Path::new(step.as_os_str()), mode)?;
                break;
            }
            Err(cause) => return Err(cause),
        }
    }
    for step in steps {
        current = make_step(current.as_fd(), Path::new(step.as_os_str()), mode)?;
    }
    Ok(current)
}

fn make_step(parent: BorrowedFd<'_>, name: &Path, mode: Mode) -> io::Result<OwnedFd> {
    let made = match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(refusal) => return Err(refusal.into()),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let step = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    if made {
        // The process's umask has had its say, and the bit that hands on the group is not taken at
        // making.
        rustix::fs::fchmod(&step, mode)?;
    }
    Ok(step)
}

/// True when something is mounted on the entry.
fn is_covered(directory: &Rooted, name: &str) -> io::Result<bool> {
    let resolve = INSIDE | ResolveFlags::NO_XDEV;
    match open_resolved(directory.as_fd(), Path::new(name), NAMED, resolve) {
        Ok(_plain) => Ok(false),
        Err(cause) if is(&cause, Errno::XDEV) => Ok(true),
        Err(cause) => Err(cause),
    }
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Makes the directory or file that the part will cover.
fn make_target(directory: &Rooted, name: &str, found: &OwnedFd) -> io::Result<OwnedFd> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode);
    let wanted = if kind == FileType::Directory { Kind::Directory } else { Kind::File };
    let there = directory.kind(name)?;
    if there.is_some_and(|there| there != wanted) {
        directory.remove_tree(name)?;
    }
    match wanted {
        Kind::Directory => drop(directory.ensure_directory(name, PRIVATE)?),
        _ if there == Some(wanted) => {}
        _ => drop(directory.create_new(name, 0o640)?),
    }
    open_across(directory.as_fd(), Path::new(name), NAMED)
}

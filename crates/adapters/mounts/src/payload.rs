//! The atomic writer: readers in a container see the old files or the new ones, never a mixture.
//!
//! ```text
//! <volume>/..2026_11_15_21_02_10.279089282/k   the files of one version
//! <volume>/..data -> ..2026_11_15_21_02_10.…   which version counts; replaced by one rename
//! <volume>/k -> ..data/k                       what people see
//! ```
//!
//! In: an open volume and everything it should hold. A version that holds exactly that is kept. A
//! crash in between leaves a version that nobody points to; the next write removes it. Everything
//! happens beneath the volume's descriptor, links are made and read but never followed: what a
//! container may have put there cannot lead us out.

use std::{
    collections::BTreeSet, io, io::Write as _, os::fd::AsFd as _, path::Path,
    sync::atomic::AtomicU64,
};

use ferrolet_linux::rooted::{Kind, Rooted, is_plain_name};
use ferrolet_ports::{Payload, PayloadFile, Written};
use ferrolet_types::Timestamp;
use rustix::fs::{AtFlags, Uid};

use super::fs_group::{Access, set_ownership};

const DATA: &str = "..data";
const DATA_NEXT: &str = "..data_tmp";
const VERSION_MODE: u32 = 0o755;

/// Makes the volume hold exactly the payload.
pub(super) fn write(volume: &Rooted, payload: &Payload, now: Timestamp) -> io::Result<Written> {
    for point in &payload.mount_points {
        volume.ensure_directory(point, VERSION_MODE)?;
    }
    let current = current_version(volume)?;
    let written = match &current {
        Some(version) if holds(volume, version, payload)? => Written::Unchanged,
        _ => {
            replace(volume, payload, now)?;
            Written::Replaced
        }
    };
    show(volume, payload)?;
    tidy(volume, payload)?;
    Ok(written)
}

/// The version that counts; `None` when there is none that could be ours.
fn current_version(volume: &Rooted) -> io::Result<Option<String>> {
    if volume.kind(DATA)? != Some(Kind::Link) {
        return Ok(None);
    }
    let text = volume.read_link(DATA)?.into_os_string().into_string();
    let version = text.ok().filter(|text| is_version(text));
    Ok(match version {
        Some(version) if volume.kind(&version)? == Some(Kind::Directory) => Some(version),
        _ => None,
    })
}

fn is_version(name: &str) -> bool {
    is_plain_name(name) && name.starts_with("..") && !name.starts_with(DATA)
}

fn holds(volume: &Rooted, version: &str, payload: &Payload) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    list_files(&volume.directory(version)?, "", &mut found)?;
    if !found.iter().eq(payload.files.keys()) {
        return Ok(false);
    }
    let version = Path::new(version);
    for (path, file) in &payload.files {
        let held = volume.read(version.join(path), file.content.len() + 1)?;
        if held != file.content {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The relative paths of everything that is not a directory.
fn list_files(directory: &Rooted, prefix: &str, found: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in directory.entries()? {
        let path = format!("{prefix}{}", entry.name.to_string_lossy());
        if entry.kind == Kind::Directory {
            list_files(&directory.directory(&entry.name)?, &format!("{path}/"), found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(())
}

fn replace(volume: &Rooted, payload: &Payload, now: Timestamp) -> io::Result<()> {
    let version = new_version(volume, now)?;
    let filled = fill(volume, &version, payload).and_then(|()| point_at(volume, &version));
    if filled.is_err() {
        // The first failure is the one to report; what stays is removed by the next write.
        volume.remove_tree(&version).ok();
    }
    filled
}

fn new_version(volume: &Rooted, now: Timestamp) -> io::Result<String> {
    let stamp = now.0.strftime("..%Y_%m_%d_%H_%M_%S").to_string();
    let start = now.0.subsec_nanosecond().unsigned_abs();
    for n in 0..1000_u32 {
        let version = format!("{stamp}.{}", start.wrapping_add(n));
        if volume.kind(&version)?.is_none() {
            volume.ensure_directory(&version, VERSION_MODE)?;
            return Ok(version);
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn fill(volume: &Rooted, version: &str, payload: &Payload) -> io::Result<()> {
    let directory = volume.directory(version)?;
    for (path, file) in &payload.files {
        let path = Path::new(path);
        if let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            directory.ensure_directory(parent, VERSION_MODE)?;
        }
        write_file(&directory, path, file)?;
    }
    // The whole volume, because its top and the links in it belong to the group too.
    match payload.group {
        Some(group) => set_ownership(volume, group, Access::ReadOnly, &AtomicU64::new(0)),
        None => Ok(()),
    }
}

fn write_file(directory: &Rooted, path: &Path, file: &PayloadFile) -> io::Result<()> {
    let mut made = directory.create_new(path, file.mode)?;
    made.write_all(&file.content)?;
    if let Some(owner) = file.owner {
        rustix::fs::fchown(&made, Some(Uid::from_raw(owner)), None)?;
    }
    Ok(())
}

fn point_at(volume: &Rooted, version: &str) -> io::Result<()> {
    volume.unlink(DATA_NEXT)?;
    volume.symlink(Path::new(version), DATA_NEXT)?;
    volume.rename(DATA_NEXT, DATA)
}

/// Makes the links that people see.
fn show(volume: &Rooted, payload: &Payload) -> io::Result<()> {
    for (path, file) in &payload.files {
        let name = first_name(path);
        if volume.kind(name)?.is_some() {
            continue;
        }
        volume.symlink(&Path::new(DATA).join(name), name)?;
        if let Some(owner) = file.owner {
            let owner = Some(Uid::from_raw(owner));
            rustix::fs::chownat(volume.as_fd(), name, owner, None, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}

/// Removes links to what is gone, and versions that nobody points to.
fn tidy(volume: &Rooted, payload: &Payload) -> io::Result<()> {
    let shown: BTreeSet<&str> = payload.files.keys().map(|path| first_name(path)).collect();
    let current = current_version(volume)?;
    for entry in volume.entries()? {
        let Some(name) = entry.name.to_str() else {
            continue;
        };
        match entry.kind {
            Kind::Link if !shown.contains(name) && is_shown_link(volume, name)? => {
                volume.unlink(name)?;
            }
            Kind::Directory if is_version(name) && current.as_deref() != Some(name) => {
                volume.remove_tree(name)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// True for a link that [`show`] makes.
fn is_shown_link(volume: &Rooted, name: &str) -> io::Result<bool> {
    Ok(!name.starts_with("..") && volume.read_link(name)? == Path::new(DATA).join(name))
}

fn first_name(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

//! Volumes whose size the file system keeps account of by itself: each has a project of its own
//! (project quotas of ext4 and XFS).
//!
//! In: a new, empty directory. Out: whether it is counted, and later how much is in it, in one call
//! whatever it holds. The directory itself says which project it is, so nothing has to be
//! remembered. Nothing is limited; that is for whoever compares the figures. Refuses: volumes that
//! hold something already, and being a reason for a volume to fail.

use std::{io, os::fd::AsFd as _};

use ferrolet_ports::InUse;

use crate::{
    rooted::Rooted,
    sys::{project_of, project_usage, set_project},
};

/// Where upstream's projects begin; those below are the administrator's.
const FIRST: u32 = 1_048_577;
/// Ids are 31 bits for most tools.
const MOST: u32 = i32::MAX.cast_unsigned() - FIRST;
/// Ids that somebody else has are passed by, so many times.
const TRIES: u32 = 16;

/// Has an empty directory counted from now on, by a project that follows from `name`; `false` where
/// nobody counts.
pub fn meter(volume: &Rooted, name: &str) -> io::Result<bool> {
    let directory = volume.as_fd();
    for n in 0..TRIES {
        let project = FIRST + hash(name).wrapping_add(n) % MOST;
        match project_usage(directory, project) {
            Err(_) => return Ok(false),
            Ok((0, 0)) => {}
            Ok(_) => continue,
        }
        set_project(directory, project)?;
        // The directory alone: nobody else took the same one meanwhile.
        if project_usage(directory, project)?.1 == 1 {
            return Ok(true);
        }
    }
    set_project(directory, 0)?;
    Ok(false)
}

/// What is in a directory that is counted; `None` when it is not.
pub fn metered(volume: &Rooted) -> Option<InUse> {
    let directory = volume.as_fd();
    let project = project_of(directory).ok()??;
    if project < FIRST {
        return None;
    }
    let (bytes, inodes) = project_usage(directory, project).ok()?;
    // A directory is in its own account, unless accounting is off.
    (inodes > 0).then_some(InUse { bytes, inodes })
}

/// FNV-1a: the same volume gets the same id after a crash in the middle.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

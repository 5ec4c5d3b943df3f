//! `fsGroup`: gives everything in a volume to a group.
//!
//! In: a volume, a group, and whether the group may write. Every entry gets the group; files are opened to it for reading (and
//! writing), directories also for entering, with the bit that hands the group on to what is made in them. Links get the group
//! but no mode of their own. What has all of that already is not touched, which makes a second pass cheap.
//!
//! Several threads share one list of directories, each reached beneath the volume's descriptor without links, so a container
//! that swaps entries meanwhile cannot send us elsewhere. Upstream goes on when one entry refuses; so do we, and say so once.
//! Refuses: crossing into what is mounted inside the volume.

use std::{
    ffi::{CStr, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, Stat},
    io::Errno,
};

use super::mounts::NAMED;
use crate::{rooted::Rooted, sys::chmod_entry};

/// More threads than this only make the disk's queue longer.
const MOST_WALKERS: usize = 8;

/// What the group may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadWrite,
    ReadOnly,
}

/// True when the top of the volume belongs to the group already, with everything it may do.
pub(super) fn is_given(volume: &Rooted, group: u32) -> io::Result<bool> {
    let walked = AtomicU64::new(0);
    let top = rustix::fs::fstat(volume.as_fd())?;
    Ok(Walk::new(volume, group, Access::ReadWrite, &walked).is_right(&top))
}

/// Gives the volume and everything in it to the group, counting what it passes.
pub(super) fn give_to_group(
    volume: &Rooted,
    group: u32,
    access: Access,
    walked: &AtomicU64,
) -> io::Result<()> {
    let walk = Walk::new(volume, group, access, walked);
    let found = walk.directory(volume)?;
    if !found.is_empty() {
        walk.together(found)?;
    }
    // The top comes last: a volume whose top is right is taken to be right throughout.
    let top = rustix::fs::fstat(volume.as_fd())?;
    if !walk.is_right(&top) {
        walk.entry(volume.as_fd(), c".", &top);
    }
    let n_refused = walk.n_refused.load(Ordering::Relaxed);
    if n_refused > 0 {
        tracing::warn!(
            n_refused,
            group,
            "Some files of a volume kept their group or mode"
        );
    }
    Ok(())
}

#[derive(Default)]
struct List {
    waiting: Vec<PathBuf>,
    n_busy: usize,
    failure: Option<io::Error>,
}

struct Walk<'a> {
    volume: &'a Rooted,
    group: u32,
    access: Access,
    list: Mutex<List>,
    news: Condvar,
    n_refused: AtomicUsize,
    walked: &'a AtomicU64,
}

impl<'a> Walk<'a> {
    fn new(volume: &'a Rooted, group: u32, access: Access, walked: &'a AtomicU64) -> Self {
        Self {
            volume,
            group,
            access,
            list: Mutex::default(),
            news: Condvar::new(),
            n_refused: AtomicUsize::new(0),
            walked,
        }
    }

    fn together(&self, found: Vec<PathBuf>) -> io::Result<()> {
        self.list().waiting = found;
        let n_walkers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..n_walkers.min(MOST_WALKERS) {
                scope.spawn(|| self.walker());
            }
        });
        self.list().failure.take().map_or(Ok(()), Err)
    }

    fn list(&self) -> std::sync::MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn walker(&self) {
        while let Some(path) = self.next() {
            let found = self.beneath(&path);
            let mut list = self.list();
            list.n_busy -= 1;
            match found {
                Ok(found) => list.waiting.extend(found),
                Err(failure) => {
                    list.failure.get_or_insert(failure);
                }
            }
            self.news.notify_all();
        }
    }

    /// The next directory; `None` when all are done or one failed.
    fn next(&self) -> Option<PathBuf> {
        let mut list = self.list();
        loop {
            if list.failure.is_some() {
                return None;
            }
            if let Some(path) = list.waiting.pop() {
                list.n_busy += 1;
                return Some(path);
            }
            if list.n_busy == 0 {
                return None;
            }
            list = self.news.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn beneath(&self, path: &PathBuf) -> io::Result<Vec<PathBuf>> {
        let directory = match self.volume.directory(path) {
            Ok(directory) => directory,
            Err(cause) if is_not_ours(&cause) => return Ok(Vec::new()),
            Err(cause) => return Err(cause),
        };
        let found = self.directory(&directory)?;
        Ok(found.into_iter().map(|name| path.join(name)).collect())
    }

    /// Every entry of one directory; answers with the names of directories in it.
    fn directory(&self, directory: &Rooted) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let own = rustix::fs::openat(
            directory.as_fd(),
            ".",
            rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::DIRECTORY
                | rustix::fs::OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        for entry in rustix::fs::Dir::new(own)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let stat = rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW);
            let Ok(stat) = stat else { continue };
            self.walked.fetch_add(1, Ordering::Relaxed);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                found.push(PathBuf::from(name));
            }
            if !self.is_right(&stat) {
                self.entry(directory.as_fd(), entry.file_name(), &stat);
            }
        }
        Ok(found)
    }

    /// Gives one entry to the group. Only its name below an open directory is used, and no link is followed.
    fn entry(&self, directory: BorrowedFd<'_>, name: &CStr, stat: &Stat) {
        if stat.st_gid != self.group {
            let group = Some(Gid::from_raw(self.group));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let given = rustix::fs::chownat(directory, name, None, group, flags);
            if given.is_err() {
                self.refused();
            }
        }
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        // A change of group clears the bits that lend an identity, so where there are any the mode is said anew.
        if is_link || (self.has_bits(stat) && stat.st_mode & 0o6000 == 0) {
            return;
        }
        let mode = stat.st_mode & 0o7777 | self.wanted_bits(stat);
        let changed = match chmod_entry(directory, name, mode) {
            Err(cause) if cause.kind() == io::ErrorKind::Unsupported => {
                chmod_named(directory, name, mode)
            }
            other => other,
        };
        match changed {
            // Gone since, or a link by now: not ours to change.
            Err(cause) if is_not_ours(&cause) => {}
            Err(_refusal) => self.refused(),
            Ok(()) => {}
        }
    }

    fn wanted_bits(&self, stat: &Stat) -> u32 {
        let bits = match self.access {
            Access::ReadWrite => 0o660,
            Access::ReadOnly => 0o440,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => bits | 0o2110,
            _ => bits,
        }
    }

    fn is_right(&self, stat: &Stat) -> bool {
        stat.st_gid == self.group
            && (FileType::from_raw_mode(stat.st_mode) == FileType::Symlink || self.has_bits(stat))
    }

    fn has_bits(&self, stat: &Stat) -> bool {
        let wanted = self.wanted_bits(stat);
        stat.st_mode & wanted == wanted
    }

    fn refused(&self) {
        self.n_refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Changes a mode on kernels before 6.6: by a descriptor that names the entry, through `/proc`.
fn chmod_named(directory: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    let named = rustix::fs::openat(directory, name, NAMED, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&named)?.st_mode) == FileType::Symlink {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", named.as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
}

/// Gone, swapped for something else, or the top of another mount: not part of the volume any more.
fn is_not_ours(cause: &io::Error) -> bool {
    let ours = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV];
    ours.iter()
        .any(|errno| cause.raw_os_error() == Some(errno.raw_os_error()))
}

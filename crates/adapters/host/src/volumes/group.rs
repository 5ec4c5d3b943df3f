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
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, Stat},
    io::Errno,
};

use super::mounts::NAMED;
use crate::rooted::Rooted;

/// More threads than this only make the disk's queue longer.
const MOST_WALKERS: usize = 8;

/// What the group may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadWrite,
    ReadOnly,
}

/// Gives the volume and everything in it to the group.
pub(super) fn give_to_group(volume: &Rooted, group: u32, access: Access) -> io::Result<()> {
    let walk = Walk {
        volume,
        group,
        access,
        list: Mutex::default(),
        news: Condvar::new(),
        n_refused: AtomicUsize::new(0),
    };
    let found = walk.directory(volume)?;
    if !found.is_empty() {
        walk.together(found)?;
    }
    // The top comes last: a volume whose top is right is taken to be right throughout.
    let top = rustix::fs::openat(volume.as_fd(), ".", NAMED, Mode::empty())?;
    walk.entry(top.as_fd(), &rustix::fs::fstat(&top)?);
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
}

impl Walk<'_> {
    fn together(&self, found: Vec<PathBuf>) -> io::Result<()> {
        self.list().waiting = found;
        let n_walkers = std::thread::available_parallelism().map_or(1, usize::from) * 2;
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
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                found.push(PathBuf::from(name));
            }
            if self.is_right(&stat) {
                continue;
            }
            match rustix::fs::openat(directory.as_fd(), name, NAMED, Mode::empty()) {
                Ok(named) => match rustix::fs::fstat(&named) {
                    Ok(stat) => self.entry(named.as_fd(), &stat),
                    Err(_refusal) => self.refused(),
                },
                Err(Errno::NOENT) => {}
                Err(_refusal) => self.refused(),
            }
        }
        Ok(found)
    }

    fn entry(&self, named: BorrowedFd<'_>, stat: &Stat) {
        if stat.st_gid != self.group {
            let group = Gid::from_raw(self.group);
            let given = rustix::fs::chownat(named, "", None, Some(group), AtFlags::EMPTY_PATH);
            if given.is_err() {
                self.refused();
            }
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return;
        }
        // Changing the group may have cleared bits, so the mode is always said anew. Through /proc, because the kernel
        // changes modes by descriptor only where it was opened for more than its name.
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 | self.wanted_bits(stat));
        let path = format!("/proc/self/fd/{}", named.as_raw_fd());
        if rustix::fs::chmod(path, mode).is_err() {
            self.refused();
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
        let wanted = self.wanted_bits(stat);
        stat.st_gid == self.group
            && (FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
                || stat.st_mode & wanted == wanted)
    }

    fn refused(&self) {
        self.n_refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Gone, swapped for something else, or the top of another mount: not part of the volume any more.
fn is_not_ours(cause: &io::Error) -> bool {
    let ours = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV];
    ours.iter()
        .any(|errno| cause.raw_os_error() == Some(errno.raw_os_error()))
}

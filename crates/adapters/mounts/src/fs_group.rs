//! `fsGroup`: gives everything in a volume to a group.
//!
//! In: a volume, a group, and whether the group may write. Every entry gets the group; files are
//! opened to it for reading (and writing), directories also for entering, with the bit that hands
//! the group on to what is made in them. Links get the group but no mode of their own. What has all
//! of that already is not touched, which makes a second pass cheap.
//!
//! Several threads share one list of directories, each reached beneath the volume's descriptor
//! without links, so a container that swaps entries meanwhile cannot send us elsewhere. A large
//! directory is shared out in parts. Names are looked up in their open directory, never from the
//! root, which is most of what a serial walk by path spends its time on. Upstream goes on when one
//! entry refuses; so do we, and say so once. Refuses: crossing into what is mounted inside the
//! volume.

use std::{
    ffi::{CStr, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use ferrolet_linux::{rooted::Rooted, sys::chmod_entry};
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat},
    io::Errno,
};

use super::mounts::NAMED;

/// More threads than this only make the disk's queue longer.
const MOST_WALKERS: usize = 8;
/// Threads per processor: a volume that was just mounted has to be read, and a thread that waits
/// for its disk needs nothing else.
const WALKERS_PER_PROCESSOR: usize = 4;
/// A directory with more entries than this is worth more than one thread.
const PART: usize = 512;
/// Parts that may wait; whoever finds more works on them himself.
const MOST_PARTS: usize = 256;

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
pub(super) fn set_ownership(
    volume: &Rooted,
    group: u32,
    access: Access,
    walked: &AtomicU64,
) -> io::Result<()> {
    let walk = Walk::new(volume, group, access, walked);
    walk.begin()?;
    walk.together()?;
    // The top comes last: a volume whose top is right is taken to be right throughout.
    let top = rustix::fs::fstat(volume.as_fd())?;
    if !walk.is_right(&top) {
        walk.entry(volume.as_fd(), c".", &top);
    }
    let n_refused = walk.n_refused.load(Ordering::Relaxed);
    if n_refused > 0 {
        tracing::warn!(n_refused, group, "Some files of a volume kept their group or mode");
    }
    Ok(())
}

/// Names in one directory, each with the NUL at its end: one allocation for many.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    n_names: usize,
}

impl Names {
    fn push(&mut self, name: &CStr) {
        if matches!(name.to_bytes(), b"." | b"..") {
            return;
        }
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
        self.n_names += 1;
    }

    fn iter(&self) -> impl Iterator<Item = &CStr> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let name = CStr::from_bytes_until_nul(rest).ok()?;
            rest = &rest[name.to_bytes_with_nul().len()..];
            Some(name)
        })
    }
}

/// Something for one thread to do.
enum Job {
    /// A directory, by its path in the volume; the top has none.
    Directory(PathBuf),
    /// Some of the entries of a large one.
    Part { directory: Arc<Rooted>, path: PathBuf, names: Names },
}

#[derive(Default)]
struct List {
    waiting: Vec<Job>,
    n_parts: usize,
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

    /// Does a small top alone, which is all there is to most volumes; a large one is left to
    /// everybody.
    fn begin(&self) -> io::Result<()> {
        let mut names = Names::default();
        for entry in listed(self.volume)? {
            names.push(entry?.file_name());
            if names.n_names > PART {
                self.list().waiting.push(Job::Directory(PathBuf::new()));
                return Ok(());
            }
        }
        self.entries(self.volume, Path::new(""), &names);
        Ok(())
    }

    fn together(&self) -> io::Result<()> {
        if self.list().waiting.is_empty() {
            return Ok(());
        }
        let n_processors = std::thread::available_parallelism().map_or(1, usize::from);
        let n_walkers = n_processors.saturating_mul(WALKERS_PER_PROCESSOR);
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
        while let Some(job) = self.next() {
            let done = match job {
                Job::Directory(path) => self.beneath(&path),
                Job::Part { directory, path, names } => {
                    self.entries(&directory, &path, &names);
                    Ok(())
                }
            };
            let mut list = self.list();
            list.n_busy -= 1;
            if let Err(failure) = done {
                list.failure.get_or_insert(failure);
            }
            self.news.notify_all();
        }
    }

    /// The next job; `None` when all are done or one failed.
    fn next(&self) -> Option<Job> {
        let mut list = self.list();
        loop {
            if list.failure.is_some() {
                return None;
            }
            if let Some(job) = list.waiting.pop() {
                list.n_busy += 1;
                list.n_parts -= usize::from(matches!(job, Job::Part { .. }));
                return Some(job);
            }
            if list.n_busy == 0 {
                return None;
            }
            list = self.news.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn beneath(&self, path: &Path) -> io::Result<()> {
        let opened = if path.as_os_str().is_empty() {
            let own = self.volume.as_fd().try_clone_to_owned();
            own.map(Rooted::from)
        } else {
            self.volume.directory(path)
        };
        let directory = match opened {
            Ok(directory) => Arc::new(directory),
            Err(cause) if is_not_ours(&cause) => return Ok(()),
            Err(cause) => return Err(cause),
        };
        let mut names = Names::default();
        for entry in listed(&directory)? {
            names.push(entry?.file_name());
            if names.n_names == PART {
                self.share(&directory, path, std::mem::take(&mut names));
            }
        }
        self.entries(&directory, path, &names);
        Ok(())
    }

    /// Leaves some entries of a directory to whoever is free.
    fn share(&self, directory: &Arc<Rooted>, path: &Path, names: Names) {
        let mut list = self.list();
        if list.n_parts < MOST_PARTS {
            list.n_parts += 1;
            list.waiting.push(Job::Part {
                directory: Arc::clone(directory),
                path: path.to_owned(),
                names,
            });
            return self.news.notify_one();
        }
        drop(list);
        self.entries(directory, path, &names);
    }

    /// Some entries of one directory; directories among them are left to whoever is free.
    fn entries(&self, directory: &Rooted, path: &Path, names: &Names) {
        let mut found = Vec::new();
        for name in names.iter() {
            let stat = rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW);
            let Ok(stat) = stat else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                found.push(Job::Directory(path.join(OsStr::from_bytes(name.to_bytes()))));
            }
            if !self.is_right(&stat) {
                self.entry(directory.as_fd(), name, &stat);
            }
        }
        let n_names = u64::try_from(names.n_names).unwrap_or_default();
        self.walked.fetch_add(n_names, Ordering::Relaxed);
        if !found.is_empty() {
            self.list().waiting.append(&mut found);
            self.news.notify_all();
        }
    }

    /// Gives one entry to the group. Only its name below an open directory is used, and no link is
    /// followed.
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
        // A change of group clears the bits that lend an identity, so where there are any the mode
        // is said anew.
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

/// The entries of a directory, with a position of our own in it.
fn listed(directory: &Rooted) -> io::Result<rustix::fs::Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let own = rustix::fs::openat(directory.as_fd(), ".", flags, Mode::empty())?;
    Ok(rustix::fs::Dir::new(own)?)
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
    ours.iter().any(|errno| cause.raw_os_error() == Some(errno.raw_os_error()))
}

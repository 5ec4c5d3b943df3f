//! Taking down a tree that somebody hostile may have built.
//!
//! Such a tree can be deeper than we have descriptors or stack. So the walk holds at most
//! [`DEEPEST`] directories open; what lies deeper is first moved up into the doomed directory
//! itself and met again in the next pass. It can be larger than we have memory or time, so entries
//! are removed as they are read, and a walk may stop after so many ([`Removed::Part`]). Nothing is
//! ever reached through `..` or through a link.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use rustix::{
    fs::{AtFlags, RenameFlags},
    io::Errno,
};

use super::{DIRECTORY, open_beneath};

const DEEPEST: usize = 48;

/// What a removal has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Nothing is left.
    All,
    /// As much as was asked for; there is more.
    Part,
}

/// Removes `name` in `parent` with everything beneath it, or at most so many entries of it. Absent
/// is success.
pub(super) fn some(parent: BorrowedFd<'_>, name: &OsStr, budget: usize) -> io::Result<Removed> {
    match unlink(parent, name)? {
        Unlinked::Gone => return Ok(Removed::All),
        Unlinked::IsDirectory => {}
    }
    let doomed = match open_beneath(parent, name, DIRECTORY) {
        Ok(doomed) => doomed,
        Err(refusal) if refusal.kind() == io::ErrorKind::NotFound => return Ok(Removed::All),
        Err(refusal) => return Err(refusal),
    };
    let mut walk = Walk { top: doomed.as_fd(), n_moved: 0, n_removed: 0, budget };
    loop {
        let before = (walk.n_moved, walk.n_removed);
        if walk.empty(doomed.as_fd(), 0)? == Removed::Part {
            return Ok(Removed::Part);
        }
        match rmdir(parent, name) {
            // What was moved up is left, and what a reading passed by because others went meanwhile.
            // If nothing went, somebody is adding while we remove.
            Err(Errno::NOTEMPTY | Errno::EXIST) if before != (walk.n_moved, walk.n_removed) => {}
            Err(refusal) => return Err(refusal.into()),
            Ok(()) => return Ok(Removed::All),
        }
    }
}

struct Walk<'a> {
    top: BorrowedFd<'a>,
    n_moved: u64,
    n_removed: usize,
    budget: usize,
}

impl Walk<'_> {
    fn empty(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<Removed> {
        let own = rustix::fs::openat(directory, ".", DIRECTORY, rustix::fs::Mode::empty())?;
        for entry in rustix::fs::Dir::new(own)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if self.n_removed >= self.budget {
                return Ok(Removed::Part);
            }
            match unlink(directory, name)? {
                Unlinked::Gone => self.n_removed += 1,
                Unlinked::IsDirectory if depth >= DEEPEST => self.move_up(directory, name)?,
                Unlinked::IsDirectory => {
                    let child: OwnedFd = match open_beneath(directory, name, DIRECTORY) {
                        Ok(child) => child,
                        Err(refusal) if refusal.kind() == io::ErrorKind::NotFound => continue,
                        Err(refusal) => return Err(refusal),
                    };
                    if self.empty(child.as_fd(), depth + 1)? == Removed::Part {
                        return Ok(Removed::Part);
                    }
                    match rmdir(directory, name) {
                        Ok(()) => self.n_removed += 1,
                        // Passed by, as at the top; the next pass meets it again.
                        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                        Err(refusal) => return Err(refusal.into()),
                    }
                }
            }
        }
        Ok(Removed::All)
    }

    fn move_up(&mut self, directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        // Opening it proves that no other mount stands there before anything moves.
        open_beneath(directory, name, DIRECTORY)?;
        loop {
            self.n_moved += 1;
            let free = OsString::from(format!(".removing-{}", self.n_moved));
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(directory, name, self.top, &free, flags) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
    }
}

enum Unlinked {
    Gone,
    IsDirectory,
}

fn unlink(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Unlinked> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(Unlinked::Gone),
        Err(Errno::ISDIR) => Ok(Unlinked::IsDirectory),
        Err(refusal) => Err(refusal.into()),
    }
}

fn rmdir(directory: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

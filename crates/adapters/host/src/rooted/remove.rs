//! Taking down a tree that somebody hostile may have built.
//!
//! Such a tree can be deeper than we have descriptors or stack. So the walk holds at most [`DEEPEST`] directories open; what
//! lies deeper is first moved up into the doomed directory itself and met again in the next pass. Nothing is ever reached
//! through `..` or through a link.

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

/// Removes `name` in `parent` with everything beneath it. Absent is success.
pub(super) fn tree(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match unlink(parent, name)? {
        Unlinked::Gone => return Ok(()),
        Unlinked::IsDirectory => {}
    }
    let doomed = match open_beneath(parent, name, DIRECTORY) {
        Ok(doomed) => doomed,
        Err(refusal) if refusal.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(refusal) => return Err(refusal),
    };
    let mut walk = Walk { top: doomed.as_fd(), n_moved: 0 };
    loop {
        let moved_before = walk.n_moved;
        walk.empty(doomed.as_fd(), 0)?;
        match rmdir(parent, name) {
            // Only what was moved up can be left; if nothing was, somebody is adding while we remove.
            Err(Errno::NOTEMPTY | Errno::EXIST) if walk.n_moved > moved_before => {}
            Err(refusal) => return Err(refusal.into()),
            Ok(()) => return Ok(()),
        }
    }
}

struct Walk<'a> {
    top: BorrowedFd<'a>,
    n_moved: u64,
}

impl Walk<'_> {
    fn empty(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<()> {
        for name in names(directory)? {
            match unlink(directory, &name)? {
                Unlinked::Gone => {}
                Unlinked::IsDirectory if depth >= DEEPEST => self.move_up(directory, &name)?,
                Unlinked::IsDirectory => {
                    let child: OwnedFd = match open_beneath(directory, &name, DIRECTORY) {
                        Ok(child) => child,
                        Err(refusal) if refusal.kind() == io::ErrorKind::NotFound => continue,
                        Err(refusal) => return Err(refusal),
                    };
                    self.empty(child.as_fd(), depth + 1)?;
                    rmdir(directory, &name)?;
                }
            }
        }
        Ok(())
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

fn names(directory: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let own = rustix::fs::openat(directory, ".", DIRECTORY, rustix::fs::Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(own)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

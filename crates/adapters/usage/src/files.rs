//! Directories of the kernel's own file systems, and their small files, read with as few calls as
//! it takes. Blocking.
//!
//! Three calls per file: open, read, close. Names are the kernel's and ours, never a pod's; links
//! are not followed.

use std::os::fd::OwnedFd;
use std::path::Path;

use ferrolet_types::Timestamp;
use rustix::fs::{FileType, Mode, OFlags};

/// A text shorter than this came in one piece.
const ONE_PIECE: usize = 3000;
/// More than any file read here.
const LIMIT: usize = 256 << 10;

/// An open directory.
pub(super) struct Directory(OwnedFd);

impl Directory {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// The directory of that name below, which must not be a link.
    pub(super) fn child(&self, name: impl AsRef<Path>) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(&self.0, name.as_ref(), flags, Mode::empty());
        opened.ok().map(Self)
    }

    /// The names of the directories below.
    pub(super) fn directories(&self) -> Vec<String> {
        let mut names = Vec::new();
        let Ok(own) = rustix::fs::Dir::read_from(&self.0) else {
            return names;
        };
        for entry in own.flatten() {
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let is_directory = entry.file_type() == FileType::Directory;
            if is_directory && name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// When it was made, as far as the kernel tells.
    pub(super) fn made(&self) -> Option<Timestamp> {
        let stat = rustix::fs::fstat(&self.0).ok()?;
        Some(Timestamp::from_second(stat.st_mtime))
    }

    /// A file's text, in the buffer. A file that is not there, or goes away meanwhile, is `None`.
    /// Names of interfaces and mount points may be any bytes: those that are no text are replaced.
    pub(super) fn read<'a>(&self, name: &str, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty()).ok()?;
        let mut n = 0;
        loop {
            if buffer.len() < n + 4 * ONE_PIECE {
                buffer.resize(n + 16 * ONE_PIECE, 0);
            }
            let more = rustix::io::read(&file, &mut buffer[n..]).ok()?;
            n += more;
            if more == 0 || !(ONE_PIECE..=LIMIT).contains(&n) {
                break;
            }
        }
        if std::str::from_utf8(&buffer[..n]).is_err() {
            buffer[..n].iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        }
        std::str::from_utf8(&buffer[..n]).ok()
    }

    /// A file of one number; `max`, and numbers so large that they mean it, are none.
    pub(super) fn number(&self, name: &str, buffer: &mut Vec<u8>) -> Option<u64> {
        super::parse::number(self.read(name, buffer)?)
    }

    /// Where a link points.
    pub(super) fn link(&self, name: &str) -> Option<Vec<u8>> {
        let target = rustix::fs::readlinkat(&self.0, name, Vec::new()).ok()?;
        Some(target.into_bytes())
    }

    /// The names in it.
    pub(super) fn names(&self) -> impl Iterator<Item = String> + use<> {
        let own = rustix::fs::Dir::read_from(&self.0).ok();
        own.into_iter().flatten().filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().to_str().ok()?;
            (name != "." && name != "..").then(|| name.to_owned())
        })
    }
}

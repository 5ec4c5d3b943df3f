//! An open directory, and the only way to what lies beneath it.
//!
//! In: names that an archive or a store's record gave. Out: descriptors. Every name is resolved by the kernel beneath
//! the directory (`openat2`: beneath, no links, no other mount), so nothing that an image writes can lead out of its
//! own tree, not even while something else changes it.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat},
    io::Errno,
};

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
// Without NOFOLLOW, so that a link is told from a file: the resolution refuses it.
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What makes a directory hide what layers below have in it.
const OPAQUE: &str = "trusted.overlay.opaque";

/// An open directory.
#[derive(Debug)]
pub struct Directory(OwnedFd);

/// Room on disk that something takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Bytes in whole blocks.
    pub bytes: u64,
    /// Files, directories, links and devices.
    pub inodes: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.inodes = self.inodes.saturating_add(more.inodes);
    }
}

impl std::ops::SubAssign for Usage {
    fn sub_assign(&mut self, less: Self) {
        self.bytes = self.bytes.saturating_sub(less.bytes);
        self.inodes = self.inodes.saturating_sub(less.inodes);
    }
}

impl Directory {
    /// Opens a directory of the operator's by name.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Opens a directory beneath; an empty path is this one.
    pub fn beneath(&self, path: &[u8]) -> Result<Self, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        rustix::fs::openat2(&self.0, path, OPEN, Mode::empty(), RESOLVE).map(Self)
    }

    /// Makes a directory of this name; it must not exist.
    pub fn make(&self, name: &[u8], mode: u32) -> Result<Self, Errno> {
        rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(mode))?;
        let made = self.beneath(name)?;
        // The process's umask has had its say.
        rustix::fs::fchmod(&made.0, Mode::from_raw_mode(mode))?;
        Ok(made)
    }

    /// Opens a directory of this name and makes it where it is missing.
    pub fn ensure(&self, name: &[u8], mode: u32) -> Result<Self, Errno> {
        match self.make(name, mode) {
            Err(Errno::EXIST) => self.beneath(name),
            other => other,
        }
    }

    /// What is here under a name, links not followed.
    pub fn stat(&self, name: &[u8]) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens a regular file for reading.
    pub fn read(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::openat2(&self.0, name, flags, Mode::empty(), RESOLVE)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
        }
        Ok(file)
    }

    /// Makes a new file for writing.
    pub fn create(&self, name: &[u8], mode: u32) -> Result<File, Errno> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(mode)).map(File::from)
    }

    /// Moves an entry to a name that is free in another directory.
    pub fn move_to(&self, name: &[u8], target: &Self, new_name: &[u8]) -> Result<(), Errno> {
        rustix::fs::renameat_with(&self.0, name, &target.0, new_name, RenameFlags::NOREPLACE)
    }

    /// Moves an entry over whatever has the name in this directory.
    pub fn replace(&self, name: &[u8], new_name: &[u8]) -> Result<(), Errno> {
        rustix::fs::renameat(&self.0, name, &self.0, new_name)
    }

    /// The names in it.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names)
    }

    /// Marks it as hiding what layers below have in it.
    pub(crate) fn hide_below(&self) -> Result<(), Errno> {
        rustix::fs::fsetxattr(&self.0, OPAQUE, b"y", rustix::fs::XattrFlags::empty())
    }

    /// Whether it hides what layers below have in it.
    pub(crate) fn hides_below(&self) -> Result<bool, Errno> {
        let mut value = [0_u8; 1];
        match rustix::fs::fgetxattr(&self.0, OPAQUE, &mut value) {
            Ok(n) => Ok(n == 1 && value == *b"y"),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes an entry with everything in it and says how much room that gave back.
    ///
    /// Directories within directories are first moved up into the one that is being removed: any depth takes two
    /// descriptors and no recursion.
    pub fn remove(&self, name: &[u8]) -> io::Result<Usage> {
        let stat = self.stat(name)?;
        if !is_directory(&stat) {
            rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?;
            return Ok(usage_of(&stat));
        }
        let top = self.beneath(name)?;
        let mut given_back = usage_of(&stat);
        let mut n_moved = 0_u64;
        loop {
            let names = top.names()?;
            if names.is_empty() {
                break;
            }
            for name in names {
                given_back += top.remove_level(name.as_bytes(), &mut n_moved)?;
            }
        }
        rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?;
        Ok(given_back)
    }

    /// Removes one entry of this directory; directories in it come up to this one and are left.
    fn remove_level(&self, name: &[u8], n_moved: &mut u64) -> io::Result<Usage> {
        let stat = self.stat(name)?;
        let mut given_back = usage_of(&stat);
        if !is_directory(&stat) {
            rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?;
            return Ok(given_back);
        }
        let inner = self.beneath(name)?;
        for child in inner.names()? {
            let child = child.as_bytes();
            let stat = inner.stat(child)?;
            if !is_directory(&stat) {
                rustix::fs::unlinkat(&inner.0, child, AtFlags::empty())?;
                given_back += usage_of(&stat);
                continue;
            }
            loop {
                *n_moved += 1;
                match inner.move_to(child, self, format!("{n_moved}").as_bytes()) {
                    Err(Errno::EXIST) => {}
                    other => break other?,
                }
            }
        }
        rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?;
        Ok(given_back)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Directory> for OwnedFd {
    fn from(directory: Directory) -> Self {
        directory.0
    }
}

pub(crate) fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// A character device 0:0, overlay's mark for what a layer takes away.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// What removing this name gives back: nothing while the file has other names.
fn usage_of(stat: &Stat) -> Usage {
    if !is_directory(stat) && stat.st_nlink > 1 {
        return Usage::default();
    }
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    Usage { bytes: blocks.saturating_mul(512), inodes: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_any_depth_is_removed_without_following_links() {
        let place = tempfile::tempdir().unwrap();
        let root = Directory::open(place.path()).unwrap();
        root.create(b"outside", 0o600).unwrap();
        let top = root.make(b"top", 0o755).unwrap();
        // Names that the removal itself would give.
        top.make(b"1", 0o755).unwrap().make(b"2", 0o755).unwrap();
        let mut deep = top.make(b"d", 0o755).unwrap();
        for _ in 0..3000 {
            deep = deep.make(b"d", 0o755).unwrap();
        }
        deep.create(b"file", 0o600).unwrap();
        rustix::fs::symlinkat("../outside", &top, "link").unwrap();
        rustix::fs::symlinkat("..", &top, "up").unwrap();
        let given_back = root.remove(b"top").unwrap();
        assert_eq!(given_back.inodes, 1 + 2 + 1 + 3000 + 1 + 2);
        assert_eq!(root.names().unwrap(), ["outside"]);
    }

    #[test]
    fn a_link_is_never_a_way() {
        let place = tempfile::tempdir().unwrap();
        let root = Directory::open(place.path()).unwrap();
        let inner = root.make(b"inner", 0o755).unwrap();
        rustix::fs::symlinkat("/", &inner, "host").unwrap();
        rustix::fs::symlinkat("/etc/passwd", &inner, "file").unwrap();
        assert_eq!(inner.beneath(b"host").unwrap_err(), Errno::LOOP);
        assert_eq!(inner.beneath(b"host/etc").unwrap_err(), Errno::LOOP);
        assert_eq!(inner.beneath(b"..").unwrap_err(), Errno::XDEV);
        assert!(inner.read(b"file").is_err());
        assert_eq!(inner.create(b"file", 0o600).unwrap_err(), Errno::EXIST);
    }
}

//! Rooted descriptors: one type for every path that a pod can influence.
//!
//! A [`Rooted`] holds an open directory; everything else is named relative to it and resolved by
//! the kernel with `openat2(RESOLVE_BENEATH | NO_SYMLINKS | NO_MAGICLINKS | NO_XDEV)`. In: relative
//! names of plain components. Out: files, entries, or the kernel's refusal (`ELOOP` for a link,
//! `EXDEV` for another mount).
//!
//! Must never happen: following a symbolic link, leaving the tree, crossing a mount point, blocking
//! on a FIFO. Two thirds of the kubelet's published holes were one of these. The root
//! itself is opened by name and may be a link: its path comes from the operator, not from a pod.

mod remove;
#[cfg(test)]
mod tests;

pub use remove::Removed;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
// Non-blocking, so that opening a FIFO returns at once and can be told from a file.
const FILE: OFlags =
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// An open directory, and the only way to what lies beneath it.
#[derive(Debug)]
pub struct Rooted {
    directory: OwnedFd,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// What it is; links are never looked through.
    pub kind: Kind,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A socket, FIFO or device.
    Special,
}

/// Whether an atomic write must survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Content and name are on disk when the call returns.
    Synced,
    /// Content is whole whenever the file is seen, but may be lost with the power.
    Cached,
}

impl Rooted {
    /// Opens the root by name, following the operator's links.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { directory })
    }

    /// Opens a directory beneath as a root of its own.
    pub fn directory(&self, beneath: impl AsRef<Path>) -> io::Result<Self> {
        let directory = self.resolve(beneath.as_ref(), DIRECTORY)?;
        Ok(Self { directory })
    }

    /// Opens a directory beneath, making it and its parents where missing. What is made gets
    /// exactly `mode`.
    pub fn ensure_directory(&self, beneath: impl AsRef<Path>, mode: u32) -> io::Result<Self> {
        let mode = Mode::from_raw_mode(mode);
        let mut current: Option<Self> = None;
        for name in components(beneath.as_ref())? {
            let parent = current.as_ref().unwrap_or(self);
            let made = match rustix::fs::mkdirat(&parent.directory, name, mode) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(refusal) => return Err(refusal.into()),
            };
            let child = parent.directory(name)?;
            if made {
                // The process's umask has had its say; the layout's modes are fixed.
                rustix::fs::fchmod(&child.directory, mode)?;
            }
            current = Some(child);
        }
        current.ok_or_else(|| plain_names_only(beneath.as_ref()))
    }

    /// Makes a directory that something may be mounted on already: unlike
    /// [`Self::ensure_directory`] it does not step inside.
    pub fn ensure_directory_across(&self, name: &str, mode: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(mode);
        let (parent, name) = self.parent_of(Path::new(name))?;
        match rustix::fs::mkdirat(parent.as_fd(), name, mode) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// A descriptor that names an entry of any kind without opening it; `EXDEV` when something is
    /// mounted on it.
    pub fn open_named(&self, beneath: impl AsRef<Path>) -> io::Result<OwnedFd> {
        self.resolve(beneath.as_ref(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)
    }

    /// Opens a regular file for reading.
    pub fn open_file(&self, beneath: impl AsRef<Path>) -> io::Result<File> {
        let file = File::from(self.resolve(beneath.as_ref(), FILE | OFlags::RDONLY)?);
        regular(file)
    }

    /// Opens an existing regular file for writing from its start, as control files want it.
    pub fn write_existing(&self, beneath: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
        let flags = FILE | OFlags::WRONLY;
        let mut file = regular(File::from(self.resolve(beneath.as_ref(), flags)?))?;
        // Cut only after the check: O_TRUNC at opening would already have changed what we may not
        // touch.
        file.set_len(0)?;
        file.write_all(content)
    }

    /// Makes a file that was not there before, with exactly `mode`.
    pub fn create_new(&self, beneath: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        let (parent, name) = self.parent_of(beneath.as_ref())?;
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::from_raw_mode(mode);
        let file = rustix::fs::openat2(parent.as_fd(), name, flags, mode, RESOLVE)?;
        rustix::fs::fchmod(&file, mode)?;
        Ok(File::from(file))
    }

    /// Reads the first `limit` bytes of a regular file.
    pub fn read(&self, beneath: impl AsRef<Path>, limit: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let bound = u64::try_from(limit).unwrap_or(u64::MAX);
        self.open_file(beneath)?.take(bound).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Reads the last `limit` bytes of a regular file.
    pub fn read_end(&self, beneath: impl AsRef<Path>, limit: usize) -> io::Result<Vec<u8>> {
        let mut file = self.open_file(beneath)?;
        let bound = u64::try_from(limit).unwrap_or(u64::MAX);
        let start = file.metadata()?.len().saturating_sub(bound);
        file.seek(SeekFrom::Start(start))?;
        let mut content = Vec::new();
        // Bounded again: a writer may append while we read.
        file.take(bound).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Replaces a file in one step: readers see the old content or the new, never a part.
    pub fn write_atomically(
        &self,
        beneath: impl AsRef<Path>,
        content: &[u8],
        mode: u32,
        durability: Durability,
    ) -> io::Result<()> {
        let (parent, name) = self.parent_of(beneath.as_ref())?;
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(".tmp");
        let parent = Self { directory: parent.as_fd().try_clone_to_owned()? };
        // Left over from a crash between the two steps; nobody else writes under this name.
        parent.unlink(&temporary)?;
        let mut file = parent.create_new(&temporary, mode)?;
        let written = file.write_all(content).and_then(|()| match durability {
            Durability::Synced => file.sync_all(),
            Durability::Cached => Ok(()),
        });
        let replaced = written.and_then(|()| {
            rustix::fs::renameat(&parent.directory, &temporary, &parent.directory, name)
                .map_err(io::Error::from)
        });
        if replaced.is_err() {
            parent.unlink(&temporary)?;
        }
        replaced?;
        match durability {
            Durability::Synced => Ok(rustix::fs::fsync(&parent.directory)?),
            Durability::Cached => Ok(()),
        }
    }

    /// Has the disk keep the names that are in the directory now.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.directory)?)
    }

    /// Renames an entry within the tree, replacing a file of the new name.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let (old_parent, old) = self.parent_of(from.as_ref())?;
        let (new_parent, new) = self.parent_of(to.as_ref())?;
        Ok(rustix::fs::renameat(old_parent.as_fd(), old, new_parent.as_fd(), new)?)
    }

    /// Removes a file or a link itself. Absent is success.
    pub fn unlink(&self, beneath: impl AsRef<Path>) -> io::Result<()> {
        self.remove_entry(beneath.as_ref(), AtFlags::empty())
    }

    /// Removes an empty directory. Absent is success.
    pub fn remove_directory(&self, beneath: impl AsRef<Path>) -> io::Result<()> {
        self.remove_entry(beneath.as_ref(), AtFlags::REMOVEDIR)
    }

    /// Makes a symbolic link with the given text; nothing is looked up at its target.
    pub fn symlink(&self, target: &Path, beneath: impl AsRef<Path>) -> io::Result<()> {
        let (parent, name) = self.parent_of(beneath.as_ref())?;
        Ok(rustix::fs::symlinkat(target, parent.as_fd(), name)?)
    }

    /// The text of a symbolic link.
    pub fn read_link(&self, beneath: impl AsRef<Path>) -> io::Result<PathBuf> {
        let (parent, name) = self.parent_of(beneath.as_ref())?;
        let text = rustix::fs::readlinkat(parent.as_fd(), name, Vec::new())?;
        Ok(OsString::from_vec(text.into_bytes()).into())
    }

    /// What stands at a name; `None` when nothing does.
    pub fn kind(&self, beneath: impl AsRef<Path>) -> io::Result<Option<Kind>> {
        let found = self.parent_of(beneath.as_ref()).and_then(|(parent, name)| {
            let stat = rustix::fs::statat(parent.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(kind_of(FileType::from_raw_mode(stat.st_mode)))
        });
        match found {
            Ok(kind) => Ok(Some(kind)),
            Err(refusal) if refusal.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// The entries of this directory, in the file system's order.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        self.stream()?.collect()
    }

    /// The same, one after the other: for directories that a pod has filled.
    pub fn stream(&self) -> io::Result<impl Iterator<Item = io::Result<Entry>> + '_> {
        // A descriptor of its own: reading moves a position that would otherwise be shared.
        let own = rustix::fs::openat(&self.directory, ".", DIRECTORY, Mode::empty())?;
        let all = rustix::fs::Dir::new(own)?;
        Ok(all.filter_map(|entry| {
            entry.map_err(io::Error::from).and_then(|it| self.entry(&it)).transpose()
        }))
    }

    fn entry(&self, found: &rustix::fs::DirEntry) -> io::Result<Option<Entry>> {
        let name = OsString::from_vec(found.file_name().to_bytes().to_vec());
        if name == "." || name == ".." {
            return Ok(None);
        }
        let kind = match found.file_type() {
            FileType::Unknown => self.kind(&name)?,
            known => Some(kind_of(known)),
        };
        Ok(kind.map(|kind| Entry { name, kind }))
    }

    /// Removes an entry with everything beneath it. Absent is success.
    ///
    /// Links are removed, not followed. A mount point stops it with `EXDEV` or `EBUSY`; what was
    /// removed before stays removed, so callers look at the mount table first.
    pub fn remove_tree(&self, beneath: impl AsRef<Path>) -> io::Result<()> {
        self.remove_some(beneath, usize::MAX).map(|_| ())
    }

    /// The same, but stops after so many entries: for trees that a pod has filled.
    pub fn remove_some(&self, beneath: impl AsRef<Path>, budget: usize) -> io::Result<Removed> {
        match self.parent_of(beneath.as_ref()) {
            Ok((parent, name)) => remove::some(parent.as_fd(), name, budget),
            Err(refusal) if refusal.kind() == io::ErrorKind::NotFound => Ok(Removed::All),
            Err(refusal) => Err(refusal),
        }
    }

    /// Where this directory really is, with all links resolved: for comparing with the mount table,
    /// never for opening.
    pub fn real_path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }

    fn resolve(&self, beneath: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        components(beneath)?;
        open_beneath(self.directory.as_fd(), beneath.as_os_str(), flags)
    }

    /// The directory that holds the last component, and that component.
    fn parent_of<'a>(&self, beneath: &'a Path) -> io::Result<(Parent<'_>, &'a OsStr)> {
        let mut names = components(beneath)?;
        let name = names.pop().ok_or_else(|| plain_names_only(beneath))?;
        if names.is_empty() {
            return Ok((Parent::Same(self.directory.as_fd()), name));
        }
        let parent: PathBuf = names.iter().collect();
        Ok((Parent::Opened(self.resolve(&parent, DIRECTORY)?), name))
    }

    fn remove_entry(&self, beneath: &Path, flags: AtFlags) -> io::Result<()> {
        let removed = self.parent_of(beneath).and_then(|(parent, name)| {
            rustix::fs::unlinkat(parent.as_fd(), name, flags).map_err(io::Error::from)
        });
        match removed {
            Err(refusal) if refusal.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

impl From<OwnedFd> for Rooted {
    /// Takes a directory that its opener has already found to be the right one.
    fn from(directory: OwnedFd) -> Self {
        Self { directory }
    }
}

impl AsFd for Rooted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// True when the text can stand as one name in a directory: the guard for uids and names that come
/// from manifests.
pub fn is_plain_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text != "."
        && text != ".."
        && !text.contains(['/', '\0'])
}

enum Parent<'a> {
    Same(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Same(same) => *same,
            Self::Opened(opened) => opened.as_fd(),
        }
    }
}

fn open_beneath(directory: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    // The kernel asks for another try when the tree moved under its feet; a tree that never rests
    // is refused.
    const TRIES: usize = 16;
    let mut answer = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        answer = rustix::fs::openat2(directory, name, flags, Mode::empty(), RESOLVE);
        if !matches!(answer, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    Ok(answer?)
}

/// The path's names; anything but plain names is refused before the kernel sees it.
fn components(beneath: &Path) -> io::Result<Vec<&OsStr>> {
    beneath
        .components()
        .map(|component| match component {
            Component::Normal(name) => Ok(name),
            _ => Err(plain_names_only(beneath)),
        })
        .collect::<io::Result<Vec<_>>>()
        .and_then(|names| if names.is_empty() { Err(plain_names_only(beneath)) } else { Ok(names) })
}

fn plain_names_only(beneath: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{} is not a relative path of plain names", beneath.display()),
    )
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

fn kind_of(kind: FileType) -> Kind {
    match kind {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Link,
        _ => Kind::Special,
    }
}

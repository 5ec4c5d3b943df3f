//! Entries to files. One directory descriptor is kept open, because entries come directory by directory.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write as _},
    os::fd::AsFd,
    rc::Rc,
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};

use super::{
    OpenEnds, Ownership, UnpackError, Unpacked, lossy,
    name::{Place, Wanted, target, wanted},
};
use crate::{
    digest::Digest,
    directory::{Directory, Usage, is_directory, is_whiteout},
    limits::{Limits, within},
    tar::{Entry, Kind, Reader},
};

/// How much is written before the disk is looked at again.
const LOOK_EVERY: u64 = 16 << 20;
const CAPABILITY: &[u8] = b"security.capability";

pub(super) struct Writer<'d> {
    root: &'d Directory,
    limits: Limits,
    block: u64,
    usage: Usage,
    n_made: u64,
    ownership: Option<Ownership>,
    open_ends: OpenEnds,
    /// Times of directories: what is put into one changes them, so they are set at the end.
    times: BTreeMap<Vec<u8>, (i64, u32)>,
    remembered: usize,
    parent: Option<(Vec<u8>, Rc<Directory>)>,
    unlooked: u64,
    buffer: Vec<u8>,
}

impl<'d> Writer<'d> {
    pub(super) fn new(root: &'d Directory, limits: &Limits) -> Result<Self, UnpackError> {
        let block =
            rustix::fs::fstatvfs(root).map_err(failed("look at the disk of", b"/"))?.f_frsize;
        let writer = Self {
            root,
            limits: limits.clone(),
            block: block.max(512),
            // The root directory is there already.
            usage: Usage { bytes: block.max(512), inodes: 1 },
            n_made: 0,
            ownership: None,
            open_ends: OpenEnds::default(),
            times: BTreeMap::new(),
            remembered: 0,
            parent: None,
            unlooked: 0,
            buffer: vec![0; 64 * 1024],
        };
        writer.look_at_disk(0)?;
        Ok(writer)
    }

    pub(super) fn take<R: Read>(
        &mut self,
        entry: &Entry,
        content: &mut Reader<R>,
    ) -> Result<(), UnpackError> {
        match wanted(&entry.path)? {
            Wanted::Nothing => Ok(()),
            Wanted::Root => self.take_root(entry),
            Wanted::Opaque(path) => self.take_opaque(&path),
            Wanted::Absent(place) => self.take_whiteout(&place),
            Wanted::Entry(place) => match entry.kind {
                Kind::Directory => self.take_directory(&place, entry),
                Kind::File => self.take_file(&place, entry, content),
                Kind::HardLink => self.take_hard_link(&place, &entry.link),
                Kind::SymbolicLink => self.take_symbolic_link(&place, entry),
                Kind::CharacterDevice => self.take_node(&place, entry, FileType::CharacterDevice),
                Kind::BlockDevice => self.take_node(&place, entry, FileType::BlockDevice),
                Kind::Fifo => self.take_node(&place, entry, FileType::Fifo),
            },
        }
    }

    pub(super) fn finish(self, diff_id: Digest) -> Result<Unpacked, UnpackError> {
        // The deepest first would do as well: setting a directory's times changes no other's.
        for (path, modified) in &self.times {
            let directory = self.root.beneath(path).map_err(failed("open directory", path))?;
            rustix::fs::futimens(&directory, &times(*modified))
                .map_err(failed("set the times of", path))?;
        }
        Ok(Unpacked { diff_id, usage: self.usage, root: self.ownership, open_ends: self.open_ends })
    }

    fn take_root(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        if entry.kind != Kind::Directory {
            return Err(UnpackError::Outside { path: lossy(&entry.path) });
        }
        self.ownership = Some(Ownership { mode: entry.mode, uid: entry.uid, gid: entry.gid });
        dress(self.root, entry, b"/")?;
        self.remember_times(b"", entry.modified)
    }

    fn take_opaque(&mut self, path: &[u8]) -> Result<(), UnpackError> {
        let directory = self.open_parent(path, path)?;
        directory.hide_below().map_err(failed("mark as opaque", path))
    }

    /// A whiteout speaks of the layers below only: what this layer itself has under the name stays.
    fn take_whiteout(&mut self, place: &Place) -> Result<(), UnpackError> {
        let parent = self.open_parent(place.parent(), place.path())?;
        match parent.stat(place.name()) {
            Ok(stat) if is_directory(&stat) => {
                let directory =
                    parent.beneath(place.name()).map_err(failed("open directory", place.path()))?;
                directory.hide_below().map_err(failed("mark as opaque", place.path()))
            }
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => {
                let mode = Mode::empty();
                rustix::fs::mknodat(&*parent, place.name(), FileType::CharacterDevice, mode, 0)
                    .map_err(failed("make whiteout", place.path()))?;
                self.account(0, 1)
            }
            Err(error) => Err(failed("look at", place.path())(error)),
        }
    }

    fn take_directory(&mut self, place: &Place, entry: &Entry) -> Result<(), UnpackError> {
        let parent = self.open_parent(place.parent(), place.path())?;
        let open = |error| failed("make directory", place.path())(error);
        let directory = match parent.make(place.name(), 0o700) {
            Ok(made) => {
                self.account(self.block, 1)?;
                made
            }
            Err(Errno::EXIST) => {
                let stat = parent.stat(place.name()).map_err(open)?;
                if is_directory(&stat) {
                    parent.beneath(place.name()).map_err(open)?
                } else {
                    // What was there hid what layers below have under the name; its successor does too.
                    self.clear(&parent, place)?;
                    let made = parent.make(place.name(), 0o700).map_err(open)?;
                    self.account(self.block, 1)?;
                    made.hide_below().map_err(failed("mark as opaque", place.path()))?;
                    made
                }
            }
            Err(error) => return Err(open(error)),
        };
        if self.open_ends.unlisted.remove(place.path()) {
            self.remembered = self.remembered.saturating_sub(place.path().len());
        }
        self.open_ends.links.remove(place.path());
        dress(&directory, entry, place.path())?;
        self.remember_times(place.path(), entry.modified)
    }

    fn take_file<R: Read>(
        &mut self,
        place: &Place,
        entry: &Entry,
        content: &mut Reader<R>,
    ) -> Result<(), UnpackError> {
        self.account(0, 1)?;
        if entry.size >= LOOK_EVERY {
            self.look_at_disk(entry.size)?;
        }
        let parent = self.open_parent(place.parent(), place.path())?;
        let create = || parent.create(place.name(), 0o600);
        let mut file = match create() {
            Err(Errno::EXIST) => {
                self.clear(&parent, place)?;
                create()
            }
            other => other,
        }
        .map_err(failed("create file", place.path()))?;
        self.open_ends.links.remove(place.path());
        self.copy(&mut file, content, place.path())?;
        dress(&file, entry, place.path())?;
        rustix::fs::futimens(&file, &times(entry.modified))
            .map_err(failed("set the times of", place.path()))
    }

    fn copy<R: Read>(
        &mut self,
        file: &mut File,
        content: &mut Reader<R>,
        path: &[u8],
    ) -> Result<(), UnpackError> {
        let mut size = 0_u64;
        loop {
            let n = content.read_content(&mut self.buffer)?;
            if n == 0 {
                return Ok(());
            }
            file.write_all(&self.buffer[..n]).map_err(failed("write file", path))?;
            let before = size.next_multiple_of(self.block);
            size += n as u64;
            self.account(size.next_multiple_of(self.block) - before, 0)?;
        }
    }

    fn take_symbolic_link(&mut self, place: &Place, entry: &Entry) -> Result<(), UnpackError> {
        self.account(0, 1)?;
        let parent = self.free(place)?;
        rustix::fs::symlinkat(entry.link.as_slice(), &*parent, place.name())
            .map_err(failed("make link", place.path()))?;
        own_at(&parent, place, entry)?;
        times_at(&parent, place, entry)
    }

    fn take_node(
        &mut self,
        place: &Place,
        entry: &Entry,
        kind: FileType,
    ) -> Result<(), UnpackError> {
        self.account(0, 1)?;
        let parent = self.free(place)?;
        let device = match kind {
            FileType::Fifo => 0,
            _ => rustix::fs::makedev(entry.device.0, entry.device.1),
        };
        rustix::fs::mknodat(&*parent, place.name(), kind, Mode::empty(), device)
            .map_err(failed("make device", place.path()))?;
        own_at(&parent, place, entry)?;
        // It was just made and is no link, and nobody else writes here.
        rustix::fs::chmodat(
            &*parent,
            place.name(),
            Mode::from_raw_mode(entry.mode),
            AtFlags::empty(),
        )
        .map_err(failed("set the mode of", place.path()))?;
        times_at(&parent, place, entry)
    }

    /// The first name of a file says who owns it; further ones only name it.
    fn take_hard_link(&mut self, place: &Place, link: &[u8]) -> Result<(), UnpackError> {
        let target = target(link)?;
        if target.path() == place.path() {
            return Err(UnpackError::OwnLink { path: lossy(place.path()) });
        }
        let parent = self.free(place)?;
        let linked = self.root.beneath(target.parent()).and_then(|from| {
            rustix::fs::linkat(&from, target.name(), &*parent, place.name(), AtFlags::empty())
        });
        match linked {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => {
                self.remember(place.path().len() + target.path().len())?;
                self.open_ends.links.insert(place.path().to_vec(), target.path().to_vec());
                Ok(())
            }
            Err(Errno::LOOP) => Err(UnpackError::Beneath { path: lossy(link), what: "a link" }),
            Err(error) => Err(failed("link", place.path())(error)),
        }
    }

    /// The parent of a place, with nothing under the place's name.
    fn free(&mut self, place: &Place) -> Result<Rc<Directory>, UnpackError> {
        let parent = self.open_parent(place.parent(), place.path())?;
        self.open_ends.links.remove(place.path());
        self.clear(&parent, place)?;
        Ok(parent)
    }

    /// Takes away what an earlier entry of this layer put there.
    fn clear(&mut self, parent: &Directory, place: &Place) -> Result<(), UnpackError> {
        let stat = match parent.stat(place.name()) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(failed("look at", place.path()))?,
        };
        self.usage -= parent.remove(place.name()).map_err(failed("replace", place.path()))?;
        if is_directory(&stat) {
            self.parent = None;
            let beneath = [place.path(), b"/"].concat();
            let is_gone = |path: &[u8]| path == place.path() || path.starts_with(&beneath);
            self.times.retain(|path, _| !is_gone(path));
            self.open_ends.unlisted.retain(|path| !is_gone(path));
            self.open_ends.links.retain(|path, _| !is_gone(path));
        }
        Ok(())
    }

    /// Opens a directory that an entry goes into; what is missing is made and noted as not listed.
    fn open_parent(&mut self, path: &[u8], entry: &[u8]) -> Result<Rc<Directory>, UnpackError> {
        if let Some((open, directory)) = &self.parent
            && open == path
        {
            return Ok(directory.clone());
        }
        let directory = match self.root.beneath(path) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR) => self.make_parents(path, entry)?,
            Err(Errno::LOOP) => {
                return Err(UnpackError::Beneath { path: lossy(entry), what: "a link" });
            }
            Err(error) => return Err(failed("open directory", path)(error)),
        };
        let directory = Rc::new(directory);
        self.parent = Some((path.to_vec(), directory.clone()));
        Ok(directory)
    }

    fn make_parents(&mut self, path: &[u8], entry: &[u8]) -> Result<Directory, UnpackError> {
        let mut current = self.root.beneath(b"").map_err(failed("open directory", b"/"))?;
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        let mut begin = 0;
        for end in ends.chain([path.len()]) {
            let (name, so_far) = (&path[begin..end], &path[..end]);
            begin = end + 1;
            let made = |error| failed("make directory", so_far)(error);
            current = match current.beneath(name) {
                Ok(next) => next,
                Err(Errno::NOENT) => {
                    self.account(self.block, 1)?;
                    self.remember(so_far.len())?;
                    self.open_ends.unlisted.insert(so_far.to_vec());
                    current.make(name, 0o755).map_err(made)?
                }
                Err(Errno::NOTDIR) if current.stat(name).is_ok_and(|stat| is_whiteout(&stat)) => {
                    self.account(self.block, 1)?;
                    self.usage -= current.remove(name).map_err(failed("replace", so_far))?;
                    let next = current.make(name, 0o755).map_err(made)?;
                    next.hide_below().map_err(failed("mark as opaque", so_far))?;
                    next
                }
                Err(Errno::NOTDIR) => {
                    return Err(UnpackError::Beneath { path: lossy(entry), what: "a file" });
                }
                Err(Errno::LOOP) => {
                    return Err(UnpackError::Beneath { path: lossy(entry), what: "a link" });
                }
                Err(error) => return Err(made(error)),
            };
        }
        Ok(current)
    }

    /// Counts room and entries, and looks at the disk now and then.
    fn account(&mut self, bytes: u64, inodes: u64) -> Result<(), UnpackError> {
        self.usage += Usage { bytes, inodes };
        self.n_made += inodes;
        within("entries in a layer", self.n_made, self.limits.n_entries)?;
        if let Some(most) = self.limits.image_bytes {
            within("bytes in an image", self.usage.bytes, most)?;
        }
        // Inodes take room too.
        self.unlooked = self.unlooked.saturating_add(bytes + inodes * 256);
        if self.unlooked >= LOOK_EVERY {
            self.unlooked = 0;
            self.look_at_disk(0)?;
        }
        Ok(())
    }

    fn look_at_disk(&self, wanted: u64) -> Result<(), UnpackError> {
        let disk = rustix::fs::fstatvfs(self.root).map_err(failed("look at the disk of", b"/"))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let reserved = self.limits.reserved_bytes;
        if free < reserved.saturating_add(wanted) {
            Err(UnpackError::Room { reserved })
        } else {
            Ok(())
        }
    }

    fn remember_times(&mut self, path: &[u8], modified: (i64, u32)) -> Result<(), UnpackError> {
        if self.times.insert(path.to_vec(), modified).is_none() {
            self.remember(path.len())?;
        }
        Ok(())
    }

    fn remember(&mut self, bytes: usize) -> Result<(), UnpackError> {
        // What a map keeps beside the name.
        self.remembered += bytes + 64;
        within(
            "bytes of names to remember",
            self.remembered as u64,
            self.limits.remembered_bytes as u64,
        )?;
        Ok(())
    }
}

/// Owner, attributes and mode, in this order: a change of owner takes capabilities and set-id bits away.
fn dress(file: &impl AsFd, entry: &Entry, path: &[u8]) -> Result<(), UnpackError> {
    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
    rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(failed("set the owner of", path))?;
    for (name, value) in &entry.attributes {
        if !is_kept(name) {
            continue;
        }
        match rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
            // Without its capabilities a program fails; without the rest it runs.
            Err(Errno::OPNOTSUPP) if name != CAPABILITY => {}
            other => other.map_err(failed("set an attribute of", path))?,
        }
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode))
        .map_err(failed("set the mode of", path))
}

/// Which attributes an image may bring. Overlay's own would let a layer point into others; labels are the host's to
/// give.
fn is_kept(name: &[u8]) -> bool {
    let is_overlays =
        [b"trusted.overlay.".as_slice(), b"user.overlay."].iter().any(|it| name.starts_with(it));
    let is_plain = [b"user.".as_slice(), b"trusted.", b"system.posix_acl_"]
        .iter()
        .any(|it| name.starts_with(it));
    name == CAPABILITY || is_plain && !is_overlays
}

fn own_at(parent: &Directory, place: &Place, entry: &Entry) -> Result<(), UnpackError> {
    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
    rustix::fs::chownat(parent, place.name(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(failed("set the owner of", place.path()))
}

fn times_at(parent: &Directory, place: &Place, entry: &Entry) -> Result<(), UnpackError> {
    let times = times(entry.modified);
    rustix::fs::utimensat(parent, place.name(), &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(failed("set the times of", place.path()))
}

fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

fn failed<E: Into<io::Error>>(step: &'static str, path: &[u8]) -> impl FnOnce(E) -> UnpackError {
    move |source| UnpackError::Write { step, path: lossy(path), source: source.into() }
}

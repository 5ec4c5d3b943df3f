//! The mount table seen from a pod's directory: what is mounted where, and how to add and take
//! away.
//!
//! Mount points are never handed to the kernel by name: a mount lands on an open descriptor, an
//! unmount names one component below an open parent. So whatever a container swaps in its volume,
//! the kernel acts where we looked.

use std::{
    ffi::{CString, OsStr},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use ferrolet_linux::{mountinfo, rooted::Rooted};
use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
    mount::{MountFlags, UnmountFlags},
};

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A descriptor that names something without opening it: safe on FIFOs and devices.
pub(super) const NAMED: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens beneath a directory without following links; unlike [`Rooted`] it may cross into what is
/// mounted there.
pub(super) fn open_across(
    root: BorrowedFd<'_>,
    beneath: &Path,
    flags: OFlags,
) -> io::Result<OwnedFd> {
    open_resolved(root, beneath, flags, BENEATH)
}

/// Opens with the given way of resolving, again when the tree moved under the kernel's feet.
pub(super) fn open_resolved(
    root: BorrowedFd<'_>,
    beneath: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> io::Result<OwnedFd> {
    const TRIES: usize = 64;
    let mut answer = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        answer = rustix::fs::openat2(root, beneath, flags, Mode::empty(), resolve);
        if !matches!(answer, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    Ok(answer?)
}

/// Opens a volume as the root of what it holds, on whatever it lives.
pub(super) fn open_volume(pods: &Rooted, volume: &Path) -> io::Result<Rooted> {
    open_across(pods.as_fd(), volume, DIRECTORY).map(Rooted::from)
}

/// The kind of file system that is mounted on a directory entry; `None` when nothing is.
pub(super) fn mounted_on(parent: &Rooted, name: &str) -> io::Result<Option<MountedOn>> {
    const TMPFS: u64 = 0x0102_1994;
    const HUGETLBFS: u64 = 0x9584_58f6;
    match parent.directory(name) {
        Ok(_same_mount) => Ok(None),
        Err(cause) if is(&cause, Errno::XDEV) => {
            let top = open_across(parent.as_fd(), Path::new(name), DIRECTORY)?;
            let kind = u64::try_from(rustix::fs::fstatfs(&top)?.f_type).unwrap_or_default();
            Ok(Some(match kind {
                TMPFS => MountedOn::Memory,
                HUGETLBFS => MountedOn::HugePages,
                _ => MountedOn::Other,
            }))
        }
        Err(cause) => Err(cause),
    }
}

/// What a directory entry is covered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountedOn {
    Memory,
    HugePages,
    Other,
}

/// Mounts a new file system on an open directory.
pub(super) fn mount_new(kind: &str, target: BorrowedFd<'_>, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    let target = descriptor_path(target);
    Ok(rustix::mount::mount(kind, &target, kind, MountFlags::empty(), Some(options.as_c_str()))?)
}

/// Makes what one descriptor names appear at the other.
pub(super) fn bind(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let (source, target) = (descriptor_path(source), descriptor_path(target));
    Ok(rustix::mount::mount_bind(&source, &target)?)
}

/// What to do with a mount that somebody still uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenBusy {
    /// It goes from its place at once, and for good when nobody uses it any more: right for what a
    /// pod was shown, since nobody can reach it through us any more.
    Detach,
    /// It stays, and that is an error: right for a disk, which must not go while something writes
    /// to it.
    Refuse,
}

/// Unmounts everything at a place below the pods' directory and beneath it, innermost first.
pub(super) fn unmount_all(pods: &Rooted, place: &Path, when_busy: WhenBusy) -> io::Result<()> {
    let root = pods.real_path()?;
    let top = root.join(place);
    let table = mountinfo::read()?;
    let mut points: Vec<PathBuf> =
        mountinfo::points_at_or_below(&table, &top).map(Path::to_path_buf).collect();
    // The kernel lists in the order of mounting, so what covers comes after what is covered.
    points.reverse();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    for point in points {
        let Ok(beneath) = point.strip_prefix(&root) else {
            continue;
        };
        unmount(pods, beneath, when_busy)?;
    }
    Ok(())
}

/// Unmounts what covers one place.
pub(super) fn unmount(pods: &Rooted, place: &Path, when_busy: WhenBusy) -> io::Result<()> {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
        return Err(io::Error::from(Errno::INVAL));
    };
    // Only the parent is held open: a descriptor on the mount itself would keep it busy.
    let flags = DIRECTORY | OFlags::PATH;
    let parent = match open_across(pods.as_fd(), parent, flags) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let point = entry_path(parent.as_fd(), name);
    let answer = match rustix::mount::unmount(&point, UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) if when_busy == WhenBusy::Detach => {
            rustix::mount::unmount(&point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
        }
        other => other,
    };
    match answer {
        // Somebody else took it away between the look and the call.
        Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

fn descriptor_path(descriptor: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

fn entry_path(parent: BorrowedFd<'_>, name: &OsStr) -> PathBuf {
    descriptor_path(parent.as_fd()).join(name)
}

/// True when the kernel's refusal is that one.
pub(super) fn is(cause: &io::Error, errno: Errno) -> bool {
    cause.raw_os_error() == Some(errno.raw_os_error())
}

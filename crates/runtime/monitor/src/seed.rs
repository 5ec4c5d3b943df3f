//! The mount namespace that containers' own begin as a copy of: three mounts, whatever the node
//! has.
//!
//! A tmpfs with an empty directory to put a root on, a procfs and a sysfs. Without those two a user
//! namespace may not mount its own.

use std::os::fd::{AsFd, OwnedFd};

use ferrolet_runtime_sys::fork::SingleThread;
use ferrolet_runtime_sys::process;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::failure::{Failure, Step};

/// Where a container's root is put, in its copy of the seed.
pub(crate) const ROOT: &str = "/root";

/// Makes the seed; this process is back where it was afterwards.
pub(crate) fn make(alone: &SingleThread) -> Result<OwnedFd, Failure> {
    let here = own_namespace().step("open mount namespace")?;
    process::unshare(alone, UnshareFlags::NEWNS).step("unshare mount namespace")?;
    let seed = furnish().and_then(|()| own_namespace().step("open seed"));
    rustix::thread::move_into_link_name_space(here.as_fd(), Some(LinkNameSpaceType::Mount))
        .step("return from seed")?;
    seed
}

pub(crate) fn own_namespace() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn furnish() -> Result<(), Failure> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("make mounts private")?;
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let base = new_mount("tmpfs", &[("mode", "0555")], quiet).step("mount tmpfs")?;
    let directory = Mode::from_raw_mode(0o555);
    for name in ["root", "proc", "sys"] {
        rustix::fs::mkdirat(&base, name, directory).step("furnish seed")?;
    }
    // On anything that is there: what it covers goes with the rest of the node's mounts.
    put(&base, CWD, "/proc").step("place seed")?;
    for (kind, place) in [("proc", "proc"), ("sysfs", "sys")] {
        let mount = new_mount(kind, &[], quiet).step_on("mount", kind)?;
        put(&mount, &base, place).step_on("place", kind)?;
    }
    rustix::process::fchdir(&base).step("enter seed")?;
    enter_root().step("pivot to seed")
}

/// A mount of a new file system, which nobody sees yet.
pub(crate) fn new_mount(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(&context, *key)?;
        } else {
            rustix::mount::fsconfig_set_string(&context, *key, *value)?;
        }
    }
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Puts a mount at `path` below a directory.
pub(crate) fn put(mount: &OwnedFd, directory: impl AsFd, path: &str) -> rustix::io::Result<()> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    rustix::mount::move_mount(mount, "", directory, path, flags)
}

/// Makes the working directory, a mount, the root, and lets the old root go.
pub(crate) fn enter_root() -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let old = rustix::fs::open("/", flags, Mode::empty())?;
    rustix::process::pivot_root(".", ".")?;
    rustix::process::fchdir(&old)?;
    // What is unmounted here must not be unmounted anywhere else.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(".", private)?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

//! Mounts that nobody sees yet: cloned, given their attributes, and only then put somewhere.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Result;
use rustix::mount::OpenTreeFlags;

use crate::result;

/// Attributes of mounts, as the kernel counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Those to set: `libc::MOUNT_ATTR_…`.
    pub set: u64,
    /// Those to clear.
    pub clear: u64,
    /// The propagation to have, `libc::MS_…`; 0: as it is.
    pub propagation: u64,
}

/// Which mounts of a tree are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The uppermost only.
    Top,
    /// All of them.
    All,
}

/// A detached clone of the mount at `path` below `directory`, with everything mounted below it. An
/// empty path is `directory` itself, a file or directory.
///
/// # Errors
///
/// The kernel's.
pub fn detached(directory: impl AsFd, path: impl AsRef<Path>) -> Result<OwnedFd> {
    clone_tree(directory.as_fd(), path.as_ref(), Depth::All)
}

/// A detached clone of that mount alone, without what is mounted below it.
///
/// # Errors
///
/// The kernel's.
pub fn detached_top(directory: impl AsFd, path: impl AsRef<Path>) -> Result<OwnedFd> {
    clone_tree(directory.as_fd(), path.as_ref(), Depth::Top)
}

fn clone_tree(directory: BorrowedFd<'_>, path: &Path, depth: Depth) -> Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    if depth == Depth::All {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(directory, path, flags)
}

/// Sets attributes of a tree.
///
/// # Errors
///
/// The kernel's.
pub fn set_attributes(tree: impl AsFd, attributes: Attributes, depth: Depth) -> Result<()> {
    mount_setattr(tree.as_fd(), attributes, 0, depth)
}

/// Makes a detached tree belong to a user namespace: what its users write is theirs.
///
/// # Errors
///
/// The kernel's; `EINVAL` when a file system cannot do it.
pub fn map_ids(tree: impl AsFd, user_namespace: impl AsFd, depth: Depth) -> Result<()> {
    let attributes = Attributes { set: libc::MOUNT_ATTR_IDMAP, ..Attributes::default() };
    let user = u64::try_from(user_namespace.as_fd().as_raw_fd()).unwrap_or(u64::MAX);
    mount_setattr(tree.as_fd(), attributes, user, depth)
}

/// Makes a tree unwritable.
///
/// # Errors
///
/// The kernel's.
pub fn make_readonly(tree: impl AsFd) -> Result<()> {
    let attributes = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
    set_attributes(tree, attributes, Depth::All)
}

fn mount_setattr(
    tree: BorrowedFd<'_>,
    attributes: Attributes,
    user_namespace: u64,
    depth: Depth,
) -> Result<()> {
    let attr = libc::mount_attr {
        attr_set: attributes.set,
        attr_clr: attributes.clear,
        propagation: attributes.propagation,
        userns_fd: user_namespace,
    };
    let flags = libc::AT_EMPTY_PATH | if depth == Depth::All { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, `attr` lives through the call and its size is given;
    // the kernel only reads both.
    result(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

//! Project quotas: which project a directory belongs to, and what a project uses. Calls that have
//! no wrapper.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`.
const GET_ATTRIBUTES: libc::c_long = 0x801c_581f;
const SET_ATTRIBUTES: libc::c_long = 0x401c_5820;
/// What is made in the directory belongs to its project too.
const INHERITS: u32 = 0x200;
/// `quotactl_fd`, since Linux 5.14; new calls have the same number on every architecture.
const QUOTACTL_FD: libc::c_long = 443;
/// `Q_GETQUOTA` for projects.
const GET_PROJECT_QUOTA: libc::c_long = 0x8000_0702;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    n_extents: u32,
    project: u32,
    copy_extent_size: u32,
    reserved: [u8; 8],
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Default)]
struct Quota {
    most_blocks: u64,
    soft_blocks: u64,
    bytes: u64,
    most_inodes: u64,
    soft_inodes: u64,
    inodes: u64,
    block_time: u64,
    inode_time: u64,
    valid: u32,
}

/// The project that everything made in a directory belongs to; `None` when there is none.
pub fn project_of(directory: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let found = attributes(directory)?;
    let is_whole = found.flags & INHERITS != 0 && found.project != 0;
    Ok(is_whole.then_some(found.project))
}

/// Gives a directory, and what will be made in it, to a project.
pub fn set_project(directory: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    let mut wanted = attributes(directory)?;
    wanted.flags |= INHERITS;
    wanted.project = project;
    // SAFETY: the descriptor is open for the length of the borrow, and the kernel only reads the
    // structure, whose layout is the kernel's own.
    let answer = unsafe {
        libc::syscall(libc::SYS_ioctl, directory.as_raw_fd(), SET_ATTRIBUTES, &raw const wanted)
    };
    told(answer)
}

/// Bytes and inodes that a project uses on a directory's file system; an error where nobody counts
/// them.
pub fn project_usage(directory: BorrowedFd<'_>, project: u32) -> io::Result<(u64, u64)> {
    let mut found = Quota::default();
    // SAFETY: the descriptor is open for the length of the borrow; the kernel writes one structure
    // of its own layout, which lives until after the call, and takes integers otherwise.
    let answer = unsafe {
        libc::syscall(
            QUOTACTL_FD,
            directory.as_raw_fd(),
            GET_PROJECT_QUOTA,
            libc::c_long::from(project),
            &raw mut found,
        )
    };
    match told(answer) {
        // One that nothing belongs to yet.
        Err(cause) if cause.raw_os_error() == Some(libc::ENOENT) => Ok((0, 0)),
        told => told.map(|()| (found.bytes, found.inodes)),
    }
}

fn attributes(directory: BorrowedFd<'_>) -> io::Result<Attributes> {
    let mut found = Attributes::default();
    // SAFETY: the descriptor is open for the length of the borrow; the kernel writes one structure
    // of its own layout, which lives until after the call.
    let answer = unsafe {
        libc::syscall(libc::SYS_ioctl, directory.as_raw_fd(), GET_ATTRIBUTES, &raw mut found)
    };
    told(answer).map(|()| found)
}

fn told(answer: libc::c_long) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

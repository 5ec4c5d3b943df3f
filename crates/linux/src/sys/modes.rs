//! Changing a mode without following a link: a call newer than the safe wrappers.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// `fchmodat2`, since Linux 6.6; new calls have the same number on every architecture.
const FCHMODAT2: libc::c_long = 452;

/// Sets the mode of an entry that must not be a link; `ENOSYS` from older kernels.
pub fn chmod_entry(directory: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the borrow, the name ends with a NUL and is
    // only read, and the other arguments are integers; the kernel writes no memory of ours.
    let answer = unsafe {
        libc::syscall(
            FCHMODAT2,
            directory.as_raw_fd(),
            name.as_ptr(),
            mode,
            libc::AT_SYMLINK_NOFOLLOW,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

//! A socket option that has no safe wrapper.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// Keeps nothing of a TCP connection that is closed first on this side: neither its half-open end
/// (FIN-WAIT-2) nor the minute after it (TIME-WAIT). Linux takes any negative number for that.
pub fn skip_time_wait(socket: BorrowedFd<'_>) -> io::Result<()> {
    const NO_TIME: libc::c_int = -1;
    let length = libc::socklen_t::try_from(size_of_val(&NO_TIME)).unwrap_or_default();
    // SAFETY: the descriptor is open for the length of the borrow, and the kernel only reads
    // `length` bytes of an integer that lives as long as the program.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_LINGER2,
            std::ptr::from_ref(&NO_TIME).cast(),
            length,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

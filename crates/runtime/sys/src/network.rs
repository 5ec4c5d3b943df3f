//! The little that a pod's network needs from its first moment.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use rustix::io::Result;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::result;

/// Brings up `lo` of this process's network namespace; it gets its addresses with that.
///
/// # Errors
///
/// The kernel's.
pub fn loopback_up() -> Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all zeros are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    // SAFETY: this request reads an `ifreq` with a name that ends, and flags.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    result(answer.into())?;
    Ok(())
}

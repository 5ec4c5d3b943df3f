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

/// Has a netlink socket's refusals come with words, and without the whole request repeated.
///
/// # Errors
///
/// The kernel's, if it is too old.
pub fn extended_acknowledgements(socket: &impl AsRawFd) -> Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or_default();
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        // SAFETY: both options read one `int`, and that is what they are shown.
        let answer = unsafe {
            let value = (&raw const on).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_NETLINK, option, value, length)
        };
        result(answer.into())?;
    }
    Ok(())
}

/// Gives this thread, and no other of the process, a new network namespace.
///
/// # Errors
///
/// The kernel's.
pub fn leave_namespace() -> Result<()> {
    // SAFETY: the danger of `unshare` is a thread that loses sight of another's descriptors; a
    // network namespace has nothing to do with them.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
}

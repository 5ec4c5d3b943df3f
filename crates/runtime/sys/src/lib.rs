//! The kernel as the runtime needs it: one function a call, typed, without policy.
//!
//! The runtime's only room for `unsafe`; each block says why it holds. What rustix has is used from
//! there directly, by whoever needs it.

#![warn(missing_docs)]
#![expect(unsafe_code, reason = "the runtime's kernel calls that rustix does not have")]

pub mod bpf;
pub mod channel;
pub mod fork;
pub mod mounts;
pub mod network;
pub mod process;
pub mod signals;

use rustix::io::Errno;

/// A raw call's answer, with errno where there is one.
fn result(answer: libc::c_long) -> rustix::io::Result<libc::c_long> {
    if answer < 0 {
        // SAFETY: errno is the thread's own, and the call that just failed has set it.
        Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
    } else {
        Ok(answer)
    }
}

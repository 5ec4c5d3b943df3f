//! What a process does to itself on its way into a container.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::thread::UnshareFlags;

use crate::fork::SingleThread;
use crate::result;

/// Leaves namespaces for new ones. Not for `FILES`.
///
/// # Errors
///
/// The kernel's.
pub fn unshare(_alone: &SingleThread, namespaces: UnshareFlags) -> Result<()> {
    let namespaces = namespaces.difference(UnshareFlags::FILES);
    // SAFETY: the danger is a thread that loses sight of another's descriptors; FILES is taken out,
    // and there is no other thread.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// Has every descriptor from 3 up closed when another program is executed.
///
/// # Errors
///
/// The kernel's.
pub fn close_on_exec_from_3() -> Result<()> {
    // SAFETY: this only sets a flag on descriptors; nothing is closed now.
    result(unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    })?;
    Ok(())
}

/// Makes a descriptor this process's stdin (0), stdout (1) or stderr (2).
///
/// # Errors
///
/// The kernel's.
pub fn become_stdio(descriptor: &OwnedFd, number: i32) -> Result<()> {
    debug_assert!((0..3).contains(&number));
    // SAFETY: numbers below 3 are stdio, which no value of ours owns; what was there is replaced.
    result(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }.into())?;
    Ok(())
}

/// Becomes another program. Comes back only with why not.
#[must_use]
pub fn execute(path: &CStr, args: &[CString], env: &[CString]) -> Errno {
    let args = pointers(args);
    let env = pointers(env);
    // SAFETY: a C string, and two arrays of C strings that end with a null pointer; all of them
    // outlive the call.
    unsafe { libc::execve(path.as_ptr(), args.as_ptr(), env.as_ptr()) };
    // SAFETY: errno is the thread's own, and the call that came back has set it.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|it| it.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Leaves at once: no destructors, no buffers written twice by parent and child.
pub fn leave(code: i32) -> ! {
    // SAFETY: ends this process and nothing else.
    unsafe { libc::_exit(code) }
}

/// A session keyring of its own, so that keys of the node are not inherited.
///
/// # Errors
///
/// The kernel's; `ENOSYS` where it has no keys.
pub fn join_new_keyring() -> Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    let anonymous = std::ptr::null::<libc::c_char>();
    // SAFETY: a null name asks for an anonymous keyring; nothing else is read.
    result(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, anonymous) })?;
    Ok(())
}

/// Sets a limit by the kernel's number for it; `u64::MAX` is none.
///
/// # Errors
///
/// The kernel's.
pub fn set_limit(resource: u32, soft: u64, hard: u64) -> Result<()> {
    let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
    let nothing_back = std::ptr::null_mut::<libc::rlimit64>();
    // SAFETY: `limit` lives through the call, and nothing is wanted back. Unknown numbers are
    // refused.
    result(unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, nothing_back)
    })?;
    Ok(())
}

/// Gives up, for good, every capability that is not among these: one bit each.
///
/// # Errors
///
/// The kernel's.
pub fn bound_capabilities(kept: u64) -> Result<()> {
    for number in 0..64_u32 {
        if kept >> number & 1 == 1 {
            continue;
        }
        // SAFETY: this reads numbers only.
        match result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) }.into()) {
            Ok(_) => {}
            // Beyond the last one that this kernel knows.
            Err(Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

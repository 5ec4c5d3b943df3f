//! Signals as a descriptor to read, and as a new program expects them.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::process::Signal;

use crate::result;

/// Real-time signals, without the two that C libraries use themselves.
const FIRST_NAMELESS: i32 = 34;
const LAST_NAMELESS: i32 = 64;

/// Blocks SIGCHLD and gives a descriptor that is readable when a child has ended.
///
/// # Errors
///
/// The kernel's.
pub fn child_descriptor() -> Result<OwnedFd> {
    // SAFETY: `sigemptyset` makes the set valid before anything reads it; the other calls are given
    // that valid set and a null pointer where nothing is wanted back.
    let descriptor = unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        result(libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()).into())?;
        result(libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())?
    };
    let descriptor = i32::try_from(descriptor).map_err(|_| Errno::RANGE)?;
    // SAFETY: the kernel has just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Empties such a descriptor. One notice may stand for many ends.
pub fn drain(descriptor: impl AsFd) {
    let mut buffer = [0; 16 * size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(descriptor.as_fd(), &mut buffer).is_ok_and(|n| n > 0) {}
}

/// A signal by its number: one with a name, or one of those without that programs may use.
#[must_use]
pub fn signal(number: i32) -> Option<Signal> {
    let named = Signal::from_named_raw(number);
    let is_nameless = (FIRST_NAMELESS..=LAST_NAMELESS).contains(&number);
    named.or_else(|| {
        // SAFETY: the number is not zero and one that the kernel has, and not one of the two that C
        // libraries keep for their threads; it is only sent.
        is_nameless.then(|| unsafe { Signal::from_raw_unchecked(number) })
    })
}

/// Lets children be reaped by the kernel: nobody asks how they ended.
pub fn ignore_children() {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Ignores what a terminal or a session sends: a monitor ends only when it is told to.
pub fn ignore_session() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Everything as the kernel gives it to a first process: nothing blocked, nothing ignored.
pub fn reset() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL runs no code of ours. Numbers that cannot be set are refused, which is no
        // harm.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the set is made valid before it is used; nothing is wanted back.
    unsafe {
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_those_that_programs_may_use() {
        let numbers = [(15, true), (37, true), (64, true)];
        let none = [(0, false), (-1, false), (32, false), (33, false), (65, false)];
        for (number, is_one) in numbers.into_iter().chain(none) {
            assert_eq!(signal(number).map(Signal::as_raw), is_one.then_some(number));
        }
    }
}

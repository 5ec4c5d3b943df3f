//! New processes, made by one that has a single thread.
//!
//! A child of a threaded process may find a lock held by a thread that it does not have, and hang
//! in its first allocation. So forking needs a proof: [`SingleThread`] is had once, at the very
//! beginning of `main`, and whoever holds one starts no thread (tidy refuses `std::thread` and tokio
//! in the monitor's crate). With one thread the child is a plain copy: its allocator, its
//! descriptors and its standard library work as its parent's did.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::process::Pid;

use crate::result;

/// The proof that this process has one thread.
#[derive(Debug)]
pub struct SingleThread(());

/// Namespaces that a child gets of its own: `libc::CLONE_NEW…`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Namespaces(pub i32);

/// Who returns from [`SingleThread::fork`].
#[derive(Debug)]
pub enum Forked {
    /// The parent.
    Parent(Child),
    /// The child, which has one thread too.
    Child,
}

/// A process that was forked.
#[derive(Debug)]
pub struct Child {
    /// Its number.
    pub pid: Pid,
    /// Itself.
    pub pidfd: OwnedFd,
}

/// The kernel's number for `CLONE_INTO_CGROUP`, which does not fit into libc's type everywhere.
const INTO_CGROUP: u64 = 0x2_0000_0000;

impl SingleThread {
    /// The proof, if it can be given.
    #[must_use]
    pub fn prove() -> Option<Self> {
        (n_threads()? == 1).then_some(Self(()))
    }

    /// A child, in namespaces of its own and, on v2, in a cgroup from its first moment.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn fork(&self, namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> Result<Forked> {
        self.clone_process(namespaces, cgroup, 0)
    }

    /// A sibling: a child of this process's parent. The parent sees its end.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn fork_sibling(&self) -> Result<Forked> {
        self.clone_process(Namespaces::default(), None, libc::CLONE_PARENT)
    }

    fn clone_process(
        &self,
        namespaces: Namespaces,
        cgroup: Option<BorrowedFd<'_>>,
        flags: i32,
    ) -> Result<Forked> {
        debug_assert!(
            n_threads().is_none_or(|n| n == 1),
            "a second thread in a process that forks"
        );
        let mut pidfd: i32 = -1;
        // SAFETY: all zeros are a valid `clone_args`.
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        let flags = libc::CLONE_PIDFD | namespaces.0 | flags;
        args.flags = u64::from(flags.cast_unsigned());
        // With CLONE_PARENT the signal is the parent's own, and must be 0 here.
        if flags & libc::CLONE_PARENT == 0 {
            args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
        }
        args.pidfd = (&raw mut pidfd).addr() as u64;
        if let Some(cgroup) = cgroup {
            args.flags |= INTO_CGROUP;
            args.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
        }
        // SAFETY: without CLONE_VM the child has a copy of everything, this stack included, as
        // after fork(2). `self` proves that there is no other thread, so no lock of the allocator
        // or of the standard library is held by somebody who is missing in the child. `args` and
        // `pidfd` live through the call.
        let pid = result(unsafe {
            libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>())
        })?;
        if pid == 0 {
            return Ok(Forked::Child);
        }
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::RANGE)?;
        // SAFETY: the kernel has just put a new descriptor there, which nobody else knows.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok(Forked::Parent(Child { pid, pidfd }))
    }
}

fn n_threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

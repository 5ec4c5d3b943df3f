//! The monitor for real: a spawner, pods and containers on this machine's kernel, as root. Without
//! root there is nothing to try, and the cases say nothing.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up is a failed test")]

mod bench;
mod containers;
mod safety;
mod seccomp;

//! The `ferrolet` executable; called through a link named `kubelet` it is the kubelet.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Watched, so that a heap profile can be taken: one allocation in so many bytes is noted.
#[global_allocator]
static HEAP: ferrolet_linux::sys::WatchedHeap = ferrolet_linux::sys::WatchedHeap;

fn main() -> ExitCode {
    ferrolet::main(std::env::args_os())
}

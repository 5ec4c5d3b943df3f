//! The calls that Rust cannot check, each behind a safe function. The only `unsafe` of the
//! workspace.
#![expect(
    unsafe_code,
    reason = "the allocator, the profiling timer and the newest calls have no safe wrapper anywhere"
)]

mod cpu_samples;
mod heap_samples;
mod modes;
mod quotas;
mod readiness;
mod time_wait;
mod unwind;

pub use cpu_samples::{CpuSamples, RATE as CPU_RATE};
pub use heap_samples::WatchedHeap;
pub use heap_samples::{RATE as HEAP_RATE, places};
pub use modes::chmod_entry;
pub use quotas::{project_of, project_usage, set_project};
pub use readiness::{watch_priority, watch_readable};
pub use time_wait::skip_time_wait;

use crate::own_pages::CleanMapping;

/// Bounds the allocator's arenas and has freed memory given back early; `false` when it refused one
/// of them.
#[cfg(target_env = "gnu")]
pub fn bound_allocator(n_arenas: libc::c_int, trim_threshold: libc::c_int) -> bool {
    // SAFETY: mallopt takes two integers, touches only the allocator's own state under its own
    // lock, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, n_arenas) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, trim_threshold) == 1
    }
}

/// Returns free memory to the kernel; `true` when some was returned.
#[cfg(target_env = "gnu")]
pub fn trim_allocator() -> bool {
    // SAFETY: malloc_trim releases only pages that hold no allocation, under the allocator's own
    // locks.
    unsafe { libc::malloc_trim(0) == 1 }
}

/// Pins the lookup of hosts to what is built into glibc; `false` when it refused.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub fn look_names_up_inside() -> bool {
    unsafe extern "C" {
        /// glibc's own; the `libc` crate does not declare it.
        fn __nss_configure_lookup(
            database: *const libc::c_char,
            services: *const libc::c_char,
        ) -> libc::c_int;
    }
    // SAFETY: both arguments are strings that end in a zero and live for ever; glibc copies what it
    // keeps, and is called before any other thread could look something up.
    unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) == 0 }
}

/// Unmaps the pages of a file's mapping until they are touched again; `false` when the kernel
/// refused.
pub(crate) fn unmap_pages(mapping: CleanMapping) -> bool {
    // SAFETY: the kernel listed this range as a private, read-only mapping of a file with no page
    // of our own in it, so whoever touches it next reads the same bytes from the same file. Program
    // and libraries stay mapped while the process lives; nothing here unloads one.
    unsafe {
        libc::madvise(mapping.start() as *mut libc::c_void, mapping.len(), libc::MADV_DONTNEED) == 0
    }
}

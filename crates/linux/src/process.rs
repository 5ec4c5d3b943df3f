//! This process as the kernel and the allocator see it: memory kept small, and last in line when
//! memory runs out.
//!
//! Called by the composition root at start and when the agent is idle. Refuses: touching any other
//! process, but for the place in line of those that the node cannot do without.

use std::io;

/// Two arenas are enough for a program that waits; glibc's default is eight per core.
#[cfg(target_env = "gnu")]
const ARENAS: i32 = 2;
/// Freed memory at the top of the heap beyond this goes back to the kernel.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: i32 = 128 * 1024;

/// What the allocator did with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuned {
    /// It complied.
    Done,
    /// It had nothing to do, or refused.
    Unchanged,
    /// This C library has no such knobs.
    Unsupported,
}

/// Keeps the allocator from growing with the number of threads. Best before the first thread
/// starts.
pub fn tune_allocator() -> Tuned {
    #[cfg(target_env = "gnu")]
    {
        done_if(crate::sys::bound_allocator(ARENAS, TRIM_THRESHOLD))
    }
    #[cfg(not(target_env = "gnu"))]
    {
        Tuned::Unsupported
    }
}

/// Has names of hosts looked up in `/etc/hosts` and by DNS only, where the C library lies inside the
/// executable: a library's lookup modules (`/etc/nsswitch.conf`) must be of the very version that
/// loads them, and an executable that stands alone does not know which one the machine has. Before
/// the first thread starts.
pub fn settle_name_service() -> Tuned {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        done_if(crate::sys::look_names_up_inside())
    }
    #[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
    {
        Tuned::Unsupported
    }
}

/// Gives the kernel back what is not in use: free memory, and pages of code that ran once. Costs a
/// walk over the heap and a soft fault for each piece of code that runs again.
pub fn trim_memory() -> Tuned {
    let is_unmapped = crate::own_pages::give_back();
    #[cfg(target_env = "gnu")]
    {
        done_if(crate::sys::trim_allocator() || is_unmapped)
    }
    #[cfg(not(target_env = "gnu"))]
    {
        done_if(is_unmapped)
    }
}

/// Sets this process's place in the kernel's choice of whom to kill (upstream: -999). Lowering it
/// wants CAP_SYS_RESOURCE, so the caller reports a refusal and goes on.
pub fn set_oom_score_adj(score: i16) -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", score.to_string())
}

/// Gives a process a place at least as far back in that line.
pub fn lower_oom_score_adj(process: u32, score: i16) -> io::Result<()> {
    let path = format!("/proc/{process}/oom_score_adj");
    let now = std::fs::read_to_string(&path)?;
    match now.trim().parse::<i16>() {
        Ok(now) if now <= score => Ok(()),
        Ok(_) | Err(_) => std::fs::write(path, score.to_string()),
    }
}

/// Who this process runs as; 0 is root.
pub fn user_id() -> u32 {
    rustix::process::getuid().as_raw()
}

fn done_if(changed: bool) -> Tuned {
    if changed { Tuned::Done } else { Tuned::Unchanged }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_takes_its_bounds_and_gives_memory_back() {
        let expected = if cfg!(target_env = "gnu") { Tuned::Done } else { Tuned::Unsupported };
        assert_eq!(tune_allocator(), expected);
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        // Whether anything was left to trim is the allocator's business.
        trim_memory();
    }

    #[test]
    fn the_own_score_can_be_written() {
        let now = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        set_oom_score_adj(now.trim().parse().unwrap()).unwrap();
    }
}

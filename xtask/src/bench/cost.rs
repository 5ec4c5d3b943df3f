//! What a process costs: memory, threads and CPU time, from `/proc`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The kernel's unit of CPU time in `/proc/<pid>/stat`; a hundredth of a second on every Linux we
/// run on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Time to let allocators and caches come to rest before memory is read.
const REST: Duration = Duration::from_secs(10);

pub(super) struct Cost {
    pub(super) resident_mb: f64,
}

impl Cost {
    /// Reads after a moment of rest.
    pub(super) fn settled(pid: u32) -> Result<Cost> {
        thread::sleep(REST);
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let kib = kib(&status, "VmRSS:").context("no VmRSS in /proc")?;
        Ok(Cost { resident_mb: kib * 1024.0 / 1e6 })
    }

    /// The share of one core over `span`, or less of it when interrupted.
    pub(super) fn cpu_share(
        pid: u32,
        span: Duration,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<f64> {
        let before = cpu_seconds(pid)?;
        let began = Instant::now();
        while began.elapsed() < span && !is_interrupted() {
            thread::sleep(Duration::from_millis(100));
        }
        Ok((cpu_seconds(pid)? - before) / began.elapsed().as_secs_f64())
    }
}

/// What a process holds at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Holding {
    pub(super) resident_mb: f64,
    /// Resident, with pages that are shared with others counted in parts.
    pub(super) proportional_mb: f64,
    pub(super) n_threads: f64,
}

impl Holding {
    pub(super) fn of(pid: u32) -> Result<Holding> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        Holding::read(&status, &rollup).with_context(|| format!("memory of process {pid}"))
    }

    fn read(status: &str, rollup: &str) -> Option<Holding> {
        Some(Holding {
            resident_mb: kib(status, "VmRSS:")? * 1024.0 / 1e6,
            proportional_mb: kib(rollup, "Pss:")? * 1024.0 / 1e6,
            n_threads: line(status, "Threads:")?.parse().ok()?,
        })
    }
}

/// CPU time of a process so far, with that of its children that have ended.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = cpu_ticks(&stat).with_context(|| format!("/proc/{pid}/stat is {stat:?}"))?;
    Ok(ticks / TICKS_PER_SECOND)
}

fn kib(text: &str, key: &str) -> Option<f64> {
    line(text, key)?.strip_suffix(" kB")?.parse().ok()
}

fn line<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// User and system time of the process and of the children it waited for: whoever runs `mount` a
/// hundred times pays for it. The name in parentheses before them may hold blanks.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(field(11)? + field(12)? + field(13)? + field(14)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        let status = "Name:\tx\nVmRSS:\t   12500 kB\nVmData: 1 kB\nThreads:\t7\n";
        let rollup = "a-b ---p 0 [rollup]\nRss: 12500 kB\nPss:  2500 kB\nPss_Dirty: 1 kB\n";
        let holding = Holding { resident_mb: 12.8, proportional_mb: 2.56, n_threads: 7.0 };
        assert_eq!(Holding::read(status, rollup), Some(holding));
        assert_eq!(Holding::read("", rollup), None);
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 3 20 0 4 0 100 1000 200";
        assert_eq!(cpu_ticks(stat), Some(310.0));
        assert_eq!(cpu_ticks("nonsense"), None);
    }
}

//! What a process costs: resident memory and CPU time, from `/proc`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The kernel's unit of CPU time in `/proc/<pid>/stat`; a hundredth of a second on every Linux we run on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Time to let allocators and caches come to rest before memory is read.
const REST: Duration = Duration::from_secs(5);

pub(super) struct Cost {
    pub(super) resident_mb: f64,
}

impl Cost {
    /// Reads after a moment of rest.
    pub(super) fn settled(pid: u32) -> Result<Cost> {
        thread::sleep(REST);
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let kib = resident_kib(&status).context("no VmRSS in /proc")?;
        Ok(Cost {
            resident_mb: kib * 1024.0 / 1e6,
        })
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

fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    cpu_ticks(&stat)
        .map(|ticks| ticks / TICKS_PER_SECOND)
        .with_context(|| format!("/proc/{pid}/stat is {stat:?}"))
}

fn resident_kib(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// User and system time; the name in parentheses before them may hold blanks.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(field(11)? + field(12)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        assert_eq!(
            resident_kib("Name:\tx\nVmRSS:\t   12345 kB\nVmData: 1 kB\n"),
            Some(12345.0)
        );
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200";
        assert_eq!(cpu_ticks(stat), Some(300.0));
        assert_eq!(cpu_ticks("nonsense"), None);
    }
}

//! When to look at logs again, and what a rotation does. Pure.
//!
//! Looking costs a walk over the log directory, so it happens once in an interval; a log that grows
//! fast is looked at when it should be full, alone. Names are upstream's: `0.log`,
//! `0.log.20261116-013000`, `0.log.20261116-012000.gz`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ferrolet_ports::LogSize;
use ferrolet_types::Timestamp;

/// No log is looked at more often.
const SHORTEST: Duration = Duration::from_millis(200);
/// The first look says nothing about growth, so the second one comes soon.
const FIRST: Duration = Duration::from_secs(1);
const COMPRESSED: &str = ".gz";
const UNFINISHED: &str = ".tmp";

/// When logs are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Bytes at which a log is rotated.
    pub max_size: u64,
    /// Files that one container keeps, the current one included.
    pub max_files: usize,
    /// Rotations at the same time.
    pub max_workers: usize,
    /// The longest time between two looks at all logs.
    pub interval: Duration,
}

/// What is known of logs.
#[derive(Debug, Default)]
pub(super) struct Watch {
    sizes: BTreeMap<String, u64>,
    /// Full logs that nobody writes any more, with the size they had.
    settled: BTreeMap<String, u64>,
    /// Logs that were there and are not any more, until somebody says why.
    missing: BTreeSet<String>,
    has_looked: bool,
}

/// What follows from a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Logs that are full.
    pub(super) due: Vec<String>,
    /// Logs that will be full before the interval is over.
    pub(super) hot: Vec<String>,
    /// Logs that are gone: their writers, if they have any, write into nothing.
    pub(super) missing: Vec<String>,
    /// When to look at those again, or at all when there are none.
    pub(super) next: Duration,
}

impl Watch {
    /// Takes in sizes; `all` when they are those of every log there is, and not only of hot ones.
    pub(super) fn look(
        &mut self,
        policy: &Policy,
        found: &[LogSize],
        elapsed: Duration,
        all: Coverage,
    ) -> Look {
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let mut look = Look {
            due: Vec::new(),
            hot: Vec::new(),
            missing: Vec::new(),
            next: if is_first { FIRST.min(policy.interval) } else { policy.interval },
        };
        for LogSize { path, size } in found {
            let before = self.sizes.get(path).copied();
            if *size >= policy.max_size {
                if self.settled.get(path) != Some(size) {
                    look.due.push(path.clone());
                }
                continue;
            }
            // One that is new has grown from nothing, one that is smaller was rotated.
            let grown = match before {
                Some(before) if before <= *size => size - before,
                Some(_) => *size,
                None if is_first => 0,
                None => *size,
            };
            if let Some(left) = time_left(policy.max_size - size, grown, elapsed)
                && left < policy.interval
            {
                look.hot.push(path.clone());
                look.next = look.next.min(left.max(SHORTEST));
            }
        }
        let now: BTreeMap<String, u64> =
            found.iter().map(|it| (it.path.clone(), it.size)).collect();
        match all {
            Coverage::All => {
                self.settled.retain(|path, _| now.contains_key(path));
                let before = std::mem::replace(&mut self.sizes, now);
                self.missing.extend(before.into_keys());
                self.missing.retain(|path| !self.sizes.contains_key(path));
                look.missing = self.missing.iter().cloned().collect();
            }
            Coverage::Hot => self.sizes.extend(now),
        }
        look
    }

    /// A full log that nobody writes: left alone while it stays as it is.
    pub(super) fn settle(&mut self, path: &str) {
        if let Some(size) = self.sizes.get(path) {
            self.settled.insert(path.to_owned(), *size);
        }
    }

    /// A log that is gone for good, because nobody writes it.
    pub(super) fn forget(&mut self, path: &str) {
        self.missing.remove(path);
    }

    /// A log that was rotated starts from nothing.
    pub(super) fn rotated(&mut self, path: &str) {
        self.sizes.insert(path.to_owned(), 0);
    }
}

/// Which logs a look was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    All,
    Hot,
}

/// How long until `missing` bytes are written at the pace of late; `None` when nothing was written.
fn time_left(missing: u64, grown: u64, elapsed: Duration) -> Option<Duration> {
    if grown == 0 {
        return None;
    }
    let nanos = elapsed.as_nanos() * u128::from(missing) / u128::from(grown);
    Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// What a rotation does to the files beside a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    /// Too old, or left over.
    pub(super) remove: Vec<String>,
    /// The log's new name; `None` while a file of this second is there, because it would be lost.
    pub(super) to: Option<String>,
}

/// Plans the rotation of the log called `name`, beside which these files are.
pub(super) fn rotation(
    policy: &Policy,
    name: &str,
    beside: &[String],
    work: Work,
    now: Timestamp,
) -> Rotation {
    let to = format!("{name}.{}", stamp(now));
    let compressed = |it: &String| format!("{it}{COMPRESSED}");
    let is_left_over = |it: &&String| {
        let is_finished = !it.ends_with(COMPRESSED) && beside.contains(&compressed(it));
        it.ends_with(UNFINISHED) || is_finished
    };
    let (left_over, mut kept): (Vec<&String>, Vec<&String>) =
        beside.iter().partition(|it| is_left_over(it));
    kept.sort();
    // Two are the log itself and the file that it becomes.
    let n_kept = policy.max_files.saturating_sub(2);
    let excess: Vec<&String> = kept.drain(..kept.len().saturating_sub(n_kept)).collect();
    let mut remove: Vec<String> = match work {
        Work::Idle => left_over.into_iter().cloned().collect(),
        // They belong to the work.
        Work::Compressing => Vec::new(),
    };
    remove.extend(excess.into_iter().cloned());
    let is_taken = beside.contains(&to) || beside.contains(&compressed(&to));
    Rotation { remove, to: (!is_taken).then_some(to) }
}

/// What is to be compressed of the files beside a log: all but the newest, which a follower may
/// still be reading.
pub(super) fn to_compress(mut beside: Vec<String>) -> Vec<String> {
    beside.retain(|it| !it.ends_with(COMPRESSED) && !it.ends_with(UNFINISHED));
    beside.sort();
    beside.pop();
    beside
}

/// Whether files of a log are being compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Idle,
    Compressing,
}

/// `20261116-013000`, in UTC.
fn stamp(now: Timestamp) -> String {
    // `2026-11-16T01:30:00Z`, with a fraction or without.
    let text = now.to_second_precision().to_string();
    let digits: String = text
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == 'T')
        .map(|c| if c == 'T' { '-' } else { c })
        .collect();
    digits.chars().take(15).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

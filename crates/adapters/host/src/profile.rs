//! Profiles of this process: stacks as `sys` notes them, put together with the map of its code.
//!
//! A processor profile costs memory for the samples while it is taken and nothing before or after.
//! Refuses: two at once, and naming functions: the executable is stripped, and whoever reads a
//! profile has the one that is not.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use ferrolet_linux::{
    offload::{Job, Pool, never, refused},
    sys::{CPU_RATE, CpuSamples, HEAP_RATE, places},
};
use ferrolet_ports::{CodeMapping, Fut, HostError, Profile, ProfileSample, Profiler, Threads};

/// More than this many samples are not kept: four processors for ten minutes at most.
const MOST_SAMPLES: u64 = 240_000;

/// Takes profiles of this process.
#[derive(Clone, Copy, Debug)]
pub struct OwnProfiler;

impl Profiler for OwnProfiler {
    fn cpu(&self, span: Duration) -> Fut<'_, Result<Profile, HostError>> {
        Box::pin(async move {
            let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
            let wanted = (span.as_secs() + 1) * u64::from(CPU_RATE) * cpus;
            let n_most = usize::try_from(wanted.min(MOST_SAMPLES)).unwrap_or(usize::MAX);
            let taking = CpuSamples::begin(n_most)
                .ok_or_else(|| never("take a CPU profile", "one is being taken already"))?;
            tokio::time::sleep(span).await;
            Job::on(Pool::Background, "take a CPU profile")
                .run(move || {
                    let period = 1_000_000_000 / i64::from(CPU_RATE);
                    let mut counted: BTreeMap<Vec<u64>, i64> = BTreeMap::new();
                    for stack in taking.end() {
                        *counted.entry(stack.frames().to_vec()).or_default() += 1;
                    }
                    let samples = counted
                        .into_iter()
                        .map(|(stack, n)| ProfileSample { stack, figures: vec![n, n * period] });
                    Ok(Profile { samples: samples.collect(), mappings: mappings()?, period })
                })
                .await
        })
    }

    fn heap(&self) -> Fut<'_, Result<Profile, HostError>> {
        Box::pin(Job::on(Pool::Background, "take a heap profile").run(|| {
            let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            let samples = places().into_iter().map(|place| ProfileSample {
                stack: place.stack.frames().to_vec(),
                figures: vec![
                    signed(place.n_allocated),
                    signed(place.bytes_allocated),
                    signed(place.n_in_use),
                    signed(place.bytes_in_use),
                ],
            });
            Ok(Profile {
                samples: samples.collect(),
                mappings: mappings()?,
                period: i64::try_from(HEAP_RATE).unwrap_or(i64::MAX),
            })
        }))
    }

    fn threads(&self) -> Fut<'_, Result<Threads, HostError>> {
        Box::pin(
            Job::on(Pool::Background, "list threads")
                .run(|| threads().map_err(|error| refused("list threads", &error))),
        )
    }
}

fn mappings() -> Result<Vec<CodeMapping>, HostError> {
    let text = fs::read("/proc/self/maps");
    let text = text.map_err(|error| refused("read /proc/self/maps", &error))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(mapping).collect())
}

/// `start-end rwxp offset device inode path`, when it is code from a file.
fn mapping(line: &str) -> Option<CodeMapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_code = words.next()?.contains('x');
    let offset = words.next()?;
    let file = words.nth(2)?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    is_code.then_some(CodeMapping {
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
        file: file.to_owned(),
    })
}

fn threads() -> io::Result<Threads> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let Some(id) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        // A thread may end between the list and the look.
        let Ok(stat) = fs::read(entry.path().join("stat")) else {
            continue;
        };
        let stat = String::from_utf8_lossy(&stat);
        // `id (name) state …`, and the name may hold anything.
        let name = stat.find('(').zip(stat.rfind(')'));
        if let Some((open, close)) = name {
            let state = stat[close + 1..].trim_start().chars().next();
            found.push((id, stat[open + 1..close].to_owned(), state.unwrap_or('?')));
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use ferrolet_linux::sys::WatchedHeap;

    #[global_allocator]
    static HEAP: WatchedHeap = WatchedHeap;

    #[inline(never)]
    fn spin(stop: &AtomicBool) -> u64 {
        let mut n = 0u64;
        while !stop.load(Ordering::Relaxed) {
            n = std::hint::black_box(n.wrapping_mul(31).wrapping_add(7));
        }
        n
    }

    fn is_of(profile: &Profile, address: u64, sample: &ProfileSample) -> bool {
        let own = std::env::current_exe().unwrap();
        let own = profile
            .mappings
            .iter()
            .any(|it| it.file == own.to_string_lossy() && (it.start..it.end).contains(&address));
        own && sample.stack.len() > 2
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_busy_thread_is_seen_and_a_second_profile_refused() {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let busy = std::thread::spawn(move || spin(&stopped));
        let (first, second) = tokio::join!(
            OwnProfiler.cpu(Duration::from_secs(1)),
            OwnProfiler.cpu(Duration::from_secs(1)),
        );
        stop.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        let profile = first.unwrap();
        assert!(second.is_err());
        let seen = profile.samples.iter();
        let ours = seen.filter(|it| is_of(&profile, it.stack[0], it));
        let n: i64 = ours.map(|it| it.figures[0]).sum();
        assert!(n >= 5, "{n} samples of a second: {profile:?}");
    }

    #[tokio::test]
    async fn what_holds_memory_is_seen_until_it_is_released() {
        let in_use = async || -> i64 {
            let profile = OwnProfiler.heap().await.unwrap();
            profile.samples.iter().map(|it| it.figures[3]).sum()
        };
        let before = in_use().await;
        let held: Vec<Vec<u8>> = (0..64).map(|_| vec![1; HEAP_RATE]).collect();
        let during = in_use().await;
        drop(held);
        let after = in_use().await;
        let size = i64::try_from(64 * HEAP_RATE).unwrap();
        // Other tests allocate beside this one, and a full line is not counted.
        assert!(during - before > size / 2, "{before} {during}");
        assert!(during - after > size / 2, "{during} {after}");
    }

    #[tokio::test]
    async fn threads_are_listed_by_name() {
        let all = OwnProfiler.threads().await.unwrap();
        assert!(all.iter().any(|(id, _, _)| *id == std::process::id()));
    }

    #[test]
    fn only_code_is_mapped() {
        let code = "55d0c0001000-55d0c0201000 r-xp 00001000 08:01 1234   /usr/bin/ferrolet";
        let found = mapping(code).unwrap();
        assert_eq!(
            (found.start, found.end, found.offset, found.file.as_str()),
            (0x55d0_c000_1000, 0x55d0_c020_1000, 0x1000, "/usr/bin/ferrolet")
        );
        let data = code.replace("r-xp", "rw-p");
        assert_eq!(mapping(&data), None);
        assert_eq!(mapping("7fff00000000-7fff00001000 rw-p 00000000 00:00 0"), None);
    }
}

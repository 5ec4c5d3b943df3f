//! This process's own metrics, from `/proc/self`: what every Prometheus dashboard shows of a
//! process.

use std::path::Path;

use ferrolet_ports::{Measured, Sample, metrics};

/// Reads them at each scrape; a handful of small files.
pub struct OwnProcess;

/// Ticks per second in `/proc/PID/stat`.
const TICKS: f64 = 100.0;

impl Measured for OwnProcess {
    fn samples(&self) -> Vec<Sample> {
        let text = |name: &str| {
            let bytes = std::fs::read(Path::new("/proc").join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let n_open = std::fs::read_dir("/proc/self/fd").map(|it| it.count());
        samples(&Texts {
            stat: &text("self/stat"),
            limits: &text("self/limits"),
            network: &text("self/net/dev"),
            boot: &text("stat"),
            n_open: n_open.unwrap_or(0),
            status: &text("self/status"),
        })
    }
}

struct Texts<'a> {
    stat: &'a str,
    limits: &'a str,
    network: &'a str,
    boot: &'a str,
    n_open: usize,
    status: &'a str,
}

fn samples(texts: &Texts<'_>) -> Vec<Sample> {
    // The name may hold spaces and brackets; what follows the last bracket does not.
    let rest = texts.stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Counted from the third field, the state.
    let number = |field: usize| words.get(field - 3).and_then(|it| it.parse::<f64>().ok());
    let ticks = number(14).zip(number(15)).map(|(user, kernel)| user + kernel);
    let (received, sent) = network(texts.network);
    let resident = texts.status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|it| it.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    let boot = texts.boot.lines().find_map(|line| line.strip_prefix("btime "));
    let boot = boot.and_then(|it| it.trim().parse::<f64>().ok());
    let started = boot.zip(number(22)).map(|(boot, ticks)| boot + ticks / TICKS);
    // No limit is the largest number, as Prometheus' own collector has it.
    let most = limit(texts.limits, "Max address space").unwrap_or(u64::MAX as f64);
    let counters = [
        (metrics::PROCESS_CPU_SECONDS_TOTAL, ticks.map(|ticks| ticks / TICKS)),
        (metrics::PROCESS_NETWORK_RECEIVE_BYTES_TOTAL, Some(received)),
        (metrics::PROCESS_NETWORK_TRANSMIT_BYTES_TOTAL, Some(sent)),
    ];
    let gauges = [
        (metrics::PROCESS_MAX_FDS, limit(texts.limits, "Max open files")),
        (metrics::PROCESS_OPEN_FDS, Some(texts.n_open as f64)),
        (metrics::PROCESS_RESIDENT_MEMORY_BYTES, resident.map(|kilobytes| kilobytes * 1024.0)),
        (metrics::PROCESS_START_TIME_SECONDS, started),
        (metrics::PROCESS_VIRTUAL_MEMORY_BYTES, number(23)),
        (metrics::PROCESS_VIRTUAL_MEMORY_MAX_BYTES, Some(most)),
    ];
    let counters = counters.into_iter().filter_map(|(it, value)| Some(it.sample([], value?)));
    let gauges = gauges.into_iter().filter_map(|(it, value)| Some(it.sample([], value?)));
    counters.chain(gauges).collect()
}

fn limit(limits: &str, name: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Bytes in and out of every interface but the loopback.
fn network(text: &str) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    for line in text.lines().skip(2) {
        let Some((name, numbers)) = line.split_once(':') else {
            continue;
        };
        if name.trim() == "lo" {
            continue;
        }
        let numbers: Vec<f64> =
            numbers.split_ascii_whitespace().filter_map(|it| it.parse().ok()).collect();
        sums.0 += numbers.first().unwrap_or(&0.0);
        sums.1 += numbers.get(8).unwrap_or(&0.0);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_the_kernels_texts() {
        let stat = "42 (odd) name) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 9 0 300 4096000 10 0";
        let samples = samples(&Texts {
            stat,
            limits: "Limit  Soft  Hard  Units\nMax open files   1024   4096   files\nMax address space   unlimited   unlimited   bytes\n",
            network: "h\nh\n  lo: 9 0 0 0 0 0 0 0 9 0\n eth0: 5 0 0 0 0 0 0 0 7 0\n",
            boot: "cpu 1\nbtime 1000\n",
            n_open: 3,
            status: "Name: x\nVmRSS:\t  40 kB\n",
        });
        let of = |name: &str| {
            let found = samples.iter().find(|it| it.family.name == name).unwrap();
            found.value.total()
        };
        for (name, value) in [
            ("process_cpu_seconds_total", 2.0),
            ("process_max_fds", 1024.0),
            ("process_network_receive_bytes_total", 5.0),
            ("process_network_transmit_bytes_total", 7.0),
            ("process_open_fds", 3.0),
            ("process_resident_memory_bytes", 40960.0),
            ("process_start_time_seconds", 1003.0),
            ("process_virtual_memory_bytes", 4_096_000.0),
        ] {
            assert_eq!(of(name), value, "{name}");
        }
        assert!(!OwnProcess.samples().is_empty());
    }
}

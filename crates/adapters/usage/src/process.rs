//! This process's own figures, from `/proc/self`: what every Prometheus dashboard shows of a
//! process.

use std::path::Path;

use ferrolet_ports::{Measured, Sample, SampleValue};

/// Reads them at each scrape; a handful of small files.
pub struct OwnFigures;

/// Ticks per second in `/proc/PID/stat`.
const TICKS: f64 = 100.0;

impl Measured for OwnFigures {
    fn samples(&self) -> Vec<Sample> {
        let text = |name: &str| {
            let bytes = std::fs::read(Path::new("/proc").join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let n_open = std::fs::read_dir("/proc/self/fd").map(|it| it.count());
        figures(&Texts {
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

fn figures(texts: &Texts<'_>) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut add = |family: &'static str, value: Option<f64>| {
        samples.extend(value.map(|value| Sample {
            family,
            labels: Vec::new(),
            value: SampleValue::Number(value),
        }));
    };
    // The name may hold spaces and brackets; what follows the last bracket does not.
    let rest = texts.stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Counted from the third field, the state.
    let number = |field: usize| words.get(field - 3).and_then(|it| it.parse::<f64>().ok());
    let ticks = number(14).zip(number(15)).map(|(user, kernel)| user + kernel);
    add("process_cpu_seconds_total", ticks.map(|ticks| ticks / TICKS));
    add("process_max_fds", limit(texts.limits, "Max open files"));
    let (received, sent) = network(texts.network);
    add("process_network_receive_bytes_total", Some(received));
    add("process_network_transmit_bytes_total", Some(sent));
    add("process_open_fds", Some(texts.n_open as f64));
    let resident = texts.status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|it| it.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    let resident = resident.map(|kilobytes| kilobytes * 1024.0);
    add("process_resident_memory_bytes", resident);
    let boot = texts.boot.lines().find_map(|line| line.strip_prefix("btime "));
    let boot = boot.and_then(|it| it.trim().parse::<f64>().ok());
    let started = boot.zip(number(22)).map(|(boot, ticks)| boot + ticks / TICKS);
    add("process_start_time_seconds", started);
    add("process_virtual_memory_bytes", number(23));
    let most = limit(texts.limits, "Max address space");
    // No limit is the largest number, as Prometheus' own collector has it.
    add("process_virtual_memory_max_bytes", Some(most.unwrap_or(u64::MAX as f64)));
    samples
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
        let samples = figures(&Texts {
            stat,
            limits: "Limit  Soft  Hard  Units\nMax open files   1024   4096   files\nMax address space   unlimited   unlimited   bytes\n",
            network: "h\nh\n  lo: 9 0 0 0 0 0 0 0 9 0\n eth0: 5 0 0 0 0 0 0 0 7 0\n",
            boot: "cpu 1\nbtime 1000\n",
            n_open: 3,
            status: "Name: x\nVmRSS:\t  40 kB\n",
        });
        let of = |name: &str| {
            let found = samples.iter().find(|it| it.family == name).unwrap();
            found.value.clone()
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
            assert_eq!(of(name), SampleValue::Number(value), "{name}");
        }
        assert!(!OwnFigures.samples().is_empty());
    }
}

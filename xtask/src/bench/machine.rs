//! What the race was run on: machine, date and versions, for the page and the JSON.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use ferrolet_lab::Toolbox;
use ferrolet_lab::parts::ControlPlane;
use ferrolet_lab::process::{call, output};
use serde_json::{Value, json};

use crate::build;

/// Facts of one run, each ready to be read.
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) processor: String,
    pub(crate) n_cores: usize,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    /// Of the last minute, when the run began.
    pub(crate) load: f64,
    pub(crate) ours: String,
    pub(crate) upstream: String,
    pub(crate) containerd: String,
    pub(crate) runc: String,
}

/// The load of the last minute.
pub(crate) fn load() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0))
}

impl Machine {
    pub(crate) fn look(tools: &Toolbox, binaries: &ControlPlane, agent: &Path) -> Result<Machine> {
        let cpus = fs::read_to_string("/proc/cpuinfo")?;
        let memory = fs::read_to_string("/proc/meminfo")?;
        Ok(Machine {
            date: call("date", &["-u", "+%Y-%m-%d %H:%M UTC"])?.trim().to_owned(),
            processor: field(&cpus, "model name").unwrap_or("unknown processor").to_owned(),
            n_cores: std::thread::available_parallelism()?.get(),
            memory: memory_text(&memory).unwrap_or_default(),
            kernel: format!(
                "{}, cgroup {}",
                call("uname", &["-sr"])?.trim(),
                if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() { "v2" } else { "v1" }
            ),
            load: load()?,
            ours: ours(agent),
            upstream: last_word(&output(
                Command::new(binaries.binary("kubelet")).arg("--version"),
            )?),
            containerd: tools.containerd.version.clone(),
            runc: last_word(
                output(Command::new(&tools.runc).arg("--version"))?
                    .lines()
                    .next()
                    .unwrap_or_default(),
            ),
        })
    }

    /// Whether something else already keeps the cores busy.
    pub(crate) fn is_busy(&self) -> bool {
        self.load > 0.5 * f64::from(u32::try_from(self.n_cores).unwrap_or(u32::MAX))
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "date": self.date,
            "processor": self.processor,
            "cores": self.n_cores,
            "memory": self.memory,
            "kernel": self.kernel,
            "loadAtStart": self.load,
            "ferrolet": self.ours,
            "kubelet": self.upstream,
            "containerd": self.containerd,
            "runc": self.runc,
        })
    }
}

/// Our version and size, and the commit if the agent was built from this checkout.
fn ours(agent: &Path) -> String {
    let version = output(Command::new(agent).arg("--version")).unwrap_or_default();
    let size = fs::metadata(agent).map_or(0, |it| it.len()) / 1_000_000;
    let head = ["rev-parse", "--short", "HEAD"];
    let commit = output(Command::new("git").args(head).current_dir(build::root()));
    let commit = match commit {
        Ok(commit) if agent.starts_with(build::root()) => format!(" at {}", commit.trim()),
        _ => String::new(),
    };
    format!("{}{commit}, {size} MB", version.trim())
}

fn last_word(text: &str) -> String {
    text.split_whitespace().last().unwrap_or_default().to_owned()
}

/// `name<tab>: value`, the first of that name.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))
        .map(str::trim)
}

fn memory_text(text: &str) -> Option<String> {
    let kib: f64 = field(text, "MemTotal")?.strip_suffix(" kB")?.parse().ok()?;
    Some(format!("{:.0} GB", kib * 1024.0 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_files_are_found() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Other\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "flags"), None);
        assert_eq!(memory_text("MemTotal:       24681472 kB\n").as_deref(), Some("25 GB"));
        assert_eq!(last_word("Kubernetes v1.37.1\n"), "v1.37.1");
    }
}

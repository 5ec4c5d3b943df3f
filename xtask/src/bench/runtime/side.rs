//! One of the two runtimes, started in control groups of its own, so that what it and its children use can be told from
//! everything else on the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use ferrolet_lab::image::{self, ImageSpec};
use ferrolet_lab::process::Daemon;
use ferrolet_lab::{Bench, Containerd, Registry, Toolbox, cgroups, wait_until};

use super::super::cost::Holding;

/// The program of containerd's sandboxes.
const PAUSE: &str = "pause";

pub(super) struct Side {
    name: &'static str,
    endpoint: String,
    /// Above `daemon` and `pods`.
    group: String,
    /// The process that serves CRI.
    pid: u32,
    running: Running,
}

enum Running {
    Ours(Daemon),
    Containerd(Box<Containerd>),
}

impl Side {
    /// `ferrolet runtime`, with busybox loaded.
    pub(super) fn ours(
        bench: &Bench,
        tools: &Toolbox,
        agent: &Path,
        registry: &Registry,
    ) -> Result<Side> {
        let directory = bench.directory("ours")?;
        let group = groups(bench, "ours")?;
        let busybox: ImageSpec = image::busybox(&tools.busybox)?;
        let archives = image::write_archives(&directory.join("images"), &[busybox])?;
        let hosts = directory.join("registries").join(super::REGISTRY);
        fs::create_dir_all(&hosts)?;
        let url = registry.url();
        fs::write(hosts.join("hosts.toml"), format!("server = '{url}'\n[host.'{url}']\n"))?;
        let empty = directory.join("cni");
        fs::create_dir_all(&empty)?;
        let (_, subnet) = bench.next_subnet();
        let socket = directory.join("runtime.sock");
        let mut command = Command::new(agent);
        command
            .arg("runtime")
            .arg("--root")
            .arg(directory.join("root"))
            .arg("--run")
            .arg(directory.join("run"))
            .arg(format!("--listen=unix://{}", socket.display()))
            .arg(format!("--cgroup-parent={group}/pods"))
            .arg(format!("--pod-cidr={subnet}.0/24"))
            .arg("--cni-conf-dir")
            .arg(&empty)
            .arg("--registry-hosts")
            .arg(directory.join("registries"));
        for archive in &archives {
            command.arg("--load").arg(archive);
        }
        let mut daemon = Daemon::spawn("ferrolet runtime", command, &directory.join("log"))?;
        wait_until("the runtime's socket", Duration::from_secs(60), || {
            daemon.expect_running()?;
            Ok(std::os::unix::net::UnixStream::connect(&socket).ok().map(drop))
        })?;
        let pid = daemon.pid();
        let endpoint = format!("unix://{}", socket.display());
        let side = Side { name: "ferrolet", endpoint, group, pid, running: Running::Ours(daemon) };
        side.adopt()?;
        Ok(side)
    }

    pub(super) fn containerd(bench: &Bench, tools: &Toolbox, registry: &Registry) -> Result<Side> {
        let group = groups(bench, "containerd")?;
        let containerd = Containerd::start(bench, tools, "containerd")?;
        containerd.point_registry(super::REGISTRY, registry)?;
        let configuration = containerd.directory().join("config.toml");
        let pid = find(&configuration.to_string_lossy()).context("no process of containerd")?;
        let endpoint = containerd.endpoint();
        let running = Running::Containerd(Box::new(containerd));
        let side = Side { name: "containerd", endpoint, group, pid, running };
        side.adopt()?;
        Ok(side)
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn pods_group(&self) -> String {
        format!("{}/pods", self.group)
    }

    pub(super) fn log(&self) -> String {
        match &self.running {
            Running::Ours(daemon) => daemon.log_tail(30),
            Running::Containerd(containerd) => ferrolet_lab::process::tail(&containerd.log(), 30),
        }
    }

    /// Ends it with everything of it.
    pub(super) fn end(self) -> Result<()> {
        match self.running {
            Running::Ours(mut daemon) => {
                daemon.terminate(Duration::from_secs(30))?;
            }
            Running::Containerd(containerd) => containerd.destroy()?,
        }
        Ok(())
    }

    /// Puts it and its children into its group; what they start later is born there.
    fn adopt(&self) -> Result<()> {
        let place = accounting()?.join(self.group.trim_matches('/')).join("daemon/cgroup.procs");
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid));
        let children = children.unwrap_or_default();
        let all = children.split_whitespace().map(str::to_owned).chain([self.pid.to_string()]);
        for pid in all {
            fs::write(&place, &pid).with_context(|| format!("move {pid} to its group"))?;
        }
        Ok(())
    }

    /// CPU time of runtime and pods so far, with everything that ended.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        used(&accounting()?.join(self.group.trim_matches('/')))
    }

    /// CPU time of the runtime and of what it started outside of pods.
    pub(super) fn own_cpu_seconds(&self) -> Result<f64> {
        used(&accounting()?.join(self.group.trim_matches('/')).join("daemon"))
    }

    /// What everything but the containers holds.
    pub(super) fn memory_megabytes(&self) -> Result<f64> {
        let group = accounting()?.join(self.group.trim_matches('/'));
        let mut pids = processes(&group.join("daemon"));
        let is_pause = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == PAUSE)
        };
        pids.extend(processes(&group.join("pods")).into_iter().filter(is_pause));
        // One that ended since it was listed holds nothing.
        Ok(pids
            .into_iter()
            .filter_map(|pid| Holding::of(pid).ok())
            .map(|it| it.proportional_mb)
            .sum())
    }

    /// From here on the peak counts anew.
    pub(super) fn forget_peak(&self) -> Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.pid), "5").context("forget the peak")
    }

    /// The most that the process which serves CRI ever held.
    pub(super) fn peak_megabytes(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|it| it.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kib.context("no VmHWM in /proc")? * 1024.0 / 1e6)
    }
}

/// New groups for one side; their name.
fn groups(bench: &Bench, name: &str) -> Result<String> {
    let group = format!("{}/{name}", bench.run_id().cgroup());
    cgroups::create(&format!("{group}/daemon"))?;
    cgroups::create(&format!("{group}/pods"))?;
    Ok(group)
}

/// The tree that counts CPU time.
fn accounting() -> Result<PathBuf> {
    let mut all = cgroups::hierarchies()?.into_iter();
    all.find(|it| cgroups::is_v2() || it.join("cpuacct.usage").exists())
        .context("no control group counts CPU time")
}

fn used(group: &Path) -> Result<f64> {
    if cgroups::is_v2() {
        let text = fs::read_to_string(group.join("cpu.stat"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
        let microseconds: f64 = line.context("no usage in cpu.stat")?.parse()?;
        return Ok(microseconds / 1e6);
    }
    let text = fs::read_to_string(group.join("cpuacct.usage"))?;
    Ok(text.trim().parse::<f64>()? / 1e9)
}

/// Everybody in a group and in those below it.
fn processes(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<u32> = text.lines().filter_map(|it| it.parse().ok()).collect();
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            found.extend(processes(&entry.path()));
        }
    }
    found
}

/// The process with a word in its command line.
fn find(word: &str) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).split('\0').any(|it| it == word)
    })
}

//! A private containerd: own root, state, socket, CNI network and bridge, below one directory of
//! the run.
//!
//! One agent at a time may use an instance: an agent rightly takes pods that it does not know for
//! orphans. Looking inside is done with `ctr`, from outside the agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::image::{self, ImageSpec};
use crate::isolation::Bench;
use crate::mounts;
use crate::parts::Toolbox;
use crate::process::{Daemon, output, send_signal};
use crate::registry::Registry;
use crate::wait::wait_until;

/// Where pods get their network from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNetwork {
    /// A configuration that is there from the start.
    Ready,
    /// A template that lacks the range, which the agent hands over.
    FromAgent,
}

/// Who makes containers' cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    /// runc, by hand.
    Cgroupfs,
    /// systemd, as kubeadm sets nodes up; it has to be the first process.
    Systemd,
}

/// A running (or killed) instance.
pub struct Containerd {
    network: PodNetwork,
    driver: CgroupDriver,
    directory: PathBuf,
    tools: Toolbox,
    bridge: String,
    subnet: String,
    daemon: Option<Daemon>,
}

/// A container or sandbox as `ctr` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeContainer {
    pub id: String,
    /// `sandbox` or `container`.
    pub kind: String,
    pub pod_uid: String,
    /// Empty for a sandbox.
    pub name: String,
    /// The runtime specification that runc was given.
    pub spec: Value,
}

impl Containerd {
    /// Starts an instance named `name` and imports the pause and busybox images.
    pub fn start(bench: &Bench, tools: &Toolbox, name: &str) -> Result<Containerd> {
        Containerd::start_with(bench, tools, name, PodNetwork::Ready, CgroupDriver::Cgroupfs)
    }

    /// Like [`Containerd::start`], with a choice of network and of who makes cgroups.
    pub fn start_with(
        bench: &Bench,
        tools: &Toolbox,
        name: &str,
        network: PodNetwork,
        driver: CgroupDriver,
    ) -> Result<Containerd> {
        let directory = bench.directory(name)?;
        let (number, subnet) = bench.next_subnet();
        let mut this = Containerd {
            network,
            driver,
            directory,
            tools: tools.clone(),
            bridge: format!("br-{}-{number}", bench.run_id().id),
            subnet,
            daemon: None,
        };
        this.write_configuration()?;
        this.launch()?;
        this.import(&[image::pause(&this.tools.pause)?, image::busybox(&this.tools.busybox)?])?;
        Ok(this)
    }

    /// The CRI endpoint as the agent's configuration wants it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.directory.join("containerd.log")
    }

    /// The instance's bridge.
    #[must_use]
    pub fn bridge(&self) -> &str {
        &self.bridge
    }

    /// The first three octets of the pod addresses.
    #[must_use]
    pub fn subnet(&self) -> &str {
        &self.subnet
    }

    /// Whether it says which images must stay.
    #[must_use]
    pub fn pins_images(&self) -> bool {
        self.tools.containerd.major >= 2
    }

    /// Whether this containerd streams container events (2.x does, Debian's 1.6 does not).
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.tools.containerd.major >= 2
    }

    /// Starts the process and waits until it answers. Also after [`Containerd::kill`].
    pub fn launch(&mut self) -> Result<()> {
        let binaries = &self.tools.containerd;
        let mut search = binaries.directory.as_os_str().to_owned();
        search.push(":/usr/sbin:/usr/bin:/sbin:/bin");
        let mut command = Command::new(&binaries.containerd);
        command.arg("--config").arg(self.directory.join("config.toml")).env("PATH", search);
        let mut daemon = Daemon::spawn("containerd", command, &self.log())?;
        let ready = wait_until("containerd to answer", Duration::from_secs(30), || {
            daemon.expect_running()?;
            let plugins = self.ctr(&["plugins", "ls"])?;
            let cri =
                plugins.lines().any(|line| line.contains("cri") && line.trim_end().ends_with("ok"));
            Ok(cri.then_some(()))
        });
        let tail = daemon.log_tail(20);
        self.daemon = Some(daemon);
        ready.with_context(|| format!("start containerd\n{tail}"))
    }

    /// `kill -9`: shims and containers go on.
    pub fn kill(&mut self) -> Result<()> {
        match self.daemon.take() {
            Some(mut daemon) => daemon.kill(),
            None => Ok(()),
        }
    }

    /// Writes and imports images, and waits until the CRI side has taken them in.
    pub fn import(&self, images: &[ImageSpec]) -> Result<()> {
        let archives = image::write_archives(&self.directory.join("images"), images)?;
        for (archive, image) in archives.iter().zip(images) {
            let path = archive.to_string_lossy();
            self.ctr(&["images", "import", &path])
                .with_context(|| format!("import {}", image.name))?;
            fs::remove_file(archive)?;
            self.wait_managed(&image.name)?;
        }
        Ok(())
    }

    /// Imports an archive that somebody else made, which holds the image of this name.
    pub fn import_archive(&self, archive: &Path, name: &str) -> Result<()> {
        self.ctr(&["images", "import", &archive.to_string_lossy()])
            .with_context(|| format!("import {name}"))?;
        self.wait_managed(name)
    }

    /// Waits until the CRI side knows an image.
    fn wait_managed(&self, name: &str) -> Result<()> {
        wait_until(&format!("image {name} to be managed"), Duration::from_secs(10), || {
            let listed = self.ctr(&["images", "ls", &format!("name=={name}")])?;
            Ok(listed.contains("io.cri-containerd.image=managed").then_some(()))
        })
    }

    /// Lets pulls from a registry of this name (without a port) go to a registry of the bench, from
    /// the next pull on.
    pub fn point_registry(&self, name: &str, registry: &Registry) -> Result<()> {
        let directory = self.directory.join("registries").join(name);
        fs::create_dir_all(&directory)?;
        let url = registry.url();
        let text =
            format!("server = '{url}'\n[host.'{url}']\ncapabilities = ['pull', 'resolve']\n");
        fs::write(directory.join("hosts.toml"), text)
            .with_context(|| format!("write hosts.toml of {name}"))
    }

    /// Runs `ctr` in the Kubernetes namespace and gives its output.
    pub fn ctr(&self, args: &[&str]) -> Result<String> {
        output(
            Command::new(&self.tools.containerd.ctr)
                .arg("--address")
                .arg(self.socket())
                .args(["--namespace", "k8s.io"])
                .args(args),
        )
    }

    /// All sandboxes and containers, running or not.
    pub fn containers(&self) -> Result<Vec<RuntimeContainer>> {
        let mut found = Vec::new();
        for id in self.ctr(&["containers", "ls", "--quiet"])?.split_whitespace() {
            // It may be removed between the list and the look.
            let Ok(text) = self.ctr(&["containers", "info", id]) else {
                continue;
            };
            let info: Value =
                serde_json::from_str(&text).with_context(|| format!("ctr info of {id}"))?;
            let label = |key: &str| info["Labels"][key].as_str().unwrap_or_default().to_owned();
            found.push(RuntimeContainer {
                id: id.to_owned(),
                kind: label("io.cri-containerd.kind"),
                pod_uid: label("io.kubernetes.pod.uid"),
                name: label("io.kubernetes.container.name"),
                spec: info["Spec"].clone(),
            });
        }
        Ok(found)
    }

    /// Process ids of what runs, by container id.
    pub fn tasks(&self) -> Result<Vec<(String, u32)>> {
        let text = self.ctr(&["tasks", "ls"])?;
        let rows = text.lines().skip(1).filter_map(|line| {
            let mut words = line.split_whitespace();
            let (id, pid, state) = (words.next()?, words.next()?, words.next()?);
            (state == "RUNNING").then(|| Some((id.to_owned(), pid.parse().ok()?))).flatten()
        });
        // containerd lists them in any order.
        let mut tasks: Vec<(String, u32)> = rows.collect();
        tasks.sort();
        Ok(tasks)
    }

    /// What a power cut does: every process ends at once, what is on disk stays, and containerd
    /// starts again.
    pub fn reboot(&mut self) -> Result<()> {
        self.end_processes()?;
        self.launch()
    }

    /// Ends everything of this instance: daemon, shims, containers, mounts, files. Nothing is kept.
    pub fn destroy(mut self) -> Result<()> {
        self.end_processes()?;
        mounts::remove_tree(&self.directory)
    }

    fn end_processes(&mut self) -> Result<()> {
        self.kill()?;
        let socket = self.socket().to_string_lossy().into_owned();
        wait_until("the shims to end", Duration::from_secs(10), || {
            let ours = shims(&socket);
            for pid in &ours {
                for child in children(*pid) {
                    // Container processes hang on their shim; without it nobody would end them.
                    let _ = send_signal(child, Signal::KILL);
                }
                let _ = send_signal(*pid, Signal::KILL);
            }
            Ok(ours.is_empty().then_some(()))
        })
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("containerd.sock")
    }

    fn write_configuration(&self) -> Result<()> {
        let network = json!({
            "cniVersion": "1.0.0",
            "name": self.bridge,
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": self.bridge,
                    "isGateway": true,
                    "hairpinMode": true,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": self.directory.join("addresses"),
                        "ranges": [[{ "subnet": format!("{}.0/24", self.subnet) }]],
                        "routes": [{ "dst": "0.0.0.0/0" }],
                    },
                },
                { "type": "portmap", "capabilities": { "portMappings": true } },
            ],
        });
        let conf_dir = self.directory.join("cni");
        fs::create_dir_all(&conf_dir)?;
        match self.network {
            PodNetwork::Ready => fs::write(
                conf_dir.join("10-bridge.conflist"),
                serde_json::to_vec_pretty(&network)?,
            )?,
            PodNetwork::FromAgent => fs::write(self.template(), self.template_text())?,
        }
        fs::write(self.directory.join("config.toml"), self.configuration()?)?;
        Ok(())
    }

    fn template(&self) -> PathBuf {
        self.directory.join("network.template")
    }

    /// The range comes from outside and may be one that another bridge of the run has, so this one
    /// gets no address.
    fn template_text(&self) -> String {
        let network = json!({
            "cniVersion": "1.0.0",
            "name": self.bridge,
            "plugins": [{
                "type": "bridge",
                "bridge": self.bridge,
                "ipam": {
                    "type": "host-local",
                    "dataDir": self.directory.join("addresses"),
                    "ranges": [[{ "subnet": "{{.PodCIDR}}" }]],
                },
            }],
        });
        network.to_string()
    }

    /// containerd's own configuration, in the version that the binary wants.
    fn configuration(&self) -> Result<String> {
        let dir = self.directory.display();
        let (runc, cni) = (self.tools.runc.display(), self.tools.cni_plugins.display());
        let template = match self.network {
            PodNetwork::Ready => String::new(),
            PodNetwork::FromAgent => format!("conf_template = '{}'\n", self.template().display()),
        };
        let systemd = self.driver == CgroupDriver::Systemd;
        // oom_score_adj may only be raised here: CAP_SYS_RESOURCE is missing on some machines.
        let (version, sections) = match self.tools.containerd.major {
            2 => (
                3,
                format!(
                    "[plugins.'io.containerd.nri.v1.nri']\n\
                 disable = true\n\
                 [plugins.'io.containerd.cri.v1.images'.pinned_images]\n\
                 sandbox = '{pause}'\n\
                 [plugins.'io.containerd.cri.v1.images'.registry]\n\
                 config_path = '{dir}/registries'\n\
                 [plugins.'io.containerd.cri.v1.runtime']\n\
                 restrict_oom_score_adj = true\n\
                 disable_hugetlb_controller = false\n\
                 tolerate_missing_hugetlb_controller = true\n\
                 [plugins.'io.containerd.cri.v1.runtime'.cni]\n\
                 bin_dirs = ['{cni}']\n\
                 conf_dir = '{dir}/cni'\n\
                 {template}\
                 [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n\
                 runtime_type = 'io.containerd.runc.v2'\n\
                 [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n\
                 BinaryName = '{runc}'\n\
                 SystemdCgroup = {systemd}\n",
                    pause = image::PAUSE,
                ),
            ),
            1 => (
                2,
                format!(
                    "[plugins.'io.containerd.grpc.v1.cri']\n\
                 sandbox_image = '{pause}'\n\
                 restrict_oom_score_adj = true\n\
                 [plugins.'io.containerd.grpc.v1.cri'.registry]\n\
                 config_path = '{dir}/registries'\n\
                 [plugins.'io.containerd.grpc.v1.cri'.cni]\n\
                 bin_dir = '{cni}'\n\
                 conf_dir = '{dir}/cni'\n\
                 {template}\
                 [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\n\
                 runtime_type = 'io.containerd.runc.v2'\n\
                 [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]\n\
                 BinaryName = '{runc}'\n\
                 SystemdCgroup = {systemd}\n",
                    pause = image::PAUSE,
                ),
            ),
            other => bail!("containerd {other}.x is not known here"),
        };
        // The opt plugin would make directories in /opt.
        Ok(format!(
            "version = {version}\n\
             root = '{dir}/root'\n\
             state = '{dir}/state'\n\
             disabled_plugins = ['io.containerd.internal.v1.opt']\n\
             [grpc]\n\
             address = '{dir}/containerd.sock'\n\
             {sections}"
        ))
    }
}

/// Shims that were started for this socket.
fn shims(socket: &str) -> Vec<u32> {
    processes()
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("containerd-shim") && line.contains(socket)
        })
        .collect()
}

fn children(parent: u32) -> Vec<u32> {
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(of_thread)
        .flat_map(|text| {
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
}

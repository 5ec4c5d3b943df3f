//! Where one pod runs: a directory, a control group and names that nobody else has, and their end.
//!
//! ```text
//!  $TMPDIR/ferrolet-run-<random>/{kubelet.yaml, runtime.yaml, manifests/, root/, logs/, cni/}
//!  /ferrolet-run-<random> in every control group hierarchy
//!  /run/ferrolet-<digits>: what goes with the runtime
//! ```

use std::{
    fs,
    io::{self, Write as _},
    net::Ipv4Addr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use ferrolet_config::{RUNTIME_FILE, RuntimeFile};
use ferrolet_linux::{cgroups::CgroupLayout, mountinfo};
use ferrolet_runtime_network::{CniSettings, Network, Settings};
use serde_json::json;

const MANIFEST: &str = "pod.yaml";
/// Ranges of 256 addresses for such pods, by their third byte.
const RANGES: [u8; 2] = [10, 89];
/// How often a group that is not empty is emptied, and how long its processes get to leave.
const PASSES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(40);

/// A place for one pod.
#[derive(Debug)]
pub(super) struct Place {
    directory: PathBuf,
    runtime: RuntimeFile,
    range: String,
    groups: Vec<PathBuf>,
}

impl Place {
    /// Makes it, with the manifest in it.
    pub(super) fn make(manifest: &[u8]) -> anyhow::Result<Self> {
        let name = name()?;
        let directory = std::env::temp_dir().join(&name);
        let at = || format!("make {}", directory.display());
        // Somebody else's of this name is not used.
        fs::DirBuilder::new().mode(0o700).create(&directory).with_context(at)?;
        let root = directory.join("root");
        for sub in ["root", "manifests", "logs", "cni"] {
            fs::create_dir(directory.join(sub)).with_context(at)?;
        }
        let runtime = RuntimeFile::read(None, &root)
            .map_err(|faults| ferrolet_config::LoadError { faults })?;
        let range = free_range()?;
        let place = Self { groups: make_groups(&name)?, directory, runtime, range };
        place.write("kubelet.yaml", &place.configuration(&name))?;
        place.write(RUNTIME_FILE, &place.runtime_configuration())?;
        let path = place.manifest();
        fs::write(&path, manifest).with_context(|| format!("write {}", path.display()))?;
        Ok(place)
    }

    /// What the agent is started with.
    pub(super) fn command_line(&self, node: &str) -> Vec<String> {
        let path = |name: &str| self.directory.join(name).display().to_string();
        vec![
            format!("--config={}", path("kubelet.yaml")),
            format!("--root-dir={}", path("root")),
            format!("--cert-dir={}", path("pki")),
            format!("--hostname-override={node}"),
        ]
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// The runtime's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.runtime.run.join("runtime.sock")
    }

    /// Takes the manifest away: the pod is to end. Again is no error.
    pub(super) fn withdraw(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.manifest()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context("withdraw the manifest")
            }
            _ => Ok(()),
        }
    }

    /// Takes away what the network made for all pods together. What fails is told: the pod is over.
    pub(super) async fn forget_network(&self) {
        let settings = Settings {
            name: self.runtime.network_name.clone(),
            pod_ranges: self.range.parse().into_iter().collect(),
            unmasked: Vec::new(),
            cni: CniSettings {
                config_dir: self.directory.join("cni"),
                plugin_dirs: Vec::new(),
                cache_dir: self.directory.join("cni"),
                namespace_dir: self.directory.join("cni"),
                patience: Duration::ZERO,
            },
        };
        let Ok(network) = Network::start(settings) else { return };
        if let Err(error) = network.remove().await {
            writeln!(io::stderr(), "the pod's network is not removed: {error}").ok();
        }
    }

    /// Ends what still runs in it and removes it.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        for group in &self.groups {
            remove_group(group).with_context(|| format!("remove {}", group.display()))?;
        }
        for directory in [&self.runtime.run, &self.directory] {
            match fs::remove_dir_all(directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("remove {}", directory.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn manifest(&self) -> PathBuf {
        self.directory.join("manifests").join(MANIFEST)
    }

    fn write(&self, name: &str, text: &serde_json::Value) -> anyhow::Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, text.to_string()).with_context(|| format!("write {}", path.display()))
    }

    fn configuration(&self, name: &str) -> serde_json::Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": "embedded",
            "staticPodPath": self.directory.join("manifests"),
            "podLogsDir": self.logs(),
            "cgroupRoot": format!("/{name}"),
            "volumePluginDir": self.directory.join("volume-plugins"),
            "enforceNodeAllocatable": ["none"],
            "failCgroupV1": false,
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "imageGCHighThresholdPercent": 100,
            // Files are followed: they must not be renamed meanwhile.
            "containerLogMaxSize": "-1",
            // A machine that is short refuses by itself; nobody else's pods are weighed here.
            "evictionHard": {
                "memory.available": "0%",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.available": "0%",
                "imagefs.inodesFree": "0%",
            },
            // Nothing listens.
            "enableServer": false,
            "healthzPort": 0,
            "readOnlyPort": 0,
            "authentication": { "anonymous": { "enabled": false }, "webhook": { "enabled": false } },
        })
    }

    fn runtime_configuration(&self) -> serde_json::Value {
        json!({
            "apiVersion": "runtime.ferrolet.dev/v1alpha1",
            "kind": "RuntimeConfiguration",
            "network": { "podCIDRs": [self.range], "cniConfigurationDirectory": "cni" },
        })
    }
}

/// A name that nobody else has: process ids are not one's own where there are several namespaces of them.
fn name() -> anyhow::Result<String> {
    let path = "/proc/sys/kernel/random/uuid";
    let random = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let random = random.split('-').next().unwrap_or_default();
    Ok(format!("ferrolet-run-{random}"))
}

/// A range that no address of the machine is from.
fn free_range() -> anyhow::Result<String> {
    let table = fs::read_to_string("/proc/net/fib_trie").context("read the machine's addresses")?;
    let taken: Vec<Ipv4Addr> =
        table.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let first = u8::try_from(std::process::id() % 250)?;
    let third = (0..250_u8)
        .map(|step| (u16::from(first) + u16::from(step)) % 250)
        .filter_map(|third| u8::try_from(third).ok())
        .find(|third| !taken.iter().any(|it| it.octets()[..3] == [RANGES[0], RANGES[1], *third]));
    match third {
        Some(third) => Ok(format!("{}.{}.{third}.0/24", RANGES[0], RANGES[1])),
        None => bail!("every range of pods' addresses is in use"),
    }
}

/// A control group of this name at the root of every hierarchy.
fn make_groups(name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let layout = CgroupLayout::detect(&mountinfo::read().context("read the table of mounts")?)?;
    let roots: Vec<PathBuf> = match layout {
        CgroupLayout::V2 { mount } => {
            enable_controllers(&mount);
            vec![mount]
        }
        CgroupLayout::V1 { hierarchies, unified } => {
            hierarchies.into_iter().map(|it| it.mount).chain(unified).collect()
        }
    };
    let mut groups = Vec::new();
    for root in roots {
        let group = root.join(name);
        fs::create_dir(&group).with_context(|| format!("make {}", group.display()))?;
        // A new cpuset of version 1 is empty and would refuse every process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(inherited) = fs::read_to_string(root.join(file))
                && group.join(file).exists()
            {
                fs::write(group.join(file), inherited.trim())
                    .with_context(|| format!("write {file} of {}", group.display()))?;
            }
        }
        groups.push(group);
    }
    Ok(groups)
}

/// As many as there are: one that is refused is missing in the group, and whoever needs it says so.
fn enable_controllers(root: &Path) {
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        let _refused = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Kills what is in a group and below it, and removes it.
fn remove_group(group: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..PASSES {
        last = remove_tree(group);
        match &last {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => thread::sleep(PAUSE),
        }
    }
    last
}

fn remove_tree(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    let inside = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for process in inside.lines().filter_map(|line| line.parse().ok()) {
        ferrolet_linux::children::kill(process)?;
    }
    fs::remove_dir(group)
}

//! What a real kernel must do for [`CgroupTree`], as callable checks: unit tests run them where they may, end-to-end tests run them on each machine
//! they have (v1, hybrid, v2).
//!
//! It works in a cgroup root of its own, made at the start and removed at the end, and starts the
//! one process that it kills. Refuses: touching `kubepods` of the machine.

use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
};

use ferrolet_linux::cgroups::CgroupLayout;
use ferrolet_ports::{CgroupDriver, HostError, PodCgroups};
use ferrolet_resources::{CgroupLimits, ClassBounds, PodCgroup};
use ferrolet_types::{PodUid, Qos};

use crate::cgroups::{CgroupTree, CgroupTreeError, CgroupTreeSettings, cpu_weight};

const UID: &str = "0c8f1b1e-contract";

/// Where the contract was broken.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The machine does not let us make a cgroup root.
    #[error("make the private cgroup root {path}")]
    Root {
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The tree could not be built.
    #[error("build the tree")]
    Tree(#[from] CgroupTreeError),
    /// A call of the port failed.
    #[error("call the port")]
    Port(#[from] HostError),
    /// The process to kill could not be handled.
    #[error("{attempt}")]
    Process {
        /// What was tried.
        attempt: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel shows something else than was asked for.
    #[error("{0}")]
    Differs(String),
}

/// A cgroup root for one run, in every hierarchy; removed when dropped, if what was made in it is
/// gone.
#[derive(Debug)]
pub struct PrivateRoot {
    made: Vec<PathBuf>,
}

impl PrivateRoot {
    /// Makes `/<name>` in every hierarchy, with v1's processors and memory nodes taken from the
    /// top.
    pub fn make(layout: &CgroupLayout, name: &str) -> Result<Self, Broken> {
        let mut root = Self { made: Vec::new() };
        for mount in mounts(layout) {
            let path = mount.join(name);
            let broken = |source| Broken::Root { path: path.clone(), source };
            fs::create_dir(&path).map_err(broken)?;
            // Ours from here on, and only from here on.
            root.made.push(path.clone());
            if matches!(layout, CgroupLayout::V1 { .. }) {
                fill_cpuset(&path).map_err(broken)?;
            }
        }
        Ok(root)
    }
}

impl Drop for PrivateRoot {
    fn drop(&mut self) {
        for path in &self.made {
            for below in ["kubepods/burstable", "kubepods/besteffort", "kubepods", ""] {
                // Absent or still in use: either way there is nothing more to do here.
                let _ = fs::remove_dir(path.join(below));
            }
        }
    }
}

/// Checks making, bounding, listing, killing and removing against the kernel.
pub async fn cgroups(layout: CgroupLayout, root_name: &str) -> Result<(), Broken> {
    let _root = PrivateRoot::make(&layout, root_name)?;
    let tree = tree(&layout, root_name)?;
    let all = CgroupLimits {
        cpu_shares: Some(2048),
        memory: Some(1 << 30),
        pids: Some(4096),
        ..CgroupLimits::NONE
    };
    tree.ensure_node(ClassBounds { all, ..ClassBounds::default() }).await?;
    let mut together = ClassBounds::default();
    together.burstable.cpu_shares = Some(102);
    together.burstable.memory_low = Some(8 << 20);
    together.all.memory_min = Some(24 << 20);
    together.all.memory_low = Some(8 << 20);
    tree.bound_classes(together).await?;
    let pod = pod(CgroupLimits {
        cpu_shares: Some(204),
        cpu_quota: Some(20_000),
        cpu_period: Some(100_000),
        memory: Some(48 << 20),
        pids: Some(64),
        memory_low: Some(8 << 20),
        memory_high: Some(32 << 20),
        ..CgroupLimits::NONE
    });
    let path = path_of(root_name);
    let parent = format!("/{path}");
    equal("parent", tree.parent_of(&pod).as_str(), parent.as_str())?;
    equal("exists before", &tree.exists(&pod).await?, &false)?;
    for _ in 0..2 {
        tree.ensure(&pod).await?;
        equal("exists after", &tree.exists(&pod).await?, &true)?;
    }
    check_files(&layout, root_name, &path)?;
    tree.lower_cpu(&pod.uid).await?;
    tree.lower_cpu(&PodUid::from("nobody")).await?;
    check_lowered(&layout, &path)?;
    removes(&tree, &layout, root_name, &pod).await
}

/// Checks only killing and removing: what a tree without controllers can show as well.
pub async fn cgroup_removal(layout: CgroupLayout, root_name: &str) -> Result<(), Broken> {
    let _root = PrivateRoot::make(&layout, root_name)?;
    let tree = tree(&layout, root_name)?;
    let pod = pod(CgroupLimits::default());
    tree.ensure(&pod).await?;
    removes(&tree, &layout, root_name, &pod).await
}

/// Leaves what a crashed runtime would leave, a process in nested cgroups, and has the tree remove
/// it all.
async fn removes(
    tree: &CgroupTree,
    layout: &CgroupLayout,
    root_name: &str,
    pod: &PodCgroup,
) -> Result<(), Broken> {
    equal("list", &tree.list().await?, &vec![pod.uid.clone()])?;
    let process = |attempt| move |source| Broken::Process { attempt, source };
    let mut child = tokio::process::Command::new("sleep")
        .arg("600")
        .kill_on_drop(true)
        .spawn()
        .map_err(process("start a process"))?;
    let pid = child.id().unwrap_or_default().to_string();
    for mount in mounts(layout) {
        let outer = mount.join(path_of(root_name)).join("left");
        let inner = outer.join("behind");
        fs::create_dir_all(&inner).map_err(process("make a nested cgroup"))?;
        for level in [&outer, &inner] {
            fill_cpuset(level).map_err(process("fill a nested cpuset"))?;
        }
        fs::write(inner.join("cgroup.procs"), &pid).map_err(process("move the process"))?;
    }
    // Reaped beside the removal: a dead process that nobody waited for still counts in its cgroup.
    // A removal that failed is told at once, and takes the process along that it should have ended.
    let ((), ended) =
        tokio::try_join!(async { Ok::<_, Broken>(tree.remove(&pod.uid).await?) }, async {
            child.wait().await.map_err(process("wait for the process"))
        },)?;
    equal("signal", &ended.signal(), &Some(9))?;
    tree.remove(&pod.uid).await?;
    equal("exists at the end", &tree.exists(pod).await?, &false)?;
    equal("list at the end", &tree.list().await?, &Vec::new())
}

fn tree(layout: &CgroupLayout, root_name: &str) -> Result<CgroupTree, CgroupTreeError> {
    CgroupTree::new(CgroupTreeSettings {
        root: format!("/{root_name}"),
        per_qos: true,
        driver: CgroupDriver::Cgroupfs,
        layout: layout.clone(),
        slices: None,
    })
}

fn pod(limits: CgroupLimits) -> PodCgroup {
    PodCgroup {
        uid: PodUid::from(UID),
        qos: Qos::Burstable,
        limits,
        huge_pages: Default::default(),
    }
}

fn path_of(root_name: &str) -> String {
    format!("{root_name}/kubepods/burstable/pod{UID}")
}

fn check_files(layout: &CgroupLayout, root: &str, pod: &str) -> Result<(), Broken> {
    let (besteffort, kubepods) =
        (format!("{root}/kubepods/besteffort"), format!("{root}/kubepods"));
    let burstable = format!("{root}/kubepods/burstable");
    match layout {
        CgroupLayout::V1 { hierarchies, .. } => {
            let expected = [
                ("cpu", &*kubepods, "cpu.shares", "2048".to_owned()),
                ("cpu", &burstable, "cpu.shares", "102".to_owned()),
                ("cpu", &besteffort, "cpu.shares", "2".to_owned()),
                ("cpu", pod, "cpu.shares", "204".to_owned()),
                ("cpu", pod, "cpu.cfs_quota_us", "20000".to_owned()),
                ("cpu", pod, "cpu.cfs_period_us", "100000".to_owned()),
                ("memory", &kubepods, "memory.limit_in_bytes", (1 << 30).to_string()),
                ("memory", pod, "memory.limit_in_bytes", (48 << 20).to_string()),
                ("pids", &kubepods, "pids.max", "4096".to_owned()),
                ("pids", pod, "pids.max", "64".to_owned()),
            ];
            for (controller, cgroup, file, text) in expected {
                let holds = |it: &&ferrolet_linux::cgroups::Hierarchy| {
                    it.controllers.iter().any(|name| name == controller)
                };
                // A machine may lack pids; the layout vouches for the others.
                if let Some(hierarchy) = hierarchies.iter().find(holds) {
                    shows(&hierarchy.mount.join(cgroup).join(file), &text)?;
                }
            }
            for hierarchy in hierarchies {
                let made = hierarchy.mount.join(pod).is_dir();
                equal(&hierarchy.controllers.join(","), &made, &true)?;
            }
            Ok(())
        }
        CgroupLayout::V2 { mount } => {
            let offered =
                fs::read_to_string(mount.join(root).join("cgroup.controllers")).unwrap_or_default();
            let expected = [
                ("cpu", &*kubepods, "cpu.weight", cpu_weight(2048).to_string()),
                ("cpu", &burstable, "cpu.weight", cpu_weight(102).to_string()),
                ("cpu", &besteffort, "cpu.weight", "1".to_owned()),
                ("cpu", pod, "cpu.weight", cpu_weight(204).to_string()),
                ("cpu", pod, "cpu.max", "20000 100000".to_owned()),
                ("memory", &kubepods, "memory.max", (1 << 30).to_string()),
                ("memory", pod, "memory.max", (48 << 20).to_string()),
                ("memory", &kubepods, "memory.min", (24 << 20).to_string()),
                ("memory", &kubepods, "memory.low", (8 << 20).to_string()),
                ("memory", &burstable, "memory.low", (8 << 20).to_string()),
                ("memory", &burstable, "memory.min", "0".to_owned()),
                ("memory", pod, "memory.low", (8 << 20).to_string()),
                ("memory", pod, "memory.high", (32 << 20).to_string()),
                ("pids", &kubepods, "pids.max", "4096".to_owned()),
                ("pids", pod, "pids.max", "64".to_owned()),
            ];
            for (controller, cgroup, file, text) in expected {
                if offered.split_whitespace().any(|it| it == controller) {
                    shows(&mount.join(cgroup).join(file), &text)?;
                }
            }
            Ok(())
        }
    }
}

/// The weight is the least there is; everything else is as it was.
fn check_lowered(layout: &CgroupLayout, pod: &str) -> Result<(), Broken> {
    let expected: [(&str, &str); 3] = match layout {
        CgroupLayout::V1 { .. } => [
            ("cpu.shares", "2"),
            ("cpu.cfs_quota_us", "20000"),
            ("memory.limit_in_bytes", "50331648"),
        ],
        CgroupLayout::V2 { .. } => {
            [("cpu.weight", "1"), ("cpu.max", "20000 100000"), ("memory.max", "50331648")]
        }
    };
    for (file, text) in expected {
        let places = mounts(layout).map(|mount| mount.join(pod).join(file));
        for path in places.filter(|path| path.exists()) {
            shows(&path, text)?;
        }
    }
    Ok(())
}

fn mounts(layout: &CgroupLayout) -> impl Iterator<Item = &PathBuf> {
    let (hierarchies, one): (&[_], _) = match layout {
        CgroupLayout::V1 { hierarchies, unified } => (hierarchies, unified.as_ref()),
        CgroupLayout::V2 { mount } => (&[], Some(mount)),
    };
    hierarchies.iter().map(|it| &it.mount).chain(one)
}

fn fill_cpuset(directory: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = directory.join(file);
        // On v2 an empty cpuset means the parent's.
        if directory.join("cpuset.sched_load_balance").exists()
            && fs::read_to_string(&own)?.trim().is_empty()
        {
            let parent = directory.parent().unwrap_or(directory);
            fs::write(&own, fs::read_to_string(parent.join(file))?.trim())?;
        }
    }
    Ok(())
}

fn shows(path: &Path, text: &str) -> Result<(), Broken> {
    let shown = fs::read_to_string(path)
        .map_err(|source| Broken::Process { attempt: "read a control file", source })?;
    equal(&path.display().to_string(), shown.trim(), text)
}

fn equal<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    found: &T,
    expected: &T,
) -> Result<(), Broken> {
    if found == expected {
        return Ok(());
    }
    Err(Broken::Differs(format!("{what}: found {found:?}, expected {expected:?}")))
}

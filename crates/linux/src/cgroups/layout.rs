//! Which cgroup hierarchies are mounted, and where. Pure: mounts in, layout out.

use std::path::{Path, PathBuf};

use crate::mountinfo::Mount;

const MOUNT: &str = "/sys/fs/cgroup";

/// The hierarchies that upstream's library makes pod cgroups in. Others belong to somebody else.
const KNOWN: [&str; 15] = [
    "cpuset",
    "devices",
    "memory",
    "cpu",
    "cpuacct",
    "pids",
    "blkio",
    "hugetlb",
    "net_cls",
    "net_prio",
    "perf_event",
    "freezer",
    "rdma",
    "name=systemd",
    "misc",
];
/// What a node cannot do without on v1.
const NEEDED: [&str; 4] = ["cpu", "cpuacct", "cpuset", "memory"];

/// One v1 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// The controllers that share it; `name=systemd` for the one without.
    pub controllers: Vec<String>,
    /// Where it is mounted.
    pub mount: PathBuf,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupLayout {
    /// Separate hierarchies.
    V1 {
        /// All of them that pods get a cgroup in.
        hierarchies: Vec<Hierarchy>,
        /// The v2 tree without controllers beside them: hybrid mode.
        unified: Option<PathBuf>,
    },
    /// One tree.
    V2 {
        /// Where it is mounted.
        mount: PathBuf,
    },
}

/// The three ways to have cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupMode {
    /// Separate hierarchies only.
    V1,
    /// Separate hierarchies, and a v2 tree for processes.
    Hybrid,
    /// One tree only.
    V2,
}

/// Why the mounts make no usable layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No cgroup file system at all.
    #[error("find a mounted cgroup hierarchy")]
    NothingMounted,
    /// v1 without a controller that pods need.
    #[error("find a mounted cgroup v1 hierarchy for {0}")]
    ControllerMissing(&'static str),
}

impl CgroupLayout {
    /// Reads the layout from the mount table.
    pub fn detect(mounts: &[Mount]) -> Result<Self, LayoutError> {
        // The last mount on a point is the one that is seen.
        let on_top = mounts.iter().rfind(|mount| mount.point == Path::new(MOUNT));
        if on_top.is_some_and(|mount| mount.file_system == "cgroup2") {
            return Ok(Self::V2 { mount: MOUNT.into() });
        }
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        for mount in mounts.iter().filter(|mount| mount.file_system == "cgroup") {
            let controllers: Vec<String> = mount
                .super_options
                .iter()
                .filter(|option| KNOWN.contains(&option.as_str()))
                .cloned()
                .collect();
            if controllers.is_empty() {
                continue;
            }
            match hierarchies.iter_mut().find(|it| it.controllers == controllers) {
                // Mounted twice: the shorter path is the usual one, and upstream's choice.
                Some(known) if mount.point.as_os_str().len() < known.mount.as_os_str().len() => {
                    known.mount.clone_from(&mount.point);
                }
                Some(_) => {}
                None => hierarchies.push(Hierarchy { controllers, mount: mount.point.clone() }),
            }
        }
        if hierarchies.is_empty() {
            return Err(LayoutError::NothingMounted);
        }
        let has = |name: &str| {
            hierarchies.iter().any(|it| it.controllers.iter().any(|controller| controller == name))
        };
        if let Some(missing) = NEEDED.into_iter().find(|name| !has(name)) {
            return Err(LayoutError::ControllerMissing(missing));
        }
        let hybrid = Path::new(MOUNT).join("unified");
        let unified = mounts
            .iter()
            .any(|mount| mount.file_system == "cgroup2" && mount.point == hybrid)
            .then_some(hybrid);
        Ok(Self::V1 { hierarchies, unified })
    }

    /// Which of the three ways it is.
    pub fn mode(&self) -> CgroupMode {
        match self {
            Self::V1 { unified: None, .. } => CgroupMode::V1,
            Self::V1 { unified: Some(_), .. } => CgroupMode::Hybrid,
            Self::V2 { .. } => CgroupMode::V2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mountinfo::parse;

    const V1: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
44 31 0:31 / /mnt/another/place/for/cpuset rw - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
42 31 0:39 / /sys/fs/cgroup/mine rw - cgroup cgroup rw,name=mine
";

    #[test]
    fn v1_hierarchies_are_found_once_each_and_strange_ones_left_alone() {
        let CgroupLayout::V1 { hierarchies, unified } =
            CgroupLayout::detect(&parse(V1.as_bytes())).unwrap()
        else {
            panic!("v1");
        };
        let told: Vec<String> = hierarchies
            .iter()
            .map(|it| format!("{} {}", it.controllers.join(","), it.mount.display()))
            .collect();
        let expected = [
            "cpu,cpuacct /sys/fs/cgroup/cpu,cpuacct",
            "cpuset /sys/fs/cgroup/cpuset",
            "memory /sys/fs/cgroup/memory",
            "name=systemd /sys/fs/cgroup/systemd",
        ];
        assert_eq!(told, expected);
        assert_eq!(unified, None);
    }

    #[test]
    fn the_mode_follows_from_what_is_mounted() {
        let check = |table: &str, mode: Result<CgroupMode, LayoutError>| {
            let found = CgroupLayout::detect(&parse(table.as_bytes())).map(|layout| layout.mode());
            assert_eq!(found, mode, "{table}");
        };
        check(V1, Ok(CgroupMode::V1));
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        check(&format!("{V1}{unified}"), Ok(CgroupMode::Hybrid));
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        check(v2, Ok(CgroupMode::V2));
        check(unified, Err(LayoutError::NothingMounted));
        check("", Err(LayoutError::NothingMounted));
        let lacking: String = V1
            .lines()
            .filter(|line| !line.contains("memory"))
            .map(|line| format!("{line}\n"))
            .collect();
        check(&lacking, Err(LayoutError::ControllerMissing("memory")));
    }
}

//! One mounted hierarchy and what is done in it: make a cgroup, write its bounds, look.
//!
//! Blocking. Every path is walked from the mount point through [`Rooted`].

use std::{collections::BTreeMap, io, path::PathBuf};

use ferrolet_linux::{
    cgroups::{CgroupLayout, CgroupName},
    offload::{never, refused},
    rooted::{Kind, Rooted},
};
use ferrolet_ports::HostError;
use ferrolet_resources::CgroupLimits;
use rustix::io::Errno;

use super::values::{self, Need, Write};

/// Control files are small; this is more than any of them.
const FILE_LIMIT: usize = 64 << 10;
/// What pods can need on v2; of these, what the kernel has is enabled on the way down.
const WANTED: [&str; 6] = ["cpu", "cpuset", "memory", "pids", "hugetlb", "io"];
/// What must be there for a pod's cgroup to count as existing, as upstream counts.
const COUNTED_V2: [&str; 5] = ["cpu", "cpuset", "memory", "hugetlb", "pids"];
const COUNTED_V1: [&str; 7] =
    ["cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "name=systemd"];

/// What is to be said of huge pages.
#[derive(Clone, Copy, Debug)]
pub(super) enum HugePages<'a> {
    /// These sizes up to so many bytes, and no others.
    Sizes(&'a BTreeMap<String, u64>),
    /// As many as there are.
    Unbounded,
}

/// A hierarchy that pods get a cgroup in.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) kind: PlaceKind,
    pub(super) mount: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlaceKind {
    /// A v1 hierarchy with these controllers.
    Split(Vec<String>),
    /// The v2 tree beside v1 hierarchies: processes only.
    Beside,
    /// The v2 tree.
    Unified,
}

impl Place {
    pub(super) fn all(layout: &CgroupLayout) -> Vec<Self> {
        match layout {
            CgroupLayout::V2 { mount } => {
                vec![Self { kind: PlaceKind::Unified, mount: mount.clone() }]
            }
            CgroupLayout::V1 { hierarchies, unified } => {
                let split = hierarchies.iter().map(|hierarchy| Self {
                    kind: PlaceKind::Split(hierarchy.controllers.clone()),
                    mount: hierarchy.mount.clone(),
                });
                let beside = unified
                    .iter()
                    .map(|mount| Self { kind: PlaceKind::Beside, mount: mount.clone() });
                split.chain(beside).collect()
            }
        }
    }

    /// True when `cgroup.kill` and `cgroup.events` may be expected.
    pub(super) fn is_v2(&self) -> bool {
        !matches!(self.kind, PlaceKind::Split(_))
    }

    /// Makes the cgroup and those of its parents that are ours, that is below the first `n_given`
    /// components.
    pub(super) fn ensure(&self, name: &CgroupName, n_given: usize) -> Result<Rooted, HostError> {
        let attempt = || format!("make cgroup {}", self.shown(name));
        let mut current = Rooted::open(&self.mount).map_err(|cause| refused(attempt(), &cause))?;
        for (depth, component) in name.components().iter().enumerate() {
            if self.kind == PlaceKind::Unified {
                enable_controllers(&current).map_err(|cause| refused(attempt(), &cause))?;
            }
            let child = if depth < n_given {
                current
                    .directory(component)
                    .map_err(|cause| refused(self.missing_root(name, n_given), &cause))?
            } else {
                current
                    .ensure_directory(component, 0o755)
                    .map_err(|cause| refused(attempt(), &cause))?
            };
            if depth >= n_given && self.has("cpuset") {
                inherit_cpuset(&child, &current).map_err(|cause| refused(attempt(), &cause))?;
            }
            current = child;
        }
        Ok(current)
    }

    /// Writes the bounds that this hierarchy knows about.
    pub(super) fn bound(
        &self,
        cgroup: &Rooted,
        name: &CgroupName,
        limits: &CgroupLimits,
    ) -> Result<(), HostError> {
        let writes = match &self.kind {
            PlaceKind::Beside => return Ok(()),
            PlaceKind::Unified => values::v2(limits),
            PlaceKind::Split(_) => {
                values::v1(limits).into_iter().filter(|write| self.has(write.controller)).collect()
            }
        };
        let mut again: Option<Write> = None;
        for write in writes {
            match (cgroup.write_existing(write.file, write.text.as_bytes()), write.need) {
                (Err(cause), Need::IfPresent) if cause.kind() == io::ErrorKind::NotFound => {}
                (Err(cause), Need::OrAfterNext)
                    if cause.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
                {
                    again = Some(write);
                    continue;
                }
                (Err(cause), _) => return Err(self.unwritten(name, &write, &cause)),
                (Ok(()), _) => {}
            }
            if let Some(write) = again.take() {
                cgroup
                    .write_existing(write.file, write.text.as_bytes())
                    .map_err(|cause| self.unwritten(name, &write, &cause))?;
            }
        }
        Ok(())
    }

    /// Bounds every size of huge pages that the kernel counts here.
    pub(super) fn bound_huge_pages(
        &self,
        name: &CgroupName,
        limits: &HugePages<'_>,
    ) -> Result<(), HostError> {
        let counts = match &self.kind {
            PlaceKind::Beside => false,
            PlaceKind::Unified => true,
            PlaceKind::Split(_) => self.has("hugetlb"),
        };
        let Some(cgroup) = self.find(name)?.filter(|_| counts) else {
            return Ok(());
        };
        let entries = cgroup
            .entries()
            .map_err(|cause| refused(format!("list cgroup {}", self.shown(name)), &cause))?;
        let files: Vec<String> =
            entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect();
        for (file, bytes) in values::huge_pages(files.iter().map(String::as_str), limits) {
            let text = bytes.to_string();
            cgroup.write_existing(file, text.as_bytes()).map_err(|cause| {
                refused(format!("write {text} to {}/{file}", self.shown(name)), &cause)
            })?;
        }
        Ok(())
    }

    /// Bytes of memory in use, where this hierarchy counts them; none in a cgroup that is not there.
    pub(super) fn memory_in_use(&self, name: &CgroupName) -> Result<i64, HostError> {
        let file = match &self.kind {
            PlaceKind::Unified => "memory.current",
            PlaceKind::Split(_) if self.has("memory") => "memory.usage_in_bytes",
            PlaceKind::Split(_) | PlaceKind::Beside => return Ok(0),
        };
        let Some(cgroup) = self.find(name)? else {
            return Ok(0);
        };
        match read_text(&cgroup, file) {
            Ok(text) => Ok(text.trim().parse().unwrap_or(0)),
            Err(cause) if is_gone(&cause) => Ok(0),
            Err(cause) => Err(refused(format!("read {file} of {}", self.shown(name)), &cause)),
        }
    }

    /// Opens a cgroup that is there; `None` when it is not.
    pub(super) fn find(&self, name: &CgroupName) -> Result<Option<Rooted>, HostError> {
        let found = Rooted::open(&self.mount).and_then(|root| {
            if name.components().is_empty() { Ok(root) } else { root.directory(name.relative()) }
        });
        match found {
            Ok(cgroup) => Ok(Some(cgroup)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(refused(format!("open cgroup {}", self.shown(name)), &cause)),
        }
    }

    /// True when the cgroup is there as far as this hierarchy counts.
    pub(super) fn exists(&self, name: &CgroupName) -> Result<bool, HostError> {
        match &self.kind {
            PlaceKind::Beside => Ok(true),
            PlaceKind::Split(controllers) => {
                let counts =
                    controllers.iter().any(|controller| COUNTED_V1.contains(&controller.as_str()));
                Ok(!counts || self.find(name)?.is_some())
            }
            PlaceKind::Unified => {
                let Some(cgroup) = self.find(name)? else {
                    return Ok(false);
                };
                let attempt = || format!("read controllers of cgroup {}", self.shown(name));
                let root = Rooted::open(&self.mount).map_err(|e| refused(attempt(), &e))?;
                let offered = controllers(&root).map_err(|e| refused(attempt(), &e))?;
                let given = match controllers(&cgroup) {
                    Ok(given) => given,
                    // Removed between the two looks.
                    Err(cause) if is_gone(&cause) => return Ok(false),
                    Err(cause) => return Err(refused(attempt(), &cause)),
                };
                let has_all = COUNTED_V2
                    .iter()
                    .filter(|name| offered.iter().any(|it| it == *name))
                    .all(|name| given.iter().any(|it| it == name));
                Ok(has_all)
            }
        }
    }

    /// Names of the cgroups directly below one.
    pub(super) fn children(&self, name: &CgroupName) -> Result<Vec<String>, HostError> {
        let Some(cgroup) = self.find(name)? else {
            return Ok(Vec::new());
        };
        let entries = cgroup
            .entries()
            .map_err(|cause| refused(format!("list cgroup {}", self.shown(name)), &cause))?;
        Ok(entries
            .into_iter()
            .filter(|entry| entry.kind == Kind::Directory)
            .filter_map(|entry| entry.name.into_string().ok())
            .collect())
    }

    /// The cgroup as an operator would look for it.
    pub(super) fn shown(&self, name: &CgroupName) -> String {
        self.mount.join(name.relative()).display().to_string()
    }

    fn has(&self, controller: &str) -> bool {
        matches!(&self.kind, PlaceKind::Split(controllers)
            if controllers.iter().any(|it| it == controller))
    }

    fn missing_root(&self, name: &CgroupName, n_given: usize) -> String {
        let given: PathBuf = name.components()[..n_given].iter().collect();
        format!("open cgroup root {}", self.mount.join(given).display())
    }

    fn unwritten(&self, name: &CgroupName, write: &Write, cause: &io::Error) -> HostError {
        let Write { file, text, .. } = write;
        let attempt = format!("write {text} to {}/{file}", self.shown(name));
        if self.kind == PlaceKind::Unified && cause.kind() == io::ErrorKind::NotFound {
            let controller = write.controller;
            return never(attempt, format!("controller {controller} is not enabled"));
        }
        refused(attempt, cause)
    }
}

/// What the kernel says of a cgroup that is no more.
pub(super) fn is_gone(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::NotFound
        || cause.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// Reads a control file as text.
pub(super) fn read_text(cgroup: &Rooted, file: &str) -> io::Result<String> {
    let content = cgroup.read(file, FILE_LIMIT)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

fn controllers(cgroup: &Rooted) -> io::Result<Vec<String>> {
    let text = read_text(cgroup, "cgroup.controllers")?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Gives the children of a v2 cgroup every controller that pods can need and the cgroup itself has.
fn enable_controllers(cgroup: &Rooted) -> io::Result<()> {
    let enabled = read_text(cgroup, "cgroup.subtree_control")?;
    let missing: Vec<String> = controllers(cgroup)?
        .into_iter()
        .filter(|name| WANTED.contains(&name.as_str()))
        .filter(|name| !enabled.split_whitespace().any(|it| it == name))
        .map(|name| format!("+{name}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if cgroup.write_existing("cgroup.subtree_control", missing.join(" ").as_bytes()).is_err() {
        // All or nothing: one that cannot be enabled here hides the others. What stays off is told
        // when a bound needs it.
        for name in &missing {
            let _ = cgroup.write_existing("cgroup.subtree_control", name.as_bytes());
        }
    }
    Ok(())
}

/// A fresh v1 cpuset is empty and holds no process; it takes over its parent's processors and
/// memory nodes.
fn inherit_cpuset(cgroup: &Rooted, parent: &Rooted) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if !read_text(cgroup, file)?.trim().is_empty() {
            continue;
        }
        let inherited = read_text(parent, file)?;
        if inherited.trim().is_empty() {
            return Err(io::Error::other(format!("{file} of its parent is empty")));
        }
        cgroup.write_existing(file, inherited.trim().as_bytes())?;
    }
    Ok(())
}

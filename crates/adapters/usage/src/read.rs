//! The walk over the cgroups, and which of them are read. Blocking.
//!
//! A cgroup that goes away under the reader is left out, not an error: pods end at any time.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ferrolet_linux::{cgroups::CgroupLayout, offload::refused};
use ferrolet_ports::{CgroupUsage, Detail, HostError, Whose};
use ferrolet_types::{ContainerId, PodUid, Timestamp};
use tokio::sync::watch;

use super::cgroup::{Breadth, Cgroup, Hierarchies};
use super::files::Directory;
use super::{names, parse};

/// Where the numbers are.
pub(super) struct Places {
    hierarchies: Hierarchies,
    pods: PathBuf,
    /// Parts of the system with a cgroup of their own: name and path.
    systems: watch::Receiver<Vec<(String, String)>>,
}

/// What the walk found, without rates.
pub(super) struct Found {
    pub(super) node: CgroupUsage,
    pub(super) all_pods: Option<(PathBuf, CgroupUsage)>,
    pub(super) pods: Vec<FoundPod>,
}

pub(super) struct FoundPod {
    pub(super) uid: PodUid,
    pub(super) path: PathBuf,
    pub(super) total: CgroupUsage,
    pub(super) containers: Vec<(ContainerId, CgroupUsage)>,
}

/// What a walk is for.
pub(super) struct Wanted<'a> {
    /// Hierarchies that are opened.
    pub(super) hierarchies: Breadth,
    /// Containers that are opened in all of them; none stands for every container. Others are
    /// opened where their processes are listed.
    pub(super) containers: Option<&'a HashSet<ContainerId>>,
}

impl<'a> Wanted<'a> {
    /// Processor and memory of everything.
    fn slim() -> Self {
        Self { hierarchies: Breadth::Basic, containers: None }
    }

    pub(super) fn by(detail: &'a Detail) -> Self {
        match detail {
            Detail::Summary(containers) => {
                Self { hierarchies: Breadth::Basic, containers: Some(containers) }
            }
            Detail::Whole => Self { hierarchies: Breadth::All, containers: None },
        }
    }
}

/// One cgroup on the way, open.
pub(super) struct Visited<'a> {
    pub(super) whose: Whose,
    pub(super) path: &'a Path,
    pub(super) cgroup: &'a Cgroup,
}

impl Places {
    pub(super) fn new(
        layout: &CgroupLayout,
        pods: PathBuf,
        systems: watch::Receiver<Vec<(String, String)>>,
    ) -> Self {
        Self { hierarchies: Hierarchies::new(layout), pods, systems }
    }

    /// The slim view of everything: processor, memory, swap.
    pub(super) fn scan(&self, at: Timestamp) -> Result<Found, HostError> {
        let mut buffer = Vec::new();
        let mut found =
            Found { node: self.node(at, &mut buffer)?, all_pods: None, pods: Vec::new() };
        self.walk(&Wanted::slim(), &mut |visited| {
            let usage = visited.cgroup.usage(at, &mut buffer);
            match visited.whose {
                Whose::AllPods => found.all_pods = Some((visited.path.to_owned(), usage)),
                Whose::Pod(uid) => found.pods.push(FoundPod {
                    uid,
                    path: visited.path.to_owned(),
                    total: usage,
                    containers: Vec::new(),
                }),
                Whose::Container(_, id) => {
                    // Containers come right after their pod.
                    if let Some(pod) = found.pods.last_mut() {
                        pod.containers.push((id, usage));
                    }
                }
                Whose::Node | Whose::Class | Whose::System(_) => {}
            }
        })?;
        Ok(found)
    }

    /// Visits every cgroup that is looked at: the machine, parts of the system, all pods, classes,
    /// pods, containers.
    pub(super) fn walk(
        &self,
        wanted: &Wanted<'_>,
        visit: &mut dyn FnMut(Visited<'_>),
    ) -> Result<(), HostError> {
        let root = self.root(wanted.hierarchies)?;
        visit(Visited { whose: Whose::Node, path: Path::new(""), cgroup: &root });
        let systems = self.systems.borrow().clone();
        for (name, path) in systems {
            let path = Path::new(path.trim_start_matches('/'));
            if let Some(cgroup) = root.child(path) {
                visit(Visited { whose: Whose::System(name), path, cgroup: &cgroup });
            }
        }
        let Some(pods) = root.child(&self.pods) else {
            return Ok(());
        };
        visit(Visited { whose: Whose::AllPods, path: &self.pods, cgroup: &pods });
        let mut classes = Vec::new();
        for name in pods.directories() {
            if names::is_class(&name) {
                classes.push(name);
            } else {
                visit_pod(wanted, &pods, &self.pods, &name, visit);
            }
        }
        for class in classes {
            let path = self.pods.join(&class);
            let Some(cgroup) = pods.child(&class) else {
                continue;
            };
            visit(Visited { whose: Whose::Class, path: &path, cgroup: &cgroup });
            for name in cgroup.directories() {
                visit_pod(wanted, &cgroup, &path, &name, visit);
            }
        }
        Ok(())
    }

    /// The machine: the root has no `memory.current` on v2, and its limit is the machine's memory
    /// on both.
    pub(super) fn node(
        &self,
        at: Timestamp,
        buffer: &mut Vec<u8>,
    ) -> Result<CgroupUsage, HostError> {
        let root = self.root(Breadth::Basic)?;
        let mut usage = root.usage(at, buffer);
        let meminfo = Directory::open(Path::new("/proc"))
            .ok()
            .and_then(|proc| proc.read("meminfo", buffer).map(str::to_owned))
            .unwrap_or_default();
        if let Some((in_use, total)) = parse::meminfo(&meminfo) {
            let memory = usage.memory.get_or_insert_with(|| {
                let stat = root.memory_stat(buffer);
                parse::memory(in_use, &stat, None)
            });
            memory.limit = Some(total);
        }
        if let Some((in_use, total)) = parse::swap(&meminfo) {
            usage.swap_bytes = Some(in_use);
            usage.swap_limit_bytes = Some(total);
        }
        Ok(usage)
    }

    /// All pods together; `None` when they have no cgroup.
    pub(super) fn all_pods(&self, at: Timestamp, buffer: &mut Vec<u8>) -> Option<CgroupUsage> {
        let root = self.root(Breadth::Basic).ok()?;
        Some(root.child(&self.pods)?.usage(at, buffer))
    }

    fn root(&self, breadth: Breadth) -> Result<Cgroup, HostError> {
        let listing = self.hierarchies.listing();
        self.hierarchies
            .open(breadth)
            .map_err(|cause| refused(format!("open cgroups at {}", listing.display()), &cause))
    }
}

fn visit_pod(
    wanted: &Wanted<'_>,
    parent: &Cgroup,
    path: &Path,
    name: &str,
    visit: &mut dyn FnMut(Visited<'_>),
) {
    let Some(uid) = names::pod(name) else {
        return;
    };
    let Some(pod) = parent.child(name) else {
        return;
    };
    let path = path.join(name);
    visit(Visited { whose: Whose::Pod(uid.clone()), path: &path, cgroup: &pod });
    for name in pod.directories() {
        let Some(id) = names::container(&name) else {
            continue;
        };
        let cgroup = match wanted.containers {
            Some(containers) if !containers.contains(&id) => pod.stranger(&name),
            _ => pod.child(&name),
        };
        if let Some(cgroup) = cgroup {
            visit(Visited {
                whose: Whose::Container(uid.clone(), id),
                path: &path.join(&name),
                cgroup: &cgroup,
            });
        }
    }
}

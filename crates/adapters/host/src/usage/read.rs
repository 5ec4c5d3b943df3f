//! The walk over the pods' cgroups, and what is read in each. Blocking.
//!
//! A cgroup that goes away under the reader is left out, not an error: pods end at any time.

use std::path::{Path, PathBuf};

use ferrolet_ports::{CgroupUsage, HostError};
use ferrolet_types::{ContainerId, PodUid, Timestamp};

use super::{names, parse};
use crate::cgroups::CgroupLayout;
use crate::offload::refused;
use crate::rooted::{Kind, Rooted};

/// More than any file read here.
const LIMIT: usize = 64 << 10;

/// Where the numbers are.
pub(super) struct Places {
    hierarchies: Hierarchies,
    pods: PathBuf,
}

enum Hierarchies {
    V1 { cpu: PathBuf, memory: PathBuf },
    V2 { mount: PathBuf },
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

impl Places {
    pub(super) fn new(layout: &CgroupLayout, pods: PathBuf) -> Self {
        let hierarchies = match layout {
            CgroupLayout::V2 { mount } => Hierarchies::V2 {
                mount: mount.clone(),
            },
            CgroupLayout::V1 { hierarchies, .. } => {
                let of = |controller: &str| {
                    let found = hierarchies
                        .iter()
                        .find(|it| it.controllers.iter().any(|name| name == controller));
                    found.map(|it| it.mount.clone()).unwrap_or_default()
                };
                Hierarchies::V1 {
                    cpu: of("cpuacct"),
                    memory: of("memory"),
                }
            }
        };
        Self { hierarchies, pods }
    }

    pub(super) fn scan(&self, at: Timestamp) -> Result<Found, HostError> {
        let listing = match &self.hierarchies {
            Hierarchies::V1 { memory, .. } => memory,
            Hierarchies::V2 { mount } => mount,
        };
        let mut found = Found {
            node: self.node(at),
            all_pods: None,
            pods: Vec::new(),
        };
        let root = Rooted::open(listing)
            .map_err(|cause| refused(format!("open cgroups at {}", listing.display()), &cause))?;
        let Ok(pods) = root.directory(&self.pods) else {
            return Ok(found);
        };
        found.all_pods = Some((self.pods.clone(), self.usage(&self.pods, at)));
        self.collect(&pods, &self.pods, at, &mut found.pods);
        for class in directories(&pods) {
            if names::is_class(&class)
                && let Ok(directory) = pods.directory(&class)
            {
                self.collect(&directory, &self.pods.join(class), at, &mut found.pods);
            }
        }
        Ok(found)
    }

    fn collect(&self, directory: &Rooted, path: &Path, at: Timestamp, pods: &mut Vec<FoundPod>) {
        for name in directories(directory) {
            let Some(uid) = names::pod(&name) else {
                continue;
            };
            let Ok(pod) = directory.directory(&name) else {
                continue;
            };
            let path = path.join(&name);
            let containers = directories(&pod).into_iter().filter_map(|name| {
                let id = names::container(&name)?;
                Some((id, self.usage(&path.join(name), at)))
            });
            let containers = containers.collect();
            pods.push(FoundPod {
                uid,
                total: self.usage(&path, at),
                containers,
                path,
            });
        }
    }

    fn usage(&self, path: &Path, at: Timestamp) -> CgroupUsage {
        let text = |mount: &Path, file: &str| read(&mount.join(path), file);
        match &self.hierarchies {
            Hierarchies::V1 { cpu, memory } => {
                let stat = text(memory, "memory.stat").unwrap_or_default();
                let usage = text(memory, "memory.usage_in_bytes");
                let usage = usage.and_then(|text| parse::number(&text));
                let limit = text(memory, "memory.limit_in_bytes");
                let limit = limit.and_then(|text| parse::number(&text));
                CgroupUsage {
                    at,
                    cpu_nanos: text(cpu, "cpuacct.usage").and_then(|text| parse::number(&text)),
                    cpu_nano_cores: None,
                    memory: usage.map(|usage| parse::memory_v1(usage, &stat, limit)),
                    // Kernels without swap accounting do not have the field, and then nothing is swapped per cgroup.
                    swap_bytes: Some(parse::field(&stat, "total_swap").unwrap_or(0)),
                    swap_limit_bytes: Some(0),
                }
            }
            Hierarchies::V2 { mount } => {
                let cpu = text(mount, "cpu.stat").unwrap_or_default();
                let micros = parse::field(&cpu, "usage_usec");
                let stat = text(mount, "memory.stat").unwrap_or_default();
                let value = |file| text(mount, file).and_then(|text| parse::number(&text));
                let limit = value("memory.max");
                CgroupUsage {
                    at,
                    cpu_nanos: micros.map(|micros| micros.saturating_mul(1000)),
                    cpu_nano_cores: None,
                    memory: value("memory.current")
                        .map(|usage| parse::memory_v2(usage, &stat, limit)),
                    swap_bytes: Some(value("memory.swap.current").unwrap_or(0)),
                    swap_limit_bytes: value("memory.swap.max"),
                }
            }
        }
    }

    /// The root has no `memory.current` on v2, and its limit is the machine's memory on both.
    fn node(&self, at: Timestamp) -> CgroupUsage {
        let mut usage = self.usage(Path::new(""), at);
        let meminfo = read(Path::new("/proc"), "meminfo").unwrap_or_default();
        if let Some((in_use, total)) = parse::meminfo(&meminfo) {
            let memory = usage.memory.get_or_insert_with(|| {
                let stat = match &self.hierarchies {
                    Hierarchies::V1 { memory, .. } => read(memory, "memory.stat"),
                    Hierarchies::V2 { mount } => read(mount, "memory.stat"),
                };
                parse::memory_v2(in_use, &stat.unwrap_or_default(), None)
            });
            memory.limit = Some(total);
        }
        usage.swap_bytes = parse::swap_in_use(&meminfo);
        usage
    }
}

fn read(directory: &Path, file: &str) -> Option<String> {
    let directory = Rooted::open(directory).ok()?;
    let bytes = directory.read(file, LIMIT).ok()?;
    String::from_utf8(bytes).ok()
}

fn directories(directory: &Rooted) -> Vec<String> {
    let entries = directory.entries().unwrap_or_default().into_iter();
    entries
        .filter(|entry| entry.kind == Kind::Directory)
        .filter_map(|entry| entry.name.into_string().ok())
        .collect()
}

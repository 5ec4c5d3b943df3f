//! Who has which processors: what `cpu_manager_state` keeps.

use std::collections::BTreeMap;

use ferrolet_types::PodUid;

use super::CpuSet;

/// Processors by container, and those that everybody else runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuAssignments {
    /// Those that containers without their own run on.
    pub shared: CpuSet,
    containers: BTreeMap<PodUid, BTreeMap<String, CpuSet>>,
}

impl CpuAssignments {
    /// Nobody has any of his own.
    pub fn sharing(shared: CpuSet) -> Self {
        Self { shared, containers: BTreeMap::new() }
    }

    /// What a container has of its own.
    pub fn get(&self, uid: &PodUid, container: &str) -> Option<&CpuSet> {
        self.containers.get(uid)?.get(container)
    }

    /// What the containers of a pod have together.
    pub fn of_pod(&self, uid: &PodUid) -> CpuSet {
        let cpus = self.containers.get(uid).into_iter().flatten();
        cpus.fold(CpuSet::EMPTY, |all, (_, more)| all.union(more))
    }

    /// What all containers have together.
    pub fn exclusive(&self) -> CpuSet {
        self.iter().fold(CpuSet::EMPTY, |all, (_, _, more)| all.union(more))
    }

    /// Every container that has its own.
    pub fn iter(&self) -> impl Iterator<Item = (&PodUid, &str, &CpuSet)> {
        let pods = self.containers.iter();
        pods.flat_map(|(uid, all)| all.iter().map(move |(name, it)| (uid, name.as_str(), it)))
    }

    /// Notes what a container has.
    pub fn insert(&mut self, uid: &PodUid, container: &str, cpus: CpuSet) {
        self.containers.entry(uid.clone()).or_default().insert(container.to_owned(), cpus);
    }

    /// Forgets what a container had.
    pub fn remove(&mut self, uid: &PodUid, container: &str) -> Option<CpuSet> {
        let of_pod = self.containers.get_mut(uid)?;
        let had = of_pod.remove(container);
        if of_pod.is_empty() {
            self.containers.remove(uid);
        }
        had
    }
}

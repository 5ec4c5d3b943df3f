//! What a container is given with its devices, of all its resources together.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_spec::PluginResources;

/// Devices of one resource, for whoever shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenResource {
    /// Of which resource.
    pub resource: String,
    /// The plugin's names for them.
    pub ids: Vec<String>,
    /// NUMA nodes they are close to.
    pub numa_nodes: Vec<i64>,
}

/// Puts the answers of several plugins together. What two of them say of one variable, path or
/// annotation is taken from the first; answers with the names of what was left out because it
/// differed.
pub fn combined<'a>(
    answers: impl IntoIterator<Item = &'a PluginResources>,
) -> (PluginResources, Vec<String>) {
    let mut all = PluginResources::default();
    let (mut env, mut mounts, mut nodes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut conflicts = Vec::new();
    for answer in answers {
        for (name, value) in &answer.env {
            if is_first(&mut env, name, value, &mut conflicts) {
                all.env.push((name.clone(), value.clone()));
            }
        }
        for device in &answer.devices {
            if is_first(&mut nodes, &device.container_path, &device.host_path, &mut conflicts) {
                all.devices.push(device.clone());
            }
        }
        for mount in &answer.mounts {
            if is_first(&mut mounts, &mount.container_path, &mount.host_path, &mut conflicts) {
                all.mounts.push(mount.clone());
            }
        }
        for (name, value) in &answer.annotations {
            match all.annotations.get(name) {
                None => {
                    all.annotations.insert(name.clone(), value.clone());
                }
                Some(known) if known != value => conflicts.push(name.clone()),
                Some(_) => {}
            }
        }
        for name in &answer.cdi_devices {
            if names.insert(name.clone()) {
                all.cdi_devices.push(name.clone());
            }
        }
    }
    (all, conflicts)
}

/// True for the first value of a name; a second one that differs is noted.
fn is_first(
    known: &mut BTreeMap<String, String>,
    name: &str,
    value: &str,
    conflicts: &mut Vec<String>,
) -> bool {
    match known.get(name) {
        None => {
            known.insert(name.to_owned(), value.to_owned());
            true
        }
        Some(first) => {
            if first != value {
                conflicts.push(name.to_owned());
            }
            false
        }
    }
}

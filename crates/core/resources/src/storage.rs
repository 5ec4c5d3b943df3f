//! Limits on local storage: whether a pod has more on the node's disk than it may.
//!
//! In: a pod and what it has on disk. Out: the first limit that it breaks, in upstream's order and
//! words: a volume's, the pod's, a container's. Refuses: measuring.

use ferrolet_types::{Quantity, pod::PodView as _};
use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use crate::{Overhead, container_limits, parse_amounts, pod_limits};

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// What a pod has on disk, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageUse {
    /// Its volumes, by their names in the pod.
    pub volumes: Vec<(String, u64)>,
    /// Its containers, by name: logs, and what they wrote where that counts.
    pub containers: Vec<(String, u64)>,
    /// Everything that is charged to it.
    pub total: u64,
}

/// True for volumes whose content is charged to the pod, as upstream has it.
pub fn is_local_volume(volume: &Volume) -> bool {
    let is_on_disk =
        volume.empty_dir.as_ref().is_some_and(|it| it.medium.as_deref().unwrap_or("").is_empty());
    is_on_disk || volume.config_map.is_some() || volume.git_repo.is_some()
}

/// A limit that a pod breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageBreach {
    /// A volume's.
    EmptyDir {
        /// Its name in the pod.
        volume: String,
        /// How much it may hold.
        limit: Quantity,
    },
    /// The pod's.
    Pod {
        /// How much all of it may have.
        limit: Quantity,
    },
    /// A container's.
    Container {
        /// Its name.
        container: String,
        /// How much it may have.
        limit: Quantity,
    },
}

impl StorageBreach {
    /// What users read.
    pub fn message(&self) -> String {
        match self {
            Self::EmptyDir { volume, limit } => {
                format!("Usage of EmptyDir volume {volume:?} exceeds the limit \"{limit}\". ")
            }
            Self::Pod { limit } => format!(
                "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
            ),
            Self::Container { container, limit } => format!(
                "Container {container} exceeded its local ephemeral storage limit \"{limit}\". "
            ),
        }
    }

    /// The label under which it is counted.
    pub fn signal(&self) -> &'static str {
        match self {
            Self::EmptyDir { .. } => "emptydirfs.limit",
            Self::Pod { .. } => "ephemeralpodfs.limit",
            Self::Container { .. } => "ephemeralcontainerfs.limit",
        }
    }
}

/// True when there is something to measure.
pub fn has_storage_limits(pod: &Pod) -> bool {
    volume_limits(pod).next().is_some()
        || pod_limits(pod, Overhead::Included).contains_key(EPHEMERAL_STORAGE)
}

/// The first limit that the pod breaks.
pub fn storage_breach(pod: &Pod, used: &StorageUse) -> Option<StorageBreach> {
    let find = |list: &[(String, u64)], name: &str| {
        let found = list.iter().find(|(it, _)| it == name);
        found.map(|(_, bytes)| *bytes)
    };
    for (volume, limit) in volume_limits(pod) {
        if find(&used.volumes, volume).is_some_and(|bytes| is_above(bytes, limit)) {
            return Some(StorageBreach::EmptyDir { volume: volume.to_owned(), limit });
        }
    }
    let limits = pod_limits(pod, Overhead::Included);
    if let Some(limit) = limits.get(EPHEMERAL_STORAGE).copied()
        && is_above(used.total, limit)
    {
        return Some(StorageBreach::Pod { limit });
    }
    let spec = pod.spec_ref();
    let is_sidecar = |it: &&Container| it.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    for container in spec.containers.iter().chain(sidecars) {
        let limit = container_limits(container).get(EPHEMERAL_STORAGE).copied();
        let Some(limit) = limit.filter(|it| !it.is_zero()) else {
            continue;
        };
        if find(&used.containers, &container.name).is_some_and(|bytes| is_above(bytes, limit)) {
            return Some(StorageBreach::Container { container: container.name.clone(), limit });
        }
    }
    None
}

/// Volumes of the pod that may hold only so much. A limit of nothing limits nothing.
fn volume_limits(pod: &Pod) -> impl Iterator<Item = (&str, Quantity)> {
    let volumes = pod.spec_ref().volumes.iter().flatten();
    volumes.filter_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.clone()?;
        let amounts = [("size".to_owned(), limit)].into();
        let limit = *parse_amounts(Some(&amounts)).get("size")?;
        (limit.value() > 0).then_some((volume.name.as_str(), limit))
    })
}

fn is_above(bytes: u64, limit: Quantity) -> bool {
    u64::try_from(limit.value()).is_ok_and(|limit| bytes > limit)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tests_pods::pod_json;

    fn pod() -> Pod {
        let limited = |name: &str, limit: &str| json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}});
        let mut proxy = limited("proxy", "1Ki");
        proxy["restartPolicy"] = json!("Always");
        pod_json(json!({"metadata": {}, "spec": {
            "containers": [limited("main", "2Ki"), limited("side", "1Ki")],
            "initContainers": [proxy],
            "volumes": [
                {"name": "cache", "emptyDir": {"sizeLimit": "1Mi"}},
                {"name": "open", "emptyDir": {"sizeLimit": "0"}},
                {"name": "free", "emptyDir": {}},
            ],
        }}))
    }

    fn used(volumes: &[(&str, u64)], containers: &[(&str, u64)], total: u64) -> StorageUse {
        let owned = |list: &[(&str, u64)]| {
            let list = list.iter();
            list.map(|(name, n)| ((*name).to_owned(), *n)).collect()
        };
        StorageUse { volumes: owned(volumes), containers: owned(containers), total }
    }

    #[test]
    fn the_first_limit_that_is_broken_is_told_in_upstreams_words() {
        let check = |used: StorageUse, expected: Option<(&str, &str)>| {
            let found = storage_breach(&pod(), &used);
            let found = found.map(|it| (it.message(), it.signal()));
            let found = found.as_ref().map(|(text, signal)| (text.as_str(), *signal));
            assert_eq!(found, expected, "{used:?}");
        };
        let mega = 1 << 20;
        check(used(&[("cache", mega)], &[("main", 2048)], 4096), None);
        check(used(&[("open", mega), ("free", mega)], &[("gone", mega)], 0), None);
        check(
            used(&[("cache", mega + 1)], &[("main", 2049)], 4097),
            Some((
                "Usage of EmptyDir volume \"cache\" exceeds the limit \"1Mi\". ",
                "emptydirfs.limit",
            )),
        );
        check(
            used(&[], &[("main", 2049)], 4097),
            Some((
                "Pod ephemeral local storage usage exceeds the total limit of containers 4Ki. ",
                "ephemeralpodfs.limit",
            )),
        );
        check(
            used(&[], &[("main", 2048), ("proxy", 1025)], 4096),
            Some((
                "Container proxy exceeded its local ephemeral storage limit \"1Ki\". ",
                "ephemeralcontainerfs.limit",
            )),
        );
    }

    #[test]
    fn only_pods_with_limits_are_measured() {
        let check = |spec: Value, expected: bool| {
            let pod = pod_json(json!({"metadata": {}, "spec": spec}));
            assert_eq!(has_storage_limits(&pod), expected);
        };
        check(json!({"containers": [{"name": "a"}]}), false);
        check(
            json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "0"}}]}),
            false,
        );
        check(
            json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1"}}]}),
            true,
        );
        check(
            json!({"containers": [{"name": "a", "resources": {"limits": {"ephemeral-storage": "1Gi"}}}]}),
            true,
        );
    }
}

//! Tells the cluster which drivers this node has: the `CSINode` object, the node's annotation and
//! its topology labels.
//!
//! In: the registered drivers, each time they change. A driver that was never seen since the start
//! is left in the object: it may only be late. What cannot be written is tried again with growing
//! pauses.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{ApiError, ClusterApi, RegisteredDriver, StorageObjects};
use k8s_openapi::{
    api::{
        core::v1::Node,
        storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::{Value, json};
use tokio::{sync::watch, time::sleep};

const NODE_ID_ANNOTATION: &str = "csi.volume.kubernetes.io/nodeid";
const MIGRATED_ANNOTATION: &str = "storage.alpha.kubernetes.io/migrated-plugins";
/// In-tree plugins whose volumes drivers serve now, as every node of this version says.
const MIGRATED: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What publishing needs.
pub struct NodeDoors {
    /// The node.
    pub api: Arc<dyn ClusterApi>,
    /// The object about its drivers.
    pub storage: Arc<dyn StorageObjects>,
    /// Who is registered.
    pub drivers: watch::Receiver<BTreeMap<String, RegisteredDriver>>,
    /// Becomes true once the object is there.
    pub published: watch::Sender<bool>,
}

/// Keeps the cluster informed until nobody registers any more.
pub async fn publish_drivers(doors: NodeDoors) {
    let mut drivers = doors.drivers.clone();
    let mut seen = BTreeSet::new();
    let mut pause = FIRST_PAUSE;
    loop {
        let now = drivers.borrow_and_update().clone();
        seen.extend(now.keys().cloned());
        match publish(&doors, &now, &seen).await {
            Ok(()) => {
                pause = FIRST_PAUSE;
                doors.published.send_replace(true);
                if drivers.changed().await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "Drivers of this node cannot be published");
                tokio::select! {
                    // Both are cancel-safe: the latest set is read again at the top.
                    changed = drivers.changed() => if changed.is_err() { return },
                    () = sleep(pause) => {}
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

async fn publish(
    doors: &NodeDoors,
    drivers: &BTreeMap<String, RegisteredDriver>,
    seen: &BTreeSet<String>,
) -> Result<(), ApiError> {
    let node = doors.api.get_node().await?;
    let existing = match doors.storage.get_csi_node().await {
        Ok(existing) => Some(existing),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error),
    };
    let wanted = csi_node(&node, existing.as_ref(), drivers, seen);
    match existing {
        None => drop(doors.storage.create_csi_node(&wanted).await?),
        Some(existing) if existing != wanted => {
            doors.storage.replace_csi_node(&wanted).await?;
        }
        Some(_same) => {}
    }
    if let Some(patch) = node_patch(&node, drivers, seen) {
        doors.api.patch_node(&patch).await?;
    }
    Ok(())
}

/// The object as it should be.
pub(crate) fn csi_node(
    node: &Node,
    existing: Option<&CSINode>,
    drivers: &BTreeMap<String, RegisteredDriver>,
    seen: &BTreeSet<String>,
) -> CSINode {
    let name = node.metadata.name.clone().unwrap_or_default();
    let mut wanted = existing.cloned().unwrap_or_else(|| CSINode {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name,
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec::default(),
        status: None,
    });
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    annotations.insert(MIGRATED_ANNOTATION.to_owned(), MIGRATED.to_owned());
    let mut entries: BTreeMap<String, CSINodeDriver> = wanted
        .spec
        .drivers
        .drain(..)
        .filter(|it| !seen.contains(&it.name))
        .map(|it| (it.name.clone(), it))
        .collect();
    for (name, driver) in drivers {
        let keys: Vec<String> = driver.topology.keys().cloned().collect();
        let entry = CSINodeDriver {
            name: name.clone(),
            node_id: driver.node_id.clone(),
            topology_keys: Some(keys).filter(|it| !it.is_empty()),
            allocatable: i32::try_from(driver.max_volumes)
                .ok()
                .filter(|count| *count > 0)
                .map(|count| VolumeNodeResources { count: Some(count) }),
        };
        entries.insert(name.clone(), entry);
    }
    wanted.spec.drivers = entries.into_values().collect();
    wanted
}

/// What the node itself has to say; `None` when it says so already.
pub(crate) fn node_patch(
    node: &Node,
    drivers: &BTreeMap<String, RegisteredDriver>,
    seen: &BTreeSet<String>,
) -> Option<Value> {
    let annotations = node.metadata.annotations.clone().unwrap_or_default();
    let before = annotations.get(NODE_ID_ANNOTATION);
    let known: BTreeMap<String, String> =
        before.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let mut ids: BTreeMap<String, String> =
        known.clone().into_iter().filter(|(name, _)| !seen.contains(name)).collect();
    ids.extend(drivers.iter().map(|(name, driver)| (name.clone(), driver.node_id.clone())));
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let mut missing = BTreeMap::new();
    for (key, value) in drivers.values().flat_map(|driver| &driver.topology) {
        match labels.get(key) {
            Some(other) if other != value => {
                tracing::warn!(
                    key,
                    value,
                    other,
                    "A driver's topology contradicts the node's label"
                );
            }
            Some(_same) => {}
            None => {
                missing.insert(key.clone(), value.clone());
            }
        }
    }
    if ids == known && missing.is_empty() {
        return None;
    }
    let ids = if ids.is_empty() { Value::Null } else { json!(json!(ids).to_string()) };
    Some(json!({"metadata": {"annotations": {NODE_ID_ANNOTATION: ids}, "labels": missing}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(id: &str, zone: &str) -> RegisteredDriver {
        RegisteredDriver {
            node_id: id.to_owned(),
            max_volumes: 7,
            topology: BTreeMap::from([("example.com/zone".to_owned(), zone.to_owned())]),
        }
    }

    fn node(metadata: Value) -> Node {
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn drivers_are_published_with_limits_and_topology() {
        let node = node(json!({"name": "n", "uid": "u"}));
        let drivers = BTreeMap::from([("d".to_owned(), driver("me", "a"))]);
        let seen = BTreeSet::from(["d".to_owned()]);
        let made = serde_json::to_value(csi_node(&node, None, &drivers, &seen)).unwrap();
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u");
        let expected = json!([{"name": "d", "nodeID": "me", "topologyKeys": ["example.com/zone"], "allocatable": {"count": 7}}]);
        assert_eq!(made["spec"]["drivers"], expected);
        let patch = node_patch(&node, &drivers, &seen).unwrap();
        let expected = json!({"metadata": {
            "annotations": {NODE_ID_ANNOTATION: "{\"d\":\"me\"}"},
            "labels": {"example.com/zone": "a"},
        }});
        assert_eq!(patch, expected);
    }

    #[test]
    fn only_drivers_that_were_seen_and_went_are_taken_out() {
        let node = node(
            json!({"name": "n", "annotations": {NODE_ID_ANNOTATION: "{\"gone\":\"1\",\"late\":\"2\"}"}}),
        );
        let existing: CSINode = serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
            {"name": "gone", "nodeID": "1", "topologyKeys": null}, {"name": "late", "nodeID": "2", "topologyKeys": null},
        ]}}))
        .unwrap();
        let seen = BTreeSet::from(["gone".to_owned()]);
        let left = csi_node(&node, Some(&existing), &BTreeMap::new(), &seen);
        let names: Vec<&str> = left.spec.drivers.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["late"]);
        let patch = node_patch(&node, &BTreeMap::new(), &seen).unwrap();
        assert_eq!(patch["metadata"]["annotations"][NODE_ID_ANNOTATION], "{\"late\":\"2\"}");
        let same = node_patch(&node, &BTreeMap::new(), &BTreeSet::new());
        assert_eq!(same, None);
    }
}

//! A pod's volumes in a summary: which of them a reading is, and what of it is charged to the pod.
//! Pure.

use ferrolet_ports::{DiskUsage, FileRoom, InUse, VolumeUsage};
use ferrolet_types::Pod;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Volume};

use super::shape::{ClaimReference, FileSystem, VolumeStats};

/// The volumes of a pod, and what those on the node's own disk take together.
pub(super) fn listed<'a>(pod: &'a Pod, readings: &[&VolumeUsage]) -> (Vec<VolumeStats<'a>>, InUse) {
    let named = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    let named = named.unwrap_or_default();
    let mut shown = Vec::new();
    let mut ephemeral = InUse::default();
    for volume in readings {
        let Some(source) = source_of(named, volume) else {
            continue;
        };
        if volume.is_on_node && is_local(source) {
            ephemeral.bytes += volume.room.used;
            ephemeral.inodes += volume.room.inodes_used;
        }
        let claim = claim_name(source, pod);
        shown.push(VolumeStats {
            room: FileSystem::of(volume.at, &volume.room),
            name: &source.name,
            pvc_ref: claim.map(|name| ClaimReference {
                name,
                namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
            }),
        });
    }
    (shown, ephemeral)
}

/// The claims of a pod that are mounted, with the room they have.
pub(crate) fn claims(pod: &Pod, disk: &DiskUsage) -> Vec<(String, FileRoom)> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let named = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    let named = named.unwrap_or_default();
    let own = disk.volumes.iter().filter(|it| it.uid.as_str() == uid);
    own.filter_map(|it| Some((claim_name(source_of(named, it)?, pod)?, it.room))).collect()
}

/// The volume that a directory belongs to: told, by its name, or the one that is left.
fn source_of<'a>(named: &'a [Volume], volume: &VolumeUsage) -> Option<&'a Volume> {
    let by_name = |name: &str| named.iter().find(|it| it.name == name);
    if let Some(told) = &volume.volume {
        return by_name(told);
    }
    // A directory that has no volume's name has its PersistentVolume's.
    by_name(&volume.name).or_else(|| only_claim(named))
}

/// True for volumes whose content is charged to the pod, as upstream has it.
fn is_local(volume: &Volume) -> bool {
    let is_on_disk = |it: &EmptyDirVolumeSource| it.medium.as_deref().unwrap_or("").is_empty();
    volume.git_repo.is_some()
        || volume.config_map.is_some()
        || volume.empty_dir.as_ref().is_some_and(is_on_disk)
}

/// The one volume with a claim, when there is exactly one; with more, directories cannot be told
/// apart by name.
fn only_claim(named: &[Volume]) -> Option<&Volume> {
    let mut claims =
        named.iter().filter(|it| it.persistent_volume_claim.is_some() || it.ephemeral.is_some());
    let first = claims.next()?;
    claims.next().is_none().then_some(first)
}

fn claim_name(volume: &Volume, pod: &Pod) -> Option<String> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(claim.claim_name.clone());
    }
    let pod = pod.metadata.name.as_deref()?;
    volume.ephemeral.as_ref().map(|_| format!("{pod}-{}", volume.name))
}

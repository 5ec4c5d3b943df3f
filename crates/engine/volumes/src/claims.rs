//! From a claim to the volume that it is bound to, with upstream's checks and sentences. Pure.
//!
//! In: the claim and the volume as the API has them, and how the pod uses them. Out: [`VolumeSpec`],
//! or why the pod must wait. Refuses: deciding who is bound to whom; the control plane does.

use ferrolet_ports::{BoundClaim, VolumeMode, VolumeSpec};
use ferrolet_types::Quantity;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::{api::resource::Quantity as ApiQuantity, apis::meta::v1::ObjectMeta},
};

use crate::{
    plan::{ClaimUse, Uses},
    spec::persistent_spec,
};

type Amounts = std::collections::BTreeMap<String, ApiQuantity>;

/// Keeps a claim that is used from disappearing under its pod.
const PROTECTION: &str = "kubernetes.io/pvc-protection";

/// A pod in a claim's eyes.
pub(crate) struct Claimant<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

/// The name of the volume that the claim is bound to, if the pod may use it.
pub(crate) fn bound_volume(
    pod: &Claimant<'_>,
    claim_use: &ClaimUse,
    claim: &PersistentVolumeClaim,
) -> Result<String, String> {
    let refuse = |why: &str| {
        Err(format!("error processing PVC {}/{}: {why}", pod.namespace, claim_use.claim))
    };
    let is_protected = finalizers(&claim.metadata).any(|it| it == PROTECTION);
    if claim.metadata.deletion_timestamp.is_some() && !is_protected {
        return refuse("PVC is being deleted");
    }
    let phase = claim.status.as_ref().and_then(|it| it.phase.as_deref());
    if phase != Some("Bound") {
        return refuse("PVC is not bound");
    }
    let name = claim.spec.as_ref().and_then(|it| it.volume_name.clone());
    let Some(name) = name.filter(|it| !it.is_empty()) else {
        return refuse("PVC has empty pvc.Spec.VolumeName");
    };
    if claim_use.is_own && !is_controlled_by(&claim.metadata, pod.uid) {
        return Err(format!(
            "PVC {}/{} was not created for pod {}/{} (pod is not owner)",
            pod.namespace, claim_use.claim, pod.namespace, pod.name
        ));
    }
    Ok(name)
}

/// The volume, if it is bound to that claim and can be used that way.
pub(crate) fn claimed_spec(
    pod: &Claimant<'_>,
    (volume_name, uses): (&str, Uses),
    claim_use: &ClaimUse,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
) -> Result<VolumeSpec, String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let process =
        |why: String| format!("error processing PVC {}/{}: {why}", pod.namespace, claim_use.claim);
    let reference = volume.spec.as_ref().and_then(|it| it.claim_ref.as_ref());
    let Some(reference) = reference else {
        return Err(process(format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        )));
    };
    let (theirs, ours) = (
        reference.uid.as_deref().unwrap_or_default(),
        claim.metadata.uid.as_deref().unwrap_or_default(),
    );
    if theirs != ours {
        return Err(process(format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {theirs} does not point to claim.UID {ours}"
        )));
    }
    let storage = |amounts: Option<&Amounts>| amounts?.get("storage").map(|it| it.0.clone());
    let status = claim.status.as_ref();
    let told = storage(status.and_then(|it| it.capacity.as_ref()));
    let statuses = status.and_then(|it| it.allocated_resource_statuses.as_ref());
    let allocated = storage(status.and_then(|it| it.allocated_resources.as_ref()));
    let bound = BoundClaim {
        name: claim_use.claim.clone(),
        capacity: told.and_then(|text| Quantity::parse(&text).ok()).map(Quantity::value),
        volume_capacity: storage(volume.spec.as_ref().and_then(|it| it.capacity.as_ref()))
            .unwrap_or_default(),
        resize_status: statuses.and_then(|it| it.get("storage").cloned()),
        allocated: allocated.and_then(|text| {
            let bytes = Quantity::parse(&text).ok()?.value();
            Some((text, bytes))
        }),
    };
    let spec = persistent_spec(volume, claim_use.is_read_only).map_err(process)?;
    let spec = VolumeSpec { claim: Some(bound), ..spec };
    let mode = spec.mode.word();
    if uses.as_files && spec.mode != VolumeMode::Filesystem {
        return Err(format!(
            "volume {volume_name} has volumeMode {mode}, but is specified in volumeMounts"
        ));
    }
    if uses.as_device && spec.mode != VolumeMode::Block {
        return Err(format!(
            "volume {volume_name} has volumeMode {mode}, but is specified in volumeDevices"
        ));
    }
    Ok(spec)
}

fn finalizers(meta: &ObjectMeta) -> impl Iterator<Item = &str> {
    meta.finalizers.iter().flatten().map(String::as_str)
}

fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|it| it.controller == Some(true) && it.uid == uid)
}

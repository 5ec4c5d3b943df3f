//! Volumes that have become larger: what is left to do on the node, and what claims are told of it.
//!
//! The control plane makes a volume larger and says so in the volume's capacity and the claim's
//! status; the rest is the node's part, when the volume is mounted or while it is. [`growth`] and
//! the patches are pure. Refuses: knowing how a volume grows.

use ferrolet_ports::{
    Event, EventKind, EventObject, Events, ExpandFault, GrownBytes, StorageObjects, VolumeFault,
    VolumeSpec, VolumeStep,
};
use serde_json::{Value, json};

use crate::{VolumeEngine, mount::Job, plan::PodPlan};

const IN_PROGRESS: &str = "NodeResizeInProgress";
/// What claims say while they grow; none of it stays when they have.
const CONDITIONS: [&str; 4] =
    ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];

/// The size that a volume is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Size {
    bytes: i64,
    /// What the claim was told to have until now, in bytes.
    before: i64,
    text: String,
    /// The controller follows how far it is.
    is_tracked: bool,
}

/// What a volume has to grow to; `None` when it need not, may not, or is not the node's turn.
fn growth(spec: &VolumeSpec) -> Option<Size> {
    let claim = spec.claim.as_ref()?;
    let (wanted, told) = (spec.capacity?, claim.capacity?);
    if wanted <= told || spec.is_read_only {
        return None;
    }
    match (claim.resize_status.as_deref(), &claim.allocated) {
        // An older controller.
        (None, None) => Some(Size {
            bytes: wanted,
            before: told,
            text: claim.volume_capacity.clone(),
            is_tracked: false,
        }),
        (Some("NodeResizePending" | IN_PROGRESS), Some((text, bytes))) => {
            Some(Size { bytes: *bytes, before: told, text: text.clone(), is_tracked: true })
        }
        _ => None,
    }
}

/// The node has begun.
fn begun() -> Value {
    json!({"status": {"allocatedResourceStatuses": {"storage": IN_PROGRESS}}})
}

/// The node is done.
fn finished(size: &Size) -> Value {
    let gone = CONDITIONS.map(|kind| json!({"$patch": "delete", "type": kind}));
    let mut status = json!({"capacity": {"storage": size.text}, "conditions": gone});
    if size.is_tracked {
        status["allocatedResourceStatuses"] = json!({"storage": null});
    }
    json!({"status": status})
}

/// The node cannot, for now.
fn failed(why: &str, now: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "NodeResizeError",
        "status": "True",
        "lastTransitionTime": now,
        "message": format!("failed to expand pvc with {why}"),
    }]}})
}

/// The node cannot, and never will: the control plane may try another size.
fn given_up(why: &str, now: &str) -> Value {
    let mut patch = failed(why, now);
    patch["status"]["allocatedResourceStatuses"] = json!({"storage": "NodeResizeInfeasible"});
    patch
}

impl VolumeEngine {
    /// Lets a volume use what it has become, and tells the claim.
    pub(crate) async fn expand(&self, job: &mut Job<'_>) -> Result<(), VolumeFault> {
        let (plan, spec) = (job.plan, job.spec);
        let (Some(size), Some(storage)) = (growth(spec), &self.doors.storage) else {
            return Ok(());
        };
        let tell = async |patch: Value| tell_claim(storage.as_ref(), plan, spec, &patch).await;
        if size.is_tracked {
            tell(begun()).await?;
        }
        let bytes = GrownBytes { now: size.bytes, before: size.before };
        if let Err(refusal) = job.mounter.expand(bytes).await {
            let now = self.doors.clock.now().to_second_precision().to_string();
            let why = &refusal.fault().message;
            let patch = match &refusal {
                ExpandFault::Open(_) => None,
                ExpandFault::Failed(_) | ExpandFault::Unfit(_) => Some(failed(why, &now)),
                ExpandFault::Infeasible(_) => Some(given_up(why, &now)),
            };
            if let Some(patch) = patch.filter(|_| size.is_tracked) {
                tell(patch).await?;
            }
            return match refusal {
                ExpandFault::Unfit(fault) => {
                    tracing::warn!(
                        volume = spec.name,
                        why = fault.message,
                        "Volume cannot grow here"
                    );
                    self.table.amend(&plan.uid, job.name, |it| it.cannot_grow = true);
                    Ok(())
                }
                ExpandFault::Open(fault)
                | ExpandFault::Failed(fault)
                | ExpandFault::Infeasible(fault) => Err(fault),
            };
        }
        say_grown(self.doors.events.as_ref(), plan, spec, &self.doors.node_name);
        tell(finished(&size)).await
    }
}

async fn tell_claim(
    storage: &dyn StorageObjects,
    plan: &PodPlan,
    spec: &VolumeSpec,
    patch: &Value,
) -> Result<(), VolumeFault> {
    let Some(claim) = &spec.claim else {
        return Ok(());
    };
    let namespace = &plan.key.namespace;
    let told = storage.patch_claim_status(namespace, &claim.name, patch);
    let told = told.await.map(drop);
    told.map_err(|error| VolumeFault::later(error.message).at(VolumeStep::Expand))
}

/// Tells of the pod whose volume has grown.
fn say_grown(events: &dyn Events, plan: &PodPlan, spec: &VolumeSpec, node_name: &str) {
    events.record(Event {
        object: EventObject::Pod { uid: plan.uid.clone(), key: plan.key.clone(), field_path: None },
        kind: EventKind::Normal,
        reason: "FileSystemResizeSuccessful".to_owned(),
        message: format!(
            "MountVolume.NodeExpandVolume succeeded for volume {:?} {node_name}",
            spec.name
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolet_ports::{BoundClaim, VolumeMode, VolumeSource};

    #[test]
    fn a_volume_grows_when_it_is_the_nodes_turn() {
        let check = |told: i64, is_read_only: bool, tracked: (&str, i64), expected: Option<i64>| {
            let (status, allocated) = tracked;
            let spec = VolumeSpec {
                name: "pv".to_owned(),
                source: VolumeSource::Unsupported("test"),
                is_read_only,
                mount_options: Vec::new(),
                access_modes: Vec::new(),
                group: None,
                capacity: Some(20),
                mode: VolumeMode::Filesystem,
                affinity_fault: None,
                claim: Some(BoundClaim {
                    name: "c".to_owned(),
                    capacity: Some(told),
                    volume_capacity: "20".to_owned(),
                    resize_status: Some(status.to_owned()).filter(|it| !it.is_empty()),
                    allocated: Some((allocated.to_string(), allocated)).filter(|it| it.1 > 0),
                }),
            };
            let found = growth(&spec).map(|it| it.bytes);
            assert_eq!(found, expected, "{told} {tracked:?}");
        };
        check(20, false, ("", 0), None);
        check(10, true, ("", 0), None);
        check(10, false, ("", 0), Some(20));
        check(10, false, ("NodeResizePending", 18), Some(18));
        check(10, false, ("NodeResizeInProgress", 18), Some(18));
        check(10, false, ("ControllerResizeInProgress", 18), None);
        check(10, false, ("NodeResizeInfeasible", 18), None);
        check(10, false, ("", 18), None);
    }

    #[test]
    fn a_claim_that_has_grown_says_nothing_of_growing_any_more() {
        let size = Size { bytes: 1, before: 0, text: "1".to_owned(), is_tracked: true };
        let patch = finished(&size);
        assert_eq!(patch["status"]["capacity"]["storage"], "1");
        assert_eq!(patch["status"]["allocatedResourceStatuses"], json!({"storage": null}));
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 4);
    }
}

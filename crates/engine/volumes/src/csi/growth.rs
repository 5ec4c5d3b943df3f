//! Volumes that have become larger: their file systems are told, then their claims.
//!
//! The control plane makes a volume larger and says so in the volume's capacity and the claim's status; the rest is the node's
//! part, when the volume is mounted or while it is. [`growth`] and the patches are pure.

use ferrolet_ports::{CsiError, CsiExpand, CsiFate, Event, EventKind, EventObject};
use serde_json::{Value, json};

use super::shell::{CsiShell, Job, lock};
use crate::{
    fault::{Fault, Step},
    provided::Provided,
};

const IN_PROGRESS: &str = "NodeResizeInProgress";
/// What claims say while they grow; none of it stays when they have.
const CONDITIONS: [&str; 4] = [
    "FileSystemResizePending",
    "Resizing",
    "ControllerResizeError",
    "NodeResizeError",
];

/// The size that a volume is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Size {
    bytes: i64,
    text: String,
    /// The controller follows how far it is.
    is_tracked: bool,
}

/// What a volume has to grow to; `None` when it need not, may not, or is not the node's turn.
pub(super) fn growth(provided: &Provided) -> Option<Size> {
    let claim = provided.claim.as_ref()?;
    let (wanted, told) = (provided.capacity?, claim.capacity?);
    if wanted <= told || provided.is_read_only {
        return None;
    }
    match (claim.resize_status.as_deref(), &claim.allocated) {
        // An older controller.
        (None, None) => Some(Size {
            bytes: wanted,
            text: claim.volume_capacity.clone(),
            is_tracked: false,
        }),
        (Some("NodeResizePending" | IN_PROGRESS), Some((text, bytes))) => Some(Size {
            bytes: *bytes,
            text: text.clone(),
            is_tracked: true,
        }),
        _ => None,
    }
}

fn begun() -> Value {
    json!({"status": {"allocatedResourceStatuses": {"storage": IN_PROGRESS}}})
}

fn finished(size: &Size) -> Value {
    let gone = CONDITIONS.map(|kind| json!({"$patch": "delete", "type": kind}));
    let mut status = json!({"capacity": {"storage": size.text}, "conditions": gone});
    if size.is_tracked {
        status["allocatedResourceStatuses"] = json!({"storage": null});
    }
    json!({"status": status})
}

fn failed(error: &CsiError, now: &str) -> Value {
    let mut status = json!({"conditions": [{
        "type": "NodeResizeError",
        "status": "True",
        "lastTransitionTime": now,
        "message": format!("failed to expand pvc with {error}"),
    }]});
    if error.fate == CsiFate::Infeasible {
        // The control plane may try another size; we do not try this one again.
        status["allocatedResourceStatuses"] = json!({"storage": "NodeResizeInfeasible"});
    }
    json!({"status": status})
}

impl CsiShell<'_> {
    /// Lets the volume use what it has become, and tells the claim.
    pub(super) async fn grow(
        &self,
        job: &Job<'_>,
        path: &str,
        staging_path: &str,
    ) -> Result<(), Fault> {
        let Some(size) = growth(job.provided).filter(|_| job.abilities.expands) else {
            return Ok(());
        };
        let key = (job.plan.uid.clone(), job.provided.spec_name.clone());
        if lock(&self.kept.unfit).contains(&key) {
            return Ok(());
        }
        if size.is_tracked {
            self.tell_claim(job, &begun()).await?;
        }
        let secrets = self.secrets(&job.volume.expand_secret, "NodeExpandSecretRef");
        let ask = CsiExpand {
            volume: job.handle.clone(),
            path: path.to_owned(),
            staging_path: staging_path.to_owned(),
            capability: self.capability(job),
            bytes: size.bytes,
            secrets: secrets.await?,
        };
        if let Err(error) = self.drivers.expand(&job.volume.driver, &ask).await {
            if error.is_final() && size.is_tracked {
                let now = self.clock.now().to_second_precision().to_string();
                self.tell_claim(job, &failed(&error, &now)).await?;
            }
            if error.fate == CsiFate::Unfit {
                // No reason to keep the pod from its volume, nor to ask again while the pod is here.
                tracing::warn!(volume = job.provided.spec_name, %error, "Volume cannot grow here");
                lock(&self.kept.unfit).insert(key);
                return Ok(());
            }
            return Err(Fault::refused(error.message).at(Step::Expand));
        }
        self.provider.events.record(Event {
            object: EventObject::Pod {
                uid: job.plan.uid.clone(),
                key: job.plan.key.clone(),
                field_path: None,
            },
            kind: EventKind::Normal,
            reason: "FileSystemResizeSuccessful".to_owned(),
            message: format!(
                "MountVolume.NodeExpandVolume succeeded for volume {:?} {}",
                job.provided.spec_name, self.node_name
            ),
        });
        self.tell_claim(job, &finished(&size)).await
    }

    async fn tell_claim(&self, job: &Job<'_>, patch: &Value) -> Result<(), Fault> {
        let Some(claim) = &job.provided.claim else {
            return Ok(());
        };
        let namespace = &job.plan.key.namespace;
        let told = self
            .storage
            .patch_claim_status(namespace, &claim.name, patch);
        told.await
            .map(drop)
            .map_err(|error| Fault::later(error.message).at(Step::Expand))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provided::{Backing, BoundClaim, Form};

    #[test]
    fn a_volume_grows_when_it_is_the_nodes_turn() {
        let check = |told: i64, is_read_only: bool, tracked: (&str, i64), expected: Option<i64>| {
            let (status, allocated) = tracked;
            let provided = Provided {
                spec_name: "pv".to_owned(),
                backing: Backing::Unsupported("test"),
                is_read_only,
                options: Vec::new(),
                access_modes: Vec::new(),
                group: None,
                capacity: Some(20),
                form: Form::Files,
                affinity_fault: None,
                claim: Some(BoundClaim {
                    name: "c".to_owned(),
                    capacity: Some(told),
                    volume_capacity: "20".to_owned(),
                    resize_status: Some(status.to_owned()).filter(|it| !it.is_empty()),
                    allocated: Some((allocated.to_string(), allocated)).filter(|it| it.1 > 0),
                }),
            };
            let found = growth(&provided).map(|it| it.bytes);
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
        let size = Size {
            bytes: 1,
            text: "1".to_owned(),
            is_tracked: true,
        };
        let patch = finished(&size);
        assert_eq!(patch["status"]["capacity"]["storage"], "1");
        assert_eq!(
            patch["status"]["allocatedResourceStatuses"],
            json!({"storage": null})
        );
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 4);
    }
}

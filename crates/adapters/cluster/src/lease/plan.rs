//! What the lease should say. Pure.

use std::time::Duration;

use ferrolet_types::Timestamp;
use k8s_openapi::{
    api::coordination::v1::Lease,
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};

use crate::client::Place;

/// Where the leases of nodes stand.
pub const NAMESPACE: &str = "kube-node-lease";

/// What does not change about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasePlan {
    /// Name of the lease, its holder and its owner.
    pub node_name: String,
    /// How long it holds.
    pub duration: Duration,
}

impl LeasePlan {
    pub(super) fn place(&self) -> Place {
        Place::one::<Lease>(Some(NAMESPACE), &self.node_name)
    }

    /// The lease to write now: what is there, with the time, the duration and, if it is known now,
    /// the owner.
    pub(super) fn next(
        &self,
        base: Option<&Lease>,
        owner: Option<String>,
        now: Timestamp,
    ) -> Lease {
        let mut lease = base.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.node_name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let spec = lease.spec.get_or_insert_default();
        if base.is_none() {
            spec.holder_identity = Some(self.node_name.clone());
        }
        let secs = i32::try_from(self.duration.as_secs());
        spec.lease_duration_seconds = Some(secs.unwrap_or(i32::MAX));
        spec.renew_time = Some(MicroTime(now.0));
        if let Some(uid) = owner {
            lease.metadata.owner_references = Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: self.node_name.clone(),
                uid,
                ..OwnerReference::default()
            }]);
        }
        lease
    }
}

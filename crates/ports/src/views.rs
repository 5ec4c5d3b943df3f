//! Snapshots that others may look at, and the checks that say how a loop feels.

use ferrolet_types::{Pod, PodUid};
use k8s_openapi::api::core::v1::Node;

use crate::Fut;

/// The pods of this node with their current status, for the server.
pub trait PodsView: Send + Sync {
    /// Every pod, with `status` filled in.
    fn pods(&self) -> Vec<Pod>;

    /// The pod of this namespace and name.
    fn pod_named(&self, namespace: &str, name: &str) -> Option<Pod> {
        let is_asked_for = |pod: &Pod| {
            pod.metadata.namespace.as_deref() == Some(namespace)
                && pod.metadata.name.as_deref() == Some(name)
        };
        self.pods().into_iter().find(is_asked_for)
    }

    /// The pod of ours that an identity from the API means: a mirror pod's stands for its static
    /// pod.
    fn local_uid(&self, uid: &str) -> PodUid {
        PodUid::from(uid)
    }
}

/// What pods were granted, which may be behind what their sources want.
pub trait GrantsView: Send + Sync {
    /// The pod with the resources it was granted.
    fn granted(&self, pod: &Pod) -> Pod;
}

/// The node as it describes itself, cluster or not.
pub trait NodeView: Send + Sync {
    /// What it would say now; never asks an API server.
    fn node(&self) -> Fut<'_, Node>;
}

/// One named health check.
pub trait HealthCheck: Send + Sync {
    /// Its name, as `/healthz?verbose` shows it.
    fn name(&self) -> &'static str;
    /// `Ok` while all is well, else the reason.
    fn check(&self) -> Result<(), String>;
}

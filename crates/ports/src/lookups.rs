//! What the API server knows that containers are made from: services, runtime classes. Answered
//! from a copy, at once.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

/// Copies of the API's collections that the node keeps.
pub trait ClusterLookups: Send + Sync {
    /// Every service of the cluster; `None` until they were read once.
    fn services(&self) -> Option<Vec<Arc<Service>>>;
    /// The handler of a runtime class; `None` when there is no such class, or classes were not read
    /// yet.
    fn runtime_handler(&self, class: &str) -> Option<String>;
}

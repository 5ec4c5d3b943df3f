//! The cluster as the node's loops need it: write status, keep the node and the mirror pods, read
//! what pods refer to.
//!
//! Owned by the adapter `cluster`, faked by `testkit`. Every call is one request; none retries by
//! itself, because the loop that asks knows what a late answer is worth. Refuses: watches (they
//! arrive as channels) and policy.

use std::{sync::Arc, time::Duration};

use ferrolet_types::{GracePeriod, Pod, PodKey, PodUid, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, ServiceAccount};
use serde_json::Value;

use crate::{Fut, Retry};

/// What the loops that report ask of the API server.
pub trait ClusterApi: Send + Sync {
    /// Reads one pod.
    fn get_pod<'a>(&'a self, key: &'a PodKey) -> Fut<'a, Result<Pod, ApiError>>;
    /// Creates a pod: the mirror of a static one.
    fn create_pod<'a>(&'a self, pod: &'a Pod) -> Fut<'a, Result<Pod, ApiError>>;
    /// Patches a pod's status subresource with a strategic merge patch; a `metadata.uid` inside it
    /// is a precondition.
    fn patch_pod_status<'a>(
        &'a self,
        key: &'a PodKey,
        patch: &'a Value,
    ) -> Fut<'a, Result<Pod, ApiError>>;
    /// Deletes the pod with this identity; another pod under the same name is a conflict. No grace
    /// leaves it to the pod.
    fn delete_pod<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
        grace: Option<GracePeriod>,
    ) -> Fut<'a, Result<(), ApiError>>;
    /// Reads this node.
    fn get_node(&self) -> Fut<'_, Result<Node, ApiError>>;
    /// Creates this node.
    fn create_node<'a>(&'a self, node: &'a Node) -> Fut<'a, Result<Node, ApiError>>;
    /// Patches this node's metadata and specification with a strategic merge patch.
    fn patch_node<'a>(&'a self, patch: &'a Value) -> Fut<'a, Result<Node, ApiError>>;
    /// Patches this node's status with a strategic merge patch, over the connection of the
    /// heartbeat.
    fn patch_node_status<'a>(&'a self, patch: &'a Value) -> Fut<'a, Result<Node, ApiError>>;
    /// Drops the connections of the heartbeat, so that the next request opens a new one.
    fn reconnect(&self);
}

/// What the API has for pods of this node: objects they name, and tokens in their name.
pub trait ClusterObjects: Send + Sync {
    /// Keeps everything the pod refers to at hand. Repeating replaces what was said before.
    fn register(&self, pod: &Pod);
    /// Forgets what the pod referred to.
    fn unregister(&self, uid: &PodUid);
    /// A secret that some registered pod refers to.
    fn get_secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Arc<Secret>, ApiError>>;
    /// A config map that some registered pod refers to.
    fn get_config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Arc<ConfigMap>, ApiError>>;
    /// A service account of a pod of this node, as the server has it now.
    fn get_service_account<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<ServiceAccount, ApiError>>;
    /// A service-account token, from memory while it is fresh enough.
    fn get_token<'a>(&'a self, ask: &'a TokenAsk) -> Fut<'a, Result<Token, ApiError>>;
}

/// Which token is wanted: the same question gives the same token until it is due for renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenAsk {
    /// The service account's namespace.
    pub namespace: String,
    /// The service account's name.
    pub service_account: String,
    /// Who may accept it; empty for the API server itself.
    pub audiences: Vec<String>,
    /// How long it should live.
    pub lifetime: Option<Duration>,
    /// The pod it dies with.
    pub bound_pod: Option<(PodKey, PodUid)>,
}

/// A service-account token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token itself.
    pub text: String,
    /// When it stops being accepted.
    pub expires: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// A request that did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attempt}: {message}")]
pub struct ApiError {
    /// What was tried: verb and path.
    pub attempt: String,
    /// What kind of failure it is.
    pub kind: ApiErrorKind,
    /// The server's sentence, or what broke on the way to it.
    pub message: String,
    /// The answer's status code; none when there was no answer.
    pub code: Option<u16>,
    /// The server's machine-readable reasons, as `field: reason: message`.
    pub causes: Vec<String>,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApiErrorKind {
    /// There is no such object, or no such API.
    NotFound,
    /// Somebody else changed it first, or a precondition does not hold.
    Conflict,
    /// An object of this name is there already.
    AlreadyExists,
    /// The server does not know who we are.
    Unauthorized,
    /// We may not.
    Forbidden,
    /// The object does not pass validation.
    Invalid,
    /// The request itself is wrong.
    BadRequest,
    /// The resource version is too old: list again.
    Gone,
    /// Asked too often.
    TooManyRequests {
        /// How long the server asks us to stay away.
        retry_after: Option<Duration>,
    },
    /// No answer in time.
    Timeout,
    /// No connection, or the server says it cannot now.
    Unavailable,
    /// The server failed.
    Server,
    /// The answer could not be understood.
    Malformed,
}

impl ApiError {
    /// True when there is no such object.
    pub fn is_not_found(&self) -> bool {
        self.kind == ApiErrorKind::NotFound
    }

    /// When it makes sense to try the same thing again.
    pub fn retry(&self) -> Retry {
        use ApiErrorKind as Kind;
        match self.kind {
            Kind::NotFound
            | Kind::AlreadyExists
            | Kind::Forbidden
            | Kind::Invalid
            | Kind::BadRequest => Retry::Never,
            Kind::Conflict | Kind::Gone => Retry::Now,
            Kind::Unauthorized
            | Kind::TooManyRequests { .. }
            | Kind::Timeout
            | Kind::Unavailable
            | Kind::Server
            | Kind::Malformed => Retry::Later,
        }
    }
}

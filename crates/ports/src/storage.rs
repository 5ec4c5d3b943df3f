//! The storage objects of the API as the volumes engine needs them: claims, volumes, drivers,
//! attachments, this node's drivers, and what projected volumes take from the cluster: trust
//! bundles and certificates.
//!
//! Owned by the adapter `cluster`, faked by `testkit`. Every call is one request and always fresh:
//! the node authorizer lets a node read the claims and volumes of its own pods one by one, and
//! watch none of them. Refuses: retries and policy.

use std::collections::BTreeMap;

use ferrolet_types::{PodKey, PodUid};
use k8s_openapi::api::{
    certificates::v1::PodCertificateRequest,
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Secret},
    storage::v1::{CSIDriver, CSINode, VolumeAttachment},
};
use serde_json::Value;

use crate::{ApiError, Fut};

/// Which certificate a pod wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateAsk {
    /// The pod.
    pub pod: (PodKey, PodUid),
    /// In whose name it runs.
    pub service_account: String,
    /// Who is to sign.
    pub signer: String,
    /// The kind of key, in the API's words.
    pub key_type: String,
    /// How long it may be good at most, in seconds.
    pub longest_life: Option<i32>,
    /// What the pod wants to tell the signer.
    pub annotations: BTreeMap<String, String>,
}

/// A request that was made.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestedCertificate {
    /// Its name, in the pod's namespace.
    pub name: String,
    /// The key (PEM). Nobody else has it.
    pub key: String,
}

// Keys never reach a log.
impl std::fmt::Debug for RequestedCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestedCertificate").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Storage objects.
pub trait StorageObjects: Send + Sync {
    /// A claim of some pod of this node.
    fn get_claim<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<PersistentVolumeClaim, ApiError>>;
    /// The volume that such a claim is bound to.
    fn get_volume<'a>(&'a self, name: &'a str) -> Fut<'a, Result<PersistentVolume, ApiError>>;
    /// Patches a claim's status with a strategic merge patch.
    fn patch_claim_status<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        patch: &'a Value,
    ) -> Fut<'a, Result<PersistentVolumeClaim, ApiError>>;
    /// What the cluster's administrator says of a driver.
    fn get_driver<'a>(&'a self, name: &'a str) -> Fut<'a, Result<CSIDriver, ApiError>>;
    /// How far the attachment of a volume to this node is.
    fn get_attachment<'a>(&'a self, name: &'a str) -> Fut<'a, Result<VolumeAttachment, ApiError>>;
    /// This node, as the cluster has it.
    fn get_own_node(&self) -> Fut<'_, Result<Node, ApiError>>;
    /// A secret that a volume names for its driver.
    fn get_volume_secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Secret, ApiError>>;
    /// The texts of trust bundles, by name or by signer.
    fn get_trust_bundles<'a>(&'a self, ask: &'a TrustAsk)
    -> Fut<'a, Result<Vec<String>, ApiError>>;
    /// Makes a key, and asks in a pod's name for a certificate for it.
    fn request_certificate<'a>(
        &'a self,
        ask: &'a CertificateAsk,
    ) -> Fut<'a, Result<RequestedCertificate, ApiError>>;
    /// How far such a request is.
    fn get_certificate_request<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<PodCertificateRequest, ApiError>>;
    /// The drivers of this node, as the cluster knows them.
    fn get_csi_node(&self) -> Fut<'_, Result<CSINode, ApiError>>;
    /// Makes that object.
    fn create_csi_node<'a>(&'a self, node: &'a CSINode) -> Fut<'a, Result<CSINode, ApiError>>;
    /// Replaces it; a change by somebody else since it was read is a conflict.
    fn replace_csi_node<'a>(&'a self, node: &'a CSINode) -> Fut<'a, Result<CSINode, ApiError>>;
    /// Replaces its status, under the same condition.
    fn replace_csi_node_status<'a>(
        &'a self,
        node: &'a CSINode,
    ) -> Fut<'a, Result<CSINode, ApiError>>;
}

/// Which trust bundles are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrustAsk {
    /// One, by its name.
    Name(String),
    /// Every one of a signer.
    Signer {
        /// The signer.
        signer: String,
        /// A selector of labels, in the words of a query; `None` matches nothing.
        labels: Option<String>,
    },
}

//! The storage objects of the API as the volumes engine needs them: claims, volumes, drivers, attachments, this node's drivers.
//!
//! Owned by the adapter `cluster`, faked by `testkit`. Every call is one request and always fresh: the node authorizer lets a
//! node read the claims and volumes of its own pods one by one, and watch none of them. Refuses: retries and policy.

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Secret},
    storage::v1::{CSIDriver, CSINode, VolumeAttachment},
};
use serde_json::Value;

use crate::{ApiError, Fut};

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
    /// The drivers of this node, as the cluster knows them.
    fn get_csi_node(&self) -> Fut<'_, Result<CSINode, ApiError>>;
    /// Makes that object.
    fn create_csi_node<'a>(&'a self, node: &'a CSINode) -> Fut<'a, Result<CSINode, ApiError>>;
    /// Replaces it; a change by somebody else since it was read is a conflict.
    fn replace_csi_node<'a>(&'a self, node: &'a CSINode) -> Fut<'a, Result<CSINode, ApiError>>;
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

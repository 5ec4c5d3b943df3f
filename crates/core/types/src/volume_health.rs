//! What a volume's driver says of its health: from whoever asks drivers to the sync loop.

use k8s_openapi::api::core::v1::VolumeHealthCondition;

use crate::PodUid;

/// Everything that is wrong with one volume of a pod by now; nothing when it is well.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeHealthReport {
    /// Whose volume it is.
    pub uid: PodUid,
    /// The volume, by its name in the pod.
    pub volume: String,
    /// What is wrong, in the API's words.
    pub conditions: Vec<VolumeHealthCondition>,
}

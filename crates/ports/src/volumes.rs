//! A pod's volumes, seen from its worker: make them ready, and take them away again.

use std::collections::BTreeMap;

use ferrolet_types::{Pod, PodUid};

use crate::{Fut, Retry};

/// The volumes of pods.
pub trait PodVolumes: Send + Sync {
    /// Makes every volume of the pod ready and answers where each stands. Idempotent; safe to
    /// repeat and to abandon.
    fn ensure<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> Fut<'a, Result<BTreeMap<String, VolumeMount>, VolumeError>>;
    /// Makes a part of a volume safe to mount and answers with the path to name to the runtime.
    /// Idempotent.
    fn sub_path<'a>(&'a self, part: &'a SubPath) -> Fut<'a, Result<String, VolumeError>>;
    /// Takes every volume of the pod away. Absent is success.
    fn release<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), VolumeError>>;
}

/// A part of a volume that one container mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// Whose volume it is.
    pub uid: PodUid,
    /// The volume, by its name in the pod.
    pub volume: String,
    /// Where the volume stands on the node.
    pub host_path: String,
    /// The container that mounts it.
    pub container: String,
    /// Which of the container's mounts it is, counted from 0.
    pub index: usize,
    /// The path inside the volume, with variables expanded.
    pub path: String,
    /// The container may not write to it. A path that is missing is made all the same, as upstream
    /// does.
    pub is_read_only: bool,
}

/// Where a volume stands on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMount {
    /// Path on the node.
    pub host_path: String,
    /// Cannot be written, whatever a container asks for.
    pub is_read_only: bool,
    /// An image to be mounted instead of a path.
    pub image: Option<String>,
    /// To be relabelled for SELinux.
    pub selinux_relabel: bool,
    /// The link to a raw block device, for a volume without a file system.
    pub device: Option<String>,
    /// A group that the volume's administrator gives to whoever uses it.
    pub group: Option<i64>,
}

impl VolumeMount {
    /// A path of the node.
    pub fn at(host_path: String, is_read_only: bool, selinux_relabel: bool) -> Self {
        Self { host_path, is_read_only, image: None, selinux_relabel, device: None, group: None }
    }
}

/// A volume that is not ready. `message` is what the pod's event says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct VolumeError {
    /// The volume, when it is about one.
    pub volume: Option<String>,
    /// The event's reason, `FailedMount` and its like.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
    /// When to try again.
    pub retry: Retry,
}

impl VolumeError {
    /// The reason of a pod that this node has no room for: none of its volumes can be attached here
    /// any more.
    pub const NODE_IS_FULL: &'static str = "VolumeAttachmentLimitExceeded";

    /// The reason of a pod whose volumes somebody else has yet to attach. No event has it:
    /// attaching takes its time.
    pub const NOT_ATTACHED: &'static str = "VolumeNotAttached";

    /// True when there is nothing to tell anybody yet.
    pub fn is_expected(&self) -> bool {
        self.reason == Self::NOT_ATTACHED
    }

    /// True when the pod is not to wait but to fail, so that it may be made anew elsewhere.
    pub fn rejects_pod(&self) -> bool {
        self.reason == Self::NODE_IS_FULL
    }
}

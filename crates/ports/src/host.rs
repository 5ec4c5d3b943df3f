//! What the node keeps for its pods besides containers: cgroups, directories and log files.

use std::path::PathBuf;

use ferrolet_resources::{ClassBounds, NodeCgroup, PodCgroup};
use ferrolet_types::{ContainerId, PodKey, PodUid};

use crate::{Fut, Retry};

/// The cgroups of pods.
pub trait PodCgroups: Send + Sync {
    /// The parent to name in a sandbox request, in the driver's notation.
    fn parent_of(&self, pod: &PodCgroup) -> String;
    /// True when the pod's cgroup is there in every hierarchy.
    fn exists<'a>(&'a self, pod: &'a PodCgroup) -> Fut<'a, Result<bool, HostError>>;
    /// Makes the pod's cgroup, with its parents, and writes its bounds. Idempotent.
    fn ensure<'a>(&'a self, pod: &'a PodCgroup) -> Fut<'a, Result<(), HostError>>;
    /// Sets what all pods have together, and the burstable ones among them.
    fn bound_classes(&self, bounds: ClassBounds) -> Fut<'_, Result<(), HostError>>;
    /// Gives the pod's cgroup, wherever it stands, the smallest CPU weight there is. Absent is
    /// success, and nothing is made.
    fn lower_cpu<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>>;
    /// Removes the pod's cgroup wherever it stands, ending what still runs in it. Absent is
    /// success.
    fn remove<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>>;
    /// Every pod that has a cgroup.
    fn list(&self) -> Fut<'_, Result<Vec<PodUid>, HostError>>;
}

/// The cgroups of the node itself.
pub trait NodeCgroups: Send + Sync {
    /// Writes the bounds of one. The cgroup of pods is made; one that is somebody else's has to be
    /// there. Idempotent.
    fn bound<'a>(&'a self, cgroup: &'a NodeCgroup) -> Fut<'a, Result<(), HostError>>;
}

/// The node's own files of name resolution. Read anew for every pod: people and programs change
/// them while the agent runs.
pub trait NodeNames: Send + Sync {
    /// Its hosts file; empty when there is none.
    fn hosts(&self) -> Fut<'_, String>;
    /// Its resolver's configuration (`resolvConf`); `None` when pods shall have nothing of it.
    fn resolver(&self) -> Fut<'_, Result<Option<String>, HostError>>;
}

/// The directories and log files of pods.
pub trait PodFiles: Send + Sync {
    /// The directory that a pod's logs go to.
    fn log_directory(&self, key: &PodKey, uid: &PodUid) -> PathBuf;
    /// Makes a pod's directories (`pods/<uid>` with `volumes`, `plugins`) and its log directory.
    /// Idempotent.
    fn ensure_pod<'a>(&'a self, key: &'a PodKey, uid: &'a PodUid)
    -> Fut<'a, Result<(), HostError>>;
    /// Removes a pod's directories; refuses while something is mounted in them. Absent is success.
    fn remove_pod<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>>;
    /// Removes a pod's log directory and the links into it. Absent is success.
    fn remove_logs<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Every pod that has a directory or logs.
    fn list(&self) -> Fut<'_, Result<Vec<StoredPod>, HostError>>;
    /// Writes the pod's hosts file and answers with its path.
    fn write_hosts<'a>(
        &'a self,
        uid: &'a PodUid,
        content: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>>;
    /// Reads a small file of the agent's own in the pod's directory; `None` when there is none.
    fn read_pod_file<'a>(
        &'a self,
        uid: &'a PodUid,
        name: &'a str,
        limit: usize,
    ) -> Fut<'a, Result<Option<Vec<u8>>, HostError>>;
    /// Replaces a small file of the agent's own in the pod's directory, to stay also after a power
    /// cut.
    fn write_pod_file<'a>(
        &'a self,
        uid: &'a PodUid,
        name: &'a str,
        content: Vec<u8>,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Removes such a file. Absent is success.
    fn remove_pod_file<'a>(
        &'a self,
        uid: &'a PodUid,
        name: &'a str,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Reads a file that a pod left in one of its volumes, whatever the pod made of the path; at
    /// most `limit` bytes.
    fn read_in_volume<'a>(
        &'a self,
        volume: &'a str,
        path: &'a str,
        limit: usize,
    ) -> Fut<'a, Result<String, HostError>>;
    /// Makes a container's log directory and answers with the highest restart count that left a log
    /// there.
    fn ensure_container_logs<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
        container: &'a str,
    ) -> Fut<'a, Result<Option<u32>, HostError>>;
    /// Makes a fresh file for a container's termination message and answers with its path.
    fn new_termination_log<'a>(
        &'a self,
        uid: &'a PodUid,
        container: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>>;
    /// Reads a termination message: the file's last `limit` bytes.
    fn read_termination_log<'a>(
        &'a self,
        path: &'a str,
        limit: usize,
    ) -> Fut<'a, Result<String, HostError>>;
    /// Reads the last `lines` lines, at most `limit` bytes, of a container's log, without the
    /// runtime's prefixes.
    fn read_log_tail<'a>(
        &'a self,
        path: &'a str,
        lines: usize,
        limit: usize,
    ) -> Fut<'a, Result<String, HostError>>;
    /// Makes the link under `/var/log/containers` for a container's log.
    fn link_container_log<'a>(
        &'a self,
        key: &'a PodKey,
        container: &'a str,
        id: &'a ContainerId,
        log_path: &'a str,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Removes a container's log files and its link. Absent is success.
    fn remove_container_log<'a>(
        &'a self,
        log_path: &'a str,
        link_of: (&'a PodKey, &'a str, &'a ContainerId),
    ) -> Fut<'a, Result<(), HostError>>;
}

/// A pod that left something on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPod {
    /// Its identity.
    pub uid: PodUid,
    /// Namespace and name, when a log directory tells them.
    pub key: Option<PodKey>,
}

/// Something the node's own file systems refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attempt}: {cause}")]
pub struct HostError {
    /// What was tried, and on what.
    pub attempt: String,
    /// The kernel's answer.
    pub cause: String,
    /// When to try again.
    pub retry: Retry,
}

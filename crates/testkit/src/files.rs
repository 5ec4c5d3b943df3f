//! A file system just large enough for pods: directories by pod, and files by path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ferrolet_types::{PodKey, PodUid};

/// Where pod directories stand.
pub const ROOT_DIRECTORY: &str = "/var/lib/kubelet";
/// Where pod logs stand.
pub const LOG_ROOT: &str = "/var/log/pods";

/// What pods left on disk.
#[derive(Default)]
pub(crate) struct Files {
    /// Pods with a directory.
    pub(crate) pods: BTreeSet<PodUid>,
    /// Pods with a log directory.
    pub(crate) logs: BTreeMap<PodUid, PodKey>,
    /// Contents by path.
    contents: BTreeMap<String, String>,
    /// Targets of the links under `/var/log/containers`, by name.
    pub(crate) links: BTreeMap<String, String>,
}

impl Files {
    pub(crate) fn put(&mut self, path: String, content: String) {
        self.contents.insert(path, content);
    }

    /// A log file that may be empty, but is there.
    pub(crate) fn touch_log(&mut self, path: String) {
        self.contents.entry(path).or_default();
    }

    pub(crate) fn take(&mut self, path: &str) {
        self.contents.remove(path);
    }

    pub(crate) fn read(&self, path: &str) -> Option<&str> {
        self.contents.get(path).map(String::as_str)
    }

    pub(crate) fn append(&mut self, path: &str, text: &str) {
        self.contents.entry(path.to_owned()).or_default().push_str(text);
    }

    /// Paths below a directory.
    pub(crate) fn below<'a>(&'a self, directory: &str) -> impl Iterator<Item = &'a str> {
        let prefix = format!("{directory}/");
        let from = self.contents.range(prefix.clone()..);
        from.map(|(path, _)| path.as_str()).take_while(move |path| path.starts_with(&prefix))
    }

    /// Removes a path, what is below it, and the rotated copies beside it.
    pub(crate) fn remove(&mut self, path: &str) {
        let (below, rotated) = (format!("{path}/"), format!("{path}."));
        self.contents
            .retain(|it, _| it != path && !it.starts_with(&below) && !it.starts_with(&rotated));
    }

    /// True when something of the pod is left.
    pub(crate) fn holds(&self, uid: &PodUid) -> bool {
        self.pods.contains(uid) || self.logs.contains_key(uid)
    }
}

/// The directory of a pod.
pub(crate) fn pod_directory(uid: &PodUid) -> String {
    format!("{ROOT_DIRECTORY}/pods/{uid}")
}

/// The directory of a pod's logs.
pub(crate) fn log_directory(key: &PodKey, uid: &PodUid) -> PathBuf {
    PathBuf::from(format!("{LOG_ROOT}/{}_{}_{uid}", key.namespace, key.name))
}

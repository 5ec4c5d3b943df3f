//! Where pods come from besides the API server, and where their logs go.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use super::reader::Reader;
use crate::raw::clean;

/// Static pods and the pace of the sync loop.
#[derive(Clone, PartialEq, Eq)]
pub struct Sources {
    /// A directory of manifests, or one manifest.
    pub static_pod_path: Option<PathBuf>,
    /// How often the directory is read again, whatever the watch says.
    pub file_check_frequency: Duration,
    /// An address that answers with a manifest.
    pub static_pod_url: Option<String>,
    /// Headers sent with that request. Never logged.
    pub static_pod_url_header: BTreeMap<String, Vec<String>>,
    /// How often the address is asked.
    pub http_check_frequency: Duration,
    /// How often every pod is looked at even if nothing happened.
    pub sync_frequency: Duration,
    /// The root of the pods' log directories.
    pub pod_logs_dir: PathBuf,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("static_pod_path", &self.static_pod_path)
            .field("file_check_frequency", &self.file_check_frequency)
            .field("static_pod_url", &self.static_pod_url)
            .field("static_pod_url_header", &"<masked>")
            .field("http_check_frequency", &self.http_check_frequency)
            .field("sync_frequency", &self.sync_frequency)
            .field("pod_logs_dir", &self.pod_logs_dir)
            .finish()
    }
}

pub(super) fn read(r: &Reader<'_>) -> Sources {
    let headers =
        r.get("staticPodURLHeader").and_then(|value| value.as_object()).into_iter().flatten();
    Sources {
        static_pod_path: r.optional_text("staticPodPath").map(PathBuf::from),
        file_check_frequency: r.period("fileCheckFrequency"),
        static_pod_url: r.optional_text("staticPodURL"),
        static_pod_url_header: headers
            .map(|(name, _)| (name.clone(), r.texts(&format!("staticPodURLHeader.{name}"))))
            .collect(),
        http_check_frequency: r.period("httpCheckFrequency"),
        sync_frequency: r.period("syncFrequency"),
        pod_logs_dir: read_pod_logs_dir(r),
    }
}

/// Part of metric labels and of paths given to the runtime, hence stricter than other paths.
fn read_pod_logs_dir(r: &Reader<'_>) -> PathBuf {
    let (path, text) = ("podLogsDir", r.text("podLogsDir"));
    if text.is_empty() {
        r.refuse(path, "must not be empty");
    } else if !text.starts_with('/') {
        r.refuse(path, "must be an absolute path");
    } else if clean(&text) != text {
        r.refuse(path, format!("must be written in its shortest form, {}", clean(&text)));
    }
    if !text.is_ascii() {
        r.refuse(path, "must hold ASCII characters only");
    }
    PathBuf::from(text)
}

//! What a kubelet answered in one case, with everything taken out that differs from run to run.
//!
//! The same shape is recorded (`answers/<case>.json`, one or two recordings) and observed. Pure
//! data and its files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One kubelet's answer to one case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// The last status of each pod, by the pod's name.
    #[serde(rename = "final")]
    pub(crate) last: BTreeMap<String, Value>,
    /// The states that a watch saw of each pod, one line each, repetitions left out.
    pub(crate) sequence: BTreeMap<String, Vec<String>>,
    /// The kubelet's events about the case's pods.
    pub(crate) events: Vec<Event>,
    /// Pods that went, with the seconds from the request to delete them; null where nobody took the
    /// time.
    pub(crate) gone: BTreeMap<String, Option<f64>>,
    /// What is wrong with the times of a pod's last status, by the pod's name; nothing for a kubelet
    /// that tells the truth.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) times: BTreeMap<String, Vec<String>>,
    /// What the API server said no to.
    #[serde(default)]
    pub(crate) said: Vec<String>,
}

/// One kind of event about one container or pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    pub(crate) pod: String,
    /// The part of the pod that it is about, such as `spec.containers{c}`; empty for the whole.
    pub(crate) field: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) count: u64,
}

/// The recordings of a case; none yet gives an empty list.
pub(crate) fn read(directory: &Path, case: &str) -> Result<Vec<Answer>> {
    let path = directory.join(format!("{case}.json"));
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("answers in {}", path.display()))
}

/// Writes the recordings of a case; one that says the same as another is kept once.
pub(crate) fn write(directory: &Path, case: &str, mut answers: Vec<Answer>) -> Result<()> {
    answers.dedup();
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("{case}.json"));
    let text = format!("{}\n", serde_json::to_string_pretty(&answers)?);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

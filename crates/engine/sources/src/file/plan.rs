//! What a reading of the manifest path means: which pods there are now, and what to tell.
//!
//! Holds, per file, the last good pod and the fault reported last. Pure: bytes in, an update and
//! notices out.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use ferrolet_ports::{Gone, ManifestFile};
use ferrolet_types::{SourceUpdate, SourcedPod, hash::fnv1a_128, pod::PodSource};

use crate::{Notice, Origin, read};

/// The manifests of one path, as far as they are known.
#[derive(Debug)]
pub struct FileSet {
    node: String,
    files: BTreeMap<PathBuf, Known>,
    /// The fault of the path as a whole, while there is one.
    path_fault: Option<String>,
    has_sent: bool,
}

/// What is known of one file.
#[derive(Debug, Default)]
struct Known {
    /// Tells whether the content is the one that was judged last.
    content: Option<(usize, u128)>,
    /// The last good pod.
    pod: Option<SourcedPod>,
    /// The fault reported last, while it lasts.
    fault: Option<String>,
}

/// What came of one reading.
#[derive(Debug, Default, PartialEq)]
pub struct Scanned {
    /// The whole set, when it changed or was never sent.
    pub update: Option<SourceUpdate>,
    /// What has not been said before.
    pub notices: Vec<Notice>,
}

impl FileSet {
    /// Nothing known yet, on the node of that name.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), files: BTreeMap::new(), path_fault: None, has_sent: false }
    }

    /// Judges a reading of `path`.
    pub fn scan(&mut self, path: &str, reading: Result<Vec<ManifestFile>, String>) -> Scanned {
        let mut scanned = Scanned::default();
        let listed = match reading {
            Ok(listed) => listed,
            // Nothing is known about any file now, so nothing changes.
            Err(fault) => {
                if self.path_fault.as_ref() != Some(&fault) {
                    let message = format!("cannot read the manifest path: {fault}");
                    scanned.notices.push(Notice::new(PodSource::File, path, message));
                }
                self.path_fault = Some(fault);
                return scanned;
            }
        };
        self.path_fault = None;
        let mut old = std::mem::take(&mut self.files);
        let mut has_changed = !self.has_sent;
        for (path, content) in listed {
            let mut known = old.remove(&path).unwrap_or_default();
            let before = known.pod.clone();
            known.judge(&path, content, &self.node, &mut scanned.notices);
            has_changed |= known.pod != before;
            self.files.insert(path, known);
        }
        // What is left is gone from the disk.
        has_changed |= old.values().any(|gone| gone.pod.is_some());
        if has_changed {
            self.has_sent = true;
            scanned.update = Some(self.whole());
        }
        scanned
    }

    /// The set without files that were taken away, if one of them had a pod. A manifest that is put
    /// back as it was is that pod started anew: upstream sees the removal, and its tests want the
    /// restart.
    pub fn forget(&mut self, gone: &Gone) -> Option<SourceUpdate> {
        let mut has_changed = false;
        self.files.retain(|path, known| {
            let is_gone = path.file_name().is_some_and(|name| gone.contains(name));
            has_changed |= is_gone && known.pod.is_some();
            !is_gone
        });
        has_changed.then(|| self.whole())
    }

    fn whole(&self) -> SourceUpdate {
        SourceUpdate {
            source: PodSource::File,
            pods: self.files.values().filter_map(|known| known.pod.clone()).collect(),
            unreadable: BTreeSet::new(),
            is_provisional: false,
        }
    }
}

impl Known {
    fn judge(
        &mut self,
        path: &std::path::Path,
        content: Result<Vec<u8>, String>,
        node: &str,
        notices: &mut Vec<Notice>,
    ) {
        let name = path.to_string_lossy();
        let judgement = match content {
            Err(reason) => {
                self.content = None;
                Err(format!("cannot read the manifest: {reason}"))
            }
            Ok(bytes) => {
                let content = Some((bytes.len(), fnv1a_128(&bytes)));
                if self.content == content {
                    return;
                }
                self.content = content;
                read(&bytes, Origin::File(&name), node).map_err(|error| error.to_string())
            }
        };
        match judgement {
            Ok(reading) => {
                self.fault = None;
                self.pod = reading.pods.into_iter().next();
                for warning in reading.warnings {
                    notices.push(Notice::new(PodSource::File, &*name, warning));
                }
            }
            Err(fault) => {
                if self.fault.as_ref() != Some(&fault) {
                    let message = self.explain(&name, &fault);
                    notices.push(Notice::new(PodSource::File, &*name, message));
                }
                self.fault = Some(fault);
            }
        }
    }

    fn explain(&self, name: &str, fault: &str) -> String {
        let consequence = if self.pod.is_some() {
            "; its pod keeps running as last read"
        } else if is_editor_leftover(name) {
            "; it looks like an editor's copy, which does not belong into the manifest path"
        } else {
            ""
        };
        format!("{fault}{consequence}")
    }
}

/// Names that editors give to back-ups and swap files. Hidden ones are not even listed.
fn is_editor_leftover(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.ends_with('~')
        || file.starts_with('#')
        || [".swp", ".swo", ".swx", ".bak", ".orig", ".tmp"].iter().any(|end| file.ends_with(end))
}

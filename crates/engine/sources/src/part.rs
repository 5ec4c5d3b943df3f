//! The sources put together: every configured one, and the merge behind them.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use ferrolet_ports::{Clock, ManifestFiles, Part, StaticPodsSink};
use ferrolet_types::{PodChanges, SourceUpdate, pod::PodSource};
use tokio::sync::mpsc;

use crate::{
    IgnoredField, Merger,
    file::{self, FileSource},
    http::{self, ClientError, HttpClient, HttpSource},
    merge,
};

/// Upstream's capacity for changes on their way to the sync loop.
const CHANNEL: usize = 50;

/// Where pods come from. Not for logs: headers may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The node's name, a part of static pods' names.
    pub node_name: String,
    /// Manifests on the disk.
    pub file: Option<FileSettings>,
    /// Manifests behind a URL.
    pub http: Option<HttpSettings>,
    /// The API server has pods too; who talks to it sends them to [`Sources::updates`].
    pub has_api: bool,
    /// Fields of pods whose feature gate is closed.
    pub ignored: Vec<IgnoredField>,
}

/// `staticPodPath`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// A directory of manifests or one manifest.
    pub path: PathBuf,
    /// How often it is read though nothing hinted at a change.
    pub period: Duration,
}

/// `staticPodURL`.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The URL.
    pub url: String,
    /// Time between requests.
    pub period: Duration,
    /// Headers of requests.
    pub headers: BTreeMap<String, Vec<String>>,
    /// Whom to trust (PEM).
    pub roots: Vec<u8>,
}

/// What the sources need.
pub struct Doors {
    /// The operator's manifests.
    pub manifests: Arc<dyn ManifestFiles>,
    /// Who mirrors static pods; a node on its own has nobody.
    pub static_pods: Option<Arc<dyn StaticPodsSink>>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// What comes out of the sources.
pub struct Sources {
    /// Which there are.
    pub configured: Vec<PodSource>,
    /// Where sources beyond this crate send their sets.
    pub updates: mpsc::Sender<SourceUpdate>,
    /// What changed.
    pub changes: mpsc::Receiver<PodChanges>,
}

/// Puts the sources together.
pub fn build(settings: Settings, doors: Doors) -> Result<(Sources, Part), ClientError> {
    let mut part = Part::new("sources");
    let mut configured = Vec::new();
    let (updates, merging) = mpsc::channel(CHANNEL);
    let (change_sender, changes) = mpsc::channel(CHANNEL);
    let node = settings.node_name;
    if let Some(FileSettings { path, period }) = settings.file {
        tracing::info!(path = %path.display(), "Adding static pod path");
        let source = FileSource { path, node: node.clone(), period };
        part.add_loop(file::run(source, doors.manifests, updates.clone()));
        configured.push(PodSource::File);
    }
    if let Some(HttpSettings { url, period, headers, roots }) = settings.http {
        tracing::info!("Adding static pod URL");
        let headers = headers.iter().flat_map(|(name, values)| {
            values.iter().map(move |value| (name.as_str(), value.as_str()))
        });
        let client = HttpClient::new(&url, headers, &roots)?;
        let source = HttpSource { url, node, period };
        part.add_loop(http::run(source, Arc::new(client), updates.clone()));
        configured.push(PodSource::Http);
    }
    if configured.is_empty() {
        tracing::warn!(
            "Neither staticPodPath nor staticPodURL is set: this node has no static pods to run"
        );
    }
    if let Some(sink) = &doors.static_pods {
        sink.configure(&configured);
    }
    configured.extend(settings.has_api.then_some(PodSource::Api));
    let merger = Merger::new(configured.clone()).ignoring(settings.ignored);
    part.add_loop(merge::run(merger, merging, change_sender, doors.static_pods, doors.clock));
    // A node without any source still has to keep its channel open.
    let kept_open = updates.clone();
    part.add_loop(async move { kept_open.closed().await });
    Ok((Sources { configured, updates, changes }, part))
}

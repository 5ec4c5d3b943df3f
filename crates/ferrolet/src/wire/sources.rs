//! The sources of pods, wired to the host's files and watches.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use ferrolet_config::Loaded;
use ferrolet_host::{
    manifests::{ManifestsError, read_manifest_dir},
    off_thread,
    watch::{DirectoryWatch, Hint},
};
use ferrolet_ports::Fut;
use ferrolet_sources::{
    file::{self, ChangeHints, FileSource, Gone, ManifestFile, ManifestReader},
    http::{self, HttpClient, HttpSource},
};
use ferrolet_types::{SourceUpdate, pod::PodSource};
use tokio::{sync::mpsc, task::JoinSet};

/// Starts every configured source and answers which they are.
pub(super) fn start(
    loaded: &Loaded,
    node: &str,
    updates: mpsc::Sender<SourceUpdate>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Vec<PodSource>> {
    let config = &loaded.config.sources;
    let mut configured = Vec::new();
    if let Some(path) = &config.static_pod_path {
        tracing::info!(path = %path.display(), "Adding static pod path");
        let source = FileSource {
            path: path.clone(),
            node: node.to_owned(),
            period: config.file_check_frequency,
        };
        let hints = Box::new(Watch::new(path));
        tasks.spawn(file::run(source, Arc::new(Disk), hints, updates.clone()));
        configured.push(PodSource::File);
    }
    if let Some(url) = &config.static_pod_url {
        tracing::info!("Adding static pod URL");
        let headers = config.static_pod_url_header.iter();
        let headers = headers.flat_map(|(name, values)| {
            values.iter().map(move |value| (name.as_str(), value.as_str()))
        });
        let roots = ferrolet_host::machine::read_trust_bundle();
        let client = HttpClient::new(url, headers, &roots).context("use staticPodURL")?;
        let source = HttpSource {
            url: url.clone(),
            node: node.to_owned(),
            period: config.http_check_frequency,
        };
        tasks.spawn(http::run(source, Arc::new(client), updates.clone()));
        configured.push(PodSource::Http);
    }
    if configured.is_empty() {
        // A node without any source still has to keep its channel open.
        tasks.spawn(async move { updates.closed().await });
        tracing::warn!(
            "Neither staticPodPath nor staticPodURL is set: this node has no pods to run"
        );
    }
    Ok(configured)
}

/// Manifests on disk, read off the async threads.
struct Disk;

impl ManifestReader for Disk {
    fn read<'a>(&'a self, path: &'a Path) -> Fut<'a, Result<Vec<ManifestFile>, String>> {
        let path = path.to_owned();
        Box::pin(async move {
            let attempt = format!("read manifests at {}", path.display());
            let listing = off_thread(attempt, move || Ok(read_manifest_dir(&path)))
                .await
                .map_err(|error| error.to_string())?;
            match listing {
                Ok(files) => Ok(files
                    .into_iter()
                    .map(|(path, read)| (path, read.map_err(|problem| chain(&problem))))
                    .collect()),
                Err(ManifestsError::Missing { .. }) => Ok(Vec::new()),
                Err(error) => Err(chain(&error)),
            }
        })
    }
}

/// An error with everything behind it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A watch over a directory, or over one file through its parent.
struct Watch {
    watch: DirectoryWatch,
}

impl Watch {
    fn new(path: &PathBuf) -> Self {
        let watch = if path.is_file() {
            DirectoryWatch::file(path)
        } else {
            DirectoryWatch::directory(path)
        };
        Self { watch }
    }
}

impl ChangeHints for Watch {
    fn next(&mut self) -> Fut<'_, Option<Gone>> {
        Box::pin(async move {
            loop {
                match self.watch.next().await {
                    Hint::Names { gone, .. } => return Some(gone),
                    Hint::Everything => return Some(Gone::new()),
                    Hint::Unwatchable { directory, cause } => {
                        tracing::warn!(directory = %directory.display(), cause, "Static pods cannot be watched, reading by the clock");
                    }
                }
            }
        })
    }
}

//! The operator's manifests as values. They outlive the agent under test, as a disk would.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ferrolet_ports::{ChangeHints, Fut, Gone, ManifestFile, ManifestFiles};
use tokio::sync::watch;

/// A directory of manifests. Clones are handles to the same one.
#[derive(Clone)]
pub struct FakeManifests {
    state: Arc<Mutex<State>>,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<OsString, Vec<u8>>,
    /// Names that were taken away, in order.
    gone: Vec<OsString>,
}

impl Default for FakeManifests {
    fn default() -> Self {
        Self { state: Arc::default(), version: watch::channel(0).0 }
    }
}

impl FakeManifests {
    /// Puts a file there, or another one in its place.
    pub fn put(&self, name: &str, content: Vec<u8>) {
        self.state().files.insert(name.into(), content);
        self.version.send_modify(|version| *version += 1);
    }

    /// Takes a file away.
    pub fn remove(&self, name: &str) {
        let mut state = self.state();
        if state.files.remove(&OsString::from(name)).is_some() {
            state.gone.push(name.into());
        }
        drop(state);
        self.version.send_modify(|version| *version += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ManifestFiles for FakeManifests {
    fn read<'a>(&'a self, path: &'a Path) -> Fut<'a, Result<Vec<ManifestFile>, String>> {
        let state = self.state();
        let files = state.files.iter().map(|(name, text)| (path.join(name), Ok(text.clone())));
        let files: Vec<(PathBuf, Result<Vec<u8>, String>)> = files.collect();
        Box::pin(std::future::ready(Ok(files)))
    }

    fn watch(&self, _path: &Path) -> Box<dyn ChangeHints> {
        let n_seen = self.state().gone.len();
        Box::new(Hints { directory: self.clone(), changed: self.version.subscribe(), n_seen })
    }
}

struct Hints {
    directory: FakeManifests,
    changed: watch::Receiver<u64>,
    n_seen: usize,
}

impl ChangeHints for Hints {
    fn next(&mut self) -> Fut<'_, Option<Gone>> {
        Box::pin(async {
            self.changed.changed().await.ok()?;
            let state = self.directory.state();
            let gone = state.gone.get(self.n_seen..).unwrap_or_default().iter().cloned().collect();
            self.n_seen = state.gone.len();
            Some(gone)
        })
    }
}

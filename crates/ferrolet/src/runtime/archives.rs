//! Images that come from files of this machine instead of a registry.
//!
//! In: archives that are named, which must be good, and a directory of them, where a bad one is told and passed over.
//! Out: images in the store. Refuses: removing an image because its archive went.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use ferrolet_host::watch::DirectoryWatch;
use ferrolet_runtime_images::{Limits, Store, load, manifest::Platform};

/// Loads every image of these archives. Blocking.
pub(super) fn load_all(store: &Store, archives: &[PathBuf]) -> anyhow::Result<()> {
    archives.iter().try_for_each(|path| load_one(store, path))
}

fn load_one(store: &Store, path: &Path) -> anyhow::Result<()> {
    let archive = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let images = load(store, archive, &Platform::own(), &Limits::USUAL)
        .with_context(|| format!("load {}", path.display()))?;
    for image in images {
        tracing::info!(image = %image.id, tags = ?image.tags, "Loaded an image");
    }
    Ok(())
}

/// A directory of archives, and what of it was looked at.
#[derive(Debug)]
pub(super) struct Archives {
    directory: PathBuf,
    /// Size, time of the last change and number of each file that was loaded, or tried.
    known: BTreeMap<PathBuf, (u64, i64, u64)>,
}

impl Archives {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, known: BTreeMap::new() }
    }

    /// Loads what is new or has changed. Blocking.
    pub(super) fn load_new(&mut self, store: &Store) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let mut found: Vec<(PathBuf, (u64, i64, u64))> = entries
            .flatten()
            .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
            .filter(|(_, about)| about.is_file())
            .map(|(path, about)| (path, (about.size(), about.mtime_nsec(), about.ino())))
            .collect();
        found.sort();
        self.known.retain(|path, _| found.iter().any(|(known, _)| known == path));
        for (path, about) in found {
            if self.known.get(&path) == Some(&about) {
                continue;
            }
            if let Err(error) = load_one(store, &path) {
                tracing::warn!("An archive of images is passed over: {error:#}");
            }
            self.known.insert(path, about);
        }
    }

    /// Loads what appears, for as long as it is polled.
    pub(super) async fn follow(mut self, store: Store) {
        let mut watch = DirectoryWatch::directory(&self.directory);
        loop {
            let _hint = watch.next().await;
            let (store, mut this) = (store.clone(), self);
            let looked = move || {
                this.load_new(&store);
                this
            };
            match tokio::task::spawn_blocking(looked).await {
                Ok(this) => self = this,
                // The thread is only lost while the program ends.
                Err(_lost) => return,
            }
        }
    }
}

//! Images and layers on disk.
//!
//! ```text
//! <root>/version
//!        layers/<blob digest or chain>/{fs/, layer, kept}
//!        images/<config digest>/{manifest, config, refs}
//!        staging/<n>/   in the making; after a start nobody's
//!        trash/<n>      renamed here, removed when nothing is unpacked
//!
//! staging ─ rename ─► layers, usable ─ syncfs ─► "kept" ─ nobody's any more ─ rename ─► trash
//! ```
//!
//! Owned by the runtime's agent, which locks the root directory. In: staged directories and documents. Out: values that
//! describe images, and descriptors of layers. Every change is one rename, so a crash leaves what was before or what is
//! after. No database: what is on disk is read at start and checked ([`records`]).
//!
//! A layer lives while an image or a [`Hold`] names it. Blocking: calls are short, apart from [`Store::keep`] and
//! [`Store::empty_trash`], which belong on a thread of their own.

mod disk;
mod records;
mod staging;
mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use rustix::io::Errno;

use disk::{Inner, disk};
use records::Refs;
pub use records::{BootId, LayerKey, LayerRecord};
pub use staging::{Hold, Staging};
use state::Named;

use crate::{
    digest::Digest,
    directory::{Directory, Usage},
    limits::Limits,
    manifest::ImageConfig,
    unpack::Ownership,
};

/// Why the store cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk or the kernel refused.
    #[error("{step} {what}")]
    Disk {
        /// What was attempted.
        step: &'static str,
        /// On what.
        what: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Another process has it.
    #[error("the image store {0:?} is in use by another process")]
    InUse(PathBuf),
    /// A layout of another time.
    #[error("the image store has version {0:?}, which this program does not know")]
    Version(String),
    /// A layer that is not here.
    #[error("layer {0} is not in the store")]
    NoLayer(String),
}

/// An image that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its configuration's digest.
    pub id: Digest,
    /// Names with tags, spelt out.
    pub tags: BTreeSet<String>,
    /// Names with digests of manifests.
    pub digests: BTreeSet<String>,
    /// Room that it takes, layers that it shares with others included.
    pub usage: Usage,
    /// Its layers, the lowest first.
    pub layers: Vec<LayerKey>,
    /// How the root directory looks: as the highest layer that lists it says.
    pub root: Option<Ownership>,
    /// How containers start.
    pub config: Arc<ImageConfig>,
}

/// What an image is made of, all of it checked.
#[derive(Clone, Debug)]
pub struct ImageParts {
    /// The manifest's bytes.
    pub manifest: Vec<u8>,
    /// The configuration's bytes.
    pub config: Vec<u8>,
    /// The layers, the lowest first.
    pub layers: Vec<LayerKey>,
    /// Names with tags.
    pub tags: BTreeSet<String>,
    /// Names with digests.
    pub digests: BTreeSet<String>,
}

/// What is left in the trash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trash {
    /// Nothing.
    Empty,
    /// Something, for another call.
    More,
    /// Something, but a layer is being unpacked: making files beside deleting them is many times slower.
    Waits,
}

/// The store. Clones are the same store.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

impl Store {
    /// Opens the store, making it where it is missing, and throws away what is half made.
    pub fn open(path: &Path, boot: BootId, limits: &Limits) -> Result<Self, StoreError> {
        Ok(Self(Arc::new(Inner::open(path, boot, limits)?)))
    }

    /// Every image, by id.
    #[must_use]
    pub fn images(&self) -> Vec<Image> {
        let state = self.0.state();
        state.images.keys().filter_map(|id| state.image(id)).collect()
    }

    /// The image that a name, an id or the beginning of one means.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Image> {
        let state = self.0.state();
        let id = state.find(name)?;
        state.image(&id)
    }

    /// Room that all layers take, each counted once.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let state = self.0.state();
        let mut usage = Usage::default();
        state.layers.values().for_each(|layer| usage += layer.record.usage);
        state.images.values().for_each(|image| usage += Usage { bytes: image.bytes, inodes: 4 });
        usage
    }

    /// The store's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// A directory to unpack a layer into.
    pub fn stage(&self) -> Result<Staging, StoreError> {
        let inner = self.0.clone();
        let (name, place) = loop {
            let name = inner.next_name();
            match inner.staging.make(name.as_bytes(), 0o700) {
                Err(Errno::EXIST) => {}
                other => break (name, other.map_err(disk("make directory", "staging"))?),
            }
        };
        let files = place.make(b"fs", 0o755).map_err(disk("make directory", "staging"))?;
        Ok(Staging::new(inner, name, files))
    }

    /// Holds layers of the store against collection.
    pub fn hold(&self, keys: &[LayerKey]) -> Result<Hold, StoreError> {
        let mut state = self.0.state();
        if let Some(missing) = keys.iter().find(|key| !state.layers.contains_key(key)) {
            return Err(StoreError::NoLayer(missing.as_str().to_owned()));
        }
        for key in keys {
            if let Some(layer) = state.layers.get_mut(key) {
                layer.n_holds += 1;
            }
        }
        Ok(Hold::new(self.0.clone(), keys.to_vec()))
    }

    /// What is known of a layer that is here.
    #[must_use]
    pub fn layer(&self, key: &LayerKey) -> Option<LayerRecord> {
        self.0.state().layers.get(key).map(|it| it.record.clone())
    }

    /// A layer's files.
    pub fn open_layer(&self, key: &LayerKey) -> Result<Directory, StoreError> {
        let path = format!("{}/fs", key.as_str());
        self.0.layers.beneath(path.as_bytes()).map_err(disk("open layer", key.as_str()))
    }

    /// Adds an image, or names to one that is here. A tag that another image had moves.
    pub fn add_image(&self, parts: ImageParts, config: ImageConfig) -> Result<Image, StoreError> {
        let id = Digest::of(&parts.config);
        let mut state = self.0.state();
        if let Some(missing) = parts.layers.iter().find(|key| !state.layers.contains_key(key)) {
            return Err(StoreError::NoLayer(missing.as_str().to_owned()));
        }
        state.sequence += 1;
        let mut refs = Refs {
            sequence: state.sequence,
            tags: parts.tags.clone(),
            digests: parts.digests,
            manifest: Digest::of(&parts.manifest),
            layers: parts.layers,
        };
        if let Some(old) = state.images.get(&id) {
            refs.tags.extend(old.refs.tags.iter().cloned());
            refs.digests.extend(old.refs.digests.iter().cloned());
            // What it is made of stays: the configuration names the same layers.
            refs.layers.clone_from(&old.refs.layers);
            refs.manifest = old.refs.manifest.clone();
            self.0.write_refs(&id, &refs)?;
        } else {
            self.0.write_image(&id, &parts.manifest, &parts.config, &refs)?;
        }
        let bytes = (parts.manifest.len() + parts.config.len()) as u64;
        let bytes = state.images.get(&id).map_or(bytes, |old| old.bytes);
        state.images.insert(id.clone(), Named { refs, config: Arc::new(config), bytes });
        self.0.take_tags_from_others(&mut state, &id, &parts.tags)?;
        state.image(&id).ok_or_else(|| StoreError::NoLayer(id.to_string()))
    }

    /// Removes an image with all its names; whether there was one. Its layers go with [`Self::collect`].
    pub fn remove_image(&self, id: &Digest) -> Result<bool, StoreError> {
        let mut state = self.0.state();
        if !state.images.contains_key(id) {
            return Ok(false);
        }
        self.0.discard(&self.0.images, id.file_name().as_bytes())?;
        state.images.remove(id);
        Ok(true)
    }

    /// Throws away layers that no image and no hold names; what that will give back.
    pub fn collect(&self) -> Result<Usage, StoreError> {
        let mut state = self.0.state();
        let mut given_back = Usage::default();
        for key in state.unused() {
            self.0.discard(&self.0.layers, key.as_str().as_bytes())?;
            if let Some(layer) = state.layers.remove(&key) {
                given_back += layer.record.usage;
            }
        }
        Ok(given_back)
    }

    /// Brings everything to disk and records that it is there. Until then a power cut takes the layer.
    pub fn keep(&self) -> Result<usize, StoreError> {
        let unkept: Vec<LayerKey> = {
            let state = self.0.state();
            state.layers.iter().filter(|(_, it)| !it.is_kept).map(|(key, _)| key.clone()).collect()
        };
        if unkept.is_empty() {
            return Ok(0);
        }
        rustix::fs::syncfs(&self.0.root).map_err(disk("bring to disk", "the image store"))?;
        for key in &unkept {
            let layer = match self.0.layers.beneath(key.as_str().as_bytes()) {
                // It was thrown away meanwhile.
                Err(Errno::NOENT) => continue,
                other => other.map_err(disk("open layer", key.as_str()))?,
            };
            match layer.create(b"kept", 0o600) {
                Ok(_) | Err(Errno::EXIST) => {}
                Err(error) => return Err(disk("mark as kept", key.as_str())(error)),
            }
            if let Some(layer) = self.0.state().layers.get_mut(key) {
                layer.is_kept = true;
            }
        }
        Ok(unkept.len())
    }

    /// Removes one thing from the trash.
    pub fn empty_trash(&self) -> Result<Trash, StoreError> {
        let names = self.0.trash.names().map_err(disk("list", "trash"))?;
        let Some(name) = names.first() else { return Ok(Trash::Empty) };
        if self.0.n_staging.load(Ordering::Relaxed) > 0 {
            return Ok(Trash::Waits);
        }
        self.0.trash.remove(name.as_bytes()).map_err(disk("remove from", "trash"))?;
        Ok(if names.len() == 1 { Trash::Empty } else { Trash::More })
    }
}

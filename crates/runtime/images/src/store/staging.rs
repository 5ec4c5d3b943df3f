//! Layers in the making, and layers that somebody needs.

use std::sync::{Arc, atomic::Ordering};

use rustix::io::Errno;

use super::{
    StoreError,
    disk::{Inner, disk, write_file},
    records::{LayerKey, LayerRecord},
    state::Layer,
};
use crate::{directory::Directory, unpack::Unpacked};

/// A layer in the making. Dropped without a commit it goes to the trash.
#[derive(Debug)]
pub struct Staging {
    inner: Arc<Inner>,
    name: String,
    files: Directory,
}

/// Layers that stay while this lives.
#[derive(Debug)]
pub struct Hold {
    inner: Arc<Inner>,
    keys: Vec<LayerKey>,
}

impl Staging {
    pub(super) fn new(inner: Arc<Inner>, name: String, files: Directory) -> Self {
        inner.n_staging.fetch_add(1, Ordering::Relaxed);
        Self { inner, name, files }
    }

    /// Where the layer's files go.
    #[must_use]
    pub fn files(&self) -> &Directory {
        &self.files
    }

    /// Makes it a layer of the store. Whoever made the same one first has made it.
    pub fn commit(self, key: &LayerKey, unpacked: &Unpacked) -> Result<Hold, StoreError> {
        let record = LayerRecord {
            diff_id: unpacked.diff_id.clone(),
            usage: unpacked.usage,
            root: unpacked.root,
            boot: self.inner.boot.clone(),
        };
        let text = serde_json::to_vec(&record).expect("a record is plain data");
        let place =
            self.inner.staging.beneath(self.name.as_bytes()).map_err(disk("open", "staging"))?;
        write_file(&place, b"layer", &text)
            .map_err(disk("write the record of layer", key.as_str()))?;
        let mut state = self.inner.state();
        let moved = self.inner.staging.move_to(
            self.name.as_bytes(),
            &self.inner.layers,
            key.as_str().as_bytes(),
        );
        match moved {
            Ok(()) => {
                state.layers.insert(key.clone(), Layer { record, is_kept: false, n_holds: 0 });
            }
            Err(Errno::EXIST) if state.layers.contains_key(key) => {}
            Err(error) => return Err(disk("put into place layer", key.as_str())(error)),
        }
        if let Some(layer) = state.layers.get_mut(key) {
            layer.n_holds += 1;
        }
        Ok(Hold::new(self.inner.clone(), vec![key.clone()]))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After a commit there is nothing left; what cannot be moved now is found at the next start.
        let _ = self.inner.discard(&self.inner.staging, self.name.as_bytes());
        self.inner.n_staging.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hold {
    /// Takes over holds that were counted already.
    pub(super) fn new(inner: Arc<Inner>, keys: Vec<LayerKey>) -> Self {
        Self { inner, keys }
    }

    /// The layers held.
    #[must_use]
    pub fn keys(&self) -> &[LayerKey] {
        &self.keys
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        for key in &self.keys {
            if let Some(layer) = state.layers.get_mut(key) {
                layer.n_holds -= 1;
            }
        }
    }
}

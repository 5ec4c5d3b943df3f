//! What the store knows: layers with their holds, images with their names. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Image,
    records::{LayerKey, LayerRecord, Refs},
};
use crate::{
    digest::Digest,
    directory::Usage,
    manifest::ImageConfig,
    reference::{Reference, Wanted},
};

/// Digits of an id that are enough to mean it.
const LEAST_DIGITS: usize = 6;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) layers: BTreeMap<LayerKey, Layer>,
    pub(super) images: BTreeMap<Digest, Named>,
    pub(super) sequence: u64,
}

#[derive(Debug)]
pub(super) struct Layer {
    pub(super) record: LayerRecord,
    pub(super) is_kept: bool,
    pub(super) n_holds: usize,
}

#[derive(Debug)]
pub(super) struct Named {
    pub(super) refs: Refs,
    pub(super) config: Arc<ImageConfig>,
    /// Of its documents.
    pub(super) bytes: u64,
}

impl State {
    pub(super) fn image(&self, id: &Digest) -> Option<Image> {
        let Named { refs, config, bytes } = self.images.get(id)?;
        let mut usage = Usage { bytes: *bytes, inodes: 4 };
        let mut root = None;
        for layer in refs.layers.iter().filter_map(|key| self.layers.get(key)) {
            usage += layer.record.usage;
            root = layer.record.root.or(root);
        }
        Some(Image {
            id: id.clone(),
            tags: refs.tags.clone(),
            digests: refs.digests.clone(),
            usage,
            layers: refs.layers.clone(),
            root,
            config: config.clone(),
        })
    }

    /// An id, then a name, then the beginning of an id that is nobody else's.
    pub(super) fn find(&self, name: &str) -> Option<Digest> {
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        if let Some(id) = self.images.keys().find(|id| id.hex() == hex) {
            return Some(id.clone());
        }
        if let Ok(reference) = Reference::parse(name) {
            let full = reference.to_string();
            let has = |refs: &Refs| match reference.wanted() {
                Wanted::Tag(_) => refs.tags.contains(&full),
                Wanted::Digest(_) => refs.digests.contains(&full),
            };
            if let Some((id, _)) = self.images.iter().find(|(_, image)| has(&image.refs)) {
                return Some(id.clone());
            }
        }
        let mut begins =
            self.images.keys().filter(|id| hex.len() >= LEAST_DIGITS && id.hex().starts_with(hex));
        begins.next().filter(|_| begins.next().is_none()).cloned()
    }

    /// Layers that nobody names.
    pub(super) fn unused(&self) -> Vec<LayerKey> {
        let named: BTreeSet<&LayerKey> =
            self.images.values().flat_map(|it| &it.refs.layers).collect();
        let is_unused =
            |(key, layer): &(&LayerKey, &Layer)| layer.n_holds == 0 && !named.contains(key);
        self.layers.iter().filter(is_unused).map(|(key, _)| key.clone()).collect()
    }
}

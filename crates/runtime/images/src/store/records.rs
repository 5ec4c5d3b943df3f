//! What the store writes beside its files, and which of it counts after a start. Pure.
//!
//! A record that cannot be read means that what it describes is half made. What an earlier boot left without the mark
//! "kept" may be names of empty files: it is thrown away, never repaired.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    digest::{Digest, Hasher},
    directory::Usage,
    unpack::Ownership,
};

/// Which boot of the machine this is: what the kernel gives as `boot_id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootId(pub String);

/// A layer's name in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LayerKey(String);

impl LayerKey {
    /// A layer that is the same above every other: its blob's digest.
    #[must_use]
    pub fn of_blob(digest: &Digest) -> Self {
        Self(digest.file_name())
    }

    /// A layer that fits only these below it: the digests of the whole chain, the lowest first.
    #[must_use]
    pub fn of_chain(digests: &[Digest]) -> Self {
        let mut hasher = Hasher::sha256();
        for digest in digests {
            hasher.update(digest.to_string().as_bytes());
            hasher.update(b"\n");
        }
        Self(format!("chain-{}", hasher.finish().hex()))
    }

    /// Its directory's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a directory's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let as_digest =
            name.strip_prefix("chain-").map_or(name.to_owned(), |hex| format!("sha256-{hex}"));
        Digest::from_file_name(&as_digest).is_ok().then(|| Self(name.to_owned()))
    }
}

/// What is known of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// The digest of its archive.
    pub diff_id: Digest,
    /// Room that it takes.
    pub usage: Usage,
    /// What it says of the root directory.
    pub root: Option<Ownership>,
    /// The boot that wrote it.
    pub boot: BootId,
}

/// What names an image, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refs {
    /// Rises with each change of any image's names, so that of two images with one tag the later has it.
    pub(super) sequence: u64,
    pub(super) tags: BTreeSet<String>,
    pub(super) digests: BTreeSet<String>,
    pub(super) manifest: Digest,
    pub(super) layers: Vec<LayerKey>,
}

/// A layer as found on disk.
#[derive(Clone, Debug)]
pub(super) struct FoundLayer {
    /// `None`: unreadable.
    pub(super) record: Option<LayerRecord>,
    pub(super) is_kept: bool,
}

/// What a start keeps.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sifted {
    pub(super) layers: BTreeMap<LayerKey, LayerRecord>,
    pub(super) images: BTreeMap<Digest, Refs>,
}

/// Decides what of a store counts. Images that are not in the answer are half made, and so are layers.
pub(super) fn sift(
    layers: BTreeMap<LayerKey, FoundLayer>,
    images: BTreeMap<Digest, Refs>,
    boot: &BootId,
) -> Sifted {
    let is_whole = |it: &FoundLayer, record: &LayerRecord| it.is_kept || record.boot == *boot;
    let layers: BTreeMap<LayerKey, LayerRecord> = layers
        .into_iter()
        .filter_map(|(key, found)| {
            let record = found.record.clone()?;
            is_whole(&found, &record).then_some((key, record))
        })
        .collect();
    let mut images: BTreeMap<Digest, Refs> = images
        .into_iter()
        .filter(|(_, refs)| refs.layers.iter().all(|key| layers.contains_key(key)))
        .collect();
    let mut owners: BTreeMap<String, (u64, Digest)> = BTreeMap::new();
    for (id, refs) in &images {
        for tag in &refs.tags {
            let mine = (refs.sequence, id.clone());
            owners
                .entry(tag.clone())
                .and_modify(|it| *it = it.clone().max(mine.clone()))
                .or_insert(mine);
        }
    }
    for (id, refs) in &mut images {
        refs.tags.retain(|tag| owners.get(tag).is_some_and(|(_, owner)| owner == id));
    }
    Sifted { layers, images }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(name: &str) -> BootId {
        BootId(name.to_owned())
    }

    fn key(name: &str) -> LayerKey {
        LayerKey::of_blob(&Digest::of(name.as_bytes()))
    }

    fn layer(boot_id: &str, is_kept: bool) -> FoundLayer {
        let record = LayerRecord {
            diff_id: Digest::of(b""),
            usage: Usage::default(),
            root: None,
            boot: boot(boot_id),
        };
        FoundLayer { record: Some(record), is_kept }
    }

    fn refs(sequence: u64, tag: &str, layers: &[&str]) -> Refs {
        Refs {
            sequence,
            tags: BTreeSet::from([tag.to_owned()]),
            digests: BTreeSet::new(),
            manifest: Digest::of(b""),
            layers: layers.iter().map(|it| key(it)).collect(),
        }
    }

    #[test]
    fn what_another_boot_left_unkept_does_not_count() {
        let layers = BTreeMap::from([
            (key("kept"), layer("before", true)),
            (key("unkept"), layer("before", false)),
            (key("new"), layer("now", false)),
            (key("unreadable"), FoundLayer { record: None, is_kept: true }),
        ]);
        let images = BTreeMap::from([
            (Digest::of(b"whole"), refs(1, "whole", &["kept", "new"])),
            (Digest::of(b"half"), refs(2, "half", &["kept", "unkept"])),
            (Digest::of(b"missing"), refs(3, "missing", &["absent"])),
        ]);
        let sifted = sift(layers, images, &boot("now"));
        assert_eq!(
            sifted.layers.keys().cloned().collect::<BTreeSet<_>>(),
            BTreeSet::from([key("kept"), key("new")])
        );
        assert_eq!(sifted.images.keys().collect::<Vec<_>>(), [&Digest::of(b"whole")]);
    }

    #[test]
    fn of_two_images_with_one_tag_the_later_has_it() {
        let (old, new) = (Digest::of(b"old"), Digest::of(b"new"));
        let images = BTreeMap::from([
            (old.clone(), refs(1, "app", &[])),
            (new.clone(), refs(2, "app", &[])),
        ]);
        let sifted = sift(BTreeMap::new(), images, &boot("now"));
        assert!(sifted.images[&old].tags.is_empty());
        assert_eq!(sifted.images[&new].tags.len(), 1);
    }

    #[test]
    fn only_names_of_the_stores_own_making_are_layers() {
        let chain = LayerKey::of_chain(&[Digest::of(b"a"), Digest::of(b"b")]);
        assert_eq!(LayerKey::from_name(chain.as_str()), Some(chain));
        assert_eq!(LayerKey::from_name(key("a").as_str()), Some(key("a")));
        for name in ["", "..", "lost+found", "chain-", "sha256-zz"] {
            assert_eq!(LayerKey::from_name(name), None);
        }
    }
}

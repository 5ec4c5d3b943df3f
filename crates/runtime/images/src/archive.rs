//! Images from archives: OCI layouts and what `docker save` writes.
//!
//! In: a file. Out: the images in it, now in the store, with the names that the archive gives them. The archive is read
//! once for its table of contents and once for what is needed of it; nothing of it is written anywhere but into layers.
//!
//! An archive's names are looked up in that table and nowhere else, so they can be anything. Digests are checked for
//! blobs that have one; files of a Docker archive have none but the configuration's, which names the diff ids.

mod docker;
mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
};

use rustix::fs::{Mode, OFlags};

use crate::{
    digest::Digest,
    layers::{Checked, LayerError, Wish, find, unpack_blob},
    limits::{Limits, OverLimit},
    manifest::{self, Descriptor, Document, ImageConfig, Manifest, ManifestError, Platform},
    reference::Reference,
    store::{Hold, Image, ImageParts, LayerKey, Store, StoreError},
    tar::TarError,
    unpack::inflate,
};
use table::Table;

/// Indexes within indexes.
const MOST_NESTED: usize = 4;
/// What containerd calls an image in an archive, with its full name.
const FULL_NAME: &str = "io.containerd.image.name";
/// OCI's name: a tag, or a whole name.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Why an archive was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is not an archive.
    #[error("read the archive's table of contents")]
    Table(#[source] TarError),
    /// It cannot be read.
    #[error("read the archive")]
    Read(#[source] io::Error),
    /// It is no image's.
    #[error("the archive has neither index.json nor manifest.json")]
    NoImages,
    /// Something that it names is not in it.
    #[error("{0:?} is not in the archive")]
    Missing(String),
    /// A blob is not what its name says.
    #[error("{name} has {found}, not {expected}")]
    Content {
        /// The blob.
        name: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A document that makes no sense.
    #[error("{name}")]
    Manifest {
        /// The document.
        name: String,
        /// Why not.
        #[source]
        source: ManifestError,
    },
    /// A layer failed.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too much of something.
    #[error(transparent)]
    Limit(#[from] OverLimit),
}

/// Loads every image for this machine from an archive, compressed or not.
pub fn load(
    store: &Store,
    archive: File,
    own: &Platform,
    limits: &Limits,
) -> Result<Vec<Image>, LoadError> {
    let archive = plain(store, archive, limits)?;
    let table = Table::read(&archive, limits).map_err(LoadError::Table)?;
    let loader = Loader { store, archive: &archive, table: &table, own, limits };
    if table.has("index.json") {
        loader.load_layout()
    } else if table.has("manifest.json") {
        loader.load_docker()
    } else {
        Err(LoadError::NoImages)
    }
}

struct Loader<'l> {
    store: &'l Store,
    archive: &'l File,
    table: &'l Table,
    own: &'l Platform,
    limits: &'l Limits,
}

impl Loader<'_> {
    fn load_layout(&self) -> Result<Vec<Image>, LoadError> {
        let index = self.document("index.json", self.limits.manifest_bytes)?;
        let Document::Index(listed) = self.parse("index.json", &index, "")? else {
            return Err(LoadError::NoImages);
        };
        let mut images = Vec::new();
        for descriptor in listed {
            let name =
                [FULL_NAME, REF_NAME].iter().find_map(|key| descriptor.annotations.get(*key));
            // A tag alone names nothing that could be asked for.
            let name = name.and_then(|name| {
                Reference::parse(name).ok().filter(|_| name.contains(['/', ':', '@']))
            });
            images.push(self.load_listed(&descriptor, name.as_ref())?);
        }
        Ok(images)
    }

    fn load_listed(
        &self,
        listed: &Descriptor,
        name: Option<&Reference>,
    ) -> Result<Image, LoadError> {
        let mut descriptor = listed.clone();
        for _ in 0..MOST_NESTED {
            let bytes = self.blob(&descriptor, self.limits.manifest_bytes)?;
            let label = descriptor.digest.to_string();
            match self.parse(&label, &bytes, &descriptor.media_type)? {
                Document::Manifest(manifest) => {
                    return self.load_manifest(&manifest, bytes, &listed.digest, name);
                }
                Document::Index(index) => {
                    let chosen = manifest::choose(&index, self.own);
                    descriptor = chosen
                        .map_err(|source| LoadError::Manifest { name: label, source })?
                        .clone();
                }
            }
        }
        Err(OverLimit { what: "indexes within one another", limit: MOST_NESTED as u64 }.into())
    }

    fn load_manifest(
        &self,
        manifest: &Manifest,
        bytes: Vec<u8>,
        listed: &Digest,
        name: Option<&Reference>,
    ) -> Result<Image, LoadError> {
        let config_bytes = self.blob(&manifest.config, self.limits.config_bytes)?;
        let config =
            self.config(&manifest.config.digest.to_string(), &config_bytes, manifest.layers.len())?;
        let mut holds = Vec::new();
        let mut chain = Vec::new();
        for (layer, diff_id) in manifest.layers.iter().zip(config.diff_ids()) {
            chain.push(layer.digest.clone());
            let wish = Wish { chain: chain.clone(), diff_id: diff_id.clone() };
            let below = keys(&holds);
            holds.push(match find(self.store, &wish)? {
                Some(hold) => hold,
                None => self.unpack_layer(layer, &wish, &below)?,
            });
        }
        let parts = ImageParts {
            manifest: bytes,
            config: config_bytes,
            layers: keys(&holds),
            tags: name
                .filter(|it| matches!(it.wanted(), crate::Wanted::Tag(_)))
                .map(ToString::to_string)
                .into_iter()
                .collect(),
            digests: name.map(|it| it.with_digest(listed)).into_iter().collect(),
        };
        Ok(self.store.add_image(parts, config)?)
    }

    fn unpack_layer(
        &self,
        layer: &Descriptor,
        wish: &Wish,
        below: &[LayerKey],
    ) -> Result<Hold, LoadError> {
        let (name, at) = self.table.blob(&layer.digest).ok_or_else(|| missing(&layer.digest))?;
        let mut blob =
            Checked::new(at.reader(self.archive).map_err(LoadError::Read)?, layer.digest.hasher());
        let open = unpack_blob(self.store, &layer.digest, &mut blob, self.limits)?;
        let (digest, size) = blob.finish();
        check(&name, &layer.digest, &digest)?;
        check_size(&name, layer.size, size)?;
        Ok(open.commit(wish)?.settle(self.store, wish, below)?)
    }

    /// A blob that is small enough to be read whole, as its digest says.
    fn blob(&self, descriptor: &Descriptor, most: u64) -> Result<Vec<u8>, LoadError> {
        let (name, _) =
            self.table.blob(&descriptor.digest).ok_or_else(|| missing(&descriptor.digest))?;
        let bytes = self.document(&name, most)?;
        let mut hasher = descriptor.digest.hasher();
        hasher.update(&bytes);
        check(&name, &descriptor.digest, &hasher.finish())?;
        Ok(bytes)
    }

    fn document(&self, name: &str, most: u64) -> Result<Vec<u8>, LoadError> {
        let at = self.table.find(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
        crate::limits::within("bytes in a document of an archive", at.size, most)?;
        let mut bytes = Vec::new();
        at.reader(self.archive)
            .and_then(|mut it| it.read_to_end(&mut bytes))
            .map_err(LoadError::Read)?;
        Ok(bytes)
    }

    fn parse(&self, name: &str, bytes: &[u8], media_type: &str) -> Result<Document, LoadError> {
        manifest::parse(bytes, media_type, self.limits)
            .map_err(|source| LoadError::Manifest { name: name.to_owned(), source })
    }

    fn config(&self, name: &str, bytes: &[u8], n_layers: usize) -> Result<ImageConfig, LoadError> {
        manifest::parse_config(bytes, n_layers, self.limits)
            .map_err(|source| LoadError::Manifest { name: name.to_owned(), source })
    }
}

/// The archive without compression. A compressed one is written out once: its parts are needed in any order.
fn plain(store: &Store, mut archive: File, limits: &Limits) -> Result<File, LoadError> {
    let mut first = [0; 4];
    let n = archive.read(&mut first).map_err(LoadError::Read)?;
    archive.rewind().map_err(LoadError::Read)?;
    let is_compressed = n == 4 && matches!(first, [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd]);
    if !is_compressed {
        return Ok(archive);
    }
    let copy = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mut file =
            File::from(rustix::fs::open(store.path(), flags, Mode::from_raw_mode(0o600))?);
        let mut source = inflate(&archive, limits)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let n = source.read(&mut buffer)?;
            if n == 0 {
                return Ok(file);
            }
            let disk = rustix::fs::fstatvfs(&file)?;
            if disk.f_bavail.saturating_mul(disk.f_frsize) < limits.reserved_bytes {
                return Err(io::Error::new(
                    io::ErrorKind::StorageFull,
                    "the disk is too full to inflate the archive",
                ));
            }
            file.write_all(&buffer[..n])?;
        }
    };
    copy().map_err(LoadError::Read)
}

fn keys(holds: &[Hold]) -> Vec<LayerKey> {
    holds.iter().flat_map(Hold::keys).cloned().collect()
}

fn missing(digest: &Digest) -> LoadError {
    LoadError::Missing(digest.to_string())
}

fn check(name: &str, expected: &Digest, found: &Digest) -> Result<(), LoadError> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(LoadError::Content { name: name.to_owned(), expected, found })
}

fn check_size(name: &str, expected: u64, found: u64) -> Result<(), LoadError> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (format!("{expected} bytes"), format!("{found} bytes"));
    Err(LoadError::Content { name: name.to_owned(), expected, found })
}

/// The names of a set of texts that are names.
fn tags<'t>(texts: impl IntoIterator<Item = &'t String>) -> BTreeSet<String> {
    texts.into_iter().filter_map(|it| Reference::parse(it).ok()).map(|it| it.to_string()).collect()
}

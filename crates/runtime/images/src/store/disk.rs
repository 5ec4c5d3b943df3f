//! The store's directories: what is read at start, and each change as one rename.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read as _, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use rustix::io::Errno;

use super::{
    StoreError,
    records::{BootId, FoundLayer, LayerKey, Refs, Sifted, sift},
    state::{Layer, Named, State},
};
use crate::{
    digest::Digest,
    directory::Directory,
    limits::Limits,
    manifest::{self, Document, ImageConfig},
};

/// What the layout is called.
const VERSION: &[u8] = b"1\n";
/// Records are small; what is larger is none.
const RECORD_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) path: PathBuf,
    pub(super) root: Directory,
    pub(super) layers: Directory,
    pub(super) images: Directory,
    pub(super) staging: Directory,
    pub(super) trash: Directory,
    pub(super) boot: BootId,
    n_named: AtomicU64,
    pub(super) n_staging: AtomicUsize,
    state: Mutex<State>,
}

/// An image's documents as found.
struct FoundImage {
    refs: Refs,
    config: ImageConfig,
    bytes: u64,
}

impl Drop for Inner {
    /// A program that is being started at this moment has the descriptor until it executes, and the lock with it.
    fn drop(&mut self) {
        // Whoever cannot let go of it has closed it anyway.
        let _closed_too = rustix::fs::flock(&self.root, rustix::fs::FlockOperation::Unlock);
    }
}

impl Inner {
    pub(super) fn open(path: &Path, boot: BootId, limits: &Limits) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        std::fs::create_dir_all(path).map_err(disk("make directory", &name))?;
        let root = Directory::open(path).map_err(disk("open", &name))?;
        // Set-id programs of images are in here: nobody but root comes in (CVE-2021-41103).
        rustix::fs::fchmod(&root, rustix::fs::Mode::from_raw_mode(0o700))
            .map_err(disk("close to others", &name))?;
        match rustix::fs::flock(&root, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(StoreError::InUse(path.to_owned())),
            other => other.map_err(disk("lock", &name))?,
        }
        check_version(&root)?;
        let part =
            |part: &str| root.ensure(part.as_bytes(), 0o700).map_err(disk("make directory", part));
        let inner = Self {
            path: path.to_owned(),
            layers: part("layers")?,
            images: part("images")?,
            staging: part("staging")?,
            trash: part("trash")?,
            root,
            boot,
            n_named: AtomicU64::new(0),
            n_staging: AtomicUsize::new(0),
            state: Mutex::default(),
        };
        inner.read_all(limits)?;
        Ok(inner)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_name(&self) -> String {
        self.n_named.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// Moves something to the trash; nothing there is fine.
    pub(super) fn discard(&self, from: &Directory, name: &[u8]) -> Result<(), StoreError> {
        loop {
            match from.move_to(name, &self.trash, self.next_name().as_bytes()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(error) => {
                    return Err(disk("throw away", &String::from_utf8_lossy(name))(error));
                }
            }
        }
    }

    /// Writes a new image aside and moves it into place.
    pub(super) fn write_image(
        &self,
        id: &Digest,
        manifest: &[u8],
        config: &[u8],
        refs: &Refs,
    ) -> Result<(), StoreError> {
        let failed = |error: io::Error| disk("write image", &id.to_string())(error);
        let write = |name: &str| {
            let place = self.staging.make(name.as_bytes(), 0o700)?;
            write_file(&place, b"manifest", manifest)?;
            write_file(&place, b"config", config)?;
            write_file(&place, b"refs", &serde_json::to_vec(refs)?)?;
            Ok(self.staging.move_to(name.as_bytes(), &self.images, id.file_name().as_bytes())?)
        };
        let name = self.next_name();
        let written = write(&name).map_err(failed);
        if written.is_err() {
            self.discard(&self.staging, name.as_bytes())?;
        }
        written
    }

    pub(super) fn write_refs(&self, id: &Digest, refs: &Refs) -> Result<(), StoreError> {
        let write = || {
            let place = self.images.beneath(id.file_name().as_bytes())?;
            write_file(&place, b"refs.new", &serde_json::to_vec(refs)?)?;
            Ok(place.replace(b"refs.new", b"refs")?)
        };
        write().map_err(|error: io::Error| disk("name image", &id.to_string())(error))
    }

    /// A tag means one image. The new owner is written first: a crash between leaves two, and the later one counts.
    pub(super) fn take_tags_from_others(
        &self,
        state: &mut State,
        owner: &Digest,
        tags: &BTreeSet<String>,
    ) -> Result<(), StoreError> {
        for (id, other) in state.images.iter_mut().filter(|(id, _)| *id != owner) {
            if !other.refs.tags.is_disjoint(tags) {
                other.refs.tags.retain(|tag| !tags.contains(tag));
                self.write_refs(id, &other.refs)?;
            }
        }
        Ok(())
    }

    fn read_all(&self, limits: &Limits) -> Result<(), StoreError> {
        for name in names(&self.staging, "staging")? {
            self.discard(&self.staging, &name)?;
        }
        let layers = self.read_layers()?;
        let kept: BTreeSet<LayerKey> =
            layers.iter().filter(|(_, it)| it.is_kept).map(|(key, _)| key.clone()).collect();
        let mut documents = self.read_images(limits)?;
        let refs = documents.iter().map(|(id, it)| (id.clone(), it.refs.clone())).collect();
        let Sifted { layers, images } = sift(layers, refs, &self.boot);

        let is_layer = |name: &[u8]| {
            std::str::from_utf8(name)
                .ok()
                .and_then(LayerKey::from_name)
                .is_some_and(|it| layers.contains_key(&it))
        };
        for name in names(&self.layers, "layers")?.into_iter().filter(|name| !is_layer(name)) {
            self.discard(&self.layers, &name)?;
        }
        let is_image = |name: &[u8]| image_id(name).is_some_and(|it| images.contains_key(&it));
        for name in names(&self.images, "images")?.into_iter().filter(|name| !is_image(name)) {
            self.discard(&self.images, &name)?;
        }

        let mut state = self.state();
        state.sequence = images.values().map(|it| it.sequence).max().unwrap_or(0);
        for (key, record) in layers {
            let is_kept = kept.contains(&key);
            state.layers.insert(key, Layer { record, is_kept, n_holds: 0 });
        }
        for (id, refs) in images {
            if let Some(FoundImage { config, bytes, .. }) = documents.remove(&id) {
                state.images.insert(id, Named { refs, config: Arc::new(config), bytes });
            }
        }
        Ok(())
    }

    fn read_layers(&self) -> Result<BTreeMap<LayerKey, FoundLayer>, StoreError> {
        let keys = names(&self.layers, "layers")?;
        let keys =
            keys.iter().filter_map(|name| LayerKey::from_name(std::str::from_utf8(name).ok()?));
        let read = |key: LayerKey| {
            let place = self.layers.beneath(key.as_str().as_bytes()).ok()?;
            let record = read_bounded(&place, b"layer", RECORD_BYTES)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok())
                .filter(|_| place.beneath(b"fs").is_ok());
            Some((key, FoundLayer { record, is_kept: place.stat(b"kept").is_ok() }))
        };
        Ok(keys.filter_map(read).collect())
    }

    fn read_images(&self, limits: &Limits) -> Result<BTreeMap<Digest, FoundImage>, StoreError> {
        let ids = names(&self.images, "images")?;
        let read = |id: Digest| {
            let place = self.images.beneath(id.file_name().as_bytes()).ok()?;
            Some((id.clone(), read_image(&place, &id, limits)?))
        };
        Ok(ids.iter().filter_map(|name| image_id(name)).filter_map(read).collect())
    }
}

/// An image whose documents are what their digests say.
fn read_image(place: &Directory, id: &Digest, limits: &Limits) -> Option<FoundImage> {
    let refs: Refs =
        serde_json::from_slice(&read_bounded(place, b"refs", RECORD_BYTES).ok()?).ok()?;
    let manifest = read_bounded(place, b"manifest", limits.manifest_bytes).ok()?;
    let config = read_bounded(place, b"config", limits.config_bytes).ok()?;
    if Digest::of(&manifest) != refs.manifest || Digest::of(&config) != *id {
        return None;
    }
    let Ok(Document::Manifest(document)) = manifest::parse(&manifest, "", limits) else {
        return None;
    };
    if document.layers.len() != refs.layers.len() {
        return None;
    }
    let bytes = (manifest.len() + config.len()) as u64;
    let config = manifest::parse_config(&config, document.layers.len(), limits).ok()?;
    Some(FoundImage { refs, config, bytes })
}

fn image_id(name: &[u8]) -> Option<Digest> {
    Digest::from_file_name(std::str::from_utf8(name).ok()?).ok()
}

fn names(place: &Directory, what: &str) -> Result<Vec<Vec<u8>>, StoreError> {
    let names = place.names().map_err(disk("list", what))?;
    Ok(names.into_iter().map(|name| name.as_bytes().to_vec()).collect())
}

fn check_version(root: &Directory) -> Result<(), StoreError> {
    match read_bounded(root, b"version", RECORD_BYTES) {
        Ok(text) if text == VERSION => Ok(()),
        Ok(text) => Err(StoreError::Version(String::from_utf8_lossy(&text).trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            write_file(root, b"version.new", VERSION)
                .and_then(|()| Ok(root.replace(b"version.new", b"version")?))
                .map_err(disk("write", "version"))
        }
        Err(error) => Err(disk("read", "version")(error)),
    }
}

/// Writes a whole file, on disk when the call returns. What a crash left under the name is replaced.
pub(super) fn write_file(place: &Directory, name: &[u8], content: &[u8]) -> io::Result<()> {
    match place.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = place.create(name, 0o600)?;
    file.write_all(content)?;
    file.sync_data()
}

fn read_bounded(place: &Directory, name: &[u8], most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    place.read(name)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too large"));
    }
    Ok(bytes)
}

pub(super) fn disk<E: Into<io::Error>>(
    step: &'static str,
    what: &str,
) -> impl FnOnce(E) -> StoreError {
    let what = what.to_owned();
    move |source| StoreError::Disk { step, what, source: source.into() }
}

//! A name to an image: manifest, configuration, then all layers at once, each unpacked while it arrives.
//!
//! ```text
//! socket ─► SHA-256 of the blob ─► pieces, bounded ─► a thread: inflate, diff id, tar ─► staging ─► store
//! ```
//!
//! In: a reference and credentials. Out: an image of the store, and [`PullProgress`] on the way. Nothing waits for a
//! whole layer, and blobs are not kept. Dropping the call ends the downloads; what was being unpacked goes to the trash,
//! layers that were finished stay for the next attempt until the store is collected.
//!
//! Two pulls of one layer share it: the second waits for the first and finds it in the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::spawn_blocking,
};

use crate::{
    digest::Digest,
    layers::{LayerError, Made, OpenLayer, Wish, find, unpack_blob},
    limits::{Limits, OverLimit},
    manifest::{self, Descriptor, Document, Manifest, ManifestError, Platform},
    reference::{Reference, Wanted},
    registry::{Credentials, Piece, Registry, RegistryError, Repository, Served},
    store::{Hold, Image, ImageParts, LayerKey, Store, StoreError},
};

/// Layers fetched at once, over all pulls.
const MOST_AT_ONCE: usize = 3;
/// Pieces between a socket and its unpacker; each is at most what one read of the socket gave.
const PIECES: usize = 16;
/// Indexes within indexes.
const MOST_NESTED: usize = 4;

/// Why an image was not pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A document makes no sense.
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
    /// The program is ending.
    #[error("the pull was ended")]
    Ended,
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullProgress {
    /// Layers of the image.
    pub n_layers: usize,
    /// Those that are in the store.
    pub n_done: usize,
    /// Bytes of all blobs that had to be fetched.
    pub bytes: u64,
    /// Those that have come.
    pub fetched: u64,
}

/// Pulls images into a store.
pub struct Puller {
    store: Store,
    registry: Registry,
    own: Platform,
    limits: Limits,
    slots: Semaphore,
    /// Who makes which layer.
    making: Mutex<BTreeMap<Digest, Weak<tokio::sync::Mutex<()>>>>,
}

impl Puller {
    /// A puller for this machine.
    #[must_use]
    pub fn new(store: Store, registry: Registry, limits: &Limits) -> Self {
        Self {
            store,
            registry,
            own: Platform::own(),
            limits: limits.clone(),
            slots: Semaphore::new(MOST_AT_ONCE),
            making: Mutex::default(),
        }
    }

    /// Pulls an image, or finds that all of it is here.
    pub async fn pull(
        &self,
        reference: &Reference,
        credentials: &Credentials,
        progress: &watch::Sender<PullProgress>,
    ) -> Result<Image, PullError> {
        let repository = self.registry.repository(reference, credentials)?;
        let first = repository.manifest(reference.wanted()).await?;
        let listed = first.digest.clone();
        let (manifest, served) = self.choose(&repository, first).await?;
        let most = self.limits.config_bytes.min(manifest.config.size);
        let config_bytes = repository.document(&manifest.config.digest, most).await?;
        let config =
            manifest::parse_config(&config_bytes, manifest.layers.len(), &self.limits).map_err(
                |source| PullError::Manifest { name: manifest.config.digest.to_string(), source },
            )?;

        progress.send_modify(|it| it.n_layers = manifest.layers.len());
        let wishes = wishes(&manifest, config.diff_ids());
        let mut layers = Vec::new();
        for (wish, blob) in wishes.iter().zip(&manifest.layers) {
            layers.push(self.layer(&repository, wish, blob, progress));
        }
        let made = futures::future::try_join_all(layers).await?;

        let tag = matches!(reference.wanted(), Wanted::Tag(_)).then(|| reference.to_string());
        let names = (tag.into_iter().collect(), BTreeSet::from([reference.with_digest(&listed)]));
        let (store, limits) = (self.store.clone(), self.limits.clone());
        let finish = move || {
            let holds = settle_all(&store, &wishes, made)?;
            let layers: Vec<LayerKey> = holds.iter().flat_map(Hold::keys).cloned().collect();
            check_size(&store, &layers, &limits)?;
            let (tags, digests) = names;
            let parts =
                ImageParts { manifest: served, config: config_bytes, layers, tags, digests };
            Ok(store.add_image(parts, config)?)
        };
        spawn_blocking(finish).await.map_err(|_| PullError::Ended)?
    }

    /// Follows indexes to the manifest for this machine.
    async fn choose(
        &self,
        repository: &Repository<'_>,
        first: Served,
    ) -> Result<(Manifest, Vec<u8>), PullError> {
        let mut served = first;
        for _ in 0..MOST_NESTED {
            let name = served.digest.to_string();
            let refuse = |source| PullError::Manifest { name: name.clone(), source };
            match manifest::parse(&served.bytes, &served.media_type, &self.limits)
                .map_err(refuse)?
            {
                Document::Manifest(manifest) => return Ok((manifest, served.bytes)),
                Document::Index(index) => {
                    let chosen = manifest::choose(&index, &self.own).map_err(refuse)?;
                    served = repository.manifest(&Wanted::Digest(chosen.digest.clone())).await?;
                }
            }
        }
        Err(OverLimit { what: "indexes within one another", limit: MOST_NESTED as u64 }.into())
    }

    async fn layer(
        &self,
        repository: &Repository<'_>,
        wish: &Wish,
        blob: &Descriptor,
        progress: &watch::Sender<PullProgress>,
    ) -> Result<Made, PullError> {
        let turn = self.turn(&blob.digest);
        let _turn = turn.lock().await;
        let made = match find(&self.store, wish)? {
            Some(hold) => Made::Whole(hold),
            None => {
                let _slot = self.slots.acquire().await.map_err(|_| PullError::Ended)?;
                progress.send_modify(|it| it.bytes += blob.size);
                let open = self.fetch(repository, blob, progress).await?;
                let wish = wish.clone();
                spawn_blocking(move || open.commit(&wish)).await.map_err(|_| PullError::Ended)??
            }
        };
        progress.send_modify(|it| it.n_done += 1);
        Ok(made)
    }

    /// Fetches and unpacks side by side. Of two failures the first cause counts: a broken stream breaks the unpacking,
    /// and an unpacker that gives up leaves nobody to send to.
    async fn fetch(
        &self,
        repository: &Repository<'_>,
        blob: &Descriptor,
        progress: &watch::Sender<PullProgress>,
    ) -> Result<OpenLayer, PullError> {
        let (pieces, arriving) = mpsc::channel(PIECES);
        let (store, limits, digest) =
            (self.store.clone(), self.limits.clone(), blob.digest.clone());
        let unpacking =
            spawn_blocking(move || unpack_blob(&store, &digest, Pieces::new(arriving), &limits));
        let told = |n| progress.send_modify(|it| it.fetched += n);
        let fetched = repository.blob(blob, &pieces, told).await;
        drop(pieces);
        let unpacked = unpacking.await.map_err(|_| PullError::Ended)?;
        match (fetched, unpacked) {
            (Ok(()) | Err(RegistryError::Gone), Err(error)) => Err(error.into()),
            (Err(error), _) => Err(error.into()),
            (Ok(()), Ok(open)) => Ok(open),
        }
    }

    fn turn(&self, digest: &Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        making.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = making.get(digest).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        making.insert(digest.clone(), Arc::downgrade(&turn));
        turn
    }
}

fn wishes(manifest: &Manifest, diff_ids: &[Digest]) -> Vec<Wish> {
    let digests: Vec<Digest> = manifest.layers.iter().map(|it| it.digest.clone()).collect();
    let wish = |(i, diff_id): (usize, &Digest)| Wish {
        chain: digests[..=i].to_vec(),
        diff_id: diff_id.clone(),
    };
    diff_ids.iter().enumerate().map(wish).collect()
}

/// Finishes layers from the lowest up.
fn settle_all(store: &Store, wishes: &[Wish], made: Vec<Made>) -> Result<Vec<Hold>, PullError> {
    let mut holds: Vec<Hold> = Vec::new();
    let mut below: Vec<LayerKey> = Vec::new();
    for (wish, made) in wishes.iter().zip(made) {
        let hold = made.settle(store, wish, &below)?;
        below.extend(hold.keys().iter().cloned());
        holds.push(hold);
    }
    Ok(holds)
}

fn check_size(store: &Store, layers: &[LayerKey], limits: &Limits) -> Result<(), OverLimit> {
    let Some(most) = limits.image_bytes else { return Ok(()) };
    let bytes = layers.iter().filter_map(|key| store.layer(key)).map(|it| it.usage.bytes).sum();
    crate::limits::within("bytes in an image", bytes, most)
}

/// Pieces from a channel as a reader on a thread.
struct Pieces {
    arriving: mpsc::Receiver<Piece>,
    current: Bytes,
    is_at_end: bool,
}

impl Pieces {
    fn new(arriving: mpsc::Receiver<Piece>) -> Self {
        Self { arriving, current: Bytes::new(), is_at_end: false }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.is_at_end {
            match self.arriving.blocking_recv() {
                Some(Piece::Data(data)) => self.current = data,
                Some(Piece::End) => self.is_at_end = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the download stopped",
                    ));
                }
            }
        }
        let n = self.current.len().min(buffer.len());
        buffer[..n].copy_from_slice(&self.current.split_to(n));
        Ok(n)
    }
}

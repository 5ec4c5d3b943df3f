//! From a blob to a layer of the store: found, or unpacked, checked, settled and put into place.
//!
//! Shared by archives and registries. What was checked before a layer gets its name: the blob's digest and size, by
//! whoever reads the blob; the diff id, here.

use std::io::{self, Read};

use crate::{
    digest::{Digest, Hasher},
    directory::Directory,
    limits::Limits,
    store::{Hold, LayerKey, Staging, Store, StoreError},
    unpack::{SettleError, UnpackError, Unpacked, settle, unpack},
};

/// Why there is no layer.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// Its archive cannot be unpacked.
    #[error("unpack layer {digest}")]
    Unpack {
        /// The blob.
        digest: Digest,
        /// Why not.
        #[source]
        source: UnpackError,
    },
    /// It does not fit those below.
    #[error("put layer {digest} above those below it")]
    Settle {
        /// The blob.
        digest: Digest,
        /// Why not.
        #[source]
        source: SettleError,
    },
    /// The archive is not the one that the configuration names.
    #[error("layer {digest} holds {found}, but the image's configuration says {expected}")]
    DiffId {
        /// The blob.
        digest: Digest,
        /// What it should hold.
        expected: Digest,
        /// What it holds.
        found: Digest,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A layer among others: the blobs' digests up to its own, the lowest first, and what it must hold.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) chain: Vec<Digest>,
    pub(crate) diff_id: Digest,
}

/// A layer that only those below can finish.
pub(crate) struct OpenLayer {
    staging: Staging,
    unpacked: Unpacked,
}

/// What came of unpacking.
pub(crate) enum Made {
    /// A layer of the store.
    Whole(Hold),
    /// One that waits for those below.
    Open(OpenLayer),
}

impl Wish {
    fn digest(&self) -> &Digest {
        self.chain.last().unwrap_or(&self.diff_id)
    }

    fn check(&self, found: &Digest) -> Result<(), LayerError> {
        if *found == self.diff_id {
            return Ok(());
        }
        let (expected, found) = (self.diff_id.clone(), found.clone());
        Err(LayerError::DiffId { digest: self.digest().clone(), expected, found })
    }
}

/// The layer, if the store has it.
pub(crate) fn find(store: &Store, wish: &Wish) -> Result<Option<Hold>, LayerError> {
    for key in [LayerKey::of_blob(wish.digest()), LayerKey::of_chain(&wish.chain)] {
        if let (Ok(hold), Some(record)) =
            (store.hold(std::slice::from_ref(&key)), store.layer(&key))
        {
            wish.check(&record.diff_id)?;
            return Ok(Some(hold));
        }
    }
    Ok(None)
}

/// Unpacks a blob into a staging directory. The blob itself is not checked yet.
pub(crate) fn unpack_blob(
    store: &Store,
    digest: &Digest,
    blob: impl Read,
    limits: &Limits,
) -> Result<OpenLayer, LayerError> {
    let staging = store.stage()?;
    let failed = |source| LayerError::Unpack { digest: digest.clone(), source };
    let unpacked = unpack(blob, staging.files(), limits).map_err(failed)?;
    Ok(OpenLayer { staging, unpacked })
}

impl OpenLayer {
    /// Puts it into place if it needs nothing from below. Its blob has been checked.
    pub(crate) fn commit(self, wish: &Wish) -> Result<Made, LayerError> {
        wish.check(&self.unpacked.diff_id)?;
        if !self.unpacked.open_ends.is_empty() {
            return Ok(Made::Open(self));
        }
        let key = LayerKey::of_blob(wish.digest());
        Ok(Made::Whole(self.staging.commit(&key, &self.unpacked)?))
    }
}

impl Made {
    /// Finishes the layer above those of `below`, the lowest first.
    pub(crate) fn settle(
        self,
        store: &Store,
        wish: &Wish,
        below: &[LayerKey],
    ) -> Result<Hold, LayerError> {
        let OpenLayer { staging, unpacked } = match self {
            Self::Whole(hold) => return Ok(hold),
            Self::Open(layer) => layer,
        };
        let open = |key: &LayerKey| store.open_layer(key);
        let directories: Vec<Directory> = below.iter().rev().map(open).collect::<Result<_, _>>()?;
        let failed = |source| LayerError::Settle { digest: wish.digest().clone(), source };
        settle(staging.files(), &unpacked.open_ends, &directories).map_err(failed)?;
        Ok(staging.commit(&LayerKey::of_chain(&wish.chain), &unpacked)?)
    }
}

/// A reader that knows what it has read.
pub(crate) struct Checked<R> {
    source: R,
    hasher: Hasher,
    n_read: u64,
}

impl<R: Read> Checked<R> {
    pub(crate) fn new(source: R, hasher: Hasher) -> Self {
        Self { source, hasher, n_read: 0 }
    }

    /// Digest and size of everything that was read.
    pub(crate) fn finish(self) -> (Digest, u64) {
        (self.hasher.finish(), self.n_read)
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        self.n_read += n as u64;
        Ok(n)
    }
}

//! A layer's blob to a directory in overlay's form.
//!
//! ```text
//! blob ─► inflate (gzip, zstd or neither) ─► SHA-256: the diff id ─► tar ─► files, links, whiteouts
//! ```
//!
//! In: a reader of the blob and an open, empty directory. Out: [`Unpacked`]: the diff id, the room taken, and what only
//! the layers below can settle ([`settle`]). One thread, no clock, no configuration, no name outside the directory: the
//! same function serves a thread of the agent and a confined process.
//!
//! Refuses names that lead upwards and entries beneath a link: no name is ever resolved through what an image brought.

mod name;
mod settle;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufReader, Read},
};

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    directory::{Directory, Usage},
    limits::{Limits, OverLimit, within},
    tar::{Reader, TarError},
};
pub use settle::{SettleError, settle};
use stream::Hashed;
pub(crate) use stream::inflate;
use write::Writer;

/// What came of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// The digest of the archive without its compression.
    pub diff_id: Digest,
    /// Room that it takes.
    pub usage: Usage,
    /// What the archive says of the root directory itself.
    pub root: Option<Ownership>,
    /// What depends on the layers below.
    pub open_ends: OpenEnds,
}

/// Who owns a directory and what they may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What ties a layer to those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenEnds {
    /// Directories that the layer puts something into without listing them, parents first.
    pub unlisted: BTreeSet<Vec<u8>>,
    /// Hard links to files that the layer does not have, with their targets.
    pub links: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl OpenEnds {
    /// Whether the layer is the same above every other.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unlisted.is_empty() && self.links.is_empty()
    }
}

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The blob or its archive is broken.
    #[error(transparent)]
    Archive(#[from] TarError),
    /// Too much of something.
    #[error(transparent)]
    Limit(#[from] OverLimit),
    /// A name that would lead out of the layer.
    #[error("{path:?} leads out of the layer")]
    Outside {
        /// The name.
        path: String,
    },
    /// An entry beneath something that is not a directory.
    #[error("{path:?} lies beneath {what}")]
    Beneath {
        /// The entry.
        path: String,
        /// What its parent is.
        what: &'static str,
    },
    /// A whiteout that names nothing.
    #[error("{path:?} is not a whiteout of anything")]
    Whiteout {
        /// The entry.
        path: String,
    },
    /// A hard link to its own name.
    #[error("{path:?} is a hard link to itself")]
    OwnLink {
        /// The entry.
        path: String,
    },
    /// The disk would be fuller than it may be.
    #[error("unpacking would leave less than {reserved} bytes of the disk free")]
    Room {
        /// What has to stay free.
        reserved: u64,
    },
    /// The kernel refused.
    #[error("{step} {path:?}")]
    Write {
        /// What was attempted.
        step: &'static str,
        /// On what.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Unpacks a layer. What is in `into` after an error has to be thrown away.
pub fn unpack(blob: impl Read, into: &Directory, limits: &Limits) -> Result<Unpacked, UnpackError> {
    let inflated = inflate(blob, limits).map_err(TarError::Read)?;
    let source = BufReader::with_capacity(128 * 1024, Hashed::new(inflated));
    let mut reader = Reader::new(source, limits);
    let mut writer = Writer::new(into, limits)?;
    while let Some(entry) = reader.next_entry()? {
        writer.take(&entry, &mut reader)?;
    }
    let mut source = reader.into_source();
    drain(&mut source, limits.trailing_bytes)?;
    let diff_id = source.into_inner().finish();
    writer.finish(diff_id)
}

/// Reads what follows the archive: it belongs to the blob's digest and to the diff id.
fn drain(source: &mut impl Read, most: u64) -> Result<(), UnpackError> {
    let mut buffer = [0; 16 * 1024];
    let mut n_read = 0;
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => n_read += n as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(TarError::Read(error).into()),
        }
        within("bytes after the end of an archive", n_read, most)?;
    }
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

//! Images of the embedded runtime: fetched, unpacked, kept and thrown away.
//!
//! ```text
//!  archive ─┐                 tar ─► unpack ─► a layer's directory
//!           ├─ layers ─► blob ─┘                    │
//!  registry ┘                                       v
//!  manifest, reference, digest: pure             store ─► images, layers, holds
//! ```
//!
//! In: archives, names with credentials. Out: images as values and layers as descriptors. Refuses: containers, CRI's
//! types, and any name resolved through what an image brought.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod archive;
mod digest;
mod directory;
mod layers;
mod limits;
pub mod manifest;
mod pull;
mod reference;
mod registry;
mod store;
mod tar;
mod unpack;

pub use archive::{LoadError, load};
pub use digest::{Digest, DigestError, Hasher};
pub use directory::{Directory, Usage};
pub use layers::LayerError;
pub use limits::{Limits, OverLimit};
pub use pull::{PullError, PullProgress, Puller};
pub use reference::{Reference, ReferenceError, Wanted};
pub use registry::{Credentials, HostsError, Registry, RegistryError, RegistrySettings};
pub use store::{
    BootId, Hold, Image, ImageParts, LayerKey, LayerRecord, Staging, Store, StoreError, Trash,
};
pub use tar::TarError;
pub use unpack::{OpenEnds, Ownership, SettleError, UnpackError, Unpacked, settle, unpack};

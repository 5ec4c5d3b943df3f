//! What images and containers take on disk, as the runtime tells it.
//!
//! Implemented by the adapter `cri`; asked by the server for statistics and by whoever reclaims
//! disks. Refuses: sizes of file systems; the runtime says only where its stores are.

use ferrolet_types::{ContainerId, Timestamp};

use crate::{Fut, InUse, RuntimeError};

/// Asks the runtime about its stores.
pub trait RuntimeDisk: Send + Sync {
    /// What every container has written over its image.
    fn written_layers(&self) -> Fut<'_, Result<Vec<LayerUsage>, RuntimeError>>;

    /// Where images and containers are stored, and how much they take.
    fn stores(&self) -> Fut<'_, Result<RuntimeStores, RuntimeError>>;
}

/// What one container has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerUsage {
    /// Which.
    pub id: ContainerId,
    /// When the runtime looked; `None` when it has not yet.
    pub at: Option<Timestamp>,
    /// How much.
    pub used: InUse,
}

/// The runtime's stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStores {
    /// Images.
    pub images: Option<StoreUsage>,
    /// What containers write; the same as images unless the runtime splits them.
    pub containers: Option<StoreUsage>,
}

/// One store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUsage {
    /// A directory on its file system.
    pub place: String,
    /// When the runtime looked.
    pub at: Option<Timestamp>,
    /// How much it takes.
    pub used: InUse,
}

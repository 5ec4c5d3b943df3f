//! Kinds of volumes that few have or that upstream deprecates: iSCSI, Fibre Channel and flexVolume.
//!
//! ```text
//!  disk   attach (iscsiadm, sysfs) ─► mount for the node ─► show to the pod
//!  flex   attach ─► waitforattach ─► mountdevice ─► mount          a driver's program, started for each call
//! ```
//!
//! Each is a [`VolumePlugin`], handed to engine `volumes` by the composition root; that engine knows
//! what the API says of them and when a step is due, this crate how it is done. Refuses: remembering.
#![forbid(unsafe_code)]

mod disk;
mod flex;

use std::sync::Arc;

use ferrolet_ports::{FlexDrivers, NodeMounts, StorageObjects, VolumeFiles, VolumePlugin};

/// What the plugins are made from.
#[derive(Clone)]
pub struct RareDoors {
    /// Directories of pods' volumes.
    pub files: Arc<dyn VolumeFiles>,
    /// Mounts and disks.
    pub mounts: Arc<dyn NodeMounts>,
    /// flexVolume drivers that are installed on this node.
    pub flex: Arc<dyn FlexDrivers>,
    /// Secrets; a node on its own has none.
    pub storage: Option<Arc<dyn StorageObjects>>,
    /// How they are kept.
    pub settings: Settings,
}

/// How these kinds of volumes are kept on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who attaches volumes to this node.
    pub attaching: Attaching,
    /// This node's name in the API.
    pub node_name: String,
}

/// Who attaches volumes to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attaching {
    /// A controller of the cluster, which says so in the node's status.
    ByController,
    /// We do.
    Ourselves,
}

impl RareDoors {
    fn is_by_controller(&self) -> bool {
        self.settings.attaching == Attaching::ByController && self.storage.is_some()
    }
}

/// The plugins of this crate.
pub fn plugins(doors: RareDoors) -> Vec<Arc<dyn VolumePlugin>> {
    vec![Arc::new(disk::DiskPlugin { doors: doors.clone() }), Arc::new(flex::FlexPlugin { doors })]
}

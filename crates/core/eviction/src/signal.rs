//! What a signal means: the condition of the node, the resource that is short, and what the node
//! can give up before a pod has to go.

use std::fmt;

use ferrolet_config::config::Signal;

use crate::FileSystems;

/// A condition of the node while something is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// `MemoryPressure`.
    Memory,
    /// `DiskPressure`: space or inodes.
    Disk,
    /// `PIDPressure`.
    Pid,
}

impl Pressure {
    /// The condition's type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk => "DiskPressure",
            Self::Pid => "PIDPressure",
        }
    }
}

/// What is short, in the words of events and annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StarvedResource {
    /// `memory`.
    Memory,
    /// `ephemeral-storage`.
    EphemeralStorage,
    /// `inodes`.
    Inodes,
    /// `pids`.
    Pids,
}

impl fmt::Display for StarvedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        })
    }
}

/// The condition that a signal brings about.
pub fn pressure_of(signal: Signal) -> Pressure {
    match signal {
        Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => Pressure::Memory,
        Signal::NodeFsAvailable
        | Signal::NodeFsInodesFree
        | Signal::ImageFsAvailable
        | Signal::ImageFsInodesFree
        | Signal::ContainerFsAvailable
        | Signal::ContainerFsInodesFree => Pressure::Disk,
        Signal::PidAvailable => Pressure::Pid,
    }
}

/// The resource that a signal watches.
pub fn resource_of(signal: Signal) -> StarvedResource {
    match signal {
        Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => StarvedResource::Memory,
        Signal::NodeFsAvailable | Signal::ImageFsAvailable | Signal::ContainerFsAvailable => {
            StarvedResource::EphemeralStorage
        }
        Signal::NodeFsInodesFree | Signal::ImageFsInodesFree | Signal::ContainerFsInodesFree => {
            StarvedResource::Inodes
        }
        Signal::PidAvailable => StarvedResource::Pids,
    }
}

/// What the node can take back without touching a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeReclaim {
    /// Every dead container.
    DeadContainers,
    /// Every image that nothing uses.
    UnusedImages,
}

/// What to give up first when a signal's threshold is met, in order: what lies on the file system
/// that is short. Memory and process numbers have nothing of the kind.
pub fn node_reclaim(signal: Signal, layout: FileSystems) -> &'static [NodeReclaim] {
    use NodeReclaim::{DeadContainers, UnusedImages};
    let is_image_fs = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    let is_node_fs = matches!(signal, Signal::NodeFsAvailable | Signal::NodeFsInodesFree);
    if pressure_of(signal) != Pressure::Disk {
        return &[];
    }
    match layout {
        FileSystems::One => &[DeadContainers, UnusedImages],
        FileSystems::ImagesAndContainersApart if is_node_fs => &[],
        FileSystems::ImagesAndContainersApart => &[DeadContainers, UnusedImages],
        FileSystems::ImagesApart if is_image_fs => &[UnusedImages],
        FileSystems::ImagesApart => &[DeadContainers],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_the_full_file_system_is_given_up_first() {
        use NodeReclaim::{DeadContainers, UnusedImages};
        let both: &[NodeReclaim] = &[DeadContainers, UnusedImages];
        let cases: [(Signal, FileSystems, &[NodeReclaim]); 11] = [
            (Signal::NodeFsAvailable, FileSystems::One, both),
            (Signal::ImageFsInodesFree, FileSystems::One, both),
            (Signal::ContainerFsAvailable, FileSystems::One, both),
            (Signal::NodeFsAvailable, FileSystems::ImagesAndContainersApart, &[]),
            (Signal::ImageFsAvailable, FileSystems::ImagesAndContainersApart, both),
            (Signal::ContainerFsInodesFree, FileSystems::ImagesAndContainersApart, both),
            (Signal::NodeFsInodesFree, FileSystems::ImagesApart, &[DeadContainers]),
            (Signal::ImageFsAvailable, FileSystems::ImagesApart, &[UnusedImages]),
            (Signal::ContainerFsAvailable, FileSystems::ImagesApart, &[DeadContainers]),
            (Signal::MemoryAvailable, FileSystems::One, &[]),
            (Signal::PidAvailable, FileSystems::ImagesApart, &[]),
        ];
        for (signal, layout, expected) in cases {
            assert_eq!(node_reclaim(signal, layout), expected, "{signal:?} {layout:?}");
        }
    }
}

//! A reading of the node's means in the words of eviction. Pure.

use ferrolet_config::config::Signal;
use ferrolet_eviction::{FileSystems, Observation, Observations};
use ferrolet_ports::{FileSystemMeans, MeansReading, MemoryMeans};

/// What was measured, by signal. Memory in huge pages is nobody's to use.
pub(crate) fn observations(reading: &MeansReading, huge_page_bytes: u64) -> Observations {
    let at = Some(reading.at);
    let mut all = Observations::new();
    let mut note = |signal, available, capacity| {
        all.insert(signal, Observation { available, capacity, at });
    };
    if let Some(memory) = node_memory(reading, huge_page_bytes) {
        note(Signal::MemoryAvailable, available(&memory), memory.capacity);
    }
    if let Some(memory) = reading.pods_memory {
        note(Signal::AllocatableMemoryAvailable, available(&memory), memory.capacity);
    }
    let disks = [
        (reading.node_fs, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        (reading.image_fs, Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
        (reading.container_fs, Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree),
    ];
    for (disk, bytes, inodes) in disks {
        let Some(FileSystemMeans { room, .. }) = disk else {
            continue;
        };
        note(bytes, room.available, room.capacity);
        // Some file systems make inodes as they go and count none.
        if room.inodes > 0 {
            note(inodes, room.inodes_free, room.inodes);
        }
    }
    if let Some(processes) = reading.processes {
        note(Signal::PidAvailable, processes.max.saturating_sub(processes.n), processes.max);
    }
    all
}

/// Memory of the machine that pods and the system can use.
pub(crate) fn node_memory(reading: &MeansReading, huge_page_bytes: u64) -> Option<MemoryMeans> {
    let memory = reading.memory?;
    // Never less than what is in use: then nothing is available.
    let capacity = memory.capacity.saturating_sub(huge_page_bytes).max(memory.working_set);
    Some(MemoryMeans { capacity, ..memory })
}

/// What is not in use.
pub(crate) fn available(memory: &MemoryMeans) -> u64 {
    memory.capacity.saturating_sub(memory.working_set)
}

/// Which of the node's files lie on which file system; `None` until it can be told.
pub(crate) fn layout(reading: &MeansReading) -> Option<FileSystems> {
    let device = |it: &Option<FileSystemMeans>| it.map(|it| it.device);
    let (node, images) = (device(&reading.node_fs)?, device(&reading.image_fs)?);
    let containers = device(&reading.container_fs).unwrap_or(images);
    Some(match (images == node, containers == images) {
        // Upstream does not tell apart what only containers write elsewhere.
        (true, _) => FileSystems::One,
        (false, true) => FileSystems::ImagesAndContainersApart,
        (false, false) => FileSystems::ImagesApart,
    })
}

#[cfg(test)]
mod tests {
    use ferrolet_ports::{FileRoom, ProcessRoom};
    use ferrolet_types::Timestamp;

    use super::*;

    fn disk(device: u64, inodes: u64) -> Option<FileSystemMeans> {
        let room = FileRoom {
            capacity: 1000,
            available: 300,
            inodes,
            inodes_free: inodes / 2,
            ..FileRoom::default()
        };
        Some(FileSystemMeans { device, room })
    }

    fn reading() -> MeansReading {
        MeansReading {
            at: Timestamp::from_second(7),
            memory: Some(MemoryMeans { capacity: 1000, working_set: 600, usage: 700 }),
            pods_memory: None,
            pods_usage: None,
            node_fs: disk(1, 10),
            image_fs: disk(2, 0),
            container_fs: None,
            processes: Some(ProcessRoom { max: 100, n: 120 }),
        }
    }

    #[test]
    fn what_was_read_is_observed_and_nothing_else() {
        let found = observations(&reading(), 0);
        let shown: Vec<(&str, u64, u64)> =
            found.iter().map(|(it, seen)| (it.as_str(), seen.available, seen.capacity)).collect();
        let expected = [
            ("memory.available", 400, 1000),
            ("nodefs.available", 300, 1000),
            ("nodefs.inodesFree", 5, 10),
            ("imagefs.available", 300, 1000),
            ("pid.available", 0, 100),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn huge_pages_are_not_available() {
        let memory = |huge| {
            let found = observations(&reading(), huge)[&Signal::MemoryAvailable];
            (found.available, found.capacity)
        };
        assert_eq!(memory(100), (300, 900));
        assert_eq!(memory(900), (0, 600));
    }

    #[test]
    fn the_layout_follows_from_devices() {
        let with = |images, containers| {
            layout(&MeansReading { image_fs: images, container_fs: containers, ..reading() })
        };
        assert_eq!(with(disk(1, 0), disk(1, 0)), Some(FileSystems::One));
        assert_eq!(with(disk(1, 0), disk(2, 0)), Some(FileSystems::One));
        assert_eq!(with(disk(2, 0), None), Some(FileSystems::ImagesAndContainersApart));
        assert_eq!(with(disk(2, 0), disk(2, 0)), Some(FileSystems::ImagesAndContainersApart));
        assert_eq!(with(disk(2, 0), disk(1, 0)), Some(FileSystems::ImagesApart));
        assert_eq!(with(None, disk(1, 0)), None);
    }
}

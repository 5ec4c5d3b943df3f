//! Thresholds as they are in force: those of the configuration, and those that follow from them.

use ferrolet_config::config::{Signal, Threshold, ThresholdValue};
use ferrolet_types::Quantity;

/// Which of a node's files lie on which file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystems {
    /// Volumes, logs, images and containers' own files on one.
    One,
    /// The runtime's files, images and containers' own, on one of their own.
    ImagesAndContainersApart,
    /// Images on one of their own; containers' own files with volumes and logs.
    ImagesApart,
}

/// Adds what follows from the configured thresholds.
///
/// A hard one for memory also holds for what pods may use together, where that is enforced. Those
/// of `containerfs` are never the user's: they are the ones of the file system that containers'
/// own files lie on.
pub fn effective_thresholds(
    configured: &[Threshold],
    layout: FileSystems,
    is_pods_enforced: bool,
) -> Vec<Threshold> {
    let is_containers = |signal: Signal| {
        matches!(signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree)
    };
    // One that waits for no time at all is a hard one, wherever it was written.
    let as_meant = |it: &Threshold| Threshold {
        grace_period: it.grace_period.filter(|period| !period.is_zero()),
        ..*it
    };
    let mut all: Vec<Threshold> =
        configured.iter().filter(|it| !is_containers(it.signal)).map(as_meant).collect();
    let mut derived = Vec::new();
    for threshold in &all {
        let signal = match (threshold.signal, layout) {
            (Signal::MemoryAvailable, _)
                if is_pods_enforced && threshold.grace_period.is_none() =>
            {
                Signal::AllocatableMemoryAvailable
            }
            (Signal::NodeFsAvailable, FileSystems::One | FileSystems::ImagesApart)
            | (Signal::ImageFsAvailable, FileSystems::ImagesAndContainersApart) => {
                Signal::ContainerFsAvailable
            }
            (Signal::NodeFsInodesFree, FileSystems::One | FileSystems::ImagesApart)
            | (Signal::ImageFsInodesFree, FileSystems::ImagesAndContainersApart) => {
                Signal::ContainerFsInodesFree
            }
            _ => continue,
        };
        derived.push(Threshold { signal, ..*threshold });
    }
    all.extend(derived);
    all
}

/// What a value of a threshold amounts to on a node of this capacity.
///
/// A percentage is taken with upstream's single precision, so that the same configuration gives
/// the same number of bytes.
pub fn threshold_quantity(value: ThresholdValue, capacity: u64) -> Quantity {
    match value {
        ThresholdValue::Quantity(quantity) => quantity,
        ThresholdValue::Percent(percent) => Quantity::from_bytes(part_of(percent, capacity)),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "upstream's arithmetic: a part in single precision, times the capacity in double"
)]
fn part_of(percent: f64, capacity: u64) -> i64 {
    let part = percent as f32 / 100.0;
    (capacity as f64 * f64::from(part)) as i64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn hard(signal: Signal) -> Threshold {
        let value = ThresholdValue::Percent(10.0);
        Threshold { signal, value, grace_period: None, minimum_reclaim: None }
    }

    fn names(thresholds: &[Threshold]) -> Vec<&'static str> {
        thresholds.iter().map(|it| it.signal.as_str()).collect()
    }

    #[test]
    fn a_hard_threshold_of_memory_holds_for_all_pods_together_where_that_is_enforced() {
        let soft = Threshold {
            grace_period: Some(Duration::from_secs(30)),
            ..hard(Signal::MemoryAvailable)
        };
        let cases = [
            (
                hard(Signal::MemoryAvailable),
                true,
                vec!["memory.available", "allocatableMemory.available"],
            ),
            (hard(Signal::MemoryAvailable), false, vec!["memory.available"]),
            (soft, true, vec!["memory.available"]),
        ];
        for (threshold, is_enforced, expected) in cases {
            let found = effective_thresholds(&[threshold], FileSystems::One, is_enforced);
            assert_eq!(names(&found), expected);
        }
    }

    #[test]
    fn thresholds_of_containers_files_are_those_of_the_file_system_they_lie_on() {
        let own = hard(Signal::ContainerFsAvailable);
        let node =
            Threshold { value: ThresholdValue::Percent(5.0), ..hard(Signal::NodeFsAvailable) };
        let image = hard(Signal::ImageFsInodesFree);
        let found = effective_thresholds(&[own, node, image], FileSystems::One, true);
        assert_eq!(
            names(&found),
            ["nodefs.available", "imagefs.inodesFree", "containerfs.available"]
        );
        assert_eq!(found[2].value, ThresholdValue::Percent(5.0));
        let apart = FileSystems::ImagesAndContainersApart;
        let found = effective_thresholds(&[own, node, image], apart, true);
        assert_eq!(
            names(&found),
            ["nodefs.available", "imagefs.inodesFree", "containerfs.inodesFree"]
        );
        let split = effective_thresholds(&[own, node, image], FileSystems::ImagesApart, true);
        assert_eq!(
            names(&split),
            ["nodefs.available", "imagefs.inodesFree", "containerfs.available"]
        );
    }

    #[test]
    fn a_percentage_is_rounded_as_upstreams() {
        let cases = [(10.0, 1000, 100), (15.0, 107_374_182_400, 16_106_128_000), (0.1, 1000, 1)];
        for (percent, capacity, expected) in cases {
            let value = ThresholdValue::Percent(percent);
            assert_eq!(threshold_quantity(value, capacity).value(), expected, "{percent}");
        }
    }
}

//! Where the kernel's alarm is set: at what is in use when a threshold of memory is just met. Pure.

use ferrolet_config::config::{Signal, Threshold};
use ferrolet_eviction::threshold_quantity;
use ferrolet_ports::{AlarmLine, AlarmScope, MeansReading};

use crate::observe::{available, node_memory};

/// The lines for these thresholds. The kernel counts caches that can be dropped; they are added as
/// they are now, which is why lines are set again and again. A machine's own figures follow its
/// processes by up to two seconds, those of pods at once: so a line of the machine has a second one,
/// where pods alone would use up what is left. Lines crossed already are left out: whoever sets them
/// is at work on it.
pub(crate) fn lines(
    thresholds: &[Threshold],
    reading: &MeansReading,
    huge_page_bytes: u64,
) -> Vec<AlarmLine> {
    let mut all = Vec::new();
    for threshold in thresholds {
        let memory = match threshold.signal {
            Signal::MemoryAvailable => node_memory(reading, huge_page_bytes),
            Signal::AllocatableMemoryAvailable => reading.pods_memory,
            _ => None,
        };
        let Some(memory) = memory else {
            continue;
        };
        let least = threshold_quantity(threshold.value, memory.capacity).value();
        let least = u64::try_from(least).unwrap_or(0);
        let Some(room) = available(&memory).checked_sub(least) else {
            continue;
        };
        let mut add = |scope, usage: u64| {
            all.push(AlarmLine { scope, usage: usage.saturating_add(room) });
        };
        match (threshold.signal, reading.pods_usage) {
            (Signal::AllocatableMemoryAvailable, _) => add(AlarmScope::AllPods, memory.usage),
            (_, pods) => {
                add(AlarmScope::Node, memory.usage);
                pods.into_iter().for_each(|usage| add(AlarmScope::AllPods, usage));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use ferrolet_config::config::ThresholdValue;
    use ferrolet_ports::MemoryMeans;
    use ferrolet_types::{Quantity, Timestamp};

    use super::*;

    fn reading(working_set: u64) -> MeansReading {
        MeansReading {
            at: Timestamp::from_second(0),
            memory: Some(MemoryMeans { capacity: 1000, working_set, usage: working_set + 50 }),
            pods_memory: Some(MemoryMeans { capacity: 800, working_set: 100, usage: 100 }),
            pods_usage: Some(100),
            node_fs: None,
            image_fs: None,
            container_fs: None,
            processes: None,
        }
    }

    #[test]
    fn a_line_is_where_the_threshold_is_just_met() {
        let threshold =
            |signal, value| Threshold { signal, value, grace_period: None, minimum_reclaim: None };
        let bytes = |value| ThresholdValue::Quantity(Quantity::from_bytes(value));
        let thresholds = [
            threshold(Signal::MemoryAvailable, bytes(100)),
            threshold(Signal::AllocatableMemoryAvailable, ThresholdValue::Percent(10.0)),
            threshold(Signal::NodeFsAvailable, bytes(100)),
        ];
        let line = |scope, usage| AlarmLine { scope, usage };
        let (node, pods) = (AlarmScope::Node, AlarmScope::AllPods);
        // 400 are left, 100 have to stay: 300 more, of the machine's 650 or of the pods' 100.
        let expected = [line(node, 950), line(pods, 400), line(pods, 720)];
        assert_eq!(lines(&thresholds, &reading(600), 0), expected);
        assert_eq!(lines(&thresholds, &reading(950), 0), expected[2..], "crossed already");
        let less = [line(node, 750), line(pods, 200), line(pods, 720)];
        assert_eq!(lines(&thresholds, &reading(600), 200), less);
    }
}

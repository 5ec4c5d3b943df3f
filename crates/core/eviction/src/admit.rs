//! Whether a node that is short of something takes a new pod.

use std::collections::BTreeSet;

use ferrolet_types::Qos;

use crate::Pressure;

/// The conditions of a node.
pub type Pressures = BTreeSet<Pressure>;

/// What matters of a pod that asks to run on a node under pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderPressure {
    /// Static, mirrored or of a system priority.
    pub is_critical: bool,
    /// Its class.
    pub qos: Qos,
    /// Whether it tolerates `node.kubernetes.io/memory-pressure:NoSchedule`.
    pub tolerates_memory_pressure: bool,
}

/// Why a pod is refused, as its status says it; none when it is taken.
///
/// The node needs critical pods to get better. Where memory alone is short, pods that asked for
/// some have a claim to it.
pub fn admit(pressures: &Pressures, pod: UnderPressure) -> Option<String> {
    let is_memory_alone = pressures.iter().eq([&Pressure::Memory]);
    let has_claim = pod.qos != Qos::BestEffort || pod.tolerates_memory_pressure;
    if pressures.is_empty() || pod.is_critical || (is_memory_alone && has_claim) {
        return None;
    }
    let names: Vec<&str> = pressures.iter().map(|it| it.as_str()).collect();
    Some(format!("The node had condition: [{}]. ", names.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_refuses_all_but_those_with_a_claim() {
        let pod = |is_critical, qos, tolerates_memory_pressure| UnderPressure {
            is_critical,
            qos,
            tolerates_memory_pressure,
        };
        let plain = pod(false, Qos::BestEffort, false);
        let memory = Pressures::from([Pressure::Memory]);
        let both = Pressures::from([Pressure::Disk, Pressure::Memory]);
        let refused = |names: &str| Some(format!("The node had condition: [{names}]. "));
        let cases = [
            (Pressures::new(), plain, None),
            (memory.clone(), plain, refused("MemoryPressure")),
            (memory.clone(), pod(true, Qos::BestEffort, false), None),
            (memory.clone(), pod(false, Qos::Burstable, false), None),
            (memory, pod(false, Qos::BestEffort, true), None),
            (
                both.clone(),
                pod(false, Qos::Guaranteed, true),
                refused("MemoryPressure DiskPressure"),
            ),
            (both, pod(true, Qos::Guaranteed, false), None),
            (Pressures::from([Pressure::Pid]), plain, refused("PIDPressure")),
        ];
        for (pressures, pod, expected) in cases {
            assert_eq!(admit(&pressures, pod), expected, "{pressures:?} {pod:?}");
        }
    }
}

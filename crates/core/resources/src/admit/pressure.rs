//! Whether a node that is short of something takes a new pod.

use ferrolet_node::{NodeState, Pressure};
use ferrolet_types::{Qos, pod::PodView};
use k8s_openapi::api::core::v1::{Pod, Taint};

use super::{Rejection, taints};
use crate::pod_qos;

/// The taint that follows from a shortage of memory.
const MEMORY_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// The node needs critical pods to get better. Where memory alone is short, pods that asked for
/// some have a claim to it, and so have those that say they can live with it.
pub(super) fn check(pod: &Pod, node: &NodeState) -> Result<(), Rejection> {
    let Pressure { memory, disk, pid } = node.facts.pressure;
    let all = [(memory, "MemoryPressure"), (disk, "DiskPressure"), (pid, "PIDPressure")];
    let names: Vec<&str> = all.iter().filter(|(is_short, _)| *is_short).map(|it| it.1).collect();
    let is_memory_alone = names == ["MemoryPressure"];
    if names.is_empty()
        || pod.is_critical()
        || (is_memory_alone && has_claim(pod, node.settings.compares_tolerations))
    {
        return Ok(());
    }
    Err(Rejection {
        reason: "Evicted".to_owned(),
        message: format!("The node had condition: [{}]. ", names.join(" ")),
    })
}

fn has_claim(pod: &Pod, compares: bool) -> bool {
    let taint =
        Taint { key: MEMORY_TAINT.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    pod_qos(pod) != Qos::BestEffort || taints::is_tolerated(pod, &taint, compares)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        let annotations = json!({"kubernetes.io/config.source": "api"});
        let pod = json!({"metadata": {"annotations": annotations}, "spec": spec});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn pressure_refuses_all_but_those_with_a_claim() {
        let plain = || pod(json!({"containers": [{"name": "c"}]}));
        let critical = || pod(json!({"containers": [{"name": "c"}], "priority": 2_000_000_000}));
        let asking = || {
            let resources = json!({"requests": {"cpu": "1m"}});
            pod(json!({"containers": [{"name": "c", "resources": resources}]}))
        };
        let tolerating = |key: &str| {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
            pod(json!({"containers": [{"name": "c"}], "tolerations": [toleration]}))
        };
        let memory = Pressure { memory: true, ..Pressure::default() };
        let both = Pressure { disk: true, ..memory };
        let pid = Pressure { pid: true, ..Pressure::default() };
        let cases = [
            (Pressure::default(), plain(), None),
            (memory, plain(), Some("MemoryPressure")),
            (memory, critical(), None),
            (memory, asking(), None),
            (memory, tolerating(MEMORY_TAINT), None),
            (memory, tolerating("node.kubernetes.io/disk-pressure"), Some("MemoryPressure")),
            (both, asking(), Some("MemoryPressure DiskPressure")),
            (both, tolerating(MEMORY_TAINT), Some("MemoryPressure DiskPressure")),
            (both, critical(), None),
            (pid, plain(), Some("PIDPressure")),
        ];
        for (pressure, pod, names) in cases {
            let mut node = NodeState::example();
            node.facts.pressure = pressure;
            let refused = check(&pod, &node).err();
            let expected = names.map(|names| Rejection {
                reason: "Evicted".to_owned(),
                message: format!("The node had condition: [{names}]. "),
            });
            assert_eq!(refused, expected, "{pressure:?}");
        }
    }
}

//! What a pod's status says of its volumes' health.
//!
//! Owned by `compute`. In: the status before, and what drivers said last, volume by volume. Out:
//! the list as it is told. Drivers are asked again and again: what has not changed keeps its time,
//! and another sentence about the same thing is no change (upstream's `SetPodVolumeHealth`). A
//! volume of which nothing was said since the agent started keeps what was told.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_types::Timestamp;
use k8s_openapi::api::core::v1::{PodVolumeHealth, VolumeHealthCondition};

use crate::containers::time;

/// The health of volumes, given what was told of them before.
pub(crate) fn volume_health(
    old: Option<&Vec<PodVolumeHealth>>,
    said: &BTreeMap<String, Vec<VolumeHealthCondition>>,
    now: Timestamp,
) -> Option<Vec<PodVolumeHealth>> {
    let mut told = old.cloned().unwrap_or_default();
    for (volume, conditions) in said {
        let entry = told.iter().position(|it| it.name == *volume);
        let before = entry.and_then(|at| told[at].health_conditions.as_deref());
        if identities(before.unwrap_or_default()) == identities(conditions) {
            continue;
        }
        let health = PodVolumeHealth {
            name: volume.clone(),
            health_conditions: Some(conditions.clone()).filter(|it| !it.is_empty()),
            last_transition_time: Some(time(now)),
        };
        match entry {
            Some(at) => told[at] = health,
            None => told.push(health),
        }
    }
    Some(told).filter(|it| !it.is_empty())
}

fn identities(conditions: &[VolumeHealthCondition]) -> BTreeSet<(&str, &str)> {
    let conditions = conditions.iter();
    conditions.map(|it| (it.status.as_str(), it.reason.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(old: Value, said: Value, expected: Value) {
        let old: Option<Vec<PodVolumeHealth>> = serde_json::from_value(old).unwrap();
        let said = serde_json::from_value(said).unwrap();
        let told = volume_health(old.as_ref(), &said, Timestamp::from_second(60));
        assert_eq!(serde_json::to_value(told).unwrap(), expected, "{said:?}");
    }

    #[test]
    fn what_changed_gets_a_new_time_and_everything_else_stays() {
        let slow = json!({"status": "Degraded", "reason": "DiskSlow", "message": "very"});
        let lost = json!({"status": "DataLoss", "reason": "Sectors"});
        let entry = |conditions: &[&Value], second: u32| json!({"name": "v", "healthConditions": conditions, "lastTransitionTime": format!("1970-01-01T00:00:{second:02}Z")});
        let minute = "1970-01-01T00:01:00Z";
        let now = |conditions: &[&Value]| json!({"name": "v", "healthConditions": conditions, "lastTransitionTime": minute});
        // A volume that is well and always was is not mentioned.
        check(json!(null), json!({"v": []}), json!(null));
        check(json!(null), json!({}), json!(null));
        check(json!(null), json!({"v": [slow]}), json!([now(&[&slow])]));
        // The same again, in other words and another order.
        let reworded = json!({"status": "Degraded", "reason": "DiskSlow", "message": "still"});
        let both = json!([entry(&[&slow, &lost], 7)]);
        check(both.clone(), json!({"v": [lost, reworded]}), both.clone());
        check(both.clone(), json!({"v": [lost]}), json!([now(&[&lost])]));
        // Nobody was asked yet, as after a start of the agent.
        check(both.clone(), json!({}), both.clone());
        // Well again.
        let well = json!([{"name": "v", "lastTransitionTime": minute}]);
        check(both.clone(), json!({"v": []}), well.clone());
        check(well.clone(), json!({"v": []}), well);
        // Another volume.
        let other = json!({"name": "w", "healthConditions": [lost], "lastTransitionTime": minute});
        check(both.clone(), json!({"w": [lost]}), json!([both[0], other]));
    }
}

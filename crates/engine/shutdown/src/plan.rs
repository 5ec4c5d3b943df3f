//! Who ends when, and with how much grace. Pure.

use std::time::Duration;

use ferrolet_types::{GracePeriod, Pod, pod::PodView as _};

/// From here on pods are critical.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Pods that end together, and how long they get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownGroup {
    /// The lowest priority in it; the first group has those below, too.
    pub priority: i32,
    /// What its pods get.
    pub period: Duration,
}

/// The two old settings as groups: ordinary pods get what critical ones leave, in whole seconds.
pub fn two_phases(total: Duration, critical: Duration) -> Vec<ShutdownGroup> {
    let Some(ordinary) = total.checked_sub(critical).filter(|_| !total.is_zero()) else {
        return Vec::new();
    };
    let whole = |period: Duration| Duration::from_secs(period.as_secs());
    vec![
        ShutdownGroup { priority: 0, period: whole(ordinary) },
        ShutdownGroup { priority: CRITICAL_PRIORITY, period: whole(critical) },
    ]
}

/// How long all groups take together at most.
pub(crate) fn whole_period(groups: &[ShutdownGroup]) -> Duration {
    groups.iter().map(|group| group.period).fold(Duration::ZERO, Duration::saturating_add)
}

/// Sorts pods into groups, which come in the order in which they end.
pub(crate) fn group_pods(
    groups: &[ShutdownGroup],
    pods: Vec<Pod>,
) -> Vec<(ShutdownGroup, Vec<Pod>)> {
    let mut groups = groups.to_vec();
    groups.sort_by_key(|group| group.priority);
    let mut sorted: Vec<(ShutdownGroup, Vec<Pod>)> =
        groups.into_iter().map(|group| (group, Vec::new())).collect();
    for pod in pods {
        let priority = pod.spec_ref().priority.unwrap_or(0);
        // The last group that begins at or below it, of equal ones the first; whoever is below all
        // goes with the lowest.
        let begins = sorted.iter().map(|(group, _)| group.priority);
        let lowest = begins.filter(|it| *it <= priority).max();
        let place =
            sorted.iter_mut().find(|(group, _)| lowest.is_none_or(|it| it == group.priority));
        if let Some((_, members)) = place {
            members.push(pod);
        }
    }
    sorted
}

/// What a pod gets: what it asked for, and no more than its group has.
pub(crate) fn grace(pod: &Pod, group: ShutdownGroup) -> GracePeriod {
    let asked = pod.spec_ref().termination_grace_period_seconds;
    let asked = asked.map_or(group.period, |seconds| GracePeriod::from_secs(seconds).0);
    GracePeriod(asked.min(group.period))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        std::sync::Arc::new(serde_json::from_value(value).unwrap())
    }

    /// What upstream's own functions (`migrateConfig`, `groupByPriority` of 1.37.1) answered to
    /// random questions, recorded so that nobody needs Go.
    #[test]
    fn groups_are_upstreams() {
        let recorded = include_str!("../recorded/shutdown.jsonl");
        let mut n_compared = 0;
        for line in recorded.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let seconds = |value: &Value| Duration::from_secs(value.as_u64().unwrap());
            let given = case["in"]["Groups"].as_array().unwrap();
            let groups = match given.as_slice() {
                [] => {
                    two_phases(seconds(&case["in"]["Requested"]), seconds(&case["in"]["Critical"]))
                }
                given => given
                    .iter()
                    .map(|group| ShutdownGroup {
                        priority: i32::try_from(group["Priority"].as_i64().unwrap()).unwrap(),
                        period: seconds(&group["ShutdownGracePeriodSeconds"]),
                    })
                    .collect(),
            };
            let pods = case["in"]["Pods"].as_array().unwrap().iter().cloned().map(pod).collect();
            let found: Vec<Value> = group_pods(&groups, pods)
                .into_iter()
                .map(|(group, pods)| {
                    let names: Vec<_> = pods.iter().map(|pod| pod.metadata.name.clone()).collect();
                    let names = if names.is_empty() { Value::Null } else { json!(names) };
                    json!({"priority": group.priority, "seconds": group.period.as_secs(), "pods": names})
                })
                .collect();
            let expected = case["out"].as_array().cloned().unwrap_or_default();
            assert_eq!(found, expected, "{line}");
            n_compared += 1;
        }
        assert!(n_compared >= 500, "{n_compared}");
    }

    #[test]
    fn a_pod_gets_what_it_asked_for_and_no_more_than_its_group_has() {
        let group = ShutdownGroup { priority: 0, period: Duration::from_secs(20) };
        let check = |asked: Option<i64>, expected: i64| {
            let pod =
                pod(json!({"spec": {"containers": [], "terminationGracePeriodSeconds": asked}}));
            assert_eq!(grace(&pod, group), GracePeriod::from_secs(expected), "{asked:?}");
        };
        check(None, 20);
        check(Some(5), 5);
        check(Some(30), 20);
        check(Some(0), 0);
    }

    #[test]
    fn all_groups_together_are_what_the_machine_is_asked_to_wait() {
        let seconds = Duration::from_secs;
        assert_eq!(whole_period(&two_phases(seconds(30), seconds(10))), seconds(30));
        assert_eq!(two_phases(seconds(10), seconds(20)), []);
        assert_eq!(two_phases(Duration::ZERO, Duration::ZERO), []);
        assert_eq!(two_phases(Duration::from_millis(1500), seconds(0))[0].period, seconds(1));
    }
}

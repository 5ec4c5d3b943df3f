//! What the API server showed of each pod, and when: the record that create-to-Ready and deletion
//! times are read from.

use std::collections::BTreeMap;
use std::time::Instant;

use ferrolet_lab::PodView;
use ferrolet_lab::cluster::Arrival;

/// When one pod appeared, became Ready and went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    pub(super) appeared: Instant,
    pub(super) ready: Option<Instant>,
    pub(super) gone: Option<Instant>,
    /// Times at which it stopped being Ready without being deleted.
    pub(super) n_relapses: usize,
    is_ready: bool,
}

/// The pods of one node, by name.
#[derive(Default)]
pub(super) struct Record {
    courses: BTreeMap<String, Course>,
}

impl Record {
    pub(super) fn take(&mut self, arrival: Arrival) {
        let (at, pod) = (arrival.at, PodView(arrival.object));
        let course = self.courses.entry(pod.name().to_owned()).or_insert(Course {
            appeared: at,
            ready: None,
            gone: None,
            n_relapses: 0,
            is_ready: false,
        });
        if arrival.kind == "DELETED" {
            course.gone = Some(at);
            return;
        }
        let is_ready = pod.condition("Ready") == Some("True");
        let is_leaving = !pod.0["metadata"]["deletionTimestamp"].is_null();
        if is_ready {
            course.ready.get_or_insert(at);
        } else if course.is_ready && !is_leaving {
            course.n_relapses += 1;
        }
        course.is_ready = is_ready;
    }

    /// The courses of the pods whose name begins like this.
    pub(super) fn of(&self, prefix: &str) -> Vec<Course> {
        self.courses
            .iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .map(|(_, course)| *course)
            .collect()
    }

    pub(super) fn n_relapses(&self) -> usize {
        self.courses.values().map(|course| course.n_relapses).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_course_keeps_the_first_ready_the_relapses_and_the_end() {
        let began = Instant::now();
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
        let steps = [
            (1, "ADDED", json!(null), ready("False")),
            (3, "MODIFIED", json!(null), ready("True")),
            (4, "MODIFIED", json!(null), ready("False")),
            (5, "MODIFIED", json!(null), ready("True")),
            (6, "MODIFIED", json!("2026-01-01T00:00:00Z"), ready("False")),
            (7, "DELETED", json!("2026-01-01T00:00:00Z"), ready("False")),
        ];
        let mut record = Record::default();
        for (second, kind, leaving, conditions) in steps {
            record.take(Arrival {
                at: after(second),
                kind: kind.to_owned(),
                object: json!({
                    "metadata": {"name": "burst-1", "deletionTimestamp": leaving},
                    "status": {"conditions": conditions},
                }),
            });
        }
        assert!(record.of("rate-").is_empty());
        let course = record.of("burst-")[0];
        assert_eq!(course.appeared, after(1));
        assert_eq!((course.ready, course.gone), (Some(after(3)), Some(after(7))));
        assert_eq!(record.n_relapses(), 1);
    }
}

//! How many volumes pods should have and how many they have, by plugin: upstream's
//! `volume_manager_total_volumes`, read from the table when somebody asks.
//!
//! What is taken away from a pod is wanted no more from the first attempt on, and is there until the
//! last one succeeds. Refuses: names of volumes as labels.

use std::collections::BTreeMap;

use ferrolet_ports::{Measured, Sample, metrics::VOLUME_MANAGER_TOTAL_VOLUMES};

use crate::{VolumeEngine, state::VolumeState, table::VolumeTable};

impl Measured for VolumeEngine {
    fn samples(&self) -> Vec<Sample> {
        count(&self.table)
    }
}

fn count(table: &VolumeTable) -> Vec<Sample> {
    let mut counted: BTreeMap<(String, &str), u32> = BTreeMap::new();
    table.for_each(|_, _, row| {
        // Nobody has looked at it yet.
        if row.plugin.is_empty() {
            return;
        }
        let states = [
            (row.state.progress().published().is_some(), "actual_state_of_world"),
            (!matches!(row.state, VolumeState::Releasing(_)), "desired_state_of_world"),
        ];
        for (_, state) in states.into_iter().filter(|(holds, _)| *holds) {
            *counted.entry((row.plugin.clone(), state)).or_default() += 1;
        }
    });
    let samples = counted.into_iter().map(|((plugin, state), n)| {
        VOLUME_MANAGER_TOTAL_VOLUMES.sample([&plugin, state], f64::from(n))
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        plan::plan_pod,
        tests::{allocatable, pod},
    };

    #[test]
    fn volumes_are_counted_as_wanted_and_as_there() {
        let table = VolumeTable::default();
        let check = |expected: &[(&str, &str, f64)]| {
            let shown = count(&table);
            let shown: Vec<(&str, &str, f64)> = shown
                .iter()
                .map(|it| (it.labels[0].as_str(), it.labels[1].as_str(), it.value.total()))
                .collect();
            assert_eq!(shown, expected);
        };
        let want = |uid: &str| {
            let volumes = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]);
            let pod = pod(volumes, json!({"metadata": {"uid": uid}}));
            let plan = plan_pod(&pod, &allocatable());
            let uid = plan.uid.clone();
            table.want(Arc::new(plan));
            uid
        };
        let (actual, desired) = ("actual_state_of_world", "desired_state_of_world");
        check(&[]);
        let (first, second) = (want("1"), want("2"));
        table.note_plugin(&first, "a", "secret".to_owned());
        table.note_plugin(&first, "b", "nfs".to_owned());
        table.note_plugin(&second, "a", "secret".to_owned());
        table.succeeded(&first, "a");
        // It is made again, and nobody counts it twice.
        want("1");
        table.note_plugin(&first, "a", "secret".to_owned());
        let all = [("nfs", desired, 1.0), ("secret", actual, 1.0), ("secret", desired, 2.0)];
        check(&all);
        table.begin_release(&first);
        check(&[("secret", actual, 1.0), ("secret", desired, 1.0)]);
        table.forget(&first);
        check(&[("secret", desired, 1.0)]);
        table.succeeded(&first, "a");
        check(&[("secret", desired, 1.0)]);
    }
}

//! How often drivers are to be asked how many volumes a node takes: one field of the cluster's
//! `CSIDriver` objects.
//!
//! In: a watch on those objects. Out: the periods by driver, in a `watch` channel; drivers without
//! one are not in it. Keeps nothing else of the objects.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::storage::v1::CSIDriver;
use tokio::sync::{mpsc, watch as latest};

use crate::{
    client::Client,
    watch::{self, Scope, WatchEvent},
};

/// Longer than this is never; a number without bound has no place on a clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Periods by driver.
pub type Periods = BTreeMap<String, Duration>;

/// Follows the objects until the task is dropped.
pub async fn run(client: Client, periods: latest::Sender<Periods>) {
    let (sink, mut events) = mpsc::channel(16);
    let feed = async {
        while let Some(event) = events.recv().await {
            periods.send_if_modified(|known| apply(known, event));
        }
    };
    tokio::join!(watch::run::<CSIDriver>(client, Scope::default(), sink), feed);
}

/// Takes one event in; `true` when it changed something.
fn apply(known: &mut Periods, event: WatchEvent<CSIDriver>) -> bool {
    let before = known.clone();
    match event {
        WatchEvent::Restarted { objects, unreadable } => {
            known.retain(|name, _| unreadable.iter().any(|it| it.name == *name));
            known.extend(objects.iter().filter_map(period));
        }
        WatchEvent::Applied(driver) => match period(&driver) {
            Some((name, period)) => drop(known.insert(name, period)),
            None => drop(known.remove(&name_of(&driver))),
        },
        WatchEvent::Deleted(driver) => drop(known.remove(&name_of(&driver))),
    }
    *known != before
}

fn period(driver: &CSIDriver) -> Option<(String, Duration)> {
    let seconds = driver.spec.node_allocatable_update_period_seconds?;
    let seconds = u64::try_from(seconds).ok().filter(|it| *it > 0)?;
    Some((name_of(driver), Duration::from_secs(seconds).min(LONGEST)))
}

fn name_of(driver: &CSIDriver) -> String {
    driver.metadata.name.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_drivers_with_a_period_are_kept() {
        let driver = |name: &str, seconds: Option<i64>| -> CSIDriver {
            let spec = json!({"nodeAllocatableUpdatePeriodSeconds": seconds});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
        };
        let mut known = Periods::new();
        let mut check = |event, is_news: bool, expected: &[(&str, u64)]| {
            assert_eq!(apply(&mut known, event), is_news);
            let found: Vec<(&str, u64)> =
                known.iter().map(|(name, it)| (name.as_str(), it.as_secs())).collect();
            assert_eq!(found, expected);
        };
        let all = vec![driver("a", Some(10)), driver("b", None), driver("c", Some(0))];
        check(WatchEvent::Restarted { objects: all, unreadable: Vec::new() }, true, &[("a", 10)]);
        check(WatchEvent::Applied(driver("a", Some(10))), false, &[("a", 10)]);
        check(WatchEvent::Applied(driver("b", Some(20))), true, &[("a", 10), ("b", 20)]);
        check(WatchEvent::Applied(driver("a", None)), true, &[("b", 20)]);
        check(WatchEvent::Deleted(driver("b", Some(20))), true, &[]);
    }
}

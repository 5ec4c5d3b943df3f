//! Which remains go. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ferrolet_ports::{ListedContainer, ListedState, RuntimeListing};
use ferrolet_types::{ContainerId, ContainerName, PodUid, Timestamp};

/// How many dead containers the node keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Younger ones stay.
    pub minimum_age: Duration,
    /// Of each container of a pod; `None` for any number.
    pub per_container: Option<usize>,
    /// On the whole node; `None` for any number.
    pub in_all: Option<usize>,
}

/// A container that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dead {
    pub(super) id: ContainerId,
    /// Nobody knows whether it still runs: it is stopped first.
    pub(super) is_unknown: bool,
}

/// Dead containers beyond the limits, the oldest first. Pods that are not known are their workers'
/// business.
pub(super) fn excess(
    policy: &Policy,
    listing: &RuntimeListing,
    known: &BTreeSet<PodUid>,
    now: Timestamp,
) -> Vec<Dead> {
    let mut units: BTreeMap<(&PodUid, &ContainerName), Vec<&ListedContainer>> = BTreeMap::new();
    for container in &listing.containers {
        let is_dead = match container.state {
            ListedState::Exited | ListedState::Unknown => true,
            // One that was made is about to be started, or removed by who made it.
            ListedState::Created | ListedState::Running => false,
        };
        let age = container.created_at.map_or(Duration::MAX, |at| now.since(at));
        if is_dead && age >= policy.minimum_age && known.contains(&container.uid) {
            let unit = units.entry((&container.uid, &container.name)).or_default();
            unit.push(container);
        }
    }
    for unit in units.values_mut() {
        unit.sort_by_key(|it| std::cmp::Reverse((it.created_at, it.id.clone())));
    }
    let mut removed = Vec::new();
    if let Some(limit) = policy.per_container {
        shorten(&mut units, limit, &mut removed);
    }
    if let Some(limit) = policy.in_all {
        let n_dead = |units: &BTreeMap<_, Vec<_>>| units.values().map(Vec::len).sum::<usize>();
        if n_dead(&units) > limit {
            let share = (limit / units.len().max(1)).max(1);
            shorten(&mut units, share, &mut removed);
        }
        if n_dead(&units) > limit {
            let mut rest: Vec<&ListedContainer> = units.into_values().flatten().collect();
            rest.sort_by_key(|it| std::cmp::Reverse((it.created_at, it.id.clone())));
            removed.extend(rest.split_off(limit));
        }
    }
    removed.sort_by_key(|it| (it.created_at, it.id.clone()));
    removed
        .into_iter()
        .map(|it| Dead { id: it.id.clone(), is_unknown: it.state == ListedState::Unknown })
        .collect()
}

/// Dead containers that a node gives up when it runs short: every one of the pods that have ended,
/// and of those that live what is beyond the limits.
pub(super) fn remains(
    policy: &Policy,
    listing: &RuntimeListing,
    (living, ended): (&BTreeSet<PodUid>, &BTreeSet<PodUid>),
    now: Timestamp,
) -> Vec<Dead> {
    let everything = Policy { per_container: Some(0), ..*policy };
    let mut all = excess(&everything, listing, ended, now);
    all.extend(excess(policy, listing, living, now));
    all
}

fn shorten<'a, K>(
    units: &mut BTreeMap<K, Vec<&'a ListedContainer>>,
    limit: usize,
    removed: &mut Vec<&'a ListedContainer>,
) {
    for unit in units.values_mut() {
        if unit.len() > limit {
            removed.extend(unit.split_off(limit));
        }
    }
}

/// Links that go: their log is gone and their container has ended, or is gone as well.
pub(super) fn dead_links(dangling: Vec<String>, listing: &RuntimeListing) -> Vec<String> {
    let living: BTreeSet<&str> = listing
        .containers
        .iter()
        .filter(|it| it.state != ListedState::Exited)
        .map(|it| it.id.as_str())
        .collect();
    let is_dead = |name: &String| {
        let stem = name.strip_suffix(".log").unwrap_or(name);
        let id = stem.rsplit('-').next().unwrap_or_default();
        !living.contains(id)
    };
    dangling.into_iter().filter(is_dead).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

//! One hint out of those of all providers, as the topology policy wants it.
//!
//! Upstream tries every combination of one hint from each provider, cuts their nodes and keeps the
//! best. What is best does not depend on the order, so it is enough to know which cuts are possible:
//! a preferred one is a set of nodes that every provider prefers, and the others come out of a
//! convolution over sets of nodes. With eight nodes and three resources that is thousands of steps
//! instead of sixteen million.

use std::collections::BTreeSet;

use super::{NumaMask, ProviderHints, TopologyHint, TopologyPolicy, TopologyRules};

/// Above this many nodes sets are too many to be laid out, and combinations are tried.
const DENSE_NODES: usize = 16;

/// The best hint of all providers together, and whether the policy takes a pod with it.
pub fn merge(rules: &TopologyRules, providers: &[ProviderHints]) -> (TopologyHint, bool) {
    let lists = by_resource(providers);
    match rules.policy {
        // Upstream asks nobody under this policy.
        TopologyPolicy::None => (TopologyHint::default(), true),
        TopologyPolicy::BestEffort => (best(rules, &lists), true),
        TopologyPolicy::Restricted => {
            let hint = best(rules, &lists);
            (hint, hint.is_preferred)
        }
        TopologyPolicy::SingleNumaNode => {
            let lists: Vec<Vec<TopologyHint>> = lists.iter().map(|it| single_nodes(it)).collect();
            let mut hint = best(rules, &lists);
            // All nodes are as good as any.
            hint.nodes = hint.nodes.filter(|nodes| *nodes != rules.all());
            (hint, hint.is_preferred)
        }
    }
}

/// One list for each resource; a provider without any opinion has one list too.
fn by_resource(providers: &[ProviderHints]) -> Vec<Vec<TopologyHint>> {
    let anywhere = |is_preferred| vec![TopologyHint { nodes: None, is_preferred }];
    let mut lists = Vec::new();
    for hints in providers {
        if hints.is_empty() {
            lists.push(anywhere(true));
        }
        lists.extend(hints.values().map(|hints| match hints {
            None => anywhere(true),
            Some(none) if none.is_empty() => anywhere(false),
            Some(some) => some.clone(),
        }));
    }
    lists
}

fn single_nodes(hints: &[TopologyHint]) -> Vec<TopologyHint> {
    let is_single =
        |it: &&TopologyHint| it.is_preferred && it.nodes.is_none_or(|nodes| nodes.count() == 1);
    hints.iter().filter(is_single).copied().collect()
}

fn best(rules: &TopologyRules, lists: &[Vec<TopologyHint>]) -> TopologyHint {
    if let Some(nodes) = best_preferred(rules, lists) {
        return TopologyHint { nodes: Some(nodes), is_preferred: true };
    }
    let wished = lists.iter().filter_map(|list| {
        let counts = list.iter().filter_map(|hint| hint.nodes).map(NumaMask::count);
        counts.min()
    });
    let wished = wished.max().unwrap_or(0);
    let possible = possible_cuts(rules.all(), lists).into_iter().filter(|it| !it.is_empty());
    let nodes = possible.min_by(|one, two| {
        let rank = |nodes: NumaMask| match nodes.count() {
            count if count == wished => (0, 0),
            // Too few is better than too many; the most of those that are too few.
            count if count < wished => (1, wished - count),
            _ => (2, 0),
        };
        rank(*one).cmp(&rank(*two)).then_with(|| rules.compare(*one, *two))
    });
    TopologyHint { nodes: Some(nodes.unwrap_or(rules.all())), is_preferred: false }
}

/// The best set of nodes that every provider prefers, or does not care about.
fn best_preferred(rules: &TopologyRules, lists: &[Vec<TopologyHint>]) -> Option<NumaMask> {
    /// What one list prefers.
    struct Preferred {
        anywhere: bool,
        nodes: BTreeSet<NumaMask>,
    }
    let preferred = |list: &Vec<TopologyHint>| {
        let preferred = list.iter().filter(|hint| hint.is_preferred);
        let anywhere = preferred.clone().any(|hint| hint.nodes.is_none());
        Preferred { anywhere, nodes: preferred.filter_map(|hint| hint.nodes).collect() }
    };
    let lists: Vec<Preferred> = lists.iter().map(preferred).collect();
    let suits = |nodes: &NumaMask| lists.iter().all(|it| it.anywhere || it.nodes.contains(nodes));
    let all = rules.all();
    let anywhere = lists.iter().all(|it| it.anywhere).then_some(all);
    let named = lists.iter().flat_map(|it| &it.nodes).copied().filter(suits);
    let cuts = named.map(|nodes| nodes.and(all)).chain(anywhere).filter(|it| !it.is_empty());
    cuts.min_by(|one, two| rules.compare(*one, *two))
}

/// Every set of nodes that remains of one hint from each list.
fn possible_cuts(all: NumaMask, lists: &[Vec<TopologyHint>]) -> BTreeSet<NumaMask> {
    let nodes: Vec<u32> = all.iter().collect();
    let mut reached = BTreeSet::from([all]);
    for list in lists {
        let given: BTreeSet<NumaMask> =
            list.iter().map(|hint| hint.nodes.unwrap_or(all).and(all)).collect();
        let n_dense = (1_usize << nodes.len().min(DENSE_NODES)) * nodes.len().max(1) * 3;
        reached = match nodes.len() <= DENSE_NODES && reached.len() * given.len() > n_dense {
            true => convolve(&nodes, &reached, &given),
            false => {
                let pairs = reached.iter().flat_map(|one| given.iter().map(|two| one.and(*two)));
                pairs.collect()
            }
        };
    }
    reached
}

/// The cuts of all pairs: sets of nodes are counted by what they contain, the counts multiplied, and
/// the counting undone.
fn convolve(
    nodes: &[u32],
    one: &BTreeSet<NumaMask>,
    two: &BTreeSet<NumaMask>,
) -> BTreeSet<NumaMask> {
    let index = |mask: &NumaMask| {
        let bits = nodes.iter().enumerate().filter(|(_, node)| mask.contains(**node));
        bits.fold(0_usize, |index, (bit, _)| index | 1 << bit)
    };
    let size = 1_usize << nodes.len();
    let supersets = |masks: &BTreeSet<NumaMask>| {
        let mut counts = vec![0_i64; size];
        masks.iter().for_each(|mask| counts[index(mask)] = 1);
        for bit in 0..nodes.len() {
            for at in (0..size).filter(|at| at & (1 << bit) == 0) {
                counts[at] += counts[at | 1 << bit];
            }
        }
        counts
    };
    let mut counts: Vec<i64> =
        supersets(one).iter().zip(supersets(two)).map(|(one, two)| one * two).collect();
    for bit in 0..nodes.len() {
        for at in (0..size).filter(|at| at & (1 << bit) == 0) {
            counts[at] -= counts[at | 1 << bit];
        }
    }
    let reached = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let mask = |at: usize| {
        let chosen = nodes.iter().enumerate().filter(|(bit, _)| at & (1 << bit) != 0);
        chosen.map(|(_, node)| *node).collect()
    };
    reached.map(|(at, _)| mask(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(bits: u64) -> NumaMask {
        NumaMask::from_bits(bits)
    }

    #[test]
    fn cuts_by_convolution_are_those_of_all_pairs() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let nodes: Vec<u32> = (0..12).filter(|_| random.bool()).take(6).collect();
            let all: NumaMask = nodes.iter().copied().collect();
            let mut masks = || -> BTreeSet<NumaMask> {
                (0..random.usize(1..40)).map(|_| mask(random.u64(..)).and(all)).collect()
            };
            let (one, two) = (masks(), masks());
            let pairs = one.iter().flat_map(|a| two.iter().map(|b| a.and(*b)));
            assert_eq!(convolve(&nodes, &one, &two), pairs.collect());
        }
    }
}

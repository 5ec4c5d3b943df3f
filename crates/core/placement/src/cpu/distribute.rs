//! Which processors to take when they shall be spread evenly over NUMA nodes.
//!
//! In: as for [`take_packed`], and the size of groups that stay together. Out: the chosen ones. The
//! fewest nodes that can share the request evenly are looked for; among those the ones after which
//! the machine is used most evenly, and what does not divide goes where it disturbs that least. The
//! same choice as upstream's `takeByTopologyNUMADistributed`, but for combinations of four or more
//! nodes out of a larger number: there upstream overwrites the combination that it has chosen
//! (ADR 0041).

use std::collections::BTreeMap;

use super::{CacheAlignment, CpuLayout, CpuOrder, CpuSet, TakeError, take::Taking, take_packed};

/// How processors are to be spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Processors that stay together: those of a core, or one.
    pub group: usize,
    /// In which order single ones are taken.
    pub order: CpuOrder,
    /// Nodes of one socket are preferred to nodes of several.
    pub is_aligned_by_socket: bool,
}

/// A choice of nodes.
struct Combination {
    nodes: Vec<u32>,
    /// Those of them that what does not divide is taken from.
    remainder: Vec<u32>,
    /// How unevenly the machine is used afterwards.
    imbalance: f64,
    is_in_one_socket: bool,
}

/// Takes `n` of the free processors, spread over NUMA nodes.
pub fn take_distributed(
    layout: &CpuLayout,
    free: &CpuSet,
    n: usize,
    how: Distribution,
) -> Result<CpuSet, TakeError> {
    let packed =
        |free: &CpuSet, n| take_packed(layout, free, n, how.order, CacheAlignment::Ignored);
    if how.group == 0 || !n.is_multiple_of(how.group) {
        return packed(free, n);
    }
    let mut taking = Taking::new(layout, free, n);
    if taking.is_done() {
        return Ok(taking.taken);
    }
    if n > taking.free.len() {
        return Err(TakeError::TooFew { requested: n, available: free.len() });
    }
    let search = Search::new(layout, &taking, n, how);
    let Some(best) = search.best() else {
        return packed(free, n);
    };
    let share = search.share(&best.nodes, Clamp::Always);
    let node = |taking: &Taking<'_>, id: &u32| {
        layout.nodes.get(id).map(|it| it.intersection(&taking.free)).unwrap_or_default()
    };
    for id in &best.nodes {
        let cpus = packed(&node(&taking, id), share).unwrap_or_default();
        taking.take(&cpus);
    }
    while !taking.is_done() {
        let before = taking.n_wanted;
        for id in &best.remainder {
            let here = node(&taking, id);
            if taking.is_done() || here.len() < how.group {
                continue;
            }
            taking.take(&packed(&here, how.group).unwrap_or_default());
        }
        // Nothing more to be had this way.
        if taking.n_wanted == before {
            return packed(free, n);
        }
    }
    Ok(taking.taken)
}

/// When a share is cut to what the poorest node has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clamp {
    Always,
    ForSockets,
}

struct Search<'a> {
    layout: &'a CpuLayout,
    n: usize,
    how: Distribution,
    /// Nodes with something free, in the order in which they are tried.
    nodes: Vec<u32>,
    /// How much is free on each.
    n_free: BTreeMap<u32, usize>,
}

impl<'a> Search<'a> {
    fn new(layout: &'a CpuLayout, taking: &Taking<'_>, n: usize, how: Distribution) -> Self {
        let nodes = taking.nodes();
        let free_on = |id: &u32| layout.nodes.get(id).map_or(0, |it| it.n_common(&taking.free));
        let n_free = nodes.iter().map(|id| (*id, free_on(id))).collect();
        Self { layout, n, how, nodes, n_free }
    }

    /// The best combination of the fewest nodes that can share the request.
    fn best(&self) -> Option<Combination> {
        let group = self.how.group;
        let n_groups = self.layout.all.len().div_ceil(group);
        let per_node = n_groups.div_ceil(self.layout.nodes.len().max(1)).max(1);
        let needed = self.n.div_ceil(group);
        let fewest = needed.div_ceil(per_node);
        let most = needed.min(self.nodes.len());
        (fewest..=most).find_map(|size| self.best_of_size(size))
    }

    fn best_of_size(&self, size: usize) -> Option<Combination> {
        let mut best: Option<Combination> = None;
        combinations(&self.nodes, size, &mut |nodes| {
            let by_socket = self.how.is_aligned_by_socket;
            let is_perfect =
                |it: &Combination| it.imbalance == 0.0 && (!by_socket || it.is_in_one_socket);
            if best.as_ref().is_some_and(is_perfect) {
                return Walk::Stop;
            }
            if let Some(found) = self.rate(nodes) {
                let was_in_one = best.as_ref().is_some_and(|it| it.is_in_one_socket);
                let is_better = match by_socket && found.is_in_one_socket != was_in_one {
                    true => found.is_in_one_socket,
                    false => best.as_ref().is_none_or(|it| found.imbalance < it.imbalance),
                };
                if is_better && found.imbalance < f64::MAX {
                    best = Some(found);
                }
            }
            Walk::On
        });
        best
    }

    /// How well these nodes share the request; `None` when they cannot.
    fn rate(&self, nodes: &[u32]) -> Option<Combination> {
        let group = self.how.group;
        let free = |id: &u32| self.n_free.get(id).copied().unwrap_or(0);
        let n_groups: usize = nodes.iter().map(|id| free(id) / group).sum();
        if n_groups * group < self.n {
            return None;
        }
        let share = self.share(nodes, Clamp::ForSockets);
        if nodes.iter().any(|id| free(id) < share) {
            return None;
        }
        let mut left = self.n_free.clone();
        for id in nodes {
            left.entry(*id).and_modify(|it| *it -= share);
        }
        let remainder = self.n - share * nodes.len();
        let (imbalance, chosen) = match remainder {
            0 => (deviation(left.values().copied()), Vec::new()),
            _ => self.spread_remainder(nodes, &left, remainder),
        };
        let is_in_one_socket = self.how.is_aligned_by_socket
            && self.layout.sockets_of_nodes(nodes.iter().copied()).len() <= 1;
        Some(Combination { nodes: nodes.to_vec(), remainder: chosen, imbalance, is_in_one_socket })
    }

    /// Which of the nodes what does not divide is taken from, the most of them first.
    fn spread_remainder(
        &self,
        nodes: &[u32],
        left: &BTreeMap<u32, usize>,
        remainder: usize,
    ) -> (f64, Vec<u32>) {
        let group = self.how.group;
        let has_some = |id: &&u32| left.get(*id).is_some_and(|it| *it >= group);
        let candidates: Vec<u32> = nodes.iter().filter(has_some).copied().collect();
        let mut best = (f64::MAX, Vec::new());
        for size in (1..=candidates.len()).rev() {
            combinations(&candidates, size, &mut |subset| {
                let Some(after) = hand_out(left, subset, remainder, group) else {
                    return Walk::On;
                };
                let imbalance = deviation(after.values().copied());
                if imbalance < best.0 {
                    best = (imbalance, subset.to_vec());
                }
                Walk::On
            });
        }
        best
    }

    /// What each of these nodes gives.
    fn share(&self, nodes: &[u32], clamp: Clamp) -> usize {
        let group = self.how.group;
        let even = self.n / nodes.len().max(1) / group * group;
        if clamp == Clamp::ForSockets && !self.how.is_aligned_by_socket {
            return even;
        }
        let has = |id: &u32| self.n_free.get(id).copied().unwrap_or(0) / group * group;
        nodes.iter().map(has).fold(even, usize::min)
    }
}

/// What is left after the remainder is taken from these nodes in turn; `None` when they have too
/// little.
fn hand_out(
    left: &BTreeMap<u32, usize>,
    from: &[u32],
    mut remainder: usize,
    group: usize,
) -> Option<BTreeMap<u32, usize>> {
    let mut left = left.clone();
    while remainder > 0 {
        let before = remainder;
        for id in from {
            let Some(here) = left.get_mut(id).filter(|it| remainder > 0 && **it >= group) else {
                continue;
            };
            *here -= group;
            remainder = remainder.saturating_sub(group);
        }
        if remainder == before {
            return None;
        }
    }
    Some(left)
}

/// The standard deviation, to three places, as upstream rounds it.
#[expect(clippy::cast_precision_loss, reason = "numbers of processors are small")]
fn deviation(values: impl Iterator<Item = usize> + Clone) -> f64 {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let n = values.clone().count() as f64;
    let mean = round(values.clone().map(|it| it as f64).sum::<f64>() / n);
    let squares = values.map(|it| (it as f64 - mean) * (it as f64 - mean));
    round((squares.sum::<f64>() / n).sqrt())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    On,
    Stop,
}

/// Visits every choice of `size` items, in their order.
fn combinations(items: &[u32], size: usize, visit: &mut dyn FnMut(&[u32]) -> Walk) {
    fn deeper(
        rest: &[u32],
        size: usize,
        chosen: &mut Vec<u32>,
        visit: &mut dyn FnMut(&[u32]) -> Walk,
    ) -> Walk {
        if size == 0 {
            return visit(chosen);
        }
        for (at, item) in rest.iter().enumerate().take((rest.len() + 1).saturating_sub(size)) {
            chosen.push(*item);
            let walk = deeper(&rest[at + 1..], size - 1, chosen, visit);
            chosen.pop();
            if walk == Walk::Stop {
                return Walk::Stop;
            }
        }
        Walk::On
    }
    if size > 0 {
        deeper(items, size, &mut Vec::with_capacity(size), visit);
    }
}

//! What a provider of processors, memory or devices says about NUMA nodes.

use std::collections::BTreeMap;

/// A set of NUMA nodes, one bit each; upstream allows 64 of them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaMask(u64);

impl NumaMask {
    /// No node at all.
    pub const EMPTY: Self = Self(0);

    /// From bits.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// True when the node is in it.
    pub fn contains(self, node: u32) -> bool {
        node < 64 && self.0 & (1 << node) != 0
    }

    /// How many nodes it has.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// True when it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True when all of them are in the other too.
    pub fn is_subset(self, other: Self) -> bool {
        self.0 & other.0 == self.0
    }

    /// Fewer nodes are narrower; among as many, lower numbers are.
    pub fn is_narrower_than(self, other: Self) -> bool {
        (self.count(), self.0) < (other.count(), other.0)
    }

    /// The nodes, ascending.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |node| self.contains(*node))
    }
}

impl FromIterator<u32> for NumaMask {
    /// Nodes that do not fit are left out; a machine with such is refused earlier.
    fn from_iter<T: IntoIterator<Item = u32>>(nodes: T) -> Self {
        Self(nodes.into_iter().filter(|node| *node < 64).fold(0, |bits, node| bits | 1 << node))
    }
}

/// One way in which a request could be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopologyHint {
    /// The NUMA nodes it would come from; `None` for anywhere.
    pub nodes: Option<NumaMask>,
    /// True when there is no better way.
    pub is_preferred: bool,
}

/// What one provider says, by resource.
///
/// No entry at all, and `None` for a resource, mean that it does not matter where that comes from.
/// An empty list means that there is no way at all.
pub type ProviderHints = BTreeMap<String, Option<Vec<TopologyHint>>>;

/// Visits every set of these nodes, the smaller ones first, in the order of the nodes: the order in
/// which upstream makes hints.
pub fn for_each_mask(nodes: &[u32], visit: &mut dyn FnMut(NumaMask)) {
    fn deeper(rest: &[u32], size: usize, mask: u64, visit: &mut dyn FnMut(NumaMask)) {
        if size == 0 {
            visit(NumaMask(mask));
            return;
        }
        for (at, node) in rest.iter().enumerate().take((rest.len() + 1).saturating_sub(size)) {
            deeper(&rest[at + 1..], size - 1, mask | 1 << node, visit);
        }
    }
    let nodes: Vec<u32> = nodes.iter().copied().filter(|node| *node < 64).collect();
    (1..=nodes.len()).for_each(|size| deeper(&nodes, size, 0, visit));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_masks_come_first_and_lower_nodes_among_them() {
        let mut seen = Vec::new();
        for_each_mask(&[0, 2, 3], &mut |mask| seen.push(mask.iter().collect::<Vec<_>>()));
        let expected: [&[u32]; 7] = [&[0], &[2], &[3], &[0, 2], &[0, 3], &[2, 3], &[0, 2, 3]];
        assert_eq!(seen, expected);
        for_each_mask(&[], &mut |_| panic!("there is none"));
    }

    #[test]
    fn fewer_nodes_are_narrower_and_lower_ones_among_as_many() {
        let mask = |nodes: &[u32]| nodes.iter().copied().collect::<NumaMask>();
        assert!(mask(&[7]).is_narrower_than(mask(&[0, 1])));
        assert!(mask(&[0, 2]).is_narrower_than(mask(&[1, 2])));
        assert!(!mask(&[1]).is_narrower_than(mask(&[1])));
        assert!(mask(&[1]).is_subset(mask(&[0, 1])) && !mask(&[2]).is_subset(mask(&[0, 1])));
        assert!(!mask(&[64, 65]).contains(64) && mask(&[64]).is_empty());
    }
}

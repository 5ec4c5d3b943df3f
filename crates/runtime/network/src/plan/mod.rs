//! What a pod's network is made of, as values: no socket, no clock, no file.
//!
//! ```text
//!  ranges, records ─► pool ─► addresses ─┐
//!  ports ────────────► taken? ───────────┼─► PodPlan ─► links, neighbours, routes; elements of the packet filter
//!  annotations ──────► bandwidth ────────┘
//!  wanted, present ──► difference ─► what to add, what to take away
//! ```

pub(crate) mod bandwidth;
pub(crate) mod elements;
pub(crate) mod names;
pub(crate) mod pod;
pub(crate) mod pool;
pub(crate) mod ports;
pub(crate) mod range;

use std::collections::BTreeSet;

/// What to do so that what is becomes what should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference<T> {
    pub(crate) missing: Vec<T>,
    pub(crate) left_over: Vec<T>,
}

/// Compares what should be with what is.
pub(crate) fn difference<T: Ord + Clone>(
    wanted: &BTreeSet<T>,
    present: &BTreeSet<T>,
) -> Difference<T> {
    Difference {
        missing: wanted.difference(present).cloned().collect(),
        left_over: present.difference(wanted).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_already_is_left_alone() {
        let found = difference(&BTreeSet::from([1, 2, 3]), &BTreeSet::from([2, 3, 4]));
        assert_eq!(found, Difference { missing: vec![1], left_over: vec![4] });
    }
}

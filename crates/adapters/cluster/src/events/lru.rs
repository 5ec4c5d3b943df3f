//! A map that forgets what was used longest ago once it is full. Pure.

use std::collections::HashMap;

/// The map; keys are hashes, so that an entry's size does not depend on what it is about.
#[derive(Debug)]
pub(super) struct Lru<V> {
    entries: HashMap<u64, (u64, V)>,
    limit: usize,
    uses: u64,
}

impl<V> Lru<V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: HashMap::new(), limit, uses: 0 }
    }

    pub(super) fn get(&mut self, key: u64) -> Option<&mut V> {
        self.uses += 1;
        let (used, value) = self.entries.get_mut(&key)?;
        *used = self.uses;
        Some(value)
    }

    pub(super) fn insert(&mut self, key: u64, value: V) {
        self.uses += 1;
        self.entries.insert(key, (self.uses, value));
        if self.entries.len() > self.limit {
            self.forget();
        }
    }

    /// Drops an eighth at once: looking for the oldest costs a walk over all.
    fn forget(&mut self) {
        let mut uses: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
        uses.sort_unstable();
        let oldest_kept = uses[self.limit / 8];
        self.entries.retain(|_, (used, _)| *used >= oldest_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut map = Lru::new(8);
        for key in 0..8 {
            map.insert(key, key);
        }
        assert_eq!(map.get(0), Some(&mut 0));
        map.insert(8, 8);
        assert_eq!(map.get(1), None);
        assert_eq!(map.get(0), Some(&mut 0));
        assert_eq!(map.get(8), Some(&mut 8));
        for key in 0..1000 {
            map.insert(key, key);
            assert!(map.entries.len() <= 8);
        }
    }
}

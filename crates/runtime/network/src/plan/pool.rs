//! Which addresses are given, and which is next.
//!
//! Nothing of this is stored: after a restart the pool is made again from the records of sandboxes. The next address is
//! the next free one after the last given, and one that was freed lately waits: connections to its former pod, and
//! neighbours' memories of it, must not find another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;

use super::range::{Range, number};

/// How long an address that was freed is given to nobody.
pub(crate) const REST: Duration = Duration::from_secs(30);

/// There is no address for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PoolError {
    /// Nobody said which addresses pods have.
    #[error("no pod CIDR is known yet")]
    NoRange,
    /// All are in use or were until a moment ago.
    #[error("no free address in {0}")]
    Full(Range),
}

/// The addresses of a node's pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    ranges: Vec<Range>,
    used: BTreeSet<IpAddr>,
    /// When, since the pool was made.
    freed: BTreeMap<IpAddr, Duration>,
    /// The last given of each range.
    last: BTreeMap<Range, u128>,
}

impl Pool {
    pub(crate) fn new(ranges: &[Range]) -> Self {
        Self { ranges: ranges.to_vec(), ..Self::default() }
    }

    pub(crate) fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// The ranges, and every address in use that was given from others before.
    pub(crate) fn of_pods(&self) -> Vec<Range> {
        let is_known = |it: &IpAddr| self.ranges.iter().any(|range| range.contains(*it));
        let others = self.used.iter().filter(|it| !is_known(it)).map(|it| Range::only(*it));
        self.ranges.iter().copied().chain(others).collect()
    }

    /// From now on addresses come from these ranges; what was given stays given.
    pub(crate) fn set_ranges(&mut self, ranges: &[Range]) {
        self.ranges = ranges.to_vec();
    }

    /// Notes an address that a sandbox has, by its record. The last one noted counts as the last given.
    pub(crate) fn note(&mut self, address: IpAddr) {
        self.used.insert(address);
        self.freed.remove(&address);
        for range in self.ranges.iter().filter(|it| it.contains(address)) {
            self.last.insert(*range, number(address));
        }
    }

    /// Gives an address of each range, or none at all.
    pub(crate) fn give(&mut self, now: Duration) -> Result<Vec<IpAddr>, PoolError> {
        self.freed.retain(|_, at| now < at.saturating_add(REST));
        if self.ranges.is_empty() {
            return Err(PoolError::NoRange);
        }
        let free = |range: &Range| self.next(range).ok_or(PoolError::Full(*range));
        let given: Vec<IpAddr> = self.ranges.iter().map(free).collect::<Result<_, _>>()?;
        given.iter().for_each(|address| self.note(*address));
        Ok(given)
    }

    fn next(&self, range: &Range) -> Option<IpAddr> {
        let (first, last) = range.pods()?;
        let after = self.last.get(range).map_or(first, |it| it.saturating_add(1));
        let after = if (first..=last).contains(&after) { after } else { first };
        let mut in_turn = (after..=last).chain(first..after).map(|it| range.address(it));
        // At most as many are passed over as are used or rest.
        in_turn.find(|it| !self.used.contains(it) && !self.freed.contains_key(it))
    }

    /// Takes addresses back.
    pub(crate) fn take_back(&mut self, addresses: &[IpAddr], now: Duration) {
        for address in addresses {
            if self.used.remove(address) {
                self.freed.insert(*address, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn pool(ranges: &[&str]) -> Pool {
        Pool::new(&ranges.iter().map(|it| it.parse().unwrap()).collect::<Vec<_>>())
    }

    fn give(pool: &mut Pool, now: u64) -> Result<String, PoolError> {
        let given = pool.give(seconds(now))?;
        Ok(given.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_range_gives_one_after_the_other() {
        let mut both = pool(&["10.88.0.0/24", "fd00::/64"]);
        assert_eq!(give(&mut both, 0).unwrap(), "10.88.0.2 fd00::2");
        assert_eq!(give(&mut both, 0).unwrap(), "10.88.0.3 fd00::3");
    }

    #[test]
    fn what_was_freed_rests_and_comes_back_in_its_turn() {
        let mut small = pool(&["10.88.0.0/29"]);
        let five: Vec<String> = (0..5).map(|_| give(&mut small, 0).unwrap()).collect();
        assert_eq!(five.last().unwrap(), "10.88.0.6");
        let full = PoolError::Full("10.88.0.0/29".parse().unwrap());
        assert_eq!(give(&mut small, 0), Err(full.clone()));
        small.take_back(&["10.88.0.3".parse().unwrap()], seconds(10));
        assert_eq!(give(&mut small, 39), Err(full));
        assert_eq!(give(&mut small, 40).unwrap(), "10.88.0.3");
        // What nobody had cannot come back.
        small.take_back(&["10.88.0.77".parse().unwrap()], seconds(40));
        assert!(give(&mut small, 100).is_err());
    }

    #[test]
    fn after_a_restart_records_say_what_is_given() {
        let mut again = pool(&["10.88.0.0/24"]);
        for address in ["10.88.0.9", "10.88.0.4", "10.88.0.5"] {
            again.note(address.parse().unwrap());
        }
        assert_eq!(give(&mut again, 0).unwrap(), "10.88.0.6");
    }

    #[test]
    fn another_range_takes_nothing_away() {
        let mut moved = pool(&["10.88.0.0/24"]);
        assert_eq!(give(&mut moved, 0).unwrap(), "10.88.0.2");
        moved.set_ranges(&["10.99.0.0/24".parse().unwrap()]);
        assert_eq!(give(&mut moved, 0).unwrap(), "10.99.0.2");
        let all: Vec<String> = moved.of_pods().iter().map(ToString::to_string).collect();
        assert_eq!(all, ["10.99.0.0/24", "10.88.0.2/32"]);
        assert_eq!(pool(&[]).give(seconds(0)), Err(PoolError::NoRange));
    }
}

//! Whose turn it is to pull. Pure.
//!
//! Two limits: so many pulls at once, and so many from one registry. A free place goes to the
//! registry with the fewest pulls under way, among equals to the one that has not had a turn for
//! longest, and within a registry to who came first. So a registry that is slow, or asked for a
//! hundred images, delays itself and nobody else.

use std::collections::{BTreeMap, VecDeque};

/// How many pulls may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullLimits {
    /// At once.
    pub at_once: usize,
    /// At once from one registry.
    pub per_registry: usize,
}

impl PullLimits {
    /// One after the other, whatever the registry.
    pub const SERIAL: Self = Self { at_once: 1, per_registry: 1 };
    /// One after the other from each registry, several registries side by side.
    pub const SERIAL_PER_REGISTRY: Self = Self { at_once: 8, per_registry: 1 };
    /// As many as are asked for.
    pub const NONE: Self = Self { at_once: usize::MAX, per_registry: usize::MAX };

    /// So many at once; where there are several places, one registry cannot have them all.
    pub fn at_most(n: usize) -> Self {
        Self { at_once: n.max(1), per_registry: n.saturating_sub(1).max(1) }
    }
}

/// Somebody in line.
pub(super) type Ticket = u64;

/// The line.
#[derive(Debug)]
pub(super) struct Turns {
    limits: PullLimits,
    running: BTreeMap<String, usize>,
    waiting: BTreeMap<String, VecDeque<Ticket>>,
    /// When a registry last had a turn, counted in turns; only of registries that wait.
    last_turn: BTreeMap<String, u64>,
    n_turns: u64,
    next_ticket: Ticket,
}

impl Turns {
    pub(super) fn new(limits: PullLimits) -> Self {
        Self {
            limits,
            running: BTreeMap::new(),
            waiting: BTreeMap::new(),
            last_turn: BTreeMap::new(),
            n_turns: 0,
            next_ticket: 0,
        }
    }

    /// Stands in line.
    pub(super) fn join(&mut self, registry: &str) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let line = self.waiting.entry(registry.to_owned()).or_default();
        line.push_back(ticket);
        ticket
    }

    /// Leaves the line without a turn.
    pub(super) fn leave(&mut self, registry: &str, ticket: Ticket) {
        if let Some(line) = self.waiting.get_mut(registry) {
            line.retain(|it| *it != ticket);
        }
        self.tidy(registry);
    }

    /// Ends a turn.
    pub(super) fn finish(&mut self, registry: &str) {
        if let Some(running) = self.running.get_mut(registry) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(registry);
            }
        }
    }

    /// Gives the next turn away, if there is one to give and somebody to take it.
    pub(super) fn next(&mut self) -> Option<(String, Ticket)> {
        if self.running.values().sum::<usize>() >= self.limits.at_once {
            return None;
        }
        let running = |registry: &String| self.running.get(registry).copied().unwrap_or(0);
        let candidates = self.waiting.iter().filter_map(|(registry, line)| {
            let first = line.front()?;
            let n_running = running(registry);
            let last = self.last_turn.get(registry).copied().unwrap_or(0);
            (n_running < self.limits.per_registry)
                .then(|| (n_running, last, *first, registry.clone()))
        });
        let (_, _, ticket, registry) = candidates.min()?;
        self.waiting.get_mut(&registry)?.pop_front();
        *self.running.entry(registry.clone()).or_default() += 1;
        self.n_turns += 1;
        self.last_turn.insert(registry.clone(), self.n_turns);
        self.tidy(&registry);
        Some((registry, ticket))
    }

    /// How many pulls are under way or would come before this one if all went by arrival.
    pub(super) fn ahead_of(&self, ticket: Ticket) -> usize {
        let waiting = self.waiting.values().flatten();
        let earlier = waiting.filter(|it| **it < ticket).count();
        self.running.values().sum::<usize>() + earlier
    }

    /// Forgets a registry that nobody waits for.
    fn tidy(&mut self, registry: &str) {
        if self.waiting.get(registry).is_some_and(VecDeque::is_empty) {
            self.waiting.remove(registry);
            self.last_turn.remove(registry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets everybody of `asked` join, gives out what can be given, then ends the pulls of `done`
    /// one by one.
    fn order(limits: PullLimits, asked: &[&str], done: &[&str]) -> Vec<String> {
        let mut turns = Turns::new(limits);
        let tickets: BTreeMap<Ticket, String> = asked
            .iter()
            .enumerate()
            .map(|(n, registry)| (turns.join(registry), format!("{registry}{n}")))
            .collect();
        let mut given = Vec::new();
        let give = |turns: &mut Turns, given: &mut Vec<String>| {
            while let Some((_, ticket)) = turns.next() {
                given.push(tickets[&ticket].clone());
            }
        };
        give(&mut turns, &mut given);
        for registry in done {
            given.push("|".to_owned());
            turns.finish(registry);
            give(&mut turns, &mut given);
        }
        given
    }

    /// Concurrency; ours takes turns between registries.
    #[test]
    fn registries_take_turns() {
        let asked = ["a", "a", "a", "b", "c"];
        assert_eq!(
            order(PullLimits::SERIAL, &asked, &["a", "b", "c", "a"]),
            ["a0", "|", "b3", "|", "c4", "|", "a1", "|", "a2"]
        );
        assert_eq!(
            order(PullLimits::SERIAL_PER_REGISTRY, &asked, &["b", "a"]),
            ["a0", "b3", "c4", "|", "|", "a1"]
        );
        assert_eq!(order(PullLimits::NONE, &asked, &[]).len(), 5);
    }

    /// Concurrency, a bound for each registry.
    #[test]
    fn one_registry_cannot_have_every_place() {
        let limits = PullLimits::at_most(3);
        assert_eq!(order(limits, &["a", "a", "a", "a"], &["a"]), ["a0", "a1", "|", "a2"]);
        assert_eq!(
            order(limits, &["a", "a", "a", "b", "b"], &["b"]),
            ["a0", "b3", "a1", "|", "b4"]
        );
        assert_eq!(order(PullLimits::at_most(1), &["a", "b"], &["a"]), ["a0", "|", "b1"]);
    }

    #[test]
    fn who_leaves_is_forgotten() {
        let mut turns = Turns::new(PullLimits::SERIAL);
        let (first, second, third) = (turns.join("a"), turns.join("a"), turns.join("b"));
        assert_eq!(turns.next(), Some(("a".to_owned(), first)));
        assert_eq!(turns.ahead_of(third), 2);
        turns.leave("a", second);
        assert_eq!(turns.ahead_of(third), 1);
        turns.finish("a");
        assert_eq!(turns.next(), Some(("b".to_owned(), third)));
        turns.finish("b");
        assert!(turns.running.is_empty() && turns.waiting.is_empty() && turns.last_turn.is_empty());
    }
}

//! How long a new node took to become one, part by part, in upstream's names.
//!
//! ```text
//!  boot ─ pre_kubelet ─► agent starts ─ pre_registration ─► first attempt ─ registration ─► node made ─ post_registration ─► ready
//! ```
//!
//! Kept by the loop of the node. Only a node that this process made has these metrics: one that was
//! there already says nothing about how long nodes take.

use ferrolet_ports::metrics::{self, Gauge};
use ferrolet_types::Timestamp;

use crate::metrics::startup;

/// The moments of a start, as far as they have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    booted: Option<Timestamp>,
    started: Timestamp,
    attempted: Option<Timestamp>,
    made: Option<Timestamp>,
    is_over: bool,
}

/// A part of a start that is over, in seconds.
type Part = (Gauge<0>, f64);

impl Startup {
    /// A machine that booted and an agent that started at these moments.
    pub fn new(booted: Option<Timestamp>, started: Timestamp) -> Self {
        Self { booted, started, attempted: None, made: None, is_over: false }
    }

    /// The node is about to be made.
    pub(super) fn attempted(&mut self, now: Timestamp) {
        self.attempted.get_or_insert(now);
    }

    /// There is a node that was not there before.
    pub(super) fn made(&mut self, now: Timestamp) {
        startup(&self.parts_until_made(now));
    }

    /// The node is ready.
    pub(super) fn ready(&mut self, now: Timestamp) {
        startup(&self.parts_until_ready(now));
    }

    fn parts_until_made(&mut self, now: Timestamp) -> Vec<Part> {
        let Some(attempted) = self.attempted.filter(|_| self.made.is_none()) else {
            return Vec::new();
        };
        self.made = Some(now);
        let before_us = self.booted.map(|booted| self.started.since(booted));
        let parts = [
            (metrics::KUBELET_NODE_STARTUP_PRE_KUBELET_DURATION_SECONDS, before_us),
            (
                metrics::KUBELET_NODE_STARTUP_PRE_REGISTRATION_DURATION_SECONDS,
                Some(attempted.since(self.started)),
            ),
            (
                metrics::KUBELET_NODE_STARTUP_REGISTRATION_DURATION_SECONDS,
                Some(now.since(attempted)),
            ),
        ];
        let known = parts.into_iter().filter_map(|(name, it)| Some((name, it?)));
        known.map(|(name, it)| (name, it.as_secs_f64())).collect()
    }

    fn parts_until_ready(&mut self, now: Timestamp) -> Vec<Part> {
        let Some(made) = self.made.filter(|_| !self.is_over) else {
            return Vec::new();
        };
        self.is_over = true;
        let mut parts = vec![(
            metrics::KUBELET_NODE_STARTUP_POST_REGISTRATION_DURATION_SECONDS,
            now.since(made).as_secs_f64(),
        )];
        let whole = self.booted.map(|booted| now.since(booted).as_secs_f64());
        parts.extend(whole.map(|whole| (metrics::KUBELET_NODE_STARTUP_DURATION_SECONDS, whole)));
        parts
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_ports::metrics::Metric as _;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second)
    }

    fn brief(parts: Vec<Part>) -> Vec<String> {
        let short = |name: &str| {
            let name = name.trim_start_matches("kubelet_node_startup_");
            name.trim_end_matches("duration_seconds").to_owned()
        };
        let parts = parts.into_iter();
        parts.map(|(gauge, it)| format!("{}{it}", short(gauge.family().name))).collect()
    }

    #[test]
    fn each_part_is_told_once() {
        let mut startup = Startup::new(Some(at(100)), at(130));
        startup.attempted(at(131));
        startup.attempted(at(139));
        let made = brief(startup.parts_until_made(at(141)));
        assert_eq!(made, ["pre_kubelet_30", "pre_registration_1", "registration_10"]);
        assert!(startup.parts_until_made(at(150)).is_empty());
        let ready = brief(startup.parts_until_ready(at(145)));
        assert_eq!(ready, ["post_registration_4", "45"]);
        assert!(startup.parts_until_ready(at(200)).is_empty());
    }

    #[test]
    fn a_node_that_was_there_already_says_nothing() {
        let mut startup = Startup::new(None, at(130));
        assert!(startup.parts_until_made(at(140)).is_empty());
        startup.attempted(at(131));
        assert!(startup.parts_until_ready(at(145)).is_empty());
    }
}

//! What the process in a fake container does with its life.

use std::{collections::HashMap, time::Duration};

use ferrolet_spec::ContainerSpec;
use ferrolet_types::{ContainerName, PodKey};

/// The life of one process. Unless said otherwise the polite signal ends it at once with code 143.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// Runs until somebody stops it.
    Runs,
    /// Ends by itself after that time with that code.
    ExitsAfter(Duration, i32),
    /// Ends by itself and leaves a termination message, if its container has a file for it.
    ExitsWithMessage(Duration, i32, String),
    /// The kernel kills it for memory after that time.
    OomKilledAfter(Duration),
    /// The runtime refuses to make the container.
    FailsToCreate(String),
    /// The container is made, but its process never begins.
    FailsToStart(String),
    /// Runs, and takes that long to end, with code 0, after the polite signal.
    StopsAfter(Duration),
    /// Runs, and does not hear the polite signal: stopping takes the whole grace.
    IgnoresSignal,
}

/// How a process will end if nobody interferes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) after: Duration,
    pub(crate) code: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Script {
    /// How and when the process ends by itself, if it does.
    pub(crate) fn fate(&self) -> Option<Fate> {
        let fate = |after: &Duration, code: i32, reason, message: &str| {
            Some(Fate { after: *after, code, reason, message: message.to_owned() })
        };
        match self {
            Self::ExitsAfter(after, code) => fate(after, *code, reason_of(*code), ""),
            Self::ExitsWithMessage(after, code, message) => {
                fate(after, *code, reason_of(*code), message)
            }
            Self::OomKilledAfter(after) => fate(after, 137, "OOMKilled", ""),
            Self::Runs
            | Self::FailsToCreate(_)
            | Self::FailsToStart(_)
            | Self::StopsAfter(_)
            | Self::IgnoresSignal => None,
        }
    }

    /// How the process ends after the polite signal; `None` when it does not hear it.
    pub(crate) fn fate_on_signal(&self) -> Option<Fate> {
        let (after, code) = match self {
            Self::IgnoresSignal => return None,
            Self::StopsAfter(after) => (*after, 0),
            _ => (Duration::ZERO, 143),
        };
        Some(Fate { after, code, reason: reason_of(code), message: String::new() })
    }
}

/// The runtime's word for an exit code.
pub(crate) fn reason_of(code: i32) -> &'static str {
    if code == 0 { "Completed" } else { "Error" }
}

/// Which containers a series of scripts is for; the narrowest that fits wins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    Container(PodKey, ContainerName),
    Name(ContainerName),
    Image(String),
}

/// Scripts by scope. Each container made takes the next of its series; the last one repeats.
#[derive(Default)]
pub(crate) struct Scripts {
    series: HashMap<Scope, (Vec<Script>, usize)>,
}

impl Scripts {
    pub(crate) fn set(&mut self, scope: Scope, series: Vec<Script>) {
        self.series.insert(scope, (series, 0));
    }

    pub(crate) fn take(&mut self, key: &PodKey, spec: &ContainerSpec) -> Script {
        let scopes = [
            Scope::Container(key.clone(), spec.name.clone()),
            Scope::Name(spec.name.clone()),
            Scope::Image(crate::images::normal(&spec.image)),
        ];
        for scope in &scopes {
            if let Some((series, taken)) = self.series.get_mut(scope) {
                let script = series.get(*taken).or(series.last()).cloned();
                *taken += 1;
                return script.unwrap_or(Script::Runs);
            }
        }
        Script::Runs
    }
}

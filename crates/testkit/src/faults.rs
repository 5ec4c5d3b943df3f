//! What goes wrong on purpose: calls that fail, hang, or take their time.

use std::{collections::HashMap, time::Duration};

use ferrolet_ports::{HostError, Retry, RuntimeError, RuntimeErrorKind};
use ferrolet_types::PodUid;

use crate::Call;

/// Which calls a fault is for: `None` fits all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) uid: Option<PodUid>,
    pub(crate) call: Option<Call>,
}

impl Pattern {
    fn fits(&self, call: Call, uid: Option<&PodUid>) -> bool {
        self.call.is_none_or(|it| it == call) && self.uid.as_ref().is_none_or(|it| uid == Some(it))
    }
}

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: RuntimeErrorKind,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(kind: RuntimeErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn of_runtime(self, call: Call) -> RuntimeError {
        RuntimeError { call: call.name(), kind: self.kind, message: self.message }
    }

    pub(crate) fn of_host(self, call: Call) -> HostError {
        HostError { attempt: call.name().to_owned(), cause: self.message, retry: Retry::Later }
    }
}

/// Every fault in force.
pub(crate) struct Faults {
    pub(crate) is_down: bool,
    pub(crate) has_no_events: bool,
    /// Events that will be lost before one is delivered again.
    pub(crate) n_lost_events: usize,
    pub(crate) failing: Vec<(Pattern, usize, Fault)>,
    pub(crate) hanging: Vec<Pattern>,
    pub(crate) latency: HashMap<Call, Duration>,
    pub(crate) default_latency: Duration,
    pub(crate) answer_latency: Duration,
    pub(crate) deadline: Duration,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            is_down: false,
            has_no_events: false,
            n_lost_events: 0,
            failing: Vec::new(),
            hanging: Vec::new(),
            latency: HashMap::new(),
            default_latency: Duration::from_millis(1),
            answer_latency: Duration::from_millis(1),
            deadline: Duration::from_secs(120),
        }
    }
}

impl Faults {
    pub(crate) fn is_hung(&self, call: Call, uid: Option<&PodUid>) -> bool {
        self.hanging.iter().any(|pattern| pattern.fits(call, uid))
    }

    pub(crate) fn latency_of(&self, call: Call) -> Duration {
        self.latency.get(&call).copied().unwrap_or(self.default_latency)
    }

    /// The refusal of a runtime that is not there.
    pub(crate) fn unavailable() -> Fault {
        Fault::new(
            RuntimeErrorKind::Unavailable,
            "connection error: desc = \"transport: error while dialing: connection refused\"",
        )
    }

    /// Uses up one planned failure for this call, if there is one.
    pub(crate) fn take(&mut self, call: Call, uid: Option<&PodUid>) -> Option<Fault> {
        if self.is_down && call.is_runtime() {
            return Some(Self::unavailable());
        }
        let index = self.failing.iter().position(|(pattern, _, _)| pattern.fits(call, uid))?;
        let (_, left, fault) = &mut self.failing[index];
        let fault = fault.clone();
        *left -= 1;
        if *left == 0 {
            self.failing.remove(index);
        }
        Some(fault)
    }
}

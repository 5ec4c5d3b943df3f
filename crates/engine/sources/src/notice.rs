//! What users are told: one sentence about one origin, as a value, so that tests can compare what
//! people would read.

use std::sync::Arc;

use ferrolet_types::pod::PodSource;

/// One message to the node's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which source it is about.
    pub source: PodSource,
    /// The file or URL it is about.
    pub origin: Arc<str>,
    /// What is wrong, or what to know.
    pub message: String,
}

impl Notice {
    pub(crate) fn new(
        source: PodSource,
        origin: impl Into<Arc<str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { source, origin: origin.into(), message: message.into() }
    }

    /// Writes it to the log; for the loops, which are the only ones that log.
    pub(crate) fn log(&self) {
        tracing::warn!(source = self.source.as_str(), origin = &*self.origin, "{}", self.message);
    }
}

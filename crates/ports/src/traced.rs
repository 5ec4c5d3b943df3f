//! The name under which spans are meant for traces.
//!
//! A part of the agent that opens a span with this target says nothing in the log and costs a look
//! at a flag where no traces are wanted.

use std::{fmt, sync::OnceLock};

/// The target of spans that are traced.
pub const TRACED: &str = "ferrolet::traced";

/// The field of a span by which traces cross process borders, in the form of W3C:
/// `00-TRACE-SPAN-01`. As text it says whose child a span without a parent here is; as a
/// [`TraceParent`] it is a place for what to hand on.
pub const TRACE_PARENT: &str = "traceparent";

/// A place where whoever traces a span writes how its children elsewhere are to call it. Stays
/// empty when nobody does.
///
/// It is an error by type alone: of the values that spans carry, only errors keep their type until
/// somebody looks at them.
#[derive(Debug, Default)]
pub struct TraceParent {
    words: OnceLock<String>,
}

impl TraceParent {
    /// Fills the place, once.
    pub fn set(&self, words: String) {
        // Whoever comes second has nothing new to say.
        let _ = self.words.set(words);
    }

    /// What to hand on.
    pub fn get(&self) -> Option<&str> {
        self.words.get().map(String::as_str)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get().unwrap_or_default())
    }
}

impl std::error::Error for TraceParent {}

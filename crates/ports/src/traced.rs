//! The name under which spans are meant for traces.
//!
//! A part of the agent that opens a span with this target says nothing in the log and costs a look at a flag where no traces are wanted.

/// The target of spans that are traced.
pub const TRACED: &str = "ferrolet::traced";

//! The whole agent in a simulated world: seeded events, crashes at any moment, invariants checked
//! after each step.
//!
//! ```text
//!  seed ─► plan (pure) ─► Event, Event, … ─► run ─► agent::assemble, on a bench of testkit's fakes
//!                                             │         ▲ killed and assembled again on the same bench
//!                                             └─► check: the journal and every published status, entry by entry
//! ```
//!
//! A plan does not look at the world, so any prefix of it is a plan too: a failing one is shortened
//! until it is the smallest prefix that fails. Time is tokio's, paused: a run of hours takes
//! milliseconds, and the same plan gives the same journal. Owned here: the world of a run, the
//! wishes of its sources, what must hold. Refuses: real time, real parts, expectations about how
//! the agent does it.
#![forbid(unsafe_code)]

mod agent;
mod bench;
mod check;
mod dice;
mod expect;
mod manners;
mod plan;
mod run;
mod shape;
mod watch;

pub use plan::{Event, plan};
pub use run::{Failure, Story, run, smallest};

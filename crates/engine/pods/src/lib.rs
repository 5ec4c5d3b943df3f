//! The sync loop: one dispatcher, one worker per pod, each gathering facts, calling
//! `lifecycle::decide` and executing the step.
//!
//! ```text
//!  PodChanges ─┐                       ┌─► Worker(uid) ─ look ─► decide ─► execute ─┐
//!  Hint ───────┼─► Dispatcher ─ Inbox ─┼─► Worker(uid)                              ├─► Board (pods with status)
//!  network ────┘   never awaits work   └─► Worker(uid)                              └─► Events
//! ```
//!
//! The [`Dispatcher`](dispatch::Dispatcher) owns who has a worker; a worker owns everything about
//! its pod; the [`Board`] owns what others may see. An inbox keeps the latest wish only, and a wish
//! to end can only tighten. Refuses: policy (that is `lifecycle`, `status` and `spec`), adapters,
//! files and sockets.
#![forbid(unsafe_code)]

mod answers;
mod board;
mod dispatch;
mod endings;
mod execute;
mod grants;
mod inbox;
mod left_behind;
mod making;
mod memory;
mod metrics;
mod notes;
mod objects;
pub mod once;
mod part;
mod probing;
mod pull;
mod pulse;
mod reading;
mod records;
mod requested;
mod resize;
mod resizing;
mod resolver;
mod roster;
mod run;
mod start;
mod tell;
mod termination_message;
#[cfg(test)]
mod tests;
mod turn;
mod turns;
mod userns;
mod worker;
mod working;
mod world;

pub use board::Board;
pub use part::{Pods, Settings, Wakers, build};
pub use pull::{PullDoors, PullLimits, PullRate, PullSettings};
pub use pulse::LoopHealth;
pub use resolver::check_resolver;
pub use run::{Inputs, run};
pub use userns::{UserIds, UserIdsError};
pub use working::{WorkingPods, working_pods};
pub use world::{Doors, PodSettings, World};

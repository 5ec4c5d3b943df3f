//! The pod state machine: given what is wished for and what really runs, what to do next.
//!
//! ```text
//!            removed, deleted, ended, or terminal          nothing runs            volumes and cgroup gone
//!  Running ────────────────────────────────────► Stopping ──────────────► Stopped ───────────────────────► Settled
//!     │  containers start only here                 grace only shrinks                                        │ forgotten
//!     └── sandbox, init, sidecars, regular ──┐                                                                 v
//!                                            └─ back-off: wake_at                                             Gone
//! ```
//!
//! [`decide`] is the whole policy: synchronous, total, deterministic. It is handed [`Facts`],
//! answers with a [`Step`], and never asks for the time. The worker in `pods` executes the step and
//! comes back with new facts. Refuses: I/O, clocks, remembering anything between two calls.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backoff;
mod deadline;
mod decide;
mod end;
mod facts;
mod init;
mod judge;
mod refusal;
mod reset;
mod run;
mod sandbox;
mod step;
#[cfg(test)]
mod tests;
mod waiting;

pub use backoff::{BackOffPolicy, doubling};
pub use deadline::{deadline, kill_is_overdue_at};
pub use decide::decide;
pub use end::left_to_stop;
pub use facts::{
    ContainerProbes, Facts, Failure, FailureKind, KeptContainers, Presence, ResizeFacts, Setup,
    StartError, StartFailure, Verdict, Wish,
};
pub use refusal::{AfterRefusal, Claim, Refusal, after_refusal};
pub use sandbox::{SandboxNeed, sandbox_need};
pub use step::{Action, Hold, PodState, RestartCount, Stage, Step, StepEvent, StopCause};

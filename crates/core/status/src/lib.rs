//! What the API is told of a pod, computed from facts.
//!
//! Owned by the pod workers, which call [`compute`] after each step, and by the reporter, which
//! brings the result to the API server with [`merge_for_api`] and [`plan_patch`].
//!
//! ```text
//! pod + previous status + observation + container facts ── compute ──▶ Computed: status, phase, …
//!        containers ▶ phase ▶ conditions ▶ addresses ▶ terminate ▶ times ▶ normalize
//! API's copy + PodStatus ── merge_for_api ──▶ PodStatus ── plan_patch ──▶ JSON or nothing
//! ```
//!
//! Refuses: I/O, clocks, caches, and deciding anything about a pod's life; a phase here is a
//! description, not a command. The node's conditions will live here too, in a module of their own.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod addresses;
mod amounts;
mod compute;
mod conditions;
mod containers;
mod health;
mod inputs;
mod merge;
mod normalize;
mod once;
mod patch;
mod phase;
mod resources;
mod restart;
mod terminate;
#[cfg(test)]
mod tests;
mod why;

pub use compute::{Computed, compute};
pub use inputs::{ContainerFact, RuntimeFacts, Stage, StatusInputs, StatusOverride};
pub use merge::{
    RunningContainers, TransitionError, check_transition, is_same_for_kubelet, merge_for_api,
};
pub use normalize::normalize;
pub use once::{OncePod, OnceVerdict, Patience, judge_once};
pub use patch::{plan_difference, plan_patch};
pub use why::{Trouble, headline, why};

//! Dynamic resources: which claims a pod uses, what drivers have to prepare for it and take back,
//! and what each container gets of it.
//!
//! ```text
//!  pod ── wanted ──► names of claims ── (the API) ──► check ──► Prepared by whom: drivers
//!  ClaimBook: claim ─ attach ─► Noted ─ note, settle ─► Prepared ─ detach, last pod ─► Unpreparing ─ drop ─► gone
//!     ▲   └─ for_container ─► CDI names         └───────────── Kept, in the next life of the agent
//!  checkpoint: `dra_manager_state`      HealthBook: `dra_health_state`, how devices feel
//! ```
//!
//! Values in, values out; upstream's words in every refusal. Refuses: asking the API and calling
//! drivers, which is the engine's (`engine/claims`).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod book;
mod checkpoint;
mod health;
mod shown;
#[cfg(test)]
mod tests;
mod wanted;

pub use answer::{Answer, AnswerFault, complete};
pub use book::{Batches, ClaimBook, ClaimInfo, ClaimRef, DriverState, PreparedDevice, Stage};
pub use checkpoint::{CheckpointError, decode, encode};
pub use health::{
    DeviceHealth, Feeling, HealthBook, N_DEVICES, decode_health, encode_health, shortened,
};
pub use shown::{cdi_devices, claims_of, health_of};
pub use wanted::{ClaimRules, Refusal, WantedClaim, check, wanted};

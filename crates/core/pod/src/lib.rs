//! What is true of a pod for everybody who decides about it: which containers it has, when one of
//! them starts again, why one waits, what its status says of them.
//!
//! The other core crates ask here instead of each having its own copy of a rule. Values in, values
//! out: a pod as the API describes it, what the runtime shows of it, an exit code. Refuses: deciding
//! what to do (`lifecycle`) and what to tell (`status`).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod claims;
mod container_id;
mod containers;
mod devices;
mod restart;
mod told;
mod waiting;

pub use claims::uses_claims;
pub use container_id::{bare_container_id, full_container_id};
pub use containers::{
    all_containers, container_ids, container_statuses, containers_of, init_and_regular,
    kind_of_container,
};
pub use devices::asks_for_devices;
pub use restart::{
    asks_to_restart_all, may_restart_all, policy_restarts, restart_policy_of, restarts_after,
    restarts_on_failure, should_start,
};
pub use told::{told_by, told_of};
pub use waiting::{EndReason, Ending, Waiting, WaitingReason};

//! The CPU manager: which processors a container runs on.
//!
//! [`CpuLayout`] is the machine, [`take_packed`] and [`take_distributed`] choose from what is free,
//! and [`StaticCpus`] is the policy around them, with who has what ([`CpuAssignments`]).

mod assignments;
mod distribute;
mod layout;
mod options;
mod policy;
mod restore;
mod set;
mod take;

pub use assignments::CpuAssignments;
pub use distribute::{Distribution, take_distributed};
pub use layout::{CpuLayout, CpuPlace, Groups};
pub use options::{CpuOptions, OptionGates};
pub use policy::{CpuCounts, CpuPolicyError, StaticCpus};
pub use set::{CpuSet, CpuSetError};
pub use take::{CacheAlignment, CpuOrder, TakeError, take_packed};

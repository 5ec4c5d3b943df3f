//! The memory manager: which NUMA nodes the memory of a container comes from.
//!
//! [`MemoryAssignments`] is how much each node has and who has it; [`StaticMemory`] is the policy
//! around it.

mod policy;
mod reserve;
mod restore;
mod table;

pub use policy::{MemoryCounts, StaticMemory};
pub use reserve::{MemoryPolicyError, NodeReservation};
pub use table::{MemoryAssignments, MemoryBlock, MemoryTable, NodeMemory};

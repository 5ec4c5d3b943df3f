//! Which processors, NUMA nodes and memory a container gets.
//!
//! In: the machine's topology, what pods ask for ([`PodAsk`]), who lives. Out: who has what
//! ([`Placement`]), and why somebody gets nothing ([`Refusal`]); the state files of upstream's
//! managers, both ways ([`checkpoint`]). The same choices as upstream 1.37 for the same history;
//! ADR 0041 lists where and why not. Refuses: reading the machine, telling the runtime.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ask;
pub mod checkpoint;
pub mod cpu;
pub mod memory;
mod options;
mod placement;
mod refusal;
pub mod topology;

pub use ask::{ContainerAsk, NotWhole, PodAsk};
pub use options::OptionError;
pub use placement::{ContainerPlace, Placement, PlacementCounts};
pub use refusal::Refusal;

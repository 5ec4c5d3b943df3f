//! Who says where containers run: processors and NUMA nodes.

use ferrolet_resources::Rejection;
use ferrolet_types::{Pod, PodUid};

use crate::Fut;

/// Gives containers processors and memory of their own, and remembers who has what.
pub trait Placing: Send + Sync {
    /// Gives a new pod what it asks for, or says why it cannot have that. What others had that are
    /// not among `living` is free; `None` while nobody knows who lives. Never waits.
    fn admit(&self, pod: &Pod, living: Option<&[Pod]>) -> Result<(), Rejection>;
    /// Meets a pod again that an earlier life of the agent took: it keeps what it had, or gets
    /// something else; it is never refused.
    fn meet(&self, pod: &Pod);
    /// Every source has spoken: who is not known any more is gone.
    fn all_known(&self);
    /// Where a container is to run, once what it has is written down.
    fn place<'a>(&'a self, pod: &'a Pod, container: &'a str) -> Fut<'a, PlacedContainer>;
    /// True when the pod's processor time is not to be throttled, because containers of it own
    /// their processors.
    fn is_unthrottled(&self, uid: &PodUid) -> bool;
}

/// Where a container runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacedContainer {
    /// Processors, as the kernel lists them; empty for all.
    pub cpus: String,
    /// NUMA nodes of its memory; empty for all.
    pub mems: String,
    /// Its processors are its own, so that its time on them is not bounded.
    pub is_unthrottled: bool,
}

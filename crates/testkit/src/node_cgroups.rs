//! The fake of the node's own cgroups: bounds by place, as they were written last.

use std::sync::Mutex;

use ferrolet_ports::{Fut, HostError, NodeCgroups, Retry};
use ferrolet_resources::{NodeCgroup, NodeCgroupPlace};

/// The node's own cgroups.
#[derive(Default)]
pub struct FakeNodeCgroups {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    cgroups: Vec<NodeCgroup>,
    busy: Option<NodeCgroupPlace>,
}

impl FakeNodeCgroups {
    /// The bounds of a place; `None` when nobody wrote them, or somebody else took them away.
    pub fn at(&self, place: &NodeCgroupPlace) -> Option<NodeCgroup> {
        let held = self.held.lock().expect("no test panics while it holds this");
        held.cgroups.iter().find(|it| it.place == *place).cloned()
    }

    /// Somebody else takes all bounds away.
    pub fn clear(&self) {
        self.held.lock().expect("no test panics while it holds this").cgroups.clear();
    }

    /// From now on the kernel refuses the bounds of this place.
    pub fn refuse(&self, place: Option<NodeCgroupPlace>) {
        self.held.lock().expect("no test panics while it holds this").busy = place;
    }
}

impl NodeCgroups for FakeNodeCgroups {
    fn bound<'a>(&'a self, cgroup: &'a NodeCgroup) -> Fut<'a, Result<(), HostError>> {
        let mut held = self.held.lock().expect("no test panics while it holds this");
        let outcome = if held.busy.as_ref() == Some(&cgroup.place) {
            let attempt = "write memory.limit_in_bytes".to_owned();
            let cause = "device or resource busy".to_owned();
            Err(HostError { attempt, cause, retry: Retry::Later })
        } else {
            held.cgroups.retain(|it| it.place != cgroup.place);
            held.cgroups.push(cgroup.clone());
            Ok(())
        };
        Box::pin(std::future::ready(outcome))
    }
}

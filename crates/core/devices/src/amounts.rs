//! How many devices the node shows.

use ferrolet_node::DeviceResources;
use ferrolet_types::{Amounts, Quantity};

use crate::DeviceBook;

impl DeviceBook {
    /// Capacity counts every device, allocatable the healthy ones; a resource whose plugin stayed
    /// away is told to be gone. A resource of an earlier life counts for nothing until its plugin
    /// is back.
    pub fn amounts(&self) -> DeviceResources {
        let count = |n: usize| Quantity::from_value(i64::try_from(n).unwrap_or(i64::MAX));
        let (mut capacity, mut allocatable) = (Amounts::new(), Amounts::new());
        for (name, resource) in &self.resources {
            let n_healthy = resource.devices.values().filter(|it| it.is_healthy).count();
            capacity.insert(name.clone(), count(resource.devices.len()));
            allocatable.insert(name.clone(), count(n_healthy));
        }
        DeviceResources {
            capacity,
            allocatable,
            awaited: self.resources.keys().filter(|it| self.is_awaited(it)).cloned().collect(),
            removed: self.removed.iter().cloned().collect(),
            is_reset: false,
        }
    }
}

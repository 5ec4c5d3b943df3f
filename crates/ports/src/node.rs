//! The node: the machine that it is, and the API's copy of it.

use std::{net::IpAddr, sync::Arc};

use ferrolet_node::{HostAddresses, Machine};
use k8s_openapi::api::core::v1::Node;

use crate::{Fut, HostError};

/// What the machine says about where it is.
pub trait NodeHost: Send + Sync {
    /// The addresses on its interfaces and routes; `by_name` is left empty.
    fn addresses(&self) -> HostAddresses;

    /// The addresses that the name service has for a name, in its order; `None` when it does not
    /// say in time.
    fn look_up<'a>(&'a self, name: &'a str) -> Fut<'a, Option<Vec<IpAddr>>>;
}

/// The machine itself.
pub trait MachineHost: Send + Sync {
    /// Its sizes and identities as they are now.
    fn machine(&self) -> Fut<'_, Result<Machine, HostError>>;
}

/// Where the API's copy of the node is handed in, for everybody to read.
pub trait NodeCopies: Send + Sync {
    /// A copy, from the watch or from an answer; one that is older than what is known changes
    /// nothing.
    fn learn(&self, node: Arc<Node>);

    /// The API has no such node any more.
    fn lose(&self);
}

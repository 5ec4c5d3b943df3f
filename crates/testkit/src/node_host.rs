//! A node that takes every pod; a machine with the addresses it is given, and a name service that
//! knows what it is told.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ferrolet_node::{HostAddresses, Machine, NodeFacts, NodeSettings, NodeState};
use ferrolet_ports::{Fut, HostError, MachineHost, NodeHost, Retry};
use ferrolet_types::Quantity;

/// The node that [`pod`](crate::pod)s are bound to, with room for all of them.
pub fn roomy_node() -> NodeState {
    let settings = NodeSettings { name: "node".to_owned(), ..NodeSettings::example() };
    let plenty = ["cpu", "memory", "ephemeral-storage", "pods"];
    NodeState {
        settings: Arc::new(settings),
        allocatable: plenty.map(|it| (it.to_owned(), Quantity::from_value(1 << 40))).into(),
        host_ips: vec!["10.0.0.1".to_owned()],
        ..NodeState::example()
    }
}

/// The machine. Clones are handles to the same one.
#[derive(Clone)]
pub struct FakeNodeHost {
    state: Arc<Mutex<State>>,
}

impl Default for FakeNodeHost {
    /// The example's machine, without addresses and names.
    fn default() -> Self {
        let state = State {
            machine: NodeFacts::example().machine,
            addresses: HostAddresses::default(),
            names: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }
}

struct State {
    machine: Option<Machine>,
    addresses: HostAddresses,
    names: BTreeMap<String, Vec<IpAddr>>,
}

impl FakeNodeHost {
    /// Makes it another machine, or one that does not answer.
    pub fn set_machine(&self, machine: Option<Machine>) {
        self.state().machine = machine;
    }

    /// Gives the machine other addresses.
    pub fn set_addresses(&self, addresses: HostAddresses) {
        self.state().addresses = addresses;
    }

    /// Tells the name service what a name means; nothing makes it say nothing.
    pub fn set_name(&self, name: &str, addresses: Option<Vec<IpAddr>>) {
        let mut state = self.state();
        match addresses {
            Some(addresses) => state.names.insert(name.to_owned(), addresses),
            None => state.names.remove(name),
        };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MachineHost for FakeNodeHost {
    fn machine(&self) -> Fut<'_, Result<Machine, HostError>> {
        let machine = self.state().machine.clone();
        let silence = || HostError {
            attempt: "read the machine".to_owned(),
            cause: "it does not answer".to_owned(),
            retry: Retry::Later,
        };
        Box::pin(std::future::ready(machine.ok_or_else(silence)))
    }
}

impl NodeHost for FakeNodeHost {
    fn addresses(&self) -> HostAddresses {
        self.state().addresses.clone()
    }

    fn look_up<'a>(&'a self, name: &'a str) -> Fut<'a, Option<Vec<IpAddr>>> {
        Box::pin(async { self.state().names.get(name).cloned() })
    }
}

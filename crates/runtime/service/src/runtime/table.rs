//! Every sandbox and container that the service knows, and the names that they have.
//!
//! Owned by [`super::Runtime`] behind one lock that is held for look-ups and changes only, never across an await.
//! What takes long about one sandbox or container is done in its turn, a lock of its own.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
};

use ferrolet_runtime_client::Monitor;
use ferrolet_runtime_images::Hold;
use tokio::sync::watch;

use super::{
    error::RuntimeError,
    network::Connection,
    phase::Phase,
    record::{ContainerSpec, SandboxRecord, UserRecord},
    usage::LayerUsage,
};

/// The channel to a pod's monitor.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) monitor: Monitor,
    /// The monitor's process.
    pub(crate) pid: i32,
    /// The pod's own network namespace.
    pub(crate) network: Option<OwnedFd>,
}

/// How a sandbox is.
#[derive(Clone, Debug)]
pub(crate) enum SandboxState {
    /// It is being made.
    Starting,
    /// Its monitor is there.
    Ready(Arc<Link>),
    /// It was stopped, or its monitor is gone.
    NotReady,
}

/// A sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) record: Arc<SandboxRecord>,
    pub(crate) state: SandboxState,
    /// What its network gave it.
    pub(crate) connection: Connection,
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

/// A container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) spec: Arc<ContainerSpec>,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) user: Option<UserRecord>,
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// Keeps its layers in the store.
    _hold: Option<Arc<Hold>>,
    /// What its writable layer was last found to take.
    pub(crate) layer_usage: Arc<Mutex<LayerUsage>>,
}

impl Container {
    pub(crate) fn new(spec: ContainerSpec, phase: Phase, hold: Option<Hold>) -> Self {
        Self {
            spec: Arc::new(spec),
            phase: watch::Sender::new(phase),
            user: None,
            turn: Arc::default(),
            _hold: hold.map(Arc::new),
            layer_usage: Arc::default(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }
}

impl Sandbox {
    pub(crate) fn link(&self) -> Option<&Arc<Link>> {
        match &self.state {
            SandboxState::Ready(link) => Some(link),
            SandboxState::Starting | SandboxState::NotReady => None,
        }
    }
}

/// All of them, by id.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    pub(crate) containers: BTreeMap<String, Container>,
    sandbox_names: BTreeMap<String, String>,
    container_names: BTreeMap<String, String>,
}

impl Table {
    pub(crate) fn reserve_sandbox(&mut self, name: &str, id: &str) -> Result<(), RuntimeError> {
        reserve(&mut self.sandbox_names, name, id)
    }

    pub(crate) fn reserve_container(&mut self, name: &str, id: &str) -> Result<(), RuntimeError> {
        reserve(&mut self.container_names, name, id)
    }

    /// Gives a sandbox's name back, and forgets it.
    pub(crate) fn forget_sandbox(&mut self, id: &str) {
        self.sandbox_names.retain(|_, holder| holder != id);
        self.sandboxes.remove(id);
    }

    /// Gives a container's name back, and forgets it.
    pub(crate) fn forget_container(&mut self, id: &str) {
        self.container_names.retain(|_, holder| holder != id);
        self.containers.remove(id);
    }

    /// The sandbox that an id, or the beginning of one that is nobody else's, means.
    pub(crate) fn sandbox(&self, id: &str) -> Result<&Sandbox, RuntimeError> {
        find(&self.sandboxes, id).ok_or_else(|| RuntimeError::NoSandbox(id.to_owned()))
    }

    /// The container that an id, or the beginning of one that is nobody else's, means.
    pub(crate) fn container(&self, id: &str) -> Result<&Container, RuntimeError> {
        find(&self.containers, id).ok_or_else(|| RuntimeError::NoContainer(id.to_owned()))
    }

    /// The containers of a sandbox.
    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Container> {
        let all = self.containers.values();
        all.filter(|it| it.spec.sandbox == sandbox).cloned().collect()
    }
}

fn reserve(names: &mut BTreeMap<String, String>, name: &str, id: &str) -> Result<(), RuntimeError> {
    match names.get(name) {
        Some(holder) if holder != id => {
            Err(RuntimeError::NameTaken { name: name.to_owned(), holder: holder.clone() })
        }
        _ => {
            names.insert(name.to_owned(), id.to_owned());
            Ok(())
        }
    }
}

fn find<'a, T>(all: &'a BTreeMap<String, T>, id: &str) -> Option<&'a T> {
    if let Some(found) = all.get(id) {
        return Some(found);
    }
    if id.is_empty() {
        return None;
    }
    let mut begins = all.range(id.to_owned()..).take_while(|(it, _)| it.starts_with(id));
    let (_, first) = begins.next()?;
    begins.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_holder_until_it_is_forgotten() {
        let mut table = Table::default();
        table.reserve_sandbox("web_default_1_0", "a").unwrap();
        table.reserve_sandbox("web_default_1_0", "a").unwrap();
        let taken = table.reserve_sandbox("web_default_1_0", "b").unwrap_err();
        assert_eq!(taken.to_string(), "name \"web_default_1_0\" is reserved for \"a\"");
        table.forget_sandbox("a");
        table.reserve_sandbox("web_default_1_0", "b").unwrap();
    }

    #[test]
    fn an_id_may_be_cut_short_while_it_means_one_thing() {
        let all =
            BTreeMap::from([("abc1".to_owned(), 1), ("abc2".to_owned(), 2), ("b".to_owned(), 3)]);
        let cases = [("abc1", Some(1)), ("abc", None), ("b", Some(3)), ("", None), ("c", None)];
        for (id, expected) in cases {
            assert_eq!(find(&all, id).copied(), expected, "{id}");
        }
    }
}

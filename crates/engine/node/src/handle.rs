//! Where the node's state is kept: one value, shown to all.

use std::sync::Arc;

use ferrolet_node::{Machine, NodeFacts, NodeSettings, NodeState};
use ferrolet_ports::{Clock, Fut, NodeCopies, NodeView};
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;

/// The node, for whoever learns something about it. Readers [subscribe](NodeHandle::subscribe).
#[derive(Clone)]
pub struct NodeHandle {
    state: Arc<watch::Sender<Arc<NodeState>>>,
    clock: Arc<dyn Clock>,
}

impl NodeHandle {
    /// A node in that state.
    pub fn new(state: NodeState, clock: Arc<dyn Clock>) -> Self {
        Self { state: Arc::new(watch::Sender::new(Arc::new(state))), clock }
    }

    /// The state and each change of it.
    pub fn subscribe(&self) -> watch::Receiver<Arc<NodeState>> {
        self.state.subscribe()
    }

    /// The state as it is now.
    pub fn state(&self) -> Arc<NodeState> {
        self.state.borrow().clone()
    }

    /// Changes the facts; readers hear of it only when something is different.
    pub fn update(&self, edit: impl FnOnce(&mut NodeFacts)) {
        self.change(|state| edit(&mut state.facts));
    }

    /// Has the node present itself otherwise from now on.
    pub fn retell(&self, settings: Arc<NodeSettings>) {
        let now = self.clock.now();
        self.change(|state| state.retell(settings, now));
    }

    /// The machine is another size from now on.
    pub(crate) fn remeasure(&self, machine: Machine) {
        let now = self.clock.now();
        self.change(|state| state.remeasure(machine, now));
    }

    /// Keeps the facts in line with somebody else's latest value, until there are no more.
    pub async fn follow<T: Clone>(
        self,
        mut values: watch::Receiver<T>,
        edit: impl Fn(&mut NodeFacts, T),
    ) {
        loop {
            let value = values.borrow_and_update().clone();
            self.update(|facts| edit(facts, value));
            if values.changed().await.is_err() {
                return;
            }
        }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    fn change(&self, edit: impl FnOnce(&mut NodeState)) {
        self.state.send_if_modified(|state| {
            let mut next = NodeState::clone(state);
            edit(&mut next);
            let is_news = next != **state;
            if is_news {
                *state = Arc::new(next);
            }
            is_news
        });
    }
}

impl NodeCopies for NodeHandle {
    fn learn(&self, node: Arc<Node>) {
        self.change(|state| {
            state.learn(node);
        });
    }

    fn lose(&self) {
        self.change(NodeState::lose);
    }
}

impl NodeView for NodeHandle {
    fn node(&self) -> Fut<'_, Node> {
        Box::pin(async {
            let mut state = NodeState::clone(&self.state());
            // The page has a list of images of its own.
            state.facts.images = None;
            state.described(self.clock.now())
        })
    }
}

//! The node as its page shows it: described as it would be to a cluster, whether there is one or not.
//!
//! Computed when somebody looks, from what the machine said at start and how the runtime feels now. The runtime is asked for its
//! version once; one that does not answer in time is shown without it.

use std::{sync::Arc, time::Duration};

use ferrolet_observe::RuntimeHealth;
use ferrolet_ports::{Clock, Fut, NodeView, Runtime, RuntimeVersion};
use ferrolet_report::node::{NodeFacts, NodeSettings, node_object};
use k8s_openapi::api::core::v1::Node;
use tokio::{
    sync::{OnceCell, watch},
    time::timeout,
};

use super::node_facts;

/// A page does not wait longer for the runtime's name.
const ANSWER: Duration = Duration::from_secs(2);

/// What describes the node.
pub(super) struct Portrait {
    pub(super) settings: Arc<NodeSettings>,
    /// What was known at start.
    pub(super) first: NodeFacts,
    pub(super) health: watch::Receiver<RuntimeHealth>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) version: OnceCell<RuntimeVersion>,
    pub(super) clock: Arc<dyn Clock>,
}

impl NodeView for Portrait {
    fn node(&self) -> Fut<'_, Node> {
        Box::pin(async {
            let ask = self.version.get_or_try_init(async || self.runtime.version().await);
            let version = timeout(ANSWER, ask).await.ok().and_then(Result::ok);
            let health = self.health.borrow().clone();
            let clock = self.clock.as_ref();
            let facts = NodeFacts {
                runtime_version: version.cloned(),
                runtime: node_facts::answer(&self.first.runtime, health, clock),
                ..self.first.clone()
            };
            node_object(&self.settings, &facts, clock.now())
        })
    }
}

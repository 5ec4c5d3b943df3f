//! What of the configuration can change while the agent runs, and where it goes.
//!
//! Parts that follow a setting get a watch channel; the node's presentation and the rate of events
//! are told to their owners. Which fields these are is said in `ferrolet_config` ([`LIVE`]), so that
//! a reload can name the others as waiting. A configuration that leaves nothing for pods is refused
//! before any of it is applied.
//!
//! [`LIVE`]: ferrolet_config::compare

use std::sync::Arc;

use ferrolet_cluster::node_cluster::NodeCluster;
use ferrolet_config::Loaded;
use ferrolet_node::{NodeSettings, reservation_faults};
use ferrolet_node_engine::NodeHandle;
use ferrolet_reclaim::{images, logs};
use tokio::sync::watch;

use super::{
    node_facts, platform,
    settings::{self, TOO_MUCH_KEPT},
};
use crate::own_log::OwnLog;

/// The senders of what parts follow.
pub(super) struct Live {
    pub(super) images: watch::Sender<images::Policy>,
    pub(super) logs: watch::Sender<Option<logs::Policy>>,
    pub(super) eviction: watch::Sender<ferrolet_eviction_engine::Policy>,
}

impl Live {
    /// As it is at the start.
    pub(super) fn new(loaded: &Loaded) -> Self {
        Self {
            images: watch::Sender::new(settings::image_policy(loaded)),
            logs: watch::Sender::new(settings::log_policy(loaded)),
            eviction: watch::Sender::new(settings::eviction_policy(loaded)),
        }
    }
}

/// Everybody who is told of a new configuration.
pub(super) struct Listeners {
    pub(super) live: Live,
    pub(super) log: OwnLog,
    pub(super) node: NodeHandle,
    pub(super) cluster: Option<Arc<NodeCluster>>,
}

impl Listeners {
    /// Has every live field of a configuration take effect, or says why none of it can.
    pub(super) fn apply(&self, next: &Loaded) -> Result<(), String> {
        let state = self.node.state();
        let fresh = node_facts::settings(next, &state.settings.name);
        let settings = NodeSettings {
            max_pods: fresh.max_pods,
            pods_per_core: fresh.pods_per_core,
            hard_eviction: fresh.hard_eviction,
            ..(*state.settings).clone()
        };
        if let Some(machine) = &state.facts.machine {
            let faults = reservation_faults(&settings, machine);
            if !faults.is_empty() {
                return Err(format!("{TOO_MUCH_KEPT}: {}", faults.join(" ")));
            }
        }
        self.node.retell(Arc::new(settings));
        self.log.apply(&next.config.logging);
        replace(&self.live.images, settings::image_policy(next));
        replace(&self.live.logs, settings::log_policy(next));
        replace(&self.live.eviction, settings::eviction_policy(next));
        if let Some(cluster) = &self.cluster {
            cluster.set_event_rate(platform::event_rate(next));
        }
        Ok(())
    }
}

/// Tells whoever follows, if there is any news.
fn replace<T: PartialEq>(told: &watch::Sender<T>, next: T) {
    told.send_if_modified(|known| {
        let is_news = *known != next;
        *known = next;
        is_news
    });
}

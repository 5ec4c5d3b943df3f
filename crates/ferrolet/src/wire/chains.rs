//! The kubelet's chains in the packet filter, where the configuration wants them.

use std::sync::Arc;

use ferrolet_chains::keep_chains;
use ferrolet_config::Loaded;
use ferrolet_host::Iptables;
use tokio::task::JoinSet;

/// Keeps them beside everything else: no pod waits for them.
pub(super) fn start(loaded: &Loaded, tasks: &mut JoinSet<()>) {
    if loaded.config.kernel.iptables.util_chains {
        tasks.spawn(keep_chains(Arc::new(Iptables::of_node())));
    }
}

//! What is set about the node.

use ferrolet_node::NodeState;
use ferrolet_node_engine::AllocatableSettings;
use ferrolet_report::node::{ReportSettings, Startup};

/// What is set about the node, and how it begins.
pub struct NodeSlice {
    /// The node before anybody but its machine was asked.
    pub state: NodeState,
    /// Bounds of the node's own cgroups; `None` where there are none.
    pub allocatable: Option<AllocatableSettings>,
    /// Whether and how often the cluster is told.
    pub report: ReportSettings,
    /// The range of pods' addresses, until the cluster says otherwise.
    pub pod_cidr: Option<String>,
    /// When all this began.
    pub startup: Startup,
}

//! The doors a worker uses, and how pods are made on this node.

use std::{ops::Deref, sync::Arc, time::Duration};

use ferrolet_lifecycle::BackOffPolicy;
use ferrolet_node::NodeState;
use ferrolet_ports::{
    Clock, ClusterLookups, ClusterObjects, Events, GrantsView, Hooks, Images, NodeNames, Placing,
    PodCgroups, PodClaims, PodDevices, PodFiles, PodVolumes, Probing, Runtime, RuntimeError,
    RuntimeHandler, StateFiles, Usage,
};
use ferrolet_resources::{CgroupPolicy, with_resources};
use ferrolet_spec::{NodeDns, SpecSettings};
use ferrolet_types::{Pod, pod::PodView as _};
use tokio::sync::{OnceCell, Semaphore, watch};

use crate::{
    Board, PullDoors, PullSettings,
    answers::Answers,
    endings::Endings,
    pull::Puller,
    records::Records,
    userns::{UserIds, UserRanges},
};

/// Everything a worker can reach: the doors, and what is kept for all workers together.
pub struct World {
    doors: Doors,
    /// How pods are made here.
    pub settings: PodSettings,
    pub(crate) puller: Puller,
    /// What pods were granted and what is in force.
    pub(crate) records: Records,
    /// What was told of static pods.
    pub(crate) answers: Answers,
    /// Whom the node ended.
    pub(crate) endings: Endings,
    /// Which pods have which user ids.
    pub(crate) user_ranges: UserRanges,
    pub(crate) sandbox_slots: Semaphore,
    runtime_name: OnceCell<String>,
    handlers: OnceCell<Vec<RuntimeHandler>>,
}

impl Deref for World {
    type Target = Doors;

    fn deref(&self) -> &Doors {
        &self.doors
    }
}

impl GrantsView for World {
    fn granted(&self, pod: &Pod) -> Pod {
        let granted = self.records.allocated_to(&pod.uid());
        granted
            .and_then(|granted| with_resources(pod, &granted))
            .map_or_else(|| pod.clone(), Arc::new)
    }
}

/// How pods are made on this node. Fixed while the agent runs.
#[derive(Clone, Debug)]
pub struct PodSettings {
    /// How specifications are made.
    pub spec: SpecSettings,
    /// Name resolution of pods, but for the node's own resolver, which is read for each of them.
    pub dns: NodeDns,
    /// The cluster's domain; empty for a node that stands alone.
    pub cluster_domain: String,
    /// How long to wait after failures.
    pub back_off: BackOffPolicy,
    /// How images are pulled.
    pub pulls: PullSettings,
    /// Ids for pods with users of their own.
    pub user_ids: UserIds,
    /// CPUs are handed out one by one.
    pub has_static_cpus: bool,
    /// Memory is handed out by NUMA node.
    pub has_static_memory: bool,
    /// How many sandboxes may be in the making at once.
    pub n_parallel_sandboxes: usize,
    /// How many dead containers of each name the node keeps; `None` for no limit of its own.
    pub n_dead_kept: Option<usize>,
    /// A pod that nobody hears of is looked at again after this long, or up to half as long again.
    pub sync_frequency: Duration,
}

/// The doors, as the composition root hands them over.
pub struct Doors {
    /// Containers.
    pub runtime: Arc<dyn Runtime>,
    /// Images.
    pub images: Arc<dyn Images>,
    /// The memory of pulls and the node's credentials; without them only pull secrets count, and
    /// nothing is remembered.
    pub pulls: Option<PullDoors>,
    /// Cgroups of pods.
    pub cgroups: Arc<dyn PodCgroups>,
    /// Directories and logs of pods.
    pub files: Arc<dyn PodFiles>,
    /// The node's own files of name resolution.
    pub names: Arc<dyn NodeNames>,
    /// Checkpoints that survive the agent.
    pub state_files: Arc<dyn StateFiles>,
    /// What pods use; `None` where nobody measures.
    pub usage: Option<Arc<dyn Usage>>,
    /// Processors and memory of containers; `None` where nobody hands them out.
    pub placing: Option<Arc<dyn Placing>>,
    /// Volumes of pods.
    pub volumes: Arc<dyn PodVolumes>,
    /// Devices of pods.
    pub devices: Arc<dyn PodDevices>,
    /// Claims of pods for dynamic resources.
    pub claims: Arc<dyn PodClaims>,
    /// Probes of containers.
    pub probing: Arc<dyn Probing>,
    /// Handlers of container lifecycles.
    pub hooks: Arc<dyn Hooks>,
    /// Objects of the API that pods refer to; a node on its own has none.
    pub objects: Option<Arc<dyn ClusterObjects>>,
    /// Collections of the API that pods are made from; a node on its own has none.
    pub lookups: Option<Arc<dyn ClusterLookups>>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// What others may see.
    pub board: Arc<Board>,
    /// What the node is.
    pub node: watch::Receiver<Arc<NodeState>>,
}

impl World {
    /// The bounds of a pod's cgroup here: one whose containers own their processors is not throttled
    /// on them.
    pub(crate) fn cgroup_policy(&self, pod: &Pod) -> CgroupPolicy {
        let policy = self.settings.spec.resources.cgroups;
        let placing = self.placing.as_ref();
        let is_unthrottled = placing.is_some_and(|it| it.is_unthrottled(&pod.uid()));
        CgroupPolicy { cpu_cfs_quota: policy.cpu_cfs_quota && !is_unthrottled, ..policy }
    }

    /// The runtime's name, the scheme of container ids; asked for once.
    pub(crate) async fn runtime_name(&self) -> Result<String, RuntimeError> {
        let ask = || async { self.runtime.version().await.map(|version| version.name) };
        self.runtime_name.get_or_try_init(ask).await.cloned()
    }

    /// True when the runtime can make nested mounts read-only for that handler; asked for once.
    pub(crate) async fn recursive_read_only(&self, handler: &str) -> Result<bool, RuntimeError> {
        let ask = || async { self.runtime.status().await.map(|status| status.handlers) };
        self.handlers.get_or_try_init(ask).await?;
        Ok(self.knows_recursive_read_only(handler))
    }

    /// The same from memory: false until somebody had to ask.
    pub(crate) fn knows_recursive_read_only(&self, handler: &str) -> bool {
        let mut known = self.handlers.get().into_iter().flatten();
        known.any(|it| it.name == handler && it.recursive_read_only_mounts)
    }

    /// Puts the doors and the settings together.
    pub fn new(doors: Doors, settings: PodSettings) -> Self {
        Self {
            puller: Puller::new(
                doors.images.clone(),
                doors.pulls.clone(),
                settings.pulls.clone(),
                doors.clock.clone(),
            ),
            records: Records::default(),
            answers: Answers::default(),
            endings: Endings::default(),
            user_ranges: UserRanges::new(settings.user_ids),
            sandbox_slots: Semaphore::new(settings.n_parallel_sandboxes.max(1)),
            runtime_name: OnceCell::new(),
            handlers: OnceCell::new(),
            doors,
            settings,
        }
    }

    /// The node and each change of it.
    pub(crate) fn watch_node(&self) -> watch::Receiver<Arc<NodeState>> {
        self.doors.node.clone()
    }

    /// The node as it is now.
    pub(crate) fn node(&self) -> Arc<NodeState> {
        self.doors.node.borrow().clone()
    }
}

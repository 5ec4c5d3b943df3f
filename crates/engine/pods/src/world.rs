//! The doors a worker uses, and what is true of the node for all pods.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use ferrolet_lifecycle::BackOffPolicy;
use ferrolet_ports::{
    Clock, ClusterLookups, ClusterObjects, Events, GrantsView, Hooks, Images, NodeNames,
    PodCgroups, PodFiles, PodVolumes, Probing, Runtime, RuntimeError, RuntimeHandler, StateFiles,
    Usage,
};
use ferrolet_resources::{AdmissionNode, Amounts, with_resources};
use ferrolet_spec::NodeDns;
use ferrolet_types::{Pod, pod::PodView as _};
use tokio::sync::{OnceCell, Semaphore, watch};

use crate::{
    Board, PullDoors, PullSettings,
    answers::Answers,
    pull::Puller,
    records::Records,
    userns::{UserIds, UserRanges},
};

/// Everything a worker can reach: the doors, and what is kept for all workers together.
pub struct World {
    doors: Doors,
    /// What is true of the node.
    pub node: NodeFacts,
    /// What specifications are made from, as it is now; `node.spec` is how it began.
    spec: Mutex<Arc<ferrolet_spec::NodeFacts>>,
    pub(crate) puller: Puller,
    /// What pods were granted and what is in force.
    pub(crate) records: Records,
    /// What was told of static pods.
    pub(crate) answers: Answers,
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

/// What is true of the node for all pods.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// What specifications are made from.
    pub spec: ferrolet_spec::NodeFacts,
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
}

/// The doors, as the composition root hands them over.
pub struct Doors {
    /// Containers.
    pub runtime: Arc<dyn Runtime>,
    /// Images.
    pub images: Arc<dyn Images>,
    /// The memory of pulls and the node's credentials; without them only pull secrets count, and nothing is remembered.
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
    /// Volumes of pods.
    pub volumes: Arc<dyn PodVolumes>,
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
    /// What the node is, for admission; `None` takes every pod.
    pub admission: watch::Receiver<Option<AdmissionNode>>,
}

impl World {
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

    /// Puts the doors and the node's facts together.
    pub fn new(doors: Doors, node: NodeFacts) -> Self {
        Self {
            puller: Puller::new(
                doors.images.clone(),
                doors.pulls.clone(),
                node.pulls.clone(),
                doors.clock.clone(),
            ),
            records: Records::default(),
            answers: Answers::default(),
            user_ranges: UserRanges::new(node.user_ids),
            sandbox_slots: Semaphore::new(node.n_parallel_sandboxes.max(1)),
            runtime_name: OnceCell::new(),
            spec: Mutex::new(Arc::new(node.spec.clone())),
            handlers: OnceCell::new(),
            doors,
            node,
        }
    }

    /// Takes over what the node's object says: where the node is, and what its pods may have together.
    pub fn describe(&self, host_ips: Vec<String>, allocatable: Amounts) {
        let mut spec = self.spec.lock().unwrap_or_else(PoisonError::into_inner);
        if spec.host_ips != host_ips || spec.allocatable != allocatable {
            let facts = Arc::make_mut(&mut spec);
            (facts.host_ips, facts.allocatable) = (host_ips, allocatable);
        }
    }

    /// What specifications are made from now.
    pub(crate) fn spec(&self) -> Arc<ferrolet_spec::NodeFacts> {
        let spec = self.spec.lock().unwrap_or_else(PoisonError::into_inner);
        spec.clone()
    }
}

//! Volumes, wired: the engine, the drivers that it works with, and the loops that keep both current.

use std::{sync::Arc, time::Duration};

use ferrolet_config::{Loaded, config::ChangeDetection};
use ferrolet_host::volumes::{NodeFlexDrivers, NodeVolumes};
use ferrolet_plugins::{Registry, Sockets};
use ferrolet_ports::{Clock, Events};
use ferrolet_resources::Amounts;
use ferrolet_types::{PodUid, VolumeHealthReport};
use ferrolet_volumes::{
    Attaching, Doors, HealthDoors, SelinuxNode, VolumeEngine, VolumeFigures, follow_health,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{CHANNEL, cluster::Cluster};

/// How often drivers are asked for the health of volumes where usage is never measured.
const HEALTH_PERIOD: Duration = Duration::from_secs(60);

/// Everything about volumes that other parts of the agent meet.
pub(super) struct Storage {
    pub(super) engine: Arc<VolumeEngine>,
    /// Drivers that introduced themselves.
    pub(super) plugins: Arc<Registry>,
    /// Pods whose volumes became ready.
    pub(super) ready: mpsc::Receiver<PodUid>,
    /// What drivers say of volumes.
    pub(super) health: mpsc::Receiver<VolumeHealthReport>,
    health_sender: mpsc::Sender<VolumeHealthReport>,
}

impl Storage {
    pub(super) fn new(
        loaded: &Loaded,
        node_name: &str,
        cluster: Option<&Cluster>,
        allocatable: Amounts,
        (clock, events): (Arc<dyn Clock>, Arc<dyn Events>),
    ) -> Self {
        let (config, root) = (&loaded.config, &loaded.flags.root_dir);
        let (ready_sender, ready) = mpsc::channel(CHANNEL);
        let (health_sender, health) = mpsc::channel(CHANNEL);
        let plugins = Arc::new(Registry::default());
        let node_volumes = Arc::new(NodeVolumes::new(root));
        let flex = NodeFlexDrivers::new(&config.volumes.plugin_dir, (*node_volumes).clone());
        let engine = VolumeEngine::new(Doors {
            files: node_volumes.clone(),
            mounts: node_volumes,
            flex: Arc::new(flex),
            attaching: if cluster.is_some() && config.volumes.controller_attach_detach {
                Attaching::ByController
            } else {
                Attaching::Ourselves
            },
            objects: cluster.map(|cluster| cluster.pod_objects.clone()),
            storage: cluster.map(Cluster::storage),
            drivers: plugins.clone(),
            node_name: node_name.to_owned(),
            clock,
            events,
            allocatable,
            meters_volumes: config.gates.enabled("LocalStorageCapacityIsolationFSQuotaMonitoring"),
            selinux: selinux(loaded),
            look_again: look_again(loaded),
            became_ready: Some(ready_sender),
        });
        Self { engine: Arc::new(engine), plugins, ready, health, health_sender }
    }

    /// Starts what follows the cluster's objects and the node's drivers.
    pub(super) fn follow(&self, loaded: &Loaded, cluster: &Cluster, tasks: &mut JoinSet<()>) {
        let (config, registered) = (&loaded.config, self.plugins.registered());
        tasks.spawn(self.engine.clone().refresh(cluster.objects.changes()));
        tasks.spawn(self.engine.clone().follow_drivers(registered.clone()));
        if config.gates.enabled("CSIVolumeHealth") {
            tasks.spawn(follow_health(HealthDoors {
                engine: self.engine.clone(),
                registered,
                // Upstream asks even where usage is never measured.
                period: config.volumes.stats_period.unwrap_or(HEALTH_PERIOD),
                told: self.health_sender.clone(),
            }));
        }
        let (socket_sender, sockets) = watch::channel(Sockets::new());
        let directory = loaded.flags.root_dir.join("plugins_registry");
        tasks.spawn(ferrolet_host::sockets::follow(directory, socket_sender));
        let plugins = self.plugins.clone();
        tasks.spawn(async move { plugins.run(sockets).await });
    }
}

/// Whether the usage of volumes is part of what the node tells.
pub(super) fn figures(loaded: &Loaded) -> VolumeFigures {
    match loaded.config.volumes.stats_period {
        Some(_) => VolumeFigures::Shown,
        None => VolumeFigures::Hidden,
    }
}

/// What SELinux calls things on this node.
fn selinux(loaded: &Loaded) -> Option<SelinuxNode> {
    Some(SelinuxNode {
        file_label: ferrolet_host::selinux::container_file_label()?,
        is_for_all_modes: loaded.config.gates.enabled("SELinuxMount"),
    })
}

/// How often objects are looked at when their changes are not announced.
fn look_again(loaded: &Loaded) -> Option<Duration> {
    match loaded.config.volumes.change_detection {
        ChangeDetection::Watch => None,
        ChangeDetection::Cache | ChangeDetection::Get => Some(loaded.config.sources.sync_frequency),
    }
}

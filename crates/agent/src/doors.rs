//! Which part of the world each part of the agent is handed.

use std::sync::Arc;

use ferrolet_claims_engine::Claims;
use ferrolet_devices_engine::Devices;
use ferrolet_node::NodeState;
use ferrolet_pods::{Board, Pods};
use ferrolet_ports::{Collectors, Part, Placing, PodsView, StatusBacklog, Usage};
use ferrolet_probes::Probes;
use ferrolet_rare_volumes::RareDoors;
use ferrolet_volumes::Volumes;
use tokio::sync::{mpsc, watch};

use crate::{Platform, cluster::Cluster};

/// Parts that hand something to pods.
pub(crate) struct Providers<'a> {
    pub(crate) probes: &'a Probes,
    pub(crate) volumes: &'a Volumes,
    pub(crate) devices: &'a Arc<Devices>,
    pub(crate) claims: &'a Arc<Claims>,
    pub(crate) placing: Arc<dyn Placing>,
}

impl Platform {
    pub(crate) fn source_doors(&self, cluster: Option<&Cluster>) -> ferrolet_sources::Doors {
        ferrolet_sources::Doors {
            manifests: self.manifests.clone(),
            static_pods: cluster.map(|it| it.report.static_pods.clone()),
            clock: self.clock.clone(),
        }
    }

    pub(crate) fn node_doors(&self) -> ferrolet_node_engine::Doors {
        ferrolet_node_engine::Doors {
            runtime: self.runtime.runtime.clone(),
            machine: self.machine.clone(),
            clock: self.clock.clone(),
        }
    }

    pub(crate) fn device_doors(&mut self) -> ferrolet_devices_engine::Doors {
        let devices = &mut self.plugins.devices;
        ferrolet_devices_engine::Doors {
            plugins: devices.plugins.clone(),
            // Nobody asks twice; whoever did would hear of no plugin.
            news: devices.news.take().unwrap_or_else(|| mpsc::channel(1).1),
            files: devices.files.clone(),
            clock: self.clock.clone(),
        }
    }

    pub(crate) fn claim_doors(
        &mut self,
        cluster: Option<&Cluster>,
    ) -> ferrolet_claims_engine::Doors {
        let claims = &mut self.plugins.claims;
        ferrolet_claims_engine::Doors {
            drivers: claims.drivers.clone(),
            // Nobody asks twice; whoever did would hear of no driver.
            news: claims.news.take().unwrap_or_else(|| mpsc::channel(1).1),
            cluster: cluster.map(Cluster::claim_doors),
            files: self.state_files.clone(),
            clock: self.clock.clone(),
        }
    }

    pub(crate) fn observe_doors(&mut self) -> ferrolet_observe::Doors {
        ferrolet_observe::Doors {
            runtime: self.runtime.runtime.clone(),
            kernel_log: self.kernel_log.take(),
            events: self.events.clone(),
            clock: self.clock.clone(),
        }
    }

    pub(crate) fn probe_doors(&self) -> ferrolet_probes::Doors {
        ferrolet_probes::Doors {
            runtime: self.runtime.runtime.clone(),
            events: self.events.clone(),
            clock: self.clock.clone(),
            outbound: self.outbound.clone(),
        }
    }

    pub(crate) fn volume_doors(
        &self,
        rare: ferrolet_rare_volumes::Settings,
        cluster: Option<&Cluster>,
        parts: &mut Vec<Part>,
    ) -> ferrolet_volumes::VolumeDoors {
        let cluster = cluster.map(|it| {
            let (doors, part) = it.volume_doors(&self.plugins);
            parts.push(part);
            doors
        });
        let rare = RareDoors {
            settings: rare,
            files: self.volume_files.clone(),
            mounts: self.mounts.clone(),
            flex: self.flex.clone(),
            storage: cluster.as_ref().map(|it| it.storage.clone()),
        };
        ferrolet_volumes::VolumeDoors {
            files: self.volume_files.clone(),
            mounts: self.mounts.clone(),
            plugins: ferrolet_rare_volumes::plugins(rare),
            drivers: self.plugins.csi.clone(),
            registered: self.plugins.registered.clone(),
            usage: self.usage.clone(),
            cluster,
            events: self.events.clone(),
            clock: self.clock.clone(),
        }
    }

    pub(crate) fn pod_doors(
        &self,
        board: &Arc<Board>,
        providers: Providers<'_>,
        cluster: Option<&Cluster>,
        node: watch::Receiver<Arc<NodeState>>,
    ) -> ferrolet_pods::Doors {
        let Providers { probes, volumes, devices, claims, placing } = providers;
        ferrolet_pods::Doors {
            runtime: self.runtime.runtime.clone(),
            images: self.runtime.images.clone(),
            pulls: Some(self.pulls.clone()),
            cgroups: self.cgroups.clone(),
            files: self.files.clone(),
            names: self.names.clone(),
            state_files: self.state_files.clone(),
            usage: Some(volumes.usage.clone()),
            placing: Some(placing),
            volumes: volumes.engine.clone(),
            devices: devices.clone(),
            claims: claims.clone(),
            probing: probes.probing.clone(),
            hooks: probes.hooks.clone(),
            objects: cluster.map(|it| it.objects.clone()),
            lookups: cluster.map(|it| it.lookups.clone()),
            clock: self.clock.clone(),
            events: self.events.clone(),
            board: board.clone(),
            node,
        }
    }

    pub(crate) fn shutdown_doors(
        &self,
        pods: Arc<dyn PodsView>,
        sync_loop: &Pods,
        ended: Arc<ferrolet_shutdown::Ended>,
        backlog: Option<Arc<dyn StatusBacklog>>,
    ) -> ferrolet_shutdown::Doors {
        ferrolet_shutdown::Doors {
            power: self.power.clone(),
            pods,
            evictions: sync_loop.evictions.clone(),
            ended,
            backlog,
            state_files: self.state_files.clone(),
            events: self.events.clone(),
            clock: self.clock.clone(),
        }
    }

    pub(crate) fn placement_doors(
        &self,
        pods: Arc<dyn PodsView>,
    ) -> ferrolet_placement_engine::Doors {
        ferrolet_placement_engine::Doors {
            pods,
            runtime: self.runtime.runtime.clone(),
            state_files: self.state_files.clone(),
        }
    }

    pub(crate) fn reclaim_doors(
        &self,
        pods: Arc<dyn PodsView>,
        usage: Arc<dyn Usage>,
        sync_loop: &Pods,
    ) -> ferrolet_reclaim::Doors {
        ferrolet_reclaim::Doors {
            runtime: self.runtime.runtime.clone(),
            images: self.runtime.images.clone(),
            place: self.runtime.image_place.clone(),
            disks: self.disks.clone(),
            records: self.pulls.files.clone(),
            logs: self.logs.clone(),
            reopen: self.runtime.reopen.clone(),
            layers: self.runtime.disk.clone(),
            usage,
            pods,
            evictions: sync_loop.evictions.clone(),
            events: self.events.clone(),
            clock: self.clock.clone(),
        }
    }

    pub(crate) fn eviction_doors(
        &self,
        pods: Arc<dyn PodsView>,
        usage: Arc<dyn Usage>,
        collectors: Arc<dyn Collectors>,
        sync_loop: &Pods,
    ) -> ferrolet_eviction_engine::Doors {
        ferrolet_eviction_engine::Doors {
            means: self.means.clone(),
            alarm: self.memory_alarm.clone(),
            usage,
            stores: self.runtime.disk.clone(),
            collectors,
            pods,
            grants: sync_loop.world.clone(),
            evictions: sync_loop.evictions.clone(),
            events: self.events.clone(),
            clock: self.clock.clone(),
        }
    }
}

//! The list of parts.

use std::sync::Arc;

use ferrolet_node_engine::{
    AllocatableDoors, NodeHandle, RefreshDoors, enforce_allocatable, refresh,
};
use ferrolet_pods::{Board, Wakers};
use ferrolet_ports::{GivenView, Placing, StatusSink};
use ferrolet_report::node::hand_over_pod_cidr;
use ferrolet_shutdown::Shutdown;
use ferrolet_sources::http::ClientError;
use tokio::sync::watch;

use crate::{
    Agent, Platform, Settings, Views,
    cluster::{Cluster, NodeDescription, Talkers},
    doors::Providers,
};

/// Why a node of a cluster is not ready at first, in upstream's words.
const NO_CSI_NODE: &str = "CSINode is not yet initialized";

/// Puts an agent together. Nothing runs yet.
// tidy: a table, the list of the parts with what each is handed
pub async fn assemble(settings: Settings, mut platform: Platform) -> Result<Agent, ClientError> {
    let mut parts = std::mem::take(&mut platform.parts);
    let (node, mut node_part) =
        ferrolet_node_engine::build(settings.node.state, platform.node_doors());
    if let Some(enforced) = settings.node.allocatable {
        let doors = AllocatableDoors {
            cgroups: platform.node_cgroups.clone(),
            events: platform.events.clone(),
        };
        node_part.add_loop(enforce_allocatable(node.subscribe(), enforced, doors));
    }
    let mut cluster = None;
    if let Some(doors) = platform.cluster.take() {
        let (opened, part) = Cluster::open(doors, node.subscribe(), platform.clock.clone()).await;
        cluster = Some(opened);
        parts.push(part);
    }
    let cluster = cluster;

    let (sources, part) =
        ferrolet_sources::build(settings.sources, platform.source_doors(cluster.as_ref()))?;
    parts.push(part);
    let (observed, part) = ferrolet_observe::build(platform.observe_doors());
    parts.push(part);
    let (probes, part) = ferrolet_probes::build(platform.probe_doors());
    parts.push(part);
    let (devices, part) =
        ferrolet_devices_engine::build(settings.devices, platform.device_doors()).await;
    parts.push(part);
    // Before anybody describes the node.
    node.update(|facts| facts.devices = devices.amounts.borrow().clone());
    node_part.add_loop(node.clone().follow(devices.amounts, |facts, it| facts.devices = it));
    let claim_doors = platform.claim_doors(cluster.as_ref());
    let (claims, part) = ferrolet_claims_engine::build(settings.claims, claim_doors).await;
    parts.push(part);
    let volume_doors = platform.volume_doors(settings.rare_volumes, cluster.as_ref(), &mut parts);
    let (volumes, part) = ferrolet_volumes::build(settings.volumes, volume_doors);
    parts.push(part);

    let ended = Arc::new(ferrolet_shutdown::Ended::default());
    platform.sinks.push(ended.clone());
    let board = Arc::new(Board::with_sinks(sinks(&mut platform, cluster.as_ref())));
    let doors = platform.placement_doors(board.clone());
    let (placing, part) = ferrolet_placement_engine::build(settings.placement, doors).await;
    parts.push(part);
    let given: Vec<Arc<dyn GivenView>> =
        vec![devices.devices.clone(), placing.clone(), claims.claims.clone()];
    let placing: Arc<dyn Placing> = placing;
    let providers = Providers {
        probes: &probes,
        volumes: &volumes,
        devices: &devices.devices,
        claims: &claims.claims,
        placing,
    };
    let doors = platform.pod_doors(&board, providers, cluster.as_ref(), node.subscribe());
    let (pods, part) = ferrolet_pods::build(
        settings.pods,
        doors,
        Wakers {
            changes: sources.changes,
            hints: observed.hints,
            probes: probes.reports,
            volumes_ready: volumes.ready,
            volume_health: volumes.health,
            devices: devices.changed,
            claims: claims.changed,
        },
    );
    parts.push(part);
    let doors = platform.reclaim_doors(board.clone(), volumes.usage.clone(), &pods);
    let (collectors, part) = ferrolet_reclaim::build(settings.reclaim, doors);
    parts.push(part);
    let doors = platform.eviction_doors(board.clone(), volumes.usage.clone(), collectors, &pods);
    let (pressure, part) = ferrolet_eviction_engine::build(settings.eviction, doors);
    parts.push(part);
    node_part.add_loop(node.clone().follow(pressure, |facts, short| facts.pressure = short));
    let backlog = cluster.as_ref().map(|it| it.report.backlog.clone());
    let doors = platform.shutdown_doors(board.clone(), &pods, ended, backlog);
    let (shutdown, part) = ferrolet_shutdown::build(settings.shutdown, doors);
    parts.push(part);
    node_part.add_loop(follow_shutdown(node.clone(), shutdown));
    if settings.keeps_chains {
        parts.push(ferrolet_chains::build(platform.packet_filter.clone()));
    }

    let mut views = Views {
        pods: board.clone(),
        board,
        grants: pods.world.clone(),
        given: Arc::new(given),
        usage: volumes.usage,
        node: Arc::new(node.clone()),
        presented: node.clone(),
        node_state: node.subscribe(),
        pulse: pods.pulse,
        evictions: pods.evictions,
    };
    let runtime = platform.runtime.runtime.clone();
    let pod_cidr = settings.node.pod_cidr;
    node_part.add_loop(hand_over_pod_cidr(runtime, node.subscribe(), pod_cidr));
    if let Some(cluster) = cluster {
        views.pods = cluster.report.translated(views.board.clone());
        let doors = RefreshDoors {
            images: platform.runtime.images,
            host: platform.network,
            listing: observed.listing,
        };
        node_part.add_loop(refresh(node.clone(), doors));
        let in_use = volumes.engine.volumes_in_use();
        node_part.add_loop(node.clone().follow(in_use, |facts, used| {
            if used.is_complete {
                facts.volumes_in_use = Some(used.names.into_iter().collect());
            }
        }));
        node_part.add_loop(await_csi_node(&node, volumes.csi_node));
        parts.push(cluster.part(Talkers {
            description: NodeDescription {
                node,
                report: settings.node.report,
                startup: settings.node.startup,
            },
            updates: sources.updates,
            events: platform.events,
            clock: platform.clock,
        }));
    }
    parts.push(node_part);
    Ok(Agent { parts, finished: pods.finished, views })
}

/// A node whose machine goes down is not ready and takes no pod.
async fn follow_shutdown(node: NodeHandle, shutdown: Shutdown) {
    node.follow(shutdown.fault, |facts, fault| facts.shutdown_fault = fault).await;
    // A node without a graceful shutdown hears nothing more, and no loop may end.
    std::future::pending().await
}

/// Who hears of every status: the cluster first.
fn sinks(platform: &mut Platform, cluster: Option<&Cluster>) -> Vec<Arc<dyn StatusSink>> {
    let cluster = cluster.map(|it| it.statuses.clone());
    cluster.into_iter().chain(std::mem::take(&mut platform.sinks)).collect()
}

/// Keeps the node from being ready until the cluster has its object about drivers: before that the
/// scheduler cannot place pods with their volumes.
fn await_csi_node(
    node: &NodeHandle,
    published: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + use<> {
    // At once, because the node may register before any loop has run.
    node.update(|facts| facts.storage_fault = Some(NO_CSI_NODE.to_owned()));
    node.clone().follow(published, |facts, is_published| {
        facts.storage_fault = (!is_published).then(|| NO_CSI_NODE.to_owned());
    })
}

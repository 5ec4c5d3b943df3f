//! What each part of the agent is told: the configuration and the machine, cut into slices.

use std::{sync::Arc, time::Duration};

use anyhow::bail;
use ferrolet_agent::{NodeSlice, Settings};
use ferrolet_claims_engine::ClaimRules;
use ferrolet_config::{
    FeatureGates, Loaded,
    config::{ChangeDetection, Enforcement, Shutdown},
};
use ferrolet_host::{
    ThisMachine,
    machine::{read_boot_time, read_trust_bundle},
    selinux::container_file_label,
};
use ferrolet_node::{HostAddresses, NodeFacts, NodeState, reservation_faults};
use ferrolet_ports::NodeHost as _;
use ferrolet_rare_volumes::Attaching;
use ferrolet_reclaim::{containers, images, logs};
use ferrolet_report::node::Startup;
use ferrolet_shutdown::ShutdownGroup;
use ferrolet_sources::{FileSettings, HttpSettings, IgnoredField};
use ferrolet_types::Amounts;
use ferrolet_volumes::{ProjectionGates, SelinuxNode, VolumeStats};

use super::{
    Machine, live::Live, machine::Description, node_facts, placement, platform::Adapters,
    pod_facts, pulls,
};

/// How often drivers are asked for the health of volumes where usage is never measured.
const HEALTH_PERIOD: Duration = Duration::from_secs(60);

/// What is wrong when nothing is left for pods.
pub(super) const TOO_MUCH_KEPT: &str =
    "systemReserved, kubeReserved and evictionHard keep more than the machine has";

/// Cuts the configuration.
pub(super) fn of(
    loaded: &Loaded,
    machine: &Machine,
    adapters: &Adapters,
    live: &Live,
) -> anyhow::Result<Settings> {
    let (name, clock) = (&machine.node_name, adapters.clock.as_ref());
    let addresses = HostAddresses { by_name: adapters.by_name.clone(), ..ThisMachine.addresses() };
    let described = node_facts::describe(&Description::of(loaded), &machine.facts, None);
    let faults = reservation_faults(&adapters.node_settings, &described);
    if !faults.is_empty() {
        bail!("{TOO_MUCH_KEPT}: {}", faults.join(" "));
    }
    let facts = NodeFacts::at_start(described, addresses, clock.now());
    // The node as it would register; with a cluster, the API's copy takes its place.
    let state = NodeState::at_start(Arc::clone(&adapters.node_settings), facts, clock.now());
    let pulls = pulls::settings(loaded)?;
    Ok(Settings {
        devices: ferrolet_devices_engine::Settings {
            shows_health: loaded.config.gates.enabled("ResourceHealthStatus"),
        },
        claims: claims(&loaded.config.gates),
        sources: sources(loaded, name),
        pods: ferrolet_pods::Settings {
            making: pod_facts::pod_settings(loaded, &machine.facts, &machine.layout, pulls)?,
            resolv_conf: loaded.config.dns.resolv_conf.clone(),
            once_within: loaded.flags.run_once_within,
        },
        placement: placement::settings(loaded, &state)?,
        volumes: volumes(loaded, name, state.allocatable.clone()),
        rare_volumes: rare_volumes(loaded, name),
        reclaim: reclaim(loaded, live),
        shutdown: shutdown(loaded),
        eviction: eviction(loaded, &state, live),
        keeps_chains: loaded.config.kernel.iptables.util_chains,
        node: NodeSlice {
            state,
            allocatable: node_facts::allocatable(loaded, &machine.layout),
            report: node_facts::report_settings(loaded),
            pod_cidr: loaded.config.node.pod_cidr.clone(),
            startup: Startup::new(read_boot_time(), adapters.started),
        },
    })
}

fn claims(gates: &FeatureGates) -> ferrolet_claims_engine::Settings {
    ferrolet_claims_engine::Settings {
        rules: ClaimRules {
            groups: gates.enabled("DRAWorkloadResourceClaims"),
            skipping: gates.enabled("DRAOptionalNodeOperations"),
        },
        shows_health: gates.enabled("ResourceHealthStatus"),
        shows_messages: gates.enabled("ResourceHealthStatusMessage"),
    }
}

fn sources(loaded: &Loaded, node_name: &str) -> ferrolet_sources::Settings {
    let sources = &loaded.config.sources;
    ferrolet_sources::Settings {
        node_name: node_name.to_owned(),
        file: sources
            .static_pod_path
            .clone()
            .map(|path| FileSettings { path, period: sources.file_check_frequency }),
        http: sources.static_pod_url.clone().map(|url| HttpSettings {
            url,
            period: sources.http_check_frequency,
            headers: sources.static_pod_url_header.clone(),
            roots: read_trust_bundle(),
        }),
        has_api: loaded.flags.kubeconfig.is_some(),
        ignored: ignored_fields(&loaded.config.gates),
    }
}

/// What of a pod is not read, because its gate is closed.
fn ignored_fields(gates: &FeatureGates) -> Vec<IgnoredField> {
    let fields = [
        (gates.enabled("ContainerRestartRules"), IgnoredField::RestartRules),
        (gates.enabled("EnvFiles"), IgnoredField::EnvFiles),
        (gates.enabled("H2CContainerProbe"), IgnoredField::ProbesOverHttp2),
        (gates.enabled("GRPCContainerProbeTLS"), IgnoredField::ProbesOverTls),
        (gates.enabled("EmptyDirVolumeMode"), IgnoredField::EmptyDirMode),
    ];
    let closed = fields.into_iter().filter(|(is_open, _)| !is_open);
    closed.map(|(_, field)| field).collect()
}

fn rare_volumes(loaded: &Loaded, node_name: &str) -> ferrolet_rare_volumes::Settings {
    let is_attached_by_controller =
        loaded.flags.kubeconfig.is_some() && loaded.config.volumes.controller_attach_detach;
    ferrolet_rare_volumes::Settings {
        node_name: node_name.to_owned(),
        attaching: match is_attached_by_controller {
            true => Attaching::ByController,
            false => Attaching::Ourselves,
        },
    }
}

fn volumes(loaded: &Loaded, node_name: &str, allocatable: Amounts) -> ferrolet_volumes::Settings {
    let (volumes, gates) = (&loaded.config.volumes, &loaded.config.gates);
    ferrolet_volumes::Settings {
        node_name: node_name.to_owned(),
        allocatable,
        meters_volumes: gates.enabled("LocalStorageCapacityIsolationFSQuotaMonitoring"),
        projections: ProjectionGates {
            trust_bundles: gates.enabled("ClusterTrustBundleProjection"),
            pod_certificates: gates.enabled("PodCertificateRequest"),
        },
        selinux: container_file_label().map(|file_label| SelinuxNode {
            file_label,
            is_for_all_modes: gates.enabled("SELinuxMount"),
        }),
        // Changes that are not announced are looked for.
        look_again: match volumes.change_detection {
            ChangeDetection::Watch => None,
            ChangeDetection::Cache | ChangeDetection::Get => {
                Some(loaded.config.sources.sync_frequency)
            }
        },
        shown: match volumes.stats_period {
            Some(_) => VolumeStats::Shown,
            None => VolumeStats::Hidden,
        },
        // Upstream asks even where usage is never measured.
        health_period: gates
            .enabled("CSIVolumeHealth")
            .then(|| volumes.stats_period.unwrap_or(HEALTH_PERIOD)),
    }
}

fn shutdown(loaded: &Loaded) -> ferrolet_shutdown::Settings {
    let config = &loaded.config;
    ferrolet_shutdown::Settings {
        groups: match &config.shutdown {
            Shutdown::Off => Vec::new(),
            Shutdown::TwoPhases { total, critical } => {
                ferrolet_shutdown::two_phases(*total, *critical)
            }
            Shutdown::ByPriority(steps) => steps
                .iter()
                .map(|step| ShutdownGroup { priority: step.priority, period: step.grace_period })
                .collect(),
        },
        keeps_record: config.gates.enabled("GracefulNodeShutdownBasedOnPodPriority"),
    }
}

/// When images go that nobody needs.
pub(super) fn image_policy(loaded: &Loaded) -> images::Policy {
    let collection = &loaded.config.images.collection;
    images::Policy {
        minimum_age: collection.minimum_age,
        maximum_age: collection.maximum_age,
        high_percent: collection.high_threshold,
        low_percent: collection.low_threshold,
    }
}

/// When containers' logs are rotated; none where they are left alone.
pub(super) fn log_policy(loaded: &Loaded) -> Option<logs::Policy> {
    let rotation = &loaded.config.container_logs;
    rotation.max_size.map(|max_size| logs::Policy {
        max_size,
        max_files: count(rotation.max_files),
        max_workers: count(rotation.max_workers),
        interval: rotation.monitor_interval,
    })
}

fn count(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn reclaim(loaded: &Loaded, live: &Live) -> ferrolet_reclaim::Settings {
    let (config, flags) = (&loaded.config, &loaded.flags);
    ferrolet_reclaim::Settings {
        images: live.images.subscribe(),
        logs: live.logs.subscribe(),
        containers: containers::Policy {
            minimum_age: flags.minimum_container_ttl,
            per_container: flags.maximum_dead_containers_per_container.map(count),
            in_all: flags.maximum_dead_containers.map(count),
        },
        keeps_storage_limits: config.volumes.local_storage_isolation,
    }
}

/// When pods are put out for the node's sake.
pub(super) fn eviction_policy(loaded: &Loaded) -> ferrolet_eviction_engine::Policy {
    let eviction = &loaded.config.eviction;
    ferrolet_eviction_engine::Policy {
        thresholds: eviction.thresholds.clone(),
        transition: eviction.pressure_transition_period,
        max_pod_grace: eviction.max_pod_grace_period,
    }
}

fn eviction(loaded: &Loaded, node: &NodeState, live: &Live) -> ferrolet_eviction_engine::Settings {
    let config = &loaded.config;
    let machine = node.facts.machine.as_ref();
    let huge_pages = machine.map(|it| it.huge_pages.as_slice()).unwrap_or_default();
    let huge_page_bytes = huge_pages
        .iter()
        .map(|it| it.page_bytes.saturating_mul(it.n_pages))
        .fold(0, u64::saturating_add);
    ferrolet_eviction_engine::Settings {
        policy: live.eviction.subscribe(),
        is_pods_enforced: config.reservations.enforce.contains(&Enforcement::Pods),
        huge_page_bytes: match config.gates.enabled("HugepageAwareEviction") {
            true => huge_page_bytes,
            false => 0,
        },
    }
}

//! What pods are judged and made by on this node: the configuration and the machine, in the words
//! of the rules.

use anyhow::Context as _;
use ferrolet_config::{
    Loaded,
    config::{self as configured, CpuManagerPolicy, MemoryManagerPolicy, MemoryReservationPolicy},
};
use ferrolet_host::{
    machine::{MachineFacts, selinux_is_enabled, thermal_throttle_paths},
    paging,
};
use ferrolet_lifecycle::BackOffPolicy;
use ferrolet_linux::cgroups::CgroupLayout;
use ferrolet_pods::{PodSettings, PullSettings, UserIds};
use ferrolet_resources::{
    CgroupMode, CgroupPolicy, MemoryQos, MemoryReserve, NodeResources, SwapBehavior, SwapPolicy,
    amount,
};
use ferrolet_spec::{NodeDns, SpecSettings};

/// Everything that the making of pods asks about the node.
// tidy: a table, one setting after another
pub(super) fn pod_settings(
    loaded: &Loaded,
    machine: &MachineFacts,
    layout: &CgroupLayout,
    pulls: PullSettings,
) -> anyhow::Result<PodSettings> {
    let (config, flags) = (&loaded.config, &loaded.flags);
    let mode = cgroup_mode(layout);
    let host_ips: Vec<String> = match flags.node_ips.as_slice() {
        [] => ferrolet_host::addresses::read_addresses()
            .default_v4
            .iter()
            .map(ToString::to_string)
            .collect(),
        given => given.iter().map(ToString::to_string).collect(),
    };
    let cluster_dns: Vec<String> =
        config.dns.cluster_servers.iter().map(ToString::to_string).collect();
    let period = config.cgroups.cpu_quota_period;
    let cluster_domain = config.dns.cluster_domain.clone().unwrap_or_default();
    Ok(PodSettings {
        dns: NodeDns {
            cluster_dns,
            cluster_domain: cluster_domain.clone(),
            resolv_conf: None,
            node_ips: host_ips,
        },
        cluster_domain,
        back_off: BackOffPolicy {
            crash_initial: config.runtime.first_restart_back_off,
            ..BackOffPolicy::upstream(config.runtime.max_restart_back_off)
        },
        pulls,
        user_ids: user_ids(loaded)?,
        has_static_cpus: config.resources.cpu_policy == CpuManagerPolicy::Static,
        has_static_memory: config.resources.memory_policy == MemoryManagerPolicy::Static,
        // Two per processor keep every processor busy; more only make the median pod wait for the
        // last one.
        n_parallel_sandboxes: usize::try_from(machine.n_cpus)? * 2,
        n_dead_kept: flags
            .maximum_dead_containers_per_container
            .map(usize::try_from)
            .transpose()?,
        sync_frequency: config.sources.sync_frequency,
        spec: SpecSettings {
            resources: NodeResources {
                cgroup_mode: mode,
                cgroups: CgroupPolicy {
                    cpu_cfs_quota: period.is_some(),
                    cfs_period_micros: period
                        .map_or(Ok(100_000), |period| u32::try_from(period.as_micros()))?,
                    pids_limit: config
                        .cgroups
                        .pod_pids_limit
                        .map(|n| i64::try_from(n.get()))
                        .transpose()?,
                    memory_qos: (mode == CgroupMode::V2)
                        .then(|| memory_qos(loaded, machine))
                        .transpose()?
                        .flatten(),
                    memory_reserve: memory_reserve(loaded, machine)?,
                },
                memory_capacity: i64::try_from(machine.memory_bytes)?,
                swap: SwapPolicy {
                    is_controlled: paging::swap_is_controlled(layout),
                    behavior: match config.cgroups.swap {
                        configured::SwapBehavior::Unset | configured::SwapBehavior::NoSwap => {
                            SwapBehavior::NoSwap
                        }
                        configured::SwapBehavior::LimitedSwap => SwapBehavior::LimitedSwap,
                    },
                    capacity: i64::try_from(machine.swap_bytes)?,
                },
                huge_page_sizes: paging::huge_page_sizes(),
                single_process_oom_kill: config
                    .cgroups
                    .single_process_oom_kill
                    .unwrap_or(mode == CgroupMode::V1),
            },
            seccomp_root: flags.root_dir.join("seccomp"),
            is_seccomp_default: config.runtime.seccomp_default,
            is_selinux_enabled: selinux_is_enabled(),
            extra_masked_paths: thermal_throttle_paths(),
            has_stop_signals: config.gates.enabled("ContainerStopSignals"),
            default_sysctls: config.kernel.default_pod_sysctls.clone(),
        },
    })
}

/// Which hierarchy the node has.
pub(super) fn cgroup_mode(layout: &CgroupLayout) -> CgroupMode {
    match layout {
        CgroupLayout::V1 { .. } => CgroupMode::V1,
        CgroupLayout::V2 { .. } => CgroupMode::V2,
    }
}

/// True when what pods request of memory is kept for them.
pub(super) fn has_reservations(loaded: &Loaded) -> bool {
    let policy = loaded.config.resources.memory_reservation;
    loaded.config.gates.enabled("MemoryQoS") && policy == MemoryReservationPolicy::TieredReservation
}

/// Protection and throttling of memory, for v2; `None` where the feature is off.
fn memory_qos(loaded: &Loaded, machine: &MachineFacts) -> anyhow::Result<Option<MemoryQos>> {
    let config = &loaded.config;
    if !config.gates.enabled("MemoryQoS") {
        return Ok(None);
    }
    Ok(Some(MemoryQos {
        throttling_factor: config.resources.memory_throttling_factor,
        is_reserving: has_reservations(loaded),
        allocatable: allocatable_memory(loaded, machine)?,
        page_size: i64::try_from(paging::page_size())?,
    }))
}

/// What lower classes are kept from, where that is asked for.
fn memory_reserve(
    loaded: &Loaded,
    machine: &MachineFacts,
) -> anyhow::Result<Option<MemoryReserve>> {
    let config = &loaded.config;
    let percent = config.resources.qos_reserved_memory;
    let Some(percent) = percent.filter(|_| config.gates.enabled("QOSReserved")) else {
        return Ok(None);
    };
    Ok(Some(MemoryReserve { percent, allocatable: allocatable_memory(loaded, machine)? }))
}

/// Bytes that pods may have together. Thresholds of eviction do not count here.
fn allocatable_memory(loaded: &Loaded, machine: &MachineFacts) -> anyhow::Result<i64> {
    let reservations = &loaded.config.reservations;
    let reserved = [&reservations.system, &reservations.kube];
    let reserved = reserved.map(|it| amount(it, "memory").value());
    let memory = i64::try_from(machine.memory_bytes)?;
    Ok(reserved.into_iter().fold(memory, i64::saturating_sub).max(0))
}

/// The ids that pods with users of their own get.
fn user_ids(loaded: &Loaded) -> anyhow::Result<UserIds> {
    let config = &loaded.config;
    let per_pod = config.cgroups.user_namespace_ids_per_pod;
    let ids = match ferrolet_host::subids::read_sub_ids().context("kubelet mappings")? {
        Some((first, n_ids)) => UserIds { first, n_ids, per_pod },
        None => UserIds::all(per_pod),
    };
    Ok(ids.check(config.node.max_pods)?)
}

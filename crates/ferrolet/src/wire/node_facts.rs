//! What the node says of itself to the cluster: settings from the configuration, and its machine.

use std::path::Path;

use ferrolet_config::{
    Loaded,
    config::{Enforcement, Signal, ThresholdValue},
};
use ferrolet_host::{
    machine::{MachineFacts, has_apparmor},
    paging,
    topology::read_topology,
};
use ferrolet_linux::cgroups::{CgroupLayout, CgroupName};
use ferrolet_node::{HardEviction, HugePages, Machine, NodeSettings, Threshold};
use ferrolet_node_engine::AllocatableSettings;
use ferrolet_report::node::ReportSettings;
use ferrolet_resources::{AllocatablePolicy, ReservedCgroup, ReservedScope, declared_features};
use k8s_openapi::api::core::v1::Taint;

use super::machine::Description;

/// The settings of the node's object.
pub(super) fn settings(loaded: &Loaded, name: &str) -> NodeSettings {
    let (config, flags) = (&loaded.config, &loaded.flags);
    let hard = |signal: Signal| {
        let mut hard = config
            .eviction
            .thresholds
            .iter()
            .filter(|it| it.grace_period.is_none() && it.signal == signal);
        hard.next().map(|it| match it.value {
            ThresholdValue::Quantity(amount) => Threshold::Amount(amount),
            #[expect(clippy::cast_possible_truncation, reason = "a percentage fits a small float")]
            ThresholdValue::Percent(percent) => Threshold::Share((percent / 100.0) as f32),
        })
    };
    let reserved = config.reservations.effective();
    NodeSettings {
        name: name.to_owned(),
        hostname: name.to_owned(),
        node_ips: flags.node_ips.clone(),
        has_external_cloud: flags.cloud_provider.as_deref() == Some("external"),
        provider_id: config.node.provider_id.clone(),
        labels: flags.node_labels.clone(),
        taints: config.node.taints.iter().map(api_taint).collect(),
        has_controller_attach: config.volumes.controller_attach_detach,
        max_pods: config.node.max_pods,
        pods_per_core: config.node.pods_per_core,
        max_images: config.node.status_max_images,
        kubelet_port: config.server.port,
        kubelet_version: flags.kubelet_version.clone(),
        operating_system: "linux".to_owned(),
        architecture: architecture().to_owned(),
        declared_features: declared_features(|gate| config.gates.enabled(gate)),
        has_pod_level_resources: config.gates.enabled("PodLevelResources"),
        compares_tolerations: config.gates.enabled("TaintTolerationComparisonOperators"),
        allowed_unsafe_sysctls: config.kernel.allowed_unsafe_sysctls.clone(),
        system_reserved: reserved.system,
        kube_reserved: reserved.kube,
        hard_eviction: match flags.experimental_allocatable_ignore_eviction {
            true => HardEviction::default(),
            false => HardEviction {
                memory: hard(Signal::MemoryAvailable),
                storage: hard(Signal::NodeFsAvailable),
            },
        },
        has_storage_isolation: config.volumes.local_storage_isolation,
    }
}

/// What is enforced on the node's own cgroups; `None` where there are none.
pub(super) fn allocatable(loaded: &Loaded, layout: &CgroupLayout) -> Option<AllocatableSettings> {
    let (config, reservations) = (&loaded.config, &loaded.config.reservations);
    let has = |word: Enforcement| reservations.enforce.contains(&word);
    let reserved = |name: &Option<String>, all: Enforcement, compressible: Enforcement| {
        let scope = match () {
            () if has(all) => ReservedScope::All,
            () if has(compressible) => ReservedScope::Compressible,
            () => return None,
        };
        Some(ReservedCgroup { name: name.clone()?, scope })
    };
    let root = CgroupName::parse(&config.cgroups.root).child("kubepods");
    config.cgroups.per_qos.then(|| AllocatableSettings {
        policy: AllocatablePolicy {
            bounds_pods: has(Enforcement::Pods),
            system: reserved(
                &reservations.system_cgroup,
                Enforcement::SystemReserved,
                Enforcement::SystemReservedCompressible,
            ),
            kube: reserved(
                &reservations.kube_cgroup,
                Enforcement::KubeReserved,
                Enforcement::KubeReservedCompressible,
            ),
            protects_memory: matches!(layout, CgroupLayout::V2 { .. })
                && config.gates.enabled("MemoryQoS"),
        },
        pods_cgroup: root.components().to_vec(),
    })
}

/// Whether and how often the cluster is told.
pub(super) fn report_settings(loaded: &Loaded) -> ReportSettings {
    let node = &loaded.config.node;
    ReportSettings {
        must_register: node.register,
        gets_existing_only: loaded.config.gates.enabled("KubeletRegistrationGetOnExistsOnly"),
        update_frequency: node.status_update_frequency,
        report_frequency: node.status_report_frequency,
    }
}

fn api_taint(taint: &ferrolet_config::config::Taint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: taint.effect.map(|effect| effect.as_str().to_owned()).unwrap_or_default(),
        time_added: None,
    }
}

/// Go's name for the processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The machine in the words of the node. Its topology is read anew unless it has as many processors
/// and as much memory as at the last look.
pub(super) fn describe(
    description: &Description,
    machine: &MachineFacts,
    last: Option<Machine>,
) -> Machine {
    let huge_pages: Vec<HugePages> = paging::huge_pages()
        .into_iter()
        .map(|(page_bytes, n_pages)| HugePages { page_bytes, n_pages })
        .collect();
    let size = (machine.n_cpus, machine.memory_bytes, &huge_pages);
    let last = last.filter(|last| (last.n_cpus, last.memory_bytes, &last.huge_pages) == size);
    Machine {
        topology: last.map_or_else(|| read_topology(Path::new("/sys")), |last| last.topology),
        n_cpus: machine.n_cpus,
        memory_bytes: machine.memory_bytes,
        huge_pages,
        ephemeral_storage_bytes: paging::file_system_bytes(&description.root_dir),
        swap_bytes: machine.swap_bytes,
        max_pids: machine.max_pids,
        machine_id: machine.machine_id.clone(),
        system_uuid: machine.system_uuid.clone(),
        boot_id: machine.boot_id.clone(),
        kernel_version: machine.kernel_version.clone(),
        os_image: machine.os_image.clone(),
        is_in_user_namespace: description
            .tells_user_namespace
            .then_some(machine.is_in_user_namespace),
        has_apparmor: has_apparmor(),
    }
}

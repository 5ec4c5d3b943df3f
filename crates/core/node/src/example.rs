//! A node to write tests and examples with: the one that was recorded at upstream's kubelet, ready
//! and without pressure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use ferrolet_types::{Quantity, Timestamp};

use crate::{
    DeviceResources, HardEviction, HostAddresses, HugePages, Machine, MachineTopology, NodeFacts,
    NodeSettings, NodeState, Pressure, RuntimeCondition, RuntimeHandler, RuntimeHealth,
    RuntimeStatus, RuntimeVersion, Threshold,
};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 87, 0, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));

impl NodeSettings {
    /// Settings as the recorded node had them.
    pub fn example() -> Self {
        let features = [
            "ExtendWebSocketsToKubelet",
            "InPlacePodLevelResourcesVerticalScaling",
            "InPlacePodVerticalScalingInitContainers",
            "RestartAllContainersOnContainerExits",
        ];
        NodeSettings {
            name: "lab-node".to_owned(),
            hostname: "lab-node".to_owned(),
            node_ips: vec![V4],
            has_external_cloud: false,
            provider_id: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            has_controller_attach: true,
            max_pods: 500,
            pods_per_core: None,
            max_images: Some(50),
            kubelet_port: 10250,
            kubelet_version: "v1.37.1".to_owned(),
            operating_system: "linux".to_owned(),
            architecture: "amd64".to_owned(),
            declared_features: features.map(str::to_owned).to_vec(),
            has_pod_level_resources: true,
            compares_tolerations: false,
            allowed_unsafe_sysctls: Vec::new(),
            system_reserved: BTreeMap::new(),
            kube_reserved: BTreeMap::new(),
            hard_eviction: HardEviction {
                memory: Some(Threshold::Amount(Quantity::from_bytes(100 << 20))),
                storage: Some(Threshold::Share(0.01)),
            },
            has_storage_isolation: true,
        }
    }
}

impl NodeFacts {
    /// The recorded node but for its images.
    pub fn example() -> Self {
        NodeFacts {
            machine: Some(Machine {
                n_cpus: 2,
                memory_bytes: 24_682_416 * 1024,
                huge_pages: vec![
                    HugePages { page_bytes: 1 << 30, n_pages: 0 },
                    HugePages { page_bytes: 2 << 20, n_pages: 0 },
                ],
                ephemeral_storage_bytes: Some(270_553_174_016),
                swap_bytes: 0,
                max_pids: Some(32_768),
                machine_id: "3d1219c7c4c5404aaa1f6d2a48adfda4".to_owned(),
                system_uuid: "3d1219c7c4c5404aaa1f6d2a48adfda4".to_owned(),
                boot_id: "6008faa4-dc39-4261-84c0-bf38008b557c".to_owned(),
                kernel_version: "6.18.44-fc-v445".to_owned(),
                os_image: "Debian GNU/Linux 12 (bookworm)".to_owned(),
                has_apparmor: false,
                is_in_user_namespace: Some(false),
                topology: MachineTopology::default(),
            }),
            addresses: HostAddresses {
                interfaces: vec![[127, 0, 0, 1].into(), V4, V6],
                by_name: Vec::new(),
                default_v4: Some(V4),
                default_v6: Some(V6),
            },
            runtime_version: Some(RuntimeVersion {
                name: "containerd".to_owned(),
                version: "2.4.2".to_owned(),
                api_version: "v1".to_owned(),
            }),
            runtime: RuntimeHealth::Answered(RuntimeStatus::example()),
            loop_faults: Vec::new(),
            storage_fault: None,
            shutdown_fault: None,
            soft_faults: None,
            images: None,
            pressure: Pressure::default(),
            devices: DeviceResources::default(),
            volumes_in_use: Some(Vec::new()),
        }
    }
}

impl NodeState {
    /// The recorded node before the API had it.
    pub fn example() -> Self {
        let (settings, facts) = (NodeSettings::example(), NodeFacts::example());
        Self::at_start(Arc::new(settings), facts, Timestamp::from_second(0))
    }
}

impl RuntimeStatus {
    /// A runtime that is well.
    pub fn example() -> Self {
        let fine = RuntimeCondition { is_ok: true, reason: String::new(), message: String::new() };
        let handler = |name: &str| RuntimeHandler {
            name: name.to_owned(),
            recursive_read_only_mounts: true,
            user_namespaces: false,
        };
        RuntimeStatus {
            runtime: fine.clone(),
            network: fine,
            handlers: vec![handler("runc"), handler("")],
            has_supplemental_groups_policy: true,
            cgroup_driver: None,
        }
    }
}

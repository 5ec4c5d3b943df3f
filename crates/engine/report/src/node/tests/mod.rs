//! The node, checked against a recorded one, rule by rule, and as a loop in paused time.

mod plans;
mod recorded;
mod run;

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ferrolet_ports::{ImageInfo, RuntimeCondition, RuntimeHandler, RuntimeStatus, RuntimeVersion};
use ferrolet_types::{Quantity, Timestamp};

use super::{
    DeviceResources, HardEviction, HostAddresses, HugePages, Machine, NodeFacts, NodeSettings,
    Pressure, RuntimeAnswer, Threshold,
};

/// The moment of the recording's last heartbeat.
fn heartbeat() -> Timestamp {
    Timestamp("2026-11-15T20:58:19Z".parse().unwrap())
}

/// The settings of the recorded node.
fn settings() -> NodeSettings {
    let features = [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ];
    NodeSettings {
        name: "lab-node".to_owned(),
        hostname: "lab-node".to_owned(),
        node_ips: vec![ip("10.87.0.1")],
        has_external_cloud: false,
        provider_id: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        has_controller_attach: true,
        must_register: true,
        max_pods: 500,
        pods_per_core: None,
        max_images: Some(50),
        kubelet_port: 10250,
        kubelet_version: "v1.37.1".to_owned(),
        operating_system: "linux".to_owned(),
        architecture: "amd64".to_owned(),
        declared_features: features.map(str::to_owned).to_vec(),
        system_reserved: BTreeMap::new(),
        kube_reserved: BTreeMap::new(),
        hard_eviction: HardEviction {
            memory: Some(Threshold::Amount(Quantity::parse("100Mi").unwrap())),
            storage: Some(Threshold::Share(0.01)),
        },
        has_storage_isolation: true,
        update_frequency: Duration::from_secs(10),
        report_frequency: Duration::from_secs(300),
    }
}

/// The facts of the recorded node, ready and without pressure.
fn facts() -> NodeFacts {
    let agnhost = [
        "registry.k8s.io/e2e-test-images/agnhost:2.55",
        "registry.k8s.io/e2e-test-images/agnhost:2.6",
        "registry.k8s.io/e2e-test-images/agnhost:2.66.1",
    ];
    let nginx = [
        "registry.k8s.io/e2e-test-images/nginx:1.15-4",
        "registry.k8s.io/e2e-test-images/nginx:1.27.0-2",
        "registry.k8s.io/e2e-test-images/nginx:1.28.0-2",
    ];
    let busybox = [
        "docker.io/library/busybox:latest",
        "registry.k8s.io/e2e-test-images/busybox:1.36.1-1",
        "registry.k8s.io/e2e-test-images/busybox:1.37.0-2",
        "registry.k8s.io/e2e-test-images/ipc-utils:1.4",
    ];
    let pause = [
        "registry.k8s.io/pause:3.10",
        "registry.k8s.io/pause:3.10.1",
        "registry.k8s.io/pause:3.10.2",
    ];
    // In no particular order, as a runtime lists them.
    let images = [
        image(&pause, 768_714),
        image(&agnhost, 326_073_282),
        image(&["lab.local/pause:1"], 768_703),
        image(&busybox, 4_475_573),
        image(&["registry.k8s.io/e2e-test-images/nonewprivs:1.4"], 6_881_986),
        image(&nginx, 4_475_584),
        image(&["registry.k8s.io/e2e-test-images/nonroot:1.5"], 4_475_577),
        image(&["registry.k8s.io/e2e-test-images/sample-device-plugin:1.7"], 37_673_678),
    ];
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
            machine_id: "3d1219c7c4c5404aaa1f6d2a48adfda4".to_owned(),
            system_uuid: "3d1219c7c4c5404aaa1f6d2a48adfda4".to_owned(),
            boot_id: "6008faa4-dc39-4261-84c0-bf38008b557c".to_owned(),
            kernel_version: "6.18.44-fc-v445".to_owned(),
            os_image: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            is_in_user_namespace: Some(false),
        }),
        addresses: HostAddresses {
            interfaces: vec![ip("127.0.0.1"), ip("10.87.0.1"), ip("fd00::1")],
            by_name: Vec::new(),
            default_v4: Some(ip("10.87.0.1")),
            default_v6: Some(ip("fd00::1")),
        },
        runtime_version: Some(RuntimeVersion {
            name: "containerd".to_owned(),
            version: "2.4.2".to_owned(),
            api_version: "v1".to_owned(),
        }),
        runtime: RuntimeAnswer::Answered(runtime_status()),
        loop_faults: Vec::new(),
        storage_fault: None,
        shutdown_fault: None,
        soft_faults: None,
        images: Some(images.into()),
        pressure: Pressure::default(),
        devices: DeviceResources::default(),
        volumes_in_use: Some(Vec::new()),
    }
}

fn runtime_status() -> RuntimeStatus {
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

fn image(names: &[&str], size: u64) -> ImageInfo {
    ImageInfo {
        id: format!("sha256:{size}"),
        tags: names.iter().map(|name| (*name).to_owned()).collect(),
        digests: Vec::new(),
        size,
        user_id: None,
        username: String::new(),
        is_pinned: false,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

//! The node, checked against a recorded one, and rule by rule.

mod plans;
mod recorded;

use std::net::IpAddr;

use ferrolet_types::Timestamp;

use crate::{NodeFacts, NodeImage, NodeSettings, RuntimeStatus};

/// The moment of the recording's last heartbeat.
fn heartbeat() -> Timestamp {
    Timestamp("2026-11-15T20:58:19Z".parse().unwrap())
}

fn settings() -> NodeSettings {
    NodeSettings::example()
}

fn runtime_status() -> RuntimeStatus {
    RuntimeStatus::example()
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
    NodeFacts { images: Some(images.into()), ..NodeFacts::example() }
}

fn image(names: &[&str], size: u64) -> NodeImage {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    NodeImage { id: format!("sha256:{size}"), names, size }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

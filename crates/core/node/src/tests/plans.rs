//! The rules of the node's description, one table each.

use std::time::Duration;

use ferrolet_types::{Amounts, Quantity, Timestamp};
use k8s_openapi::{
    api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::json;

use super::{facts, heartbeat, image, ip, runtime_status, settings};
use crate::*;

fn amounts(list: &[(&str, &str)]) -> Amounts {
    let parsed =
        list.iter().map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).unwrap()));
    parsed.collect()
}

fn written(amounts: &Amounts) -> Vec<(String, String)> {
    let written = amounts.iter();
    written.map(|(name, amount)| (name.clone(), amount.to_string())).collect()
}

#[test]
fn addresses_are_those_asked_for_else_named_else_routed() {
    let check = |ips: &[&str],
                 hostname: &str,
                 by_name: &[&str],
                 cloud: bool,
                 known: &[&str],
                 expected: &str| {
        let mut settings = settings();
        settings.node_ips = ips.iter().map(|it| ip(it)).collect();
        hostname.clone_into(&mut settings.hostname);
        settings.has_external_cloud = cloud;
        let mut facts = facts();
        facts.addresses.by_name = by_name.iter().map(|it| ip(it)).collect();
        facts.addresses.interfaces.push(ip("10.0.0.7"));
        let known = known
            .iter()
            .map(|it| NodeAddress { type_: "InternalIP".to_owned(), address: (*it).to_owned() });
        let previous = NodeStatus { addresses: Some(known.collect()), ..NodeStatus::default() };
        let plan = node_status(&settings, &facts, &previous, heartbeat());
        let list = plan.status.addresses.unwrap_or_default();
        let list: Vec<String> =
            list.into_iter().map(|it| format!("{}={}", it.type_, it.address)).collect();
        let fault = plan.address_fault.map(|it| it.to_string()).unwrap_or_default();
        assert_eq!(
            format!("{} {fault}", list.join(" ")).trim(),
            expected,
            "{ips:?} {hostname} {by_name:?} {cloud}"
        );
    };
    check(&["10.87.0.1"], "n", &[], false, &[], "InternalIP=10.87.0.1 Hostname=n");
    check(
        &["10.87.0.1", "fd00::1"],
        "n",
        &[],
        false,
        &[],
        "InternalIP=10.87.0.1 InternalIP=fd00::1 Hostname=n",
    );
    check(
        &["fd00::1", "10.87.0.1"],
        "n",
        &[],
        false,
        &[],
        "InternalIP=fd00::1 InternalIP=10.87.0.1 Hostname=n",
    );
    check(&[], "n", &[], false, &[], "InternalIP=10.87.0.1 Hostname=n");
    check(&[], "10.1.2.3", &[], false, &[], "InternalIP=10.1.2.3 Hostname=10.1.2.3");
    check(&[], "n", &["fd00::1", "10.0.0.7"], false, &[], "InternalIP=10.0.0.7 Hostname=n");
    check(
        &[],
        "n",
        &["127.0.0.1", "192.0.2.1", "fd00::1"],
        false,
        &[],
        "InternalIP=fd00::1 Hostname=n",
    );
    check(&["::"], "n", &["10.0.0.7"], false, &[], "InternalIP=10.0.0.7 Hostname=n");
    check(&["::"], "n", &[], false, &[], "InternalIP=fd00::1 Hostname=n");
    check(&["0.0.0.0"], "n", &[], true, &[], "InternalIP=10.87.0.1 Hostname=n");
    check(&[], "n", &[], true, &[], "Hostname=n");
    check(&["10.87.0.1"], "n", &[], true, &[], "InternalIP=10.87.0.1 Hostname=n");
    check(&["10.87.0.1"], "n", &[], true, &["203.0.113.5"], "InternalIP=203.0.113.5");
    check(
        &["192.0.2.9"],
        "n",
        &[],
        false,
        &["10.9.9.9"],
        "InternalIP=10.9.9.9 node IP 192.0.2.9 is on none of the host's network interfaces",
    );
    check(&["127.0.0.1"], "n", &[], false, &[], "node IP 127.0.0.1 cannot be a loopback address");
}

#[test]
fn pods_show_internal_addresses_of_both_families() {
    for (listed, expected) in [
        (&[][..], &[][..]),
        (&[("Hostname", "n")], &[]),
        (&[("InternalIP", "10.0.0.1"), ("Hostname", "n")], &["10.0.0.1"]),
        (&[("ExternalIP", "192.0.2.1"), ("InternalIP", "10.0.0.1")], &["10.0.0.1"]),
        (&[("ExternalIP", "192.0.2.1")], &["192.0.2.1"]),
        (
            &[("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2"), ("InternalIP", "fd00::1")],
            &["10.0.0.1", "fd00::1"],
        ),
    ] {
        let addresses = listed.iter().map(|(kind, address)| NodeAddress {
            type_: (*kind).to_owned(),
            address: (*address).to_owned(),
        });
        let node = Node {
            status: Some(NodeStatus {
                addresses: Some(addresses.collect()),
                ..NodeStatus::default()
            }),
            ..Node::default()
        };
        assert_eq!(host_ips(&node), expected, "{listed:?}");
    }
}

#[test]
fn a_name_is_looked_up_only_where_it_decides() {
    for (ips, hostname, has_cloud, expected) in [
        (&[][..], "n", false, true),
        (&["0.0.0.0"], "n", false, true),
        (&["::"], "n", true, true),
        (&["10.0.0.1"], "n", false, false),
        (&[], "10.0.0.1", false, false),
        (&[], "n", true, false),
    ] {
        let settings = NodeSettings {
            node_ips: ips.iter().map(|text| ip(text)).collect(),
            hostname: hostname.to_owned(),
            has_external_cloud: has_cloud,
            ..settings()
        };
        assert_eq!(looks_up_name(&settings), expected, "{ips:?} {hostname}");
    }
}

#[test]
fn a_node_without_any_address_says_so() {
    let (mut settings, mut facts) = (settings(), facts());
    settings.node_ips.clear();
    facts.addresses = HostAddresses::default();
    let plan = node_status(&settings, &facts, &NodeStatus::default(), heartbeat());
    assert_eq!(plan.address_fault, Some(AddressError::NoneFound("lab-node".to_owned())));
    assert_eq!(plan.status.addresses, None);
}

#[test]
fn capacity_counts_cores_pods_pages_and_what_others_advertise() {
    let (mut settings, mut facts) = (settings(), facts());
    settings.pods_per_core = Some(10);
    let machine = facts.machine.as_mut().unwrap();
    machine.huge_pages.truncate(1);
    machine.huge_pages[0].n_pages = 3;
    facts.devices = DeviceResources {
        capacity: amounts(&[("example.com/gpu", "4")]),
        allocatable: amounts(&[("example.com/gpu", "3")]),
        removed: vec!["example.com/old".to_owned()],
        is_reset: false,
        awaited: Vec::new(),
    };
    let previous = amounts(&[("example.org/dongle", "2"), ("hugepages-2Mi", "4Mi"), ("cpu", "64")]);
    let capacity = capacity(&settings, facts.machine.as_ref(), &facts.devices, &previous);
    let expected = [
        ("cpu", "2"),
        ("ephemeral-storage", "270553174016"),
        ("example.com/gpu", "4"),
        ("example.com/old", "0"),
        ("example.org/dongle", "2"),
        ("hugepages-1Gi", "3Gi"),
        ("memory", "24682416Ki"),
        ("pods", "20"),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(written(&capacity), expected);
    let left =
        allocatable(&capacity, &amounts(&[("memory", "100Mi"), ("cpu", "500m")]), &facts.devices);
    let check = |name: &str, expected: &str| assert_eq!(left[name].to_string(), expected, "{name}");
    check("cpu", "1500m");
    check("example.com/gpu", "3");
    check("example.org/dongle", "2");
    // Three gibibytes of pages and the reservation are not pods' memory.
    check("memory", "21434288Ki");
}

#[test]
fn what_is_reserved_is_kept_from_pods_and_never_makes_less_than_nothing() {
    let check = |system: &[(&str, &str)],
                 kube: &[(&str, &str)],
                 eviction: HardEviction,
                 expected: &[(&str, &str)]| {
        let mut settings = settings();
        settings.system_reserved = amounts(system);
        settings.kube_reserved = amounts(kube);
        settings.hard_eviction = eviction;
        let capacity = amounts(&[
            ("cpu", "2"),
            ("memory", "1Gi"),
            ("ephemeral-storage", "1000000"),
            ("pods", "10"),
        ]);
        let left =
            allocatable(&capacity, &reservation(&settings, &capacity), &DeviceResources::default());
        let expected = expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        assert_eq!(written(&left), expected.collect::<Vec<_>>());
    };
    let nothing = HardEviction::default();
    check(
        &[],
        &[],
        nothing,
        &[("cpu", "2"), ("ephemeral-storage", "1M"), ("memory", "1Gi"), ("pods", "10")],
    );
    check(
        &[("cpu", "200m"), ("memory", "100Mi"), ("pid", "100")],
        &[("cpu", "300m"), ("memory", "200Mi")],
        HardEviction {
            memory: Some(Threshold::Share(0.1)),
            storage: Some(Threshold::Amount(Quantity::parse("1k").unwrap())),
        },
        &[("cpu", "1500m"), ("ephemeral-storage", "999k"), ("memory", "651794840"), ("pods", "10")],
    );
    check(
        &[("memory", "4Gi")],
        &[],
        nothing,
        &[("cpu", "2"), ("ephemeral-storage", "1M"), ("memory", "0"), ("pods", "10")],
    );
}

#[test]
fn ready_is_the_sum_of_what_is_wrong() {
    let check = |edit: &dyn Fn(&mut NodeFacts), expected: Result<&str, &str>| {
        let mut facts = facts();
        edit(&mut facts);
        let plan = node_status(&settings(), &facts, &NodeStatus::default(), heartbeat());
        let ready = plan.status.conditions.unwrap().pop().unwrap();
        let (status, reason, message) = match expected {
            Ok(message) => ("True", "KubeletReady", message),
            Err(message) => ("False", "KubeletNotReady", message),
        };
        assert_eq!(ready.message.unwrap(), message);
        assert_eq!(
            (ready.type_.as_str(), ready.status.as_str(), ready.reason.as_deref()),
            ("Ready", status, Some(reason))
        );
    };
    let silent = |secs: u64| {
        move |facts: &mut NodeFacts| {
            facts.runtime = RuntimeHealth::Silent {
                since: Timestamp(heartbeat().0 - Duration::from_secs(secs)),
                last: runtime_status(),
                error: "refused".to_owned(),
            };
        }
    };
    check(&|_| {}, Ok("kubelet is posting ready status"));
    check(
        &|it| it.soft_faults = Some("swap is odd".to_owned()),
        Ok("kubelet is posting ready status. WARNING: swap is odd"),
    );
    check(
        &|it| it.runtime = RuntimeHealth::Never { since: heartbeat(), error: None },
        Err("[container runtime status check may not have completed yet, network state unknown]"),
    );
    check(&silent(29), Ok("kubelet is posting ready status"));
    check(&silent(30), Err("container runtime is down"));
    check(
        &|it| {
            let mut status = runtime_status();
            status.network.is_ok = false;
            "NetworkPluginNotReady".clone_into(&mut status.network.reason);
            "cni plugin not initialized".clone_into(&mut status.network.message);
            it.runtime = RuntimeHealth::Answered(status);
        },
        Err(
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized",
        ),
    );
    check(
        &|it| {
            it.loop_faults = vec!["PLEG is not healthy: late".to_owned()];
            it.storage_fault = Some("CSINode is not yet initialized".to_owned());
            it.shutdown_fault = Some("node is shutting down".to_owned());
        },
        Err("[PLEG is not healthy: late, CSINode is not yet initialized, node is shutting down]"),
    );
    check(
        &|it| it.machine.as_mut().unwrap().ephemeral_storage_bytes = None,
        Err("missing node capacity for resources: ephemeral-storage"),
    );
}

#[test]
fn conditions_keep_their_place_their_times_and_their_neighbours() {
    let early = Time("2026-11-15T20:26:50Z".parse().unwrap());
    let condition = |kind: &str, status: &str, reason: &str| NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        last_transition_time: Some(early.clone()),
        ..NodeCondition::default()
    };
    let previous = NodeStatus {
        conditions: Some(vec![
            condition("Ready", "Unknown", "NodeStatusUnknown"),
            condition("NetworkUnavailable", "False", "RouteCreated"),
            condition("MemoryPressure", "False", "KeptReason"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ]),
        ..NodeStatus::default()
    };
    let mut facts = facts();
    facts.pressure.disk = true;
    let plan = node_status(&settings(), &facts, &previous, heartbeat());
    let list = plan.status.conditions.unwrap();
    let seen: Vec<String> = list
        .iter()
        .map(|it| {
            let is_new = it.last_transition_time == Some(Time(heartbeat().0));
            let time = if is_new { "now" } else { "then" };
            format!("{}={} {} {time}", it.type_, it.status, it.reason.as_deref().unwrap())
        })
        .collect();
    let expected = [
        "Ready=True KubeletReady now",
        "NetworkUnavailable=False RouteCreated then",
        "MemoryPressure=False KeptReason then",
        "DiskPressure=True KubeletHasDiskPressure now",
        "PIDPressure=False KubeletHasSufficientPID now",
    ];
    assert_eq!(seen, expected);
    assert_eq!(plan.events, ["NodeHasDiskPressure", "NodeHasSufficientPID", "NodeReady"]);
}

#[test]
fn a_restart_of_ours_does_not_make_a_ready_node_unready() {
    let previous = node_status(&settings(), &facts(), &NodeStatus::default(), heartbeat()).status;
    let check = |after: u64, expected: &str| {
        let mut facts = facts();
        let since = heartbeat().after(Duration::from_secs(60));
        facts.runtime = RuntimeHealth::Never { since, error: None };
        let now = since.after(Duration::from_secs(after));
        let plan = node_status(&settings(), &facts, &previous, now);
        assert_eq!(plan.status.conditions.unwrap()[3].status, expected, "{after}");
    };
    check(0, "True");
    check(29, "True");
    check(30, "False");
}

#[test]
fn images_are_the_largest_with_five_names_each() {
    let (mut settings, mut facts) = (settings(), facts());
    settings.max_images = Some(2);
    let large = image(&["a@x", "a@y", "a@z", "a:1", "a:2", "a:3"], 30);
    facts.images = Some([image(&["c:1"], 10), image(&["b:1"], 20), large].into());
    let status = node_status(&settings, &facts, &NodeStatus::default(), heartbeat()).status;
    let images = status.images.unwrap();
    assert_eq!(images.len(), 2);
    assert_eq!(images[0].names.as_ref().unwrap(), &["a@x", "a@y", "a@z", "a:1", "a:2"]);
    assert_eq!(images[1].size_bytes, Some(20));
    facts.images = None;
    let previous = NodeStatus { images: Some(images.clone()), ..NodeStatus::default() };
    let status = node_status(&settings, &facts, &previous, heartbeat()).status;
    assert_eq!(status.images, Some(images), "unknown is not none");
}

#[test]
fn a_new_node_has_our_labels_taints_and_annotations() {
    let mut settings = settings();
    settings.has_external_cloud = true;
    settings.provider_id = Some("cloud://1".to_owned());
    settings.labels = [("kubernetes.io/hostname", "other"), ("disk", "ssd")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    settings.taints = vec![Taint {
        key: "dedicated".to_owned(),
        value: Some("db".to_owned()),
        effect: "NoExecute".to_owned(),
        time_added: None,
    }];
    settings.node_ips.push(ip("fd00::1"));
    let node = serde_json::to_value(new_node(&settings, &facts(), heartbeat()).node).unwrap();
    assert_eq!(
        node["metadata"]["labels"],
        json!({
            "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "disk": "ssd",
            "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "other", "kubernetes.io/os": "linux",
        })
    );
    assert_eq!(
        node["metadata"]["annotations"],
        json!({
            "alpha.kubernetes.io/provided-node-ip": "10.87.0.1,fd00::1",
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        })
    );
    assert_eq!(
        node["spec"],
        json!({
            "providerID": "cloud://1",
            "taints": [
                { "key": "dedicated", "value": "db", "effect": "NoExecute" },
                { "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" },
            ],
        })
    );
}

#[test]
fn an_existing_node_gets_back_what_describes_the_machine_and_keeps_the_rest() {
    let existing: Node = serde_json::from_value(json!({
        "metadata": {
            "name": "lab-node",
            "labels": { "kubernetes.io/arch": "arm64", "team": "blue", "disk": "hdd" },
            "annotations": { "mine": "yes", "alpha.kubernetes.io/provided-node-ip": "1.2.3.4",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
        },
        "status": {
            "capacity": { "example.com/gpu": "4", "hugepages-16Mi": "0" },
            "allocatable": { "example.com/gpu": "4" },
            "nodeInfo": { "architecture": "", "bootID": "before", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "v1", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "" },
        },
    }))
    .unwrap();
    let (mut settings, mut facts) = (settings(), facts());
    settings.has_controller_attach = false;
    settings.labels = [("disk", "ssd")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    facts.devices.is_reset = true;
    let node =
        serde_json::to_value(adopt_node(&settings, &facts, &existing, heartbeat()).node).unwrap();
    let labels = &node["metadata"]["labels"];
    assert_eq!(labels["kubernetes.io/arch"], "amd64");
    assert_eq!(labels["kubernetes.io/hostname"], "lab-node");
    assert_eq!((&labels["team"], &labels["disk"]), (&json!("blue"), &json!("hdd")));
    assert_eq!(node["metadata"]["annotations"], json!({ "mine": "yes" }));
    assert_eq!(node["status"]["capacity"]["example.com/gpu"], "0");
    assert_eq!(node["status"]["allocatable"]["example.com/gpu"], "0");
    assert_eq!(node["status"]["capacity"]["hugepages-16Mi"], json!(null));
    assert_eq!(node["status"]["nodeInfo"]["kubeProxyVersion"], "");
    let previous = existing.status.unwrap();
    let plan = node_status(&settings, &facts, &previous, heartbeat());
    assert_eq!(plan.rebooted.as_deref(), Some("6008faa4-dc39-4261-84c0-bf38008b557c"));
}

#[test]
fn keeping_more_than_there_is_names_the_resource() {
    let machine = facts().machine.unwrap();
    let mut settings = settings();
    assert_eq!(reservation_faults(&settings, &machine), Vec::<String>::new());
    settings.kube_reserved.insert("cpu".to_owned(), Quantity::from_milli(1500));
    settings.system_reserved.insert("cpu".to_owned(), Quantity::from_milli(1000));
    settings.system_reserved.insert("pid".to_owned(), Quantity::from_value(1 << 40));
    assert_eq!(
        reservation_faults(&settings, &machine),
        [
            "Resource \"cpu\" has a reservation of 2500m but capacity of 2. Expected capacity >= reservation."
        ]
    );
}

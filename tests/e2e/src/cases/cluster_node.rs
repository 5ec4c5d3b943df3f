//! The Node object: registration, labels, taints, addresses, capacity, conditions, lease.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::cluster::{Access, condition};
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_node_registers_with_everything_that_describes_it,
    a_node_registers_with_the_labels_taints_and_provider_it_is_given,
    a_node_that_exists_is_reconciled,
    a_node_deleted_while_running_registers_again,
    a_lease_is_renewed_every_ten_seconds,
    an_api_server_away_at_start_is_waited_for,
    labels_and_cordons_of_people_stay,
    a_node_reports_at_the_pace_it_is_told,
    a_node_of_an_external_cloud_waits_to_be_initialized,
    a_node_with_two_families_shows_both_addresses,
];

fn a_node_registers_with_everything_that_describes_it(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let ip = context.bench.node_ip();
    let mut world = World::start(context)?;
    let name = world.node_name().to_owned();
    let node = world.node.object(world.cluster)?;
    for (key, expected) in [
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", "amd64"),
    ] {
        ensure!(
            node["metadata"]["labels"][key] == expected,
            "label {key} is {}",
            node["metadata"]["labels"][key]
        );
    }
    let addresses = json!([
        {"type": "InternalIP", "address": ip},
        {"type": "Hostname", "address": name},
    ]);
    ensure!(
        node["status"]["addresses"] == addresses,
        "addresses are {}",
        node["status"]["addresses"]
    );
    for (kind, status, reason) in [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ] {
        let seen = condition(&node, kind);
        ensure!(seen["status"] == status && seen["reason"] == reason, "condition {kind} is {seen}");
    }
    for list in ["capacity", "allocatable"] {
        for resource in ["cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi"] {
            let value = &node["status"][list][resource];
            ensure!(value.is_string(), "{list} of {resource} is {value}");
        }
        ensure!(node["status"][list]["pods"] == "110", "{}", node["status"]);
    }
    let info = &node["status"]["nodeInfo"];
    for key in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "operatingSystem",
        "architecture",
    ] {
        ensure!(info[key].is_string(), "nodeInfo.{key} is {}", info[key]);
    }
    let runtime = info["containerRuntimeVersion"].as_str().unwrap_or_default();
    ensure!(runtime.starts_with("containerd://"), "runtime is {runtime}");
    let version = info["kubeletVersion"].as_str().unwrap_or_default();
    ensure!(version.starts_with("v1.37."), "version is {version}");
    let endpoint = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    ensure!(
        endpoint.as_u64().is_some_and(|port| port > 0),
        "{}",
        node["status"]["daemonEndpoints"]
    );
    // Upstream tells these with its first or second report.
    let (cluster, path) = (world.cluster, world.node.path());
    world.node.node.wait("images and handlers", SOON, |_| {
        let status = &cluster.get(&path)?["status"];
        let images = status["images"].to_string();
        ensure!(images.contains("busybox"), "images are {images}");
        let handlers = status["runtimeHandlers"].to_string();
        ensure!(handlers.contains("runc"), "handlers are {handlers}");
        Ok(Some(()))
    })?;
    let wide = world.cluster.kubectl(&["get", "node", &name, "--output=wide"])?;
    ensure!(wide.contains("Ready") && wide.contains(&ip), "{wide}");
    let refused = world.cluster.refusals(&name)?;
    ensure!(refused.is_empty(), "the API server refused {refused:#?}");
    Ok(Outcome::Passed)
}

fn a_node_registers_with_the_labels_taints_and_provider_it_is_given(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.arguments = [
        "--node-labels=color=blue,node.kubernetes.io/size=big",
        "--register-with-taints=only=friends:NoSchedule,soft=:PreferNoSchedule",
        "--provider-id=lab://1",
    ]
    .map(str::to_owned)
    .to_vec();
    let world = World::start_with(context, options)?;
    let node = world.node.object(world.cluster)?;
    let labels = &node["metadata"]["labels"];
    ensure!(
        labels["color"] == "blue" && labels["node.kubernetes.io/size"] == "big",
        "labels are {labels}"
    );
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    for taint in [
        json!({"key": "only", "value": "friends", "effect": "NoSchedule"}),
        json!({"key": "soft", "effect": "PreferNoSchedule"}),
    ] {
        ensure!(taints.contains(&taint), "taints are {taints:?}");
    }
    ensure!(node["spec"]["providerID"] == "lab://1", "provider is {}", node["spec"]["providerID"]);
    Ok(Outcome::Passed)
}

fn a_node_that_exists_is_reconciled(context: &mut Context<'_>) -> Result<Outcome> {
    let mut options = context.node_options();
    options.arguments = vec!["--node-labels=color=green".to_owned()];
    let mut world = World::prepare(context, options, &Access::Certificate)?;
    let name = world.node_name().to_owned();
    world.apply(&json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"mine": "kept", "kubernetes.io/os": "plan9", "color": "red"},
        },
        "spec": {"unschedulable": true},
    }))?;
    world.node.node.launch()?;
    world.node.wait_ready(world.cluster)?;
    let (cluster, path) = (world.cluster, world.node.path());
    world.node.node.wait("reconciled labels", SOON, |_| {
        let node = cluster.get(&path)?;
        let labels = &node["metadata"]["labels"];
        // The default labels and those of the command line are the agent's; the others are not.
        ensure!(
            labels["mine"] == "kept"
                && labels["kubernetes.io/os"] == "linux"
                && labels["kubernetes.io/hostname"] == name.as_str(),
            "labels are {labels}"
        );
        ensure!(node["spec"]["unschedulable"] == true, "it was uncordoned");
        Ok(Some(()))
    })?;
    Ok(Outcome::Passed)
}

fn a_node_deleted_while_running_registers_again(context: &mut Context<'_>) -> Result<Outcome> {
    if context.is_upstream() {
        let reason = "upstream's kubelet stays away until it is restarted";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let mut options = context.node_options();
    options.configuration = json!({"nodeStatusUpdateFrequency": "2s"});
    let mut world = World::start_with(context, options)?;
    let name = world.node_name().to_owned();
    let before = world.node.object(world.cluster)?;
    world.cluster.kubectl(&["delete", "node", &name])?;
    let (cluster, path) = (world.cluster, world.node.path());
    let after = world.node.node.wait("a new Node object", LATER, |_| cluster.find(&path))?;
    ensure!(after["metadata"]["uid"] != before["metadata"]["uid"], "it is the same object");
    world.node.wait_ready(world.cluster)?;
    Ok(Outcome::Passed)
}

fn a_lease_is_renewed_every_ten_seconds(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let name = world.node_name().to_owned();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
    let cluster = world.cluster;
    let first = world.node.node.wait("a lease", SOON, |_| cluster.find(&path))?;
    ensure!(
        first["spec"]["holderIdentity"] == name.as_str()
            && first["spec"]["leaseDurationSeconds"] == 40,
        "the lease is {first}"
    );
    let node = world.node.object(cluster)?;
    ensure!(
        first["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"],
        "its owner is {}",
        first["metadata"]["ownerReferences"]
    );
    let began = std::time::Instant::now();
    world.node.node.wait("a renewal", SOON, |_| {
        let lease = cluster.get(&path)?;
        Ok((lease["spec"]["renewTime"] != first["spec"]["renewTime"]).then_some(()))
    })?;
    let waited = began.elapsed();
    ensure!(waited < Duration::from_secs(13), "it was renewed after {waited:?}");
    Ok(Outcome::Passed)
}

fn an_api_server_away_at_start_is_waited_for(context: &mut Context<'_>) -> Result<Outcome> {
    let options = context.node_options();
    let mut world = World::prepare(context, options, &Access::Certificate)?;
    world.node.relay.cut();
    world.node.node.launch()?;
    let began = std::time::Instant::now();
    world.node.node.wait("five seconds", SOON, |_| {
        Ok((began.elapsed() > Duration::from_secs(5)).then_some(()))
    })?;
    // It says whom it misses, in a line that a person can act on.
    let server = world.node.relay.address().to_string();
    let log = fs::read_to_string(world.node.node.log())?;
    let complaint = log.lines().find(|line| line.contains(&server) && line.contains("refused"));
    ensure!(complaint.is_some(), "no word about {server} in\n{log}");
    world.node.relay.heal()?;
    world.node.wait_ready(world.cluster).context("the agent must outlive a missing API server")?;
    Ok(Outcome::Passed)
}

fn labels_and_cordons_of_people_stay(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let name = world.node_name().to_owned();
    let cluster = world.cluster;
    cluster.kubectl(&["label", "node", &name, "by=hand"])?;
    cluster.kubectl(&["annotate", "node", &name, "note=seen"])?;
    cluster.kubectl(&["cordon", &name])?;
    let has_marks = |node: &Value| {
        node["metadata"]["labels"]["by"] == "hand"
            && node["metadata"]["annotations"]["note"] == "seen"
            && node["spec"]["unschedulable"] == true
    };
    ensure!(has_marks(&world.node.object(cluster)?), "they never came");
    // A restarted agent registers anew, which must not undo them either.
    world.node.node.kill()?;
    world.node.node.launch()?;
    world.node.node.wait_healthy()?;
    world.node.wait_ready(cluster)?;
    ferrolet_lab::wait::stays_true("the marks of people", Duration::from_secs(4), || {
        Ok(has_marks(&world.node.object(cluster)?))
    })?;
    let said = cluster.kubectl(&["get", "node", &name])?;
    ensure!(said.contains("Ready,SchedulingDisabled"), "{said}");
    cluster.kubectl(&["uncordon", &name])?;
    Ok(Outcome::Passed)
}

fn a_node_reports_at_the_pace_it_is_told(context: &mut Context<'_>) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration =
        json!({"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "4s"});
    let mut world = World::start_with(context, options)?;
    let (cluster, path) = (world.cluster, world.node.path());
    let heartbeat = || -> Result<Value> {
        Ok(condition(&cluster.get(&path)?, "Ready")["lastHeartbeatTime"].clone())
    };
    // The first seconds bring news, such as images; two unchanged reports in a row are at the pace.
    let mut last = heartbeat()?;
    for _ in 0..3 {
        last = world.node.node.wait("another report", SOON, |_| {
            let now = heartbeat()?;
            Ok((now != last).then_some(now))
        })?;
    }
    let node = world.node.object(cluster)?;
    let ready = condition(&node, "Ready");
    ensure!(
        ready["lastTransitionTime"] != ready["lastHeartbeatTime"],
        "a report without news moved the transition: {ready}"
    );
    Ok(Outcome::Passed)
}

fn a_node_of_an_external_cloud_waits_to_be_initialized(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let ip = context.bench.node_ip();
    let mut options = context.node_options();
    options.arguments = vec!["--cloud-provider=external".to_owned()];
    let mut world = World::prepare(context, options, &Access::Certificate)?;
    world.node.node.launch()?;
    let (cluster, path) = (world.cluster, world.node.path());
    let node = world.node.node.wait("the node", SOON, |_| cluster.find(&path))?;
    let taints = node["spec"]["taints"].to_string();
    ensure!(
        taints.contains("node.cloudprovider.kubernetes.io/uninitialized"),
        "taints are {taints}"
    );
    let provided = &node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"];
    ensure!(*provided == ip.as_str(), "the provided address is {provided}");
    Ok(Outcome::Passed)
}

fn a_node_with_two_families_shows_both_addresses(context: &mut Context<'_>) -> Result<Outcome> {
    let (four, six) = (context.bench.node_ip(), "fd00:1ab::2");
    let call = ferrolet_lab::process::call;
    if let Err(error) =
        call("ip", &["-6", "address", "add", &format!("{six}/64"), "dev", "node0", "nodad"])
    {
        return Ok(Outcome::Skipped(format!("no IPv6 here: {error:#}")));
    }
    let mut options = context.node_options();
    options.arguments = vec![format!("--node-ip={four},{six}")];
    let world = World::start_with(context, options)?;
    let node = world.node.object(world.cluster)?;
    let addresses = json!([
        {"type": "InternalIP", "address": four},
        {"type": "InternalIP", "address": six},
        {"type": "Hostname", "address": world.node_name()},
    ]);
    ensure!(
        node["status"]["addresses"] == addresses,
        "addresses are {}",
        node["status"]["addresses"]
    );
    Ok(Outcome::Passed)
}

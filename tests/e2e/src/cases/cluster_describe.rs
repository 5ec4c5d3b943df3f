//! How a node is described: as upstream describes it, and where it is when nobody says so.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::cluster::{Access, condition};
use ferrolet_lab::process::{call, output};
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::build::sleeper;
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_node_is_described_as_upstream_describes_it,
    a_node_without_an_address_given_takes_that_of_its_route_or_its_name,
    a_cloud_gives_a_node_its_addresses_and_pods_show_them,
    the_range_of_pod_addresses_is_handed_to_the_runtime,
    a_node_is_ready_as_soon_as_its_runtime_answers,
];

fn a_node_is_described_as_upstream_describes_it(context: &mut Context<'_>) -> Result<Outcome> {
    if context.is_upstream() {
        let reason = "upstream's kubelet would be compared with itself";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let upstream = context.control_plane()?.binary("kubelet");
    let ours = context.options.agent.clone();
    let mut options = context.node_options();
    options.arguments = vec!["--node-labels=color=blue".to_owned()];
    options.configuration = json!({
        "nodeStatusUpdateFrequency": "1s",
        "maxPods": 42,
        "podsPerCore": 7,
        "kubeReserved": {"cpu": "100m", "memory": "64Mi"},
        "systemReserved": {"memory": "32Mi"},
        "registerWithTaints": [{"key": "only", "value": "friends", "effect": "NoSchedule"}],
    });
    let mut world = World::prepare(context, options, &Access::Certificate)?;
    let mut described = Vec::new();
    for agent in [&upstream, &ours] {
        world.node.node.switch_agent(agent)?;
        world.node.node.launch()?;
        world.node.wait_ready(world.cluster)?;
        let (cluster, path) = (world.cluster, world.node.path());
        let node = world.node.node.wait("a node that is fully described", SOON, |_| {
            let node = cluster.get(&path)?;
            let is_whole = node["status"]["images"].is_array()
                    && node["status"]["runtimeHandlers"].is_array()
                    && node["spec"]["podCIDR"].is_string()
                    // The controller takes its own taint away once the node is Ready.
                    && !node["spec"]["taints"].to_string().contains("not-ready");
            Ok(is_whole.then_some(node))
        })?;
        described.push(node);
        world.node.node.kill()?;
        cluster.kubectl(&["delete", "node", world.node_name()])?;
    }
    let (theirs, ours) = (described.remove(0), described.remove(0));
    // What another node object must have of its own, and features that are declared only with their
    // code.
    let promised = |node: &Value| -> Vec<Value> {
        let features = node["status"]["declaredFeatures"].as_array();
        features.cloned().unwrap_or_default()
    };
    let boasted: Vec<Value> = promised(&ours)
        .into_iter()
        .filter(|feature| !promised(&theirs).contains(feature))
        .collect();
    ensure!(boasted.is_empty(), "only we declare {boasted:?}");
    let mut differences = Vec::new();
    compare("", &plain(theirs), &plain(ours), &mut differences);
    ensure!(differences.is_empty(), "upstream's and ours differ:\n{}", differences.join("\n"));
    Ok(Outcome::Passed)
}

/// A node without identity, times and ranges.
fn plain(mut node: Value) -> Value {
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        node["metadata"][field] = Value::Null;
    }
    node["spec"]["podCIDR"] = Value::Null;
    node["spec"]["podCIDRs"] = Value::Null;
    node["status"]["declaredFeatures"] = Value::Null;
    for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastHeartbeatTime"] = Value::Null;
        condition["lastTransitionTime"] = Value::Null;
    }
    node
}

/// Paths at which two values differ; null is as good as nothing.
fn compare(path: &str, theirs: &Value, ours: &Value, differences: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys().filter(|it| !one.contains_key(*it)));
            for name in names {
                compare(&format!("{path}.{name}"), &theirs[name], &ours[name], differences);
            }
        }
        _ if theirs == ours => {}
        _ => differences.push(format!("  {path}: {theirs} and {ours}")),
    }
}

fn a_node_without_an_address_given_takes_that_of_its_route_or_its_name(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let routed = context.bench.node_ip();
    let mut options = context.node_options();
    options.arguments = vec!["--node-ip=".to_owned()];
    options.configuration = json!({"nodeStatusUpdateFrequency": "1s"});
    let mut world = World::start_with(context, options)?;
    let name = world.node_name().to_owned();
    let address = |world: &World<'_>| -> Result<String> {
        let node = world.node.object(world.cluster)?;
        let first = &node["status"]["addresses"][0];
        ensure!(first["type"] == "InternalIP", "it is {first}");
        Ok(first["address"].as_str().unwrap_or_default().to_owned())
    };
    let seen = address(&world)?;
    ensure!(seen == routed, "the default route is at {routed}, not {seen}");
    // The run has its own mounts, so its hosts file is nobody else's.
    let named = routed.replace(".255.2", ".253.7");
    call("ip", &["address", "add", &format!("{named}/32"), "dev", "node0"])?;
    let hosts = world.node.node.directory().join("hosts");
    let known = fs::read_to_string("/etc/hosts").unwrap_or_default();
    fs::write(&hosts, format!("{known}\n192.0.2.77 {name}\n{named} {name}\n"))?;
    output(Command::new("mount").arg("--bind").arg(&hosts).arg("/etc/hosts"))?;
    world.node.node.kill()?;
    world.node.node.launch()?;
    let waited = world.cluster.wait("the address of its name", SOON, |_| {
        let seen = address(&world)?;
        // 192.0.2.77 is on no interface, so it is somebody else's.
        ensure!(seen == named, "it is {seen}");
        Ok(Some(()))
    });
    call("umount", &["/etc/hosts"])?;
    world.node.node.expect_running()?;
    waited?;
    let seen = world.run(&world.pod("here", &[sleeper("main")]))?;
    ensure!(
        seen.0["status"]["hostIP"] == named.as_str(),
        "its pod is on {}",
        seen.0["status"]["hostIP"]
    );
    Ok(Outcome::Passed)
}

fn a_cloud_gives_a_node_its_addresses_and_pods_show_them(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.arguments = ["--cloud-provider=external", "--node-ip="].map(str::to_owned).to_vec();
    options.configuration =
        json!({"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "2s"});
    let mut world = World::start_with(context, options)?;
    let name = world.node_name().to_owned();
    let (cluster, path) = (world.cluster, world.node.path());
    let hostname = json!({"type": "Hostname", "address": name});
    let node = cluster.get(&path)?;
    ensure!(
        node["status"]["addresses"] == json!([hostname]),
        "before the cloud speaks it is at {}",
        node["status"]["addresses"]
    );
    // What a cloud controller does.
    let given = json!([
        {"type": "InternalIP", "address": "192.0.2.50"},
        {"type": "ExternalIP", "address": "203.0.113.50"},
        hostname,
    ]);
    let patch = json!({"status": {"addresses": given}}).to_string();
    cluster.kubectl(&["patch", "node", &name, "--subresource=status", "--patch", &patch])?;
    cluster.kubectl(&[
        "taint",
        "node",
        &name,
        "node.cloudprovider.kubernetes.io/uninitialized-",
    ])?;
    let heartbeat = || -> Result<Value> {
        Ok(condition(&cluster.get(&path)?, "Ready")["lastHeartbeatTime"].clone())
    };
    let before = heartbeat()?;
    world.node.node.wait(
        "another report",
        LATER,
        |_| Ok((heartbeat()? != before).then_some(())),
    )?;
    let node = cluster.get(&path)?;
    ensure!(
        node["status"]["addresses"] == given,
        "its report made it {}",
        node["status"]["addresses"]
    );
    let seen = world.run(&world.pod("here", &[sleeper("main")]))?;
    ensure!(
        seen.0["status"]["hostIP"] == "192.0.2.50",
        "its pod is on {}",
        seen.0["status"]["hostIP"]
    );
    Ok(Outcome::Passed)
}

fn the_range_of_pod_addresses_is_handed_to_the_runtime(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    context.take_network_from_agent()?;
    // The runtime has no network before it is told the range, and the node is not Ready without.
    let mut world = World::start(context)?;
    let node = world.node.object(world.cluster)?;
    let range = node["spec"]["podCIDR"].as_str().context("it has no range")?;
    let prefix = range.strip_suffix(".0/24").context("the range has no 24 bits")?;
    let seen = world.run(&world.pod("inside", &[sleeper("main")]))?;
    let ip = seen.ip().context("no address")?;
    ensure!(ip.starts_with(&format!("{prefix}.")), "{ip} is not in {range}");
    Ok(Outcome::Passed)
}

fn a_node_is_ready_as_soon_as_its_runtime_answers(context: &mut Context<'_>) -> Result<Outcome> {
    let is_upstream = context.is_upstream();
    if is_upstream {
        let reason = "upstream's kubelet does not start without its runtime";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let options = context.node_options();
    let mut world = World::prepare(context, options, &Access::Certificate)?;
    context.containerd()?.kill()?;
    world.node.node.launch()?;
    let (cluster, path) = (world.cluster, world.node.path());
    let ready = world.node.node.wait("a node without runtime", SOON, |_| {
        Ok(cluster.find(&path)?.map(|node| condition(&node, "Ready")))
    })?;
    let said = ready["message"].as_str().unwrap_or_default();
    ensure!(
        ready["status"] == "False"
            && ready["reason"] == "KubeletNotReady"
            && said.contains("container runtime status check may not have completed yet"),
        "it says {ready}"
    );
    // Long enough for an agent that asks less and less often to be asleep.
    let began = std::time::Instant::now();
    world
        .node
        .node
        .wait("some time", LATER, |_| Ok((began.elapsed().as_secs() >= 12).then_some(())))?;
    context.containerd()?.launch()?;
    let began = std::time::Instant::now();
    world.node.wait_ready(cluster)?;
    let took = began.elapsed();
    ensure!(took.as_secs_f32() < 3.0, "it took {took:?}");
    Ok(Outcome::Passed)
}

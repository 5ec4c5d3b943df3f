//! A node that runs short, by thresholds that no machine can satisfy: nothing is really filled.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::PodView;
use ferrolet_lab::cluster::Access;
use serde_json::{Value, json};

use super::registries::app;
use super::{LATER, SOON, cases, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_node_short_of_memory_evicts_the_pod_furthest_above_its_request,
    a_node_short_of_disk_gives_up_images_and_then_the_largest_writer,
    a_critical_pod_takes_the_place_of_the_pods_that_cost_least,
];

const SPARE: &str = "spare.test/eviction:1";

fn condition(world: &World<'_>, kind: &str) -> Result<Value> {
    let node = world.node.object(world.cluster)?;
    let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["type"] == kind).with_context(|| format!("no condition {kind}"))
}

fn wait_pressure(world: &mut World<'_>, kind: &str, reason: &str) -> Result<()> {
    let what = format!("{kind} to be seen");
    world.cluster.wait(&what, SOON, |_| {
        let seen = condition(world, kind)?;
        ensure!(seen["status"] == "True" && seen["reason"] == reason, "it is {seen}");
        Ok(Some(()))
    })
}

/// Waits until a pod was evicted; gives it and its event.
fn wait_evicted(world: &mut World<'_>, name: &str) -> Result<(PodView, Value)> {
    let seen = world.wait_pod(name, "Failed", LATER, |pod| pod.phase() == "Failed")?;
    let status = &seen.0["status"];
    ensure!(status["reason"] == "Evicted", "{name} says {status}");
    let conditions = status["conditions"].as_array().context("no conditions")?;
    let disrupted = conditions.iter().find(|it| it["type"] == "DisruptionTarget");
    let disrupted = disrupted.with_context(|| format!("{name} has no DisruptionTarget"))?;
    ensure!(
        disrupted["reason"] == "TerminationByKubelet" && disrupted["message"] == status["message"],
        "{disrupted}"
    );
    world.wait_event(&seen, "Evicted")?;
    let events = world.events(&seen)?;
    let event = events.into_iter().find(|it| it["reason"] == "Evicted").context("no event")?;
    Ok((seen, event))
}

fn first_time(event: &Value) -> &str {
    event["metadata"]["creationTimestamp"].as_str().unwrap_or_default()
}

fn a_node_short_of_memory_evicts_the_pod_furthest_above_its_request(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({
        "evictionSoft": {"memory.available": "99%"},
        "evictionSoftGracePeriod": {"memory.available": "45s"},
        "evictionMaxPodGracePeriod": 5,
        "nodeStatusUpdateFrequency": "2s",
    });
    let mut world = World::prepare(context, options, &Access::Certificate)?;
    world.node.node.put_pod(&pod("manifest", &[sleeper("main")]))?;
    world.node.node.launch()?;
    world.node.wait_ready(world.cluster)?;
    let asking = |name: &str, request: &str, words: &str| {
        let resources = json!({"resources": {"requests": {"memory": request}}});
        world.pod(name, &[with(script("main", words), resources)])
    };
    // A file in memory is charged to who wrote it.
    let greedy = "dd if=/dev/zero of=/dev/shm/file bs=1M count=40 2>/dev/null; exec sleep 100000";
    let pods = [asking("modest", "300Mi", "exec sleep 100000"), asking("greedy", "1Mi", greedy)];
    for pod in &pods {
        world.apply(pod)?;
    }
    for name in ["modest", "greedy"] {
        world.wait_ready(name)?;
    }
    wait_pressure(&mut world, "MemoryPressure", "KubeletHasInsufficientMemory")?;
    // Who asks for nothing is not taken any more.
    world.apply(&world.pod("late", &[sleeper("main")]))?;
    let late = world.wait_pod("late", "Failed", SOON, |pod| pod.phase() == "Failed")?;
    let refused = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    ensure!(late.0["status"]["message"] == refused, "late says {}", late.0["status"]);

    let (seen, first) = wait_evicted(&mut world, "greedy")?;
    let message = seen.0["status"]["message"].as_str().unwrap_or_default();
    ensure!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: ")
            && message.contains("Container main was using ")
            && message.contains("request is 1Mi, has larger consumption of memory. "),
        "greedy says {message}"
    );
    let annotations = &first["metadata"]["annotations"];
    ensure!(
        annotations["offending_containers"] == "main"
            && annotations["starved_resource"] == "memory",
        "the event has {annotations}"
    );
    // One at a time: the other one goes when the first is gone and it was looked at again.
    let (_, second) = wait_evicted(&mut world, "modest")?;
    ensure!(first_time(&first) <= first_time(&second), "modest went first");
    wait_running(&mut world.node.node, "manifest")?;
    let metrics = world.node.node.read_only("/metrics")?.body;
    let line = "kubelet_evictions{eviction_signal=\"memory.available\"} 2";
    ensure!(metrics.lines().any(|it| it == line), "it is not counted in the metrics");
    ensure!(metrics.contains("kubelet_eviction_stats_age_seconds_count"), "no age is shown");
    Ok(Outcome::Passed)
}

/// Changes the configuration of an agent that runs, and starts it again.
fn reconfigure(world: &mut World<'_>, change: Value) -> Result<()> {
    let node = &mut world.node.node;
    let path = node.directory().join("kubelet.yaml");
    let configuration: Value = serde_json::from_slice(&fs::read(&path)?)?;
    fs::write(&path, with(configuration, change).to_string())?;
    node.stop()?;
    node.launch()
}

fn has_image(context: &mut Context<'_>, name: &str) -> Result<bool> {
    let listed = context.containerd()?.ctr(&["images", "ls", "--quiet"])?;
    Ok(listed.lines().any(|line| line == name))
}

fn a_node_short_of_disk_gives_up_images_and_then_the_largest_writer(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let spare = app(context.tools, SPARE)?;
    context.containerd()?.import(&[spare])?;
    let mut options = context.node_options();
    options.configuration = json!({"nodeStatusUpdateFrequency": "2s", "imageMinimumGCAge": "1s"});
    let mut world = World::start_with(context, options)?;
    let writing = |name: &str, n_megabytes: u32| {
        let words = format!(
            "dd if=/dev/zero of=/file bs=1M count={n_megabytes} 2>/dev/null; exec sleep 100000"
        );
        world.pod(name, &[script("main", &words)])
    };
    for pod in [writing("tidy", 1), writing("writer", 30)] {
        world.apply(&pod)?;
    }
    for name in ["tidy", "writer"] {
        world.wait_ready(name)?;
    }
    // The runtime looks at what containers wrote now and then.
    world.node.node.wait("the runtime to have seen the file", SOON, |node| {
        let summary: Value = serde_json::from_str(&node.read_only("/stats/summary")?.body)?;
        let pods = summary["pods"].as_array().context("no pods in the summary")?;
        let writer = pods.iter().find(|it| it["podRef"]["name"] == "writer");
        let used = writer.and_then(|it| it["containers"][0]["rootfs"]["usedBytes"].as_u64());
        Ok(used.filter(|used| *used > 25 << 20).map(|_| ()))
    })?;
    reconfigure(&mut world, json!({"evictionHard": {"nodefs.available": "99%"}}))?;
    wait_pressure(&mut world, "DiskPressure", "KubeletHasDiskPressure")?;
    let (seen, first) = wait_evicted(&mut world, "writer")?;
    let message = seen.0["status"]["message"].as_str().unwrap_or_default();
    ensure!(
        message
            .starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: ")
            && message.contains("Container main was using 3"),
        "writer says {message}"
    );
    ferrolet_lab::wait_until("the unused image to go", SOON, || {
        Ok((!has_image(context, SPARE)?).then_some(()))
    })?;
    let (_, second) = wait_evicted(&mut world, "tidy")?;
    ensure!(first_time(&first) <= first_time(&second), "tidy went first");
    world.apply(&world.pod("late", &[sleeper("main")]))?;
    let late = world.wait_pod("late", "Failed", SOON, |pod| pod.phase() == "Failed")?;
    let refused = "Pod was rejected: The node had condition: [DiskPressure]. ";
    ensure!(late.0["status"]["message"] == refused, "late says {}", late.0["status"]);
    Ok(Outcome::Passed)
}

fn a_critical_pod_takes_the_place_of_the_pods_that_cost_least(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let node = world.node.object(world.cluster)?;
    let cpus: u64 = node["status"]["allocatable"]["cpu"].as_str().unwrap_or("").parse()?;
    let asking = |name: &str, milli: u64| {
        let resources = json!({"resources": {"requests": {"cpu": format!("{milli}m")}}});
        pod(name, &[with(sleeper("main"), resources)])
    };
    let on_node = json!({
        "metadata": {"namespace": world.namespace},
        "spec": {"nodeName": world.node_name()},
    });
    for pod in [asking("small", 300), asking("large", cpus * 1000 - 400)] {
        world.run(&with(pod, on_node.clone()))?;
    }
    // A manifest's pod is critical; what it lacks is less than what the smaller of the two has.
    world.node.node.put_pod(&asking("critical", 350))?;
    wait_running(&mut world.node.node, "critical")?;
    let seen = world.wait_pod("small", "Failed", SOON, |pod| pod.phase() == "Failed")?;
    let status = &seen.0["status"];
    ensure!(
        status["reason"] == "Preempting"
            && status["message"] == "Preempted in order to admit critical pod",
        "small says {status}"
    );
    world.wait_event(&seen, "Preempting")?;
    let other = world.find_pod("large")?.context("large is gone")?;
    ensure!(other.phase() == "Running", "large was touched");
    let metrics = world.node.node.read_only("/metrics")?.body;
    let line = "kubelet_preemptions{preemption_signal=\"cpu\"} 1";
    ensure!(metrics.lines().any(|it| it == line), "it is not counted in the metrics");
    Ok(Outcome::Passed)
}

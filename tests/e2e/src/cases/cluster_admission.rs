//! Pods that a node refuses, and what people do to nodes: taints, drains.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::build::{sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_pod_that_does_not_fit_is_rejected_with_upstreams_reason,
    a_label_that_came_just_before_the_pod_counts,
    a_running_pod_is_not_admitted_again_after_a_restart,
    a_drained_node_loses_its_pods_and_keeps_its_static_ones,
    a_taint_without_toleration_evicts_and_rejects,
];

fn a_pod_that_does_not_fit_is_rejected_with_upstreams_reason(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"maxPods": 6});
    let mut world = World::start_with(context, options)?;
    let port = json!({"ports": [{"containerPort": 80, "hostPort": 18080}]});
    let asks = |resource: &str, amount: &str| -> Value {
        json!({"resources": {"requests": {resource: amount}}})
    };
    // Huge pages must be asked for and bounded alike, beside something else.
    let huge = json!({"cpu": "1m", "memory": "1Mi", "hugepages-2Mi": "2Mi"});
    let huge = json!({"resources": {"requests": huge, "limits": huge}});
    world.run(&world.pod("first", &[with(sleeper("main"), port.clone())]))?;
    let node = world.node.object(world.cluster)?;
    let room = |resource: &str| node["status"]["allocatable"][resource].as_str().unwrap_or("");
    let short = |resource: &str, asked: &str, room: &str| {
        format!(
            "Node didn't have enough resource: {resource}, requested: {asked}, used: 0, capacity: {room}"
        )
    };
    let milli = room("cpu").parse::<u64>().map_or(0, |cpus| cpus * 1000).to_string();
    let memory = room("memory").trim_end_matches("Ki").parse::<u64>();
    let memory = memory.map_or(0, |kibibytes| kibibytes * 1024).to_string();
    let failed = |name: &str, why: &str| format!("Predicate {name} failed: node(s) {why}");
    let plain = json!({});
    let other_node = "didn't match Pod's node affinity/selector";
    let cases = [
        ("cpu", asks("cpu", "1000"), plain.clone(), "OutOfcpu", short("cpu", "1000000", &milli)),
        (
            "memory",
            asks("memory", "9Ti"),
            plain.clone(),
            "OutOfmemory",
            short("memory", "9895604649984", &memory),
        ),
        (
            "storage",
            asks("ephemeral-storage", "9Pi"),
            plain.clone(),
            "OutOfephemeral-storage",
            short("ephemeral-storage", "10133099161583616", room("ephemeral-storage")),
        ),
        (
            "huge",
            huge,
            plain.clone(),
            "OutOfhugepages-2Mi",
            short("hugepages-2Mi", "2097152", room("hugepages-2Mi")),
        ),
        (
            "port",
            port,
            plain.clone(),
            "NodePorts",
            failed("NodePorts", "didn't have free ports for the requested pod ports"),
        ),
        (
            "selector",
            plain.clone(),
            json!({"spec": {"nodeSelector": {"no": "where"}}}),
            "NodeAffinity",
            failed("NodeAffinity", other_node),
        ),
        (
            "affinity",
            plain.clone(),
            json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "no", "operator": "Exists"}]}],
            }}}}}),
            "NodeAffinity",
            failed("NodeAffinity", other_node),
        ),
        (
            "system",
            plain.clone(),
            json!({"spec": {"os": {"name": "windows"}}}),
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS".to_owned(),
        ),
        (
            "label",
            plain.clone(),
            json!({"metadata": {"labels": {"kubernetes.io/os": "windows"}}}),
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
                .to_owned(),
        ),
        (
            "sysctl",
            plain.clone(),
            json!({"spec": {"securityContext": {"sysctls": [{"name": "kernel.sem", "value": "1"}]}}}),
            "SysctlForbidden",
            "forbidden sysctl: \"kernel.sem\" not allowlisted".to_owned(),
        ),
    ];
    for (name, container, change, reason, message) in cases {
        let pod = with(world.pod(name, &[with(sleeper("main"), container)]), change);
        world.apply(&pod)?;
        let seen = world.wait_pod(name, "rejected", SOON, |pod| pod.phase() == "Failed")?;
        let status = &seen.0["status"];
        let said = status["message"].as_str().unwrap_or_default();
        ensure!(
            status["reason"] == reason && said == format!("Pod was rejected: {message}"),
            "{name} is {status}, not {message:?}"
        );
        let told = world.wait_event(&seen, reason)?;
        ensure!(told == message, "its event says {told:?}");
    }
    // Rejected pods take no room; five more fill the node.
    for n in 0..5 {
        let name = format!("more-{n}");
        world.run(&world.pod(&name, &[sleeper("main")]))?;
    }
    world.apply(&world.pod("last", &[sleeper("main")]))?;
    let seen = world.wait_pod("last", "rejected", SOON, |pod| pod.phase() == "Failed")?;
    let message = "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 6, capacity: 6";
    ensure!(
        seen.0["status"]["reason"] == "OutOfpods" && seen.0["status"]["message"] == message,
        "{}",
        seen.0["status"]
    );
    Ok(Outcome::Passed)
}

fn a_label_that_came_just_before_the_pod_counts(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let name = world.node_name().to_owned();
    // Node and pods come on watches of their own, and either may be the faster one.
    for n in 0..5 {
        let step = format!("step-{n}");
        let label = json!({"metadata": {"labels": {"step": step}}}).to_string();
        let pod = with(
            world.pod(&step, &[sleeper("main")]),
            json!({"spec": {"nodeSelector": {"step": step}}}),
        );
        world.cluster.kubectl(&["patch", "node", &name, "--patch", &label])?;
        world.apply(&pod)?;
        world.wait_pod(&step, "judged", SOON, |pod| pod.phase() != "Pending")?;
        let seen = world.wait_ready(&step)?;
        ensure!(seen.restarts() == 0, "{}", seen.0["status"]);
    }
    Ok(Outcome::Passed)
}

fn a_running_pod_is_not_admitted_again_after_a_restart(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if context.is_upstream() {
        let reason = "upstream's kubelet admits running pods again, and fails them";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let mut world = World::start(context)?;
    let name = world.node_name().to_owned();
    world.cluster.kubectl(&["label", "node", &name, "stay=yes"])?;
    let pod = with(
        world.pod("chosen", &[sleeper("main")]),
        json!({"spec": {"nodeSelector": {"stay": "yes"}}}),
    );
    let before = world.run(&pod)?;
    world.cluster.kubectl(&["label", "node", &name, "stay-"])?;
    world.node.node.kill()?;
    world.node.node.launch()?;
    world.node.node.wait_healthy()?;
    let tasks = context.containerd()?.tasks()?;
    ferrolet_lab::wait::stays_true("the pod's life", std::time::Duration::from_secs(6), || {
        let pod = world.find_pod("chosen")?;
        Ok(pod.is_some_and(|pod| pod.phase() == "Running")
            && context.containerd()?.tasks()? == tasks)
    })?;
    let after = world.wait_ready("chosen")?;
    ensure!(
        after.container("main")?.id() == before.container("main")?.id(),
        "its container was restarted"
    );
    Ok(Outcome::Passed)
}

fn a_drained_node_loses_its_pods_and_keeps_its_static_ones(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let name = world.node_name().to_owned();
    let fixed = with(
        crate::build::pod("fixed", &[sleeper("main")]),
        json!({"metadata": {"namespace": world.namespace}}),
    );
    world.node.node.put_pod(&fixed)?;
    let moved = world.run(&world.pod("moved", &[sleeper("main")]))?;
    let mirror = world.node.node.pod_name("fixed");
    let before = world.wait_ready(&mirror)?;
    world.cluster.kubectl(&["drain", &name, "--force", "--timeout=60s"])?;
    world.wait_gone(&moved, SOON)?;
    let after = world.wait_ready(&mirror)?;
    ensure!(
        after.container("main")?.id() == before.container("main")?.id(),
        "the static pod was restarted"
    );
    Ok(Outcome::Passed)
}

fn a_taint_without_toleration_evicts_and_rejects(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let name = world.node_name().to_owned();
    let evicted = world.run(&world.pod("evicted", &[sleeper("main")]))?;
    let tolerant = with(
        world.pod("tolerant", &[sleeper("main")]),
        json!({"spec": {"tolerations": [{"operator": "Exists"}]}}),
    );
    let before = world.run(&tolerant)?;
    world.cluster.kubectl(&["taint", "node", &name, "out=now:NoExecute"])?;
    world.wait_gone(&evicted, LATER)?;
    let after = world.wait_ready("tolerant")?;
    ensure!(after.uid() == before.uid() && after.restarts() == 0, "{}", after.0);
    // The taint controller deletes a new one at once; what it holds on to shows what the node said
    // to it.
    let late = with(
        world.pod("late", &[sleeper("main")]),
        json!({"metadata": {"finalizers": ["example.com/look-first"]}}),
    );
    world.apply(&late)?;
    let seen = world.wait_pod("late", "rejected", LATER, |pod| pod.phase() == "Failed")?;
    let message =
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    let (reason, said) = (&seen.0["status"]["reason"], &seen.0["status"]["message"]);
    ensure!(
        reason == "TaintToleration" && *said == format!("Pod was rejected: {message}"),
        "{}",
        seen.0["status"]
    );
    let told = world.wait_event(&seen, "TaintToleration")?;
    ensure!(told == message, "its event says {told:?}");
    let let_go = json!({"metadata": {"finalizers": null}}).to_string();
    world.kubectl(&["patch", "pod", "late", "--patch", &let_go])?;
    world.wait_gone(&seen, LATER)?;
    Ok(Outcome::Passed)
}

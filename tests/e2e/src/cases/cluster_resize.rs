//! Resources that change while a pod runs, asked for with kubectl's `--subresource=resize`.

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::{PodView, cgroups};
use serde_json::{Value, json};

use super::{SOON, cases};
use crate::build::{sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_running_pod_is_resized_in_place_and_back,
    a_container_with_the_policy_restarts_to_be_resized,
    the_resources_of_the_pod_itself_are_resized,
    several_containers_are_resized_in_opposite_directions,
    a_resize_without_room_is_deferred_until_a_pod_goes_also_over_a_restart,
    a_memory_limit_below_usage_is_an_error_that_heals,
    a_resize_that_this_node_can_never_do_is_infeasible_and_can_be_taken_back,
];

fn sized(name: &str, cpu: &str, memory: &str) -> Value {
    let both = json!({"cpu": cpu, "memory": memory});
    with(sleeper(name), json!({"resources": {"requests": both, "limits": both}}))
}

fn resize(world: &World<'_>, pod: &str, patch: &Value) -> Result<String> {
    let patch = patch.to_string();
    world.kubectl(&["patch", "pod", pod, "--subresource=resize", "--patch", &patch])
}

fn to(containers: &[(&str, &str, &str)]) -> Value {
    let list: Vec<Value> = containers
        .iter()
        .map(|(name, cpu, memory)| {
            let both = json!({"cpu": cpu, "memory": memory});
            json!({"name": name, "resources": {"requests": both, "limits": both}})
        })
        .collect();
    json!({"spec": {"containers": list}})
}

fn shows(pod: &PodView, container: &str, cpu: &str, memory: &str) -> bool {
    let both = json!({"cpu": cpu, "memory": memory});
    pod.container(container).is_ok_and(|it| {
        it.0["resources"] == json!({"requests": both, "limits": both})
            && it.0["allocatedResources"] == both
    }) && pod.condition("PodResizeInProgress").is_none()
        && pod.condition("PodResizePending").is_none()
}

/// What bounds a cgroup: CPU quota in microseconds, memory in bytes.
fn bounds(group: &str) -> Result<(String, String)> {
    if cgroups::is_v2() {
        let quota = cgroups::value(group, "cpu.max")?;
        let quota = quota.split(' ').next().unwrap_or_default().to_owned();
        Ok((quota, cgroups::value(group, "memory.max")?))
    } else {
        Ok((
            cgroups::value(group, "cpu.cfs_quota_us")?,
            cgroups::value(group, "memory.limit_in_bytes")?,
        ))
    }
}

fn ensure_bounds(world: &World<'_>, pod: &PodView, expected: &[(&str, u64, u64)]) -> Result<()> {
    let whole = look::pod_cgroup(&world.node.node, "", pod);
    for (name, quota, mib) in expected {
        let group = match *name {
            "" => whole.clone(),
            name => format!("{whole}/{}", pod.container(name)?.id()),
        };
        let found = bounds(&group)?;
        let wanted = (quota.to_string(), (mib << 20).to_string());
        ensure!(found == wanted, "{name:?} has {found:?}, not {wanted:?}");
    }
    Ok(())
}

fn a_running_pod_is_resized_in_place_and_back(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("web", &[sized("main", "100m", "32Mi")]);
    let before = world.run(&pod)?;
    resize(&world, "web", &to(&[("main", "200m", "64Mi")]))?;
    let after =
        world.wait_pod("web", "to be larger", SOON, |pod| shows(pod, "main", "200m", "64Mi"))?;
    ensure_bounds(&world, &after, &[("", 20000, 64), ("main", 20000, 64)])?;
    ensure!(after.container("main")?.id() == before.container("main")?.id(), "it was restarted");
    ensure!(
        after.0["status"]["observedGeneration"] == after.0["metadata"]["generation"],
        "{}",
        after.0["status"]
    );
    let started = world.wait_event(&after, "ResizeStarted")?;
    ensure!(
        started
            == r#"Pod resize started: {"containers":[{"name":"main","resources":{"limits":{"cpu":"200m","memory":"64Mi"},"requests":{"cpu":"200m","memory":"64Mi"}}}],"generation":2}"#,
        "{started}"
    );
    let done = world.wait_event(&after, "ResizeCompleted")?;
    ensure!(done.starts_with("Pod resize completed: {"), "{done}");
    resize(&world, "web", &to(&[("main", "100m", "32Mi")]))?;
    let back = world
        .wait_pod("web", "to be small again", SOON, |pod| shows(pod, "main", "100m", "32Mi"))?;
    ensure_bounds(&world, &back, &[("", 10000, 32), ("main", 10000, 32)])?;
    ensure!(back.container("main")?.restarts() == 0, "it was restarted");
    let root = world.node.node.root();
    for file in ["allocated_pods_state", "actuated_pods_state"] {
        let text = std::fs::read_to_string(root.join(file)).context(file)?;
        ensure!(text.contains(back.uid()), "{file} is {text}");
    }
    Ok(Outcome::Passed)
}

fn a_container_with_the_policy_restarts_to_be_resized(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let policy = json!({"resizePolicy": [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"}]});
    let container = with(sized("main", "100m", "32Mi"), policy);
    let pod = world.pod("web", &[container]);
    world.run(&pod)?;
    resize(&world, "web", &to(&[("main", "100m", "48Mi")]))?;
    let after = world.wait_pod("web", "to be larger", SOON, |pod| {
        shows(pod, "main", "100m", "48Mi") && pod.phase() == "Running"
    })?;
    ensure!(after.container("main")?.restarts() == 1, "no restart");
    ensure_bounds(&world, &after, &[("", 10000, 48), ("main", 10000, 48)])?;
    let killed = world.wait_event(&after, "Killing")?;
    ensure!(killed == "Container main resize requires restart", "{killed}");
    // An agent that comes back has nothing left to do.
    world.node.node.kill()?;
    world.node.node.relaunch()?;
    resize(&world, "web", &to(&[("main", "150m", "48Mi")]))?;
    let after = world
        .wait_pod("web", "to have more CPU", SOON, |pod| shows(pod, "main", "150m", "48Mi"))?;
    ensure!(after.container("main")?.restarts() == 1, "another restart");
    Ok(Outcome::Passed)
}

fn the_resources_of_the_pod_itself_are_resized(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let both = json!({"cpu": "200m", "memory": "64Mi"});
    let pod = with(
        world.pod("web", &[sleeper("main")]),
        json!({"spec": {"resources": {"requests": both, "limits": both}}}),
    );
    let before = world.run(&pod)?;
    ensure_bounds(&world, &before, &[("", 20000, 64), ("main", 20000, 64)])?;
    let more = json!({"cpu": "300m", "memory": "96Mi"});
    resize(&world, "web", &json!({"spec": {"resources": {"requests": more, "limits": more}}}))?;
    let after = world.wait_pod("web", "to be larger", SOON, |pod| {
        pod.0["status"]["resources"]["limits"] == more
            && pod.0["status"]["allocatedResources"] == more
            && pod.condition("PodResizeInProgress").is_none()
    })?;
    ensure_bounds(&world, &after, &[("", 30000, 96), ("main", 30000, 96)])?;
    ensure!(after.container("main")?.restarts() == 0, "it was restarted");
    Ok(Outcome::Passed)
}

fn several_containers_are_resized_in_opposite_directions(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let list = [sized("a", "100m", "32Mi"), sized("b", "100m", "32Mi"), sized("c", "100m", "32Mi")];
    let pod = world.pod("web", &list);
    world.run(&pod)?;
    let sizes = [("a", "250m", "24Mi"), ("b", "50m", "64Mi"), ("c", "100m", "32Mi")];
    resize(&world, "web", &to(&sizes))?;
    let after = world.wait_pod("web", "to be resized", SOON, |pod| {
        sizes.iter().all(|(name, cpu, memory)| shows(pod, name, cpu, memory))
    })?;
    let expected = [("", 40000, 120), ("a", 25000, 24), ("b", 5000, 64), ("c", 10000, 32)];
    ensure_bounds(&world, &after, &expected)?;
    Ok(Outcome::Passed)
}

fn a_resize_without_room_is_deferred_until_a_pod_goes_also_over_a_restart(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let node = world.cluster.kubectl(&["get", "node", world.node_name(), "--output=json"])?;
    let node: Value = serde_json::from_str(&node)?;
    let cpus: u64 = node["status"]["allocatable"]["cpu"]
        .as_str()
        .and_then(|it| it.parse().ok())
        .context("no CPUs")?;
    let most = format!("{}m", cpus * 1000 - 300);
    let small = world.pod("small", &[sized("main", "100m", "32Mi")]);
    world.run(&small)?;
    let large = with(sleeper("main"), json!({"resources": {"requests": {"cpu": most}}}));
    let large = world.pod("large", &[large]);
    let large = world.run(&large)?;
    resize(&world, "small", &to(&[("main", "500m", "32Mi")]))?;
    let pending = world.wait_pod("small", "to be deferred", SOON, |pod| {
        pod.condition("PodResizePending") == Some("True")
    })?;
    let conditions = pending.0["status"]["conditions"].as_array().context("conditions")?;
    let condition =
        conditions.iter().find(|it| it["type"] == "PodResizePending").context("condition")?;
    ensure!(
        condition["reason"] == "Deferred"
            && condition["message"].as_str().is_some_and(
                |it| it.starts_with("Node didn't have enough resource: cpu, requested: 500")
            )
            && condition["observedGeneration"] == 2,
        "{condition}"
    );
    ensure!(
        pending.container("main")?.0["allocatedResources"]["cpu"] == "100m",
        "{}",
        pending.0["status"]
    );
    world.wait_event(&pending, "ResizeDeferred")?;
    world.node.node.kill()?;
    world.node.node.relaunch()?;
    world.kubectl(&["delete", "pod", "large"])?;
    world.wait_gone(&large, SOON)?;
    let after =
        world.wait_pod("small", "to be larger", SOON, |pod| shows(pod, "main", "500m", "32Mi"))?;
    ensure_bounds(&world, &after, &[("", 50000, 32), ("main", 50000, 32)])?;
    ensure!(after.container("main")?.restarts() == 0, "it was restarted");
    // What made room is told by the next life of the agent, too.
    let figures = world.node.node.read_only("/metrics")?.body;
    for begin in [
        "kubelet_pod_deferred_accepted_resizes_total{retry_trigger=",
        "kubelet_pod_deferred_resize_duration_seconds_count{priority_bucket=\"normal\",resolution=\"accepted\"} 1",
    ] {
        ensure!(figures.contains(begin), "there is no {begin}");
    }
    Ok(Outcome::Passed)
}

fn a_memory_limit_below_usage_is_an_error_that_heals(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    // Holds 24 MiB in memory until its file goes.
    let text = "dd if=/dev/zero of=/dev/shm/ballast bs=1M count=24 2>/dev/null; echo full; while [ -e /dev/shm/ballast ]; do sleep 0.2; done; exec sleep 100000";
    let both = json!({"cpu": "100m", "memory": "64Mi"});
    let container = with(
        crate::build::script("main", text),
        json!({"resources": {"requests": both, "limits": both}}),
    );
    let pod = world.pod("web", &[container]);
    let seen = world.run(&pod)?;
    let full = world.settled_log(&seen, "main")?;
    ensure!(full == ["full"], "it says {full:?}");
    resize(&world, "web", &to(&[("main", "100m", "16Mi")]))?;
    let stuck = world.wait_pod("web", "to say why not", SOON, |pod| {
        pod.0["status"]["conditions"].as_array().is_some_and(|list| {
            list.iter().any(|it| {
                it["type"] == "PodResizeInProgress"
                    && it["reason"] == "Error"
                    && it["message"].as_str().is_some_and(|it| {
                        it.starts_with("cannot decrease memory limits: [attempting to set pod memory limit (16777216) below current usage (")
                    })
            })
        })
    })?;
    world.wait_event(&stuck, "ResizeError")?;
    world.kubectl(&["exec", "web", "--", "rm", "/dev/shm/ballast"])?;
    let after =
        world.wait_pod("web", "to be smaller", SOON, |pod| shows(pod, "main", "100m", "16Mi"))?;
    ensure_bounds(&world, &after, &[("", 10000, 16), ("main", 10000, 16)])?;
    Ok(Outcome::Passed)
}

fn a_resize_that_this_node_can_never_do_is_infeasible_and_can_be_taken_back(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    // Processors that are handed out one by one cannot be changed under a pod that has them for
    // sure.
    options.configuration = json!({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "100m"}});
    let mut world = World::start_with(context, options)?;
    let pod = world.pod("web", &[sized("main", "100m", "32Mi")]);
    let before = world.run(&pod)?;
    resize(&world, "web", &to(&[("main", "200m", "32Mi")]))?;
    let pending = world.wait_pod("web", "to be infeasible", SOON, |pod| {
        pod.condition("PodResizePending") == Some("True")
    })?;
    let conditions = pending.0["status"]["conditions"].as_array();
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == "PodResizePending")
        .context("condition")?;
    let why = "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
    ensure!(condition["reason"] == "Infeasible" && condition["message"] == why, "{condition}");
    let said = world.wait_event(&pending, "ResizeInfeasible")?;
    ensure!(said.contains("Resize is infeasible"), "{said}");
    ensure!(
        pending.container("main")?.0["allocatedResources"]["cpu"] == "100m",
        "{}",
        pending.0["status"]
    );
    // Memory is nobody's in particular: taking the wish for CPU back lets the rest of it through.
    resize(&world, "web", &to(&[("main", "100m", "48Mi")]))?;
    let after =
        world.wait_pod("web", "to be larger", SOON, |pod| shows(pod, "main", "100m", "48Mi"))?;
    ensure_bounds(&world, &after, &[("", 10000, 48), ("main", 10000, 48)])?;
    ensure!(after.container("main")?.id() == before.container("main")?.id(), "it was restarted");
    let counted = "kubelet_pod_infeasible_resizes_total{reason_detail=\"guaranteed_pod_cpu_manager_static_policy\"} 1";
    let figures = world.node.node.read_only("/metrics")?.body;
    ensure!(figures.contains(counted), "there is no {counted}");
    Ok(Outcome::Passed)
}

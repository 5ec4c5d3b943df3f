//! Limits on local storage: a pod that has more on the node's disk than it may is evicted, and its
//! neighbours are not.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{LATER, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_pod_whose_volume_outgrows_its_limit_is_evicted,
    a_pod_that_writes_more_than_its_containers_may_is_evicted,
];

fn a_pod_whose_volume_outgrows_its_limit_is_evicted(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let writer = |name: &str, n_megabytes: u32| {
        let words = format!(
            "dd if=/dev/zero of=/cache/file bs=1M count={n_megabytes} 2>/dev/null; exec sleep 100000"
        );
        let mut main = script("main", &words);
        main["volumeMounts"] = json!([{"name": "cache", "mountPath": "/cache"}]);
        with(
            world.pod(name, &[main]),
            json!({"spec": {
                "terminationGracePeriodSeconds": 600,
                "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "2Mi"}}],
            }}),
        )
    };
    let (modest, greedy) = (writer("modest", 1), writer("greedy", 4));
    world.apply(&modest)?;
    world.apply(&greedy)?;
    let seen = world.wait_pod("greedy", "Failed", LATER, |pod| pod.phase() == "Failed")?;
    let (reason, message) = (&seen.0["status"]["reason"], &seen.0["status"]["message"]);
    ensure!(
        reason == "Evicted"
            && message == "Usage of EmptyDir volume \"cache\" exceeds the limit \"2Mi\". ",
        "it says {reason} {message}"
    );
    let said = world.wait_event(&seen, "Evicted")?;
    ensure!(message == said.as_str(), "the event says {said:?}");
    let metrics = world.node.node.read_only("/metrics")?.body;
    let line = "kubelet_evictions{eviction_signal=\"emptydirfs.limit\"} 1";
    ensure!(metrics.lines().any(|it| it == line), "it is not counted in the metrics");
    // Its status is all that stays of it.
    let containerd = context.containerd()?;
    let logs = crate::look::log_directory(&world.node.node, &seen);
    world.node.node.wait("the rest to go", LATER, |_| {
        let all = containerd.containers()?.into_iter();
        let left: Vec<String> =
            all.filter(|it| it.pod_uid == seen.uid()).map(|it| it.kind).collect();
        ensure!(left.is_empty() && !logs.exists(), "{left:?} and logs are left");
        Ok(Some(()))
    })?;
    let over = world.find_pod("greedy")?.context("it is gone")?;
    ensure!(
        over.phase() == "Failed" && over.container("main")?.exit_code().is_some(),
        "{}",
        over.0["status"]
    );
    let other = world.wait_ready("modest")?;
    ensure!(other.phase() == "Running", "its neighbour was touched");
    Ok(Outcome::Passed)
}

fn a_pod_that_writes_more_than_its_containers_may_is_evicted(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let limited = |name: &str, words: &str, limit: &str| {
        let mut container = script(name, words);
        container["resources"] = json!({
            "limits": {"ephemeral-storage": limit}, "requests": {"ephemeral-storage": "0"},
        });
        container
    };
    let writes = "dd if=/dev/zero of=/file bs=1M count=6 2>/dev/null; exec sleep 100000";
    let main = limited("main", writes, "2Mi");
    let side = limited("side", "exec sleep 100000", "100Mi");
    let alone = limited("alone", writes, "3Mi");
    // CVE-2020-8557: a file of the node's own that the container may write counts too.
    let hosts = writes.replace("of=/file", "of=/etc/hosts");
    let hosts = limited("hosts", &hosts, "3Mi");
    for (name, containers) in
        [("whole", vec![alone]), ("part", vec![main, side]), ("hosts", vec![hosts])]
    {
        world.apply(&world.pod(name, &containers))?;
    }
    let whole = "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ";
    for (name, expected) in [
        ("whole", whole),
        ("hosts", whole),
        ("part", "Container main exceeded its local ephemeral storage limit \"2Mi\". "),
    ] {
        let seen = world.wait_pod(name, "Failed", LATER, |pod| pod.phase() == "Failed")?;
        let (reason, message) = (&seen.0["status"]["reason"], &seen.0["status"]["message"]);
        ensure!(reason == "Evicted" && message == expected, "{name} says {reason} {message}");
    }
    Ok(Outcome::Passed)
}

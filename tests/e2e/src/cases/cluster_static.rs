//! Static pods of a node in a cluster: the API server has a mirror of each.

use anyhow::{Result, bail, ensure};
use ferrolet_lab::PodView;
use serde_json::{Value, json};

use super::{GONE, LATER, SOON, cases};
use crate::build::{pod, script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_static_pod_has_a_mirror_with_its_status,
    a_deleted_mirror_comes_back_and_the_pod_goes_on,
    a_changed_manifest_replaces_the_mirror,
    a_removed_manifest_takes_the_mirror_along,
];

const MIRROR: &str = "kubernetes.io/config.mirror";
const HASH: &str = "kubernetes.io/config.hash";

fn manifest(world: &World<'_>, name: &str, containers: &[Value]) -> Value {
    with(pod(name, containers), json!({"metadata": {"namespace": world.namespace}}))
}

/// A node with one static pod, and its mirror once that says Ready.
fn with_static_pod<'c>(context: &mut Context<'c>) -> Result<(World<'c>, PodView)> {
    let mut options = context.node_options();
    // Upstream looks for missing mirrors only this often.
    options.configuration = json!({"syncFrequency": "4s"});
    let mut world = World::start_with(context, options)?;
    let first = manifest(&world, "fixed", &[sleeper("main")]);
    world.node.node.put_pod(&first)?;
    let name = world.node.node.pod_name("fixed");
    let mirror = world.wait_ready(&name)?;
    Ok((world, mirror))
}

fn a_static_pod_has_a_mirror_with_its_status(context: &mut Context<'_>) -> Result<Outcome> {
    let (world, mirror) = with_static_pod(context)?;
    let inside = world.node.node.pod("fixed")?;
    let hash = inside.annotation(HASH).unwrap_or_default().to_owned();
    let seen = mirror.annotation("kubernetes.io/config.seen");
    ensure!(
        mirror.annotation(MIRROR) == Some(hash.as_str())
            && mirror.annotation(HASH) == Some(hash.as_str())
            && mirror.annotation("kubernetes.io/config.source") == Some("file")
            && seen.is_some_and(|it| !it.is_empty()),
        "its annotations are {}",
        mirror.0["metadata"]["annotations"]
    );
    ensure!(mirror.uid() != inside.uid(), "it has the static pod's UID");
    let node = world.node.object(world.cluster)?;
    let owner = &mirror.0["metadata"]["ownerReferences"][0];
    ensure!(
        owner["kind"] == "Node"
            && owner["uid"] == node["metadata"]["uid"]
            && owner["controller"] == true,
        "its owner is {owner}"
    );
    ensure!(mirror.ip() == inside.ip() && mirror.ip().is_some(), "{:?}", mirror.ip());
    ensure!(
        mirror.container("main")?.id() == inside.container("main")?.id(),
        "its container is another"
    );
    ensure!(
        mirror.0["spec"]["tolerations"].to_string().contains("NoExecute"),
        "its tolerations are {}",
        mirror.0["spec"]["tolerations"]
    );
    Ok(Outcome::Passed)
}

fn a_deleted_mirror_comes_back_and_the_pod_goes_on(context: &mut Context<'_>) -> Result<Outcome> {
    let (mut world, mirror) = with_static_pod(context)?;
    let before = context.containerd()?.tasks()?;
    for force in [&[][..], &["--force", "--grace-period=0"]] {
        let old = world.wait_ready(mirror.name())?;
        let args = [&["delete", "pod", "--wait=false", mirror.name()], force].concat();
        world.kubectl(&args)?;
        world.wait_pod(mirror.name(), "back with its status", GONE, |pod| {
            pod.uid() != old.uid() && pod.condition("Ready") == Some("True")
        })?;
    }
    let after = context.containerd()?.tasks()?;
    ensure!(before == after, "containers were touched: {before:?}, then {after:?}");
    Ok(Outcome::Passed)
}

fn a_changed_manifest_replaces_the_mirror(context: &mut Context<'_>) -> Result<Outcome> {
    let (mut world, mirror) = with_static_pod(context)?;
    let text = "echo second; exec sleep 100000";
    let second = manifest(&world, "fixed", &[script("main", text)]);
    world.node.node.put_pod(&second)?;
    let after = world.wait_pod(mirror.name(), "another mirror", GONE, |pod| {
        pod.uid() != mirror.uid() && pod.condition("Ready") == Some("True")
    })?;
    ensure!(after.annotation(MIRROR) != mirror.annotation(MIRROR), "it carries the old hash");
    ensure!(
        after.0["spec"]["containers"][0]["command"][2] == text,
        "it shows the old specification"
    );
    Ok(Outcome::Passed)
}

fn a_removed_manifest_takes_the_mirror_along(context: &mut Context<'_>) -> Result<Outcome> {
    let (mut world, mirror) = with_static_pod(context)?;
    let inside = world.node.node.pod("fixed")?;
    // Once with the agent there, and once while it is away.
    let second = manifest(&world, "other", &[sleeper("main")]);
    world.node.node.put_pod(&second)?;
    let name = world.node.node.pod_name("other");
    let other = world.wait_ready(&name)?;
    world.node.node.remove_manifest("fixed.yaml")?;
    world.wait_gone(&mirror, LATER)?;
    let containerd = context.containerd()?;
    world.node.node.wait("nothing of the pod", GONE, |node| {
        look::ensure_gone(node, containerd, &inside).map(Some)
    })?;
    world.node.node.kill()?;
    world.node.node.remove_manifest("other.yaml")?;
    world.node.node.launch()?;
    world.wait_gone(&other, GONE)?;
    world.node.node.wait("its containers to end", SOON, |_| {
        let left = containerd.tasks()?;
        if left.is_empty() { Ok(Some(())) } else { bail!("left: {left:?}") }
    })?;
    Ok(Outcome::Passed)
}

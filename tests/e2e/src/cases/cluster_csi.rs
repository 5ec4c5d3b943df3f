//! Volumes of a CSI driver: a real one, in a process of its own, that really mounts
//! (`tests/csi-driver`).

use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::build::{script, with};
use crate::context::Context;
use crate::driver::{
    claim, claimant, no_driver, serve, settle_attachment, wait_attachment, wait_left,
    wait_registered,
};
use crate::look;
use crate::runner::Outcome;

cases![
    a_driver_registers_and_serves_a_claim_across_a_restart,
    an_inline_volume_learns_of_its_pod,
    an_attachment_is_waited_for_and_the_volume_is_said_to_be_in_use,
    a_driver_that_fails_or_hangs_holds_up_its_own_pod_only,
];

fn a_driver_registers_and_serves_a_claim_across_a_restart(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    use std::os::unix::fs::MetadataExt as _;
    let rules = json!({"attachRequired": false, "fsGroupPolicy": "File"});
    let Some((mut world, driver)) = serve(context, &["-limit", "7"], rules)? else {
        return Ok(no_driver());
    };
    let entry = wait_registered(&mut world, &driver)?;
    ensure!(
        entry["allocatable"]["count"] == 7
            && entry["topologyKeys"][0] == format!("{}/zone", driver.name),
        "it is published as {entry}"
    );
    let path = format!("/api/v1/nodes/{}", world.node_name());
    let label = format!("{}/zone", driver.name);
    world.wait("the topology's label", SOON, |cluster, _| {
        let node = cluster.get(&path)?;
        Ok((node["metadata"]["labels"][&label] == "here").then_some(()))
    })?;
    claim(&world, &driver, "data", json!({}))?;
    let first = claimant(&world, "first", "data");
    world.apply(&first)?;
    let first = world.wait_ready_later("first")?;
    let second = claimant(&world, "second", "data");
    let second = world.run(&second)?;
    let volume = driver.state.join("volumes").join(format!("{}-data", world.namespace));
    let group = std::fs::metadata(&volume)?.gid();
    ensure!(group == 4242, "the volume belongs to group {group}");
    let record = look::pod_directory(&world.node.node, &first)
        .join("volumes/kubernetes.io~csi")
        .join(format!("{}-data", world.namespace))
        .join("vol_data.json");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(record)?)?;
    ensure!(
        record["driverName"] == driver.name.as_str()
            && record["volumeLifecycleMode"] == "Persistent",
        "the record is {record}"
    );
    let published = "NodePublishVolume";
    ensure!(
        driver.methods()? == ["NodeStageVolume", published, published],
        "the driver was called: {:?}",
        driver.methods()?
    );

    // Killed, and the first pod deleted meanwhile: what is on disk is enough to take its volume
    // away.
    world.node.node.kill()?;
    world.kubectl(&["delete", "pod", "first", "--wait=false"])?;
    world.node.node.launch()?;
    world.wait_gone(&first, LATER)?;
    world.wait("the first pod's volume to be taken away", LATER, |_, _| {
        let methods = driver.methods()?;
        let n_unpublished = methods.iter().filter(|it| *it == "NodeUnpublishVolume").count();
        Ok((n_unpublished >= 1).then_some(()))
    })?;
    ensure!(
        !driver.methods()?.contains(&"NodeUnstageVolume".to_owned()),
        "the second pod lost its volume"
    );
    let containerd = context.containerd()?;
    let seen = world.read_inside(containerd, &second, "/data/file")?;
    ensure!(seen.contains("4242"), "the volume holds {seen:?}");
    world.kubectl(&["delete", "pod", "second", "--wait=false"])?;
    world.wait_gone(&second, LATER)?;
    wait_left(&mut world, &driver)?;
    let table = ferrolet_lab::mounts::table()?;
    let own = world.node.node.directory().display().to_string();
    let left =
        table.lines().find(|line| line.contains(&own) && line.contains("kubernetes.io~csi/"));
    ensure!(left.is_none(), "{left:?} is still mounted");
    ensure!(volume.join("file").exists(), "the volume was emptied");

    // A driver that ends takes its entry along.
    let pid = driver.process.id().to_string();
    Command::new("kill").arg(&pid).status()?;
    let path = format!("/apis/storage.k8s.io/v1/csinodes/{}", world.node_name());
    world.wait("the driver's entry to go", SOON, |cluster, _| {
        let node = cluster.get(&path)?;
        let is_empty = node["spec"]["drivers"].as_array().is_none_or(Vec::is_empty);
        Ok(is_empty.then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn an_inline_volume_learns_of_its_pod(context: &mut Context<'_>) -> Result<Outcome> {
    let rules = json!({
        "attachRequired": false,
        "podInfoOnMount": true,
        "volumeLifecycleModes": ["Ephemeral"],
        "tokenRequests": [{"audience": "vault"}],
    });
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    let mut main = script("main", "echo x > /data/file; exec sleep 100000");
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let pod = with(
        world.pod("inline", &[main]),
        json!({"spec": {"volumes": [{"name": "data", "csi": {"driver": driver.name}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_ready_later("inline")?;
    let told = &driver.request("NodePublishVolume")?["volume_context"];
    ensure!(
        told["csi.storage.k8s.io/pod.name"] == "inline"
            && told["csi.storage.k8s.io/ephemeral"] == "true",
        "the driver was told {told}"
    );
    let tokens = told["csi.storage.k8s.io/serviceAccount.tokens"].as_str();
    ensure!(tokens.is_some_and(|it| it.contains("vault") && it.contains("token")), "no token");
    world.kubectl(&["delete", "pod", "inline", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    world.wait("the volume to be taken away", LATER, |_, _| {
        Ok((driver.methods()? == ["NodePublishVolume", "NodeUnpublishVolume"]).then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn an_attachment_is_waited_for_and_the_volume_is_said_to_be_in_use(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let rules = json!({"attachRequired": true});
    let Some((mut world, driver)) = serve(context, &["-stages=false"], rules)? else {
        return Ok(no_driver());
    };
    let volume = claim(&world, &driver, "far", json!({}))?;
    let pod = claimant(&world, "attached", "far");
    world.apply(&pod)?;
    let seen = world.wait_known("attached")?;
    let node_path = format!("/api/v1/nodes/{}", world.node_name());
    let unique = format!("kubernetes.io/csi/{}^{}-far", driver.name, world.namespace);
    world.wait("the volume among those in use", SOON, |cluster, _| {
        let node = cluster.get(&node_path)?;
        let used = node["status"]["volumesInUse"].to_string();
        Ok(used.contains(&unique).then_some(()))
    })?;
    // The controller asks for the attachment; whoever attaches says that it is done.
    let name = wait_attachment(&mut world, &volume)?;
    let attached = json!({"attached": true, "attachmentMetadata": {"disk": "seven"}});
    settle_attachment(&world, &name, &attached)?;
    world.wait_ready_later("attached")?;
    let told = &driver.request("NodePublishVolume")?["publish_context"];
    ensure!(told["disk"] == "seven", "the driver was told {told}");
    let events = world.events(&seen)?;
    let warning = events.iter().find(|event| event["type"] == "Warning");
    ensure!(warning.is_none(), "waiting is no warning: {warning:?}");
    world.kubectl(&["delete", "pod", "attached", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    world.wait("the volume to be in use no more", SOON, |cluster, _| {
        let node = cluster.get(&node_path)?;
        let used = node["status"]["volumesInUse"].to_string();
        Ok((!used.contains(&unique)).then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn a_driver_that_fails_or_hangs_holds_up_its_own_pod_only(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let rules = json!({"attachRequired": false});
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    claim(&world, &driver, "moody", json!({}))?;
    // Internal: final.
    driver.set_fault("NodeStageVolume", Some("13"))?;
    let pod = claimant(&world, "moody", "moody");
    world.apply(&pod)?;
    let seen = world.wait_known("moody")?;
    let said = world.wait_event(&seen, "FailedMount")?;
    let expected = format!(
        "MountVolume.MountDevice failed for volume \"{}-moody\" : rpc error: code = Internal desc = a test wants it so",
        world.namespace
    );
    ensure!(said == expected, "it says {said:?}");
    driver.set_fault("NodeStageVolume", None)?;
    driver.set_fault("NodePublishVolume", Some("hang"))?;
    world.wait("the driver to hang", LATER, |_, _| {
        let methods = driver.methods()?;
        Ok(methods.contains(&"NodePublishVolume".to_owned()).then_some(()))
    })?;
    let other = script("main", "exec sleep 100000");
    let other = world.pod("other", &[other]);
    world.run(&other)?;
    // The pod goes although its driver never answered, once the driver takes the volume back.
    driver.set_fault("NodePublishVolume", None)?;
    world.kubectl(&["delete", "pod", "moody", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    wait_left(&mut world, &driver)?;
    Ok(Outcome::Passed)
}

//! What exactly a CSI driver is asked by the rules of its object and of its volumes, what becomes
//! of refusals, and what upstream's own mock driver says of all that.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::PodView;
use serde_json::{Value, json};

use super::cluster_csi_disks::{enlarge, wait_grown};
use super::{LATER, SOON, cases};
use crate::build::{script, with};
use crate::context::Context;
use crate::driver::{
    Driver, claim, claimant, no_driver, serve, settle_attachment, wait_attachment, wait_left,
    wait_registered,
};
use crate::look;
use crate::runner::Outcome;

cases![
    options_access_and_tokens_reach_the_driver_as_its_object_says,
    a_volume_without_a_kind_of_files_keeps_its_group,
    a_refusal_for_good_leaves_nothing_and_another_is_cleaned_up_after,
    upstreams_mock_driver_is_served_like_any_other,
];

/// The request to publish a volume for that pod.
fn publishing(driver: &Driver, pod: &PodView) -> Result<Value> {
    let calls = driver.calls()?;
    let mut published = calls.iter().filter(|it| it["method"] == "NodePublishVolume");
    let own = published.find(|it| {
        let target = it["request"]["target_path"].as_str();
        target.is_some_and(|it| it.contains(pod.uid()))
    });
    Ok(own.context("nothing was published for it")?["request"].clone())
}

fn options_access_and_tokens_reach_the_driver_as_its_object_says(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let rules = json!({
        "attachRequired": false,
        "podInfoOnMount": true,
        "fsGroupPolicy": "None",
        "tokenRequests": [{"audience": "vault"}],
        "serviceAccountTokenInSecrets": true,
    });
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    let options = json!({"mountOptions": ["noatime", "nodiratime"], "csi": {"fsType": "ext4"}});
    let volume = claim(&world, &driver, "data", options)?;
    let writer = world.run(&claimant(&world, "writer", "data"))?;
    let told = publishing(&driver, &writer)?;
    let capability = &told["volume_capability"]["AccessType"]["Mount"];
    ensure!(
        capability["mount_flags"] == json!(["noatime", "nodiratime"])
            && capability["fs_type"] == "ext4",
        "the driver was told {capability}"
    );
    let tokens = "csi.storage.k8s.io/serviceAccount.tokens";
    let secret = told["secrets"][tokens].as_str().context("no token")?;
    ensure!(
        secret.contains("vault") && told["volume_context"].get(tokens).is_none(),
        "the tokens are not where the object wants them"
    );
    let token: Value = serde_json::from_str(secret)?;
    let token = token["vault"]["token"].as_str().context("no token")?;
    ensure!(!world.node.node.log_text().contains(token), "a token is in the log");
    ensure!(
        told["volume_context"]["csi.storage.k8s.io/pod.name"] == "writer"
            && told["readonly"].as_bool() != Some(true),
        "the driver was told {}",
        told["volume_context"]
    );
    // The policy says that groups are the driver's own affair.
    let group = fs::metadata(driver.state.join("volumes").join(volume))?.gid();
    ensure!(group == 0, "the agent gave it to group {group}");

    let text = "touch /data/x 2>&1 | grep -c 'Read-only file system'; exec sleep 100000";
    let mut main = script("main", text);
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let source = json!({"claimName": "data", "readOnly": true});
    let reader = with(
        world.pod("reader", &[main]),
        json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": source}]}}),
    );
    let reader = world.run(&reader)?;
    let told = publishing(&driver, &reader)?;
    ensure!(told["readonly"] == true, "the driver was told {told}");
    let lines = world.settled_log(&reader, "main")?;
    ensure!(lines == ["1"], "it can be written to: {lines:?}");
    Ok(Outcome::Passed)
}

fn a_volume_without_a_kind_of_files_keeps_its_group(context: &mut Context<'_>) -> Result<Outcome> {
    // What the API fills in: ReadWriteOnceWithFSType.
    let rules = json!({"attachRequired": false});
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    for (name, more, expected) in [
        ("typed", json!({"csi": {"fsType": "ext4"}}), 4242),
        ("untyped", json!({}), 0),
        ("many", json!({"accessModes": ["ReadWriteMany"], "csi": {"fsType": "ext4"}}), 0),
    ] {
        let volume = claim(&world, &driver, name, more)?;
        world.run(&claimant(&world, name, name))?;
        let group = fs::metadata(driver.state.join("volumes").join(volume))?.gid();
        ensure!(group == expected, "{name} belongs to group {group}");
    }
    Ok(Outcome::Passed)
}

fn a_refusal_for_good_leaves_nothing_and_another_is_cleaned_up_after(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let rules = json!({"attachRequired": false});
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    let volume = claim(&world, &driver, "moody", json!({}))?;
    // Internal: nothing will come of the call. Unavailable: perhaps something did.
    for (name, code, stays) in [("final", "13", false), ("open", "14", true)] {
        driver.set_fault("NodePublishVolume", Some(code))?;
        world.apply(&claimant(&world, name, "moody"))?;
        let seen = world.wait_known(name)?;
        world.wait_event(&seen, "FailedMount")?;
        let record = look::pod_directory(&world.node.node, &seen)
            .join("volumes/kubernetes.io~csi")
            .join(&volume)
            .join("vol_data.json");
        // Between two tries; each makes it anew.
        let what = format!("the record of {name} to be as it should");
        world.wait(&what, SOON, |_, _| Ok((record.exists() == stays).then_some(())))?;
        let count = |methods: &[String]| {
            let calls = methods.iter();
            calls.filter(|it| *it == "NodeUnpublishVolume").count()
        };
        let before = count(&driver.methods()?);
        world.kubectl(&["delete", "pod", name, "--wait=false"])?;
        world.wait_gone(&seen, LATER)?;
        wait_left(&mut world, &driver)?;
        let n_unpublished = count(&driver.methods()?) - before;
        ensure!(
            (n_unpublished > 0) == stays,
            "after {code} the driver was asked {n_unpublished} times to unpublish"
        );
    }
    Ok(Outcome::Passed)
}

/// It checks each request as its authors understand the interface, and mounts nothing.
fn upstreams_mock_driver_is_served_like_any_other(context: &mut Context<'_>) -> Result<Outcome> {
    let rules = json!({"attachRequired": true, "podInfoOnMount": true});
    let options = ["-mock", "-takes-group", "-limit", "5"];
    let Some((mut world, driver)) = serve(context, &options, rules)? else {
        return Ok(no_driver());
    };
    let entry = wait_registered(&mut world, &driver)?;
    ensure!(
        entry["allocatable"]["count"] == 5
            && entry["topologyKeys"] == json!(["io.kubernetes.storage.mock/node"]),
        "it is published as {entry}"
    );
    // It has volumes 1 to 3, and refuses those that were not attached by its own word.
    let volume = claim(&world, &driver, "mock", json!({"csi": {"volumeHandle": "1"}}))?;
    world.apply(&claimant(&world, "mock", "mock"))?;
    let attached = json!({"attached": true, "attachmentMetadata": {"device": "/dev/mock"}});
    let name = wait_attachment(&mut world, &volume)?;
    settle_attachment(&world, &name, &attached)?;
    let seen = world.wait_ready_later("mock")?;
    let told = publishing(&driver, &seen)?;
    ensure!(
        told["publish_context"]["device"] == "/dev/mock"
            && told["volume_context"]["csi.storage.k8s.io/pod.uid"] == seen.uid()
            && told.to_string().contains(r#""volume_mount_group":"4242""#),
        "the driver was told {told}"
    );
    let uid = seen.uid().to_owned();
    world.node.node.wait("the driver's figures", LATER, |node| {
        let summary: Value = serde_json::from_str(&node.read_only("/stats/summary")?.body)?;
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let mut pods = pods.into_iter();
        let own = pods.find(|it| it["podRef"]["uid"] == uid.as_str());
        let volumes = own.map(|it| it["volume"].clone()).unwrap_or_default();
        let mut volumes = volumes.as_array().cloned().unwrap_or_default().into_iter();
        Ok(volumes.any(|it| it["capacityBytes"] == 100_u64 << 30).then_some(()))
    })?;
    enlarge(&world, &volume, "mock", "2Gi")?;
    wait_grown(&mut world, "mock", "2Gi")?;

    let strange = claim(&world, &driver, "strange", json!({"csi": {"volumeHandle": "99"}}))?;
    world.apply(&claimant(&world, "strange", "strange"))?;
    let name = wait_attachment(&mut world, &strange)?;
    settle_attachment(&world, &name, &attached)?;
    let refused = world.wait_known("strange")?;
    let said = world.wait_event(&refused, "FailedMount")?;
    let expected = format!(
        "MountVolume.MountDevice failed for volume \"{strange}\" : rpc error: code = NotFound desc = 99"
    );
    ensure!(said == expected, "it says {said:?}");

    for pod in [&refused, &seen] {
        world.kubectl(&["delete", "pod", pod.name(), "--wait=false"])?;
        world.wait_gone(pod, LATER)?;
    }
    wait_left(&mut world, &driver)?;
    let methods = driver.methods()?;
    let end = &methods[methods.len() - 2..];
    ensure!(
        end == ["NodeUnpublishVolume", "NodeUnstageVolume"],
        "the driver was called: {methods:?}"
    );
    Ok(Outcome::Passed)
}

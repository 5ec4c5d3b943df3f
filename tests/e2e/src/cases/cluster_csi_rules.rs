//! What a CSI driver is told and asked by the rules of its CSIDriver object and its volumes, and
//! drivers that let their pods down: not registered, dead half way, answering rubbish.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{LATER, SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::driver::{
    Driver, apply_rules, claim, claimant, name_in, no_driver, serve, settle_attachment,
    wait_attachment, wait_registered,
};
use crate::runner::Outcome;

cases![
    secrets_and_the_group_reach_the_driver,
    a_volume_for_one_pod_alone_waits_for_it_to_go,
    a_raw_device_for_one_pod_alone_waits_for_it_to_go,
    how_many_volumes_a_node_takes_is_asked_again,
    a_driver_that_is_absent_dies_or_talks_rubbish_is_waited_for;
    long: a_driver_that_asks_for_it_is_told_again,
    a_pod_that_finds_no_room_for_its_volume_is_refused,
];

/// Again after a minute, and a moment to be seen.
const REPUBLISHED: Duration = Duration::from_secs(150);

fn secrets_and_the_group_reach_the_driver(context: &mut Context<'_>) -> Result<Outcome> {
    let rules = json!({"attachRequired": false, "fsGroupPolicy": "File"});
    let Some((mut world, driver)) = serve(context, &["-takes-group"], rules)? else {
        return Ok(no_driver());
    };
    for name in ["stage", "publish"] {
        let keys = json!({"stringData": {"word": format!("hush-{name}")}});
        world.apply(&world.object("Secret", name, keys))?;
    }
    let reference = |name: &str| json!({"name": name, "namespace": world.namespace});
    let secrets = json!({
        "nodeStageSecretRef": reference("stage"),
        "nodePublishSecretRef": reference("publish"),
    });
    claim(&world, &driver, "guarded", json!({"csi": secrets}))?;
    let pod = claimant(&world, "guarded", "guarded");
    world.apply(&pod)?;
    world.wait_ready_later("guarded")?;
    for (method, word) in [("NodeStageVolume", "hush-stage"), ("NodePublishVolume", "hush-publish")]
    {
        let told = driver.request(method)?;
        ensure!(told["secrets"]["word"] == word, "{method} was told {}", told["secrets"]);
        let capability = told["volume_capability"].to_string();
        ensure!(
            capability.contains(r#""volume_mount_group":"4242""#),
            "{method} was told {capability}"
        );
    }
    // The driver said that it does this itself; that it does not is its own affair.
    let volume = format!("{}-guarded", world.namespace);
    let volume = driver.state.join("volumes").join(volume);
    let group = std::fs::metadata(volume)?.gid();
    ensure!(group == 0, "the agent gave it to group {group}");
    let log = world.node.node.log_text();
    ensure!(!log.contains("hush-"), "a secret is in the log");
    Ok(Outcome::Passed)
}

fn a_volume_for_one_pod_alone_waits_for_it_to_go(context: &mut Context<'_>) -> Result<Outcome> {
    let rules = json!({"attachRequired": false});
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    claim(&world, &driver, "alone", json!({"accessModes": ["ReadWriteOncePod"]}))?;
    let first = claimant(&world, "first", "alone");
    world.apply(&first)?;
    let first = world.wait_ready_later("first")?;
    let second = claimant(&world, "second", "alone");
    world.apply(&second)?;
    let second = world.wait_known("second")?;
    let said = world.wait_event(&second, "FailedMount")?;
    ensure!(
        said.ends_with(
            "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
        ),
        "it says {said:?}"
    );
    world.kubectl(&["delete", "pod", "first", "--wait=false"])?;
    world.wait_gone(&first, LATER)?;
    world.wait_ready_later("second")?;
    Ok(Outcome::Passed)
}

fn a_raw_device_for_one_pod_alone_waits_for_it_to_go(context: &mut Context<'_>) -> Result<Outcome> {
    let rules = json!({"attachRequired": false});
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    let alone = json!({
        "accessModes": ["ReadWriteOncePod"],
        "capacity": {"storage": "16Mi"},
        "volumeMode": "Block",
    });
    claim(&world, &driver, "alone", alone)?;
    let pod = |world: &World<'_>, name: &str| {
        let mut main = sleeper("main");
        main["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/mine"}]);
        with(
            world.pod(name, &[main]),
            json!({"spec": {"volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "alone"}},
            ]}}),
        )
    };
    world.apply(&pod(&world, "first"))?;
    let first = world.wait_ready("first")?;
    world.apply(&pod(&world, "second"))?;
    let second = world.wait_known("second")?;
    let said = world.wait_event(&second, "FailedMapVolume")?;
    let expected = format!(
        "MapVolume.SetUpDevice failed for volume \"{}-alone\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod",
        world.namespace
    );
    ensure!(said == expected, "it says {said:?}");
    world.kubectl(&["delete", "pod", "first", "--wait=false"])?;
    world.wait_gone(&first, LATER)?;
    let second = world.wait_ready("second")?;
    world.kubectl(&["delete", "pod", "second", "--wait=false"])?;
    world.wait_gone(&second, LATER)?;
    Ok(Outcome::Passed)
}

fn how_many_volumes_a_node_takes_is_asked_again(context: &mut Context<'_>) -> Result<Outcome> {
    // The shortest period that the API allows.
    let rules = json!({"attachRequired": false, "nodeAllocatableUpdatePeriodSeconds": 10});
    let Some((mut world, driver)) = serve(context, &["-limit", "7"], rules)? else {
        return Ok(no_driver());
    };
    let entry = wait_registered(&mut world, &driver)?;
    ensure!(entry["allocatable"]["count"] == 7, "it is published as {entry}");
    driver.set_limit(3)?;
    let path = format!("/apis/storage.k8s.io/v1/csinodes/{}", world.node_name());
    world.wait("the new limit in the node's CSINode", SOON, |cluster, _| {
        let node = cluster.get(&path)?;
        let entry = &node["spec"]["drivers"][0];
        Ok((entry["allocatable"]["count"] == 3).then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn a_pod_that_finds_no_room_for_its_volume_is_refused(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let rules = json!({"attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": 600});
    let Some((mut world, driver)) = serve(context, &["-limit", "7"], rules)? else {
        return Ok(no_driver());
    };
    let volume = claim(&world, &driver, "far", json!({}))?;
    world.apply(&claimant(&world, "unlucky", "far"))?;
    let name = wait_attachment(&mut world, &volume)?;
    driver.set_limit(0)?;
    let error =
        json!({"message": "no slot is free", "errorCode": 8, "time": "2026-01-01T00:00:00Z"});
    settle_attachment(&world, &name, &json!({"attached": false, "attachError": error}))?;
    // As long as upstream waits, and a moment to be seen.
    let seen =
        world.wait_pod("unlucky", "Failed", REPUBLISHED + SOON, |pod| pod.phase() == "Failed")?;
    ensure!(
        seen.0["status"]["reason"] == "VolumeAttachmentLimitExceeded",
        "it failed as {}",
        seen.0["status"]
    );
    let said = world.wait_event(&seen, "VolumeAttachmentLimitExceeded")?;
    ensure!(
        said == "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: context deadline exceeded",
        "it says {said:?}"
    );
    // The driver was asked again at once, long before its period is over.
    let path = format!("/apis/storage.k8s.io/v1/csinodes/{}", world.node_name());
    world.wait("the new limit in the node's CSINode", SOON, |cluster, _| {
        let node = cluster.get(&path)?;
        let entry = &node["spec"]["drivers"][0];
        Ok(entry["allocatable"]["count"].is_null().then_some(()))
    })?;
    world.kubectl(&["delete", "pod", "unlucky", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    Ok(Outcome::Passed)
}

/// Somebody who listens where a driver should and speaks another language.
struct Babbler {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Babbler {
    fn listen(socket: &Path) -> Result<Babbler> {
        std::fs::remove_file(socket).ok();
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                if let Ok((mut stream, _)) = listener.accept() {
                    stream.set_read_timeout(Some(Duration::from_millis(200))).ok();
                    let mut heard = [0; 64];
                    // Whatever is said, the answer is the same.
                    if stream.read(&mut heard).is_ok_and(|n| n > 0) {
                        stream.write_all(b"\0\xff\0rubbish\r\n\r\n\0\0").ok();
                    }
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        Ok(Babbler { is_over, thread: Some(thread) })
    }
}

impl Drop for Babbler {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn a_driver_that_is_absent_dies_or_talks_rubbish_is_waited_for(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let bystander = world.run(&world.pod("bystander", &[sleeper("main")]))?;
    // Where plugins make themselves known anybody may stand.
    let registry = world.node.node.root().join("plugins_registry");
    let _stranger = Babbler::listen(&registry.join("x-reg.sock"))?;
    let name = name_in(&world);
    let pod = |world: &World<'_>, pod: &str| {
        let mut main = script("main", "echo x > /data/file; exec sleep 100000");
        main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        with(
            world.pod(pod, &[main]),
            json!({"spec": {"volumes": [{"name": "data", "csi": {"driver": name}}]}}),
        )
    };
    apply_rules(&world, json!({"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}))?;

    world.apply(&pod(&world, "early"))?;
    let early = world.wait_known("early")?;
    let said = world.wait_event(&early, "FailedMount")?;
    let expected = format!(
        "MountVolume.SetUp failed for volume \"data\" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name {name} not found in the list of registered CSI drivers"
    );
    ensure!(said == expected, "it says {said:?}");
    let Some(mut driver) = Driver::start(context, &world, &[])? else {
        return Ok(no_driver());
    };
    let early = world.wait_ready_later("early")?;

    // Killed in the middle of a call: what it was doing is neither done nor refused.
    let n_before = driver.methods()?.len();
    driver.set_fault("NodePublishVolume", Some("hang"))?;
    world.apply(&pod(&world, "unlucky"))?;
    world.wait("the driver to hang", LATER, |_, _| {
        Ok((driver.methods()?.len() > n_before).then_some(()))
    })?;
    driver.process.kill()?;
    driver.process.wait()?;
    driver.set_fault("NodePublishVolume", None)?;
    let unlucky = world.find_pod("unlucky")?.context("the pod is gone")?;
    let said = world.wait_event(&unlucky, "FailedMount")?;
    ensure!(
        said.starts_with("MountVolume.SetUp failed for volume \"data\" : "),
        "it says {said:?}"
    );
    let n_said = world.events(&unlucky)?.len();
    let babbler = Babbler::listen(&driver.state.join("s"))?;
    wait_more_said(&world, &unlucky, n_said)?;
    drop(babbler);
    let restarted = Driver::start(context, &world, &[])?;
    let driver = restarted.context("the driver was there before")?;
    world.wait_ready_later("unlucky")?;
    for before in [&early, &bystander] {
        let now = world.wait_ready(before.name())?;
        ensure!(
            now.uid() == before.uid() && now.restarts() == 0,
            "somebody else was hit: {}",
            now.state()
        );
    }
    for name in ["early", "unlucky"] {
        world.kubectl(&["delete", "pod", name, "--wait=false"])?;
    }
    world.wait_gone(&early, LATER)?;
    world.wait_gone(&unlucky, LATER)?;
    let table = ferrolet_lab::mounts::table()?;
    let left = format!("{}/volumes/kubernetes.io~csi", unlucky.uid());
    ensure!(!table.contains(&left), "something is still mounted");
    drop(driver);
    Ok(Outcome::Passed)
}

/// Waits until more has been said of a pod, in a new event or by counting an old one up.
fn wait_more_said(world: &World<'_>, pod: &ferrolet_lab::PodView, n_before: usize) -> Result<()> {
    world.cluster.wait("another refusal", LATER, |_| {
        let events = world.events(pod)?;
        let mut failed = events.iter().filter(|it| it["reason"] == "FailedMount");
        let is_counted = failed.any(|it| it["count"].as_u64().is_some_and(|count| count > 1));
        Ok((is_counted || events.len() > n_before).then_some(()))
    })
}

fn a_driver_that_asks_for_it_is_told_again(context: &mut Context<'_>) -> Result<Outcome> {
    let rules = json!({
        "attachRequired": false,
        "requiresRepublish": true,
        "tokenRequests": [{"audience": "vault", "expirationSeconds": 600}],
    });
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    claim(&world, &driver, "fresh", json!({}))?;
    world.apply(&claimant(&world, "fresh", "fresh"))?;
    let seen = world.wait_ready_later("fresh")?;
    world.wait("the volume to be published again", REPUBLISHED, |_, _| {
        let methods = driver.methods()?;
        let n_published = methods.iter().filter(|it| *it == "NodePublishVolume");
        Ok((n_published.count() >= 2).then_some(()))
    })?;
    let staged = driver.methods()?;
    let n_staged = staged.iter().filter(|it| *it == "NodeStageVolume").count();
    ensure!(n_staged == 1, "it was staged {n_staged} times");
    let now = world.wait_ready("fresh")?;
    ensure!(now.restarts() == 0 && now.uid() == seen.uid(), "the pod was restarted");
    Ok(Outcome::Passed)
}

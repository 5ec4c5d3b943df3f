//! Volumes of a CSI driver that have devices of their own: raw, with a file system, growing, and
//! how full they are.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::process::find_program;
use ferrolet_lab::{Part, PodView, wait_until};
use serde_json::{Value, json};

use super::{GONE, LATER, SOON, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::driver::{Driver, claim, loops_below, no_driver, serve};
use crate::look;
use crate::runner::Outcome;

cases![
    csi_test_is_content_with_the_driver_of_these_tests,
    a_raw_device_of_a_driver_is_handed_to_its_pod_across_a_restart,
    disks_say_how_full_they_are_and_grow_while_their_pod_runs,
];

/// Room for the smallest XFS, and a little more.
const SMALL: &str = "320Mi";
const LARGE: &str = "400Mi";

/// A volume of the driver with a device of its own, and a claim bound to it.
fn disk(world: &World<'_>, driver: &Driver, name: &str, more: Value) -> Result<String> {
    let disk = json!({
        "capacity": {"storage": "16Mi"},
        "csi": {"volumeAttributes": {"disk": "true"}},
    });
    claim(world, driver, name, with(disk, more))
}

/// What a resizer does: the volume is larger, and the claim says that the node has to do its part.
pub(super) fn enlarge(world: &World<'_>, volume: &str, claim: &str, size: &str) -> Result<()> {
    let capacity = json!({"spec": {"capacity": {"storage": size}}}).to_string();
    world.cluster.kubectl(&[
        "patch",
        "persistentvolume",
        volume,
        "--type=merge",
        "-p",
        &capacity,
    ])?;
    let status = json!({"status": {
        "allocatedResources": {"storage": size},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
    }});
    world.kubectl(&[
        "patch",
        "persistentvolumeclaim",
        claim,
        "--subresource=status",
        "--type=merge",
        "-p",
        &status.to_string(),
    ])?;
    Ok(())
}

pub(super) fn wait_grown(world: &mut World<'_>, claim: &str, size: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/{claim}", world.namespace);
    let what = format!("the claim {claim} to have grown");
    world.wait(&what, GONE, |cluster, _| {
        let claim = cluster.get(&path)?;
        let is_grown = claim["status"]["capacity"]["storage"] == size;
        let is_told = claim["status"]["allocatedResourceStatuses"].is_null();
        Ok((is_grown && is_told).then_some(()))
    })
}

/// KiB of the file system at /tree, as its pod sees it.
fn room_inside(context: &mut Context<'_>, pod: &PodView, exec: &str) -> Result<u64> {
    let id = pod.containers()[0].id().to_owned();
    let ask = ["tasks", "exec", "--exec-id", exec, &id, "df", "-k", "/tree"];
    let said = context.containerd()?.ctr(&ask)?;
    let size = said.lines().last().and_then(|line| {
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
        numbers.next()
    });
    size.with_context(|| format!("df says {said:?}"))
}

fn csi_test_is_content_with_the_driver_of_these_tests(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let Part::Available(program) = &context.options.csi_driver else {
        return Ok(no_driver());
    };
    let node = context.prepare(context.node_options())?;
    let place = node.directory().join("drv");
    std::fs::create_dir_all(&place)?;
    let socket = place.join("s");
    let mut driver = Command::new(program)
        .args(["-name", "test.ferrolet.dev", "-limit", "7"])
        .arg("-state")
        .arg(&place)
        .arg("-endpoint")
        .arg(&socket)
        .spawn()?;
    let is_there = wait_until("the driver's socket", SOON, || Ok(socket.exists().then_some(())));
    let checked = is_there.and_then(|()| {
        let mut sanity = Command::new(program.with_file_name("csi-sanity"));
        sanity
            .arg(format!("--csi.endpoint=unix://{}", socket.display()))
            .arg(format!("--csi.mountdir={}", place.join("mount").display()))
            .arg(format!("--csi.stagingdir={}", place.join("stage").display()))
            .arg("--ginkgo.no-color");
        Ok(sanity.output()?)
    });
    driver.kill()?;
    driver.wait()?;
    let checked = checked?;
    let said = String::from_utf8_lossy(&checked.stdout);
    ensure!(checked.status.success(), "csi-test says {said}");
    ensure!(said.contains("41 Passed"), "csi-test says {said}");
    Ok(Outcome::Passed)
}

fn a_raw_device_of_a_driver_is_handed_to_its_pod_across_a_restart(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let rules = json!({"attachRequired": false});
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    let volume = disk(&world, &driver, "raw", json!({"volumeMode": "Block"}))?;
    let mut main = script(
        "main",
        "echo hello > /tmp/words; dd if=/tmp/words of=/dev/mine conv=notrunc,fsync 2>/dev/null; exec sleep 100000",
    );
    main["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/mine"}]);
    let pod = with(
        world.pod("raw", &[main]),
        json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "raw"}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_ready_later("raw")?;
    let image = driver.state.join("volumes").join(format!("{volume}.img"));
    world.wait("the pod's words on its device", SOON, |_, _| {
        let words = std::fs::read(&image)?;
        Ok(words.starts_with(b"hello\n").then_some(()))
    })?;
    let told = &driver.request("NodePublishVolume")?["volume_capability"];
    ensure!(told["AccessType"].get("Block").is_some(), "the driver was told {told}");
    let root = world.node.node.root().to_owned();
    let link = look::pod_directory(&world.node.node, &seen)
        .join("volumeDevices/kubernetes.io~csi")
        .join(&volume);
    let devices = root.join("plugins/kubernetes.io/csi/volumeDevices");
    let published = devices.join("publish").join(&volume).join(seen.uid());
    let target = std::fs::read_link(&link)?;
    ensure!(target == published, "the link leads to {target:?}");
    let held = devices.join(&volume).join("dev").join(seen.uid());
    ensure!(
        loops_below(&held)?.len() == 1,
        "the device is not kept open: {:?}",
        loops_below(&root)?
    );

    // Killed, and the pod deleted meanwhile: what is on disk is enough to take its device away.
    world.node.node.kill()?;
    world.kubectl(&["delete", "pod", "raw", "--wait=false"])?;
    world.node.node.launch()?;
    world.wait_gone(&seen, LATER)?;
    world.wait("the device to leave the node", LATER, |_, _| {
        let is_last = driver.methods()?.last().is_some_and(|it| it == "NodeUnstageVolume");
        Ok((is_last && !devices.join(&volume).exists()).then_some(()))
    })?;
    ensure!(
        driver.methods()?.contains(&"NodeUnpublishVolume".to_owned()),
        "the driver was called: {:?}",
        driver.methods()?
    );
    let left = loops_below(world.node.node.directory())?;
    ensure!(left.is_empty(), "loop devices are left: {left:?}");
    let table = ferrolet_lab::mounts::table()?;
    let own = devices.display().to_string();
    ensure!(!table.contains(&own), "something is still mounted");
    ensure!(!published.exists(), "the driver's place is left");
    Ok(Outcome::Passed)
}

fn disks_say_how_full_they_are_and_grow_while_their_pod_runs(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let rules = json!({"attachRequired": false});
    let Some((mut world, driver)) = serve(context, &[], rules)? else {
        return Ok(no_driver());
    };
    disk(&world, &driver, "files", json!({}))?;
    let volume = disk(&world, &driver, "raw", json!({"volumeMode": "Block"}))?;
    // A file system that grows while it is used. Not ext4: the kernel wants a capability for that
    // which not every machine gives away.
    let has_xfs = find_program("mkfs.xfs").is_some();
    let kind = if has_xfs { "xfs" } else { "ext4" };
    let tree = disk(
        &world,
        &driver,
        "tree",
        json!({
            "capacity": {"storage": SMALL},
            "csi": {"fsType": kind, "volumeAttributes": {"size": (320_u64 << 20).to_string()}},
        }),
    )?;
    let mut main = script(
        "main",
        "dd if=/dev/zero of=/data/file bs=1M count=3 2>/dev/null; sync; exec sleep 100000",
    );
    main["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/data"},
        {"name": "tree", "mountPath": "/tree"},
    ]);
    main["volumeDevices"] = json!([{"name": "other", "devicePath": "/dev/mine"}]);
    let pod = with(
        world.pod("disks", &[main]),
        json!({"spec": {"volumes": [
            {"name": "other", "persistentVolumeClaim": {"claimName": "raw"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "files"}},
            {"name": "tree", "persistentVolumeClaim": {"claimName": "tree"}},
        ]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_ready_later("disks")?;
    let uid = seen.uid().to_owned();
    let figures = |summary: &Value, claim: &str| {
        let mut pods = summary["pods"].as_array().cloned().unwrap_or_default().into_iter();
        let pod = pods.find(|it| it["podRef"]["uid"] == uid.as_str())?;
        let volumes = pod["volume"].as_array().cloned().unwrap_or_default();
        let mut own = volumes.into_iter();
        own.find(|it| it["pvcRef"]["name"] == claim)
    };
    let shown = world.node.node.wait("both claims in the summary", LATER, |node| {
        let summary: Value = serde_json::from_str(&node.read_only("/stats/summary")?.body)?;
        let (data, raw) = (figures(&summary, "files"), figures(&summary, "raw"));
        Ok(data
            .zip(raw)
            .filter(|(data, _)| data["usedBytes"].as_u64().is_some_and(|it| it > 3 << 20)))
    })?;
    ensure!(
        shown.0["name"] == "data"
            && shown.0["capacityBytes"].as_u64().is_some_and(|it| it < 16 << 20)
            && shown.1["name"] == "other"
            && shown.1["capacityBytes"] == 16 << 20,
        "the summary says {shown:?}"
    );
    let metrics = world.node.node.read_only("/metrics")?.body;
    let line = metrics.lines().find(|line| {
        line.starts_with("kubelet_volume_stats_used_bytes{")
            && line.contains("persistentvolumeclaim=\"files\"")
    });
    ensure!(line.is_some(), "the claim is not in the metrics");

    let before = room_inside(context, &seen, "before")?;
    enlarge(&world, &volume, "raw", "32Mi")?;
    if has_xfs {
        enlarge(&world, &tree, "tree", LARGE)?;
    }
    wait_grown(&mut world, "raw", "32Mi")?;
    world.wait_event(&seen, "FileSystemResizeSuccessful")?;
    let containerd = context.containerd()?;
    let id = seen.containers()[0].id().to_owned();
    let words = ["blockdev", "--getsize64", "/dev/mine"];
    let mut ask = vec!["tasks", "exec", "--exec-id", "size", &id];
    ask.extend(words);
    let size = containerd.ctr(&ask)?;
    ensure!(size.trim().parse() == Ok(32_u64 << 20), "the device did not grow: {size}");
    if has_xfs {
        wait_grown(&mut world, "tree", LARGE)?;
        let after = room_inside(context, &seen, "after")?;
        ensure!(after > before + (64 << 10), "the file system has {before} KiB, then {after}");
    }
    world.kubectl(&["delete", "pod", "disks", "--wait=false"])?;
    world.wait_gone(&seen, LATER)?;
    let place = world.node.node.directory().to_owned();
    world.wait("both devices to leave the node", LATER, |_, _| {
        Ok(loops_below(&place)?.is_empty().then_some(()))
    })?;
    Ok(Outcome::Passed)
}

//! What the node takes back: images, logs, and links to logs that are gone.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::image::{BUSYBOX, PAUSE};
use ferrolet_lab::process::Daemon;
use ferrolet_lab::{Node, cgroups};
use serde_json::json;

use super::registries::app;
use super::{GONE, LATER, SOON, cases, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_full_disk_loses_unused_images_and_says_what_holds_the_rest,
    an_image_that_nobody_used_for_long_goes,
    a_log_is_rotated_compressed_and_kept_within_its_number,
    a_link_to_a_log_that_is_gone_goes,
    as_many_dead_containers_stay_as_the_node_keeps,
    what_an_ended_pod_left_running_is_slowed_down_while_its_volumes_stay,
];

const SPARE: &str = "spare.test/app:1";

fn has_image(context: &mut Context<'_>, name: &str) -> Result<bool> {
    let listed = context.containerd()?.ctr(&["images", "ls", "--quiet"])?;
    Ok(listed.lines().any(|line| line == name))
}

/// A node that runs one pod of busybox while an image is there that nobody uses.
fn with_spare(context: &mut Context<'_>, configuration: serde_json::Value) -> Result<Node> {
    let spare = app(context.tools, SPARE)?;
    context.containerd()?.import(&[spare])?;
    let mut options = context.node_options();
    options.configuration = configuration;
    let mut node = context.prepare(options)?;
    node.put_pod(&pod("web", &[sleeper("main")]))?;
    node.launch()?;
    wait_running(&mut node, "web")?;
    Ok(node)
}

fn wait_image_gone(context: &mut Context<'_>) -> Result<()> {
    ferrolet_lab::wait_until("the spare image to go", LATER, || {
        Ok((!has_image(context, SPARE)?).then_some(()))
    })
}

fn a_full_disk_loses_unused_images_and_says_what_holds_the_rest(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    // Every disk is full for these marks, and none can be made as empty as the lower one.
    let marks = json!({
        "imageGCHighThresholdPercent": 1,
        "imageGCLowThresholdPercent": 0,
        "imageMinimumGCAge": "3s",
    });
    let mut node = with_spare(context, marks)?;
    wait_image_gone(context)?;
    // A runtime that does not say which images it needs loses them, as with upstream's kubelet.
    let pins = context.containerd()?.pins_images();
    for name in [BUSYBOX, PAUSE].into_iter().take(1 + usize::from(pins)) {
        ensure!(has_image(context, name)?, "{name} went too");
    }
    node.wait("what holds the space", SOON, |node| {
        let log = node.log_text().replace('\\', "");
        let mut parts = vec![
            "FreeDiskSpaceFailed",
            "1 image in use (the largest: docker.io/library/busybox:latest)",
            "in anything but images",
        ];
        parts.extend(pins.then_some("1 image pinned"));
        Ok(parts.iter().all(|part| log.contains(part)).then_some(()))
    })?;
    wait_running(&mut node, "web")?;
    Ok(Outcome::Passed)
}

fn an_image_that_nobody_used_for_long_goes(context: &mut Context<'_>) -> Result<Outcome> {
    let ages = json!({"imageMinimumGCAge": "1s", "imageMaximumGCAge": "4s"});
    let mut node = with_spare(context, ages)?;
    wait_image_gone(context)?;
    ensure!(has_image(context, BUSYBOX)?, "busybox went too");
    wait_running(&mut node, "web")?;
    Ok(Outcome::Passed)
}

/// The files of a container's log, by name.
fn log_files(directory: &Path) -> Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len()));
    }
    files.sort();
    Ok(files)
}

fn a_log_is_rotated_compressed_and_kept_within_its_number(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({
        "containerLogMaxSize": "20Ki",
        "containerLogMaxFiles": 3,
        "containerLogMonitorInterval": "3s",
    });
    let mut node = context.node_with(options)?;
    // About 10 KiB in a second: every line has its number.
    let text = "n=0; while :; do i=0; while [ $i -lt 20 ]; do echo \"line $n ........................................\"; n=$((n+1)); i=$((i+1)); done; sleep 0.2; done";
    node.put_pod(&pod("talker", &[script("main", text)]))?;
    let seen = wait_running(&mut node, "talker")?;
    let pod_logs = node.pod_logs();
    let directory =
        pod_logs.join(format!("{}_{}_{}", seen.namespace(), seen.name(), seen.uid())).join("main");
    let files = node.wait("a compressed log", LATER, |_| {
        let files = log_files(&directory)?;
        ensure!(files.len() <= 4, "there are {files:?}");
        let is_there = |ending: &str| files.iter().any(|(name, _)| name.ends_with(ending));
        ensure!(is_there(".gz") && is_there("0.log"), "there are {files:?}");
        Ok(Some(files))
    })?;
    let stamp = files
        .iter()
        .find_map(|(name, _)| name.strip_prefix("0.log.")?.strip_suffix(".gz"))
        .context("no compressed log")?;
    ensure!(stamp.len() == 15 && stamp.as_bytes()[8] == b'-', "its stamp is {stamp}");
    for (name, size) in &files {
        // One look's growth beyond the mark.
        ensure!(*size < 60 * 1024, "{name} has {size} bytes");
    }
    node.wait("three files", LATER, |_| {
        let files = log_files(&directory)?;
        let rotated = files.iter().filter(|(name, _)| name.starts_with("0.log."));
        Ok((rotated.count() == 2).then_some(()))
    })?;
    // The newest rotated file and the current one follow each other without a gap.
    let (plain, first) = node.wait("a rotated log that can be read", SOON, |node| {
        let newest = log_files(&directory)?
            .into_iter()
            .map(|(name, _)| name)
            .rfind(|name| name.starts_with("0.log.") && !name.ends_with(".gz"))
            .context("every rotated log is compressed")?;
        let plain = fs::read_to_string(directory.join(newest))?;
        let current = look::log_lines(node, &seen, "main", 0)?;
        Ok(current.first().cloned().map(|first| (plain, first)))
    })?;
    let number = |line: &str| -> Result<u64> {
        let after = line.split("line ").nth(1).context("no number")?;
        let digits = after.split_whitespace().next().context("no number")?;
        Ok(digits.parse()?)
    };
    let last = plain.lines().last().context("an empty log")?;
    ensure!(number(&first)? == number(last)? + 1, "{last:?} is followed by {first:?}");
    ensure!(wait_running(&mut node, "talker")?.restarts() == 0, "the container was restarted");
    Ok(Outcome::Passed)
}

fn a_link_to_a_log_that_is_gone_goes(context: &mut Context<'_>) -> Result<Outcome> {
    let options = context.node_options();
    let mut node = context.prepare(options)?;
    let links = Path::new("/var/log/containers");
    fs::create_dir_all(links)?;
    let name = format!("gone_default_{}-0123456789ab.log", node.name());
    let link: PathBuf = links.join(name);
    symlink("/nowhere/0.log", &link)?;
    node.put_pod(&pod("web", &[sleeper("main")]))?;
    node.launch()?;
    node.wait("the link to go", Duration::from_secs(70), |_| {
        Ok(link.symlink_metadata().is_err().then_some(()))
    })?;
    wait_running(&mut node, "web")?;
    Ok(Outcome::Passed)
}

fn as_many_dead_containers_stay_as_the_node_keeps(context: &mut Context<'_>) -> Result<Outcome> {
    // Ends four times in a row, without having to wait for long.
    let text = "n=$(cat /dev/shm/n 2>/dev/null || echo 0); echo $((n + 1)) > /dev/shm/n; \
        [ $n -lt 4 ] && exit 1; exec sleep 100000";
    for (flag, n_dead) in [(None, 1), (Some("--maximum-dead-containers-per-container=3"), 3)] {
        let mut options = context.node_options();
        options.configuration = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}});
        options.arguments.extend(flag.map(str::to_owned));
        let mut node = context.node_with(options)?;
        node.put_pod(&pod("crash", &[script("main", text)]))?;
        let seen = node.wait_pod("crash", "to run for the fifth time", LATER, |pod| {
            let main = pod.container("main");
            main.is_ok_and(|it| it.restarts() == 4 && it.is_running())
        })?;
        let containerd = context.containerd()?;
        let logs = look::log_directory(&node, &seen).join("main");
        node.wait("what is left of its containers", SOON, |node| {
            let all = containerd.containers()?.into_iter();
            let own = all.filter(|it| it.pod_uid == seen.uid() && it.kind != "sandbox");
            let (n_left, n_logs) = (own.count(), log_files(&logs)?.len());
            let n_links = look::links(node, &seen).len();
            // The one that runs is there too.
            let left = [n_left, n_logs, n_links];
            ensure!(left == [n_dead + 1; 3], "containers, logs and links: {left:?}");
            Ok(Some(()))
        })?;
        node.remove_manifest("crash.yaml")?;
        node.wait("nothing to be left", LATER, |node| {
            look::ensure_gone(node, containerd, &seen).map(Some)
        })?;
        node.kill()?;
    }
    Ok(Outcome::Passed)
}

/// A driver of the old kind that does not let go of its volumes while a file is there.
fn install_clinging_driver(node: &Node) -> Result<PathBuf> {
    let place = node.directory().join("volume-plugins/lab~clings");
    fs::create_dir_all(place.join("disk"))?;
    let stuck = place.join("stuck");
    let text = format!(
        r#"#!/bin/sh
good='{{"status": "Success"}}'
case "$1" in
init) echo '{{"status": "Success", "capabilities": {{"attach": false}}}}';;
mount) mount --bind {disk} "$2" && echo "$good";;
unmount)
  if [ -e {stuck} ]; then echo '{{"status": "Failure", "message": "in use"}}'; exit 1; fi
  if mountpoint -q "$2"; then umount "$2"; fi && echo "$good";;
*) echo '{{"status": "Not supported"}}'; exit 1;;
esac
"#,
        disk = place.join("disk").display(),
        stuck = stuck.display()
    );
    let program = place.join("clings");
    fs::write(&program, text)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(stuck)
}

fn what_an_ended_pod_left_running_is_slowed_down_while_its_volumes_stay(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let options = context.node_options();
    let mut node = context.prepare(options)?;
    let stuck = install_clinging_driver(&node)?;
    node.launch()?;
    let mut main = sleeper("main");
    main["resources"] = json!({"requests": {"cpu": "500m"}});
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let volumes = json!([{"name": "data", "flexVolume": {"driver": "lab/clings"}}]);
    let spec = json!({"spec": {"volumes": volumes}});
    node.put_pod(&with(pod("web", &[main]), spec))?;
    let seen = wait_running(&mut node, "web")?;

    let group = look::pod_cgroup(&node, "burstable/", &seen);
    let (file, whole, least) =
        if cgroups::is_v2() { ("cpu.weight", "20", "1") } else { ("cpu.shares", "512", "2") };
    let weight = || cgroups::value(&group, file);
    ensure!(weight()? == whole, "it weighs {}", weight()?);
    // A process that the runtime knows nothing of. Where processors count there is room for it
    // below the pod.
    let mut sleep = Command::new("sleep");
    sleep.arg("100000");
    let log = node.directory().join("left.log");
    let mut left = Daemon::spawn("a process left behind", sleep, &log)?;
    let pods = cgroups::directories(&group)?;
    let counting = pods
        .iter()
        .find(|it| it.ends_with(group.trim_start_matches('/')) && it.join(file).exists());
    let below = counting.context("there is no cgroup")?.join("left");
    fs::create_dir(&below)?;
    fs::write(below.join("cgroup.procs"), left.pid().to_string())?;

    fs::write(&stuck, "")?;
    node.remove_manifest("web.yaml")?;
    let lowered = |_: &Node| {
        let found = weight()?;
        ensure!(found == least, "it weighs {found}");
        Ok(Some(()))
    };
    node.wait("little weight", SOON, lowered)?;
    // The next life of the agent finds a pod that nobody asks for.
    node.kill()?;
    let parent = below.parent().context("it has a parent")?;
    fs::write(parent.join(file), whole)?;
    node.launch()?;
    node.wait("little weight again", SOON, lowered)?;
    left.expect_running()?;

    fs::remove_file(&stuck)?;
    let containerd = context.containerd()?;
    node.wait("nothing of the pod to be left", GONE, |node| {
        look::ensure_gone(node, containerd, &seen).map(Some)
    })?;
    ensure!(left.ended()?.is_some(), "the process outlived its pod");
    Ok(Outcome::Passed)
}

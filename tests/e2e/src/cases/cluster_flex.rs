//! Volumes of drivers of the old kind (`flexVolume`): real programs, which really mount.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::PodView;
use serde_json::{Value, json};

use super::cluster_storage::{remove_and_wait, volume_and_claim};
use super::{LATER, SOON, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_driver_of_the_old_kind_is_found_when_it_comes_and_serves_pods_across_a_kill,
    a_volume_of_the_old_kind_is_attached_by_the_cluster_and_mounted_for_the_node,
    drivers_of_the_old_kind_that_fail_hang_or_talk_rubbish_hold_up_their_own_pods_only,
];

/// A driver and what it was told.
struct Driver {
    name: String,
    state: PathBuf,
}

impl Driver {
    /// A driver of its own vendor for each test: the control plane is shared.
    fn new(world: &World<'_>, word: &str) -> Result<Driver> {
        let state = world.node.node.directory().join("drivers").join(word);
        fs::create_dir_all(state.join("disk"))?;
        fs::write(state.join("disk/file"), "kept")?;
        Ok(Driver { name: format!("{}/{word}", world.namespace), state })
    }

    /// Puts the program where a kubelet or a controller looks for it.
    fn install(&self, plugins: &Path, attaches: bool) -> Result<()> {
        let place = plugins.join(self.name.replace('/', "~"));
        fs::create_dir_all(&place)?;
        let state = self.state.display();
        // A driver that attaches leaves it to the kubelet to show the node's mount to pods.
        let mounts = if attaches { "mountdevice|unmountdevice" } else { "mount|unmount" };
        let text = format!(
            r#"#!/bin/sh
cd {state} || exit 1
printf '%s\n' "$*" >> calls
if [ -e "$1.hangs" ]; then sleep 100000 & echo $! > "$1.pid"; wait; fi
if [ -e "$1.says" ]; then cat "$1.says"; exit 1; fi
case "$1" in {mounts}) is_ours=yes;; esac
case "$1$is_ours" in
init) echo '{{"status": "Success", "capabilities": {{"attach": {attaches}}}}}';;
attach) echo '{{"status": "Success", "device": "/dev/attached"}}';;
waitforattach) echo '{{"status": "Success", "device": "/dev/waited-for"}}';;
detach|expandfs) echo '{{"status": "Success"}}';;
mount*yes) mount --bind {state}/disk "$2" && echo '{{"status": "Success"}}';;
unmount*yes) if mountpoint -q "$2"; then umount "$2"; fi && echo '{{"status": "Success"}}';;
*) echo '{{"status": "Not supported"}}'; exit 1;;
esac
"#
        );
        let word = self.name.rsplit('/').next().context("it has a name")?;
        let new = place.join(".new");
        fs::write(&new, text)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
        fs::rename(new, place.join(word))?;
        Ok(())
    }

    /// Every call, in order: its words up to the options.
    fn calls(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(self.state.join("calls")).unwrap_or_default();
        let words = |line: &str| line.split(" {").next().unwrap_or_default().to_owned();
        Ok(text.lines().map(words).collect())
    }

    /// How often it was told that.
    fn n_calls(&self, command: &str) -> Result<usize> {
        let calls = self.calls()?;
        let said = |it: &&String| it.split(' ').next() == Some(command);
        Ok(calls.iter().filter(said).count())
    }

    /// The options of the last call of that kind.
    fn options(&self, command: &str) -> Result<Value> {
        let text = fs::read_to_string(self.state.join("calls"))?;
        let mut lines = text.lines();
        let line = lines.rfind(|line| line.starts_with(&format!("{command} ")));
        let line = line.context("it was never told so")?;
        let at = line.find('{').context("it has options")?;
        let end = line.rfind('}').context("they end")?;
        Ok(serde_json::from_str(&line[at..=end])?)
    }

    fn says(&self, command: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.state.join(format!("{command}.says")), text)?)
    }
}

fn plugins(world: &World<'_>) -> PathBuf {
    world.node.node.directory().join("volume-plugins")
}

fn using(world: &World<'_>, name: &str, volume: Value) -> Value {
    let mut main = script("main", "cat /data/file > /tmp/seen; exec sleep 100000");
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    with(
        world.pod(name, &[main]),
        json!({"spec": {
            "securityContext": {"fsGroup": 4242},
            "volumes": [with(json!({"name": "data"}), volume)],
        }}),
    )
}

fn begin(world: &mut World<'_>, pod: &Value) -> Result<PodView> {
    world.apply(pod)?;
    let name = pod["metadata"]["name"].as_str().context("it has a name")?;
    world.wait_pod(name, "known to the node", LATER, |pod| pod.0["status"]["startTime"].is_string())
}

fn wait_ready(world: &mut World<'_>, name: &str) -> Result<PodView> {
    world.wait_pod(name, "Ready", LATER, |pod| pod.condition("Ready") == Some("True"))
}

/// Lines of the mount table that are this node's and a driver's.
fn mounts_of(world: &World<'_>, driver: &Driver) -> Result<Vec<String>> {
    let table = ferrolet_lab::mounts::table()?;
    let own = world.node.node.directory().display().to_string();
    let names = [driver.name.replace('/', "~"), driver.name.clone()];
    let lines = table.lines().filter(|line| {
        let point = line.split(' ').nth(4).unwrap_or_default();
        point.starts_with(&own) && names.iter().any(|name| point.contains(name))
    });
    Ok(lines.map(str::to_owned).collect())
}

fn a_driver_of_the_old_kind_is_found_when_it_comes_and_serves_pods_across_a_kill(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let driver = Driver::new(&world, "disk")?;
    let secret = json!({"type": driver.name, "stringData": {"word": "hush-hush"}});
    world.apply(&world.object("Secret", "key", secret))?;
    let volume = json!({"flexVolume": {
        "driver": driver.name, "fsType": "any", "options": {"size": "1"}, "secretRef": {"name": "key"},
    }});
    let first = using(&world, "first", volume.clone());
    let first = begin(&mut world, &first)?;
    let said = world.wait_event(&first, "FailedMount")?;
    ensure!(
        said.ends_with(
            "failed to get Plugin from volumeSpec for volume \"data\" err=no volume plugin matched"
        ),
        "it says {said:?}"
    );
    driver.install(&plugins(&world), false)?;
    let first = wait_ready(&mut world, "first")?;
    let second = using(&world, "second", volume);
    let second = world.run(&second)?;
    let containerd = context.containerd()?;
    world.cluster.wait("the volume's file", SOON, |_| {
        let seen = world.read_inside(containerd, &first, "/tmp/seen")?;
        Ok((seen == "kept").then_some(()))
    })?;
    let group = fs::metadata(driver.state.join("disk/file"))?.gid();
    ensure!(group == 4242, "the volume belongs to group {group}");
    let told = driver.options("mount")?;
    let expected = json!({
        "kubernetes.io/fsType": "any",
        "kubernetes.io/readwrite": "rw",
        "kubernetes.io/pvOrVolumeName": "data",
        "kubernetes.io/pod.name": "second",
        "kubernetes.io/pod.namespace": world.namespace,
        "kubernetes.io/pod.uid": second.uid(),
        "kubernetes.io/serviceAccount.name": "default",
        "kubernetes.io/mounterArgs.FsGroup": "4242",
        "kubernetes.io/secret/word": "aHVzaC1odXNo",
        "size": "1",
    });
    ensure!(told == expected, "it was told {told}");
    let place = look::pod_directory(&world.node.node, &first)
        .join("volumes")
        .join(driver.name.replace('/', "~"))
        .join("data");
    ensure!(
        driver.calls()?[..2] == ["init".to_owned(), format!("mount {}", place.display())],
        "it was told {:?}",
        driver.calls()?
    );
    ensure!(mounts_of(&world, &driver)?.len() == 2, "not two mounts");

    // Killed, and the first pod deleted meanwhile: what is on disk is enough to take its volume
    // away.
    world.node.node.kill()?;
    world.kubectl(&["delete", "pod", "first", "--wait=false"])?;
    world.node.node.launch()?;
    world.wait_gone(&first, LATER)?;
    world.wait("the first volume to be taken away", LATER, |_, _| {
        Ok((driver.n_calls("unmount")? == 1).then_some(()))
    })?;
    wait_ready(&mut world, "second")?;
    ensure!(driver.n_calls("mount")? == 2, "it was mounted again");
    ensure!(mounts_of(&world, &driver)?.len() == 1, "not one mount");
    remove_and_wait(&mut world, &second)?;
    let left = mounts_of(&world, &driver)?;
    ensure!(left.is_empty(), "{left:?} is still mounted");
    ensure!(driver.state.join("disk/file").exists(), "the volume was emptied");
    let log = world.node.node.log_text();
    for word in ["hush-hush", "aHVzaC1odXNo"] {
        ensure!(!log.contains(word), "a secret is in the log");
    }
    Ok(Outcome::Passed)
}

fn a_volume_of_the_old_kind_is_attached_by_the_cluster_and_mounted_for_the_node(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let driver = Driver::new(&world, "disk")?;
    driver.install(&plugins(&world), true)?;
    driver.install(&world.cluster.volume_plugins(), true)?;
    let source = json!({"flexVolume": {"driver": driver.name, "options": {"size": "1"}}});
    let (volume, claim) = volume_and_claim(&world, "data", source);
    world.apply(&volume)?;
    world.apply(&claim)?;
    let name = volume["metadata"]["name"].as_str().context("it has one")?;
    let path = format!("/api/v1/namespaces/{}/persistentvolumeclaims/data", world.namespace);
    world.wait("the claim to be bound", LATER, |cluster, _| {
        let claim = cluster.get(&path)?;
        Ok((claim["status"]["phase"] == "Bound").then_some(()))
    })?;
    // Made larger before anybody uses it: the driver hears of it when it is mounted.
    let larger = r#"{"spec": {"capacity": {"storage": "2Gi"}}}"#;
    world.kubectl(&["patch", "persistentvolume", name, "--patch", larger])?;
    let claimed = json!({"persistentVolumeClaim": {"claimName": "data"}});
    let pod = using(&world, "attached", claimed);
    world.apply(&pod)?;
    let seen = wait_ready(&mut world, "attached")?;
    let claim = world.cluster.get(&path)?;
    ensure!(
        driver.n_calls("expandfs")? >= 1 && claim["status"]["capacity"]["storage"] == "2Gi",
        "it was told {:?}, and the claim says {}",
        driver.calls()?,
        claim["status"]
    );
    let unique = format!("{}/{name}", driver.name);
    let path = format!("/api/v1/nodes/{}", world.node_name());
    let node = world.cluster.get(&path)?;
    let (used, attached) =
        (node["status"]["volumesInUse"].to_string(), &node["status"]["volumesAttached"][0]);
    ensure!(used.contains(&unique), "in use are {used}");
    ensure!(
        attached["name"] == unique.as_str() && attached["devicePath"] == "/dev/attached",
        "attached is {attached}"
    );
    let calls = driver.calls()?;
    let device = calls
        .iter()
        .find(|it| it.starts_with("mountdevice "))
        .with_context(|| format!("it was told {calls:?}"))?;
    ensure!(
        device.ends_with(&format!(
            "plugins/kubernetes.io/flexvolume/{}/mounts/{name} /dev/waited-for",
            driver.name
        )),
        "it was told {device:?}"
    );
    ensure!(calls.contains(&"waitforattach /dev/attached".to_owned()), "it was told {calls:?}");
    ensure!(
        driver.options("mountdevice")?["size"] == "1",
        "it was told {:?}",
        driver.options("mountdevice")?
    );
    // Once for the node, once for the pod.
    ensure!(mounts_of(&world, &driver)?.len() == 2, "not two mounts");
    world.node.node.kill()?;
    world.node.node.launch()?;
    remove_and_wait(&mut world, &seen)?;
    world.wait("the volume to leave the node", LATER, |_, _| {
        Ok((driver.n_calls("detach")? >= 1).then_some(()))
    })?;
    ensure!(
        driver.n_calls("mountdevice")? == 1 && driver.n_calls("unmountdevice")? == 1,
        "it was told {:?}",
        driver.calls()?
    );
    let left = mounts_of(&world, &driver)?;
    ensure!(left.is_empty(), "{left:?} is still mounted");
    ensure!(driver.state.join("disk/file").exists(), "the volume was emptied");
    Ok(Outcome::Passed)
}

fn drivers_of_the_old_kind_that_fail_hang_or_talk_rubbish_hold_up_their_own_pods_only(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let set_up = "MountVolume.SetUp failed for volume \"data\" : ";
    let no_plugin = "err=no volume plugin matched";
    let faults = [
        (
            "fails",
            ("mount", r#"{"status": "Failure", "message": "no disk"}"#),
            format!("{set_up}mount command failed, status: Failure, reason: no disk"),
        ),
        (
            "rubbish",
            ("mount", "rubbish"),
            format!("{set_up}invalid character 'r' looking for beginning of value"),
        ),
        ("silent", ("mount", ""), format!("{set_up}unexpected end of JSON input")),
        (
            "broken",
            ("init", r#"{"status": "Failure", "message": "no licence"}"#),
            format!("{no_plugin}: error creating Flexvolume plugin"),
        ),
    ];
    let mut pods = Vec::new();
    for (word, (command, text), _) in &faults {
        let driver = Driver::new(&world, word)?;
        driver.says(command, text)?;
        driver.install(&plugins(&world), false)?;
        let source = json!({"flexVolume": {"driver": driver.name}});
        pods.push(begin_using(&mut world, word, source)?);
    }
    let hanging = Driver::new(&world, "hangs")?;
    fs::write(hanging.state.join("mount.hangs"), "")?;
    hanging.install(&plugins(&world), false)?;
    let source = json!({"flexVolume": {"driver": hanging.name}});
    let stuck = begin_using(&mut world, "hangs", source)?;
    let missing = json!({"flexVolume": {"driver": "../../etc"}});
    let missing = begin_using(&mut world, "missing", missing)?;
    let pid = world.wait("the driver to hang", SOON, |_, _| {
        let text = fs::read_to_string(hanging.state.join("mount.pid")).unwrap_or_default();
        Ok((!text.trim().is_empty()).then(|| text.trim().to_owned()))
    })?;

    let good = Driver::new(&world, "good")?;
    good.install(&plugins(&world), false)?;
    let pod = using(&world, "good", json!({"flexVolume": {"driver": good.name}}));
    let good_pod = world.run(&pod)?;
    for (seen, (word, _, expected)) in pods.iter().zip(&faults) {
        let said = world.wait_event(seen, "FailedMount")?;
        ensure!(said.contains(expected), "{word}: it says {said:?}");
    }
    let said = world.wait_event(&missing, "FailedMount")?;
    ensure!(said.ends_with(no_plugin), "it says {said:?}");

    // A driver that comes to its senses is asked again, and what never was mounted goes as it came.
    let healed = world.node.node.directory().join("drivers/fails/mount.says");
    fs::remove_file(healed)?;
    wait_ready(&mut world, "fails")?;
    let hung = format!("/proc/{pid}/cmdline");
    ensure!(Path::new(&hung).exists(), "the driver does not hang");
    for seen in pods.iter().chain([&stuck, &missing, &good_pod]) {
        world.kubectl(&["delete", "pod", seen.name(), "--wait=false"])?;
    }
    for seen in pods.iter().chain([&stuck, &missing, &good_pod]) {
        world.wait_gone(seen, LATER)?;
        let directory = look::pod_directory(&world.node.node, seen);
        world.wait("its directory to be gone", super::GONE, |_, _| {
            Ok((!directory.exists()).then_some(()))
        })?;
    }
    ensure!(
        fs::read_to_string(&hung).is_ok_and(|it| it.is_empty()) || !Path::new(&hung).exists(),
        "what the driver started is still there"
    );
    let left = mounts_of(&world, &good)?;
    ensure!(left.is_empty(), "{left:?} is still mounted");
    Ok(Outcome::Passed)
}

fn begin_using(world: &mut World<'_>, name: &str, volume: Value) -> Result<PodView> {
    let pod = using(world, name, volume);
    begin(world, &pod)
}

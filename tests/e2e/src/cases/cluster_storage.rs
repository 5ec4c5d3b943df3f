//! Volumes that are not made from the API's objects: images, claims, devices, other machines, and
//! how mounts travel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::PodView;
use ferrolet_lab::image::{Entry, ImageSpec};
use ferrolet_lab::process::find_program;
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    an_image_is_mounted_as_a_volume,
    a_claim_is_waited_for_and_its_directory_given_to_the_group,
    a_local_device_is_formatted_mounted_and_handed_over_raw,
    an_ephemeral_claim_belongs_to_its_pod_and_lives_on_a_host_path,
    a_server_that_cannot_be_mounted_is_reported_in_mounts_words,
    a_disk_of_another_machine_needs_the_hosts_tools,
    a_disk_of_fibre_channel_that_is_not_there_is_looked_for_again,
    mounts_travel_as_asked_and_stay_read_only_below,
];

fn an_image_is_mounted_as_a_volume(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let image = "docker.io/library/weights:1";
    let containerd = context.containerd()?;
    containerd.import(&[ImageSpec {
        name: image.to_owned(),
        entries: vec![
            Entry::Directory { path: "/part".to_owned(), mode: 0o755 },
            Entry::text("/part/one", "first"),
            Entry::text("/two", "second"),
        ],
        ..ImageSpec::default()
    }])?;
    let mut main = script("main", "touch /all/x 2>/tmp/refused; exec sleep 100000");
    main["volumeMounts"] = json!([
        {"name": "weights", "mountPath": "/all"},
        {"name": "weights", "mountPath": "/some", "subPath": "part"},
    ]);
    let volume = |reference: &str, policy: &str| {
        json!({"spec": {"volumes": [
            {"name": "weights", "image": {"reference": reference, "pullPolicy": policy}},
        ]}})
    };
    let pod =
        with(world.pod("weighty", std::slice::from_ref(&main)), volume(image, "IfNotPresent"));
    let seen = world.run(&pod)?;
    let read = |file: &str| world.read_inside(containerd, &seen, file);
    ensure!(read("/all/two")? == "second", "the image is not there");
    ensure!(read("/some/one")? == "first", "its part is not there");
    ensure!(read("/tmp/refused")?.contains("Read-only"), "the image can be written to");
    let missing =
        with(world.pod("weightless", &[main]), volume("docker.io/library/nowhere:1", "Never"));
    world.apply(&missing)?;
    let seen = world.wait_pod("weightless", "ErrImageNeverPull", LATER, |pod| {
        pod.container("main").is_ok_and(|it| it.waiting_reason() == Some("ErrImageNeverPull"))
    })?;
    let said = world.wait_event(&seen, "ErrImageNeverPull")?;
    ensure!(said.contains("nowhere"), "it says {said:?}");
    Ok(Outcome::Passed)
}

/// A persistent volume and a claim that wants exactly it.
pub(super) fn volume_and_claim(world: &World<'_>, name: &str, spec: Value) -> (Value, Value) {
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("{}-{name}", world.namespace), "labels": {"for": world.namespace}},
        "spec": with(json!({
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
        }), spec),
    });
    let claim = world.object(
        "PersistentVolumeClaim",
        name,
        json!({"spec": {
            "accessModes": volume["spec"]["accessModes"],
            "storageClassName": "",
            "volumeName": volume["metadata"]["name"],
            "volumeMode": volume["spec"].get("volumeMode").cloned().unwrap_or(json!("Filesystem")),
            "resources": {"requests": {"storage": "1Gi"}},
        }}),
    );
    (volume, claim)
}

pub(super) fn on_this_node(world: &World<'_>, path: &Path, more: Value) -> Value {
    with(
        json!({
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [world.node_name()]},
            ]}]}},
        }),
        more,
    )
}

pub(super) fn claiming(world: &World<'_>, name: &str, text: &str, claim: &str) -> Value {
    let mut main = script("main", text);
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    with(
        world.pod(name, &[main]),
        json!({"spec": {"volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": claim}},
        ]}}),
    )
}

pub(super) fn remove_and_wait(world: &mut World<'_>, seen: &PodView) -> Result<()> {
    world.kubectl(&["delete", "pod", seen.name(), "--wait=false"])?;
    world.wait_gone(seen, LATER)?;
    let directory = look::pod_directory(&world.node.node, seen);
    world
        .node
        .node
        .wait("its directory to be gone", super::GONE, |_| Ok((!directory.exists()).then_some(())))
}

fn a_claim_is_waited_for_and_its_directory_given_to_the_group(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    use std::os::unix::fs::MetadataExt as _;
    let mut world = World::start(context)?;
    let disk = world.node.node.directory().join("disk");
    std::fs::create_dir_all(disk.join("deep"))?;
    std::fs::write(disk.join("deep/file"), "kept")?;
    let text = "cat /data/deep/file > /data/copy; exec sleep 100000";
    let pod = with(
        claiming(&world, "claimant", text, "slow"),
        json!({"spec": {"securityContext": {"runAsUser": 1000, "fsGroup": 4242}}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_known("claimant")?;
    let said = world.wait_event(&seen, "FailedMount")?;
    ensure!(
        said.contains("failed to process volumes=[data]")
            && said.contains("persistentvolumeclaim \"slow\" not found")
            || said.contains("persistentvolumeclaims \"slow\" not found"),
        "it says {said:?}"
    );
    let spec = on_this_node(&world, &disk, json!({}));
    let (volume, claim) = volume_and_claim(&world, "slow", spec);
    world.apply(&volume)?;
    world.apply(&claim)?;
    let seen = world.wait_ready_later("claimant")?;
    world.wait("the pod's copy", SOON, |_, _| {
        Ok(std::fs::read_to_string(disk.join("copy"))
            .is_ok_and(|text| text == "kept")
            .then_some(()))
    })?;
    for file in ["", "deep", "deep/file"] {
        let group = std::fs::metadata(disk.join(file))?.gid();
        ensure!(group == 4242, "{file:?} belongs to group {group}");
    }
    remove_and_wait(&mut world, &seen)?;
    ensure!(disk.join("deep/file").exists(), "the volume was emptied");
    Ok(Outcome::Passed)
}

/// A loop device that goes with the test.
pub(super) struct LoopDevice(pub(super) PathBuf);

impl LoopDevice {
    pub(super) fn over(file: &Path) -> Result<LoopDevice> {
        std::fs::File::create(file)?.set_len(16 * 1024 * 1024)?;
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output()?;
        ensure!(made.status.success(), "losetup: {}", String::from_utf8_lossy(&made.stderr));
        Ok(LoopDevice(String::from_utf8(made.stdout)?.trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Nothing to be done about a refusal; the kernel lets go when the last user does.
        Command::new("losetup").arg("-d").arg(&self.0).status().ok();
    }
}

fn a_local_device_is_formatted_mounted_and_handed_over_raw(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let device = match LoopDevice::over(&world.node.node.directory().join("device")) {
        Ok(device) => device,
        Err(error) => return Ok(Outcome::Skipped(format!("no loop device: {error}"))),
    };
    let spec = on_this_node(&world, &device.0, json!({}));
    let (volume, claim) = volume_and_claim(&world, "formatted", spec);
    world.apply(&volume)?;
    world.apply(&claim)?;
    let text = "echo hello > /data/file; sync; exec sleep 100000";
    let pod = claiming(&world, "files", text, "formatted");
    world.apply(&pod)?;
    let seen = world.wait_ready_later("files")?;
    let containerd = context.containerd()?;
    let mounts = world.read_inside(containerd, &seen, "/proc/mounts")?;
    let line = mounts.lines().find(|line| line.contains(" /data "));
    ensure!(line.is_some_and(|line| line.contains(" ext4 ")), "{line:?}");
    remove_and_wait(&mut world, &seen)?;
    let table = ferrolet_lab::mounts::table()?;
    let name = volume["metadata"]["name"].as_str().unwrap_or_default();
    ensure!(!table.contains(name), "{name} is still mounted");

    let spec = on_this_node(&world, &device.0, json!({"volumeMode": "Block"}));
    let (volume, claim) = volume_and_claim(&world, "raw", spec);
    world.apply(&volume)?;
    world.apply(&claim)?;
    // An ext file system says so at a fixed place.
    let text = "dd if=/dev/mine bs=1 skip=1080 count=2 2>/dev/null | od -An -tx1 > /tmp/magic; exec sleep 100000";
    let mut main = script("main", text);
    main["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/mine"}]);
    let pod = with(
        world.pod("raw", &[main]),
        json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "raw"}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_ready_later("raw")?;
    world.cluster.wait("the device's magic number", SOON, |_| {
        let magic = world.read_inside(containerd, &seen, "/tmp/magic")?;
        ensure!(magic.split_whitespace().eq(["53", "ef"]), "it is {magic:?}");
        Ok(Some(()))
    })?;
    remove_and_wait(&mut world, &seen)?;
    let mut wrong = claiming(&world, "wrong", "exec sleep 100000", "raw");
    wrong["metadata"]["name"] = json!("wrong");
    world.apply(&wrong)?;
    let seen = world.wait_known("wrong")?;
    let said = world.wait_event(&seen, "FailedMount")?;
    ensure!(
        said.contains("volume data has volumeMode Block, but is specified in volumeMounts"),
        "it says {said:?}"
    );
    Ok(Outcome::Passed)
}

fn an_ephemeral_claim_belongs_to_its_pod_and_lives_on_a_host_path(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let disk = world.node.node.directory().join("scratch");
    let (volume, _) = volume_and_claim(
        &world,
        "scratch",
        json!({"hostPath": {"path": disk, "type": "DirectoryOrCreate"}}),
    );
    world.apply(&volume)?;
    let mut main = script("main", "echo mine > /scratch/file; exec sleep 100000");
    main["volumeMounts"] = json!([{"name": "scratch", "mountPath": "/scratch"}]);
    let pod = with(
        world.pod("brief", &[main]),
        json!({"spec": {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "selector": {"matchLabels": {"for": world.namespace}},
            "resources": {"requests": {"storage": "1Gi"}},
        }}}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_ready_later("brief")?;
    world.wait("the pod's file", SOON, |_, _| Ok(disk.join("file").exists().then_some(())))?;
    remove_and_wait(&mut world, &seen)?;
    ensure!(disk.join("file").exists(), "the host's file is gone");
    Ok(Outcome::Passed)
}

/// What is said of a pod with a volume that this machine cannot mount; the pod goes all the same.
fn refusal_of(world: &mut World<'_>, volume: Value) -> Result<String> {
    let mut main = sleeper("main");
    main["volumeMounts"] = json!([{"name": "far", "mountPath": "/far"}]);
    let pod = with(
        world.pod("distant", &[main]),
        json!({"spec": {"volumes": [with(json!({"name": "far"}), volume)]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_known("distant")?;
    let said = world.wait_event(&seen, "FailedMount")?;
    remove_and_wait(world, &seen)?;
    Ok(said)
}

/// This kernel has no NFS, which makes a good test of what is said when a host lacks it.
fn a_server_that_cannot_be_mounted_is_reported_in_mounts_words(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if std::fs::read_to_string("/proc/filesystems")?.contains("nfs") {
        return Ok(Outcome::Skipped("the kernel knows NFS".to_owned()));
    }
    let mut world = World::start(context)?;
    let far = json!({"nfs": {"server": "127.0.0.1", "path": "/x"}});
    let said = refusal_of(&mut world, far)?;
    ensure!(
        said.starts_with("MountVolume.SetUp failed for volume \"far\" : mount failed: exit status")
            && said.contains("Mounting arguments: -t nfs"),
        "it says {said:?}"
    );
    Ok(Outcome::Passed)
}

/// The tools log in to targets by the kernel's help, which this one has none of; so what is said
/// without them is all there is to see here.
fn a_disk_of_another_machine_needs_the_hosts_tools(context: &mut Context<'_>) -> Result<Outcome> {
    if find_program("iscsiadm").is_some() {
        return Ok(Outcome::Skipped("the host has iscsiadm".to_owned()));
    }
    let mut world = World::start(context)?;
    let disk =
        json!({"targetPortal": "127.0.0.1", "iqn": "iqn.2026-01.dev.ferrolet:far", "lun": 0});
    let said = refusal_of(&mut world, json!({"iscsi": disk}))?;
    ensure!(
        said.starts_with("MountVolume.WaitForAttach failed for volume \"far\" : ")
            && said.contains("executable file not found in $PATH: iscsiadm"),
        "it says {said:?}"
    );
    let raw = json!({"iscsi": disk, "volumeMode": "Block"});
    let said = refused_raw(&mut world, raw)?;
    ensure!(
        said.starts_with("MapVolume.WaitForAttach failed for volume ")
            && said.contains("executable file not found in $PATH: iscsiadm"),
        "it says {said:?}"
    );
    Ok(Outcome::Passed)
}

/// What is said of a raw device that does not come; its pod goes again.
fn refused_raw(world: &mut World<'_>, spec: Value) -> Result<String> {
    let (volume, claim) = volume_and_claim(world, "raw", spec);
    world.apply(&volume)?;
    world.apply(&claim)?;
    let mut main = sleeper("main");
    main["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/mine"}]);
    let pod = with(
        world.pod("raw", &[main]),
        json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "raw"}}]}}),
    );
    world.apply(&pod)?;
    let seen = world.wait_known("raw")?;
    let said = world.wait_event(&seen, "FailedMapVolume")?;
    remove_and_wait(world, &seen)?;
    Ok(said)
}

/// Machines that we test on have no such disks; where there is an adapter, its bus is left alone.
fn a_disk_of_fibre_channel_that_is_not_there_is_looked_for_again(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if Path::new("/sys/class/scsi_host").exists() {
        return Ok(Outcome::Skipped("the host has SCSI adapters".to_owned()));
    }
    let mut world = World::start(context)?;
    let disk = json!({"targetWWNs": ["500a0982991b8dc5"], "lun": 2});
    let said = refusal_of(&mut world, json!({"fc": disk}))?;
    ensure!(
        said.starts_with("MountVolume.WaitForAttach failed for volume \"far\" : ")
            && said.ends_with("no fc disk found"),
        "it says {said:?}"
    );
    let raw =
        json!({"fc": {"wwids": ["3600508b400105e210000900000490000"]}, "volumeMode": "Block"});
    let said = refused_raw(&mut world, raw)?;
    ensure!(
        said.starts_with("MapVolume.WaitForAttach failed for volume ")
            && said.ends_with("no fc disk found"),
        "it says {said:?}"
    );
    // Nothing is left of a disk that was not there.
    let left = world.node.node.directory().join("root/plugins/kubernetes.io/fc");
    let names = std::fs::read_dir(left).into_iter().flatten().flatten();
    let names: Vec<_> = names.map(|it| it.file_name()).filter(|it| it != "volumeDevices").collect();
    ensure!(names.is_empty(), "{names:?} are left");
    Ok(Outcome::Passed)
}

fn mounts_travel_as_asked_and_stay_read_only_below(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let shared = world.node.node.directory().join("shared");
    std::fs::create_dir_all(shared.join("nested"))?;
    std::fs::create_dir_all(shared.join("late"))?;
    let mount = |words: &[&str]| -> Result<()> {
        let ended = Command::new("mount").args(words).arg(&shared).output()?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        ensure!(ended.status.success(), "mount: {said}");
        Ok(())
    };
    let path = shared.to_str().context("a plain path")?;
    mount(&["--bind", path])?;
    mount(&["--make-shared"])?;
    let inner = |name: &str| {
        Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(shared.join(name)).status()
    };
    ensure!(inner("nested")?.success(), "no tmpfs");
    let volume = |name: &str| json!({"name": name, "hostPath": {"path": shared}});
    let mut both =
        script("both", "mkdir -p /both/made && mount -t tmpfs tmpfs /both/made; exec sleep 100000");
    both["securityContext"] = json!({"privileged": true});
    both["volumeMounts"] =
        json!([{"name": "v", "mountPath": "/both", "mountPropagation": "Bidirectional"}]);
    let mut one_way = sleeper("one-way");
    one_way["volumeMounts"] = json!([
        {"name": "v", "mountPath": "/one", "mountPropagation": "HostToContainer"},
        {"name": "v", "mountPath": "/none"},
        {"name": "v", "mountPath": "/still", "readOnly": true, "recursiveReadOnly": "Enabled"},
        {"name": "v", "mountPath": "/maybe", "readOnly": true, "recursiveReadOnly": "IfPossible"},
        {"name": "v", "mountPath": "/plain", "readOnly": true},
    ]);
    let first = with(world.pod("first", &[both]), json!({"spec": {"volumes": [volume("v")]}}));
    let second = with(world.pod("second", &[one_way]), json!({"spec": {"volumes": [volume("v")]}}));
    world.apply(&first)?;
    let second = world.run(&second)?;
    world.wait_ready("first")?;
    world.wait("the pod's mount on the node", SOON, |_, _| {
        let table = ferrolet_lab::mounts::table()?;
        Ok(table.contains(&format!("{path}/made")).then_some(()))
    })?;
    ensure!(inner("late")?.success(), "no tmpfs");
    let containerd = context.containerd()?;
    let table = world.cluster.wait("the node's mount in the pod", SOON, |_| {
        let table = world.read_inside(containerd, &second, "/proc/mounts")?;
        Ok(table.contains(" /one/late ").then_some(table))
    })?;
    ensure!(!table.contains(" /none/late "), "a private mount got the node's");
    for (place, access) in [
        ("/still", " ro,"),
        ("/still/nested", " ro,"),
        ("/maybe/nested", " ro,"),
        ("/plain", " ro,"),
        // Read-only goes no deeper than asked for.
        ("/plain/nested", " rw,"),
        ("/one/nested", " rw,"),
    ] {
        let line = table.lines().find(|it| it.contains(&format!(" {place} ")));
        ensure!(
            line.is_some_and(|it| it.contains(access)),
            "{place} should be{access} and is {line:?}"
        );
    }
    let status = world.find_pod("second")?.context("the pod is gone")?;
    let shown = &status.0["status"]["containerStatuses"][0]["volumeMounts"];
    ensure!(
        shown.to_string().contains("\"recursiveReadOnly\":\"Enabled\""),
        "the status says {shown}"
    );
    for name in ["first", "second"] {
        world.kubectl(&["delete", "pod", name, "--wait=false"])?;
    }
    world.wait_gone(&second, LATER)?;
    Command::new("umount").args(["-R", path]).status()?;
    Ok(Outcome::Passed)
}

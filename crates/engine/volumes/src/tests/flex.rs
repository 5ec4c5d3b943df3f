//! flexVolume drivers, on fakes.

use std::time::Duration;

use ferrolet_ports::{
    FlexAbilities, FlexCommand, FlexPlace, FsGroupChangePolicy, MountAccess, PodVolumes as _,
    VolumePlace,
};
use ferrolet_testkit::{FakeFlex, FakeMounts};
use ferrolet_types::{Pod, PodUid};
use serde_json::{Value, json};

use super::{
    engine::{Bench, alone},
    pod,
};

fn inline(more: Value) -> Value {
    let mut volume = json!({"name": "data", "flexVolume": {"driver": "ours/disk"}});
    super::merge(&mut volume, more);
    json!([volume])
}

fn claimant(uid: &str) -> Pod {
    let volume = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}]);
    pod(volume, json!({"metadata": {"uid": uid}}))
}

fn install(bench: &Bench, abilities: FlexAbilities) {
    bench.flex.change(|state| {
        state.drivers.insert("ours/disk".to_owned(), abilities);
    });
}

const PLAIN: FlexAbilities =
    FlexAbilities { attaches: false, relabels: true, takes_group: true, grows_files: true };

/// The options that the last call was given.
fn last_options(bench: &Bench) -> Value {
    let state = bench.flex.look();
    let words = &state.calls.last().unwrap().words;
    serde_json::from_str(words.last().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_driver_mounts_a_volume_for_its_pod_once_and_takes_it_away() {
    let bench = Bench::new();
    let own = pod(
        inline(json!({"flexVolume": {"options": {"size": "1"}}})),
        json!({"spec": {"securityContext": {"fsGroup": 7}}}),
    );
    assert_eq!(
        bench.refusal(&own).await,
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: \
         failed to get Plugin from volumeSpec for volume \"data\" err=no volume plugin matched"
    );
    install(&bench, PLAIN);
    let mounts = bench.engine.ensure(&own).await.unwrap();
    let path = &mounts["data"].host_path;
    assert!(path.ends_with("/uid-1/volumes/ours~disk/data"), "{path}");
    assert!(mounts["data"].selinux_relabel && !mounts["data"].is_read_only);
    let told = last_options(&bench);
    assert_eq!(told["size"], "1");
    assert_eq!(told["kubernetes.io/pod.uid"], "uid-1");
    assert_eq!(told["kubernetes.io/mounterArgs.FsGroup"], "7");
    bench.engine.ensure(&own).await.unwrap();
    assert_eq!(bench.flex.take_commands(), ["mount"]);
    let owners = bench.mounts.look().owners;
    assert_eq!(owners.len(), 1);
    assert_eq!((owners[0].1.group, owners[0].1.policy), (7, FsGroupChangePolicy::Always));

    // A new life sees the mount, and needs nothing else to take it away.
    let bench = bench.again();
    bench.engine.ensure(&own).await.unwrap();
    assert_eq!(bench.flex.take_commands(), [""; 0]);
    let bench = bench.again();
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(bench.flex.take_commands(), ["unmount"]);
    assert!(bench.mounts.look().flex.is_empty());
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(bench.flex.take_commands(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_refuses_is_told_in_its_words_and_tried_again_after_a_pause() {
    let bench = Bench::new();
    install(&bench, PLAIN);
    let why = "mount command failed, status: Failure, reason: no disk";
    bench.flex.change(|state| {
        state.faults.insert(FlexCommand::Mount, why.to_owned());
    });
    let own = pod(inline(json!({})), json!({}));
    let expected = format!("MountVolume.SetUp failed for volume \"data\" : {why}");
    assert_eq!(bench.refusal(&own).await, expected);
    assert_eq!(bench.refusal(&own).await, expected);
    assert_eq!(bench.flex.take_commands(), ["mount"]);
    // A directory of what is not mounted would be taken for a volume.
    assert!(bench.mounts.look().flex.is_empty());
    bench.flex.change(|state| state.faults.clear());
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.engine.ensure(&own).await.unwrap();

    bench.flex.change(|state| {
        state.broken.insert("ours/disk".to_owned(), "bad init".to_owned());
    });
    let error = bench.engine.release(&PodUid::new("uid-1")).await.unwrap_err();
    assert_eq!(error.reason, "FailedUnMount");
    assert_eq!(
        error.message,
        "UnmountVolume.TearDown failed for volume \"data\" : no volume plugin matched name: ours/disk: bad init"
    );
    bench.flex.change(|state| state.broken.clear());
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_told_to_the_driver_that_it_is_for() {
    let bench = Bench::new();
    install(&bench, PLAIN);
    let volume = inline(json!({"flexVolume": {"secretRef": {"name": "key"}, "readOnly": true}}));
    let own = pod(volume, json!({}));
    let refused = |why: &str| {
        format!(
            "MountVolume.SetUp failed for volume \"data\" : couldn't get secret default/key err: {why}"
        )
    };
    assert_eq!(bench.refusal(&own).await, refused("secrets \"key\" not found"));
    let put = |kind: &str| {
        let secret = json!({"metadata": {}, "type": kind, "data": {"word": "aHVzaA=="}});
        let secret = serde_json::from_value(secret).unwrap();
        bench.storage.change(|state| {
            let key = ("default".to_owned(), "key".to_owned());
            state.secrets.insert(key, secret);
        });
    };
    put("Opaque");
    let why = refused("cannot get secret of type ours/disk");
    assert_eq!(bench.refusal(&own).await, why);
    put("ours/disk");
    let mounts = bench.engine.ensure(&own).await.unwrap();
    assert!(mounts["data"].is_read_only && !mounts["data"].selinux_relabel);
    let told = last_options(&bench);
    assert_eq!(told["kubernetes.io/secret/word"], "aHVzaA==");
    assert_eq!(told["kubernetes.io/readwrite"], "ro");
    assert!(!format!("{:?}", bench.flex.look()).contains("aHVzaA"));
}

fn set_node(bench: &Bench, in_use: &[&str], attached: Value) {
    let node =
        json!({"metadata": {}, "status": {"volumesInUse": in_use, "volumesAttached": attached}});
    let node = serde_json::from_value(node).unwrap();
    bench.storage.change(|state| state.node = Some(node));
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_attached_is_mounted_for_the_node_once_and_leaves_with_its_last_pod() {
    let bench = Bench::new();
    install(&bench, FlexAbilities::default());
    bench.flex.change(|state| state.device = "/dev/found".to_owned());
    let spec = json!({"accessModes": ["ReadWriteOnce"],
        "flexVolume": {"driver": "ours/disk", "fsType": "xfs", "readOnly": true}});
    bench.storage.bind_claim("mine", "pv", spec);
    let refusal = async |pod: &Pod| bench.engine.ensure(pod).await.unwrap_err().message;
    set_node(&bench, &[], json!([]));
    let said = refusal(&claimant("uid-1")).await;
    let verify = "VerifyControllerAttachedVolume failed for volume \"pv\" : Volume ";
    assert!(said.starts_with(verify) && said.contains("VolumesInUse"), "{said}");
    let used = bench.engine.volumes_in_use();
    assert!(used.borrow().names.contains("ours/disk/pv"));
    set_node(&bench, &["ours/disk/pv"], json!([]));
    let said = refusal(&claimant("uid-1")).await;
    assert_eq!(said, format!("{verify}not attached according to node status"));
    let attached = json!([{"name": "ours/disk/pv", "devicePath": "/dev/there"}]);
    set_node(&bench, &["ours/disk/pv"], attached);
    bench.flex.take_commands();
    for uid in ["uid-1", "uid-2"] {
        bench.engine.ensure(&claimant(uid)).await.unwrap();
    }
    let calls = bench.flex.look().calls;
    let told = serde_json::from_str::<Value>(&calls[1].words[1]).unwrap();
    // The claim decides whether a volume is only read.
    assert_eq!(told["kubernetes.io/readwrite"], "rw");
    assert_eq!(told["kubernetes.io/fsType"], "xfs");
    assert_eq!(calls[1].words[0], "/dev/there");
    assert_eq!(calls[2].words[..2], ["/flex/ours/disk/mounts/pv", "/dev/found"]);
    let bring = ["getvolumename", "waitforattach"];
    let first = [&bring[..], &["mountdevice", "mount"]].concat();
    let second = [&bring[..], &["mount"]].concat();
    assert_eq!(bench.flex.take_commands(), [first, second].concat());

    // After a kill the volume is still said to be in use, and still shared.
    let bench = bench.again();
    bench.engine.recall().await;
    bench.sweep(&[]).await;
    let used = bench.engine.volumes_in_use();
    assert!(used.borrow().names.contains("ours/disk/pv"));
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(bench.flex.take_commands(), ["unmount"]);
    assert!(used.borrow().names.contains("ours/disk/pv"));
    bench.engine.release(&PodUid::new("uid-2")).await.unwrap();
    assert_eq!(bench.flex.take_commands(), ["unmount", "unmountdevice"]);
    assert!(used.borrow().names.is_empty());
    assert!(bench.mounts.look().flex.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_leaves_to_us_we_do() {
    let bench = Bench::new();
    install(&bench, FlexAbilities::default());
    bench.flex.change(|state| {
        state.unsupported = [
            FlexCommand::GetVolumeName,
            FlexCommand::WaitForAttach,
            FlexCommand::MountDevice,
            FlexCommand::Mount,
            FlexCommand::Unmount,
            FlexCommand::UnmountDevice,
        ]
        .into();
    });
    let attached = json!([{"name": "ours/disk/pv", "devicePath": "/dev/there"}]);
    set_node(&bench, &["ours/disk/pv"], attached);
    let spec = json!({"flexVolume": {"driver": "ours/disk", "fsType": "ext4"}});
    bench.storage.bind_claim("mine", "pv", spec);
    bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    let table = bench.mounts.look();
    let device = &table.devices["pv"];
    assert_eq!(device.device, "/dev/there");
    assert_eq!(device.directory, "kubernetes.io/flexvolume/ours/disk/mounts");
    let place = VolumePlace {
        uid: PodUid::new("uid-1"),
        plugin: "ours~disk".to_owned(),
        name: "pv".to_owned(),
    };
    let expected = ("/flex/ours/disk/mounts/pv".to_owned(), MountAccess::ReadWrite);
    assert_eq!(table.bound[&place], expected);
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    let table = bench.mounts.look();
    assert!(table.flex.is_empty() && table.devices.is_empty() && table.bound.is_empty());
    assert_eq!(bench.flex.take_commands(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_brought_and_never_mounted_leaves_with_its_pod_or_at_the_next_start() {
    let bench = Bench::new();
    install(&bench, FlexAbilities::default());
    let attached = json!([{"name": "ours/disk/pv", "devicePath": ""}]);
    set_node(&bench, &["ours/disk/pv"], attached);
    let spec = json!({"flexVolume": {"driver": "ours/disk"}});
    bench.storage.bind_claim("mine", "pv", spec);
    bench.flex.change(|state| {
        state.faults.insert(FlexCommand::Mount, "no".to_owned());
    });
    let place = FlexPlace::Node { driver: "ours/disk".to_owned(), volume: "pv".to_owned() };
    bench.engine.ensure(&claimant("uid-1")).await.unwrap_err();
    assert!(bench.mounts.look().flex[&place]);
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert!(bench.mounts.look().flex.is_empty());
    bench.engine.ensure(&claimant("uid-2")).await.unwrap_err();
    let bench = bench.again();
    bench.sweep(&[]).await;
    assert!(bench.mounts.look().flex.is_empty());
    assert_eq!(bench.flex.take_commands().last(), Some(&"unmountdevice"));
}

#[tokio::test(start_paused = true)]
async fn what_the_protocol_has_no_words_for_is_refused() {
    let bench = Bench::new();
    install(&bench, PLAIN);
    let spec = json!({"mountOptions": ["noatime"], "flexVolume": {"driver": "ours/disk"}});
    bench.storage.bind_claim("mine", "pv", spec);
    assert_eq!(
        bench.refusal(&claimant("uid-1")).await,
        "MountVolume.MountOptionSupport check failed for volume \"pv\" : mount options are not supported for this volume type"
    );
    // One that neither mounts nor attaches leaves us nothing to do in its place.
    bench.flex.change(|state| state.unsupported = [FlexCommand::Mount].into());
    let other = pod(inline(json!({})), json!({"metadata": {"uid": "uid-2"}}));
    assert_eq!(
        bench.refusal(&other).await,
        "MountVolume.SetUp failed for volume \"data\" : Not supported"
    );
    assert!(bench.mounts.look().flex.is_empty());
    let spec = json!({"volumeMode": "Block", "flexVolume": {"driver": "ours/disk"}});
    bench.storage.bind_claim("mine", "pv", spec);
    let mut raw = claimant("uid-1");
    let spec = std::sync::Arc::make_mut(&mut raw).spec.as_mut().unwrap();
    spec.containers[0].volume_mounts = None;
    let device = json!([{"name": "data", "devicePath": "/dev/mine"}]);
    spec.containers[0].volume_devices = serde_json::from_value(device).unwrap();
    let error = bench.engine.ensure(&raw).await.unwrap_err();
    assert_eq!(error.reason, "FailedMapVolume");
    assert_eq!(bench.flex.take_commands(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_on_its_own_has_volumes_attached_and_detached_by_itself() {
    let mounts = FakeMounts::default();
    let flex = FakeFlex::on(mounts.clone());
    flex.change(|state| {
        let all = FlexAbilities::default();
        state.drivers.insert("ours/disk".to_owned(), all);
        state.device = "/dev/ours".to_owned();
    });
    let engine = alone(mounts.clone(), flex.clone());
    let own = pod(inline(json!({})), json!({}));
    engine.ensure(&own).await.unwrap();
    let calls = flex.look().calls;
    assert_eq!(calls[1].words.last().unwrap(), "node");
    assert_eq!(calls[2].words[0], "/dev/ours");
    let bring = ["getvolumename", "attach", "waitforattach"];
    let all = [&bring[..], &["mountdevice", "mount"]].concat();
    assert_eq!(flex.take_commands(), all);
    engine.release(&PodUid::new("uid-1")).await.unwrap();
    let calls = flex.look().calls;
    assert_eq!(calls[2].words, ["data", "node"]);
    let leave = ["unmount", "unmountdevice", "detach"];
    assert_eq!(flex.take_commands(), leave);
    assert!(mounts.look().flex.is_empty());
}

fn set_capacity(bench: &Bench, volume: &str, claim: &str) {
    bench.storage.change(|state| {
        let spec = json!({"capacity": {"storage": volume}});
        let found = state.volumes.get_mut("pv").unwrap().spec.as_mut().unwrap();
        let given: k8s_openapi::api::core::v1::PersistentVolumeSpec =
            serde_json::from_value(spec).unwrap();
        found.capacity = given.capacity;
        let key = ("default".to_owned(), "mine".to_owned());
        let status = json!({"phase": "Bound", "capacity": {"storage": claim}});
        let found = state.claims.get_mut(&key).unwrap();
        found.status = serde_json::from_value(status).unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_has_grown_is_told_to_the_driver_also_while_its_pod_runs() {
    let bench = Bench::new();
    install(&bench, PLAIN);
    let spec = json!({"flexVolume": {"driver": "ours/disk"}});
    bench.storage.bind_claim("mine", "pv", spec);
    set_capacity(&bench, "10", "10");
    bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    assert_eq!(bench.flex.take_commands(), ["mount"]);
    set_capacity(&bench, "20", "10");
    bench.flex.change(|state| {
        state.faults.insert(FlexCommand::ExpandFs, "no".to_owned());
    });
    let error = bench.engine.ensure(&claimant("uid-1")).await.unwrap_err();
    assert_eq!(error.reason, "VolumeResizeFailed");
    bench.flex.change(|state| state.faults.clear());
    bench.flex.take_commands();
    // Nobody announces it; the engine looks by itself.
    tokio::time::sleep(Duration::from_secs(200)).await;
    let calls = bench.flex.look().calls;
    assert!(!calls.is_empty(), "it was not told");
    assert_eq!(calls[0].command, FlexCommand::ExpandFs);
    assert!(calls[0].words[2].ends_with("/volumes/ours~disk/pv"));
    assert_eq!(calls[0].words[3..], ["20", "10"]);
    let told = bench.storage.look().patches;
    assert_eq!(told[0]["status"]["capacity"]["storage"], "20");

    // What a driver leaves to us is done by the file system's own program.
    bench.flex.change(|state| state.unsupported = [FlexCommand::ExpandFs].into());
    bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    assert!(!bench.mounts.look().grown.is_empty());
}

//! Drivers' volumes on fakes: order of calls, records, errors of both kinds, restarts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{
    CsiAbilities, CsiError, CsiFate, CsiForm, DiskUsage, FileRoom, NodeMounts as _, PathKind,
    PodVolumes as _, RecordPlace, RegisteredDriver, Usage, VolumePlace, VolumeUsage,
};
use ferrolet_testkit::FakeUsage;
use ferrolet_types::{Pod, PodUid, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{engine::Bench, pod};
use crate::{NamedUsage, VolumeStats, left_over::Search};

const STAGES: CsiAbilities = CsiAbilities {
    stages: true,
    expands: true,
    takes_group: false,
    tells_writers: false,
    tells_usage: true,
    tells_volume_health: true,
    tells_storage_health: true,
};

pub(super) fn bench() -> Bench {
    prepared(Bench::new())
}

fn prepared(bench: Bench) -> Bench {
    bench.drivers.change(|state| state.drivers = BTreeMap::from([("d".to_owned(), STAGES)]));
    bench.storage.bind_claim("mine", "pv", volume());
    set_driver(&bench, json!({"attachRequired": false, "fsGroupPolicy": "File"}));
    bench
}

fn volume() -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"],
        "csi": {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"a": "b"}},
    })
}

fn set_driver(bench: &Bench, spec: Value) {
    let driver = serde_json::from_value(json!({"metadata": {"name": "d"}, "spec": spec})).unwrap();
    bench.storage.change(|state| drop(state.drivers.insert("d".to_owned(), driver)));
}

pub(super) fn claimant(uid: &str) -> Pod {
    pod(
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}]),
        json!({"metadata": {"uid": uid}, "spec": {"securityContext": {"fsGroup": 7}}}),
    )
}

pub(super) fn fault(is_final: bool) -> CsiError {
    CsiError {
        message: "rpc error: code = Internal desc = no".to_owned(),
        fate: if is_final { CsiFate::Final } else { CsiFate::Open },
    }
}

fn n_records(bench: &Bench) -> usize {
    bench.mounts.look().records.len()
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_staged_published_given_to_the_group_and_taken_back() {
    let bench = bench();
    let pod = claimant("uid-1");
    let mounts = bench.engine.ensure(&pod).await.unwrap();
    let path = &mounts["data"].host_path;
    assert!(path.ends_with("/uid-1/volumes/kubernetes.io~csi/pv/mount"), "{path}");
    bench.engine.ensure(&pod).await.unwrap();
    assert_eq!(bench.drivers.methods(), ["stage", "publish"]);
    let asked = bench.drivers.look().last_publish.unwrap();
    assert_eq!(asked.stage.volume, "h");
    assert_eq!(asked.stage.attributes, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    assert_eq!(bench.mounts.look().owners.len(), 1);
    let records = bench.mounts.look().records;
    let of_pod = records.iter().find(|(place, _)| matches!(place, RecordPlace::Pod(_)));
    let keys: Vec<&str> = of_pod.unwrap().1.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "attachmentID",
            "driverName",
            "nodeName",
            "specVolID",
            "volumeHandle",
            "volumeLifecycleMode"
        ]
    );
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(bench.drivers.methods(), ["stage", "publish", "unpublish", "unstage"]);
    assert_eq!(n_records(&bench), 0);
}

#[tokio::test(start_paused = true)]
async fn a_volume_leaves_the_node_with_its_last_pod() {
    let bench = bench();
    bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    bench.engine.ensure(&claimant("uid-2")).await.unwrap();
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(bench.drivers.methods(), ["stage", "publish", "publish", "unpublish"]);
    bench.engine.release(&PodUid::new("uid-2")).await.unwrap();
    let methods = bench.drivers.methods();
    assert_eq!(methods[4..], ["unpublish", "unstage"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_for_one_pod_alone_is_refused_to_a_second_until_the_first_has_gone() {
    let bench = bench();
    let mut alone = volume();
    alone["accessModes"] = json!(["ReadWriteOncePod"]);
    bench.storage.bind_claim("mine", "pv", alone);
    for _ in 0..2 {
        bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    }
    assert_eq!(
        bench.refusal(&claimant("uid-2")).await,
        "MountVolume.SetUp failed for volume \"pv\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod"
    );
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    bench.engine.ensure(&claimant("uid-2")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_not_there_is_waited_for() {
    let bench = bench();
    bench.drivers.change(|state| state.drivers.clear());
    let pod = claimant("uid-1");
    assert_eq!(
        bench.refusal(&pod).await,
        "MountVolume.MountDevice failed for volume \"pv\" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name d not found in the list of registered CSI drivers"
    );
    bench.drivers.change(|state| state.drivers = BTreeMap::from([("d".to_owned(), STAGES)]));
    bench.engine.ensure(&pod).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attachment_is_waited_for_and_handed_to_the_driver() {
    let bench = bench();
    set_driver(&bench, json!({"attachRequired": true, "fsGroupPolicy": "None"}));
    let pod = claimant("uid-1");
    let said = async |status: Value| {
        let node = json!({"metadata": {"name": "node"}, "status": status});
        let node = serde_json::from_value(node).unwrap();
        bench.storage.change(|state| state.node = Some(node));
        let error = bench.engine.ensure(&pod).await.unwrap_err();
        (error.is_expected(), error.message)
    };
    let (is_expected, unused) = said(json!({})).await;
    assert!(is_expected && unused.ends_with("node's volume status"));
    let unique = "kubernetes.io/csi/d^h";
    let (is_expected, early) = said(json!({"volumesInUse": [unique]})).await;
    assert!(is_expected && early.ends_with("not attached according to node status"));
    let message = said(json!({
        "volumesInUse": [unique], "volumesAttached": [{"name": unique, "devicePath": ""}],
    }));
    let (is_expected, message) = message.await;
    assert!(!is_expected);
    let name = crate::csi::attachment_of("h", "d", "node");
    assert_eq!(
        message,
        format!(
            "AttachVolume.Attach failed for volume \"pv\" : volume h has GET error for volume attachment {name}: volumeattachments {name:?} not found"
        )
    );
    let in_use = bench.engine.volumes_in_use();
    let expected = BTreeSet::from(["kubernetes.io/csi/d^h".to_owned()]);
    assert_eq!(in_use.borrow().names, expected);
    let attachment = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"attacher": "d", "nodeName": "node", "source": {}},
        "status": {"attached": true, "attachmentMetadata": {"disk": "x"}},
    }));
    let attachment = attachment.unwrap();
    bench.storage.change(|state| drop(state.attachments.insert(name, attachment)));
    bench.engine.ensure(&pod).await.unwrap();
    let asked = bench.drivers.look().last_publish.unwrap();
    assert_eq!(asked.stage.publish_context["disk"], "x");
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert!(in_use.borrow().names.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_room_on_a_full_node_and_is_then_refused() {
    let bench = bench();
    let status = json!({"volumesInUse": ["kubernetes.io/csi/d^h"]});
    let node = json!({"metadata": {"name": "node"}, "status": status});
    let name = crate::csi::attachment_of("h", "d", "node");
    let attachment = json!({
        "metadata": {"name": name}, "spec": {"attacher": "d", "nodeName": "node", "source": {}},
        "status": {"attached": false, "attachError": {"message": "no slot is free", "errorCode": 8}},
    });
    bench.storage.change(|state| {
        state.node = Some(serde_json::from_value(node).unwrap());
        let attachment = serde_json::from_value(attachment).unwrap();
        state.attachments.insert(name, attachment);
    });
    let check = async |spec: Value, uid: &str, expected: &str| {
        set_driver(&bench, spec);
        let pod = claimant(uid);
        let error = bench.engine.ensure(&pod).await.unwrap_err();
        assert!(error.is_expected());
        assert!(error.message.ends_with("according to node status"));
        tokio::time::sleep(std::time::Duration::from_secs(124)).await;
        let error = bench.engine.ensure(&pod).await.unwrap_err();
        assert_eq!(error.reason, expected);
    };
    // A driver whose limit is asked only once may be wrong for ever: its pods wait.
    let asks_once = json!({"attachRequired": true});
    check(asks_once, "uid-1", "FailedMount").await;
    assert!(bench.drivers.methods().is_empty());
    let asks_again = json!({"attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": 10});
    check(asks_again, "uid-2", "VolumeAttachmentLimitExceeded").await;
    assert_eq!(bench.drivers.methods(), ["look again"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_final_error_nothing_is_left_and_after_another_the_driver_is_asked_to_clean_up() {
    let bench = bench();
    let pod = claimant("uid-1");
    let check = async |method: &str, is_final: bool, n_left: usize| {
        bench
            .drivers
            .change(|state| state.faults = BTreeMap::from([(method.to_owned(), fault(is_final))]));
        tokio::time::sleep(std::time::Duration::from_secs(130)).await;
        bench.refusal(&pod).await;
        assert_eq!(n_records(&bench), n_left, "{method} {is_final}");
    };
    check("stage", true, 0).await;
    check("stage", false, 1).await;
    bench.drivers.change(|state| state.faults.clear());
    check("publish", true, 1).await;
    check("publish", false, 2).await;
    bench.drivers.change(|state| {
        state.faults.clear();
        state.calls.clear();
    });
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(bench.drivers.methods(), ["unpublish", "unstage"]);
    assert_eq!(n_records(&bench), 0);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_refuses_is_given_time_before_it_is_asked_again() {
    let bench = bench();
    let pod = claimant("uid-1");
    bench
        .drivers
        .change(|state| state.faults = BTreeMap::from([("stage".to_owned(), fault(true))]));
    let mut said = std::collections::BTreeSet::new();
    for _ in 0..100 {
        said.insert(bench.refusal(&pod).await);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(said.len(), 1);
    // At 0, 0.5, 1.5, 3.5 and 7.5 seconds.
    assert_eq!(bench.drivers.methods(), ["stage"; 5]);
    bench.drivers.change(|state| state.faults.clear());
    tokio::time::sleep(std::time::Duration::from_secs(8)).await;
    bench.engine.ensure(&pod).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_new_agent_takes_away_what_the_old_one_mounted() {
    let bench = bench();
    bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    let next = bench.again();
    next.engine.release(&PodUid::new("uid-1")).await.unwrap();
    let methods = bench.drivers.methods();
    assert_eq!(methods[2..], ["unpublish", "unstage"]);
    assert_eq!(n_records(&bench), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_staged_for_nobody_leaves_when_its_driver_comes() {
    let bench = bench();
    bench
        .drivers
        .change(|state| state.faults = BTreeMap::from([("publish".to_owned(), fault(true))]));
    bench.refusal(&claimant("uid-1")).await;
    assert_eq!(n_records(&bench), 1);
    bench.drivers.change(|state| state.faults.clear());
    let next = bench.again();
    next.sweep(&["other"]).await;
    assert_eq!(n_records(&bench), 1);
    next.sweep(&["d"]).await;
    assert_eq!(n_records(&bench), 0);
    assert!(bench.drivers.look().staged.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_lives_with_its_pod_is_published_only_with_pod_and_tokens() {
    let bench = bench();
    let inline = pod(
        json!([{"name": "i", "csi": {"driver": "d", "volumeAttributes": {"k": "v"}}}]),
        json!({}),
    );
    let said = bench.refusal(&inline).await;
    assert!(
        said.ends_with(
            "volume mode \"Ephemeral\" not supported by driver d (only supports [\"Persistent\"])"
        ),
        "{said}"
    );
    set_driver(
        &bench,
        json!({"volumeLifecycleModes": ["Ephemeral"], "podInfoOnMount": true, "fsGroupPolicy": "File",
            "tokenRequests": [{"audience": "vault"}]}),
    );
    bench.engine.ensure(&inline).await.unwrap();
    assert_eq!(bench.drivers.methods(), ["publish"]);
    let attributes = bench.drivers.look().last_publish.unwrap().stage.attributes;
    assert_eq!(attributes["csi.storage.k8s.io/pod.uid"], "uid-1");
    assert_eq!(attributes["csi.storage.k8s.io/serviceAccount.name"], "account");
    assert_eq!(attributes["csi.storage.k8s.io/ephemeral"], "true");
    let tokens = &attributes["csi.storage.k8s.io/serviceAccount.tokens"];
    assert!(tokens.starts_with("{\"vault\":{\"expirationTimestamp\":"), "{tokens}");
    assert_eq!(attributes["k"], "v");
    // To those who ask for it they are told as secrets.
    let key = "csi.storage.k8s.io/serviceAccount.tokens";
    set_driver(
        &bench,
        json!({"volumeLifecycleModes": ["Ephemeral"], "tokenRequests": [{"audience": "vault"}],
            "serviceAccountTokenInSecrets": true}),
    );
    let other =
        pod(json!([{"name": "i", "csi": {"driver": "d"}}]), json!({"metadata": {"uid": "uid-2"}}));
    bench.engine.ensure(&other).await.unwrap();
    let told = bench.drivers.look().last_publish.unwrap().stage;
    assert!(told.secrets[key].contains("vault") && !told.attributes.contains_key(key));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_could_not_be_given_is_given_by_the_next_try() {
    let bench = bench();
    let pod = claimant("uid-1");
    let place = RecordPlace::Pod(VolumePlace {
        uid: "uid-1".into(),
        plugin: "kubernetes.io~csi".to_owned(),
        name: "pv".to_owned(),
    });
    let path = bench.mounts.driver_path(&place).display().to_string();
    bench.mounts.change(|table| {
        table.broken.insert(path, "it hurts".to_owned());
    });
    assert!(bench.refusal(&pod).await.contains("it hurts"));
    bench.mounts.change(|table| table.broken.clear());
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    bench.engine.ensure(&pod).await.unwrap();
    assert_eq!(bench.mounts.look().owners.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_has_grown_is_told_to_the_driver_and_the_claim() {
    let bench = bench();
    let mut spec = volume();
    spec["capacity"] = json!({"storage": "2Gi"});
    bench.storage.bind_claim("mine", "pv", spec);
    bench.storage.change(|state| {
        let key = ("default".to_owned(), "mine".to_owned());
        let claim = state.claims.get_mut(&key).unwrap();
        let capacity = serde_json::from_value(json!({"storage": "1Gi"})).unwrap();
        claim.status.as_mut().unwrap().capacity = Some(capacity);
    });
    bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    assert_eq!(bench.drivers.methods(), ["stage", "publish", "expand"]);
    let patches = bench.storage.look().patches;
    assert_eq!(patches[0]["status"]["capacity"]["storage"], "2Gi");
}

fn raw_volume() -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
        "csi": {"driver": "d", "volumeHandle": "h"},
    })
}

/// A pod that gets the claim as a device.
fn raw_claimant(uid: &str) -> Pod {
    pod(
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}]),
        json!({"metadata": {"uid": uid}, "spec": {"containers": [
            {"volumeMounts": null, "volumeDevices": [{"name": "data", "devicePath": "/dev/x"}]},
        ]}}),
    )
}

fn raw_bench() -> Bench {
    let bench = bench();
    bench.storage.bind_claim("mine", "pv", raw_volume());
    bench
}

#[tokio::test(start_paused = true)]
async fn a_raw_device_is_staged_published_linked_and_taken_back_with_its_last_pod() {
    let bench = raw_bench();
    let mounts = bench.engine.ensure(&raw_claimant("uid-1")).await.unwrap();
    let link = mounts["data"].device.clone().unwrap();
    assert!(link.ends_with("/uid-1/volumeDevices/kubernetes.io~csi/pv"), "{link}");
    bench.engine.ensure(&raw_claimant("uid-1")).await.unwrap();
    let asked = bench.drivers.look().last_publish.unwrap();
    assert_eq!(asked.stage.capability.form, CsiForm::Device);
    assert_eq!(asked.stage.path, "/csi/volumeDevices/publish/pv/uid-1");
    assert_eq!(asked.staging_path, "/csi/volumeDevices/staging/pv");
    assert!(bench.mounts.look().owners.is_empty());
    bench.engine.ensure(&raw_claimant("uid-2")).await.unwrap();
    // A new life finds what the old one had.
    let next = bench.again();
    next.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(bench.drivers.methods(), ["stage", "publish", "publish", "unpublish"]);
    assert_eq!(n_records(&bench), 1);
    next.engine.release(&PodUid::new("uid-2")).await.unwrap();
    assert_eq!(bench.drivers.methods()[4..], ["unpublish", "unstage"]);
    assert_eq!(n_records(&bench), 0);
    assert!(bench.mounts.look().mapped.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_raw_device_whose_publishing_failed_is_unpublished_unless_that_was_final() {
    let check = async |is_final: bool, n_links: usize, expected: &[&str]| {
        let bench = raw_bench();
        bench.drivers.change(|state| {
            state.faults = BTreeMap::from([("publish".to_owned(), fault(is_final))]);
        });
        let error = bench.engine.ensure(&raw_claimant("uid-1")).await.unwrap_err();
        assert_eq!(
            (error.reason, error.message.as_str()),
            (
                "FailedMapVolume",
                "MapVolume.MapPodDevice failed for volume \"pv\" : rpc error: code = Internal desc = no"
            )
        );
        assert_eq!(bench.mounts.look().mapped.len(), n_links, "{is_final}");
        bench.drivers.change(|state| {
            state.faults.clear();
            state.calls.clear();
        });
        bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
        bench.sweep(&["d"]).await;
        assert_eq!(bench.drivers.methods(), expected, "{is_final}");
        assert_eq!(n_records(&bench), 0);
    };
    check(false, 1, &["unpublish", "unstage"]).await;
    check(true, 0, &["unstage"]).await;
}

#[tokio::test(start_paused = true)]
async fn directories_get_their_volumes_names_and_drivers_say_how_full_theirs_are() {
    let bench = bench();
    bench.storage.bind_claim("near", "pv-near", json!({"local": {"path": "/disk"}}));
    bench.files.change(|disk| {
        disk.paths.insert("/disk".to_owned(), PathKind::Directory);
    });
    let pod = pod(
        json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}},
            {"name": "local", "persistentVolumeClaim": {"claimName": "near"}},
        ]),
        json!({}),
    );
    let mounts = bench.engine.ensure(&pod).await.unwrap();
    let room = |used| FileRoom { used, ..FileRoom::default() };
    let on_disk = |name: &str, used| VolumeUsage {
        uid: "uid-1".into(),
        name: name.to_owned(),
        volume: None,
        at: Timestamp::from_second(1),
        room: room(used),
        is_on_node: false,
    };
    let usage = FakeUsage::default();
    let disk = DiskUsage {
        at: Timestamp::from_second(1),
        node: room(0),
        logs: room(0),
        container_logs: Vec::new(),
        pod_files: Vec::new(),
        volumes: vec![on_disk("pv-near", 5), on_disk("cache", 6)],
    };
    usage.set_disk(disk, room(0));
    let path = mounts["data"].host_path.clone();
    bench.drivers.change(|state| {
        state.usage.insert(("h".to_owned(), path), room(7));
    });
    let usage: Arc<dyn Usage> = Arc::new(usage);
    let figures = |volumes| NamedUsage::new(Arc::clone(&usage), bench.engine.clone(), volumes);
    let hidden = figures(VolumeStats::Hidden);
    assert!(hidden.disk().await.unwrap().volumes.is_empty());
    let named = figures(VolumeStats::Shown);
    let told = named.disk().await.unwrap();
    let told: Vec<_> = told
        .volumes
        .iter()
        .map(|it| (it.name.as_str(), it.volume.as_deref(), it.room.used))
        .collect();
    assert_eq!(told, [("pv-near", Some("local"), 5), ("cache", None, 6), ("pv", Some("data"), 7)]);
    // The same reading is not asked for twice, and what has gone is not asked for at all.
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(named.disk().await.unwrap().volumes.len(), 3);
    let fresh = Arc::new(FakeUsage::default());
    let next = NamedUsage::new(fresh, bench.engine.clone(), VolumeStats::Shown);
    assert!(next.disk().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_grows_while_its_pod_runs_is_noticed_without_anybody_saying_so() {
    let bench = bench();
    let set = |size: &str, told: &str, more: Value| {
        let mut spec = volume();
        spec["capacity"] = json!({"storage": size});
        bench.storage.bind_claim("mine", "pv", spec);
        let mut status = json!({"phase": "Bound", "capacity": {"storage": told}});
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let status = serde_json::from_value(status).unwrap();
        bench.storage.change(|state| {
            let key = ("default".to_owned(), "mine".to_owned());
            state.claims.get_mut(&key).unwrap().status = Some(status);
        });
    };
    set("1Gi", "1Gi", json!({}));
    bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    set(
        "2Gi",
        "1Gi",
        json!({"allocatedResources": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": "NodeResizePending"}}),
    );
    tokio::time::sleep(std::time::Duration::from_secs(70)).await;
    assert_eq!(bench.drivers.methods(), ["stage", "publish", "expand"]);
    let patches = bench.storage.look().patches;
    let statuses: Vec<&Value> =
        patches.iter().map(|it| &it["status"]["allocatedResourceStatuses"]["storage"]).collect();
    assert_eq!(statuses, [&json!("NodeResizeInProgress"), &Value::Null]);
    let events = bench.world.recorded_events();
    assert!(events.iter().any(|(_, event)| event.reason == "FileSystemResizeSuccessful"));
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_cannot_grow_says_so_on_its_claim() {
    let check = async |fate: CsiFate, is_ready: bool, statuses: &[&str]| {
        let bench = bench();
        let mut spec = volume();
        spec["capacity"] = json!({"storage": "2Gi"});
        bench.storage.bind_claim("mine", "pv", spec);
        let status = serde_json::from_value(json!({
            "phase": "Bound", "capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        }));
        let status = status.unwrap();
        bench.storage.change(|state| {
            let key = ("default".to_owned(), "mine".to_owned());
            state.claims.get_mut(&key).unwrap().status = Some(status);
        });
        let refusal = CsiError { message: "no".to_owned(), fate };
        bench.drivers.change(|state| drop(state.faults.insert("expand".to_owned(), refusal)));
        let ready = bench.engine.ensure(&claimant("uid-1")).await;
        assert_eq!(ready.is_ok(), is_ready, "{fate:?}");
        let patches = bench.storage.look().patches;
        let told: Vec<&str> = patches
            .iter()
            .map(|it| {
                let status = &it["status"]["allocatedResourceStatuses"]["storage"];
                let condition = &it["status"]["conditions"][0]["type"];
                status.as_str().or(condition.as_str()).unwrap_or_default()
            })
            .collect();
        assert_eq!(told, statuses, "{fate:?}");
        // One that is unfit is not asked again.
        bench.drivers.change(|state| state.calls.clear());
        tokio::time::sleep(std::time::Duration::from_secs(61)).await;
        if is_ready {
            assert!(bench.drivers.methods().is_empty(), "{fate:?}");
        }
    };
    let begun = "NodeResizeInProgress";
    check(CsiFate::Open, false, &[begun]).await;
    check(CsiFate::Final, false, &[begun, "NodeResizeError"]).await;
    check(CsiFate::Infeasible, false, &[begun, "NodeResizeInfeasible"]).await;
    check(CsiFate::Unfit, true, &[begun, "NodeResizeError"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_belongs_to_other_nodes_is_refused() {
    let bench = bench();
    let mut spec = volume();
    spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
    ]}});
    bench.storage.bind_claim("mine", "pv", spec);
    let set_zone = |zone: &str| {
        let node = json!({"metadata": {"name": "node", "labels": {"zone": zone}}});
        let node = serde_json::from_value(node).unwrap();
        bench.storage.change(|state| state.node = Some(node));
    };
    set_zone("b");
    assert_eq!(
        bench.refusal(&claimant("uid-1")).await,
        "MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms"
    );
    set_zone("a");
    bench.engine.ensure(&claimant("uid-1")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_raw_device_for_one_pod_alone_is_refused_to_a_second_until_the_first_has_gone() {
    let bench = raw_bench();
    let mut alone = raw_volume();
    alone["accessModes"] = json!(["ReadWriteOncePod"]);
    bench.storage.bind_claim("mine", "pv", alone);
    for _ in 0..2 {
        bench.engine.ensure(&raw_claimant("uid-1")).await.unwrap();
    }
    let second = raw_claimant("uid-2");
    let error = bench.engine.ensure(&second).await.unwrap_err();
    assert_eq!(error.reason, "FailedMapVolume");
    assert_eq!(
        error.message,
        "MapVolume.SetUpDevice failed for volume \"pv\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod"
    );
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    bench.engine.ensure(&second).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_mounted_with_the_label_of_its_containers_where_the_driver_supports_that() {
    let bench = prepared(Bench::labelling());
    let labelled = |uid: &str, level: &str| {
        pod(
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}]),
            json!({"metadata": {"uid": uid}, "spec": {"securityContext": {"seLinuxOptions": {"level": level}}}}),
        )
    };
    let options = || {
        let asked = bench.drivers.look().last_publish.unwrap();
        match asked.stage.capability.form {
            CsiForm::Files { options, .. } => options,
            CsiForm::Device => Vec::new(),
        }
    };
    let pod = labelled("uid-1", "s0:c1,c2");
    let mounts = bench.engine.ensure(&pod).await.unwrap();
    assert!(mounts["data"].selinux_relabel);
    assert_eq!(options(), ["noatime"]);
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();

    set_driver(&bench, json!({"attachRequired": false, "seLinuxMount": true}));
    let mounts = bench.engine.ensure(&pod).await.unwrap();
    assert!(!mounts["data"].selinux_relabel);
    let label = "system_u:object_r:container_file_t:s0:c1,c2";
    assert_eq!(options(), ["noatime".to_owned(), format!("context=\"{label}\"")]);
    let records = bench.mounts.look().records;
    assert_eq!(records.len(), 2);
    for record in records.values() {
        assert_eq!(record["seLinuxMountContext"], label);
    }
    // One mount has one label: another pod shares it, or waits.
    bench.engine.ensure(&labelled("uid-2", "s0:c1,c2")).await.unwrap();
    let other = labelled("uid-3", "s0:c3");
    let said = bench.refusal(&other).await;
    assert!(
        said.ends_with("conflicting SELinux labels of volume pv: \"system_u:object_r:container_file_t:s0:c1,c2\" and \"system_u:object_r:container_file_t:s0:c3\""),
        "{said}"
    );
    for uid in ["uid-1", "uid-2"] {
        bench.engine.release(&PodUid::new(uid)).await.unwrap();
    }
    bench.engine.ensure(&other).await.unwrap();
}

fn registered() -> RegisteredDriver {
    RegisteredDriver { node_id: "n".to_owned(), max_volumes: 0, topology: BTreeMap::new() }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_life_left_is_looked_for_until_it_could_be_read() {
    let bench = bench();
    set_driver(&bench, json!({"attachRequired": true}));
    let stage = RecordPlace::Node { driver: "d".to_owned(), hash: crate::csi::hash_of("h") };
    let record = [("driverName", "d"), ("volumeHandle", "h")];
    let record = record.map(|(key, value)| (key.to_owned(), value.to_owned()));
    bench.mounts.change(|table| {
        table.records.insert(stage, BTreeMap::from(record));
        table.broken.insert("records".to_owned(), "input/output error".to_owned());
    });
    let in_use = bench.engine.volumes_in_use();
    let (_drivers, followed) = watch::channel(BTreeMap::from([("d".to_owned(), registered())]));
    let following = tokio::spawn(Arc::clone(&bench.engine).follow_drivers(followed));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((in_use.borrow().is_complete, n_records(&bench)), (false, 1));
    bench.mounts.change(|table| table.broken.clear());
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((in_use.borrow().is_complete, n_records(&bench)), (true, 0));
    assert_eq!(bench.drivers.methods(), ["unstage"]);
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_a_driver_would_not_give_back_is_asked_for_again() {
    let bench = bench();
    let (_drivers, followed) = watch::channel(BTreeMap::from([("d".to_owned(), registered())]));
    let following = tokio::spawn(Arc::clone(&bench.engine).follow_drivers(followed));
    bench.drivers.change(|state| {
        state.faults.insert("publish".to_owned(), fault(true));
        state.faults.insert("unstage".to_owned(), fault(false));
    });
    bench.engine.ensure(&claimant("uid-1")).await.unwrap_err();
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(n_records(&bench), 1);
    bench.drivers.change(|state| state.faults.clear());
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(n_records(&bench), 0);
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_not_taken_from_the_node_while_a_record_cannot_be_read() {
    let bench = bench();
    bench.engine.ensure(&claimant("uid-1")).await.unwrap();
    bench.engine.ensure(&claimant("uid-2")).await.unwrap();
    let second = RecordPlace::Pod(VolumePlace {
        uid: PodUid::new("uid-2"),
        plugin: "kubernetes.io~csi".to_owned(),
        name: "pv".to_owned(),
    });
    bench.mounts.change(|table| {
        table.unreadable.insert(second);
    });
    // A new life knows nothing but what it can read.
    let next = bench.again();
    let error = next.engine.release(&PodUid::new("uid-1")).await.unwrap_err();
    assert_eq!(error.reason, "FailedUnMount");
    assert!(error.message.contains("cannot be read"), "{}", error.message);
    next.sweep(&["d"]).await;
    assert_eq!(next.engine.recall().await, Search::Unfinished);
    assert!(!next.drivers.methods().iter().any(|it| it == "unstage"));
    // The pod that has it writes it anew.
    next.engine.ensure(&claimant("uid-2")).await.unwrap();
    assert_eq!(next.engine.recall().await, Search::Done);
    next.engine.release(&PodUid::new("uid-1")).await.unwrap();
    next.engine.release(&PodUid::new("uid-2")).await.unwrap();
    let methods = next.drivers.methods();
    assert_eq!(methods[methods.len() - 2..], ["unpublish", "unstage"]);
}

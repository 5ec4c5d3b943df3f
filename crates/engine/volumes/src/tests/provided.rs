//! Claims and what they stand for, on fakes.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{
    Disk, DiskKey, FsGroupChangePolicy, FsGroupOwner, IscsiDisk, MountAccess, PathKind,
    PodVolumes as _, TrustAsk, VolumePlace,
};
use ferrolet_testkit::MountTable;
use ferrolet_types::{Pod, PodUid};
use serde_json::{Value, json};

use super::{engine::Bench, pod};
use crate::{
    ProjectionGates,
    claims::{Claimant, bound_volume, claimed_spec},
    plan::{ClaimUse, Uses},
};

fn claim_volume() -> Value {
    json!([{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}])
}

fn place(plugin: &str, name: &str) -> VolumePlace {
    VolumePlace { uid: PodUid::new("uid-1"), plugin: plugin.to_owned(), name: name.to_owned() }
}

const FILES: Uses = Uses { as_files: true, as_device: false };

#[test]
fn a_claim_that_cannot_be_used_says_why_in_upstreams_words() {
    let check = |claim: Value, is_own: bool, expected: Result<&str, &str>| {
        let pod = Claimant { namespace: "n", name: "p", uid: "u" };
        let claim_use = ClaimUse { claim: "c".to_owned(), is_own, is_read_only: false };
        let claim = serde_json::from_value(claim).unwrap();
        let found = bound_volume(&pod, &claim_use, &claim);
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    };
    let bound = |meta: Value| json!({"metadata": meta, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
    check(bound(json!({})), false, Ok("v"));
    check(
        json!({"metadata": {}, "spec": {}, "status": {"phase": "Pending"}}),
        false,
        Err("error processing PVC n/c: PVC is not bound"),
    );
    check(
        json!({"metadata": {}, "spec": {}, "status": {"phase": "Bound"}}),
        false,
        Err("error processing PVC n/c: PVC has empty pvc.Spec.VolumeName"),
    );
    let dying = "2026-01-01T00:00:00Z";
    check(
        bound(json!({"deletionTimestamp": dying})),
        false,
        Err("error processing PVC n/c: PVC is being deleted"),
    );
    check(
        bound(json!({"deletionTimestamp": dying, "finalizers": ["kubernetes.io/pvc-protection"]})),
        false,
        Ok("v"),
    );
    let owner = |uid: &str| json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}]});
    check(bound(owner("u")), true, Ok("v"));
    check(
        bound(owner("other")),
        true,
        Err("PVC n/c was not created for pod n/p (pod is not owner)"),
    );
}

#[test]
fn a_volume_must_belong_to_the_claim_and_have_the_right_form() {
    let check = |spec: Value, uses: Uses, expected: Option<&str>| {
        let pod = Claimant { namespace: "n", name: "p", uid: "u" };
        let claim_use = ClaimUse { claim: "c".to_owned(), is_own: false, is_read_only: false };
        let claim = serde_json::from_value(json!({"metadata": {"uid": "cu"}})).unwrap();
        let volume =
            serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec})).unwrap();
        let found = claimed_spec(&pod, ("data", uses), &claim_use, &claim, &volume);
        assert_eq!(found.err().as_deref(), expected);
    };
    let device = Uses { as_files: false, as_device: true };
    check(json!({"claimRef": {"uid": "cu"}}), FILES, None);
    check(
        json!({}),
        FILES,
        Some(
            "error processing PVC n/c: found PV object v but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
        ),
    );
    check(
        json!({"claimRef": {"uid": "x"}}),
        FILES,
        Some(
            "error processing PVC n/c: found PV object v but its pv.Spec.ClaimRef.UID x does not point to claim.UID cu",
        ),
    );
    let block = json!({"claimRef": {"uid": "cu"}, "volumeMode": "Block"});
    check(block.clone(), device, None);
    check(block, FILES, Some("volume data has volumeMode Block, but is specified in volumeMounts"));
    check(
        json!({"claimRef": {"uid": "cu"}}),
        device,
        Some("volume data has volumeMode Filesystem, but is specified in volumeDevices"),
    );
}

#[tokio::test(start_paused = true)]
async fn a_local_directory_is_shown_to_the_pod_and_taken_away_again() {
    let bench = Bench::new();
    bench.files.change(|disk| {
        disk.paths.insert("/disk".to_owned(), PathKind::Directory);
    });
    let pod = pod(
        claim_volume(),
        json!({"spec": {"securityContext": {"fsGroup": 7, "fsGroupChangePolicy": "OnRootMismatch"}}}),
    );
    let said = bench.refusal(&pod).await;
    assert_eq!(
        said,
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: error processing PVC default/mine: failed to fetch PVC from API server: persistentvolumeclaims \"mine\" not found"
    );
    bench.storage.bind_claim("mine", "pv", json!({"local": {"path": "/disk"}}));
    let mounts = bench.engine.ensure(&pod).await.unwrap();
    assert!(mounts["data"].host_path.ends_with("/kubernetes.io~local-volume/pv"));
    let local = place("kubernetes.io~local-volume", "pv");
    let table = bench.mounts.look();
    assert_eq!(table.bound[&local], ("/disk".to_owned(), MountAccess::ReadWrite));
    let owner = FsGroupOwner { group: 7, policy: FsGroupChangePolicy::OnRootMismatch };
    assert_eq!(table.owners, [(mounts["data"].host_path.clone(), owner)]);
}

#[tokio::test(start_paused = true)]
async fn a_local_device_is_mounted_for_the_node_or_mapped_for_the_pod() {
    let bench = Bench::new();
    bench.files.change(|disk| {
        disk.paths.insert("/dev/x".to_owned(), PathKind::BlockDevice);
    });
    bench.storage.bind_claim("mine", "pv", json!({"local": {"path": "/dev/x", "fsType": "xfs"}}));
    bench.engine.ensure(&pod(claim_volume(), json!({}))).await.unwrap();
    let table = bench.mounts.look();
    assert_eq!(table.devices["pv"].file_system, "xfs");
    let shown = &table.bound[&place("kubernetes.io~local-volume", "pv")].0;
    assert_eq!(shown, "/devices/pv");

    bench.storage.bind_claim(
        "mine",
        "raw",
        json!({"local": {"path": "/dev/x"}, "volumeMode": "Block"}),
    );
    let raw = pod(
        claim_volume(),
        json!({"spec": {"containers": [{"name": "c", "volumeMounts": null,
            "volumeDevices": [{"name": "data", "devicePath": "/dev/y"}]}]}}),
    );
    let mounts = bench.engine.ensure(&raw).await.unwrap();
    let device = mounts["data"].device.as_deref().unwrap();
    assert!(device.ends_with("/volumeDevices/kubernetes.io~local-volume/raw"));
    let mapped = bench.mounts.look().mapped;
    assert_eq!(mapped[&place("kubernetes.io~local-volume", "raw")], "/dev/x");
}

#[tokio::test(start_paused = true)]
async fn remote_directories_are_mounted_by_the_hosts_program() {
    let bench = Bench::new();
    let pod = pod(
        json!([{"name": "far", "nfs": {"server": "fd00::1", "path": "/x", "readOnly": true}}]),
        json!({}),
    );
    bench.engine.ensure(&pod).await.unwrap();
    let table = bench.mounts.look();
    let ask = &table.by_program[&place("kubernetes.io~nfs", "far")];
    assert_eq!((ask.kind.as_str(), ask.source.as_str()), ("nfs", "[fd00::1]:/x"));
    assert_eq!(ask.options, ["ro"]);
    bench.mounts.change(|table| {
        table.broken.insert("[fd00::1]:/x".to_owned(), "exit status 32".to_owned());
    });
    let said = bench.refusal(&pod).await;
    assert_eq!(
        said,
        "MountVolume.SetUp failed for volume \"far\" : touch [fd00::1]:/x: exit status 32"
    );
}

#[tokio::test(start_paused = true)]
async fn a_local_volume_is_given_to_a_group_once_and_to_the_first_of_those_who_share_it() {
    let bench = Bench::new();
    bench.files.change(|disk| {
        disk.paths.insert("/disk".to_owned(), PathKind::Directory);
    });
    bench.storage.bind_claim("mine", "pv", json!({"local": {"path": "/disk"}}));
    let claimant = |uid: &str, group: u32| {
        let more =
            json!({"metadata": {"uid": uid}, "spec": {"securityContext": {"fsGroup": group}}});
        pod(claim_volume(), more)
    };
    let n_owners = || bench.mounts.look().owners.len();
    bench.engine.ensure(&claimant("uid-1", 7)).await.unwrap();
    bench.engine.ensure(&claimant("uid-1", 7)).await.unwrap();
    assert_eq!(n_owners(), 1);
    bench.engine.ensure(&claimant("uid-2", 7)).await.unwrap();
    bench.engine.ensure(&claimant("uid-3", 8)).await.unwrap();
    assert_eq!(n_owners(), 1);
    let events = bench.world.recorded_events().into_iter();
    let said: Vec<(String, String)> =
        events.map(|(_, event)| (event.reason, event.message)).collect();
    let expected =
        "The requested fsGroup is 8, but the volume pv has GID 7. The volume may not be shareable.";
    assert_eq!(said, [("AlreadyMountedVolume".to_owned(), expected.to_owned())]);
    for uid in ["uid-1", "uid-2", "uid-3"] {
        bench.engine.release(&PodUid::new(uid)).await.unwrap();
    }
    bench.engine.ensure(&claimant("uid-4", 8)).await.unwrap();
    assert_eq!(n_owners(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_walk_that_takes_long_is_told_of() {
    let bench = Bench::new();
    bench.files.change(|disk| {
        disk.paths.insert("/disk".to_owned(), PathKind::Directory);
    });
    bench.storage.bind_claim("mine", "pv", json!({"local": {"path": "/disk"}}));
    bench.mounts.change(|table| table.walk = Duration::from_secs(100));
    let pod = pod(claim_volume(), json!({"spec": {"securityContext": {"fsGroup": 7}}}));
    bench.engine.ensure(&pod).await.unwrap();
    let events = bench.world.recorded_events().into_iter();
    let said: Vec<String> = events
        .filter(|(_, event)| event.reason == "VolumePermissionChangeInProgress")
        .map(|(_, event)| event.message)
        .collect();
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(said[0].starts_with(
        "Setting volume ownership for uid-1/volumes/kubernetes.io~local-volume/pv is taking longer"
    ));
    assert!(said[1].ends_with("processed 1 files."), "{}", said[1]);
}

#[tokio::test(start_paused = true)]
async fn an_image_is_left_to_the_runtime() {
    let bench = Bench::new();
    let pod = pod(
        json!([{"name": "i", "image": {"reference": "registry/data:1", "pullPolicy": "Never"}}]),
        json!({}),
    );
    let mounts = bench.engine.ensure(&pod).await.unwrap();
    assert_eq!(mounts["i"].image.as_deref(), Some("registry/data:1"));
    assert!(mounts["i"].is_read_only);
}

#[tokio::test(start_paused = true)]
async fn certificates_of_the_cluster_become_a_file_and_follow_its_changes() {
    let bench = Bench::new();
    let ask =
        TrustAsk::Signer { signer: "example.com/s".to_owned(), labels: Some("a=b".to_owned()) };
    let set = |body: &str| {
        let text = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        bench.storage.change(|state| drop(state.bundles.insert(ask.clone(), vec![text])));
    };
    let pod = pod(
        json!([{"name": "p", "projected": {"sources": [{"clusterTrustBundle": {
            "path": "ca", "signerName": "example.com/s", "labelSelector": {"matchLabels": {"a": "b"}},
        }}]}}]),
        json!({}),
    );
    let said = bench.refusal(&pod).await;
    assert!(said.contains("while getting ClusterTrustBundle"), "{said}");
    set("AAAA");
    bench.engine.ensure(&pod).await.unwrap();
    assert!(bench.files.text("p", "ca").unwrap().contains("AAAA"));
    set("BBBB");
    bench.objects.announce_trust();
    let began = tokio::time::Instant::now();
    let has_new = |disk: &ferrolet_testkit::VolumesOnDisk| {
        let mut files = disk.payloads.values().filter_map(|it| it.files.get("ca"));
        files.any(|file| String::from_utf8_lossy(&file.content).contains("BBBB"))
    };
    bench.files.until(has_new).await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_a_key_and_certificates_and_new_ones_in_time() {
    let bench = Bench::new();
    let pod = pod(
        json!([{"name": "p", "projected": {"sources": [{"podCertificate": {
            "signerName": "example.com/s", "keyType": "ED25519",
            "keyPath": "key", "certificateChainPath": "chain", "credentialBundlePath": "both",
        }}]}}]),
        json!({}),
    );
    let said = bench.refusal(&pod).await;
    assert!(said.ends_with("credential bundle is not issued yet"), "{said}");
    let issue = |name: &str, refresh: u64| {
        let now = bench.world.now();
        let (refresh, end) =
            (now.after(Duration::from_secs(refresh)), now.after(Duration::from_secs(9999)));
        let status = json!({
            "conditions": [{"type": "Issued", "status": "True", "reason": "", "message": "",
                "lastTransitionTime": now.to_string()}],
            "certificateChain": format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n"),
            "beginRefreshAt": refresh.to_string(), "notAfter": end.to_string(),
        });
        let status = serde_json::from_value(status).unwrap();
        bench.storage.change(|state| {
            let key = ("default".to_owned(), name.to_owned());
            state.certificates.get_mut(&key).unwrap().status = Some(status);
        });
    };
    issue("req-1", 1000);
    let has = |name: &str| {
        let name = name.to_owned();
        move |disk: &ferrolet_testkit::VolumesOnDisk| {
            let mut files = disk.payloads.values().filter_map(|it| it.files.get("both"));
            files.any(|file| {
                let text = String::from_utf8_lossy(&file.content).into_owned();
                text.starts_with(&format!("key of {name}\n")) && text.contains("CERTIFICATE")
            })
        }
    };
    // Nobody announces it; the engine looks by itself.
    bench.files.until(has("req-1")).await;
    assert_eq!(bench.files.text("p", "key").unwrap(), "key of req-1\n");
    while bench.storage.look().n_certificates < 2 {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(bench.files.text("p", "key").unwrap(), "key of req-1\n");
    issue("req-2", 1000);
    bench.files.until(has("req-2")).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_behind_a_closed_gate_is_not_asked_for() {
    let volume =
        |source: Value| pod(json!([{"name": "p", "projected": {"sources": [source]}}]), json!({}));
    let trust =
        volume(json!({"clusterTrustBundle": {"path": "ca", "signerName": "example.com/s"}}));
    let certificate = volume(json!({"podCertificate": {
        "signerName": "example.com/s", "keyType": "ED25519", "credentialBundlePath": "both",
    }}));
    let no_trust = Bench::gated(ProjectionGates { trust_bundles: false, pod_certificates: true });
    let said = no_trust.refusal(&trust).await;
    assert!(said.ends_with("feature gate ClusterTrustBundleProjection is disabled"), "{said}");
    let said = no_trust.refusal(&certificate).await;
    assert!(said.ends_with("credential bundle is not issued yet"), "{said}");
    let none = Bench::gated(ProjectionGates { trust_bundles: true, pod_certificates: false });
    let said = none.refusal(&certificate).await;
    assert!(said.ends_with("feature gate PodCertificateRequest is disabled"), "{said}");
    assert_eq!(none.storage.look().n_certificates, 0);
    let said = none.refusal(&trust).await;
    assert!(said.contains("while getting ClusterTrustBundle"), "{said}");
}

/// The cluster has heard that the node uses these, and says that they are attached.
fn attach(bench: &Bench, names: &[&str]) {
    let attached: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    let node =
        json!({"metadata": {}, "status": {"volumesInUse": names, "volumesAttached": attached}});
    let node = serde_json::from_value(node).unwrap();
    bench.storage.change(|state| state.node = Some(node));
}

fn only_disk(table: &MountTable) -> (&DiskKey, &Disk) {
    assert_eq!(table.disks.len(), 1);
    table.disks.first_key_value().unwrap()
}

fn iscsi_of(disk: &Disk) -> &IscsiDisk {
    match disk {
        Disk::Iscsi(disk) => disk,
        Disk::Fc(_) => panic!("{disk:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_another_machine_is_brought_here_once_and_goes_with_its_last_pod() {
    let bench = Bench::new();
    let spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "iscsi": {"targetPortal": "10.0.0.1", "portals": ["10.0.0.2:860"], "iqn": "iqn.t", "lun": 3,
            "chapAuthSession": true, "secretRef": {"name": "chap", "namespace": "other"}},
    });
    bench.storage.bind_claim("mine", "pv", spec);
    let claimant = |uid: &str| pod(claim_volume(), json!({"metadata": {"uid": uid}}));
    attach(&bench, &[]);
    let waiting = bench.engine.ensure(&claimant("uid-1")).await.unwrap_err();
    assert!(waiting.is_expected());
    let used = bench.engine.volumes_in_use();
    let unique = "kubernetes.io/iscsi/10.0.0.1:iqn.t:3";
    assert!(used.borrow().names.contains(unique));
    attach(&bench, &[unique]);
    assert_eq!(
        bench.refusal(&claimant("uid-1")).await,
        "MountVolume.WaitForAttach failed for volume \"pv\" : couldn't get secret other/chap error: secrets \"chap\" not found"
    );
    let secret = json!({"metadata": {}, "data": {"node.session.auth.username": "bWU="}});
    let secret = serde_json::from_value(secret).unwrap();
    bench.storage.change(|state| {
        let key = ("other".to_owned(), "chap".to_owned());
        state.secrets.insert(key, secret);
    });
    for uid in ["uid-1", "uid-2"] {
        let mounts = bench.engine.ensure(&claimant(uid)).await.unwrap();
        assert!(
            mounts["data"].host_path.ends_with(&format!("/{uid}/volumes/kubernetes.io~iscsi/pv"))
        );
    }
    let name = "10.0.0.1:3260-iqn.t-lun-3";
    let table = bench.mounts.look();
    let (key, disk) = only_disk(&table);
    assert_eq!(key.name, name);
    let disk = iscsi_of(disk);
    assert_eq!(disk.portals, ["10.0.0.1:3260", "10.0.0.2:860"]);
    assert_eq!(disk.secrets["node.session.auth.username"], "me");
    assert_eq!(table.devices[name].directory, "kubernetes.io/iscsi/iface-default");
    assert_eq!(table.devices[name].file_system, "ext4");
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(bench.mounts.look().disks.len(), 1);
    assert!(used.borrow().names.contains(unique));
    // A new life says so too, before anybody asks.
    let bench = bench.again();
    bench.engine.recall().await;
    let used = bench.engine.volumes_in_use();
    assert!(used.borrow().names.contains(unique));
    bench.engine.release(&PodUid::new("uid-2")).await.unwrap();
    assert!(bench.mounts.look().disks.is_empty());
    assert!(used.borrow().names.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_cannot_be_reached_is_tried_again_after_a_pause() {
    let bench = Bench::new();
    bench.mounts.change(|table| {
        let broken = ("iqn.t".to_owned(), "no route".to_owned());
        table.broken = [broken].into();
    });
    attach(&bench, &["kubernetes.io/iscsi/[fd00::1]:3260:iqn.t:0"]);
    let volume = json!([{"name": "far", "iscsi": {"targetPortal": "[fd00::1]:3260", "iqn": "iqn.t", "lun": 0, "initiatorName": "iqn.me"}}]);
    let pod = pod(volume, json!({}));
    let said = bench.refusal(&pod).await;
    assert_eq!(said, "MountVolume.WaitForAttach failed for volume \"far\" : touch iqn.t: no route");
    bench.mounts.change(|table| table.broken.clear());
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.engine.ensure(&pod).await.unwrap();
    let table = bench.mounts.look();
    let disk = iscsi_of(only_disk(&table).1);
    assert_eq!(disk.own_interface(), "[fd00::1]:3260:far");
    // One that was wanted and never reached leaves nothing behind either.
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert!(bench.mounts.look().disks.is_empty());
}

/// A pod with the claim's device as it is.
fn raw_claimant(uid: &str) -> Pod {
    let mut raw = pod(claim_volume(), json!({"metadata": {"uid": uid}}));
    let spec = Arc::make_mut(&mut raw).spec.as_mut().unwrap();
    spec.containers[0].volume_mounts = None;
    let device = json!([{"name": "data", "devicePath": "/dev/mine"}]);
    spec.containers[0].volume_devices = serde_json::from_value(device).unwrap();
    raw
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_another_machine_is_handed_over_as_it_is() {
    for (source, plugin, name) in [
        (
            json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.t", "lun": 3}}),
            "kubernetes.io~iscsi",
            "10.0.0.1:3260-iqn.t-lun-3",
        ),
        (
            json!({"fc": {"targetWWNs": ["5006", "5007"], "lun": 0}}),
            "kubernetes.io~fc",
            "5006-5007-lun-0",
        ),
        (json!({"fc": {"wwids": ["3600 5"]}}), "kubernetes.io~fc", "3600_5"),
    ] {
        let bench = Bench::new();
        attach(
            &bench,
            &[
                "kubernetes.io/iscsi/10.0.0.1:iqn.t:3",
                "kubernetes.io/fc/[5006 5007]:0",
                "kubernetes.io/fc/[3600 5]",
            ],
        );
        let mut spec = source;
        spec["volumeMode"] = json!("Block");
        bench.storage.bind_claim("mine", "pv", spec);
        let broken = match plugin {
            "kubernetes.io~fc" => name,
            _ => "iqn.t",
        };
        bench.mounts.change(|table| {
            table.broken.insert(broken.to_owned(), "no way".to_owned());
        });
        let error = bench.engine.ensure(&raw_claimant("uid-1")).await;
        let error = error.unwrap_err();
        assert_eq!(error.reason, "FailedMapVolume");
        assert_eq!(
            error.message,
            format!("MapVolume.WaitForAttach failed for volume \"pv\" : touch {broken}: no way")
        );
        bench.mounts.change(|table| table.broken.clear());
        tokio::time::sleep(Duration::from_secs(1)).await;
        for uid in ["uid-1", "uid-2"] {
            let mounts = bench.engine.ensure(&raw_claimant(uid)).await.unwrap();
            let link = mounts["data"].device.clone().unwrap();
            let expected = format!("/{uid}/volumeDevices/{plugin}/pv");
            assert!(link.ends_with(&expected), "{link}");
        }
        let table = bench.mounts.look();
        assert_eq!(only_disk(&table).0.name, name);
        assert!(table.devices.is_empty() && table.bound.is_empty());
        bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
        assert_eq!(bench.mounts.look().disks.len(), 1);
        // A new life does not know which disk the other pod has.
        let bench = bench.again();
        bench.engine.release(&PodUid::new("uid-2")).await.unwrap();
        let table = bench.mounts.look();
        assert!(table.disks.is_empty() && table.mapped.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_fibre_channel_is_mounted_once_and_goes_with_its_last_pod() {
    let bench = Bench::new();
    attach(&bench, &["kubernetes.io/fc/[5006]:2"]);
    let volume = json!([{"name": "far", "fc": {"targetWWNs": ["5006"], "lun": 2, "fsType": "xfs", "readOnly": true}}]);
    let pods = ["uid-1", "uid-2"].map(|uid| pod(volume.clone(), json!({"metadata": {"uid": uid}})));
    for pod in &pods {
        let mounts = bench.engine.ensure(pod).await.unwrap();
        let path = &mounts["far"].host_path;
        assert!(path.ends_with("/volumes/kubernetes.io~fc/far"), "{path}");
        assert!(mounts["far"].is_read_only);
    }
    let table = bench.mounts.look();
    let name = "5006-lun-2";
    assert_eq!(only_disk(&table).0.name, name);
    let device = &table.devices[name];
    assert_eq!(
        (device.directory.as_str(), device.file_system.as_str()),
        ("kubernetes.io/fc", "xfs")
    );
    assert_eq!(device.access, MountAccess::ReadOnly);
    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert_eq!(bench.mounts.look().disks.len(), 1);
    let bench = bench.again();
    bench.engine.release(&PodUid::new("uid-2")).await.unwrap();
    let table = bench.mounts.look();
    assert!(table.disks.is_empty() && table.devices.is_empty() && table.bound.is_empty());
}

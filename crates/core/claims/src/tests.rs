use std::time::Duration;

use ferrolet_types::{Pod, PodUid, Timestamp};
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::{Value, json};

use super::*;

const RULES: ClaimRules = ClaimRules { groups: false, skipping: false };

fn pod(spec: Value, status: Value) -> Pod {
    let meta = json!({"name": "web", "namespace": "shop", "uid": "pod-1"});
    let pod = json!({"metadata": meta, "spec": spec, "status": status});
    Pod::new(serde_json::from_value(pod).unwrap())
}

fn claim(name: &str, status: Value) -> ResourceClaim {
    let meta = json!({"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "pod-1",
            "controller": true}]});
    serde_json::from_value(json!({"metadata": meta, "spec": {}, "status": status})).unwrap()
}

fn allocated(results: &[(&str, Value)]) -> Value {
    let results: Vec<Value> = results
        .iter()
        .map(|(driver, skips)| {
            json!({"driver": driver, "pool": "n", "device": "d", "request": "r",
                "skipNodeOperations": skips})
        })
        .collect();
    json!({"allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "web", "uid": "pod-1"}]})
}

fn info(name: &str, drivers: &[&str]) -> ClaimInfo {
    let drivers: Vec<(&str, Value)> = drivers.iter().map(|it| (*it, json!([]))).collect();
    ClaimInfo::of(&claim(name, allocated(&drivers)), RULES).unwrap()
}

fn device(name: &str, requests: &[&str]) -> PreparedDevice {
    PreparedDevice {
        pool: "n".to_owned(),
        device: name.to_owned(),
        share_id: None,
        requests: requests.iter().map(|it| (*it).to_owned()).collect(),
        cdi_ids: vec![format!("v.example/gpu={name}")],
    }
}

fn names(batches: &Batches) -> Vec<(&str, Vec<&str>)> {
    let batches = batches.iter();
    batches.map(|(to, it)| (to.as_str(), it.iter().map(|it| it.name.as_str()).collect())).collect()
}

#[test]
fn names_come_from_the_specification_the_controller_and_the_scheduler() {
    let spec = json!({"containers": [], "resourceClaims": [
        {"name": "a", "resourceClaimName": "mine"},
        {"name": "b", "resourceClaimTemplateName": "t"},
        {"name": "c", "resourceClaimTemplateName": "t"}]});
    let status = json!({"resourceClaimStatuses": [
        {"name": "b", "resourceClaimName": "web-b"}, {"name": "c"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "ext", "requestMappings": []}});
    let of = |name: &str, is_generated| WantedClaim { name: name.to_owned(), is_generated };
    let found = wanted(&pod(spec.clone(), status)).unwrap();
    assert_eq!(found, [of("mine", false), of("web-b", true), of("ext", false)]);
    let refusal = wanted(&pod(spec, json!({}))).unwrap_err();
    assert_eq!(refusal.to_string(), "pod \"shop/web\": ResourceClaim not created yet");
    let neither = pod(json!({"containers": [], "resourceClaims": [{"name": "x"}]}), json!({}));
    assert_eq!(
        wanted(&neither).unwrap_err().to_string(),
        "pod \"shop/web\", spec.resourceClaim \"x\": none of the supported fields are set"
    );
}

#[test]
fn a_claim_is_for_whom_it_was_made_and_reserved() {
    let web = pod(json!({"containers": []}), json!({}));
    let generated = WantedClaim { name: "c".to_owned(), is_generated: true };
    let named = WantedClaim { is_generated: false, ..generated.clone() };
    let good = claim("c", allocated(&[("d", json!([]))]));
    assert_eq!(check(&web, &generated, &good, RULES), Ok(()));
    let mut other = good.clone();
    other.metadata.owner_references = None;
    let words = check(&web, &generated, &other, RULES).unwrap_err().to_string();
    assert_eq!(words, "ResourceClaim shop/c was not created for Pod shop/web (Pod is not owner)");
    assert_eq!(check(&web, &named, &other, RULES), Ok(()));
    let words = check(&web, &named, &claim("c", json!({})), RULES).unwrap_err().to_string();
    assert_eq!(words, "pod web (pod-1) is not allowed to use ResourceClaim c (uid-c)");
}

#[test]
fn a_claim_of_the_pods_group_counts_where_the_gate_says_so() {
    let web = pod(json!({"containers": [], "schedulingGroup": {"podGroupName": "g"}}), json!({}));
    let mut of_group = claim(
        "c",
        json!({"reservedFor": [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "x"}]}),
    );
    let owner = json!([{"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "name": "g", "uid": "x", "controller": true}]);
    of_group.metadata.owner_references = serde_json::from_value(owner).unwrap();
    let wanted = WantedClaim { name: "c".to_owned(), is_generated: true };
    let groups = ClaimRules { groups: true, ..RULES };
    assert_eq!(check(&web, &wanted, &of_group, groups), Ok(()));
    assert!(check(&web, &wanted, &of_group, RULES).is_err());
    of_group.metadata.owner_references = None;
    let words = check(&web, &wanted, &of_group, groups).unwrap_err().to_string();
    assert!(words.ends_with("(neither Pod nor PodGroup g is the owner)"), "{words}");
}

#[test]
fn a_driver_is_spared_what_none_of_its_devices_needs() {
    let check = |results: &[(&str, Value)], expected: &[&str]| {
        let skipping = ClaimRules { skipping: true, ..RULES };
        let info = ClaimInfo::of(&claim("c", allocated(results)), skipping).unwrap();
        assert_eq!(info.drivers["d"].skips, expected);
    };
    check(&[("d", json!(["*"])), ("d", json!(["*"]))], &["*"]);
    check(&[("d", json!(["*"])), ("d", json!([]))], &[]);
    check(
        &[("d", json!(["*"])), ("d", json!(["NodePrepareResources"]))],
        &["NodePrepareResources"],
    );
    let skips = claim("c", allocated(&[("d", json!(["*"]))]));
    assert_eq!(
        ClaimInfo::of(&skips, RULES).unwrap_err().to_string(),
        "ResourceClaim c: DRAOptionalNodeOperations feature gate is disabled on kubelet"
    );
    let bare = ClaimInfo::of(&claim("c", json!({})), RULES).unwrap_err();
    assert_eq!(bare.to_string(), "ResourceClaim c: not allocated");
}

#[test]
fn a_claim_is_prepared_for_its_first_pod_and_taken_back_after_its_last() {
    let (one, two) = (PodUid::from("pod-1"), PodUid::from("pod-2"));
    let infos = [info("a", &["x", "y"]), info("b", &["x"])];
    let mut book = ClaimBook::default();
    let batches = book.attach(&one, &infos).unwrap();
    assert_eq!(names(&batches), [("x", vec!["a", "b"]), ("y", vec!["a"])]);
    assert_eq!(book.in_use().0, 0);
    book.note(&infos[0].claim, "x", vec![device("g0", &[])]);
    // A driver that is asked again says all of it again.
    book.note(&infos[0].claim, "x", vec![device("g1", &[])]);
    book.settle(&infos);
    assert_eq!(book.in_use(), (2, [("x", 2), ("y", 1)].into()));
    assert_eq!(book.get("shop", "a").unwrap().drivers["x"].devices, [device("g1", &[])]);

    assert!(book.attach(&two, &infos[..1]).unwrap().is_empty());
    assert_eq!(names(&book.detach(&one)), [("x", vec!["b"])]);
    let words = book.attach(&two, &infos[1..]).unwrap_err().to_string();
    assert_eq!(words, "ResourceClaim b is being unprepared");
    assert!(book.has_pod(&one));
    // Whoever failed asks again for the same.
    assert_eq!(names(&book.detach(&one)), [("x", vec!["b"])]);
    book.drop_detached(&one);
    assert!(!book.has_pod(&one) && book.has_pod(&two));
    assert_eq!(names(&book.detach(&two)), [("x", vec!["a"]), ("y", vec!["a"])]);
    book.drop_detached(&two);
    assert_eq!(book, ClaimBook::default());
}

#[test]
fn a_claim_that_took_the_name_of_another_waits_for_its_end() {
    let one = PodUid::from("pod-1");
    let mut book = ClaimBook::default();
    book.attach(&one, &[info("a", &["x"])]).unwrap();
    let mut new = info("a", &["x"]);
    new.claim.uid = "other".to_owned();
    let words = book.attach(&PodUid::from("pod-2"), &[info("b", &["x"]), new]).unwrap_err();
    assert_eq!(
        words.to_string(),
        "old ResourceClaim with same name a and different UID uid-a still exists (previous pod force-deleted?!)"
    );
    // All or none.
    assert!(book.get("shop", "b").is_none());
}

#[test]
fn a_container_gets_the_devices_of_the_requests_that_it_names() {
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}],
        "containers": [
            {"name": "all", "resources": {"claims": [{"name": "gpu"}]}},
            {"name": "one", "resources": {"claims": [{"name": "gpu", "request": "big"}]}},
            {"name": "ext", "resources": {"requests": {"v.example/gpu": "1", "v.example/x": "0k"}}},
            {"name": "none"}]});
    let status = json!({"extendedResourceClaimStatus": {"resourceClaimName": "e",
        "requestMappings": [
            {"containerName": "ext", "resourceName": "v.example/gpu", "requestName": "r0"},
            {"containerName": "ext", "resourceName": "v.example/x", "requestName": "r1"},
            {"containerName": "none", "resourceName": "v.example/gpu", "requestName": "r1"}]}});
    let web = pod(spec, status);
    let infos = [info("a", &["x"]), info("e", &["x"])];
    let mut book = ClaimBook::default();
    book.attach(&PodUid::from("pod-1"), &infos).unwrap();
    let a = vec![device("g0", &["big"]), device("g1", &["small"]), device("g2", &[])];
    book.note(&infos[0].claim, "x", a);
    book.note(&infos[1].claim, "x", vec![device("e0", &["r0"]), device("e1", &["r1"])]);
    let check = |n: usize, expected: &[&str]| {
        let container = &web.spec.as_ref().unwrap().containers[n];
        let expected: Vec<String> =
            expected.iter().map(|it| format!("v.example/gpu={it}")).collect();
        assert_eq!(cdi_devices(&book, &web, container).unwrap(), expected);
    };
    check(0, &["g0", "g1", "g2"]);
    check(1, &["g0", "g2"]);
    check(2, &["e0"]);
    check(3, &[]);
    let container = &web.spec.as_ref().unwrap().containers[0];
    let words = cdi_devices(&ClaimBook::default(), &web, container).unwrap_err().to_string();
    assert_eq!(
        words,
        "internal error: unable to get claim info for ResourceClaim a in namespace shop"
    );
}

#[test]
fn the_checkpoint_is_upstreams_byte_by_byte() {
    let mut book = ClaimBook::default();
    let infos = [info("a", &["x.example"])];
    book.attach(&PodUid::from("pod-1"), &infos).unwrap();
    let mut shared = device("g0", &["big"]);
    shared.share_id = Some("s".to_owned());
    book.note(&infos[0].claim, "x.example", vec![shared, PreparedDevice::default()]);
    book.settle(&infos);
    let data = r#"{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[{"ClaimUID":"uid-a","ClaimName":"a","Namespace":"shop","PodUIDs":{"pod-1":{}},"DriverState":{"x.example":{"Devices":[{"PoolName":"n","DeviceName":"g0","ShareID":"s","RequestNames":["big"],"CDIDeviceIDs":["v.example/gpu=g0"]},{"PoolName":"","DeviceName":"","ShareID":null,"RequestNames":null,"CDIDeviceIDs":null}]}}}]}"#;
    let encoded = String::from_utf8(encode(&book).unwrap()).unwrap();
    let expected = format!("{{\"Data\":{},\"Checksum\":3393702238}}", json!(data));
    assert_eq!(encoded, expected);
    let read = decode(encoded.as_bytes()).unwrap();
    assert_eq!(read.get("shop", "a").unwrap().stage, Stage::Kept);
    assert_eq!(encode(&read).unwrap(), encoded.as_bytes());
    assert!(read.has_all(&pod(json!({"containers": []}), json!({})), &["a".to_owned()]));
    // One of an earlier life is prepared again for a new sandbox.
    assert_eq!(names(&read.clone().attach(&PodUid::from("pod-1"), &infos).unwrap()).len(), 1);

    let bad = encoded.replace("big", "bag");
    assert!(matches!(decode(bad.as_bytes()), Err(CheckpointError::Checksum { .. })));
    assert!(matches!(decode(b"{\"version\":\"v1\""), Err(CheckpointError::Shape(_))));
    let empty = encode(&ClaimBook::default()).unwrap();
    assert!(String::from_utf8_lossy(&empty).contains("ClaimInfoStateList\\\":null"));
    assert_eq!(decode(&empty).unwrap(), ClaimBook::default());
}

#[test]
fn files_of_older_versions_are_read() {
    let data = r#"{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[{"ClaimUID":"u","ClaimName":"a","Namespace":"shop","PodUIDs":{"p":{}},"DriverState":{"x":{"Devices":[{"PoolName":"n","DeviceName":"g","RequestNames":["r"],"CDIDeviceIDs":["v/g=1"]}]}}}]}"#;
    let file = json!({"Data": data, "Checksum": 2_817_545_610_u32});
    let book = decode(file.to_string().as_bytes()).unwrap();
    let device = &book.get("shop", "a").unwrap().drivers["x"].devices[0];
    assert_eq!((device.device.as_str(), &device.share_id), ("g", &None));
}

fn told(device: &str, feeling: Feeling) -> DeviceHealth {
    DeviceHealth {
        pool: "n".to_owned(),
        device: device.to_owned(),
        feeling,
        holds: Duration::ZERO,
        message: "hot".to_owned(),
    }
}

#[test]
fn what_a_driver_does_not_repeat_is_not_known_for_long() {
    let now = Timestamp::from_second(1000);
    let mut book = HealthBook::default();
    let all = vec![told("a", Feeling::Healthy), told("b", Feeling::Unhealthy)];
    assert_eq!(book.report("x", all.clone(), now).0.len(), 2);
    assert!(book.report("x", all, now).0.is_empty());
    assert_eq!(book.of("x", "n", "b", now), (Feeling::Unhealthy, Some("hot")));
    let later = now.after(Duration::from_secs(31));
    assert_eq!(book.of("x", "n", "b", later), (Feeling::Unknown, None));
    let (changed, _) = book.report("x", vec![told("a", Feeling::Healthy)], later);
    assert_eq!(changed, [("n".to_owned(), "b".to_owned())]);
    let kept = decode_health(&encode_health(&book).unwrap()).unwrap();
    assert_eq!(kept, book);
    assert_eq!(book.forget("x"), [("n".to_owned(), "a".to_owned())]);
    assert_eq!(book.of("x", "n", "a", later), (Feeling::Unknown, None));
}

#[test]
fn a_driver_cannot_fill_the_memory_with_devices() {
    let now = Timestamp::from_second(1000);
    let mut book = HealthBook::default();
    let many = (0..N_DEVICES + 7).map(|n| told(&n.to_string(), Feeling::Healthy)).collect();
    let (changed, n_left_out) = book.report("x", many, now);
    assert_eq!((changed.len(), n_left_out), (N_DEVICES, 7));
    assert_eq!(shortened("short"), "short");
    assert_eq!(shortened(&"ü".repeat(600)).len(), 1023);
}

#[test]
fn a_status_names_each_device_of_a_claim_once() {
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}],
        "containers": [{"name": "c", "resources": {"claims": [
            {"name": "gpu"}, {"name": "gpu", "request": "big/part"}]}}]});
    let web = pod(spec, json!({}));
    let infos = [info("a", &["x"])];
    let mut book = ClaimBook::default();
    book.attach(&PodUid::from("pod-1"), &infos).unwrap();
    let mut nameless = device("g1", &["small"]);
    nameless.cdi_ids.clear();
    book.note(&infos[0].claim, "x", vec![device("g0", &["big"]), device("g0", &["big"]), nameless]);
    let now = Timestamp::from_second(1000);
    let mut health = HealthBook::default();
    health.report("x", vec![told("g0", Feeling::Unhealthy)], now);
    let container = &web.spec.as_ref().unwrap().containers[0];
    let shown = health_of((&book, &health), &web, container, now);
    let shown = serde_json::to_value(shown).unwrap();
    let g0 = json!({"resourceID": "v.example/gpu=g0", "health": "Unhealthy", "message": "hot"});
    let g1 = json!({"resourceID": "x/n/g1", "health": "Unknown"});
    assert_eq!(
        shown,
        json!([
        {"name": "claim:gpu", "resources": [g0, g1]},
        {"name": "claim:gpu/big/part", "resources": [g0]}])
    );
}

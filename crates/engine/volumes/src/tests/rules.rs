//! What a pod's volumes should be and hold.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{Medium, ObjectKind, Token};
use ferrolet_types::Timestamp;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use serde_json::{Value, json};

use super::{allocatable, pod};
use crate::{
    payload::{Gathered, Missing, compute},
    plan::{Desired, Plugin, Source, plan_pod},
};

const GIB: u64 = 1 << 30;

fn desired(volume: Value, more: Value) -> Desired {
    let plan = plan_pod(&pod(json!([volume]), more), &allocatable());
    plan.volumes.into_iter().next().unwrap().desired
}

#[test]
fn an_empty_dir_has_the_permissions_that_the_pod_asks_for() {
    let check = |source: Value, expected: u32| {
        let volume = json!({"name": "v", "emptyDir": source});
        let expected = Desired::EmptyDir { medium: Medium::Disk, mode: expected };
        assert_eq!(desired(volume.clone(), json!({})), expected, "{volume}");
    };
    check(json!({}), 0o777);
    check(json!({"mode": 0}), 0);
    check(json!({"mode": 0o1750}), 0o1750);
    check(json!({"mode": 0o6755}), 0o755);
    check(json!({"mode": -1}), 0o777);
}

#[test]
fn empty_dirs_live_on_what_the_pod_asks_for() {
    let check = |source: Value, resources: Value, expected: Result<Medium, &str>| {
        let volume = json!({"name": "v", "emptyDir": source});
        let more = json!({"spec": {"containers": [{"resources": resources}]}});
        let expected = match expected {
            Ok(medium) => Desired::EmptyDir { medium, mode: 0o777 },
            Err(why) => Desired::Impossible(why.to_owned()),
        };
        assert_eq!(desired(volume.clone(), more), expected, "{volume}");
    };
    let memory = |size: u64| Ok(Medium::Memory { size: Some(size) });
    let limits =
        json!({"limits": {"memory": "1Gi", "cpu": "1"}, "requests": {"memory": "1Gi", "cpu": "1"}});
    let pages = |sizes: &[&str]| {
        let sizes = sizes.iter().map(|size| (format!("hugepages-{size}"), json!("64Mi")));
        json!({"requests": sizes.collect::<serde_json::Map<_, _>>()})
    };
    check(json!({}), json!({}), Ok(Medium::Disk));
    check(json!({"sizeLimit": "1Mi"}), json!({}), Ok(Medium::Disk));
    check(json!({"medium": "Memory"}), json!({}), memory(4 * GIB));
    check(json!({"medium": "Memory"}), limits.clone(), memory(GIB));
    check(json!({"medium": "Memory", "sizeLimit": "64Mi"}), limits.clone(), memory(64 << 20));
    check(json!({"medium": "Memory", "sizeLimit": "2Gi"}), limits, memory(GIB));
    check(json!({"medium": "Memory", "sizeLimit": "0"}), json!({}), memory(4 * GIB));
    check(
        json!({"medium": "HugePages"}),
        pages(&["2Mi"]),
        Ok(Medium::HugePages { page_size: 2 << 20 }),
    );
    check(
        json!({"medium": "HugePages-1Gi"}),
        pages(&["2Mi", "1Gi"]),
        Ok(Medium::HugePages { page_size: GIB }),
    );
    check(
        json!({"medium": "HugePages"}),
        pages(&["2Mi", "1Gi"]),
        Err("medium: HugePages can't be used if container requests multiple huge page sizes"),
    );
    check(
        json!({"medium": "HugePages-2Mi"}),
        json!({}),
        Err(
            "medium HugePages-2Mi: hugePages storage requested, but there is no resource request for huge pages",
        ),
    );
    check(json!({"medium": "Tape"}), json!({}), Err("unknown storage medium \"Tape\""));
}

#[test]
fn volumes_that_nobody_mounts_are_not_planned() {
    let mut pod = pod(json!([{"name": "v", "configMap": {"name": "none"}}]), json!({}));
    let spec = Arc::make_mut(&mut pod).spec.as_mut().unwrap();
    let container = &mut spec.containers[0];
    container.volume_mounts = None;
    assert_eq!(plan_pod(&pod, &allocatable()).volumes, []);
}

#[test]
fn kinds_that_are_not_served_yet_are_named() {
    let check = |source: Value, kind: &str| {
        let mut volume = source.clone();
        volume["name"] = json!("v");
        let Desired::Unsupported(found) = desired(volume, json!({})) else {
            panic!("{source}");
        };
        assert_eq!(found, kind);
    };
    check(json!({"cephfs": {"monitors": ["m"]}}), "cephfs");
    let back = desired(json!({"name": "v", "hostPath": {"path": "/a/../b"}}), json!({}));
    let why = "invalid HostPath `/a/../b`: must not contain '..'";
    assert_eq!(back, Desired::Impossible(why.to_owned()));
}

/// CVE-2024-10220 and CVE-2025-1767: hooks of a repository ran as root on the node.
#[test]
fn a_repository_is_never_fetched() {
    for source in [
        json!({"repository": "https://h/r.git", "revision": "main", "directory": "."}),
        json!({"repository": "file:///etc", "directory": "../out"}),
    ] {
        let volume = json!({"name": "v", "gitRepo": source});
        let Desired::Impossible(why) = desired(volume, json!({})) else {
            panic!("{source}");
        };
        assert!(why.starts_with("git-repo volume plugin has been disabled"));
    }
}

/// CVE-2025-13281: a volume's words made a component call addresses of the control plane's network.
#[test]
fn volumes_of_clouds_are_not_served_in_tree() {
    for (source, kind) in [
        (json!({"portworxVolume": {"volumeID": "v"}}), "portworxVolume"),
        (json!({"rbd": {"image": "i", "monitors": ["m"]}}), "rbd"),
        (json!({"glusterfs": {"endpoints": "e", "path": "p"}}), "glusterfs"),
    ] {
        let mut volume = source.clone();
        volume["name"] = json!("v");
        assert_eq!(desired(volume, json!({})), Desired::Unsupported(kind));
    }
}

#[test]
fn only_config_maps_touch_the_disk() {
    let check = |source: Value, plugin: Plugin, is_memory: bool| {
        let mut volume = source.clone();
        volume["name"] = json!("v");
        let Desired::Files { plugin: found, medium, .. } = desired(volume, json!({})) else {
            panic!("{source}");
        };
        assert_eq!(found, plugin);
        assert_eq!(medium != Medium::Disk, is_memory, "{source}");
    };
    check(json!({"configMap": {"name": "x"}}), Plugin::ConfigMap, false);
    check(json!({"secret": {"secretName": "x"}}), Plugin::Secret, true);
    check(json!({"downwardAPI": {}}), Plugin::DownwardApi, true);
    check(json!({"projected": {"sources": []}}), Plugin::Projected, true);
}

#[test]
fn tokens_belong_to_the_one_user_of_the_pod() {
    let check = |security: Value, containers: Value, mode: u32, owner: Option<u32>| {
        let volume = json!({"name": "v", "projected": {"defaultMode": 0o644, "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 700, "audience": "vault"}}]}});
        let more = json!({"spec": {"securityContext": security, "containers": containers}});
        let Desired::Files { sources, .. } = desired(volume, more) else {
            panic!("not files");
        };
        let [Source::Token { path, ask, mode: found, owner: found_owner }] = sources.as_slice()
        else {
            panic!("{sources:?}");
        };
        assert_eq!(path, "token");
        assert_eq!(ask.audiences, ["vault"]);
        assert_eq!(ask.service_account, "account");
        assert_eq!(ask.lifetime, Some(Duration::from_secs(700)));
        assert_eq!(ask.bound_pod.as_ref().unwrap().1.as_str(), "uid-1");
        assert_eq!((*found, *found_owner), (mode, owner));
    };
    let none = || json!([{}]);
    check(json!({}), none(), 0o644, None);
    check(json!({"runAsUser": 1001}), none(), 0o600, Some(1001));
    check(json!({"fsGroup": 2000}), none(), 0o600, None);
    check(json!({}), json!([{"securityContext": {"runAsUser": 7}}]), 0o600, Some(7));
    check(json!({"runAsUser": 1}), json!([{"securityContext": {"runAsUser": 7}}]), 0o600, Some(7));
}

fn gathered() -> Gathered {
    let mut gathered = Gathered::default();
    let map = ConfigMap {
        data: Some([("k".to_owned(), "v".to_owned()), ("l".to_owned(), "w".to_owned())].into()),
        binary_data: Some([("b".to_owned(), ByteString(vec![0, 1]))].into()),
        ..ConfigMap::default()
    };
    let secret = Secret {
        data: Some([("s".to_owned(), ByteString(b"t".to_vec()))].into()),
        ..Secret::default()
    };
    let absent = |message: &str| Missing { is_absent: true, message: message.to_owned() };
    gathered.config_maps.insert("cm".to_owned(), Ok(Arc::new(map)));
    let none = absent("configmap \"none\" not found");
    gathered.config_maps.insert("none".to_owned(), Err(none));
    gathered.secrets.insert("sec".to_owned(), Ok(Arc::new(secret)));
    gathered.secrets.insert("none".to_owned(), Err(absent("secret \"none\" not found")));
    gathered
}

/// Files as `path mode content`, or the fault.
fn held(volume: Value) -> Result<Vec<String>, String> {
    let Desired::Files { sources, .. } = desired(
        volume.clone(),
        json!({"spec": {"containers": [
        {"resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "1025"}}}]}}),
    ) else {
        panic!("{volume}");
    };
    let mut gathered = gathered();
    for source in &sources {
        if let Source::Token { ask, .. } = source {
            let token = Token { text: "T".to_owned(), expires: Timestamp::from_second(1) };
            gathered.tokens.insert(ask.clone(), Ok(token));
        }
    }
    let files = compute("v", &sources, &gathered).map_err(|fault| fault.message)?;
    let files = files.into_iter().map(|(path, file)| {
        let content = String::from_utf8_lossy(&file.content).into_owned();
        format!("{path} {:o} {content}", file.mode)
    });
    Ok(files.collect())
}

fn check_held(source: Value, expected: Result<&[&str], &str>) {
    let mut volume = source.clone();
    volume["name"] = json!("v");
    let expected = expected.map(|files| files.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(held(volume), expected.map_err(str::to_owned), "{source}");
}

#[test]
fn config_maps_and_secrets_become_files() {
    let map = |more: Value| {
        let mut source = json!({"name": "cm", "defaultMode": 0o644});
        super::merge(&mut source, more);
        json!({"configMap": source})
    };
    check_held(map(json!({})), Ok(&["b 644 \0\u{1}", "k 644 v", "l 644 w"]));
    check_held(
        map(
            json!({"items": [{"key": "k", "path": "x/y", "mode": 0o400}, {"key": "b", "path": "z"}]}),
        ),
        Ok(&["x/y 400 v", "z 644 \0\u{1}"]),
    );
    check_held(
        map(json!({"items": [{"key": "none", "path": "x"}]})),
        Err("configmap references non-existent config key: none"),
    );
    check_held(map(json!({"optional": true, "items": [{"key": "none", "path": "x"}]})), Ok(&[]));
    check_held(map(json!({"name": "none"})), Err("configmap \"none\" not found"));
    check_held(map(json!({"name": "none", "optional": true})), Ok(&[]));
    let secret = |more: Value| {
        let mut source = json!({"secretName": "sec", "defaultMode": 0o440});
        super::merge(&mut source, more);
        json!({"secret": source})
    };
    check_held(secret(json!({})), Ok(&["s 440 t"]));
    check_held(
        secret(json!({"items": [{"key": "none", "path": "x"}]})),
        Err("references non-existent secret key: none"),
    );
    check_held(secret(json!({"secretName": "none"})), Err("secret \"none\" not found"));
}

#[test]
fn paths_that_lead_out_or_overlap_are_refused() {
    let items = |paths: &[&str]| {
        let items: Vec<Value> =
            paths.iter().map(|path| json!({"key": "k", "path": path})).collect();
        json!({"configMap": {"name": "cm", "items": items}})
    };
    check_held(items(&["../x"]), Err("invalid path: must not contain '..': ../x"));
    check_held(items(&["/etc/x"]), Err("invalid path: must be relative path: /etc/x"));
    check_held(items(&["..data"]), Err("invalid path: must not start with '..': ..data"));
    check_held(items(&["a//b/"]), Ok(&["a/b 644 v"]));
    check_held(
        items(&["a", "a/b"]),
        Err("conflicting paths: a is a file and the directory of a/b"),
    );
}

#[test]
fn the_downward_api_becomes_files() {
    let field = |path: &str| json!({"path": "f", "fieldRef": {"fieldPath": path}});
    let resource = |resource: &str, divisor: &str| json!({"path": "f", "resourceFieldRef": {"containerName": "c", "resource": resource, "divisor": divisor}});
    let check = |item: Value, expected: Result<&str, &str>| {
        let expected = expected.map(|text| format!("f 644 {text}"));
        let files = expected.as_ref().map(|text| vec![text.as_str()]);
        let files = files.as_ref().map(Vec::as_slice).map_err(|fault| **fault);
        check_held(json!({"downwardAPI": {"items": [item]}}), files);
    };
    check(field("metadata.name"), Ok("p"));
    check(field("metadata.namespace"), Ok("default"));
    check(field("metadata.uid"), Ok("uid-1"));
    check(field("metadata.labels"), Ok("a=\"b\"\nk=\"say \\\"hi\\\"\""));
    check(field("metadata.annotations"), Ok("n=\"1\\n2\""));
    check(field("metadata.labels['a']"), Ok("b"));
    check(field("metadata.annotations['none']"), Ok(""));
    check(field("status.podIP"), Err("unsupported fieldPath: status.podIP"));
    check(field("spec.x['a']"), Err("fieldPath \"spec.x['a']\" does not support subscript"));
    check(resource("limits.cpu", "0"), Ok("2"));
    check(resource("limits.cpu", "1m"), Ok("1500"));
    check(resource("limits.memory", "1Mi"), Ok("4096"));
    check(resource("requests.memory", "1Ki"), Ok("2"));
    check(resource("requests.cpu", "1m"), Ok("0"));
    check(resource("limits.gpu", "1"), Err("unsupported container resource : limits.gpu"));
    let mut stranger = resource("limits.cpu", "1");
    stranger["resourceFieldRef"]["containerName"] = json!("x");
    check(stranger, Err("container x not found"));
}

#[test]
fn projected_sources_are_laid_over_each_other_in_order() {
    let check = |sources: Value, expected: Result<&[&str], &str>| {
        check_held(json!({"projected": {"defaultMode": 0o600, "sources": sources}}), expected);
    };
    let token = json!({"serviceAccountToken": {"path": "token"}});
    let map =
        |path: &str| json!({"configMap": {"name": "cm", "items": [{"key": "k", "path": path}]}});
    let secret =
        |path: &str| json!({"secret": {"name": "sec", "items": [{"key": "s", "path": path}]}});
    let down = json!({"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}});
    check(
        json!([token, map("ca.crt"), down]),
        Ok(&["ca.crt 600 v", "namespace 600 default", "token 600 T"]),
    );
    check(json!([map("x"), secret("x")]), Ok(&["x 600 t"]));
    check(json!([secret("x"), map("x")]), Ok(&["x 600 v"]));
    check(
        json!([{"configMap": {"name": "none"}}, {"secret": {"name": "none"}}]),
        Err("[configmap \"none\" not found, secret \"none\" not found]"),
    );
    check(
        json!([{"podCertificate": {"signerName": "x", "keyType": "ED25519"}}]),
        Err("credentials were not gathered"),
    );
    check(json!([{"configMap": {"name": "none", "optional": true}}]), Ok(&[]));
}

#[test]
fn objects_are_named_for_those_who_announce_changes() {
    let volume = json!({"name": "v", "projected": {"sources": [
        {"secret": {"name": "a"}}, {"configMap": {"name": "b"}}]}});
    let plan = plan_pod(&pod(json!([volume]), json!({})), &allocatable());
    let needs = crate::gather::needs_of(&plan.volumes);
    let expected = [(ObjectKind::ConfigMap, "b".to_owned()), (ObjectKind::Secret, "a".to_owned())];
    assert_eq!(needs.objects, expected.into());
}

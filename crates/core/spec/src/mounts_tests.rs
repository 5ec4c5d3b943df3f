use std::path::Path;

use ferrolet_node::NodeState;
use ferrolet_resources::QuotaMode;
use serde_json::{Value, json};

use super::*;
use crate::{EnvObjects, IdMapping, ImageUser, MountedImage, PluginResources, SpecSettings};

struct World {
    settings: SpecSettings,
    node: NodeState,
    objects: EnvObjects,
    volumes: BTreeMap<String, VolumeSource>,
    sub_paths: BTreeMap<usize, String>,
    pod_ips: Vec<String>,
    user_mappings: Vec<IdMapping>,
}

impl World {
    fn new() -> Self {
        let volume = |name: &str, source: VolumeSource| (name.to_owned(), source);
        let at =
            |path: &str| VolumeSource { host_path: path.to_owned(), ..VolumeSource::default() };
        Self {
            settings: SpecSettings::example(),
            node: NodeState::example(),
            objects: EnvObjects::default(),
            volumes: BTreeMap::from([
                volume("v", at("/v")),
                volume(
                    "ro",
                    VolumeSource {
                        is_read_only: true,
                        device: Some("/ro".to_owned()),
                        ..at("/ro")
                    },
                ),
                volume(
                    "img",
                    VolumeSource {
                        image: Some(MountedImage {
                            id: "i:1".to_owned(),
                            ..MountedImage::default()
                        }),
                        ..at("")
                    },
                ),
                volume("dev", VolumeSource { device: Some("/dev-link".to_owned()), ..at("") }),
            ]),
            sub_paths: BTreeMap::from([(0, "/prepared/0".to_owned())]),
            pod_ips: vec!["10.0.0.2".to_owned()],
            user_mappings: Vec::new(),
        }
    }

    fn inputs(&self) -> ContainerInputs<'_> {
        ContainerInputs {
            settings: &self.settings,
            node: &self.node,
            objects: &self.objects,
            volumes: &self.volumes,
            sub_paths: &self.sub_paths,
            restart_count: 0,
            n_left_behind: 0,
            crash_streak: 0,
            image_ref: String::new(),
            image_user: ImageUser::Id(0),
            pod_ips: &self.pod_ips,
            hosts_file: Some(Path::new("/hosts")),
            termination_log: Some(Path::new("/log")),
            target: None,
            user_mappings: &self.user_mappings,
            extra_groups: &[],
            supports_recursive_read_only: true,
            plugins: PluginResources::default(),
            quota: QuotaMode::Enforced,
        }
    }

    fn mounts(&self, pod: &Pod, mounts: Value) -> Result<Vec<Mount>, MountError> {
        let container =
            serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).unwrap();
        let env = [("A".to_owned(), "a".to_owned()), ("E".to_owned(), String::new())];
        container_mounts(pod, &container, &env, &self.inputs())
    }
}

fn text(mounts: &[Mount]) -> String {
    let line = |m: &Mount| {
        let flags =
            [(m.read_only, " ro"), (m.recursive_read_only, " rro"), (m.selinux_relabel, " z")];
        let flags: String = flags.iter().filter(|(on, _)| *on).map(|(_, flag)| *flag).collect();
        let image =
            m.image.iter().map(|i| format!("{}:{}", i.id, m.image_sub_path)).collect::<String>();
        format!("{}{image}>{}{flags}", m.host_path, m.container_path)
    };
    mounts.iter().map(line).collect::<Vec<_>>().join(", ")
}

fn check(mounts: Value, expected: &str) {
    let found = World::new().mounts(&Pod::default(), mounts).unwrap();
    assert_eq!(text(&found), expected);
}

fn refuse(mount: Value, message: &str) {
    let error = World::new().mounts(&Pod::default(), json!([mount])).unwrap_err();
    assert_eq!(error.to_string(), message);
}

const TAIL: &str = "/hosts>/etc/hosts, /log>/dev/termination-log";

#[test]
fn volumes_come_first_and_the_termination_log_last() {
    check(json!([]), TAIL);
    check(
        json!([{"name": "v", "mountPath": "/a", "readOnly": true}, {"name": "ro", "mountPath": "b"}]),
        &format!("/v>/a ro, /ro>/b ro, {TAIL}"),
    );
    check(
        json!([{"name": "v", "mountPath": "/etc/hosts"}]),
        "/v>/etc/hosts, /log>/dev/termination-log",
    );
    check(
        json!([{"name": "v", "mountPath": "/a", "readOnly": true, "recursiveReadOnly": "Enabled"}]),
        &format!("/v>/a ro rro, {TAIL}"),
    );
}

#[test]
fn sub_paths_are_prepared_by_the_caller_and_images_resolve_their_own() {
    check(
        json!([{"name": "v", "mountPath": "/a", "subPath": "x"}]),
        &format!("/prepared/0>/a, {TAIL}"),
    );
    check(
        json!([{"name": "img", "mountPath": "/a", "subPathExpr": "x/$(A)"}]),
        &format!("i:1:x/a>/a, {TAIL}"),
    );
    let container: Container = serde_json::from_value(json!({"name": "c", "volumeMounts": [
        {"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b", "subPathExpr": "$(A)/y"}]}))
    .unwrap();
    let env = [("A".to_owned(), "a".to_owned())];
    assert_eq!(sub_paths(&container, &env), Ok(BTreeMap::from([(1, "a/y".to_owned())])));
}

#[test]
fn impossible_mounts_are_refused_with_upstreams_texts() {
    let with = |key: &str, value: &str| json!({"name": "v", "mountPath": "/a", key: value});
    refuse(
        json!({"name": "x", "mountPath": "/a"}),
        "cannot find volume \"x\" to mount into container \"c\"",
    );
    refuse(with("subPathExpr", "$(E)/$(B)"), "missing value for B, E");
    refuse(with("subPath", "/x"), "error SubPath `/x` must not be an absolute path");
    refuse(
        with("subPath", "a/../b"),
        "unable to provision SubPath `a/../b`: must not contain '..'",
    );
    refuse(with("mountPropagation", "Odd"), "invalid MountPropagation mode: \"Odd\"");
    refuse(
        with("recursiveReadOnly", "Enabled"),
        "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it is not read-only",
    );
    let mut unprepared = World::new();
    unprepared.sub_paths.clear();
    let error = unprepared.mounts(&Pod::default(), json!([with("subPath", "x")])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to prepare subPath for volumeMount \"v\" of container \"c\""
    );
}

#[test]
fn the_hosts_file_needs_a_pod_with_a_name() {
    let mut world = World::new();
    world.pod_ips.clear();
    let hostless = "/log>/dev/termination-log";
    assert_eq!(text(&world.mounts(&Pod::default(), json!([])).unwrap()), hostless);
    let host =
        serde_json::from_value(json!({"spec": {"hostNetwork": true, "containers": []}})).unwrap();
    assert_eq!(text(&world.mounts(&host, json!([])).unwrap()), TAIL);
}

#[test]
fn labels_and_user_namespaces_reach_every_mount() {
    let mut world = World::new();
    world.settings.is_selinux_enabled = true;
    let ids = IdMapping { host_id: 65_536, container_id: 0, length: 65_536 };
    world.user_mappings = vec![ids];
    let found = world.mounts(&Pod::default(), json!([{"name": "v", "mountPath": "/a"}])).unwrap();
    assert_eq!(text(&found), "/v>/a, /hosts>/etc/hosts z, /log>/dev/termination-log z");
    assert!(found.iter().all(|m| m.uid_mappings == [ids] && m.gid_mappings == [ids]));
}

#[test]
fn block_volumes_become_devices() {
    let world = World::new();
    let devices = |list: Value| {
        let container =
            serde_json::from_value(json!({"name": "c", "volumeDevices": list})).unwrap();
        container_devices(&container, &world.inputs())
    };
    let found = devices(
        json!([{"name": "dev", "devicePath": "/dev/x"}, {"name": "ro", "devicePath": "/dev/y"}]),
    )
    .unwrap();
    let shown: Vec<String> = found
        .iter()
        .map(|d| format!("{}>{} {}", d.host_path, d.container_path, d.permissions))
        .collect();
    assert_eq!(shown, ["/dev-link>/dev/x mrw", "/ro>/dev/y r"]);
    let error = |list: Value| devices(list).unwrap_err().to_string();
    assert_eq!(
        error(json!([{"name": "v", "devicePath": "/dev/x"}])),
        "cannot find volume \"v\" to pass into container \"c\""
    );
    assert_eq!(
        error(json!([{"name": "dev", "devicePath": "x"}])),
        "error DevicePath `x` must be an absolute path"
    );
}

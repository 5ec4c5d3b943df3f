//! The engine on fakes, with paused time.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{
    ApiErrorKind, Clock, EmptyDir, PathKind, PodVolumes as _, Retry, SubPath, VolumePlace,
};
use ferrolet_rare_volumes::{Attaching, RareDoors, Settings, plugins};
use ferrolet_testkit::{
    FakeDrivers, FakeFlex, FakeMounts, FakeObjects, FakeStorage, FakeVolumeFiles, World,
};
use ferrolet_types::{Pod, PodUid};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{allocatable, pod};
use crate::{Doors, ProjectionGates, SelinuxNode, VolumeEngine};

pub(super) struct Bench {
    pub(super) world: World,
    pub(super) files: FakeVolumeFiles,
    pub(super) mounts: FakeMounts,
    pub(super) drivers: FakeDrivers,
    pub(super) flex: FakeFlex,
    pub(super) storage: FakeStorage,
    pub(super) objects: FakeObjects,
    pub(super) engine: Arc<VolumeEngine>,
    became_ready: mpsc::Receiver<PodUid>,
    refresh: JoinHandle<()>,
}

const ALL_GATES: ProjectionGates = ProjectionGates { trust_bundles: true, pod_certificates: true };

/// What is outside the agent and outlives it.
type Outside = (FakeMounts, FakeStorage, FakeDrivers, FakeFlex);

impl Bench {
    pub(super) fn new() -> Self {
        let world = World::new();
        let clock: Arc<dyn Clock> = world.clock();
        Self::on(world, FakeVolumeFiles::default(), FakeObjects::new(clock))
    }

    /// On a node whose gates are closed or open like this.
    pub(super) fn gated(projections: ProjectionGates) -> Self {
        let plain = Self::new();
        Self::whole(plain.world.clone(), plain.inside(), plain.outside(), (None, projections))
    }

    /// On a node with SELinux.
    pub(super) fn labelling() -> Self {
        let plain = Self::new();
        let selinux = SelinuxNode {
            file_label: "system_u:object_r:container_file_t:s0".to_owned(),
            is_for_all_modes: true,
        };
        let node = (Some(selinux), ALL_GATES);
        Self::whole(plain.world.clone(), plain.inside(), plain.outside(), node)
    }

    fn inside(&self) -> (FakeVolumeFiles, FakeObjects) {
        (self.files.clone(), self.objects.clone())
    }

    fn outside(&self) -> Outside {
        (self.mounts.clone(), self.storage.clone(), self.drivers.clone(), self.flex.clone())
    }

    fn on(world: World, files: FakeVolumeFiles, objects: FakeObjects) -> Self {
        let (mounts, storage) = (FakeMounts::default(), FakeStorage::default());
        let drivers = FakeDrivers::on(mounts.clone());
        let flex = FakeFlex::on(mounts.clone());
        files.beside(&mounts);
        let outside = (mounts, storage, drivers, flex);
        Self::whole(world, (files, objects), outside, (None, ALL_GATES))
    }

    /// The same node after the agent was killed.
    pub(super) fn again(&self) -> Self {
        Self::whole(self.world.clone(), self.inside(), self.outside(), (None, ALL_GATES))
    }

    fn whole(
        world: World,
        (files, objects): (FakeVolumeFiles, FakeObjects),
        (mounts, storage, drivers, flex): Outside,
        (selinux, projections): (Option<SelinuxNode>, ProjectionGates),
    ) -> Self {
        let (sender, became_ready) = mpsc::channel(8);
        let rare = RareDoors {
            files: Arc::new(files.clone()),
            mounts: Arc::new(mounts.clone()),
            flex: Arc::new(flex.clone()),
            storage: Some(Arc::new(storage.clone())),
            settings: Settings { attaching: Attaching::ByController, node_name: "node".to_owned() },
        };
        let engine = Arc::new(VolumeEngine::new(Doors {
            files: Arc::new(files.clone()),
            mounts: Arc::new(mounts.clone()),
            storage: Some(Arc::new(storage.clone())),
            drivers: Arc::new(drivers.clone()),
            plugins: plugins(rare),
            node_name: "node".to_owned(),
            objects: Some(Arc::new(objects.clone())),
            clock: world.clock(),
            events: world.events(),
            allocatable: allocatable(),
            meters_volumes: true,
            projections,
            selinux,
            look_again: None,
            became_ready: Some(sender),
        }));
        let refresh = tokio::spawn(Arc::clone(&engine).refresh(objects.changes()));
        Self {
            world,
            files,
            mounts,
            drivers,
            flex,
            storage,
            objects,
            engine,
            became_ready,
            refresh,
        }
    }

    /// Has everything taken away that nobody has, of these drivers and of whoever needs none.
    pub(super) async fn sweep(&self, drivers: &[&str]) {
        let drivers = drivers.iter().map(|it| (*it).to_owned()).collect();
        for plugin in &self.engine.plugins {
            self.engine.sweep(plugin.as_ref(), &drivers).await;
        }
    }

    pub(super) async fn refusal(&self, pod: &Pod) -> String {
        let error = self.engine.ensure(pod).await.unwrap_err();
        assert_eq!(error.reason, "FailedMount");
        error.message
    }

    fn failed_mounts(&self) -> Vec<String> {
        let events = self.world.recorded_events().into_iter();
        let failed = events.filter(|(_, event)| event.reason == "FailedMount");
        failed.map(|(_, event)| event.message).collect()
    }
}

fn token_volume() -> Value {
    json!({"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})
}

#[tokio::test(start_paused = true)]
async fn volumes_are_ready_where_upstream_has_them() {
    let bench = Bench::new();
    bench.objects.set_config_map("cm", Some(&[("k", "v")]));
    let pod = pod(
        json!([
            {"name": "e", "emptyDir": {}},
            {"name": "h", "hostPath": {"path": "/opt", "type": ""}},
            {"name": "c", "configMap": {"name": "cm"}},
            token_volume(),
        ]),
        json!({}),
    );
    let mounts = bench.engine.ensure(&pod).await.unwrap();
    let root = ferrolet_testkit::ROOT_DIRECTORY;
    let below = |plugin: &str| format!("{root}/pods/uid-1/volumes/kubernetes.io~{plugin}");
    let facts: Vec<_> = mounts
        .iter()
        .map(|(name, it)| {
            (name.as_str(), it.host_path.clone(), it.is_read_only, it.selinux_relabel)
        })
        .collect();
    assert_eq!(
        facts,
        [
            ("c", below("configmap") + "/c", true, true),
            ("e", below("empty-dir") + "/e", false, true),
            ("h", "/opt".to_owned(), false, false),
            ("t", below("projected") + "/t", true, true),
        ]
    );
    let disk = bench.files.look();
    let markers: Vec<&str> = disk.empty_dirs.values().map(|room| room.marker.as_str()).collect();
    assert_eq!(markers, ["wrapped_c", "e", "wrapped_t"]);
    assert_eq!(bench.files.text("t", "token").unwrap(), "token-1");

    bench.engine.ensure(&pod).await.unwrap();
    assert_eq!(bench.files.look().n_writes, 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_or_wrong_is_said_in_upstreams_words() {
    let bench = Bench::new();
    bench.files.change(|disk| {
        disk.paths.insert("/etc/hostname".to_owned(), PathKind::File);
    });
    let check = async |volume: Value, message: &str| {
        assert_eq!(bench.refusal(&pod(json!([volume]), json!({}))).await, message);
    };
    check(
        json!({"name": "v", "configMap": {"name": "none"}}),
        "MountVolume.SetUp failed for volume \"v\" : configmap \"none\" not found",
    )
    .await;
    check(
        json!({"name": "v", "secret": {"secretName": "none"}}),
        "MountVolume.SetUp failed for volume \"v\" : secret \"none\" not found",
    )
    .await;
    check(
        json!({"name": "v", "hostPath": {"path": "/etc/hostname", "type": "Directory"}}),
        "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: /etc/hostname is not a directory, it's a File",
    )
    .await;
    check(
        json!({"name": "v", "persistentVolumeClaim": {"claimName": "none"}}),
        "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: error processing PVC default/none: failed to fetch PVC from API server: persistentvolumeclaims \"none\" not found",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_fails_does_not_keep_its_neighbours_from_being_ready() {
    let bench = Bench::new();
    let pod = pod(
        json!([{"name": "a", "configMap": {"name": "none"}}, {"name": "b", "emptyDir": {}}]),
        json!({}),
    );
    bench.refusal(&pod).await;
    assert_eq!(bench.files.look().empty_dirs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_several_volumes_that_fail_the_first_is_answered_and_the_others_are_told() {
    let bench = Bench::new();
    let volumes = json!([
        {"name": "a", "configMap": {"name": "none"}},
        {"name": "b", "secret": {"secretName": "none"}},
    ]);
    let refusal = bench.refusal(&pod(volumes, json!({}))).await;
    let failed = |volume: &str, what: &str| {
        format!("MountVolume.SetUp failed for volume {volume:?} : {what} \"none\" not found")
    };
    assert_eq!(refusal, failed("a", "configmap"));
    let told = bench.world.recorded_events().into_iter();
    let told: Vec<String> = told.map(|(_, event)| event.message).collect();
    assert_eq!(told, [failed("b", "secret")]);
}

#[tokio::test(start_paused = true)]
async fn missing_host_paths_are_made_when_asked_for() {
    let bench = Bench::new();
    let volumes = json!([
        {"name": "d", "hostPath": {"path": "/new", "type": "DirectoryOrCreate"}},
        {"name": "f", "hostPath": {"path": "/new-file", "type": "FileOrCreate"}},
    ]);
    bench.engine.ensure(&pod(volumes, json!({}))).await.unwrap();
    let paths = bench.files.look().paths;
    assert_eq!(paths["/new"], PathKind::Directory);
    assert_eq!(paths["/new-file"], PathKind::File);
}

#[tokio::test(start_paused = true)]
async fn a_changed_object_reaches_running_pods_and_only_those_that_use_it() {
    let bench = Bench::new();
    bench.objects.set_config_map("cm", Some(&[("k", "old")]));
    bench.objects.set_secret("other", Some(&[("s", "1")]));
    let volumes = json!([
        {"name": "c", "configMap": {"name": "cm"}},
        {"name": "s", "secret": {"secretName": "other"}},
    ]);
    bench.engine.ensure(&pod(volumes, json!({}))).await.unwrap();
    bench.objects.set_config_map("cm", Some(&[("k", "new")]));
    bench.files.until(|disk| disk.n_writes == 3).await;
    assert_eq!(bench.files.text("c", "k").unwrap(), "new");
    bench.objects.set_secret("other", Some(&[("s", "2")]));
    bench.files.until(|disk| disk.n_writes == 4).await;
    assert_eq!(bench.files.text("s", "s").unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_an_object_hears_when_it_is_there() {
    let mut bench = Bench::new();
    let pod = pod(json!([{"name": "c", "configMap": {"name": "late"}}]), json!({}));
    bench.refusal(&pod).await;
    bench.objects.set_config_map("late", Some(&[("k", "v")]));
    assert_eq!(bench.became_ready.recv().await.unwrap().as_str(), "uid-1");
    bench.engine.ensure(&pod).await.unwrap();
    assert_eq!(bench.failed_mounts(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn tokens_are_renewed_before_they_expire() {
    let bench = Bench::new();
    bench.engine.ensure(&pod(json!([token_volume()]), json!({}))).await.unwrap();
    let began = tokio::time::Instant::now();
    bench.files.until(|disk| disk.n_writes == 2).await;
    assert_eq!(bench.files.text("t", "token").unwrap(), "token-2");
    assert_eq!(began.elapsed().as_secs(), 2881);
    bench.files.until(|disk| disk.n_writes == 3).await;
    assert_eq!(began.elapsed().as_secs(), 2 * 2881);
}

#[tokio::test(start_paused = true)]
async fn an_outage_leaves_running_volumes_alone_and_is_tried_again() {
    let bench = Bench::new();
    bench.engine.ensure(&pod(json!([token_volume()]), json!({}))).await.unwrap();
    bench.objects.set_outage(Some(ApiErrorKind::Unavailable));
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert_eq!(bench.files.text("t", "token").unwrap(), "token-1");
    let failed = bench.failed_mounts();
    assert_eq!(
        failed[0],
        "MountVolume.SetUp failed for volume \"t\" : failed to fetch token: the API server is away"
    );
    assert!(failed.len() < 12, "{}", failed.len());
    bench.objects.set_outage(None);
    bench.files.until(|disk| disk.n_writes == 2).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_goes_is_said_once_and_its_files_stay() {
    let bench = Bench::new();
    bench.objects.set_config_map("cm", Some(&[("k", "v")]));
    let volumes = json!([{"name": "c", "configMap": {"name": "cm"}}]);
    bench.engine.ensure(&pod(volumes, json!({}))).await.unwrap();
    bench.objects.set_config_map("cm", None);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bench.failed_mounts().len(), 1);
    assert_eq!(bench.files.text("c", "k").unwrap(), "v");
}

#[tokio::test(start_paused = true)]
async fn changed_labels_reach_the_downward_api_with_the_next_ensure() {
    let bench = Bench::new();
    let volumes = json!([{"name": "d", "downwardAPI": {"items": [
        {"path": "l", "fieldRef": {"fieldPath": "metadata.labels['a']"}}]}}]);
    bench.engine.ensure(&pod(volumes.clone(), json!({}))).await.unwrap();
    let changed = pod(volumes, json!({"metadata": {"labels": {"a": "c"}}}));
    bench.engine.ensure(&changed).await.unwrap();
    assert_eq!(bench.files.text("d", "l").unwrap(), "c");
}

#[tokio::test(start_paused = true)]
async fn release_takes_everything_away_and_ends_refreshing() {
    let bench = Bench::new();
    bench.objects.set_config_map("cm", Some(&[("k", "v")]));
    let volumes = json!([{"name": "c", "configMap": {"name": "cm"}}, token_volume()]);
    let pod = pod(volumes, json!({}));
    let mounts = bench.engine.ensure(&pod).await.unwrap();
    let part = SubPath {
        uid: PodUid::new("uid-1"),
        volume: "c".to_owned(),
        host_path: mounts["c"].host_path.clone(),
        container: "c".to_owned(),
        index: 0,
        path: "k".to_owned(),
        is_read_only: true,
    };
    let place = bench.engine.sub_path(&part).await.unwrap();
    assert!(place.ends_with("/pods/uid-1/volume-subpaths/c/c/0"), "{place}");
    assert_eq!(bench.objects.registered().len(), 1);

    bench.engine.release(&PodUid::new("uid-1")).await.unwrap();
    let disk = bench.files.look();
    assert!(disk.empty_dirs.is_empty() && disk.sub_paths.is_empty());
    assert_eq!(bench.objects.registered().len(), 0);
    bench.objects.set_config_map("cm", Some(&[("k", "w")]));
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert!(bench.files.look().empty_dirs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_release_needs_no_memory_and_ensure_writes_nothing_twice() {
    let first = Bench::new();
    first.objects.set_config_map("cm", Some(&[("k", "v")]));
    let pod = pod(
        json!([{"name": "c", "configMap": {"name": "cm"}}, {"name": "e", "emptyDir": {}}]),
        json!({}),
    );
    first.engine.ensure(&pod).await.unwrap();
    first.refresh.abort();
    let second = Bench::on(first.world, first.files, first.objects);
    second.engine.ensure(&pod).await.unwrap();
    assert_eq!(second.files.look().n_writes, 1);
    second.refresh.abort();
    let third = Bench::on(second.world, second.files, second.objects);
    third.engine.release(&PodUid::new("uid-1")).await.unwrap();
    assert!(third.files.look().empty_dirs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn only_what_a_pod_cannot_take_out_of_the_account_is_kept_account_of() {
    for (host_users, expected) in [(Some(false), true), (Some(true), false), (None, false)] {
        let bench = Bench::new();
        bench.objects.set_config_map("cm", Some(&[("k", "v")]));
        let pod = pod(
            json!([{"name": "e", "emptyDir": {}}, {"name": "c", "configMap": {"name": "cm"}}]),
            json!({"spec": {"hostUsers": host_users}}),
        );
        bench.engine.ensure(&pod).await.unwrap();
        let empty_dirs = bench.files.look().empty_dirs;
        let metered: Vec<(&str, bool)> =
            empty_dirs.iter().map(|(place, room)| (place.name.as_str(), room.is_metered)).collect();
        assert_eq!(metered, [("c", false), ("e", expected)], "{host_users:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn volumes_of_plugins_we_do_not_know_are_never_deleted() {
    let bench = Bench::new();
    let place = VolumePlace {
        uid: PodUid::new("uid-1"),
        plugin: "kubernetes.io~rbd".to_owned(),
        name: "pv".to_owned(),
    };
    bench.files.change(|disk| {
        let room = EmptyDir {
            marker: String::new(),
            medium: ferrolet_ports::Medium::Disk,
            group: None,
            is_metered: false,
            mode: EmptyDir::OPEN_TO_ALL,
        };
        disk.empty_dirs.insert(place.clone(), room);
    });
    let error = bench.engine.release(&PodUid::new("uid-1")).await.unwrap_err();
    assert_eq!(error.retry, Retry::Later);
    assert!(error.message.contains("kubernetes.io/rbd"), "{}", error.message);
    assert!(bench.files.look().empty_dirs.contains_key(&place));
}

#[tokio::test(start_paused = true)]
async fn a_sub_path_that_is_refused_tells_nothing_about_the_node() {
    let bench = Bench::new();
    bench.files.change(|disk| {
        disk.broken.insert("v".to_owned(), "/secret/place is a link".to_owned());
    });
    let part = SubPath {
        uid: PodUid::new("uid-1"),
        volume: "v".to_owned(),
        host_path: "/x".to_owned(),
        container: "c".to_owned(),
        index: 0,
        path: "k".to_owned(),
        is_read_only: false,
    };
    let error = bench.engine.sub_path(&part).await.unwrap_err();
    let expected = "failed to prepare subPath for volumeMount \"v\" of container \"c\"";
    assert_eq!(error.message, expected);
}

/// An engine without a cluster.
pub(super) fn alone(mounts: FakeMounts, flex: FakeFlex) -> VolumeEngine {
    let world = World::new();
    let files = FakeVolumeFiles::default();
    files.beside(&mounts);
    let rare = RareDoors {
        files: Arc::new(files.clone()),
        mounts: Arc::new(mounts.clone()),
        flex: Arc::new(flex),
        storage: None,
        settings: Settings { attaching: Attaching::Ourselves, node_name: "node".to_owned() },
    };
    VolumeEngine::new(Doors {
        files: Arc::new(files),
        mounts: Arc::new(mounts),
        storage: None,
        drivers: Arc::new(FakeDrivers::default()),
        plugins: plugins(rare),
        node_name: "node".to_owned(),
        objects: None,
        clock: world.clock(),
        events: world.events(),
        allocatable: allocatable(),
        meters_volumes: false,
        projections: ALL_GATES,
        selinux: None,
        look_again: None,
        became_ready: None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_node_on_its_own_says_so() {
    let engine = alone(FakeMounts::default(), FakeFlex::default());
    let volumes = json!([{"name": "v", "configMap": {"name": "cm"}}]);
    let error = engine.ensure(&pod(volumes, json!({}))).await.unwrap_err();
    assert_eq!(
        error.message,
        "MountVolume.SetUp failed for volume \"v\" : not supported due to running kubelet in standalone mode"
    );
    let down = json!([{"name": "v", "projected": {"sources": [{"downwardAPI": {"items": [
        {"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}]);
    engine.ensure(&pod(down, json!({}))).await.unwrap();
}

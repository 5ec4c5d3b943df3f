use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use ferrolet_linux::{
    cgroups::{CgroupLayout, Hierarchy},
    mountinfo,
    testing::skip,
};
use ferrolet_ports::{
    CgroupDriver, Fut, HostError, NodeCgroups as _, PodCgroups, Retry, Slice, SliceProperty, Slices,
};
use ferrolet_resources::{
    CgroupLimits, ClassBounds, NodeCgroup, NodeCgroupPlace, PodCgroup, ReservedCgroup,
    ReservedScope,
};
use ferrolet_types::{PodUid, Qos};
use tempfile::TempDir;

use super::*;
use crate::contract;

const NONE: CgroupLimits = CgroupLimits::NONE;

fn pod(uid: &str, qos: Qos, limits: CgroupLimits) -> PodCgroup {
    PodCgroup { uid: PodUid::from(uid), qos, limits, huge_pages: Default::default() }
}

/// Burstable pods that weigh this much.
fn weighing(shares: u64) -> ClassBounds {
    let burstable = CgroupLimits { cpu_shares: Some(shares), ..NONE };
    ClassBounds { burstable, ..ClassBounds::default() }
}

/// The same, with memory that is theirs.
fn reserving(shares: u64) -> ClassBounds {
    let mut bounds = weighing(shares);
    bounds.all.memory_min = Some(3 << 20);
    bounds.all.memory_low = Some(1 << 20);
    bounds.burstable.memory_low = Some(1 << 20);
    bounds
}

/// Plain files in place of a kernel: a directory must be given its control files before they can be
/// written.
#[derive(Debug)]
struct Fake {
    held: TempDir,
    layout: CgroupLayout,
}

impl Fake {
    fn v1() -> Self {
        let held = TempDir::new().unwrap();
        let hierarchies: Vec<Hierarchy> = ["cpu,cpuacct", "cpuset", "memory", "pids", "freezer"]
            .iter()
            .map(|names| Hierarchy {
                controllers: names.split(',').map(str::to_owned).collect(),
                mount: held.path().join(names),
            })
            .collect();
        for hierarchy in &hierarchies {
            fs::create_dir(&hierarchy.mount).unwrap();
        }
        let layout = CgroupLayout::V1 { hierarchies, unified: None };
        let fake = Self { held, layout };
        fake.give("cpuset", &[("cpuset.cpus", "0-1\n"), ("cpuset.mems", "0\n")]);
        fake
    }

    fn v2() -> Self {
        let held = TempDir::new().unwrap();
        let layout = CgroupLayout::V2 { mount: held.path().join("v2") };
        let fake = Self { held, layout };
        fake.give_v2("v2");
        fake
    }

    /// Puts files into a cgroup, making it.
    fn give(&self, cgroup: &str, files: &[(&str, &str)]) {
        let directory = self.held.path().join(cgroup);
        fs::create_dir_all(&directory).unwrap();
        for (file, text) in files {
            fs::write(directory.join(file), text).unwrap();
        }
    }

    fn give_v1(&self, name: &str) {
        for (hierarchy, files) in [
            ("cpu,cpuacct", &["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"][..]),
            ("cpuset", &["cpuset.cpus", "cpuset.mems"]),
            ("memory", &["memory.limit_in_bytes"]),
            ("pids", &["pids.max"]),
        ] {
            let empty: Vec<(&str, &str)> = files.iter().map(|file| (*file, "")).collect();
            self.give(&format!("{hierarchy}/{name}"), &empty);
        }
    }

    fn give_v2(&self, path: &str) {
        self.give(
            path,
            &[
                ("cgroup.controllers", "cpuset cpu io memory pids rdma\n"),
                ("cgroup.subtree_control", "memory\n"),
                ("cpu.weight", ""),
                ("cpu.max", ""),
                ("memory.max", ""),
                ("memory.min", ""),
                ("memory.low", ""),
                ("memory.high", ""),
                ("pids.max", ""),
            ],
        );
    }

    fn shown(&self, path: &str) -> String {
        fs::read_to_string(self.held.path().join(path)).unwrap()
    }

    fn tree(&self) -> CgroupTree {
        self.tree_at("/")
    }

    fn tree_at(&self, root: &str) -> CgroupTree {
        CgroupTree::new(CgroupTreeSettings {
            root: root.to_owned(),
            per_qos: true,
            driver: CgroupDriver::Cgroupfs,
            layout: self.layout.clone(),
            slices: None,
        })
        .unwrap()
    }
}

#[tokio::test]
async fn on_v1_the_nodes_cgroups_get_upstreams_values() {
    let fake = Fake::v1();
    for name in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
        fake.give_v1(name);
    }
    let tree = fake.tree();
    let limits = CgroupLimits {
        cpu_shares: Some(2048),
        memory: Some(25_274_793_984),
        pids: Some(32_768),
        ..NONE
    };
    let bounds = ClassBounds { all: limits, ..ClassBounds::default() };
    tree.ensure_node(bounds).await.unwrap();
    tree.bound_classes(weighing(102)).await.unwrap();
    for (file, text) in [
        ("cpu,cpuacct/kubepods/cpu.shares", "2048"),
        ("cpu,cpuacct/kubepods/cpu.cfs_quota_us", ""),
        ("memory/kubepods/memory.limit_in_bytes", "25274793984"),
        ("pids/kubepods/pids.max", "32768"),
        ("cpuset/kubepods/cpuset.cpus", "0-1"),
        ("cpuset/kubepods/cpuset.mems", "0"),
        ("cpuset/kubepods/besteffort/cpuset.cpus", "0-1"),
        ("cpu,cpuacct/kubepods/besteffort/cpu.shares", "2"),
        ("cpu,cpuacct/kubepods/burstable/cpu.shares", "102"),
        ("memory/kubepods/burstable/memory.limit_in_bytes", ""),
    ] {
        assert_eq!(fake.shown(file), text, "{file}");
    }
}

#[tokio::test]
async fn on_v1_a_pod_stands_in_every_hierarchy_with_its_bounds() {
    let fake = Fake::v1();
    for name in ["kubepods", "kubepods/podg", "kubepods/burstable", "kubepods/burstable/podb"] {
        fake.give_v1(name);
    }
    let tree = fake.tree();
    let bounds = CgroupLimits {
        cpu_shares: Some(204),
        cpu_quota: Some(20_000),
        cpu_period: Some(100_000),
        memory: Some(50_331_648),
        pids: Some(10),
        ..NONE
    };
    let (guaranteed, burstable) =
        (pod("g", Qos::Guaranteed, bounds), pod("b", Qos::Burstable, NONE));
    assert_eq!(tree.parent_of(&guaranteed), "/kubepods/podg");
    assert_eq!(tree.parent_of(&burstable), "/kubepods/burstable/podb");
    for _ in 0..2 {
        tree.ensure(&guaranteed).await.unwrap();
        tree.ensure(&burstable).await.unwrap();
    }
    for (file, text) in [
        ("cpu,cpuacct/kubepods/podg/cpu.shares", "204"),
        ("cpu,cpuacct/kubepods/podg/cpu.cfs_quota_us", "20000"),
        ("cpu,cpuacct/kubepods/podg/cpu.cfs_period_us", "100000"),
        ("memory/kubepods/podg/memory.limit_in_bytes", "50331648"),
        ("pids/kubepods/podg/pids.max", "10"),
        ("cpuset/kubepods/podg/cpuset.cpus", "0-1"),
        ("memory/kubepods/burstable/podb/memory.limit_in_bytes", ""),
    ] {
        assert_eq!(fake.shown(file), text, "{file}");
    }
    assert!(fake.held.path().join("freezer/kubepods/podg").is_dir());
    assert!(tree.exists(&guaranteed).await.unwrap());
    assert_eq!(tree.list().await.unwrap(), ["b", "g"].map(PodUid::from).to_vec());
}

#[tokio::test]
async fn existence_counts_only_the_hierarchies_that_upstream_counts() {
    let fake = Fake::v1();
    for hierarchy in ["cpu,cpuacct", "cpuset", "memory", "pids"] {
        fake.give(&format!("{hierarchy}/kubepods/podg"), &[]);
    }
    let guaranteed = pod("g", Qos::Guaranteed, NONE);
    assert!(fake.tree().exists(&guaranteed).await.unwrap(), "freezer does not count");
    fs::remove_dir(fake.held.path().join("memory/kubepods/podg")).unwrap();
    assert!(!fake.tree().exists(&guaranteed).await.unwrap());
    assert_eq!(
        fake.tree().list().await.unwrap(),
        [PodUid::from("g")],
        "a part that is left is still listed"
    );
}

#[tokio::test]
async fn on_v2_controllers_are_enabled_on_the_way_down_and_bounds_written() {
    let fake = Fake::v2();
    for path in [
        "v2/mine",
        "v2/mine/kubepods",
        "v2/mine/kubepods/burstable",
        "v2/mine/kubepods/besteffort",
        "v2/mine/kubepods/burstable/podb",
    ] {
        fake.give_v2(path);
    }
    let tree = fake.tree_at("/mine");
    tree.ensure_node(ClassBounds::default()).await.unwrap();
    tree.bound_classes(reserving(1024)).await.unwrap();
    let bounds = CgroupLimits {
        cpu_shares: Some(1024),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        memory: Some(1 << 20),
        pids: Some(-1),
        memory_low: Some(4096),
        memory_high: Some(8192),
        ..NONE
    };
    let burstable = pod("b", Qos::Burstable, bounds);
    tree.ensure(&burstable).await.unwrap();
    assert_eq!(tree.parent_of(&burstable), "/mine/kubepods/burstable/podb");
    // Only what is missing is asked for, and only what pods can need.
    for path in ["v2", "v2/mine", "v2/mine/kubepods", "v2/mine/kubepods/burstable"] {
        let asked = fake.shown(&format!("{path}/cgroup.subtree_control"));
        assert!(asked.contains("+cpu") && !asked.contains("rdma"), "{path}: {asked}");
    }
    let leaf = "v2/mine/kubepods/burstable/podb";
    assert_eq!(fake.shown(&format!("{leaf}/cgroup.subtree_control")), "memory\n");
    for (file, text) in [
        ("cpu.weight", "39"),
        ("cpu.max", "50000 100000"),
        ("memory.max", "1048576"),
        ("memory.min", ""),
        ("memory.low", "4096"),
        ("memory.high", "8192"),
        ("pids.max", "max"),
    ] {
        assert_eq!(fake.shown(&format!("{leaf}/{file}")), text, "{file}");
    }
    for (file, text) in [
        ("memory.min", "3145728"),
        ("memory.low", "1048576"),
        ("burstable/memory.min", ""),
        ("burstable/memory.low", "1048576"),
    ] {
        let shown = fake.shown(&format!("v2/mine/kubepods/{file}"));
        assert_eq!(shown, text, "{file}");
    }
    assert_eq!(fake.shown("v2/mine/kubepods/besteffort/cpu.weight"), "1");
    assert_eq!(fake.shown("v2/mine/kubepods/burstable/cpu.weight"), "39");
    assert!(tree.exists(&burstable).await.unwrap());
    fake.give(leaf, &[("cgroup.controllers", "cpu memory\n")]);
    assert!(!tree.exists(&burstable).await.unwrap(), "a controller is missing");
}

#[tokio::test]
async fn removal_finds_the_pod_in_any_class_and_absent_is_success() {
    for fake in [Fake::v1(), Fake::v2()] {
        let tops: Vec<PathBuf> =
            fs::read_dir(fake.held.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        for top in &tops {
            for name in ["podx", "besteffort/podx/container/inner", "burstable/pody"] {
                fs::create_dir_all(top.join("kubepods").join(name)).unwrap();
            }
        }
        let tree = fake.tree();
        let gone = PodUid::from("x");
        tree.remove(&gone).await.unwrap();
        tree.remove(&gone).await.unwrap();
        for top in &tops {
            let kubepods = top.join("kubepods");
            assert!(!kubepods.join("podx").exists());
            assert!(!kubepods.join("besteffort/podx").exists());
            assert!(kubepods.join("burstable/pody").exists());
        }
        assert_eq!(tree.list().await.unwrap(), [PodUid::from("y")]);
    }
}

#[tokio::test]
async fn a_uid_cannot_name_a_place_outside_of_kubepods() {
    let fake = Fake::v1();
    fake.give("memory/kubepods", &[]);
    fake.give("memory/victim/child", &[]);
    let tree = fake.tree();
    for uid in ["", "/../../victim", "x/../../../victim", "a/b", "a_b", "a\0"] {
        let error = tree.remove(&PodUid::from(uid)).await.unwrap_err();
        assert_eq!(error.retry, Retry::Never, "{uid}");
        let error = tree.ensure(&pod(uid, Qos::Guaranteed, NONE)).await.unwrap_err();
        assert_eq!(error.retry, Retry::Never, "{uid}");
    }
    assert!(fake.held.path().join("memory/victim/child").exists());
    symlink(
        fake.held.path().join("memory/victim"),
        fake.held.path().join("memory/kubepods/podlink"),
    )
    .unwrap();
    assert!(tree.remove(&PodUid::from("link")).await.is_err());
    assert!(fake.held.path().join("memory/victim/child").exists());
}

#[tokio::test]
async fn a_root_that_does_not_exist_is_told_and_not_made() {
    let fake = Fake::v1();
    let error = fake.tree_at("/absent").ensure_node(ClassBounds::default()).await.unwrap_err();
    assert!(error.attempt.contains("/absent"), "{error}");
    assert!(!fake.held.path().join("memory/absent").exists());
}

#[tokio::test]
async fn without_classes_nothing_is_made_and_the_runtime_chooses() {
    let fake = Fake::v1();
    let tree = CgroupTree::new(CgroupTreeSettings {
        root: String::new(),
        per_qos: false,
        driver: CgroupDriver::Cgroupfs,
        layout: fake.layout.clone(),
        slices: None,
    })
    .unwrap();
    let any = pod("x", Qos::Guaranteed, NONE);
    assert_eq!(tree.parent_of(&any), "");
    tree.ensure_node(ClassBounds::default()).await.unwrap();
    tree.ensure(&any).await.unwrap();
    tree.remove(&any.uid).await.unwrap();
    assert!(tree.exists(&any).await.unwrap());
    assert!(tree.list().await.unwrap().is_empty());
    assert!(!fake.held.path().join("memory/kubepods").exists());
}

#[test]
fn the_systemd_driver_needs_somebody_who_makes_slices() {
    let error = CgroupTree::new(CgroupTreeSettings {
        root: "/".to_owned(),
        per_qos: true,
        driver: CgroupDriver::Systemd,
        layout: CgroupLayout::V2 { mount: "/sys/fs/cgroup".into() },
        slices: None,
    })
    .unwrap_err();
    assert_eq!(error, CgroupTreeError::NobodyMakesSlices);
}

fn private_root(label: &str) -> String {
    format!("ferrolet-hosttest-{label}-{}", std::process::id())
}

fn keeps(outcome: Result<(), contract::Broken>) {
    match outcome {
        Ok(()) => {}
        Err(contract::Broken::Root { path, source }) => {
            skip(&format!("no cgroup of our own at {}: {source}", path.display()));
        }
        Err(broken) => panic!("{broken}: {:?}", std::error::Error::source(&broken)),
    }
}

#[tokio::test]
async fn the_kernels_own_hierarchies_keep_the_contract() {
    let mounts = mountinfo::read().unwrap();
    match CgroupLayout::detect(&mounts) {
        Ok(layout) => keeps(contract::cgroups(layout, &private_root("all")).await),
        Err(error) => {
            skip(&format!("no cgroups: {error}"));
            assert!(!Path::new("/sys/fs/cgroup/cgroup.controllers").exists());
        }
    }
}

#[tokio::test]
async fn the_tree_beside_v1_is_swept_the_way_of_v2() {
    let mounts = mountinfo::read().unwrap();
    // Without controllers, but with cgroup.kill and cgroup.events: the parts of v2 that a hybrid
    // machine can show.
    if let Ok(CgroupLayout::V1 { unified: Some(mount), .. }) = CgroupLayout::detect(&mounts) {
        let layout = CgroupLayout::V2 { mount };
        keeps(contract::cgroup_removal(layout, &private_root("v2")).await);
    } else {
        skip("no v2 tree beside v1");
    }
}

#[tokio::test]
async fn a_bound_whose_controller_is_missing_is_told_by_name() {
    let fake = Fake::v2();
    for path in ["v2/kubepods", "v2/kubepods/podg"] {
        fake.give_v2(path);
    }
    fs::remove_file(fake.held.path().join("v2/kubepods/podg/memory.max")).unwrap();
    let bounds = CgroupLimits { memory: Some(1 << 20), ..NONE };
    let error = fake.tree().ensure(&pod("g", Qos::Guaranteed, bounds)).await.unwrap_err();
    assert!(error.cause.contains("controller memory"), "{error}");
}

fn node_cgroup(place: NodeCgroupPlace, limits: CgroupLimits) -> NodeCgroup {
    NodeCgroup { place, limits, huge_pages: Some(Default::default()) }
}

fn daemons(name: &str) -> NodeCgroupPlace {
    NodeCgroupPlace::Kube(ReservedCgroup { name: name.to_owned(), scope: ReservedScope::All })
}

const BOUNDED: CgroupLimits = CgroupLimits {
    cpu_shares: Some(1024),
    memory: Some(1 << 30),
    pids: Some(500),
    ..CgroupLimits::NONE
};

#[tokio::test]
async fn the_nodes_own_cgroups_are_bounded_on_either_version() {
    let fake = Fake::v1();
    for name in ["kubepods", "daemons"] {
        fake.give_v1(name);
        fake.give(&format!("freezer/{name}"), &[]);
    }
    let tree = fake.tree();
    for (place, name) in [(NodeCgroupPlace::Pods, "kubepods"), (daemons("/daemons"), "daemons")] {
        tree.bound(&node_cgroup(place, BOUNDED)).await.unwrap();
        assert_eq!(fake.shown(&format!("cpu,cpuacct/{name}/cpu.shares")), "1024");
        assert_eq!(fake.shown(&format!("memory/{name}/memory.limit_in_bytes")), "1073741824");
        assert_eq!(fake.shown(&format!("pids/{name}/pids.max")), "500");
    }
    let fake = Fake::v2();
    for name in ["v2/kubepods", "v2/daemons"] {
        fake.give_v2(name);
        fake.give(name, &[("hugetlb.2MB.max", "max"), ("hugetlb.2MB.current", "")]);
    }
    let tree = fake.tree();
    for (place, name) in [(NodeCgroupPlace::Pods, "kubepods"), (daemons("daemons"), "daemons")] {
        let limits = CgroupLimits { memory_min: Some(1 << 30), ..BOUNDED };
        tree.bound(&node_cgroup(place, limits)).await.unwrap();
        for (file, text) in [
            ("cpu.weight", "39"),
            ("memory.max", "1073741824"),
            ("memory.min", "1073741824"),
            ("pids.max", "500"),
            ("hugetlb.2MB.max", "0"),
        ] {
            assert_eq!(fake.shown(&format!("v2/{name}/{file}")), text, "{name} {file}");
        }
    }
}

#[tokio::test]
async fn a_cgroup_of_daemons_is_never_made_and_one_outside_never_reached() {
    let fake = Fake::v1();
    fake.give_v1("daemons");
    let tree = fake.tree();
    // In the freezer hierarchy it may be missing: upstream does not count that one.
    tree.bound(&node_cgroup(daemons("/daemons"), BOUNDED)).await.unwrap();
    for (name, why) in [
        ("/absent", "there is no "),
        ("/../daemons", "not a path of plain names"),
        ("/", "not a path of plain names"),
    ] {
        let error = tree.bound(&node_cgroup(daemons(name), BOUNDED)).await.unwrap_err();
        assert!(error.to_string().contains(&format!("bound cgroup {name}: ")), "{error}");
        assert!(error.cause.contains(why), "{error}");
        assert_eq!(error.retry, Retry::Never);
    }
    assert!(!fake.held.path().join("memory/absent").exists());
}

#[tokio::test]
async fn a_class_that_uses_more_than_it_should_stops_growing() {
    let fake = Fake::v1();
    for name in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
        fake.give_v1(name);
    }
    fake.give("memory/kubepods/burstable", &[("memory.usage_in_bytes", "5000\n")]);
    fake.give("memory/kubepods/besteffort", &[("memory.usage_in_bytes", "5000\n")]);
    let mut bounds = weighing(102);
    bounds.burstable.memory = Some(8000);
    bounds.best_effort.memory = Some(4000);
    fake.tree().bound_classes(bounds).await.unwrap();
    assert_eq!(fake.shown("memory/kubepods/burstable/memory.limit_in_bytes"), "8000");
    assert_eq!(fake.shown("memory/kubepods/besteffort/memory.limit_in_bytes"), "5000");
}

/// A systemd that makes directories in a [`Fake`] and remembers what it was told.
#[derive(Debug)]
struct FakeSlices {
    fake: Fake,
    told: Mutex<Vec<String>>,
}

impl FakeSlices {
    fn tree(fake: Fake) -> (Arc<Self>, CgroupTree) {
        let layout = fake.layout.clone();
        let slices = Arc::new(Self { fake, told: Mutex::default() });
        let tree = CgroupTree::new(CgroupTreeSettings {
            root: "/".to_owned(),
            per_qos: true,
            driver: CgroupDriver::Systemd,
            layout,
            slices: Some(slices.clone()),
        });
        (slices, tree.unwrap())
    }

    fn tell(&self, verb: &str, name: &str, properties: &[SliceProperty]) {
        let mut words = vec![verb.to_owned(), name.to_owned()];
        words.extend(properties.iter().map(|it| match it {
            SliceProperty::Number(name, number) => format!("{name}={number}"),
            SliceProperty::Mask(name, mask) => format!("{name}={mask:?}"),
        }));
        self.told.lock().unwrap().push(words.join(" "));
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    /// `kubepods.slice/kubepods-burstable.slice` of the latter.
    fn way(name: &str) -> String {
        let stem = name.strip_suffix(".slice").unwrap();
        let parts: Vec<&str> = stem.split('-').collect();
        let units = (1..=parts.len()).map(|n| format!("{}.slice", parts[..n].join("-")));
        units.collect::<Vec<_>>().join("/")
    }
}

impl Slices for FakeSlices {
    fn ensure<'a>(&'a self, slice: &'a Slice) -> Fut<'a, Result<(), HostError>> {
        self.tell("make", &slice.name, &slice.properties);
        let way = Self::way(&slice.name);
        match &self.fake.layout {
            CgroupLayout::V1 { .. }
                if self.fake.held.path().join("cpu,cpuacct").join(&way).exists() => {}
            CgroupLayout::V1 { .. } => self.fake.give_v1(&way),
            CgroupLayout::V2 { .. } => self.fake.give_v2(&format!("v2/{way}")),
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        properties: &'a [SliceProperty],
    ) -> Fut<'a, Result<(), HostError>> {
        self.tell("set", name, properties);
        Box::pin(std::future::ready(Ok(())))
    }

    fn stop<'a>(&'a self, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        self.tell("stop", name, &[]);
        for entry in fs::read_dir(self.fake.held.path()).unwrap() {
            let _ = fs::remove_dir_all(entry.unwrap().path().join(Self::way(name)));
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn with_systemd_slices_are_asked_for_and_the_rest_is_written() {
    let fake = Fake::v2();
    fake.give("v2", &[("cpuset.cpus.effective", "0-1\n")]);
    let (systemd, tree) = FakeSlices::tree(fake);
    tree.ensure_node(ClassBounds::default()).await.unwrap();
    assert_eq!(
        systemd.told(),
        [
            "make kubepods.slice",
            "make kubepods-burstable.slice",
            "make kubepods-besteffort.slice CPUWeight=1",
        ]
    );
    tree.bound(&node_cgroup(NodeCgroupPlace::Pods, BOUNDED)).await.unwrap();
    assert_eq!(
        systemd.told(),
        ["make kubepods.slice CPUWeight=39 MemoryMax=1073741824 TasksMax=500 AllowedCPUs=[3]"]
    );
    let limits = CgroupLimits { cpu_shares: Some(204), memory: Some(1 << 20), ..NONE };
    let burst = pod("12-ab", Qos::Burstable, limits);
    let way = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_ab.slice";
    assert_eq!(tree.parent_of(&burst), format!("/{way}"));
    tree.ensure(&burst).await.unwrap();
    assert_eq!(
        systemd.told(),
        ["make kubepods-burstable-pod12_ab.slice CPUWeight=8 MemoryMax=1048576"]
    );
    assert_eq!(systemd.fake.shown(&format!("v2/{way}/memory.max")), "1048576");
    assert!(tree.exists(&burst).await.unwrap());
    assert_eq!(tree.list().await.unwrap(), [PodUid::from("12-ab")]);
    tree.lower_cpu(&burst.uid).await.unwrap();
    assert_eq!(systemd.told(), ["set kubepods-burstable-pod12_ab.slice CPUWeight=1"]);
    assert_eq!(systemd.fake.shown(&format!("v2/{way}/cpu.weight")), "1");
    tree.remove(&burst.uid).await.unwrap();
    assert_eq!(systemd.told(), ["stop kubepods-burstable-pod12_ab.slice"]);
    assert!(!tree.exists(&burst).await.unwrap());
    tree.remove(&burst.uid).await.unwrap();
    assert_eq!(systemd.told(), [""; 0], "what is not there needs no systemd");
}

#[tokio::test]
async fn with_systemd_on_v1_every_hierarchy_has_the_slice() {
    let (systemd, tree) = FakeSlices::tree(Fake::v1());
    tree.ensure_node(ClassBounds::default()).await.unwrap();
    let limits = CgroupLimits { cpu_shares: Some(204), memory: Some(1 << 20), ..NONE };
    let sure = pod("7", Qos::Guaranteed, limits);
    systemd.told();
    tree.ensure(&sure).await.unwrap();
    assert_eq!(systemd.told(), ["make kubepods-pod7.slice CPUShares=204 MemoryLimit=1048576"]);
    let way = "kubepods.slice/kubepods-pod7.slice";
    assert_eq!(systemd.fake.shown(&format!("cpu,cpuacct/{way}/cpu.shares")), "204");
    assert_eq!(systemd.fake.shown(&format!("memory/{way}/memory.limit_in_bytes")), "1048576");
    assert_eq!(systemd.fake.shown(&format!("cpuset/{way}/cpuset.cpus")), "0-1");
    assert!(systemd.fake.held.path().join(format!("freezer/{way}")).is_dir());
    systemd.fake.give_v1("system.slice");
    tree.bound(&node_cgroup(daemons("/system.slice"), BOUNDED)).await.unwrap();
    let told = systemd.told();
    assert_eq!(told, ["set system.slice CPUShares=1024 MemoryLimit=1073741824 TasksMax=500"]);
    assert_eq!(systemd.fake.shown("pids/system.slice/pids.max"), "500");
}

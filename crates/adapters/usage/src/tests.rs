//! Trees of files that look like cgroups, read through the port; and the arithmetic of rates.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ferrolet_linux::cgroups::{CgroupLayout, Hierarchy};
use ferrolet_ports::{
    CgroupDriver, Clock, Detail, MemoryMeans, NodeMeans as _, StorePlaces, Usage as _,
};
use ferrolet_types::{ContainerId, Timestamp};

use super::{UsageReader, UsageSettings};

const SECOND: Duration = Duration::from_secs(1);

struct Hand(AtomicI64);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed))
    }
}

fn write(root: &Path, path: &str, files: &[(&str, &str)]) {
    let directory = root.join(path);
    fs::create_dir_all(&directory).unwrap();
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
}

fn reader(layout: CgroupLayout, driver: CgroupDriver) -> (UsageReader, Arc<Hand>) {
    let clock = Arc::new(Hand(AtomicI64::new(1000)));
    let settings = UsageSettings {
        root: String::new(),
        driver,
        layout,
        systems: tokio::sync::watch::channel(Vec::new()).1,
        root_dir: "/nonexistent".into(),
        pod_logs: "/nonexistent".into(),
        clock: clock.clone(),
    };
    (UsageReader::new(settings), clock)
}

#[tokio::test]
async fn v2_trees_are_read_with_slices_and_scopes() {
    let held = tempfile::tempdir().unwrap();
    let (root, id) = (held.path(), "c".repeat(64));
    let stat = "anon 100\ninactive_file 300\npgfault 7\npgmajfault 1\n";
    let files: &[(&str, &str)] = &[
        ("cpu.stat", "usage_usec 5000\nuser_usec 1\n"),
        ("memory.current", "1000\n"),
        ("memory.stat", stat),
        ("memory.max", "max\n"),
        ("memory.swap.current", "5\n"),
        ("memory.swap.max", "50\n"),
    ];
    let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_ab.slice";
    write(root, "kubepods.slice", files);
    write(root, pod, files);
    let limited: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (*name, if *name == "memory.max" { "4096" } else { text }))
        .collect();
    write(root, &format!("{pod}/cri-containerd-{id}.scope"), &limited);
    write(root, "kubepods.slice/kubepods-podff.slice", files);
    let layout = CgroupLayout::V2 { mount: root.to_owned() };
    let (reader, clock) = reader(layout, CgroupDriver::Systemd);
    let snapshot = reader.snapshot(SECOND).await.unwrap();
    let mut uids: Vec<&str> = snapshot.pods.iter().map(|pod| pod.uid.as_str()).collect();
    uids.sort_unstable();
    assert_eq!(uids, ["12-ab", "ff"]);
    let pod = snapshot.pods.iter().find(|pod| pod.uid.as_str() == "12-ab").unwrap();
    assert_eq!(pod.total.cpu_nanos, Some(5_000_000));
    let memory = pod.total.memory.unwrap();
    assert_eq!((memory.usage, memory.working_set, memory.rss), (1000, 700, 100));
    assert_eq!((memory.limit, memory.page_faults, memory.major_page_faults), (None, 7, 1));
    assert_eq!((pod.total.swap_bytes, pod.total.swap_limit_bytes), (Some(5), Some(50)));
    assert_eq!(pod.containers[0].0.as_str(), id);
    assert_eq!(pod.containers[0].1.memory.unwrap().limit, Some(4096));
    assert!(snapshot.all_pods.is_some());
    assert!(snapshot.node.memory.unwrap().limit.is_some(), "the machine's own");

    // Within a second everybody gets the same; ten seconds later there is a rate.
    assert!(Arc::ptr_eq(&snapshot, &reader.snapshot(SECOND).await.unwrap()));
    write(root, "kubepods.slice", &[("cpu.stat", "usage_usec 5005000\n")]);
    clock.0.store(1010, Ordering::Relaxed);
    let later = reader.snapshot(SECOND).await.unwrap();
    assert_eq!(snapshot.all_pods.unwrap().cpu_nano_cores, None);
    assert_eq!(later.all_pods.unwrap().cpu_nano_cores, Some(500_000_000));
    // Soon after, the rate over ten seconds still stands.
    clock.0.store(1013, Ordering::Relaxed);
    let shared = reader.snapshot(8 * SECOND).await.unwrap();
    assert!(Arc::ptr_eq(&shared, &later), "who takes an older one has it");
    let soon = reader.snapshot(SECOND).await.unwrap();
    assert_eq!(soon.all_pods.unwrap().cpu_nano_cores, Some(500_000_000));
}

#[tokio::test]
async fn v1_hierarchies_are_read_side_by_side() {
    let held = tempfile::tempdir().unwrap();
    let (cpu, memory) = (held.path().join("cpuacct"), held.path().join("memory"));
    let id = "d".repeat(64);
    for path in
        ["", "kubepods", "kubepods/besteffort/pod1", &format!("kubepods/besteffort/pod1/{id}")]
    {
        write(&cpu, path, &[("cpuacct.usage", "123456789\n")]);
        let stat = "pgfault 3\ntotal_rss 10\ntotal_inactive_file 60\ntotal_swap 4\n";
        let limit = ("memory.limit_in_bytes", "9223372036854771712\n");
        let usage = ("memory.usage_in_bytes", "50\n");
        write(&memory, path, &[("memory.stat", stat), limit, usage]);
    }
    let hierarchy = |name: &str, mount: &Path| Hierarchy {
        controllers: vec![name.to_owned()],
        mount: mount.to_owned(),
    };
    let layout = CgroupLayout::V1 {
        hierarchies: vec![hierarchy("cpuacct", &cpu), hierarchy("memory", &memory)],
        unified: None,
    };
    let (reader, _) = reader(layout, CgroupDriver::Cgroupfs);
    let snapshot = reader.snapshot(SECOND).await.unwrap();
    let pod = &snapshot.pods[0];
    assert_eq!(pod.uid.as_str(), "1");
    let (found, usage) = &pod.containers[0];
    assert_eq!(found.as_str(), id);
    assert_eq!((usage.cpu_nanos, usage.swap_bytes), (Some(123_456_789), Some(4)));
    let memory = usage.memory.unwrap();
    // More inactive pages than usage: the two are read one after the other.
    assert_eq!((memory.usage, memory.working_set, memory.rss, memory.limit), (50, 0, 10, None));
}

#[tokio::test]
async fn a_node_without_pods_is_a_node() {
    let held = tempfile::tempdir().unwrap();
    let layout = CgroupLayout::V2 { mount: held.path().to_owned() };
    let (reader, _) = reader(layout, CgroupDriver::Cgroupfs);
    let snapshot = reader.snapshot(SECOND).await.unwrap();
    assert_eq!((snapshot.all_pods, snapshot.pods.len()), (None, 0));
    assert!(snapshot.node.memory.is_some());
}

/// A summary of these containers.
fn summary(ids: &[&str]) -> Detail {
    Detail::Summary(Arc::new(ids.iter().map(|id| ContainerId::from(*id)).collect()))
}

/// ADR 0022: a reading is shared by all who can live with its age and detail.
#[tokio::test]
async fn a_reading_serves_whoever_can_live_with_its_age_and_detail() {
    let held = tempfile::tempdir().unwrap();
    let root = held.path();
    let set = |usage: &str| {
        let stat = format!("usage_usec {usage}\nuser_usec 7\n");
        let files: &[(&str, &str)] = &[
            ("cpu.stat", &stat),
            ("memory.current", "1000\n"),
            ("memory.stat", "anon 1\n"),
            ("pids.current", "3\n"),
        ];
        write(root, "kubepods", files);
        write(root, "kubepods/podff", files);
    };
    let layout = CgroupLayout::V2 { mount: root.to_owned() };
    let (reader, clock) = reader(layout, CgroupDriver::Cgroupfs);
    let ask = async |detail, seconds| {
        let figures = reader.figures(detail, Duration::from_secs(seconds)).await;
        let figures = figures.unwrap();
        let pod = figures.cgroups.last().unwrap().clone();
        (pod.usage.cpu_nanos.unwrap() / 1000, pod.n_threads)
    };
    let pass = |seconds| clock.0.fetch_add(seconds, Ordering::Relaxed);
    set("1");
    // Less detail reads less.
    assert_eq!(ask(summary(&[]), 8).await, (1, None));
    set("2");
    pass(5);
    assert_eq!(ask(summary(&[]), 8).await, (1, None), "young enough");
    assert_eq!(ask(Detail::Whole, 8).await, (2, Some(3)), "not enough detail");
    set("3");
    pass(5);
    assert_eq!(ask(summary(&[]), 8).await, (2, Some(3)), "more than enough");
    assert_eq!(ask(summary(&[]), 1).await, (3, None), "too old for this one");
    set("4");
    assert_eq!(ask(summary(&[]), 8).await, (3, None));
    pass(8);
    assert_eq!(ask(Detail::Whole, 8).await, (4, Some(3)), "too old for all");
    // The slim view is never older than a second.
    set("5");
    pass(2);
    let slim = reader.snapshot(SECOND).await.unwrap();
    assert_eq!(slim.pods[0].total.cpu_nanos, Some(5000));
}

/// Of what no pod's status names, a sandbox above all, a summary wants only networks and processes.
#[tokio::test]
async fn a_summary_reads_no_more_of_strangers_than_their_processes() {
    let held = tempfile::tempdir().unwrap();
    let (cpu, memory) = (held.path().join("cpu"), held.path().join("memory"));
    let (known, sandbox) = ("a".repeat(64), "b".repeat(64));
    // A process that is there, on the machine's own network.
    let me = format!("{}\n", std::process::id());
    for (path, processes) in [
        ("kubepods".to_owned(), ""),
        ("kubepods/pod1".to_owned(), ""),
        (format!("kubepods/pod1/{known}"), me.as_str()),
        (format!("kubepods/pod1/{sandbox}"), me.as_str()),
    ] {
        write(&cpu, &path, &[("cpuacct.usage", "5\n")]);
        let files = [
            ("memory.stat", "total_rss 10\n"),
            ("memory.usage_in_bytes", "50\n"),
            ("cgroup.procs", processes),
        ];
        write(&memory, &path, &files);
    }
    let hierarchy = |name: &str, mount: &Path| Hierarchy {
        controllers: vec![name.to_owned()],
        mount: mount.to_owned(),
    };
    let layout = CgroupLayout::V1 {
        hierarchies: vec![hierarchy("cpuacct", &cpu), hierarchy("memory", &memory)],
        unified: None,
    };
    let (reader, _) = reader(layout, CgroupDriver::Cgroupfs);
    // What is told of both, in this detail: processor, memory, processes.
    let ask = async |detail| {
        let figures = reader.figures(detail, SECOND).await.unwrap();
        let told = |id: &str| {
            let mut all = figures.cgroups.iter();
            let it = all.find(|it| it.path.ends_with(id)).unwrap();
            let memory = it.usage.memory.map(|memory| memory.usage);
            (it.usage.cpu_nanos, memory, it.processes.n_processes)
        };
        (told(&known), told(&sandbox))
    };
    let (everything, nothing) = ((Some(5), Some(50), 1), (None, None, 1));
    let check = async |detail, expected| assert_eq!(ask(detail).await, expected);
    check(summary(&[]), (nothing, nothing)).await;
    check(summary(&[&known]), (everything, nothing)).await;
    // Within a second, less is found in what was read for more, and more is read anew.
    check(summary(&[]), (everything, nothing)).await;
    check(summary(&[&sandbox]), (nothing, everything)).await;
    check(Detail::Whole, (everything, everything)).await;
    check(summary(&[&known]), (everything, everything)).await;
}

#[tokio::test]
async fn the_whole_of_a_v2_tree_is_read() {
    let held = tempfile::tempdir().unwrap();
    let (root, id) = (held.path(), "c".repeat(64));
    let pod = "kubepods.slice/kubepods-pod12_ab.slice";
    let files: &[(&str, &str)] = &[
        (
            "cpu.stat",
            "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 4\nnr_throttled 1\nthrottled_usec 7\n",
        ),
        ("cpu.weight", "79\n"),
        ("cpu.max", "20000 100000\n"),
        ("memory.current", "1000\n"),
        ("memory.peak", "5000\n"),
        ("memory.max", "4096\n"),
        (
            "memory.stat",
            "anon 100\nfile 400\nkernel 30\ninactive_file 300\nfile_dirty 2\npgscan 9\n",
        ),
        ("memory.events", "low 0\nhigh 3\nmax 2\noom 1\noom_kill 1\n"),
        ("pids.current", "6\n"),
        ("pids.max", "max\n"),
        ("io.stat", "254:0 rbytes=4096 wbytes=512 rios=1 wios=2 dbytes=0 dios=0\n"),
        (
            "cpu.pressure",
            "some avg10=1.50 avg60=0.20 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n",
        ),
        ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"),
        ("io.pressure", ""),
    ];
    write(root, &format!("{pod}/cri-containerd-{id}.scope"), files);
    let layout = CgroupLayout::V2 { mount: root.to_owned() };
    let (reader, clock) = reader(layout, CgroupDriver::Systemd);
    let figures = reader.figures(Detail::Whole, SECOND).await.unwrap();
    let paths: Vec<&str> = figures.cgroups.iter().map(|it| it.path.as_str()).collect();
    let scope = format!("/{pod}/cri-containerd-{id}.scope");
    assert_eq!(paths, ["/", "/kubepods.slice", &format!("/{pod}"), &scope]);
    let last = figures.cgroups.last().unwrap();
    assert_eq!(last.usage.cpu_nanos, Some(5_000_000));
    assert_eq!(last.usage.memory.unwrap().working_set, 700);
    let cpu = last.cpu;
    assert_eq!((cpu.user_nanos, cpu.system_nanos), (Some(3_000_000), Some(2_000_000)));
    assert_eq!((cpu.shares, cpu.quota_micros), (Some(2046), Some(20_000)));
    assert_eq!((cpu.n_periods, cpu.n_throttled, cpu.throttled_nanos), (4, 1, 7000));
    let memory = last.memory;
    assert_eq!((memory.cache, memory.kernel, memory.max_usage), (400, 30, 5000));
    assert_eq!((memory.n_high_events, memory.n_max_events, memory.n_oom_kills), (3, 2, 1));
    assert_eq!((last.n_threads, last.max_threads), (Some(6), None));
    let device = &last.devices[0];
    assert_eq!((device.major, device.minor, device.read_bytes, device.n_writes), (254, 0, 4096, 2));
    let pressure = last.pressure.unwrap();
    assert_eq!((pressure.cpu.some.total_micros, pressure.cpu.full.total_micros), (123, 4));
    assert_eq!((pressure.cpu.some.avg10, pressure.memory.some.total_micros), (1.5, 5));
    // A slim reading right after is the same one; rates go on from either.
    let slim = reader.snapshot(SECOND).await.unwrap();
    assert_eq!(slim.pods[0].containers[0].1, last.usage);
    write(
        root,
        &format!("{pod}/cri-containerd-{id}.scope"),
        &[("cpu.stat", "usage_usec 1005000\n")],
    );
    clock.0.store(1010, Ordering::Relaxed);
    let later = reader.snapshot(SECOND).await.unwrap();
    assert_eq!(later.pods[0].containers[0].1.cpu_nano_cores, Some(100_000_000));
}

#[tokio::test]
async fn the_whole_of_v1_hierarchies_is_read() {
    let held = tempfile::tempdir().unwrap();
    let at = |name: &str| held.path().join(name);
    let id = "d".repeat(64);
    let path = format!("kubepods/besteffort/pod1/{id}");
    write(
        &at("cpu"),
        &path,
        &[
            ("cpuacct.usage", "123456789\n"),
            ("cpuacct.stat", "user 5\nsystem 3\n"),
            ("cpu.stat", "nr_periods 2\nnr_throttled 1\nthrottled_time 99\n"),
            ("cpu.shares", "2\n"),
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.cfs_period_us", "100000\n"),
        ],
    );
    write(
        &at("memory"),
        &path,
        &[
            ("memory.stat", "pgfault 3\ntotal_rss 10\ntotal_cache 60\ntotal_swap 4\n"),
            ("memory.usage_in_bytes", "50\n"),
            ("memory.max_usage_in_bytes", "80\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.failcnt", "1\n"),
            ("memory.kmem.usage_in_bytes", "7\n"),
            ("memory.soft_limit_in_bytes", "9223372036854771712\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ],
    );
    write(&at("pids"), &path, &[("pids.current", "4\n"), ("pids.max", "100\n")]);
    write(
        &at("blkio"),
        &path,
        &[
            (
                "blkio.throttle.io_service_bytes_recursive",
                "8:0 Read 4096\n8:0 Write 0\n8:0 Total 4096\nTotal 4096\n",
            ),
            ("blkio.throttle.io_serviced_recursive", "8:0 Read 1\n8:0 Write 0\n"),
        ],
    );
    let hierarchy = |name: &str, mount: &str| Hierarchy {
        controllers: vec![name.to_owned()],
        mount: at(mount),
    };
    let layout = CgroupLayout::V1 {
        hierarchies: vec![
            hierarchy("cpuacct", "cpu"),
            hierarchy("memory", "memory"),
            hierarchy("pids", "pids"),
            hierarchy("blkio", "blkio"),
        ],
        unified: None,
    };
    let (reader, _) = reader(layout, CgroupDriver::Cgroupfs);
    let figures = reader.figures(Detail::Whole, SECOND).await.unwrap();
    let last = figures.cgroups.last().unwrap();
    assert_eq!(last.path, format!("/{path}"));
    assert_eq!((last.cpu.user_nanos, last.cpu.throttled_nanos), (Some(50_000_000), 99));
    assert_eq!((last.cpu.quota_micros, last.cpu.period_micros), (None, Some(100_000)));
    let memory = last.memory;
    assert_eq!((memory.max_usage, memory.n_failures, memory.kernel), (80, 1, 7));
    assert_eq!((memory.reservation, memory.n_oom_kills, memory.cache), (0, 2, 60));
    assert_eq!((last.n_threads, last.max_threads), (Some(4), Some(100)));
    assert_eq!((last.devices[0].read_bytes, last.devices[0].n_reads), (4096, 1));
    assert_eq!(last.pressure, None);
    let node = &figures.cgroups[0];
    assert!(node.usage.memory.is_some() && !figures.disks.iter().any(|it| it.room.capacity == 0));
    assert!(figures.processes.is_some_and(|it| it.n > 0 && it.max > 0));
}

#[tokio::test]
async fn disks_are_walked_without_following_links() {
    let held = tempfile::tempdir().unwrap();
    let (root, logs) = (held.path().join("kubelet"), held.path().join("logs"));
    let big = held.path().join("big");
    fs::write(&big, vec![1; 1 << 20]).unwrap();
    write(&logs, "shop_web_uid-1/main", &[("0.log", &"x".repeat(5000))]);
    std::os::unix::fs::symlink(&big, logs.join("shop_web_uid-1/main/1.log")).unwrap();
    std::os::unix::fs::symlink(held.path(), logs.join("shop_web_uid-1/link")).unwrap();
    write(&root, "pods/uid-1", &[("etc-hosts", "127.0.0.1 localhost\n")]);
    let volume = "pods/uid-1/volumes/kubernetes.io~empty-dir/cache";
    write(&root, &format!("{volume}/deep"), &[("file", &"y".repeat(9000))]);
    std::os::unix::fs::symlink("/", root.join(volume).join("root")).unwrap();
    let clock = Arc::new(Hand(AtomicI64::new(1000)));
    let reader = UsageReader::new(UsageSettings {
        root: String::new(),
        driver: CgroupDriver::Cgroupfs,
        layout: CgroupLayout::V2 { mount: held.path().to_owned() },
        systems: tokio::sync::watch::channel(Vec::new()).1,
        root_dir: root.clone(),
        pod_logs: logs,
        clock: clock.clone(),
    });
    let disk = reader.disk().await.unwrap();
    let [(uid, container, used)] = &disk.container_logs[..] else {
        panic!("{:?}", disk.container_logs);
    };
    assert_eq!((uid.as_str(), container.as_str(), used.inodes), ("uid-1", "main", 2));
    assert!((5000..100_000).contains(&used.bytes), "{used:?}");
    let [volume] = &disk.volumes[..] else {
        panic!("{:?}", disk.volumes);
    };
    assert_eq!((volume.name.as_str(), volume.is_on_node), ("cache", true));
    // Two directories, a file and a link.
    assert_eq!(volume.room.inodes_used, 4);
    assert!((9000..100_000).contains(&volume.room.used), "{volume:?}");
    assert_eq!(disk.pod_files[0].1.inodes, 1);
    assert!(disk.node.capacity > 0);
    let own = reader.disk_of(&disk.volumes[0].uid).await.unwrap();
    assert!(!own.volumes.is_empty());
    assert!(own.volumes.iter().all(|it| it.uid == disk.volumes[0].uid));
    let none = reader.disk_of(&"nobody".into()).await.unwrap();
    assert!(none.volumes.is_empty() && none.container_logs.is_empty());
    // Kept for a while, then looked at again.
    fs::remove_dir_all(root.join("pods")).unwrap();
    assert!(Arc::ptr_eq(&disk, &reader.disk().await.unwrap()));
    clock.0.store(1060, Ordering::Relaxed);
    assert!(reader.disk().await.unwrap().volumes.is_empty());
    assert!(reader.room_at("/nonexistent").await.is_err());
}

/// A pod cannot hide what it has behind names, depth or numbers.
#[tokio::test]
async fn names_that_are_no_text_count_and_what_is_too_deep_is_over_any_limit() {
    use std::os::unix::ffi::OsStrExt as _;
    let held = tempfile::tempdir().unwrap();
    let (root, logs) = (held.path().join("kubelet"), held.path().join("logs"));
    fs::create_dir_all(&logs).unwrap();
    let volumes = root.join("pods/uid-1/volumes/kubernetes.io~empty-dir");
    let odd = volumes.join("odd").join(std::ffi::OsStr::from_bytes(b"dir\xff"));
    fs::create_dir_all(&odd).unwrap();
    fs::write(odd.join(std::ffi::OsStr::from_bytes(b"\xfe")), vec![1; 1 << 20]).unwrap();
    let deep = |n: usize| (0..n).map(|_| "d").collect::<std::path::PathBuf>();
    let fine = volumes.join("fine").join(deep(100));
    fs::create_dir_all(&fine).unwrap();
    fs::write(fine.join("file"), vec![1; 1 << 20]).unwrap();
    fs::create_dir_all(volumes.join("deep").join(deep(300))).unwrap();
    let reader = UsageReader::new(UsageSettings {
        root: String::new(),
        driver: CgroupDriver::Cgroupfs,
        layout: CgroupLayout::V2 { mount: held.path().to_owned() },
        systems: tokio::sync::watch::channel(Vec::new()).1,
        root_dir: root,
        pod_logs: logs,
        clock: Arc::new(Hand(AtomicI64::new(1000))),
    });
    let limited = reader.disk_of(&"uid-1".into()).await.unwrap();
    let shown = reader.disk().await.unwrap();
    let used = |disk: &ferrolet_ports::DiskUsage, name: &str| {
        disk.volumes.iter().find(|it| it.name == name).unwrap().room.used
    };
    for disk in [&limited, &*shown] {
        assert!((1 << 20..2 << 20).contains(&used(disk, "odd")), "{}", used(disk, "odd"));
        assert!((1 << 20..2 << 20).contains(&used(disk, "fine")), "{}", used(disk, "fine"));
    }
    assert_eq!(used(&limited, "deep"), u64::MAX);
    assert!(used(&shown, "deep") < 4 << 20, "{}", used(&shown, "deep"));
}

#[tokio::test]
async fn what_is_left_is_read_without_a_walk_and_what_is_not_there_is_left_out() {
    let held = tempfile::tempdir().unwrap();
    let root = held.path();
    let files = |limit: &'static str| {
        [
            ("cpu.stat", "usage_usec 1\n"),
            ("memory.current", "1000\n"),
            ("memory.stat", "anon 100\ninactive_file 300\n"),
            ("memory.max", limit),
        ]
    };
    write(root, "kubepods.slice", &files("4096\n"));
    let layout = CgroupLayout::V2 { mount: root.to_owned() };
    let (reader, _clock) = reader(layout, CgroupDriver::Systemd);
    let place = root.to_str().unwrap().to_owned();
    let stores = StorePlaces { images: Some(place.clone()), containers: Some(place) };
    let read = reader.read_means(&stores).await.unwrap();
    let expected = MemoryMeans { capacity: 4096, working_set: 700, usage: 1000 };
    assert_eq!((read.at, read.pods_memory), (Timestamp::from_second(1000), Some(expected)));
    assert_eq!(read.pods_usage, Some(1000));
    let memory = read.memory.unwrap();
    assert!(memory.capacity > memory.working_set && memory.working_set > 0, "{memory:?}");
    assert_eq!(read.node_fs, None, "the agent's directory is not there");
    let images = read.image_fs.unwrap();
    assert!(images.room.capacity > 0);
    assert_eq!(read.container_fs.unwrap().device, images.device);
    let processes = read.processes.unwrap();
    assert!(processes.n > 0 && processes.max > processes.n, "{processes:?}");
    write(root, "kubepods.slice", &files("max\n"));
    let read = reader.read_means(&StorePlaces::default()).await.unwrap();
    assert_eq!(
        (read.pods_memory, read.image_fs),
        (None, None),
        "without a limit nothing is scarce"
    );
}

//! Trees of files that look like cgroups, read through the port; and the arithmetic of rates.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ferrolet_ports::{CgroupDriver, Clock, Usage as _};
use ferrolet_types::Timestamp;

use super::{UsageReader, UsageSettings};
use crate::cgroups::{CgroupLayout, Hierarchy};

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
    let layout = CgroupLayout::V2 {
        mount: root.to_owned(),
    };
    let (reader, clock) = reader(layout, CgroupDriver::Systemd);
    let snapshot = reader.snapshot().await.unwrap();
    let mut uids: Vec<&str> = snapshot.pods.iter().map(|pod| pod.uid.as_str()).collect();
    uids.sort_unstable();
    assert_eq!(uids, ["12-ab", "ff"]);
    let pod = snapshot
        .pods
        .iter()
        .find(|pod| pod.uid.as_str() == "12-ab")
        .unwrap();
    assert_eq!(pod.total.cpu_nanos, Some(5_000_000));
    let memory = pod.total.memory.unwrap();
    assert_eq!(
        (memory.usage, memory.working_set, memory.rss),
        (1000, 700, 100)
    );
    assert_eq!(
        (memory.limit, memory.page_faults, memory.major_page_faults),
        (None, 7, 1)
    );
    assert_eq!(
        (pod.total.swap_bytes, pod.total.swap_limit_bytes),
        (Some(5), Some(50))
    );
    assert_eq!(pod.containers[0].0.as_str(), id);
    assert_eq!(pod.containers[0].1.memory.unwrap().limit, Some(4096));
    assert!(snapshot.all_pods.is_some());
    assert!(
        snapshot.node.memory.unwrap().limit.is_some(),
        "the machine's own"
    );

    // Within a second everybody gets the same; ten seconds later there is a rate.
    assert!(Arc::ptr_eq(&snapshot, &reader.snapshot().await.unwrap()));
    write(
        root,
        "kubepods.slice",
        &[("cpu.stat", "usage_usec 5005000\n")],
    );
    clock.0.store(1010, Ordering::Relaxed);
    let later = reader.snapshot().await.unwrap();
    assert_eq!(snapshot.all_pods.unwrap().cpu_nano_cores, None);
    assert_eq!(later.all_pods.unwrap().cpu_nano_cores, Some(500_000_000));
    // Soon after, the rate over ten seconds still stands.
    clock.0.store(1013, Ordering::Relaxed);
    let soon = reader.snapshot().await.unwrap();
    assert_eq!(soon.all_pods.unwrap().cpu_nano_cores, Some(500_000_000));
}

#[tokio::test]
async fn v1_hierarchies_are_read_side_by_side() {
    let held = tempfile::tempdir().unwrap();
    let (cpu, memory) = (held.path().join("cpuacct"), held.path().join("memory"));
    let id = "d".repeat(64);
    for path in [
        "",
        "kubepods",
        "kubepods/besteffort/pod1",
        &format!("kubepods/besteffort/pod1/{id}"),
    ] {
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
    let snapshot = reader.snapshot().await.unwrap();
    let pod = &snapshot.pods[0];
    assert_eq!(pod.uid.as_str(), "1");
    let (found, usage) = &pod.containers[0];
    assert_eq!(found.as_str(), id);
    assert_eq!(
        (usage.cpu_nanos, usage.swap_bytes),
        (Some(123_456_789), Some(4))
    );
    let memory = usage.memory.unwrap();
    // More inactive pages than usage: the two are read one after the other.
    assert_eq!(
        (memory.usage, memory.working_set, memory.rss, memory.limit),
        (50, 0, 10, None)
    );
}

#[tokio::test]
async fn a_node_without_pods_is_a_node() {
    let held = tempfile::tempdir().unwrap();
    let layout = CgroupLayout::V2 {
        mount: held.path().to_owned(),
    };
    let (reader, _) = reader(layout, CgroupDriver::Cgroupfs);
    let snapshot = reader.snapshot().await.unwrap();
    assert_eq!((snapshot.all_pods, snapshot.pods.len()), (None, 0));
    assert!(snapshot.node.memory.is_some());
}

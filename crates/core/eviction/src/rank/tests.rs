use proptest::prelude::*;

use super::*;

/// A pod by name, priority, request and use of memory in bytes.
fn pod(name: &str, priority: i32, request: i64, used: Option<u64>) -> Candidate {
    Candidate {
        uid: PodUid::from(name),
        name: name.to_owned(),
        priority,
        is_critical: false,
        memory_request: Quantity::from_bytes(request),
        storage_request: Quantity::from_bytes(request),
        own_memory_request: None,
        grace: None,
        used: used.map(|memory| PodUse { memory, ..PodUse::default() }),
    }
}

fn on_disk(name: &str, rootfs: u64, logs: u64, volumes: u64) -> Candidate {
    let files = |bytes: u64| FileUse { bytes, inodes: bytes / 10 };
    let container = ContainerUse {
        name: "c".to_owned(),
        memory_request: Quantity::ZERO,
        storage_request: Quantity::ZERO,
        memory: None,
        rootfs: Some(files(rootfs)),
        logs: Some(files(logs)),
    };
    let used =
        PodUse { containers: vec![container], local_volumes: files(volumes), ..PodUse::default() };
    Candidate { used: Some(used), ..pod(name, 0, 0, None) }
}

fn order(signal: Signal, layout: FileSystems, pods: &[Candidate]) -> String {
    rank(signal, layout, pods).iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn memory_goes_by_excess_then_priority_then_distance() {
    let pods = [
        pod("modest", 0, 100, Some(50)),
        pod("important", 10, 0, Some(900)),
        pod("greedy", 0, 0, Some(500)),
        pod("slightly", 0, 90, Some(100)),
        pod("least", -5, 0, Some(1)),
    ];
    let order = order(Signal::MemoryAvailable, FileSystems::One, &pods);
    assert_eq!(order, "least greedy slightly important modest");
}

#[test]
fn a_pod_without_statistics_goes_last_and_a_critical_one_never() {
    let critical = Candidate { is_critical: true, ..pod("critical", 0, 0, Some(999)) };
    let pods = [pod("unknown", -9, 0, None), critical, pod("modest", 5, 100, Some(50))];
    for signal in [Signal::MemoryAvailable, Signal::PidAvailable, Signal::NodeFsInodesFree] {
        assert_eq!(order(signal, FileSystems::One, &pods), "modest unknown", "{signal:?}");
    }
}

#[test]
fn processes_go_by_priority_then_number() {
    let of = |name: &str, priority: i32, n_processes: u64| Candidate {
        used: Some(PodUse { n_processes, ..PodUse::default() }),
        ..pod(name, priority, 0, None)
    };
    let pods = [of("few", 0, 2), of("many", 0, 200), of("important", 5, 5000)];
    assert_eq!(order(Signal::PidAvailable, FileSystems::One, &pods), "many few important");
}

#[test]
fn only_what_lies_on_the_full_file_system_counts() {
    let pods =
        [on_disk("rootfs", 100, 0, 0), on_disk("logs", 0, 50, 0), on_disk("volumes", 0, 0, 70)];
    let apart = FileSystems::ImagesAndContainersApart;
    let cases = [
        (Signal::NodeFsAvailable, FileSystems::One, "rootfs volumes logs"),
        (Signal::ImageFsAvailable, FileSystems::One, "rootfs volumes logs"),
        (Signal::NodeFsAvailable, apart, "volumes logs rootfs"),
        (Signal::ImageFsAvailable, apart, "rootfs logs volumes"),
        (Signal::ContainerFsInodesFree, apart, "rootfs logs volumes"),
        (Signal::NodeFsInodesFree, FileSystems::ImagesApart, "rootfs volumes logs"),
        // Images alone lie there: nobody is more to blame than another.
        (Signal::ImageFsAvailable, FileSystems::ImagesApart, "rootfs logs volumes"),
    ];
    for (signal, layout, expected) in cases {
        assert_eq!(order(signal, layout, &pods), expected, "{signal:?} {layout:?}");
    }
}

fn any_pod() -> impl Strategy<Value = Candidate> {
    (0..4_i32, 0..50_i64, proptest::option::of(0..100_u64), any::<bool>()).prop_map(
        |(priority, request, used, is_critical)| Candidate {
            is_critical,
            ..pod("p", priority, request, used)
        },
    )
}

proptest! {
    #[test]
    fn the_order_depends_on_the_pods_alone_and_leaves_out_just_the_critical_ones(
        pods in proptest::collection::vec(any_pod(), 0..12)
    ) {
        let ranked = rank(Signal::MemoryAvailable, FileSystems::One, &pods);
        prop_assert_eq!(ranked.len(), pods.iter().filter(|it| !it.is_critical).count());
        prop_assert!(ranked.iter().all(|it| !it.is_critical));
        let mut turned = pods.clone();
        turned.reverse();
        let again = rank(Signal::MemoryAvailable, FileSystems::One, &turned);
        let keys = |all: &[&Candidate]| -> Vec<_> {
            all.iter().map(|it| (it.priority, it.memory_request, it.used.clone())).collect()
        };
        let key = |it: &&Candidate| {
            let used = it.used.as_ref().map(|used| amount(used.memory));
            by_excess(it, used, it.memory_request, it.memory_request)
        };
        let sorted = ranked.iter().map(key).collect::<Vec<_>>();
        prop_assert_eq!(&sorted, &again.iter().map(key).collect::<Vec<_>>());
        prop_assert_eq!(keys(&ranked).len(), keys(&again).len());
    }
}

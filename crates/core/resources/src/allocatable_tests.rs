use ferrolet_node::{HugePages, NodeFacts};

use super::*;

const GIB: i64 = 1 << 30;

fn machine() -> Machine {
    Machine {
        n_cpus: 4,
        memory_bytes: 8 << 30,
        huge_pages: vec![HugePages { page_bytes: 2 << 20, n_pages: 16 }],
        max_pids: Some(32_768),
        ..NodeFacts::example().machine.unwrap()
    }
}

fn amounts(list: &[(&str, &str)]) -> Amounts {
    let parsed = list.iter().map(|(name, text)| ((*name).to_owned(), Quantity::parse(text)));
    parsed.map(|(name, amount)| (name, amount.unwrap())).collect()
}

fn settings(system: &[(&str, &str)], kube: &[(&str, &str)]) -> NodeSettings {
    NodeSettings {
        system_reserved: amounts(system),
        kube_reserved: amounts(kube),
        ..NodeSettings::example()
    }
}

fn reserved(name: &str, scope: ReservedScope) -> Option<ReservedCgroup> {
    Some(ReservedCgroup { name: name.to_owned(), scope })
}

/// Shares, memory and pids of a cgroup.
fn numbers(cgroup: &NodeCgroup) -> (Option<u64>, Option<i64>, Option<i64>) {
    (cgroup.limits.cpu_shares, cgroup.limits.memory, cgroup.limits.pids)
}

#[test]
fn pods_together_get_what_is_not_reserved() {
    let policy = AllocatablePolicy { bounds_pods: true, ..AllocatablePolicy::default() };
    let check = |system: &[(&str, &str)], kube: &[(&str, &str)], expected| {
        let cgroups = node_cgroups(&policy, &settings(system, kube), &machine());
        assert_eq!(cgroups.len(), 1);
        assert_eq!(cgroups[0].place, NodeCgroupPlace::Pods);
        assert_eq!(numbers(&cgroups[0]), expected, "{system:?} {kube:?}");
        let sizes = BTreeMap::from([("2MB".to_owned(), 32 << 20)]);
        assert_eq!(cgroups[0].huge_pages, Some(sizes), "huge pages are not reserved");
    };
    check(&[], &[], (Some(4096), Some(8 * GIB), Some(32_768)));
    check(
        &[("cpu", "500m"), ("memory", "1Gi"), ("pid", "1000")],
        &[("cpu", "1"), ("memory", "512Mi"), ("pid", "68")],
        (Some(2560), Some(8 * GIB - GIB - GIB / 2), Some(31_700)),
    );
    // More than there is leaves nothing, and a weight is never nothing.
    check(&[("cpu", "9"), ("memory", "9Gi")], &[], (Some(2), Some(0), Some(32_768)));
}

#[test]
fn eviction_is_not_counted_and_nothing_is_taken_where_pods_are_not_bounded() {
    let mut settings = settings(&[("memory", "1Gi")], &[]);
    let threshold = ferrolet_node::Threshold::Amount(Quantity::from_value(GIB));
    settings.hard_eviction.memory = Some(threshold);
    let memory = |bounds_pods| {
        let policy = AllocatablePolicy { bounds_pods, ..AllocatablePolicy::default() };
        node_cgroups(&policy, &settings, &machine())[0].limits.memory
    };
    assert_eq!(memory(true), Some(7 * GIB));
    assert_eq!(memory(false), Some(8 * GIB));
}

#[test]
fn daemons_are_bounded_to_their_reservation_or_only_to_its_cpu() {
    let settings = settings(&[("cpu", "1"), ("memory", "1Gi"), ("pid", "100")], &[("cpu", "2")]);
    let mut policy = AllocatablePolicy {
        system: reserved("/system", ReservedScope::All),
        kube: reserved("/kube", ReservedScope::Compressible),
        ..AllocatablePolicy::default()
    };
    let cgroups = node_cgroups(&policy, &settings, &machine());
    assert_eq!(cgroups.len(), 3);
    assert_eq!(cgroups[1].place.reserved().map(|it| it.name.as_str()), Some("/system"));
    assert_eq!(numbers(&cgroups[1]), (Some(1024), Some(GIB), Some(100)));
    assert_eq!(cgroups[1].limits.memory_min, None);
    assert_eq!(cgroups[1].huge_pages, Some(BTreeMap::new()));
    assert_eq!(numbers(&cgroups[2]), (Some(2048), None, None));
    assert_eq!(cgroups[2].huge_pages, None);
    policy.protects_memory = true;
    let cgroups = node_cgroups(&policy, &settings, &machine());
    assert_eq!(cgroups[0].limits.memory_min, None, "pods have protection of their own");
    assert_eq!(cgroups[1].limits.memory_min, Some(GIB));
    assert_eq!(cgroups[2].limits.memory_min, None);
}

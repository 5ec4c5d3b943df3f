//! A whole reading, written; and the families held against what upstream shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrolet_ports::{
    CgroupFigures, CgroupUsage, CpuFigures, DeviceFigures, DiskFigures, InterfaceFigures,
    MemoryFigures, MemoryUsage, Pressure, ProcessFigures, Stall, Stalls, TrafficFigures,
    UsageFigures, Whose,
};
use ferrolet_types::{Pod, Timestamp};
use serde_json::json;

use super::super::Machine;
use super::write;

fn at() -> Timestamp {
    Timestamp::from_second(1_767_225_600)
}

fn cgroup(whose: Whose, path: &str) -> CgroupFigures {
    let is_node = whose == Whose::Node;
    let stall = Stall { total_micros: 1_500_000, ..Stall::default() };
    let stalls = Stalls { some: stall, full: stall };
    CgroupFigures {
        whose,
        path: path.to_owned(),
        made: at(),
        usage: CgroupUsage {
            at: at(),
            cpu_nanos: Some(2_500_000_000),
            cpu_nano_cores: None,
            memory: Some(MemoryUsage {
                usage: 1000,
                working_set: 700,
                rss: 100,
                limit: None,
                page_faults: 5,
                major_page_faults: 1,
            }),
            swap_bytes: Some(0),
            swap_limit_bytes: None,
        },
        cpu: CpuFigures {
            user_nanos: Some(1_000_000_000),
            system_nanos: Some(1_500_000_000),
            shares: Some(102),
            quota_micros: (!is_node).then_some(50_000),
            period_micros: Some(100_000),
            throttled_nanos: 22_000_000,
            ..CpuFigures::default()
        },
        memory: MemoryFigures::default(),
        n_threads: Some(3),
        max_threads: None,
        processes: ProcessFigures {
            n_processes: 1,
            n_descriptors: 4,
            n_sockets: 2,
            max_open_files: Some(1024),
        },
        devices: vec![DeviceFigures {
            name: "/dev/vda".to_owned(),
            major: 254,
            minor: 0,
            read_bytes: 4096,
            write_bytes: 8192,
            n_reads: 1,
            n_writes: 2,
        }],
        pressure: Some(Pressure { cpu: stalls, memory: stalls, io: stalls }),
        interfaces: vec![InterfaceFigures {
            name: "eth0".to_owned(),
            received: TrafficFigures { bytes: 11, n_packets: 1, n_errors: 0, n_dropped: 0 },
            sent: TrafficFigures::default(),
        }],
    }
}

fn figures() -> UsageFigures {
    let path = "/kubepods/burstable/poduid-web";
    let container = |id: &str| Whose::Container("uid-web".into(), id.into());
    UsageFigures {
        at: at(),
        cgroups: vec![
            cgroup(Whose::Node, "/"),
            cgroup(Whose::AllPods, "/kubepods"),
            cgroup(Whose::Class, "/kubepods/burstable"),
            cgroup(Whose::Pod("uid-web".into()), path),
            cgroup(container("c1"), &format!("{path}/c1")),
            cgroup(container("s1"), &format!("{path}/s1")),
            cgroup(Whose::Pod("gone".into()), "/kubepods/podgone"),
        ],
        disks: vec![DiskFigures { device: "/dev/vda".to_owned(), ..DiskFigures::default() }],
        processes: None,
    }
}

fn web() -> Pod {
    let pod = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web"},
        "status": {"containerStatuses": [{
            "name": "main", "image": "busybox:latest", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": "containerd://c1", "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}},
        }]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[test]
fn families_types_and_labels_are_upstreams() {
    let text = write(Some(&figures()), &[web()], &Machine::default(), at());
    let mut shown: BTreeMap<&str, (&str, BTreeSet<&str>)> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(shown.insert(name, (kind, BTreeSet::new())).is_none(), "{name} twice");
        } else if !line.starts_with('#') {
            let (name, labels) = line.split_once('{').unwrap_or((line, ""));
            let name = name.split(' ').next().unwrap();
            let labels = labels.split("=\"").map(|it| it.rsplit([',', '"']).next().unwrap());
            let labels = labels.filter(|it| !it.contains(['}', ' ']) && !it.is_empty());
            shown.get_mut(name).unwrap().1.extend(labels);
        }
    }
    let upstream = include_str!("upstream.txt");
    for line in upstream.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (kind, labels) = shown.remove(words[0]).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(kind, words[1], "{line}");
        let labels: Vec<&str> = labels.into_iter().collect();
        let expected: Vec<&str> = words[2].split(',').filter(|it| *it != "-").collect();
        assert_eq!(labels, expected, "{line}");
    }
    assert_eq!(shown.keys().collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn cgroups_get_the_names_of_their_pods_and_containers() {
    let text = write(Some(&figures()), &[web()], &Machine::default(), at());
    let millis = "1767225600000";
    let path = "/kubepods/burstable/poduid-web";
    let check = |line: String| assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
    check(format!(
        "container_cpu_usage_seconds_total{{container=\"main\",id=\"{path}/c1\",image=\"busybox:latest\",name=\"c1\",namespace=\"shop\",pod=\"web\",cpu=\"total\"}} 2.5 {millis}"
    ));
    // The pod's own cgroup and its sandbox have no container's name.
    check(format!(
        "container_threads{{container=\"\",id=\"{path}\",image=\"\",name=\"\",namespace=\"shop\",pod=\"web\"}} 3 {millis}"
    ));
    check(format!(
        "container_network_receive_bytes_total{{container=\"\",id=\"{path}/s1\",image=\"\",name=\"s1\",namespace=\"shop\",pod=\"web\",interface=\"eth0\"}} 11 {millis}"
    ));
    let of_main = "container_network_receive_bytes_total{container=\"main\"";
    assert!(!text.contains(of_main), "a pod's network counts once");
    check(format!(
        "container_pressure_memory_stalled_seconds_total{{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"}} 1.5 {millis}"
    ));
    check(format!(
        "container_start_time_seconds{{container=\"main\",id=\"{path}/c1\",image=\"busybox:latest\",name=\"c1\",namespace=\"shop\",pod=\"web\"}} 1767225609"
    ));
    assert!(!text.contains("podgone"), "a left-over is nobody's");
    assert!(
        !text.contains("container_spec_cpu_quota{container=\"\",id=\"/\","),
        "the machine has no quota"
    );
}

#[test]
fn numbers_are_written_as_they_are() {
    for (value, expected) in [
        (0.0, "0"),
        (7.0, "7"),
        (1_767_225_609.0, "1767225609"),
        (9_007_199_254_740_991.0, "9007199254740991"),
        (18_446_744_073_709_551_615.0, "18446744073709552000"),
        (0.5, "0.5"),
        (-1.0, "-1"),
        (f64::INFINITY, "inf"),
    ] {
        let mut out = String::new();
        super::number(value, &mut out);
        assert_eq!(out, expected);
    }
}

#[test]
fn a_failed_reading_says_so_and_the_machine_is_still_told() {
    let machine = Machine { n_cpus: 2, boot_id: "b".to_owned(), ..Machine::default() };
    let text = write(None, &[], &machine, at());
    assert!(text.contains("\ncontainer_scrape_error 1\n"), "{text}");
    let cores = "machine_cpu_cores{boot_id=\"b\",machine_id=\"\",system_uuid=\"\"} 2\n";
    assert!(text.contains(cores), "{text}");
    assert!(!text.contains("container_cpu"), "{text}");
}

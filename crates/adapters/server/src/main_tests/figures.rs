//! Figures: what metrics-server and Prometheus get, and what is said when nothing can be read.

use ferrolet_ports::{
    CgroupFigures, CgroupUsage, CpuFigures, DiskUsage, FileRoom, InUse, InterfaceFigures,
    LayerUsage, MemoryFigures, MemoryUsage, PodUsage, Pressure, ProcessFigures, ProcessRoom,
    RuntimeStores, StoreUsage, TrafficFigures, UsageFigures, UsageSnapshot, Whose,
};
use ferrolet_types::{ContainerId, Timestamp};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::rig::{Rig, Wish};
use crate::Hidden;

fn usage(cpu_nanos: u64) -> CgroupUsage {
    CgroupUsage {
        at: Timestamp::from_second(1_767_225_600),
        cpu_nanos: Some(cpu_nanos),
        cpu_nano_cores: Some(7),
        memory: Some(MemoryUsage {
            usage: 1000,
            working_set: 700,
            rss: 100,
            limit: Some(4000),
            page_faults: 5,
            major_page_faults: 1,
        }),
        swap_bytes: Some(0),
        swap_limit_bytes: None,
    }
}

fn snapshot(container: &ContainerId) -> UsageSnapshot {
    UsageSnapshot {
        node: usage(3_000_000_000),
        all_pods: Some(usage(2_500_000_000)),
        pods: vec![
            PodUsage {
                uid: "uid-web".into(),
                total: usage(2_000_000_000),
                containers: vec![
                    (container.clone(), usage(1_500_000_000)),
                    ("the-sandbox".into(), usage(1)),
                ],
            },
            // Somebody's left-over.
            PodUsage { uid: "unknown".into(), total: usage(1), containers: Vec::new() },
        ],
    }
}

#[tokio::test]
async fn resource_metrics_are_those_of_known_pods_and_containers() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    rig.usage.set(Some(snapshot(&rig.container)));
    let (status, text) = rig.ask(Some(&admin), "GET", "/metrics/resource", "").await;
    assert_eq!(status, 200);
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let labels = "container=\"main\",namespace=\"default\",pod=\"web\"";
    let of_pod = "namespace=\"default\",pod=\"web\"";
    let at = "1767225600000";
    let expected = [
        format!("container_cpu_usage_seconds_total{{{labels}}} 1.5 {at}"),
        format!("container_memory_working_set_bytes{{{labels}}} 700 {at}"),
        format!("container_swap_usage_bytes{{{labels}}} 0 {at}"),
        format!("node_cpu_usage_seconds_total 3 {at}"),
        format!("node_memory_working_set_bytes 700 {at}"),
        format!("node_swap_usage_bytes 0 {at}"),
        format!("pod_cpu_usage_seconds_total{{{of_pod}}} 2 {at}"),
        format!("pod_memory_working_set_bytes{{{of_pod}}} 700 {at}"),
        format!("pod_swap_usage_bytes{{{of_pod}}} 0 {at}"),
        "resource_scrape_error 0".to_owned(),
    ];
    assert_eq!(samples, expected);
    rig.usage.set(None);
    let (status, text) = rig.ask(Some(&admin), "GET", "/metrics/resource", "").await;
    assert_eq!(status, 200);
    assert!(text.ends_with("resource_scrape_error 1\n"), "{text}");
}

#[tokio::test]
async fn a_figure_that_upstream_hides_is_shown_to_who_still_needs_it() {
    let rig = Rig::new(Wish { hidden: Hidden::Shown, ..Wish::default() }).await;
    let admin = rig.admin();
    let (status, text) = rig.ask(Some(&admin), "GET", "/metrics/resource", "").await;
    assert_eq!(status, 200);
    let deprecated = "# HELP scrape_error [ALPHA] (Deprecated since 1.29.0) ";
    assert!(text.contains(deprecated), "{text}");
    assert!(text.ends_with("\nscrape_error 1\n"), "{text}");
}

#[tokio::test]
async fn the_summary_tells_the_same_in_json() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    rig.usage.set(Some(snapshot(&rig.container)));
    for method in ["GET", "POST"] {
        let path = "/stats/summary?only_cpu_and_memory=true";
        let (status, text) = rig.ask(Some(&admin), method, path, "").await;
        assert_eq!(status, 200);
        let summary: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(summary["node"]["nodeName"], "node-1");
        assert_eq!(summary["node"]["cpu"]["usageCoreNanoSeconds"], 3_000_000_000u64);
        assert_eq!(summary["node"]["memory"]["availableBytes"], 3300);
        assert_eq!(summary["node"]["systemContainers"][0]["name"], "pods");
        let pods = summary["pods"].as_array().unwrap();
        assert_eq!(pods.len(), 1);
        assert_eq!(pods[0]["podRef"]["uid"], "uid-web");
        assert_eq!(pods[0]["containers"].as_array().unwrap().len(), 1);
        assert_eq!(pods[0]["containers"][0]["name"], "main");
        assert_eq!(pods[0]["containers"][0]["cpu"]["usageNanoCores"], 7);
        assert_eq!(pods[0]["containers"][0]["memory"]["time"], "2026-01-01T00:00:00Z");
    }
    rig.usage.set(None);
    let path = "/stats/summary?only_cpu_and_memory=true";
    for (path, expected) in [
        (path, (500, "Internal Error: read usage: no cgroups")),
        ("/stats/summary", (500, "Internal Error: read usage: no cgroups")),
    ] {
        let (status, words) = rig.ask(Some(&admin), "GET", path, "").await;
        assert_eq!((status, words.as_str()), expected, "{path}");
    }
}

#[tokio::test]
async fn a_summary_is_slim_only_for_those_who_say_true_once() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    rig.usage.set(Some(snapshot(&rig.container)));
    // Only the slim one can be read here.
    for (query, status) in [
        ("only_cpu_and_memory=true", 200),
        ("other=1&only_cpu_and_memory=true", 200),
        ("only_cpu_and_memory=1", 500),
        ("only_cpu_and_memory=True", 500),
        ("only_cpu_and_memory=maybe", 500),
        ("only_cpu_and_memory=true&only_cpu_and_memory=true", 500),
        ("", 500),
    ] {
        let path = format!("/stats/summary?{query}");
        let (got, words) = rig.ask(Some(&admin), "GET", &path, "").await;
        assert_eq!(got, status, "{query}: {words}");
    }
}

#[tokio::test]
async fn figures_are_compressed_for_those_who_ask_and_say_when_counting_began() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    rig.usage.set(Some(snapshot(&rig.container)));
    for path in ["/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/slis"] {
        for (asked, is_compressed) in [("", false), ("Accept-Encoding: gzip\r\n", true)] {
            let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{asked}\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            let answer = String::from_utf8_lossy(&answer).to_lowercase();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains("process-start-time-unix: "), "{head}");
            assert_eq!(head.contains("content-encoding: gzip"), is_compressed);
            assert_eq!(body.contains("# type "), !is_compressed, "{path}");
        }
    }
    // A summary is not, as upstream's is not.
    let gzip = "Accept-Encoding: gzip\r\n";
    let path = "/stats/summary?only_cpu_and_memory=true";
    let (_, text) = rig.ask(Some(&admin), "GET", path, gzip).await;
    assert!(text.starts_with('{'), "{text}");
}

fn cgroup(whose: Whose, n_processes: u64) -> CgroupFigures {
    CgroupFigures {
        interfaces: match &whose {
            Whose::Container(_, id) if id.as_str() == "the-sandbox" => vec![InterfaceFigures {
                name: "eth0".to_owned(),
                received: TrafficFigures { bytes: 9, ..TrafficFigures::default() },
                ..InterfaceFigures::default()
            }],
            _ => Vec::new(),
        },
        path: "/x".to_owned(),
        made: Timestamp::from_second(1_767_225_000),
        usage: usage(1_500_000_000),
        cpu: CpuFigures::default(),
        memory: MemoryFigures::default(),
        n_threads: None,
        max_threads: None,
        processes: ProcessFigures { n_processes, ..ProcessFigures::default() },
        devices: Vec::new(),
        pressure: (whose == Whose::Node).then(Pressure::default),
        whose,
    }
}

#[tokio::test]
async fn the_whole_summary_has_disks_networks_and_processes() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let at = Timestamp::from_second(1_767_225_600);
    let uid = || "uid-web".into();
    rig.usage.set_figures(Some(UsageFigures {
        at,
        cgroups: vec![
            cgroup(Whose::Node, 80),
            cgroup(Whose::System("runtime".to_owned()), 1),
            cgroup(Whose::AllPods, 0),
            cgroup(Whose::Class, 0),
            cgroup(Whose::Pod(uid()), 0),
            cgroup(Whose::Container(uid(), rig.container.clone()), 2),
            cgroup(Whose::Container(uid(), "the-sandbox".into()), 1),
        ],
        disks: Vec::new(),
        processes: Some(ProcessRoom { max: 32768, n: 99 }),
    }));
    let room = FileRoom {
        capacity: 1000,
        available: 400,
        used: 600,
        inodes: 100,
        inodes_free: 40,
        inodes_used: 60,
    };
    let in_use = |bytes, inodes| InUse { bytes, inodes };
    rig.usage.set_disk(
        DiskUsage {
            at,
            node: room,
            logs: room,
            container_logs: vec![(uid(), "main".to_owned(), in_use(10, 1))],
            pod_files: vec![(uid(), in_use(4, 1))],
            volumes: Vec::new(),
        },
        room,
    );
    let store =
        StoreUsage { place: "/var/lib/runtime".to_owned(), at: Some(at), used: in_use(50, 5) };
    rig.disk.set(
        vec![LayerUsage { id: rig.container.clone(), at: Some(at), used: in_use(7, 3) }],
        RuntimeStores { images: Some(store), containers: None },
    );
    let (status, text) = rig.ask(Some(&admin), "GET", "/stats/summary", "").await;
    assert_eq!(status, 200);
    let summary: Value = serde_json::from_str(&text).unwrap();
    let (node, pod) = (&summary["node"], &summary["pods"][0]);
    let check = |got: &Value, path: &str, expected: Value| {
        assert_eq!(got.pointer(path), Some(&expected), "{path} in {got}");
    };
    check(node, "/fs/usedBytes", json!(600));
    check(node, "/runtime/imageFs/usedBytes", json!(50));
    check(node, "/runtime/containerFs/capacityBytes", json!(1000));
    check(node, "/rlimit/curproc", json!(99));
    check(node, "/cpu/psi/some/avg10", json!(0.0));
    check(node, "/systemContainers/0/name", json!("runtime"));
    check(node, "/systemContainers/1/name", json!("pods"));
    check(pod, "/network/rxBytes", json!(9));
    check(pod, "/process_stats/process_count", json!(3));
    check(pod, "/containers/0/rootfs/usedBytes", json!(7));
    check(pod, "/containers/0/logs/usedBytes", json!(10));
    check(pod, "/ephemeral-storage/usedBytes", json!(21));
    check(pod, "/ephemeral-storage/inodesUsed", json!(5));
    assert_eq!(pod.pointer("/cpu/psi"), None, "only what the kernel told");
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort_unstable();
        keys
    };
    // As recorded from upstream, and what upstream adds where it can.
    assert_eq!(
        keys(node),
        [
            "cpu",
            "fs",
            "io",
            "memory",
            "network",
            "nodeName",
            "rlimit",
            "runtime",
            "startTime",
            "swap",
            "systemContainers"
        ]
    );
    assert_eq!(
        keys(pod),
        [
            "containers",
            "cpu",
            "ephemeral-storage",
            "io",
            "memory",
            "network",
            "podRef",
            "process_stats",
            "startTime",
            "swap"
        ]
    );
    assert_eq!(
        keys(&pod["containers"][0]),
        ["cpu", "io", "logs", "memory", "name", "rootfs", "startTime", "swap"]
    );
}

#[tokio::test]
async fn the_server_counts_its_requests_with_bounded_labels() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    for path in ["/pods", "/pods", "/nobody-knows-1", "/nobody-knows-2"] {
        rig.ask(Some(&admin), "GET", path, "").await;
    }
    rig.ask(None, "JUNK", "/pods", "").await;
    let (status, text) = rig.ask(Some(&admin), "GET", "/metrics", "").await;
    assert_eq!(status, 200);
    let total = |method: &str, path: &str, n: u32| {
        let line = format!(
            "kubelet_http_requests_total{{long_running=\"false\",method=\"{method}\",path=\"{path}\",server_type=\"readwrite\"}} {n}\n"
        );
        assert!(text.contains(&line), "{line} in {text}");
    };
    total("GET", "pods", 2);
    total("GET", "other", 2);
    total("other", "pods", 1);
    total("GET", "metrics", 1);
    assert!(text.contains("kubelet_node_name{node=\"node-1\"} 1\n"));
    assert_eq!(rig.ask(Some(&admin), "GET", "/metrics/probes", "").await, (200, String::new()));
    for line in [
        "kubelet_running_pods 1",
        "kubelet_desired_pods{static=\"\"} 1",
        "kubelet_running_containers{container_state=\"running\"} 1",
        "hidden_metrics_total 0",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} in {text}");
    }
    for n in ["1", "2"] {
        let (status, text) = rig.ask(Some(&admin), "GET", "/metrics/slis", "").await;
        assert_eq!(status, 200);
        let line = format!(
            "kubernetes_healthchecks_total{{name=\"ping\",status=\"success\",type=\"healthz\"}} {n}\n"
        );
        assert!(text.contains(&line), "{line} in {text}");
        let now = "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n";
        assert!(text.contains(now), "{text}");
    }
    let reset = rig.ask(Some(&admin), "DELETE", "/metrics/slis", "").await;
    assert_eq!(reset.0, 200);
    let (_, text) = rig.ask(Some(&admin), "GET", "/metrics/slis", "").await;
    assert!(text.contains("status=\"success\",type=\"healthz\"} 1\n"), "{text}");
    let scraper = rig.authority.client("scraper", &[]);
    rig.reviews.allow("scraper", "get", "metrics");
    for (path, status) in
        [("/metrics", 200), ("/metrics/resource", 200), ("/stats/summary", 403), ("/pods", 403)]
    {
        assert_eq!(rig.ask(Some(&scraper), "GET", path, "").await.0, status, "{path}");
    }
}

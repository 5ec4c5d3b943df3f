//! Figures: what metrics-server and Prometheus get, and what is said when nothing can be read.

use ferrolet_ports::{CgroupUsage, MemoryUsage, PodUsage, UsageSnapshot};
use ferrolet_types::{ContainerId, Timestamp};
use serde_json::Value;

use super::rig::{Rig, Wish};

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
            PodUsage {
                uid: "unknown".into(),
                total: usage(1),
                containers: Vec::new(),
            },
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
        assert_eq!(
            summary["node"]["cpu"]["usageCoreNanoSeconds"],
            3_000_000_000u64
        );
        assert_eq!(summary["node"]["memory"]["availableBytes"], 3300);
        assert_eq!(summary["node"]["systemContainers"][0]["name"], "pods");
        let pods = summary["pods"].as_array().unwrap();
        assert_eq!(pods.len(), 1);
        assert_eq!(pods[0]["podRef"]["uid"], "uid-web");
        assert_eq!(pods[0]["containers"].as_array().unwrap().len(), 1);
        assert_eq!(pods[0]["containers"][0]["name"], "main");
        assert_eq!(pods[0]["containers"][0]["cpu"]["usageNanoCores"], 7);
        assert_eq!(
            pods[0]["containers"][0]["memory"]["time"],
            "2026-01-01T00:00:00Z"
        );
    }
    rig.usage.set(None);
    let (status, words) = rig.ask(Some(&admin), "GET", "/stats/summary", "").await;
    assert_eq!((status, words.as_str()), (500, "read usage: no cgroups"));
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
    assert_eq!(
        rig.ask(Some(&admin), "GET", "/metrics/probes", "").await,
        (200, String::new())
    );
    let scraper = rig.authority.client("scraper", &[]);
    rig.reviews.allow("scraper", "get", "metrics");
    for (path, status) in [
        ("/metrics", 200),
        ("/metrics/resource", 200),
        ("/stats/summary", 403),
        ("/pods", 403),
    ] {
        assert_eq!(
            rig.ask(Some(&scraper), "GET", path, "").await.0,
            status,
            "{path}"
        );
    }
}

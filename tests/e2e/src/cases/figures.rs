//! Figures of a node that works: the summary, what dashboards scrape, and whether Prometheus itself
//! is content.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::parts::{self, Part};
use ferrolet_lab::process::Daemon;
use ferrolet_lab::{Node, http, wait_until};
use serde_json::{Value, json};

use super::{LATER, SOON, cases, wait_running};
use crate::build::{pod, script, with};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    prometheus_has_nothing_to_say_against_any_endpoint,
    prometheus_scrapes_every_endpoint_without_a_warning,
    ; both: a_working_pod_is_seen_in_the_summary_and_by_dashboards,
];

/// Where figures are.
const ENDPOINTS: [&str; 5] =
    ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis"];

const BUSY: &str = "dd if=/dev/zero of=/file bs=1M count=2 2>/dev/null; i=0; \
                    while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; exec sleep 100000";

fn a_working_pod_is_seen_in_the_summary_and_by_dashboards(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    let mounted = json!({"volumeMounts": [{"name": "cache", "mountPath": "/cache"}]});
    let busy = with(
        pod("busy", &[with(script("main", BUSY), mounted)]),
        json!({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}}),
    );
    node.put_pod(&busy)?;
    let seen = wait_running(&mut node, "busy")?;
    // Somebody says something to it, so that its network has figures; that nobody answers is no
    // matter.
    let ip = seen.0["status"]["podIP"].as_str().context("it has no address")?;
    let _ = TcpStream::connect_timeout(&format!("{ip}:9").parse()?, SOON);
    node.wait("a true summary", SOON, |node| expect_summary(&summary(node)?).map(Some))?;
    node.wait("true figures of cAdvisor's kind", SOON, |node| {
        expect_of_containers(&node.read_only("/metrics/cadvisor")?.body).map(Some)
    })?;
    node.wait("true figures of the agent", SOON, |node| {
        expect_of_agent(&node.read_only("/metrics")?.body).map(Some)
    })?;
    Ok(Outcome::Passed)
}

fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

fn has_pressure() -> bool {
    is_v2() && Path::new("/proc/pressure/cpu").exists()
}

fn expect_summary(summary: &Value) -> Result<()> {
    let (host, pod) = (&summary["node"], &summary["pods"][0]);
    ensure!(pod["containers"][0]["name"] == "main", "the pod is {pod}");
    for path in [
        "/cpu/usageCoreNanoSeconds",
        "/memory/workingSetBytes",
        "/memory/availableBytes",
        "/fs/capacityBytes",
        "/fs/inodes",
        "/runtime/imageFs/capacityBytes",
        "/runtime/containerFs/capacityBytes",
        "/rlimit/maxpid",
        "/rlimit/curproc",
    ] {
        ensure!(positive(host, path), "{path} of the node is {:?} in {host}", host.pointer(path));
    }
    for path in [
        "/memory/workingSetBytes",
        "/ephemeral-storage/usedBytes",
        "/process_stats/process_count",
        "/containers/0/cpu/usageCoreNanoSeconds",
        "/containers/0/memory/usageBytes",
        "/containers/0/logs/capacityBytes",
    ] {
        ensure!(positive(pod, path), "{path} of the pod is {:?} in {pod}", pod.pointer(path));
    }
    let network = pod.pointer("/network/interfaces/0/name");
    ensure!(network == Some(&Value::from("eth0")), "its network is {network:?}");
    if has_pressure() {
        for path in ["/cpu/psi/some/total", "/memory/psi/full/total"] {
            let container = &pod["containers"][0];
            ensure!(
                container.pointer(path).is_some_and(Value::is_u64),
                "{path} is not in {container}"
            );
        }
    }
    Ok(())
}

fn expect_of_containers(shown: &str) -> Result<()> {
    for (family, labels) in [
        ("container_cpu_usage_seconds_total", "container=\"main\""),
        ("container_memory_working_set_bytes", "container=\"main\""),
        ("container_processes", "container=\"main\""),
        ("container_network_receive_bytes_total", "interface=\"eth0\""),
        ("container_threads", "container=\"\""),
    ] {
        let line = shown.lines().find(|line| {
            line.starts_with(family) && line.contains(labels) && line.contains("pod=\"busy-")
        });
        let value = line.and_then(|line| line.rsplit(' ').nth(1)?.parse::<f64>().ok());
        ensure!(value.is_some_and(|it| it > 0.0), "{family} is {line:?}");
    }
    let family = "container_pressure_cpu_waiting_seconds_total";
    ensure!(!has_pressure() || shown.contains(family), "{family} is not in {shown}");
    Ok(())
}

fn expect_of_agent(own: &str) -> Result<()> {
    let version = format!("kubelet_cgroup_version {}", if is_v2() { 2 } else { 1 });
    for line in [
        version.as_str(),
        "kubelet_running_pods 1",
        "kubelet_desired_pods{static=\"true\"} 1",
        "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 1",
        "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"} 1",
        "kubelet_started_containers_total{container_type=\"container\"} 1",
        "kubelet_pod_start_duration_seconds_count 1",
        "kubelet_containers_per_pod_count_sum 1",
        "kubelet_cgroup_manager_duration_seconds_count{operation_type=\"create\"} 1",
        "kubelet_image_manager_ensure_image_requests_total{present_locally=\"true\",\
         pull_policy=\"ifnotpresent\",pull_required=\"false\"} 1",
        "kubelet_image_volume_requested_total 0",
        "volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\",state=\"actual_state_of_world\"} 1",
        "volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\",state=\"desired_state_of_world\"} 1",
        "storage_operation_duration_seconds_count{migrated=\"false\",operation_name=\"volume_mount\",\
         status=\"success\",volume_plugin=\"kubernetes.io/empty-dir\"} 1",
        "workqueue_depth{name=\"kubelet_log_rotate_manager\"} 0",
    ] {
        ensure!(own.lines().any(|it| it == line), "{line} is not in {own}");
    }
    Ok(())
}

fn prometheus_has_nothing_to_say_against_any_endpoint(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let programs = match parts::prometheus() {
        Part::Available(programs) => programs,
        Part::Missing(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let mut node = context.node()?;
    node.put_pod(&pod("plain", &[script("main", "exec sleep 100000")]))?;
    wait_running(&mut node, "plain")?;
    for path in ENDPOINTS {
        let text = node.read_only(path)?.body;
        ensure!(!text.is_empty(), "{path} is empty");
        let (is_content, said) = check(&programs.join("promtool"), &text)?;
        // Upstream's own names are not all to its liking; what it cannot read is another matter.
        let worse: Vec<&str> = said.lines().filter(|line| !is_about_names(line)).collect();
        ensure!(is_content || worse.is_empty(), "promtool says of {path}: {worse:?}");
    }
    Ok(Outcome::Passed)
}

fn prometheus_scrapes_every_endpoint_without_a_warning(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let programs = match parts::prometheus() {
        Part::Available(programs) => programs,
        Part::Missing(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let port = http::free_port()?;
    let mut options = context.node_options();
    options.configuration = json!({"port": port});
    let mut node = context.node_with(options)?;
    let probe = json!({"readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}});
    node.put_pod(&pod("plain", &[with(script("main", BUSY), probe)]))?;
    wait_running(&mut node, "plain")?;
    let target = format!("{}:{port}", context.bench.node_ip());
    // One reads text, the other asks for protobuf.
    let mut all = Vec::new();
    for (name, flags) in
        [("text", &[][..]), ("protobuf", &["--enable-feature=native-histograms"][..])]
    {
        let directory = node.directory().join(format!("prometheus-{name}"));
        all.push(Prometheus::start(&programs, &directory, &target, flags)?);
    }
    for prometheus in &mut all {
        prometheus.expect_contentment()?;
    }
    Ok(Outcome::Passed)
}

/// What it must know after a while.
const KNOWN: [&str; 7] = [
    "kubelet_running_pods",
    "container_memory_working_set_bytes{container=\"main\",job=\"resource\"}",
    "container_memory_working_set_bytes{container=\"main\",job=\"cadvisor\"}",
    "prober_probe_total{probe_type=\"Readiness\",result=\"successful\"}",
    "kubernetes_healthcheck{name=\"ping\"}",
    "rate(container_cpu_usage_seconds_total{job=\"resource\",container=\"main\"}[1m]) + 1",
    "histogram_quantile(0.5, kubelet_pod_start_duration_seconds_bucket)",
];

/// A Prometheus that scrapes one node.
struct Prometheus {
    daemon: Daemon,
    address: String,
}

impl Prometheus {
    fn start(
        programs: &Path,
        directory: &Path,
        target: &str,
        flags: &[&str],
    ) -> Result<Prometheus> {
        fs::create_dir_all(directory)?;
        let jobs = ENDPOINTS.map(|path| {
            let name = path.rsplit('/').next().unwrap_or_default();
            json!({
                "job_name": name,
                "scheme": "https",
                "tls_config": {"insecure_skip_verify": true},
                "metrics_path": path,
                "static_configs": [{"targets": [target]}],
            })
        });
        // JSON is YAML too.
        let config = json!({
            "global": {"scrape_interval": "3s", "scrape_timeout": "3s"},
            "scrape_configs": jobs,
        });
        let file = directory.join("prometheus.yml");
        fs::write(&file, config.to_string())?;
        let address = format!("127.0.0.1:{}", http::free_port()?);
        let mut command = Command::new(programs.join("prometheus"));
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(flags)
            .current_dir(directory);
        let daemon = Daemon::spawn("prometheus", command, &directory.join("log"))?;
        Ok(Prometheus { daemon, address })
    }

    /// Waits until it knows what it must, and fails if it had to complain.
    fn expect_contentment(&mut self) -> Result<()> {
        // Three good rounds: repeated samples, times that go back and series that come and go only
        // show then. A round that took too long on a busy machine is nobody's fault and does not
        // count; what cannot be read would fail each time.
        self.wait("count(up)", |n| n == ENDPOINTS.len() as f64)?;
        self.wait("min(sum_over_time(up[5m]))", |least| least >= 3.0)?;
        for query in KNOWN {
            self.wait(query, |value| value > 0.0)?;
        }
        let complaints = self.complaints();
        ensure!(complaints.is_empty(), "Prometheus says {complaints:#?}");
        Ok(())
    }

    /// Waits until the first value of a query's answer holds.
    fn wait(&mut self, query: &str, holds: impl Fn(f64) -> bool) -> Result<()> {
        let path = format!("/api/v1/query?query={}", encoded(query));
        wait_until(&format!("Prometheus to know {query}"), LATER, || {
            self.daemon.expect_running()?;
            let answer: Value = serde_json::from_str(&http::get(&self.address, &path)?.body)?;
            let value = &answer["data"]["result"][0]["value"][1];
            let number = value.as_str().and_then(|text| text.parse::<f64>().ok());
            ensure!(number.is_some_and(&holds), "it is {answer}");
            Ok(Some(()))
        })
    }

    /// Lines of its log that are more than news.
    fn complaints(&self) -> Vec<String> {
        let text = self.daemon.log_text();
        let lines = text.lines().filter(|line| {
            ["level=warn", "level=error", "level=WARN", "level=ERROR"]
                .iter()
                .any(|level| line.contains(level))
        });
        lines.map(str::to_owned).collect()
    }
}

/// A text as it stands in a query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Remarks about names and units that are upstream's.
fn is_about_names(line: &str) -> bool {
    [
        "non-counter metrics should not have",
        "counter metrics should have",
        "non-histogram and non-summary metrics should not have",
        "metric names should not contain abbreviated units",
        "use base unit",
        "metric name should not include type",
        "metric names should be written in",
        "label names should be written in",
    ]
    .iter()
    .any(|remark| line.contains(remark))
}

fn check(promtool: &Path, text: &str) -> Result<(bool, String)> {
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start promtool")?;
    let mut input = child.stdin.take().context("promtool has no input")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

fn summary(node: &Node) -> Result<Value> {
    Ok(serde_json::from_str(&node.read_only("/stats/summary")?.body)?)
}

fn positive(value: &Value, path: &str) -> bool {
    value.pointer(path).and_then(Value::as_u64).is_some_and(|it| it > 0)
}

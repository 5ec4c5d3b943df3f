//! Figures of a node that works: the summary, what dashboards scrape, and whether Prometheus itself is content.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::parts::{self, Part};
use ferrolet_lab::{Node, wait_until};
use serde_json::Value;

use super::{SOON, cases, wait_running};
use crate::build::{pod, script};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_working_pod_is_seen_in_the_summary_and_by_dashboards,
    prometheus_has_nothing_to_say_against_any_endpoint,
];

const BUSY: &str = "dd if=/dev/zero of=/file bs=1M count=2 2>/dev/null; i=0; \
                    while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; exec sleep 100000";

fn a_working_pod_is_seen_in_the_summary_and_by_dashboards(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("busy", &[script("main", BUSY)]))?;
    wait_running(&mut node, "busy")?;
    let summary = wait_until("the pod with its log in the summary", SOON, || {
        let summary = summary(&node)?;
        let pod = summary["pods"].as_array().and_then(|it| it.first());
        let container = pod.map(|pod| &pod["containers"][0]);
        let is_there = container
            .is_some_and(|it| it["name"] == "main" && positive(it, "/cpu/usageCoreNanoSeconds"));
        Ok(is_there.then_some(summary))
    })?;
    let (host, pod) = (&summary["node"], &summary["pods"][0]);
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
        ensure!(
            positive(host, path),
            "{path} of the node is {:?} in {host}",
            host.pointer(path)
        );
    }
    for path in [
        "/memory/workingSetBytes",
        "/ephemeral-storage/usedBytes",
        "/process_stats/process_count",
        "/containers/0/memory/usageBytes",
        "/containers/0/logs/capacityBytes",
    ] {
        ensure!(
            positive(pod, path),
            "{path} of the pod is {:?} in {pod}",
            pod.pointer(path)
        );
    }
    let network = pod.pointer("/network/interfaces/0/name");
    ensure!(
        network == Some(&Value::from("eth0")),
        "its network is {network:?}"
    );
    let shown = node.read_only("/metrics/cadvisor")?.body;
    for (family, labels) in [
        ("container_cpu_usage_seconds_total", "container=\"main\""),
        ("container_memory_working_set_bytes", "container=\"main\""),
        ("container_processes", "container=\"main\""),
        (
            "container_network_receive_bytes_total",
            "interface=\"eth0\"",
        ),
        ("container_threads", "container=\"\""),
    ] {
        let line = shown.lines().find(|line| {
            line.starts_with(family) && line.contains(labels) && line.contains("pod=\"busy-")
        });
        let value = line.and_then(|line| line.rsplit(' ').nth(1)?.parse::<f64>().ok());
        ensure!(value.is_some_and(|it| it > 0.0), "{family} is {line:?}");
    }
    let own = node.read_only("/metrics")?.body;
    for line in [
        "kubelet_running_pods 1",
        "kubelet_desired_pods{static=\"true\"} 1",
    ] {
        ensure!(own.lines().any(|it| it == line), "{line} is not in {own}");
    }
    let starts = "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 1";
    ensure!(
        own.lines().any(|it| it == starts),
        "{starts} is not in {own}"
    );
    Ok(Outcome::Passed)
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
    for path in [
        "/metrics",
        "/metrics/cadvisor",
        "/metrics/resource",
        "/metrics/probes",
        "/metrics/slis",
    ] {
        let text = node.read_only(path)?.body;
        ensure!(!text.is_empty(), "{path} is empty");
        let (is_content, said) = check(&programs.join("promtool"), &text)?;
        // Upstream's own names are not all to its liking; what it cannot read is another matter.
        let worse: Vec<&str> = said.lines().filter(|line| !is_about_names(line)).collect();
        ensure!(
            is_content || worse.is_empty(),
            "promtool says of {path}: {worse:?}"
        );
    }
    Ok(Outcome::Passed)
}

/// Remarks about names and units that are upstream's.
fn is_about_names(line: &str) -> bool {
    [
        "non-counter metrics should not have",
        "counter metrics should have",
        "metric names should not contain abbreviated units",
        "use base unit",
        "metric name should not include type",
        "metric names should be written in",
        "label names should be written in",
    ]
    .iter()
    .any(|remark| line.contains(remark))
}

fn check(promtool: &std::path::Path, text: &str) -> Result<(bool, String)> {
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
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    ))
}

fn summary(node: &Node) -> Result<Value> {
    Ok(serde_json::from_str(
        &node.read_only("/stats/summary")?.body,
    )?)
}

fn positive(value: &Value, path: &str) -> bool {
    value
        .pointer(path)
        .and_then(Value::as_u64)
        .is_some_and(|it| it > 0)
}

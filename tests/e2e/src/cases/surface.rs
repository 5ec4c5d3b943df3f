//! What the agent shows: health, the list of pods, logs; and what it is told over HTTP.

use anyhow::{Result, ensure};
use ferrolet_lab::http::StaticServer;
use serde_json::{Value, json};

use super::{LATER, SOON, cases, wait_running};
use crate::build::{pod, sleeper};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    health_answers_ok_and_lists_its_checks_when_asked,
    the_list_of_pods_is_a_pod_list_with_full_status,
    logs_are_json_when_asked,
    logs_are_in_upstreams_text_format_otherwise,
    pods_come_from_a_url_with_its_header,
    a_list_of_pods_comes_from_a_url,
    nothing_listens_on_the_read_only_port_unless_it_is_set,
    the_plain_ports_serve_what_upstreams_do_and_no_more,
];

/// Paths, and what the health port and the read-only port say to them.
const PLAIN: [(&str, u16, u16); 28] = [
    ("/healthz", 200, 200),
    ("/healthz/ping", 200, 200),
    ("/healthz/log", 404, 200),
    ("/healthz/syncloop", 404, 200),
    ("/healthz/nothing", 404, 404),
    ("/pods", 404, 200),
    ("/stats/summary", 404, 200),
    ("/metrics", 404, 200),
    ("/metrics/cadvisor", 404, 200),
    ("/metrics/resource", 404, 200),
    ("/metrics/probes", 404, 200),
    ("/metrics/slis", 404, 200),
    ("/", 404, 404),
    ("/runningpods/", 404, 405),
    ("/allocatedPods", 404, 404),
    ("/configz", 404, 404),
    ("/flagz", 404, 404),
    ("/statusz", 404, 404),
    ("/logs/", 404, 405),
    ("/containerLogs/default/a/b", 404, 405),
    ("/exec/default/a/b?command=id&output=1", 404, 405),
    ("/attach/default/a/b?output=1", 404, 405),
    ("/portForward/default/a", 404, 405),
    ("/run/default/a/b?cmd=id", 404, 405),
    ("/checkpoint/default/a/b", 404, 404),
    ("/debug/pprof/", 404, 405),
    ("/debug/flags/v", 404, 404),
    ("/page/", 404, 404),
];

fn health_answers_ok_and_lists_its_checks_when_asked(context: &mut Context<'_>) -> Result<Outcome> {
    let node = context.node()?;
    let plain = node.healthz("/healthz")?;
    ensure!(
        (plain.status, plain.body.as_str()) == (200, "ok"),
        "healthz says {plain:?}"
    );
    let verbose = node.healthz("/healthz?verbose")?;
    let text = &verbose.body;
    ensure!(verbose.status == 200, "it says {verbose:?}");
    ensure!(
        text.contains("[+]ping ok") && text.ends_with("healthz check passed\n"),
        "it says {text:?}"
    );
    Ok(Outcome::Passed)
}

fn the_list_of_pods_is_a_pod_list_with_full_status(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("shown", &[sleeper("main")]))?;
    let seen = wait_running(&mut node, "shown")?;
    let list: Value = serde_json::from_str(&node.read_only("/pods")?.body)?;
    ensure!(
        list["kind"] == "PodList" && list["apiVersion"] == "v1",
        "it is a {} of {}",
        list["kind"],
        list["apiVersion"]
    );
    let (spec, status) = (&seen.0["spec"], &seen.0["status"]);
    ensure!(
        spec["nodeName"] == node.name(),
        "nodeName is {}",
        spec["nodeName"]
    );
    let main = &status["containerStatuses"][0];
    for (what, value) in [
        ("startTime", &status["startTime"]),
        ("podIPs", &status["podIPs"][0]["ip"]),
        ("image", &main["image"]),
        ("imageID", &main["imageID"]),
        ("containerID", &main["containerID"]),
        ("startedAt", &main["state"]["running"]["startedAt"]),
    ] {
        ensure!(
            value.as_str().is_some_and(|text| !text.is_empty()),
            "{what} is {value}"
        );
    }
    ensure!(
        status["qosClass"] == "BestEffort",
        "qosClass is {}",
        status["qosClass"]
    );
    Ok(Outcome::Passed)
}

fn logs_are_json_when_asked(context: &mut Context<'_>) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"logging": {"format": "json"}});
    let mut node = context.node_with(options)?;
    node.put_pod(&pod("noted", &[sleeper("main")]))?;
    wait_running(&mut node, "noted")?;
    let text = node.log_text();
    let parsed: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let good = parsed
        .iter()
        .filter(|it| it["ts"].is_number() && it["msg"].is_string() && it["v"].is_number())
        .count();
    ensure!(
        good > 3,
        "only {good} of {} lines are JSON log lines",
        text.lines().count()
    );
    let n_others = text.lines().count() - parsed.len();
    // Warnings about flags may come before logging is set up.
    ensure!(
        n_others <= 5,
        "{n_others} lines are not JSON:\n{text:.2000}"
    );
    Ok(Outcome::Passed)
}

fn logs_are_in_upstreams_text_format_otherwise(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("noted", &[sleeper("main")]))?;
    wait_running(&mut node, "noted")?;
    let text = node.log_text();
    let is_klog = |line: &&str| {
        let (head, rest) = line.split_at(line.len().min(5));
        head.starts_with(['I', 'W', 'E'])
            && head[1..].bytes().all(|byte| byte.is_ascii_digit())
            && rest.contains(".rs:") | rest.contains(".go:")
            && rest.contains("] ")
    };
    let n_good = text.lines().filter(is_klog).count();
    ensure!(
        n_good > 3,
        "only {n_good} lines look like I1115 21:18:00.000000   42 file:1] \"text\" key=\"value\":\n{text:.1000}"
    );
    Ok(Outcome::Passed)
}

fn pods_come_from_a_url_with_its_header(context: &mut Context<'_>) -> Result<Outcome> {
    let server = StaticServer::start(&pod("remote", &[sleeper("main")]).to_string())?;
    let mut options = context.node_options();
    options.configuration = json!({
        "staticPodURL": server.url(),
        "staticPodURLHeader": {"X-Lab": ["yes"]},
        "httpCheckFrequency": "1s",
    });
    let mut node = context.node_with(options)?;
    let seen = wait_running(&mut node, "remote")?;
    ensure!(
        seen.annotation("kubernetes.io/config.source") == Some("http"),
        "its source is not http"
    );
    let asked = server.requests();
    ensure!(
        asked
            .iter()
            .all(|head| head.to_lowercase().contains("x-lab: yes")),
        "requests were {asked:?}"
    );
    // The same body again changes nothing; another one replaces the pod; none removes it.
    let n_asked = asked.len();
    node.wait("two more requests", SOON, |_| {
        Ok((server.requests().len() >= n_asked + 2).then_some(()))
    })?;
    let same = node.pod("remote")?;
    ensure!(
        same.container("main")?.id() == seen.container("main")?.id(),
        "an unchanged body restarted the pod"
    );
    server.set_body(&pod("another", &[sleeper("main")]).to_string());
    wait_running(&mut node, "another")?;
    node.wait("the first pod to go", LATER, |node| {
        Ok(node.pod("remote").is_err().then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn a_list_of_pods_comes_from_a_url(context: &mut Context<'_>) -> Result<Outcome> {
    let items = [
        pod("first", &[sleeper("main")]),
        pod("second", &[sleeper("main")]),
    ];
    let server = StaticServer::start(
        &json!({"apiVersion": "v1", "kind": "PodList", "items": items}).to_string(),
    )?;
    let mut options = context.node_options();
    options.configuration = json!({"staticPodURL": server.url(), "httpCheckFrequency": "1s"});
    let mut node = context.node_with(options)?;
    wait_running(&mut node, "first")?;
    wait_running(&mut node, "second")?;
    Ok(Outcome::Passed)
}

fn nothing_listens_on_the_read_only_port_unless_it_is_set(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"readOnlyPort": null});
    let node = context.node_with(options)?;
    ensure!(
        node.read_only("/pods").is_err(),
        "something answers on the read-only port"
    );
    Ok(Outcome::Passed)
}

fn the_plain_ports_serve_what_upstreams_do_and_no_more(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("shown", &[sleeper("main")]))?;
    wait_running(&mut node, "shown")?;
    for (path, of_health, of_reading) in PLAIN {
        let got = (node.healthz(path)?.status, node.read_only(path)?.status);
        ensure!(
            got == (of_health, of_reading),
            "{path} is answered with {got:?}"
        );
    }
    Ok(Outcome::Passed)
}

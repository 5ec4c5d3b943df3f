//! What the agent shows: health, the list of pods, logs; and what it is told over HTTP.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::http::{self, StaticServer};
use ferrolet_lab::process::output;
use ferrolet_lab::{Node, PodView, wait_until};
use serde_json::{Value, json};

use super::{LATER, SOON, cases, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::context::Context;
use crate::runner::{Outcome, without};

cases![
    health_answers_ok_and_lists_its_checks_when_asked,
    the_list_of_pods_is_a_pod_list_with_full_status,
    logs_are_json_when_asked,
    logs_are_in_upstreams_text_format_otherwise,
    pods_come_from_a_url_with_its_header,
    a_list_of_pods_comes_from_a_url,
    nothing_listens_on_the_read_only_port_unless_it_is_set,
    the_plain_ports_serve_what_upstreams_do_and_no_more,
    a_changed_configuration_takes_effect_and_a_bad_one_changes_nothing,
    versions_and_suites_of_tls_are_those_that_are_configured,
    a_service_manager_hears_that_the_agent_is_up_and_lives,
    ; guest: a_checkpoint_of_a_container_is_an_archive_of_it,
];

/// Paths, and what the health port and the read-only port say to them.
const PLAIN: [(&str, u16, u16); 29] = [
    ("/healthz", 200, 200),
    ("/healthz/ping", 200, 200),
    ("/healthz/log", 404, 200),
    ("/healthz/syncloop", 404, 200),
    ("/healthz/pleg", 404, 404),
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
    ensure!((plain.status, plain.body.as_str()) == (200, "ok"), "healthz says {plain:?}");
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
    ensure!(spec["nodeName"] == node.name(), "nodeName is {}", spec["nodeName"]);
    let main = &status["containerStatuses"][0];
    for (what, value) in [
        ("startTime", &status["startTime"]),
        ("podIPs", &status["podIPs"][0]["ip"]),
        ("image", &main["image"]),
        ("imageID", &main["imageID"]),
        ("containerID", &main["containerID"]),
        ("startedAt", &main["state"]["running"]["startedAt"]),
    ] {
        ensure!(value.as_str().is_some_and(|text| !text.is_empty()), "{what} is {value}");
    }
    ensure!(status["qosClass"] == "BestEffort", "qosClass is {}", status["qosClass"]);
    Ok(Outcome::Passed)
}

fn logs_are_json_when_asked(context: &mut Context<'_>) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"logging": {"format": "json"}});
    let mut node = context.node_with(options)?;
    node.put_pod(&pod("noted", &[sleeper("main")]))?;
    wait_running(&mut node, "noted")?;
    let text = node.log_text();
    let parsed: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let good = parsed
        .iter()
        .filter(|it| it["ts"].is_number() && it["msg"].is_string() && it["v"].is_number())
        .count();
    ensure!(good > 3, "only {good} of {} lines are JSON log lines", text.lines().count());
    let n_others = text.lines().count() - parsed.len();
    // Warnings about flags may come before logging is set up.
    ensure!(n_others <= 5, "{n_others} lines are not JSON:\n{text:.2000}");
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
        asked.iter().all(|head| head.to_lowercase().contains("x-lab: yes")),
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
    node.wait("the first pod to go", LATER, |node| Ok(node.pod("remote").is_err().then_some(())))?;
    Ok(Outcome::Passed)
}

fn a_list_of_pods_comes_from_a_url(context: &mut Context<'_>) -> Result<Outcome> {
    let items = [pod("first", &[sleeper("main")]), pod("second", &[sleeper("main")])];
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
    ensure!(node.read_only("/pods").is_err(), "something answers on the read-only port");
    Ok(Outcome::Passed)
}

fn a_changed_configuration_takes_effect_and_a_bad_one_changes_nothing(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("first", &[sleeper("main")]))?;
    wait_running(&mut node, "first")?;
    let file = node.directory().join("kubelet.yaml");
    let mut configuration: Value = serde_json::from_slice(&fs::read(&file)?)?;
    let said = |node: &mut Node, text: &str, words: &str, n_times: usize| {
        fs::write(&file, text)?;
        let is_said = |node: &Node| node.log_text().matches(words).count() == n_times;
        node.wait(words, LATER, |node| Ok(is_said(node).then_some(())))
    };
    said(&mut node, "maxPods: many", "cannot be used; the old one stays", 1)?;
    configuration["maxPods"] = json!(1);
    configuration["registryBurst"] = json!(11);
    let words = r#"applied="maxPods" waitingForRestart="registryBurst""#;
    said(&mut node, &configuration.to_string(), words, 1)?;
    // One is here, and no other fits beside it: both are a manifest's, so neither has to go.
    node.put_pod(&pod("second", &[sleeper("main")]))?;
    let reason = "UnexpectedAdmissionError";
    let is_turned_away = |pod: &PodView| pod.0["status"]["reason"] == reason;
    node.wait_pod("second", "turned away", LATER, is_turned_away)?;
    configuration["maxPods"] = json!(5);
    said(&mut node, &configuration.to_string(), words, 2)?;
    node.put_pod(&pod("third", &[sleeper("main")]))?;
    wait_running(&mut node, "third")?;
    ensure!(node.pod("first")?.restarts() == 0, "the first pod was touched");
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
        ensure!(got == (of_health, of_reading), "{path} is answered with {got:?}");
    }
    Ok(Outcome::Passed)
}

/// What a client offers, and whether they agree.
type Offers<'a> = &'a [(&'a [&'a str], bool)];

/// One for each kind of key that a server may have. Without these upstream's kubelet does not
/// start, because HTTP/2 wants them.
const LISTED: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256";
const OTHERS: &str = "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384";

fn versions_and_suites_of_tls_are_those_that_are_configured(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("openssl") {
        return Ok(skipped);
    }
    let suites =
        ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];
    let old = ["-tls1_1", "-cipher", "ALL@SECLEVEL=0"];
    let cases: [(Value, Offers<'_>); 3] = [
        (
            json!({}),
            &[
                (&["-tls1_3"], true),
                (&["-tls1_2", "-cipher", LISTED], true),
                (&["-tls1_2", "-cipher", OTHERS], true),
                (&old, false),
            ],
        ),
        (
            json!({"tlsMinVersion": "VersionTLS13"}),
            &[(&["-tls1_3"], true), (&["-tls1_2"], false), (&old, false)],
        ),
        (
            json!({"tlsMinVersion": "VersionTLS12", "tlsCipherSuites": suites}),
            &[
                (&["-tls1_3"], true),
                (&["-tls1_2", "-cipher", LISTED], true),
                (&["-tls1_2", "-cipher", OTHERS], false),
            ],
        ),
    ];
    for (settings, offers) in cases {
        let port = http::free_port()?;
        let mut options = context.node_options();
        options.configuration = with(json!({"port": port}), settings.clone());
        let _node = context.node_with(options)?;
        let address = format!("{}:{port}", context.bench.node_ip());
        for (offer, expected) in offers {
            // The first offer of each is good, and waits for the server to listen.
            wait_until("what they agree on", SOON, || {
                let agreed = Command::new("openssl")
                    .args(["s_client", "-connect", &address])
                    .args(*offer)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .context("start openssl")?;
                ensure!(
                    agreed.success() == *expected,
                    "with {settings}, {offer:?} ends with {agreed}"
                );
                Ok(Some(()))
            })?;
        }
    }
    Ok(Outcome::Passed)
}

/// A refusal, with the errors of the log that it names.
fn in_full(said: &str) -> String {
    let log = said.split_once("path= ");
    let log = log.and_then(|(_, rest)| rest.split([')', ' ']).next());
    let text = log.and_then(|log| std::fs::read_to_string(log).ok());
    let errors = text.iter().flat_map(|text| text.lines());
    let errors: Vec<&str> = errors.filter(|line| line.contains("Error")).collect();
    format!("{said}\n{}", errors.join("\n"))
}

/// Where CRIU and the kernel get on with one another; elsewhere they say why not, and
/// `cluster_inside` shows that this is passed on.
fn a_checkpoint_of_a_container_is_an_archive_of_it(context: &mut Context<'_>) -> Result<Outcome> {
    if let Some(skipped) = without("criu").or_else(|| without("curl")) {
        return Ok(skipped);
    }
    let checked = Command::new("criu").arg("check").output()?;
    if !checked.status.success() {
        let said = String::from_utf8_lossy(&checked.stderr);
        let reason = said.lines().next().unwrap_or("criu check fails");
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let port = http::free_port()?;
    let mut options = context.node_options();
    options.configuration = json!({"port": port});
    let mut node = context.node_with(options)?;
    let text = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.2; done";
    // On the node's own network: to hold another one still, CRIU wants programs that a guest does
    // not have.
    let counter =
        with(pod("counter", &[script("main", text)]), json!({"spec": {"hostNetwork": true}}));
    node.put_pod(&counter)?;
    let before = wait_running(&mut node, "counter")?;
    let address = format!("{}:{port}", context.bench.node_ip());
    let path = format!("/checkpoint/default/{}/main", node.pod_name("counter"));
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--max-time", "120"])
        .args(["--request", "POST"])
        .arg(format!("https://{address}{path}"));
    let said = output(&mut curl)?;
    let answer: Value = serde_json::from_str(&said).with_context(|| in_full(&said))?;
    let file = answer["items"][0].as_str().context("no file is named")?;
    let start = node.root().join("checkpoints/checkpoint-counter-");
    ensure!(file.starts_with(&start.display().to_string()), "it is called {file}");
    let archive = std::fs::read(file).with_context(|| format!("read {file}"))?;
    for part in ["config.dump", "spec.dump", "checkpoint/"] {
        let is_there = archive.windows(part.len()).any(|it| it == part.as_bytes());
        ensure!(is_there, "{part} is not in the archive");
    }
    // It goes on as if nothing had been.
    let after = node.pod("counter")?;
    ensure!(
        after.container("main")?.id() == before.container("main")?.id()
            && after.container("main")?.is_running(),
        "the container did not outlive it"
    );
    Ok(Outcome::Passed)
}

fn a_service_manager_hears_that_the_agent_is_up_and_lives(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    let directory = context.bench.directory(&format!("node-{}", options.name))?;
    let socket = directory.join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket)?;
    manager.set_read_timeout(Some(SOON))?;
    let own = |(key, value): (&str, String)| (key.to_owned(), value);
    options.environment =
        [("NOTIFY_SOCKET", socket.display().to_string()), ("WATCHDOG_USEC", "2000000".to_owned())]
            .map(own)
            .into();
    let mut node = context.node_with(options)?;
    let mut heard = Vec::new();
    let n_of = |heard: &[String], word: &str| heard.iter().filter(|it| *it == word).count();
    while n_of(&heard, "WATCHDOG=1") < 3 || n_of(&heard, "READY=1") == 0 {
        let mut message = [0; 64];
        let n = manager.recv(&mut message);
        let n = n.with_context(|| format!("heard {heard:?}"))?;
        heard.push(String::from_utf8_lossy(&message[..n]).into_owned());
        ensure!(heard.len() < 100, "heard {heard:?}");
    }
    node.expect_running()?;
    Ok(Outcome::Passed)
}

//! Every path of the node's server with its methods, parameters and faults: which status, which
//! type, which words.
//!
//! One table; upstream's kubelet can stand in for ours (`--agent …/kubelet`), and where it answers
//! otherwise on purpose or for reasons of its own, the row says what it answers.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{SOON, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::curl::{Ask, Curl, certificate};
use crate::look;
use crate::runner::{Outcome, without};

cases![
    every_endpoint_answers_with_its_status_and_type,
    planted_links_are_not_followed_by_any_log_endpoint,
    pods_are_shown_with_what_they_were_granted_where_the_gate_is_on,
];

const TEXT: &str = "text/plain";
const JSON: &str = "application/json";
const HTML: &str = "text/html";
const ANY: &str = "";

/// A row of the table.
struct Row {
    ask: Ask,
    status: u16,
    content_type: &'static str,
    /// A part of the body.
    words: &'static str,
    /// What upstream's kubelet answers, where that is something else.
    upstream: Option<u16>,
}

fn row(method: &str, path: &str, status: u16, content_type: &'static str) -> Row {
    Row { ask: Ask::new(method, path), status, content_type, words: "", upstream: None }
}

impl Row {
    fn saying(self, words: &'static str) -> Row {
        Row { words, ..self }
    }

    fn with(self, header: &str) -> Row {
        Row { ask: self.ask.with(header), ..self }
    }

    fn sending(self, body: &str) -> Row {
        Row { ask: self.ask.sending(body), ..self }
    }

    fn upstream(self, status: u16) -> Row {
        Row { upstream: Some(status), ..self }
    }
}

/// What is read of the node as a whole.
fn of_the_node() -> Vec<Row> {
    let flagz = "Accept: application/json;as=Flagz;v=v1beta1;g=config.k8s.io";
    let protobuf = "Accept: application/vnd.google.protobuf;\
                    proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3";
    let statusz = "Accept: application/yaml;as=Statusz;v=v1beta1;g=config.k8s.io";
    vec![
        row("GET", "/healthz", 200, TEXT).saying("ok"),
        row("POST", "/healthz", 200, TEXT).saying("ok"),
        row("GET", "/healthz?verbose", 200, TEXT).saying("[+]ping ok"),
        row("GET", "/healthz?verbose&exclude=ping", 200, TEXT).saying("[+]ping excluded: ok"),
        row("GET", "/healthz/ping", 200, TEXT),
        row("GET", "/healthz/log", 200, TEXT),
        row("GET", "/healthz/syncloop", 200, TEXT),
        // How the runtime feels is the node's condition, and no reason to start the agent anew.
        row("GET", "/healthz/pleg", 404, TEXT),
        row("GET", "/healthz/nothing", 404, TEXT),
        // A node that has no device plugins has no check of them.
        row("GET", "/healthz/device-plugin", 200, TEXT),
        row("GET", "/pods", 200, JSON).saying("\"kind\":\"PodList\""),
        row("GET", "/pods/", 200, JSON),
        row("HEAD", "/pods", 405, ANY),
        row("POST", "/pods", 405, ANY),
        row("DELETE", "/pods", 405, ANY),
        row("GET", "/pods/nothing", 404, TEXT).saying("404: Page Not Found"),
        row("GET", "/runningpods/", 200, JSON).saying("\"kind\":\"PodList\""),
        row("POST", "/runningpods/", 405, ANY),
        row("GET", "/runningpods/", 406, TEXT)
            .with("Accept: application/yaml")
            .saying("Available representations: application/json"),
        row("GET", "/pods", 406, TEXT)
            .with("Accept: text/html")
            .saying("406: Not Acceptable"),
        row("GET", "/pods", 200, JSON).with("Accept: text/html, */*;q=0.1"),
        row("GET", "/stats/summary", 406, TEXT).with("Accept: application/*"),
        row("POST", "/pods", 405, ANY).with("Accept: text/html"),
        row("GET", "/stats/summary", 200, JSON).saying("\"usageCoreNanoSeconds\""),
        row("POST", "/stats/summary", 200, JSON),
        row("GET", "/stats/summary?only_cpu_and_memory=true", 200, JSON),
        row("GET", "/stats/summary?only_cpu_and_memory=maybe", 200, JSON),
        row("PUT", "/stats/summary", 405, ANY),
        row("HEAD", "/stats/summary", 405, ANY),
        row("GET", "/stats/summary/", 200, JSON),
        row("GET", "/stats", 307, HTML),
        row("GET", "/stats/nothing", 404, TEXT),
        row("GET", "/metrics", 200, TEXT)
            .saying("kubelet_running_pods 1")
            .upstream(200),
        row("POST", "/metrics", 200, TEXT),
        row("GET", "/metrics", 200, "application/vnd.google.protobuf")
            .with(protobuf)
            .saying("kubelet_running_pods"),
        row(
            "GET",
            "/metrics/cadvisor",
            200,
            "application/vnd.google.protobuf",
        )
        .with(protobuf)
        .saying("machine_cpu_cores"),
        row("GET", "/metrics?name%5B%5D=kubelet_running_pods", 200, TEXT)
            .saying("kubelet_running_pods"),
        row("GET", "/metrics?name%5B%5D=nothing", 200, TEXT),
        row("GET", "/metrics/cadvisor", 200, TEXT).saying("machine_cpu_cores"),
        row("GET", "/metrics/resource", 200, TEXT).saying("resource_scrape_error 0"),
        row("GET", "/metrics/probes", 200, TEXT),
        row("GET", "/metrics/slis", 200, TEXT).saying("kubernetes_healthcheck{"),
        row("DELETE", "/metrics/slis", 200, TEXT).saying("metrics reset"),
        row("GET", "/metrics/nothing", 404, TEXT),
        row("GET", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"),
        row("GET", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8")
            .with("Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.3"),
        row("GET", "/configz", 200, JSON).saying("\"kubeletconfig\""),
        row("POST", "/configz", 200, JSON),
        row("POST", "/flagz", 200, TEXT),
        row("POST", "/statusz", 200, TEXT),
        row("GET", "/flagz", 200, TEXT).saying("kubelet flagz"),
        row("GET", "/flagz", 200, JSON)
            .with(flagz)
            .saying("\"Flagz\""),
        row("GET", "/flagz", 406, JSON)
            .with("Accept: application/json")
            .saying("NotAcceptable"),
        row("GET", "/statusz", 200, TEXT).saying("kubelet statusz"),
        row("GET", "/statusz", 200, "application/yaml")
            .with(statusz)
            .saying("Statusz"),
        row("GET", "/allocatedPods", 404, TEXT),
        row("GET", "/logs/", 200, HTML).saying("<pre>"),
        row("GET", "/logs/nothing", 404, TEXT),
        row("POST", "/logs/", 405, ANY),
        row("HEAD", "/logs/", 405, ANY),
        row("GET", "/logs", 307, HTML),
        row("GET", "/logs/apt", 301, ANY),
        row("GET", "/runningpods", 307, HTML),
        row("GET", "/debug/pprof/", 200, HTML).upstream(404),
        row("GET", "/debug/pprof/cmdline", 200, TEXT),
        row("GET", "/debug/pprof/heap", 200, "application/octet-stream"),
        row(
            "GET",
            "/debug/pprof/profile?seconds=1",
            200,
            "application/octet-stream",
        ),
        row("GET", "/debug/pprof/block", 200, "application/octet-stream"),
        row("GET", "/debug/pprof/mutex", 200, "application/octet-stream"),
        row("HEAD", "/debug/pprof/heap", 405, ANY),
        row("GET", "/debug/pprof", 307, HTML),
        row("GET", "/debug/pprof/nothing", 404, TEXT),
        row("POST", "/debug/pprof/cmdline", 405, ANY),
        row("PUT", "/debug/flags/v", 200, TEXT)
            .sending("4")
            .saying("successfully set klog.logging.verbosity to 4"),
        row("PUT", "/debug/flags/v", 400, TEXT).sending("much"),
        row("GET", "/debug/flags/v", 406, TEXT),
        row("GET", "/", 404, TEXT),
        row("GET", "/nothing", 404, TEXT),
    ]
}

/// The machine's logs by name, where that is switched on.
fn by_name() -> Vec<Row> {
    vec![
        row("GET", "/logs/?query=nobody", 200, TEXT).saying("log not found for nobody"),
        row("GET", "/logs/?query=nobody&tailLines=5", 200, TEXT).saying("options present"),
        row("GET", "/logs/?query=", 400, TEXT)
            .saying("query: Invalid value: [\"\"]: may not be empty"),
        row("GET", "/logs/?tailLines=1", 406, TEXT).saying("query: Required value"),
        row("GET", "/logs/?query=a&query=b&query=c&query=d&query=e", 406, TEXT)
            .saying("query: Too many: 5"),
        row("GET", "/logs/?query=a&boot=x", 400, TEXT)
            .saying("strconv.Atoi: parsing \"x\": invalid syntax"),
        row("GET", "/logs/?query=nobody&tailLines=some", 400, TEXT),
        row("GET", "/logs/?query=nobody&sinceTime=yesterday", 400, TEXT),
        row("GET", "/logs/?query=nobody&boot=1", 406, TEXT).saying("must be less than 1"),
        row("GET", "/logs/?query=a%3Bid", 406, TEXT).saying("unsupported characters"),
        row("GET", "/logs/?query=../../etc/passwd", 406, TEXT),
        row("GET", "/logs/?query=a/b&query=c", 406, TEXT)
            .saying("cannot specify a file and service"),
        row("GET", "/logs/some?query=nobody", 406, TEXT).saying("path not allowed in query mode"),
    ]
}

/// What reaches into pods: `talker` runs, `NS` is its namespace and `UID` its own.
fn into_pods() -> Vec<Row> {
    let log = "/containerLogs/NS/talker/main";
    let query = |query: &str| format!("{log}?{query}");
    let stream = "Sec-WebSocket-Protocol: v4.channel.k8s.io";
    vec![
        row("GET", log, 200, TEXT).saying("two\n").upstream(200),
        row("GET", &query("tailLines=1"), 200, TEXT).saying("three\n").upstream(200),
        row("GET", &query("tail=all"), 200, TEXT).saying("one\n").upstream(200),
        row("GET", &query("limitBytes=3"), 200, TEXT).saying("one").upstream(200),
        row("GET", &query("timestamps=true"), 200, TEXT).saying("Z one\n").upstream(200),
        row("GET", &query("tailLines=some"), 400, ANY).saying("Unable to decode query."),
        row("GET", &query("sinceTime=yesterday"), 400, ANY),
        row("GET", &query("tailLines=-1"), 422, ANY).saying("Invalid request."),
        row("GET", &query("limitBytes=0"), 422, ANY),
        row("GET", &query("sinceSeconds=0"), 422, ANY),
        row("GET", &query("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z"), 422, ANY),
        row("GET", &query("previous=true"), 400, ANY),
        row("GET", &query("stream=Stdout"), 400, ANY).saying("PodLogsQuerySplitStreams"),
        row("GET", "/containerLogs/NS/nobody/main", 404, ANY)
            .saying("pod \"nobody\" does not exist"),
        row("GET", "/containerLogs/NS/talker/nothing", 404, ANY)
            .saying("container \"nothing\" not found in pod \"talker\""),
        row("GET", "/containerLogs/NS/talker", 404, ANY),
        row("POST", log, 405, ANY),
        row("POST", "/run/NS/talker/main?cmd=echo+words", 200, ANY).saying("words\n"),
        row("POST", "/run/NS/talker/UID/main?cmd=echo+words", 200, ANY).saying("words\n"),
        row("POST", "/run/NS/talker/00000000-0000-0000-0000-000000000000/main?cmd=id", 500, ANY)
            // Which does not look at it here.
            .upstream(200),
        row("POST", "/run/NS/talker/main?cmd=false", 500, ANY),
        row("POST", "/run/NS/talker/nothing?cmd=id", 500, ANY).saying("container not found"),
        row("POST", "/run/NS/nobody/main?cmd=id", 404, ANY).saying("pod does not exist"),
        row("GET", "/run/NS/talker/main?cmd=id", 405, ANY),
        row("HEAD", "/containerLogs/NS/talker/main", 405, ANY),
        row("HEAD", "/exec/NS/talker/main?command=id&output=1", 405, ANY),
        row("GET", "/exec/NS/talker/main?command=id", 400, ANY)
            .saying("you must specify at least 1 of stdin, stdout, stderr"),
        row("POST", "/exec/NS/talker/main?command=id&output=1", 500, ANY)
            .saying("Upgrade request required"),
        row("POST", "/exec/NS/nobody/main?command=id&output=1", 404, ANY),
        row("POST", "/exec/NS/talker/nothing?command=id&output=1", 500, ANY),
        row(
            "POST",
            "/exec/NS/talker/00000000-0000-0000-0000-000000000000/main?command=id&output=1",
            500,
            ANY,
        ),
        row("POST", "/exec/NS/talker/UID/main?command=id&output=1", 500, ANY)
            .saying("Upgrade request required"),
        row("PUT", "/exec/NS/talker/main?command=id&output=1", 405, ANY),
        row("GET", "/attach/NS/talker/main", 400, ANY),
        row("POST", "/attach/NS/talker/main?output=1", 500, ANY).saying("Upgrade request required"),
        row("POST", "/attach/NS/talker/UID/main?output=1", 500, ANY)
            .saying("Upgrade request required"),
        row("POST", "/attach/NS/nobody/main?output=1", 404, ANY),
        row("POST", "/attach/NS/talker/nothing?output=1", 500, ANY),
        row("POST", "/portForward/NS/talker", 500, ANY).saying("Upgrade request required"),
        row("POST", "/portForward/NS/talker/UID", 500, ANY).saying("Upgrade request required"),
        row("POST", "/portForward/NS/talker/00000000-0000-0000-0000-000000000000", 404, ANY),
        row("POST", "/portForward/NS/nobody", 404, ANY),
        row("GET", "/portForward/NS/talker?port=0", 400, ANY)
            .with("Connection: Upgrade")
            .with("Upgrade: websocket")
            .with(stream),
        row("GET", "/portForward/NS/talker?port=many", 400, ANY)
            .with("Connection: Upgrade")
            .with("Upgrade: websocket")
            .with(stream),
        row("POST", "/checkpoint/NS/nobody/main", 404, ANY),
        row("POST", "/checkpoint/NS/talker/nothing", 404, ANY),
        row("POST", "/checkpoint/NS/talker/main?timeout=long", 404, ANY),
        row("POST", "/checkpoint/NS/talker/main?timeout=-1", 500, ANY),
        row("GET", "/checkpoint/NS/talker/main", 405, ANY),
    ]
}

/// Paths that one reader could take for another: refused here, cleaned by upstream's router.
fn ambiguous() -> Vec<Row> {
    let rows = [
        ("/pods/../exec/NS/talker/main?command=id&output=1", 307),
        ("/./pods", 307),
        ("//pods", 307),
        ("/logs/../../etc/passwd", 307),
        ("/logs/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/logs/..%2f..%2fetc%2fpasswd", 404),
        ("/containerLogs/NS/talker/..%2f..%2fmain", 404),
        ("/containerLogs/NS/talker/main%00", 404),
        ("/metrics%2f..%2fexec", 404),
    ];
    let rows = rows.map(|(path, upstream)| row("GET", path, 400, TEXT).upstream(upstream));
    rows.into()
}

fn every_endpoint_answers_with_its_status_and_type(context: &mut Context<'_>) -> Result<Outcome> {
    if let Some(skipped) = without("curl") {
        return Ok(skipped);
    }
    let mut options = context.node_options();
    options.configuration = json!({"enableSystemLogQuery": true});
    let mut world = World::start_with(context, options)?;
    let words = "echo one; echo two; echo three; exec sleep 100000";
    let pod = world.pod("talker", &[script("main", words)]);
    let pod = world.run(&pod)?;
    world.said_log(&pod, "main", 3)?;
    let admin = certificate(&world, "admin", &["system:masters"])?;
    let curl = Curl::new(&world)?;
    let namespace = world.namespace.clone();
    let rows: Vec<Row> = [of_the_node(), by_name(), into_pods(), ambiguous()]
        .into_iter()
        .flatten()
        .map(|row| Row { ask: row.ask.in_namespace(&namespace).of_pod(pod.uid()), ..row })
        .collect();
    let asks: Vec<Ask> = rows.iter().map(|row| row.ask.clone()).collect();
    let mut wrong = Vec::new();
    for (row, heard) in rows.iter().zip(curl.ask(&admin, &asks)?) {
        let is_right = match row.upstream {
            // Where it answers otherwise, types and words are its own too.
            Some(status) if context.is_upstream() => heard.status == status,
            _ => {
                heard.status == row.status
                    && heard.content_type.starts_with(row.content_type)
                    && heard.body.contains(row.words)
            }
        };
        if !is_right {
            let body: String = heard.body.chars().take(120).collect();
            let (status, kind) = (heard.status, heard.content_type);
            wrong.push(format!("{:?}: {status} {kind} {body:?}", row.ask));
        }
    }
    ensure!(wrong.is_empty(), "wrong answers:\n{}", wrong.join("\n"));
    // Nothing of all that has hurt: the agent is the same process and the pod runs as before.
    world.node.node.expect_running()?;
    let after = world.wait_ready("talker")?;
    let id = |pod: &ferrolet_lab::PodView| pod.container("main").map(|it| it.id().to_owned());
    ensure!(id(&after)? == id(&pod)?, "the container was replaced");
    Ok(Outcome::Passed)
}

/// A container may have the log directories mounted and write what it likes into them: links to
/// files of the machine are not followed.
fn planted_links_are_not_followed_by_any_log_endpoint(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("curl") {
        return Ok(skipped);
    }
    if context.is_upstream() {
        return Ok(Outcome::Skipped("upstream's kubelet follows them".to_owned()));
    }
    let mut world = World::start(context)?;
    let secret = world.node.node.directory().join("secret");
    fs::write(&secret, "nobody may read this\n")?;
    let victim = world.pod("victim", &[script("main", "echo harmless; exec sleep 100000")]);
    let victim = world.run(&victim)?;
    world.settled_log(&victim, "main")?;
    let logs = look::log_directory(&world.node.node, &victim);
    let planted = format!("planted-{}", world.namespace);
    let plant = format!(
        "ln -s {secret} /system/{planted} && ln -s {place} /system/{planted}-directory && \
         ln -sf {secret} /pods/{of}/main/0.log && echo planted; exec sleep 100000",
        secret = secret.display(),
        place = world.node.node.directory().display(),
        of = logs.file_name().unwrap_or_default().to_string_lossy(),
    );
    let mounts = json!({"volumeMounts": [
        {"name": "system", "mountPath": "/system"}, {"name": "pods", "mountPath": "/pods"}]});
    let attacker = world.pod("attacker", &[with(script("main", &plant), mounts)]);
    let pod_logs = world.node.node.pod_logs();
    let attacker = with(
        attacker,
        json!({"spec": {"volumes": [
            {"name": "system", "hostPath": {"path": "/var/log"}},
            {"name": "pods", "hostPath": {"path": pod_logs.display().to_string()}},
        ]}}),
    );
    let attacker = world.run(&attacker)?;
    let said = world.settled_log(&attacker, "main")?;
    ensure!(said == ["planted"], "the attacker says {said:?}");
    let admin = certificate(&world, "admin", &["system:masters"])?;
    let curl = Curl::new(&world)?;
    let namespace = world.namespace.clone();
    let paths = [
        format!("/logs/{planted}"),
        format!("/logs/{planted}-directory/"),
        format!("/logs/{planted}-directory/secret"),
        format!("/containerLogs/{namespace}/victim/main"),
        format!("/containerLogs/{namespace}/victim/main?tailLines=5"),
    ];
    let asks: Vec<Ask> = paths.iter().map(|path| Ask::new("GET", path)).collect();
    let heard = curl.ask(&admin, &asks)?;
    for (path, heard) in paths.iter().zip(&heard) {
        ensure!(!heard.body.contains("nobody may read"), "{path} shows the secret");
        ensure!(
            heard.status == 404 || heard.status == 400 || heard.status == 500,
            "{path} is answered with {heard:?}"
        );
    }
    let through = world.kubectl(&["logs", "victim"]);
    ensure!(!format!("{through:?}").contains("nobody may read"), "kubectl logs shows the secret");
    fs::remove_file(format!("/var/log/{planted}"))?;
    fs::remove_file(format!("/var/log/{planted}-directory"))?;
    Ok(Outcome::Passed)
}

fn pods_are_shown_with_what_they_were_granted_where_the_gate_is_on(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(skipped) = without("curl") {
        return Ok(skipped);
    }
    let mut options = context.node_options();
    options.configuration = json!({"featureGates": {"KubeletAllocatedPodsEndpoint": true}});
    let mut world = World::start_with(context, options)?;
    let small = json!({"resources": {"requests": {"cpu": "100m", "memory": "20Mi"}}});
    let main = with(script("main", "exec sleep 100000"), small);
    let pod = world.pod("grower", &[main]);
    let pod = world.run(&pod)?;
    // Another pod has most of the machine, so that the wish is known and not granted.
    let node = world.node.object(world.cluster)?;
    let cpu = &node["status"]["allocatable"]["cpu"];
    let cores: u64 = cpu.as_str().and_then(|it| it.parse().ok()).unwrap_or(1);
    let most = json!({"resources": {"requests": {"cpu": format!("{}m", cores * 1000 - 300)}}});
    let hog = world.pod("hog", &[with(script("main", "exec sleep 100000"), most)]);
    world.run(&hog)?;
    let patch = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}]}});
    let patch = format!("--patch={patch}");
    world.kubectl(&["patch", "pod", "grower", "--subresource=resize", &patch])?;
    world.wait_pod("grower", "a resize that cannot be", SOON, |pod| {
        pod.condition("PodResizePending") == Some("True")
    })?;
    let admin = certificate(&world, "admin", &["system:masters"])?;
    let curl = Curl::new(&world)?;
    let (namespace, uid) = (&world.namespace, pod.uid());
    let one = format!("/allocatedPods/{namespace}/grower");
    let requests = |body: &str| -> Result<serde_json::Value> {
        let body: serde_json::Value = serde_json::from_str(body)?;
        let listed = body["items"].as_array().cloned();
        let all = listed.unwrap_or_else(|| vec![body]);
        let found = all.into_iter().find(|it| it["metadata"]["name"] == "grower");
        let pod = found.unwrap_or_default();
        ensure!(
            pod["status"] == json!({}) || pod["status"].is_null(),
            "it has a status: {}",
            pod["status"]
        );
        Ok(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone())
    };
    let listed = requests(&curl.body(&admin, "/allocatedPods")?)?;
    ensure!(listed == "100m", "the list has {listed}");
    for path in [one.clone(), format!("{one}/{uid}")] {
        let shown = requests(&curl.body(&admin, &path)?)?;
        ensure!(shown == "100m", "{path} has {shown}");
    }
    let asks = [
        Ask::new("GET", &format!("/allocatedPods/{namespace}/nobody")),
        Ask::new("GET", &format!("{one}/another-uid")),
        Ask::new("POST", "/allocatedPods"),
    ];
    let statuses: Vec<u16> = curl.ask(&admin, &asks)?.iter().map(|heard| heard.status).collect();
    ensure!(statuses == [404, 404, 405], "others get {statuses:?}");
    Ok(Outcome::Passed)
}

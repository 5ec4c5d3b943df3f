//! The services for programs on the node, asked by a client in Go that names the socket's path as
//! HTTP/2's authority.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::process::{find_program, output};
use ferrolet_lab::{Part, http};
use serde_json::{Value, json};

use super::{LATER, SOON, cases, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_go_client_reads_what_pods_were_given,
    a_go_client_reads_pods_as_they_are,
    a_go_client_watches_pods_come_and_go,
    a_collector_receives_the_trace_of_a_pods_start,
];

/// The client, or why there is none.
fn client(context: &Context<'_>) -> Result<PathBuf, Outcome> {
    match &context.options.local_client {
        Part::Available(client) => Ok(client.clone()),
        Part::Missing(reason) => Err(Outcome::Skipped(reason.clone())),
    }
}

fn ask(client: &Path, socket: &Path, words: &[&str]) -> Result<Value> {
    let mut answers = Vec::new();
    // With percent signs, and as it is: clients of both kinds are about.
    for raw in [&[][..], &["-raw"][..]] {
        let run = Command::new(client)
            .args(raw)
            .arg(socket)
            .args(words)
            .output()
            .context("start the client")?;
        let said = String::from_utf8_lossy(&run.stderr);
        ensure!(run.status.success(), "{words:?} {raw:?}: {said}");
        answers.push(serde_json::from_slice::<Value>(&run.stdout)?);
    }
    ensure!(answers[0] == answers[1], "two clients hear {} and {}", answers[0], answers[1]);
    Ok(answers.remove(0))
}

fn a_go_client_reads_what_pods_were_given(context: &mut Context<'_>) -> Result<Outcome> {
    let client = match client(context) {
        Ok(client) => client,
        Err(skipped) => return Ok(skipped),
    };
    let mut node = context.node()?;
    let side = with(sleeper("side"), json!({"restartPolicy": "Always"}));
    let first = script("first", "true");
    let spec = json!({"spec": {"initContainers": [first, side]}});
    node.put_pod(&with(pod("given", &[sleeper("main")]), spec))?;
    wait_running(&mut node, "given")?;
    let socket = node.root().join("pod-resources/kubelet.sock");
    let name = node.pod_name("given");
    let of_pod = json!({
        "name": name, "namespace": "default",
        "containers": [{"name": "side"}, {"name": "main"}],
    });
    let listed = ask(&client, &socket, &["resources"])?;
    ensure!(listed == json!({"pod_resources": [of_pod]}), "{listed}");
    let one = ask(&client, &socket, &["resources-of", "default", &name])?;
    ensure!(one == json!({"pod_resources": of_pod}), "{one}");
    let old = ask(&client, &socket, &["old-resources"])?;
    let names = &old["pod_resources"][0]["containers"];
    ensure!(names == &json!([{"name": "main"}]), "{old}");
    let all = ask(&client, &socket, &["allocatable"])?;
    ensure!(all == json!({}), "nothing is for one pod alone: {all}");
    let missing = ask(&client, &socket, &["resources-of", "default", "nobody"])?;
    let expected =
        json!({"code": "Unknown", "message": "pod nobody in namespace default not found"});
    ensure!(missing == expected, "{missing}");
    let flood = ask(&client, &socket, &["flood"])?;
    let expected = json!({"code": "ResourceExhausted", "message": "rejected by rate limit"});
    ensure!(flood == expected, "{flood}");
    // The next agent takes the socket's place.
    node.kill()?;
    node.relaunch()?;
    node.wait("an answer of the next agent", SOON, |_| {
        let listed = ask(&client, &socket, &["resources"]);
        Ok(listed.is_ok_and(|it| it["pod_resources"][0]["name"] == name).then_some(()))
    })?;
    Ok(Outcome::Passed)
}

/// Without what says nothing: one side leaves it out where the other writes it.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), pruned(value)))
            .filter(|(_, value)| !is_nothing(value))
            .collect(),
        Value::Array(items) => items.iter().map(pruned).collect(),
        other => other.clone(),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_true) => !is_true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn a_go_client_reads_pods_as_they_are(context: &mut Context<'_>) -> Result<Outcome> {
    let client = match client(context) {
        Ok(client) => client,
        Err(skipped) => return Ok(skipped),
    };
    let mut node = context.node()?;
    let main = with(
        sleeper("main"),
        json!({
            "env": [{"name": "A", "value": "b"},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "ports": [{"name": "web", "containerPort": 8080}],
            "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "10m"}},
            "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3},
            "livenessProbe": {"httpGet": {"port": "web", "path": "/x"}, "initialDelaySeconds": 9999},
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
            "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}, "runAsUser": 0},
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        }),
    );
    let spec = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {"example.org/x": "y"}},
        "spec": {
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}},
                        {"name": "host", "hostPath": {"path": "/tmp", "type": "Directory"}}],
            "tolerations": [{"operator": "Exists"}],
            "dnsConfig": {"options": [{"name": "ndots", "value": "3"}]},
            "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["far"]}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}},
        },
    });
    node.put_pod(&with(pod("shown", &[main]), spec))?;
    wait_running(&mut node, "shown")?;
    node.wait_pod("shown", "ready", SOON, |pod| pod.containers().iter().all(|it| it.is_ready()))?;
    let socket = node.root().join("pods-api/pods-api.sock");
    // Two looks are two moments, and a pod goes on a little after it is ready.
    let (ours, theirs) = node.wait("the same twice", SOON, |node| {
        let (seen, listed) = (node.pod("shown")?, ask(&client, &socket, &["pods"])?);
        let (ours, theirs) = (pruned(&seen.0), pruned(&listed[0]));
        for part in ["metadata", "spec", "status"] {
            ensure!(
                ours[part] == theirs[part],
                "{part} is\n{}\nand is read as\n{}",
                ours[part],
                theirs[part]
            );
        }
        Ok(Some((ours, theirs)))
    })?;
    let uid = ours["metadata"]["uid"].as_str().context("no uid")?;
    let one = ask(&client, &socket, &["pod", uid])?;
    ensure!(pruned(&one) == theirs, "by its uid it is {one}");
    let missing = ask(&client, &socket, &["pod", "nobody"])?;
    let expected = json!({"code": "NotFound", "message": "pod with UID nobody not found"});
    ensure!(missing == expected, "{missing}");
    Ok(Outcome::Passed)
}

/// The client as something that goes on saying lines, ended with the test.
struct Watch {
    process: Child,
    lines: Receiver<String>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Watch {
    fn start(client: &Path, socket: &Path, verb: &str) -> Result<Watch> {
        let mut process =
            Command::new(client).arg(socket).arg(verb).stdout(Stdio::piped()).spawn()?;
        let out = process.stdout.take().context("the client has no output")?;
        let (say, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { return };
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Watch { process, lines })
    }

    fn line(&mut self) -> Result<Value> {
        let line = self.lines.recv_timeout(LATER);
        let line = line.context("the next line of the client")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Kind and pod of the next event.
    fn next(&mut self) -> Result<(String, Value)> {
        let event = self.line()?;
        let kind = event["type"].as_str().context("not an event")?;
        Ok((kind.to_owned(), event["pod"].clone()))
    }
}

fn a_go_client_watches_pods_come_and_go(context: &mut Context<'_>) -> Result<Outcome> {
    let client = match client(context) {
        Ok(client) => client,
        Err(skipped) => return Ok(skipped),
    };
    let mut node = context.node()?;
    node.put_pod(&pod("early", &[sleeper("main")]))?;
    wait_running(&mut node, "early")?;
    let socket = node.root().join("pods-api/pods-api.sock");
    let mut watch = Watch::start(&client, &socket, "watch")?;
    let (kind, first) = watch.next()?;
    let name = |pod: &Value| pod["metadata"]["name"].clone();
    let early = json!(node.pod_name("early"));
    ensure!(kind == "ADDED" && name(&first) == early, "{kind} {first}");
    let (kind, _) = watch.next()?;
    ensure!(kind == "INITIAL_SYNC_COMPLETE", "then {kind}");
    node.put_pod(&pod("late", &[sleeper("main")]))?;
    let late = json!(node.pod_name("late"));
    // Of the first one there may still be something to tell.
    let mut next = || -> Result<(String, Value)> {
        loop {
            let (kind, shown) = watch.next()?;
            if kind != "MODIFIED" || name(&shown) != early {
                return Ok((kind, shown));
            }
        }
    };
    let (kind, shown) = next()?;
    ensure!(kind == "ADDED" && name(&shown) == late, "{kind} {shown}");
    loop {
        let (kind, shown) = next()?;
        ensure!(kind == "MODIFIED", "{kind} {shown}");
        if shown["status"]["phase"] == "Running" {
            break;
        }
    }
    node.remove_manifest("late.yaml")?;
    loop {
        let (kind, shown) = next()?;
        ensure!(name(&shown) == late, "{kind} {shown}");
        if kind == "DELETED" {
            ensure!(shown["spec"]["containers"].is_null(), "only names: {shown}");
            break;
        }
    }
    Ok(Outcome::Passed)
}

fn a_collector_receives_the_trace_of_a_pods_start(context: &mut Context<'_>) -> Result<Outcome> {
    let client = match client(context) {
        Ok(client) => client,
        Err(skipped) => return Ok(skipped),
    };
    let mut options = context.node_options();
    let directory = context.bench.directory(&format!("otlp-{}", options.name))?;
    std::fs::create_dir_all(&directory)?;
    let socket = directory.join("collector.sock");
    let endpoint = format!("unix://{}", socket.display());
    let port = http::free_port()?;
    options.configuration = json!({
        "port": port,
        "tracing": {"endpoint": endpoint, "samplingRatePerMillion": 1_000_000},
    });
    let mut collector = Watch::start(&client, &socket, "collect")?;
    let mut node = context.node_with(options)?;
    node.put_pod(&pod("traced", &[sleeper("main")]))?;
    wait_running(&mut node, "traced")?;
    let mut spans: Vec<Value> = Vec::new();
    let is_call = |span: &Value, call: &str| {
        span["name"] == format!("runtime.v1.RuntimeService/{call}")
            && span["kind"] == "SPAN_KIND_CLIENT"
    };
    // The root ends last. An update that came before anybody had asked the runtime ends without a
    // call; the one after it has them.
    let started = |spans: &[Value]| {
        let start = spans.iter().find(|span| is_call(span, "StartContainer"))?;
        let is_root =
            |span: &&Value| span["name"] == "podUpdate" && span["trace"] == start["trace"];
        spans.iter().find(is_root).cloned()
    };
    // Spans of other work keep coming, so it is their number that ends the wait.
    while started(&spans).is_none() {
        ensure!(spans.len() < 500, "none of {} spans is the root of the start", spans.len());
        spans.push(collector.line()?);
    }
    let root = started(&spans).context("no span")?;
    ensure!(root["parent"] == "", "the root has a parent: {root}");
    let in_tree: Vec<&Value> = spans.iter().filter(|span| span["trace"] == root["trace"]).collect();
    let turns: Vec<&Value> = in_tree
        .iter()
        .copied()
        .filter(|span| span["name"] == "syncPod" && span["parent"] == root["id"])
        .collect();
    ensure!(!turns.is_empty(), "no turn in {spans:?}");
    for call in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
        let found = in_tree.iter().find(|span| is_call(span, call));
        let found = found.with_context(|| format!("no {call} in {spans:?}"))?;
        ensure!(
            turns.iter().any(|turn| turn["id"] == found["parent"]),
            "{call} has another parent: {found}"
        );
    }
    if find_program("curl").is_none() || context.is_upstream() {
        return Ok(Outcome::Passed);
    }
    // Somebody else's trace goes on in the node's server and from there to the runtime.
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let address = format!("{}:{port}", context.bench.node_ip());
    let path = format!("/containerLogs/default/{}/main", node.pod_name("traced"));
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--fail", "--max-time", "30"])
        .arg("--header")
        .arg(format!("traceparent: 00-{trace}-{parent}-01"))
        .arg(format!("https://{address}{path}"));
    output(&mut curl)?;
    let mut spans: Vec<Value> = Vec::new();
    let is_request = |span: &Value| span["name"] == "GET /containerLogs";
    while !spans.iter().any(is_request) {
        spans.push(collector.line()?);
    }
    let request = spans.last().context("no span")?.clone();
    ensure!(
        request["trace"] == trace && request["parent"] == parent,
        "the request is in another trace: {request}"
    );
    ensure!(request["kind"] == "SPAN_KIND_SERVER", "it is {request}");
    let mut calls = spans.iter().filter(|it| it["parent"] == request["id"]);
    ensure!(
        calls.any(|it| it["trace"] == trace && it["kind"] == "SPAN_KIND_CLIENT"),
        "no call to the runtime in {spans:?}"
    );
    Ok(Outcome::Passed)
}

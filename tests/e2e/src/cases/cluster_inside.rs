//! Looking into the agent and into containers through the API server: profiles, verbosity, pages,
//! checkpoints; streams by WebSocket.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::parts::{self, JournalLine};
use ferrolet_lab::process::find_program;
use ferrolet_lab::{Part, http};
use serde_json::{Value, json};

use super::{SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;
use crate::session::Session;

cases![
    profiles_are_opened_by_pprof,
    verbosity_is_changed_while_the_agent_runs,
    pages_are_text_or_versioned_objects,
    a_checkpoint_is_written_or_the_runtime_says_why_not,
    streams_come_by_websocket_all_the_way,
    streams_come_by_spdy_where_websockets_are_not_offered,
    the_journal_of_a_service_is_read_by_its_name,
];

fn raw(world: &World<'_>, path: &str) -> String {
    format!("/api/v1/nodes/{}/proxy{path}", world.node_name())
}

/// An answer of the node as a file, bytes as they are.
fn download(world: &World<'_>, path: &str, name: &str) -> Result<PathBuf> {
    let file = world.node.node.directory().join(name);
    let done = Command::new(world.cluster.kubectl_program())
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig())
        .args(["get", "--raw", &raw(world, path)])
        .stdout(File::create(&file)?)
        .stderr(Stdio::piped())
        .output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{path}: {said}");
    Ok(file)
}

fn profiles_are_opened_by_pprof(context: &mut Context<'_>) -> Result<Outcome> {
    let Some(go) = find_program("go") else {
        return Ok(Outcome::Skipped("Go is not installed".to_owned()));
    };
    let mut world = World::start(context)?;
    let pod = world.pod("busy", &[sleeper("main")]);
    world.run(&pod)?;
    // Somebody has to be busy while the profile is taken.
    let load = world.spawn_kubectl(&["get", "--raw", &raw(&world, "/metrics")])?;
    let cpu = download(&world, "/debug/pprof/profile?seconds=2", "cpu.pb.gz")?;
    load.wait_with_output()?;
    let heap = download(&world, "/debug/pprof/heap", "heap.pb.gz")?;
    for (file, parts) in [
        (&cpu, &["samples/count cpu/nanoseconds", "Period: 10000000"][..]),
        (&heap, &["alloc_space/bytes", "inuse_space/bytes", "Samples:", "ferrolet"][..]),
    ] {
        let opened = Command::new(&go)
            .args(["tool", "pprof", "-symbolize=none", "-raw"])
            .arg(file)
            .env("PPROF_TMPDIR", world.node.node.directory())
            .output()?;
        let text = String::from_utf8_lossy(&opened.stdout).into_owned();
        let said = String::from_utf8_lossy(&opened.stderr);
        ensure!(opened.status.success(), "pprof says {said}");
        for part in parts {
            ensure!(text.contains(part), "{part} is not in {text:.2000}");
        }
    }
    let threads =
        world.kubectl(&["get", "--raw", &raw(&world, "/debug/pprof/goroutine?debug=1")])?;
    ensure!(threads.contains("tokio"), "the threads are {threads}");
    let line = world.kubectl(&["get", "--raw", &raw(&world, "/debug/pprof/cmdline")])?;
    ensure!(line.contains("--config"), "the command line is {line:?}");
    Ok(Outcome::Passed)
}

fn verbosity_is_changed_while_the_agent_runs(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let path = raw(&world, "/debug/flags/v");
    let cluster = world.cluster;
    let set = |level: &str| {
        let args = ["replace", "--raw", &path, "-f", "-"];
        cluster.kubectl_with(&args, level)
    };
    let said = set("9")?;
    let words = "successfully set klog.logging.verbosity to 9";
    ensure!(said.contains(words), "it said {said:?}");
    world.node.node.wait("the log to tell", SOON, |node| {
        Ok(node.log_text().contains("Verbosity is set").then_some(()))
    })?;
    let refused = set("loud");
    let error = format!("{:#}", refused.err().context("a word was taken")?);
    // kubectl keeps the words to itself.
    ensure!(error.contains("BadRequest"), "it failed with {error}");
    Ok(Outcome::Passed)
}

fn pages_are_text_or_versioned_objects(context: &mut Context<'_>) -> Result<Outcome> {
    let world = World::start(context)?;
    // kubectl accepts JSON first and anything else after.
    let text = world.kubectl(&["get", "--raw", &raw(&world, "/statusz")])?;
    ensure!(text.contains("kubelet statusz"), "it says {text}");
    let address = world.cluster.proxy_address();
    let mut stream = TcpStream::connect(&address)?;
    stream.set_read_timeout(Some(SOON))?;
    write!(
        stream,
        "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json;as=Flagz;v=v1beta1;g=config.k8s.io\r\nConnection: close\r\n\r\n",
        raw(&world, "/flagz")
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(
        answer.contains("\"kind\":\"Flagz\",\"apiVersion\":\"config.k8s.io/v1beta1\""),
        "it says {answer}"
    );
    ensure!(answer.contains("\"config\":\"/"), "no flags in {answer}");
    Ok(Outcome::Passed)
}

fn a_checkpoint_is_written_or_the_runtime_says_why_not(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("still", &[sleeper("main")]);
    world.run(&pod)?;
    let path = format!("/checkpoint/{}/still", world.namespace);
    let post = |container: &str| {
        let path = raw(&world, &format!("{path}/{container}"));
        world.cluster.kubectl_with(&["create", "--raw", &path, "-f", "-"], "")
    };
    let missing = post("nobody");
    let error = format!("{:#}", missing.err().context("nobody was written")?);
    ensure!(error.contains("NotFound"), "it says {error}");
    match post("main") {
        Ok(text) => {
            let answer: Value = serde_json::from_str(&text)?;
            let file = answer["items"][0].as_str().context("no file is named")?;
            let name = format!("checkpoints/checkpoint-still_{}-main-", world.namespace);
            ensure!(file.contains(&name), "it is called {file}");
            ensure!(PathBuf::from(file).exists(), "{file} is not there");
        }
        // Without CRIU no runtime can; then its own words are passed on.
        Err(error) => {
            let error = format!("{error:#}");
            if error.contains("of the disk are free") {
                return Ok(Outcome::Skipped("the disk is nearly full".to_owned()));
            }
            let part = format!("checkpointing of {}/still/main failed", world.namespace);
            ensure!(error.contains(&part), "it says {error}");
            ensure!(error.to_lowercase().contains("criu"), "it says {error}");
        }
    }
    Ok(Outcome::Passed)
}

/// How many streams of this kind came by WebSocket, as the agent's log counts them.
fn n_by_websocket(world: &World<'_>, kind: &str) -> usize {
    let log = world.node.node.log_text();
    let of_kind = format!("subresource=\"{kind}\"");
    log.lines()
        .filter(|line| line.contains("A stream comes by WebSocket") && line.contains(&of_kind))
        .count()
}

/// Waits until the log has counted this many of a kind: it is written beside the stream, not before
/// it.
fn expect_by_websocket(world: &World<'_>, kind: &str, expected: usize) -> Result<()> {
    ferrolet_lab::wait_until(&format!("{expected} of kind {kind}"), SOON, || {
        let n = n_by_websocket(world, kind);
        ensure!(n == expected, "{n} came by WebSocket");
        Ok(Some(()))
    })
}

fn streams_come_by_websocket_all_the_way(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let declared = world.node.object(world.cluster)?;
    let declared = &declared["status"]["declaredFeatures"];
    ensure!(
        declared.as_array().is_some_and(|all| all.contains(&json!("ExtendWebSocketsToKubelet"))),
        "it declares {declared}"
    );
    let main = with(
        script("main", "exec httpd -f -p 8080 -h /www"),
        json!({"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}),
    );
    let pod = world.pod("worker", &[main]);
    world.run(&pod)?;
    let said = world.kubectl(&["exec", "worker", "--", "sh", "-c", "echo out; echo err >&2"])?;
    ensure!(said.starts_with("out\n"), "it said {said:?}");
    let failed = world.kubectl(&["exec", "worker", "--", "sh", "-c", "echo bad >&2; exit 3"]);
    let error = format!("{:#}", failed.err().context("a command that fails succeeded")?);
    ensure!(error.contains("bad") && error.contains("exit code 3"), "it failed with {error}");
    // The end of input has to arrive, or this waits for ever.
    let text = "x".repeat(300_000);
    let args = ["exec", "-i", "worker", "--namespace", &world.namespace, "--", "wc", "-c"];
    let counted = world.cluster.kubectl_with(&args, &text)?;
    ensure!(counted.trim() == "300000", "it counted {counted:?}");
    expect_by_websocket(&world, "exec", 3)?;
    let port = http::free_port()?;
    let mut forward =
        world.spawn_kubectl(&["port-forward", "pod/worker", &format!("{port}:8080")])?;
    let answer = world.wait("an answer through the forwarded port", SOON, |_, _| {
        Ok(http::get(&format!("127.0.0.1:{port}"), "/index.html").ok())
    });
    forward.kill().context("end kubectl port-forward")?;
    forward.wait().context("wait for kubectl port-forward")?;
    let answer = answer?;
    ensure!(answer.body == "It works.\n", "the answer is {answer:?}");
    expect_by_websocket(&world, "portforward", 1)?;
    // A client that knows SPDY only is served as well.
    let spdy = Command::new(world.cluster.kubectl_program())
        .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig())
        .args(["exec", "--namespace", &world.namespace, "worker", "--", "echo", "old"])
        .output()?;
    let said = String::from_utf8_lossy(&spdy.stdout);
    ensure!(said == "old\n", "with SPDY it said {said:?}");
    let n = n_by_websocket(&world, "exec");
    ensure!(n == 3, "SPDY was counted as WebSocket");
    Ok(Outcome::Passed)
}

/// The same verbs with a node that does not declare WebSockets: the API server then speaks SPDY to
/// it, whatever kubectl speaks.
fn streams_come_by_spdy_where_websockets_are_not_offered(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"featureGates": {"ExtendWebSocketsToKubelet": false}});
    let mut world = World::start_with(context, options)?;
    let declared = world.node.object(world.cluster)?;
    let declared = &declared["status"]["declaredFeatures"];
    let is_offered = |all: &Vec<Value>| all.contains(&json!("ExtendWebSocketsToKubelet"));
    ensure!(!declared.as_array().is_some_and(is_offered), "it declares {declared}");
    let server = with(
        script("main", "exec httpd -f -p 8080 -h /www"),
        json!({"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}),
    );
    let text = "while read line; do echo \"heard $line\"; done; echo no more; exec sleep 100000";
    let parrot = with(script("parrot", text), json!({"stdin": true, "stdinOnce": true}));
    let pod = world.pod("worker", &[server, parrot]);
    world.run(&pod)?;
    for way in ["true", "false"] {
        let talk = |args: &[&str]| {
            let mut command = world.kubectl_command(args);
            command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", way);
            Session::start(command)
        };
        let mut count = talk(&["exec", "-i", "worker", "-c", "main", "--", "wc", "-c"])?;
        count.say(&"x".repeat(300_000))?;
        count.close_input();
        count.wait_end(SOON)?;
        let counted = count.output();
        ensure!(counted.trim() == "300000", "it counted {counted:?}");
        let script = "echo out; echo bad >&2; exit 3";
        let mut failing = talk(&["exec", "worker", "-c", "main", "--", "sh", "-c", script])?;
        let status = failing.wait_end(SOON)?;
        ensure!(
            status.code() == Some(3)
                && failing.output() == "out\n"
                && failing.errors().starts_with("bad\n"),
            "it ended with {status}: {:?} and {:?}",
            failing.output(),
            failing.errors()
        );
    }
    let mut session = world.talk_to_kubectl(&["attach", "--stdin", "worker", "-c", "parrot"])?;
    session.say_until_heard("one\n", "heard one\n", SOON)?;
    session.close_input();
    session.wait_for("no more\n", SOON)?;
    drop(session);
    let port = http::free_port()?;
    let ports = format!("{port}:8080");
    let mut forward = world.talk_to_kubectl(&["port-forward", "pod/worker", &ports])?;
    forward.wait_for("Forwarding from", SOON)?;
    for _ in 0..3 {
        let answer = http::get(&format!("127.0.0.1:{port}"), "/index.html")?;
        ensure!(answer.body == "It works.\n", "the answer is {answer:?}");
    }
    for kind in ["exec", "attach", "portforward"] {
        let n = n_by_websocket(&world, kind);
        ensure!(n == 0, "{n} of kind {kind} came by WebSocket");
    }
    Ok(Outcome::Passed)
}

/// systemd's own program reads a real journal; only the services that wrote it are made up.
fn the_journal_of_a_service_is_read_by_its_name(context: &mut Context<'_>) -> Result<Outcome> {
    let writer = match parts::journal_writer() {
        Part::Available(writer) => writer,
        Part::Missing(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let mut options = context.node_options();
    options.configuration = json!({"enableSystemLogQuery": true});
    let world = World::start_with(context, options)?;
    let (one, other) = (format!("one-{}", world.namespace), format!("other-{}", world.namespace));
    // Midnight of the first day of 2026, and a minute each.
    let line = |service: &str, minute: u64, message: &str| JournalLine {
        unit: format!("{service}.service"),
        at: 1_767_225_600 + 60 * minute,
        message: message.to_owned(),
    };
    let lines = [
        line(&one, 0, "red"),
        line(&one, 1, "green"),
        line(&other, 2, "grey"),
        line(&one, 3, "blue"),
    ];
    writer.add(&world.namespace, &lines)?;
    let colours = |query: &str| -> Result<Vec<String>> {
        let path = raw(&world, &format!("/logs/?query={query}"));
        let text = world.kubectl(&["get", "--raw", &path])?;
        let words = text.lines().filter_map(|line| line.rsplit_once("]: "));
        Ok(words.map(|(_, word)| word.to_owned()).collect())
    };
    let cases: [(String, &[&str]); 6] = [
        (one.clone(), &["red", "green", "blue"]),
        (format!("{one}&tailLines=1"), &["blue"]),
        (
            format!("{one}&sinceTime=2026-01-01T00:00:30Z&untilTime=2026-01-01T00:02:00Z"),
            &["green"],
        ),
        (format!("{one}&pattern=e[de]"), &["red", "green"]),
        (format!("{one}&boot=0"), &["red", "green", "blue"]),
        (format!("{one}&query={other}"), &["red", "green", "grey", "blue"]),
    ];
    for (query, expected) in cases {
        let got = colours(&query)?;
        ensure!(got == expected, "{query} gives {got:?}");
    }
    let path = raw(&world, &format!("/logs/?query={one}&tailLines=1"));
    let text = world.kubectl(&["get", "--raw", &path])?;
    let words = "Jan 01 00:03:00.000000 lab program[1]: blue";
    ensure!(text.trim() == words, "it says {text:?}");
    Ok(Outcome::Passed)
}

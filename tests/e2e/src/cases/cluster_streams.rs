//! Into pods with kubectl: logs, commands, files and ports, through the API server and the node's
//! own server.

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::http;
use serde_json::json;

use super::{SOON, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    logs_are_read_through_the_node,
    logs_are_chosen_by_run_time_size_and_output,
    commands_run_in_containers_and_tell_their_end,
    a_port_is_forwarded,
];

fn logs_are_read_through_the_node(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let text = "echo one; echo two; echo three; exec sleep 100000";
    let pod = world.pod("talker", &[script("main", text)]);
    world.run(&pod)?;
    let whole = world.wait("three lines in the log", SOON, |cluster, namespace| {
        let text = cluster.kubectl(&["logs", "--namespace", namespace, "talker"])?;
        Ok((text.lines().count() == 3).then_some(text))
    })?;
    ensure!(whole == "one\ntwo\nthree\n", "the log is {whole:?}");
    let tail = world.kubectl(&["logs", "talker", "--tail=1"])?;
    ensure!(tail == "three\n", "its tail is {tail:?}");
    let stamped = world.kubectl(&["logs", "talker", "--timestamps", "--tail=1"])?;
    ensure!(
        stamped.ends_with("Z three\n") && stamped.starts_with("20"),
        "with times it is {stamped:?}"
    );
    let refused = world.kubectl(&["logs", "talker", "-c", "nobody"]);
    ensure!(refused.is_err(), "the log of nobody is {refused:?}");
    Ok(Outcome::Passed)
}

fn logs_are_chosen_by_run_time_size_and_output(context: &mut Context<'_>) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"featureGates": {"PodLogsQuerySplitStreams": true}});
    let mut world = World::start_with(context, options)?;
    // Fails the first time and stays the second; each says which time it is.
    let text = "await() { until [ -e /kept/$1 ]; do sleep 0.1; done; }; \
                if [ -e /kept/been ]; then echo second; await two; echo oops >&2; await three; echo end; exec sleep 100000; fi; \
                touch /kept/been; echo first; exit 1";
    let mounted = json!({"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]});
    let pod = with(
        world.pod("talker", &[with(script("main", text), mounted)]),
        json!({"spec": {"volumes": [{"name": "kept", "emptyDir": {}}]}}),
    );
    world.apply(&pod)?;
    world.wait_pod("talker", "running again", SOON, |pod| {
        pod.container("main").is_ok_and(|it| it.restarts() == 1 && it.is_running())
    })?;
    // The two outputs come on ways of their own: each line waits for the one before it.
    for (line, next) in [("second\n", Some("two")), ("oops\n", Some("three")), ("end\n", None)] {
        world.wait(line, SOON, |cluster, namespace| {
            let text = cluster.kubectl(&["logs", "--namespace", namespace, "talker"])?;
            Ok(text.ends_with(line).then_some(()))
        })?;
        if let Some(next) = next {
            let file = format!("/kept/{next}");
            world.kubectl(&["exec", "talker", "--", "touch", &file])?;
        }
    }
    let cases: [(&[&str], &str); 8] = [
        (&["--previous"], "first\n"),
        (&["--limit-bytes=3"], "sec"),
        (&["--since=1h"], "second\noops\nend\n"),
        (&["--since-time=2000-01-01T00:00:00Z"], "second\noops\nend\n"),
        (&["--since-time=2100-01-01T00:00:00Z"], ""),
        (&["--tail=2"], "oops\nend\n"),
        (&["--tail=0"], ""),
        (&["--previous", "--tail=5", "--limit-bytes=2"], "fi"),
    ];
    for (flags, expected) in cases {
        let said = world.kubectl(&[&["logs", "talker"], flags].concat())?;
        ensure!(said == expected, "{flags:?} gives {said:?}");
    }
    // kubectl has no word for one output alone.
    let path = format!(
        "/api/v1/nodes/{}/proxy/containerLogs/{}/talker/main",
        world.node_name(),
        world.namespace
    );
    for (stream, expected) in
        [("Stdout", "second\nend\n"), ("Stderr", "oops\n"), ("All", "second\noops\nend\n")]
    {
        let said = world.kubectl(&["get", "--raw", &format!("{path}?stream={stream}")])?;
        ensure!(said == expected, "{stream} gives {said:?}");
    }
    let refused = world.kubectl(&["get", "--raw", &format!("{path}?stream=Both")]);
    ensure!(refused.is_err(), "a made-up output is {refused:?}");
    Ok(Outcome::Passed)
}

fn commands_run_in_containers_and_tell_their_end(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("worker", &[script("main", "exec sleep 100000")]);
    world.run(&pod)?;
    let said = world.kubectl(&["exec", "worker", "--", "sh", "-c", "echo out; hostname"])?;
    ensure!(said == "out\nworker\n", "it said {said:?}");
    let failed = world.kubectl(&["exec", "worker", "--", "sh", "-c", "echo bad >&2; exit 3"]);
    let error = failed.err().context("a command that fails succeeded")?;
    let error = format!("{error:#}");
    ensure!(error.contains("bad") && error.contains("exit code 3"), "it failed with {error}");
    Ok(Outcome::Passed)
}

fn a_port_is_forwarded(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let serve = "exec httpd -f -p 8080 -h /www";
    // kubectl gives up at the first refused connection: the server must listen before.
    let main = with(
        script("main", serve),
        json!({"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}),
    );
    let pod = world.pod("server", &[main]);
    world.run(&pod)?;
    let port = http::free_port()?;
    let mut forward =
        world.spawn_kubectl(&["port-forward", "pod/server", &format!("{port}:8080")])?;
    let answer = world.wait("an answer through the forwarded port", SOON, |_, _| {
        Ok(http::get(&format!("127.0.0.1:{port}"), "/index.html").ok())
    });
    forward.kill().context("end kubectl port-forward")?;
    forward.wait().context("wait for kubectl port-forward")?;
    let answer = answer?;
    ensure!(answer.body == "It works.\n", "the answer is {answer:?}");
    Ok(Outcome::Passed)
}

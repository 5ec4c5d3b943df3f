//! Into pods with kubectl: logs, commands, files and ports, through the API server and the node's own server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{SOON, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    logs_are_read_through_the_node,
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

fn commands_run_in_containers_and_tell_their_end(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let pod = world.pod("worker", &[script("main", "exec sleep 100000")]);
    world.run(&pod)?;
    let said = world.kubectl(&["exec", "worker", "--", "sh", "-c", "echo out; hostname"])?;
    ensure!(said == "out\nworker\n", "it said {said:?}");
    let failed = world.kubectl(&["exec", "worker", "--", "sh", "-c", "echo bad >&2; exit 3"]);
    let error = failed.err().context("a command that fails succeeded")?;
    let error = format!("{error:#}");
    ensure!(
        error.contains("bad") && error.contains("exit code 3"),
        "it failed with {error}"
    );
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
    let port = ferrolet_lab::http::free_port()?;
    let mut forward =
        world.spawn_kubectl(&["port-forward", "pod/server", &format!("{port}:8080")])?;
    let answer = world.wait("an answer through the forwarded port", SOON, |_, _| {
        Ok(ask(port).ok())
    });
    forward.kill().context("end kubectl port-forward")?;
    forward.wait().context("wait for kubectl port-forward")?;
    let answer = answer?;
    ensure!(answer.ends_with("It works.\n"), "the answer is {answer:?}");
    Ok(Outcome::Passed)
}

fn ask(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    ensure!(text.starts_with("HTTP/1."), "no answer yet");
    Ok(text)
}

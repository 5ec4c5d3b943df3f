//! Probes over every wire, asked of a server whose health the test decides.
//!
//! The server runs beside the agent, so the pods that stand for it are on the host's network.

use std::fs;
use std::net::TcpListener;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::patient::{AWAY, MOVED, Patient, Wire};
use ferrolet_lab::wait::wait_until;
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    readiness_follows_the_health_of_a_server_over_every_wire,
    a_redirect_is_followed_at_home_and_a_warning_abroad,
    a_startup_probe_holds_the_others_back_and_liveness_restarts,
    probes_leave_no_connections_behind,
    while_a_pod_ends_its_readiness_is_asked_and_its_liveness_is_not,
];

/// A pod on the host's network, probed every second.
fn probed(world: &World<'_>, name: &str, probe: Value) -> Value {
    let every_second = json!({"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5});
    let container = with(sleeper("main"), json!({"readinessProbe": with(every_second, probe)}));
    with(world.pod(name, &[container]), json!({"spec": {"hostNetwork": true}}))
}

/// Waits until a pod's readiness is this word.
fn wait_readiness(world: &mut World<'_>, name: &str, word: &str) -> Result<ferrolet_lab::PodView> {
    world.wait_pod(name, &format!("Ready to be {word}"), SOON, |pod| {
        pod.phase() == "Running" && pod.condition("Ready") == Some(word)
    })
}

fn readiness_follows_the_health_of_a_server_over_every_wire(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let (plain, secure) = (Patient::start(Wire::Plain)?, Patient::start(Wire::Tls)?);
    let headers = json!([{"name": "Host", "value": "web.test"}, {"name": "X-Ask", "value": "how"}]);
    let rows = [
        (
            "http",
            &plain,
            json!({"httpGet": {"port": plain.port(), "path": "/health", "httpHeaders": headers}}),
            "Readiness probe failed: HTTP probe failed with statuscode: 503",
        ),
        (
            "https",
            &secure,
            json!({"httpGet": {"port": secure.port(), "path": "/health", "scheme": "HTTPS"}}),
            "Readiness probe failed: HTTP probe failed with statuscode: 503",
        ),
        (
            "grpc",
            &plain,
            json!({"grpc": {"port": plain.port(), "service": "shop"}}),
            "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")",
        ),
    ];
    for (name, _, probe, _) in &rows {
        world.apply(&probed(&world, name, probe.clone()))?;
    }
    for (name, ..) in &rows {
        wait_readiness(&mut world, name, "True")?;
    }
    plain.fall_ill();
    secure.fall_ill();
    for (name, _, _, why) in &rows {
        let seen = wait_readiness(&mut world, name, "False")?;
        let said = world.wait_event(&seen, "Unhealthy")?;
        ensure!(said == *why, "{name}: {said:?}");
        ensure!(seen.restarts() == 0, "{name} was restarted");
    }
    plain.recover();
    secure.recover();
    for (name, ..) in &rows {
        wait_readiness(&mut world, name, "True")?;
    }
    let agent = "user-agent: kube-probe/1.37";
    for (patient, start, parts) in [
        (
            &plain,
            "GET /health HTTP/1.1\n",
            &[agent, "accept: */*", "host: web.test", "x-ask: how", "connection: close"][..],
        ),
        (&plain, "POST ", &["/grpc.health.v1.Health/Check", agent][..]),
        (&secure, "GET ", &["/health", agent][..]),
    ] {
        let heard = patient.heard();
        let asked = heard.iter().find(|it| it.starts_with(start));
        let asked = asked.with_context(|| format!("nobody asked {start:?}: {heard:#?}"))?;
        let has_all = parts.iter().all(|part| asked.contains(part));
        ensure!(has_all, "{parts:?} are not all in {asked:?}");
    }
    tcp_follows_a_listener(&mut world, &context.bench.node_ip())
}

/// A socket is well while somebody listens.
fn tcp_follows_a_listener(world: &mut World<'_>, ip: &str) -> Result<Outcome> {
    let listener = TcpListener::bind("0.0.0.0:0")?;
    let address = listener.local_addr()?;
    world.apply(&probed(world, "tcp", json!({"tcpSocket": {"port": address.port()}})))?;
    wait_readiness(world, "tcp", "True")?;
    drop(listener);
    let seen = wait_readiness(world, "tcp", "False")?;
    let said = world.wait_event(&seen, "Unhealthy")?;
    let why = format!(
        "Readiness probe failed: dial tcp {ip}:{}: connect: connection refused",
        address.port()
    );
    ensure!(said == why, "{said:?}, not {why:?}");
    let _again = TcpListener::bind(address)?;
    wait_readiness(world, "tcp", "True")?;
    Ok(Outcome::Passed)
}

fn a_redirect_is_followed_at_home_and_a_warning_abroad(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let patient = Patient::start(Wire::Plain)?;
    let to = |path: &str| json!({"httpGet": {"port": patient.port(), "path": path}});
    world.apply(&probed(&world, "home", to(MOVED)))?;
    world.apply(&probed(&world, "abroad", to(AWAY)))?;
    let home = wait_readiness(&mut world, "home", "True")?;
    let abroad = wait_readiness(&mut world, "abroad", "True")?;
    let said = world.wait_event(&abroad, "ProbeWarning")?;
    ensure!(
        said == "Readiness probe warning: Probe terminated redirects, Response body: heard\n",
        "{said:?}"
    );
    let heard = patient.heard();
    let followed = heard.iter().filter(|it| it.starts_with("GET /health "));
    let followed: Vec<&String> = followed.collect();
    ensure!(
        followed.first().is_some_and(|it| it.contains("referer: http://")),
        "the redirect was not followed: {heard:#?}"
    );
    // What it leads to is what counts.
    patient.fall_ill();
    wait_readiness(&mut world, "home", "False")?;
    let reasons = world.event_reasons(&home)?;
    ensure!(!reasons.contains(&"ProbeWarning".to_owned()), "{reasons:?}");
    Ok(Outcome::Passed)
}

fn a_startup_probe_holds_the_others_back_and_liveness_restarts(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let shared = world.node.node.directory().join("shared");
    fs::create_dir(&shared)?;
    let is_there = |file: &str| json!({"exec": {"command": ["test", "-e", format!("/shared/{file}")]}, "periodSeconds": 1});
    let container = with(
        script("main", "exec sleep 100000"),
        json!({
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
            "startupProbe": with(is_there("up"), json!({"failureThreshold": 100})),
            // Would end the container at once if it were asked before the start is over.
            "livenessProbe": with(is_there("alive"), json!({"failureThreshold": 1})),
            "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
        }),
    );
    let pod = with(
        world.pod("web", &[container]),
        json!({"spec": {"volumes": [{"name": "shared", "hostPath": {"path": shared}}]}}),
    );
    world.apply(&pod)?;
    let slow = world.wait_pod("web", "to run", SOON, |pod| pod.phase() == "Running")?;
    let message = world.wait_event(&slow, "Unhealthy")?;
    ensure!(message.starts_with("Startup probe failed:"), "{message:?}");
    let slow = world.find_pod("web")?.context("it is gone")?;
    let main = slow.container("main")?;
    ensure!(main.0["started"] == false && !main.is_ready() && main.restarts() == 0, "{}", main.0);
    fs::write(shared.join("alive"), "")?;
    fs::write(shared.join("up"), "")?;
    let up = world.wait_ready("web")?;
    ensure!(up.container("main")?.0["started"] == true, "{}", up.0["status"]);
    fs::remove_file(shared.join("alive"))?;
    world.wait_pod("web", "a restart", LATER, |pod| pod.restarts() >= 1)?;
    let killing = world.wait_event(&up, "Killing")?;
    ensure!(killing == "Container main failed liveness probe, will be restarted", "{killing:?}");
    fs::write(shared.join("alive"), "")?;
    world.wait_ready("web")?;
    Ok(Outcome::Passed)
}

/// Connections to this port that wait for their end on the side of whoever opened them.
fn n_left_behind(port: u16) -> Result<usize> {
    const TIME_WAIT: &str = "06";
    let table = fs::read_to_string("/proc/net/tcp")?;
    let ending = format!(":{port:04X}");
    let to_port = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        let remote = words.next().unwrap_or_default();
        remote.ends_with(&ending) && words.next() == Some(TIME_WAIT)
    };
    Ok(table.lines().filter(to_port).count())
}

fn probes_leave_no_connections_behind(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let (plain, secure) = (Patient::start(Wire::Plain)?, Patient::start(Wire::Tls)?);
    for (name, probe) in [
        ("http", json!({"httpGet": {"port": plain.port()}})),
        ("https", json!({"httpGet": {"port": secure.port(), "scheme": "HTTPS"}})),
        ("grpc", json!({"grpc": {"port": plain.port()}})),
        ("tcp", json!({"tcpSocket": {"port": plain.port()}})),
    ] {
        world.apply(&probed(&world, name, probe))?;
    }
    for name in ["http", "https", "grpc", "tcp"] {
        wait_readiness(&mut world, name, "True")?;
    }
    // Each has been asked five times by the time two of them have.
    wait_until("a dozen questions", LATER, || {
        let n = plain.heard().len().min(2 * secure.heard().len());
        if n < 12 {
            bail!("{n} so far");
        }
        Ok(Some(()))
    })?;
    for port in [plain.port(), secure.port()] {
        let n = n_left_behind(port)?;
        ensure!(n == 0 || context.is_upstream(), "{n} connections to {port} are left behind");
    }
    Ok(Outcome::Passed)
}

fn while_a_pod_ends_its_readiness_is_asked_and_its_liveness_is_not(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let shared = world.node.node.directory().join("shared");
    fs::create_dir(&shared)?;
    fs::write(shared.join("well"), "")?;
    let is_well = json!({"exec": {"command": ["test", "-e", "/shared/well"]}, "periodSeconds": 1, "failureThreshold": 1});
    // Takes its time to leave, until it is told.
    let words = "trap 'while [ ! -e /shared/go ]; do sleep 0.1; done; exit 0' TERM; while :; do sleep 0.1; done";
    let container = with(
        script("main", words),
        json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
            "readinessProbe": is_well, "livenessProbe": is_well}),
    );
    let pod = with(
        world.pod("web", &[container]),
        json!({"spec": {"terminationGracePeriodSeconds": 60,
            "volumes": [{"name": "shared", "hostPath": {"path": shared}}]}}),
    );
    let seen = world.run(&pod)?;
    world.kubectl(&["delete", "pod", "web", "--wait=false"])?;
    world.wait_event(&seen, "Killing")?;
    fs::remove_file(shared.join("well"))?;
    let ending = world.wait_pod("web", "to be unready while it ends", SOON, |pod| {
        pod.condition("Ready") == Some("False") && pod.phase() == "Running"
    })?;
    ensure!(ending.0["metadata"]["deletionTimestamp"].is_string(), "it does not end");
    fs::write(shared.join("go"), "")?;
    world.wait_gone(&seen, SOON)?;
    let said: Vec<String> = world
        .events(&seen)?
        .iter()
        .filter_map(|it| it["message"].as_str().map(str::to_owned))
        .collect();
    ensure!(
        said.iter().any(|it| it.starts_with("Readiness probe failed"))
            && !said.iter().any(|it| it.contains("iveness probe")),
        "it said {said:#?}"
    );
    Ok(Outcome::Passed)
}

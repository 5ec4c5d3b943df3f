//! Hooks that are requests, hooks that cannot be run, and the signal that ends a container.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::patient::{Patient, Wire};
use ferrolet_lab::wait_until;
use serde_json::json;

use super::{LATER, SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    hooks_are_requests_to_a_server,
    a_secure_hook_that_meets_an_open_server_is_asked_again,
    a_hook_that_is_a_socket_cannot_be_run,
    a_sleeping_hook_after_the_start_holds_the_next_container,
];

/// Waits until a patient was asked for a path, and gives the head of the request.
fn wait_asked(world: &mut World<'_>, patient: &Patient, path: &str) -> Result<String> {
    let start = format!("GET {path} ");
    world.node.node.wait(&format!("a request for {path}"), SOON, |_| {
        let heard = patient.heard();
        let asked = heard.iter().find(|it| it.starts_with(&start)).cloned();
        Ok(Some(asked.with_context(|| format!("heard only {heard:?}"))?))
    })
}

fn hooks_are_requests_to_a_server(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let patient = Patient::start(Wire::Plain)?;
    // Any answer will do, whatever its status.
    patient.fall_ill();
    let ask = |path: &str| {
        json!({"httpGet": {"host": "127.0.0.1", "port": patient.port(), "path": path,
            "httpHeaders": [{"name": "X-Moment", "value": path}]}})
    };
    let hooked = with(
        sleeper("main"),
        json!({"lifecycle": {"postStart": ask("/hello"), "preStop": ask("/bye")}}),
    );
    let seen = world.run(&world.pod("web", &[hooked]))?;
    let asked = wait_asked(&mut world, &patient, "/hello")?;
    for part in ["user-agent: kube-lifecycle/1.37", "x-moment: /hello", "accept: */*"] {
        ensure!(asked.contains(part), "no {part:?} in {asked:?}");
    }
    let farewells =
        |heard: Vec<String>| heard.iter().filter(|it| it.starts_with("GET /bye")).count();
    ensure!(farewells(patient.heard()) == 0, "it was seen off too early");
    world.kubectl(&["delete", "pod", "web", "--wait=false"])?;
    wait_asked(&mut world, &patient, "/bye")?;
    world.wait_gone(&seen, SOON)?;
    ensure!(farewells(patient.heard()) == 1, "{:?}", patient.heard());
    Ok(Outcome::Passed)
}

fn a_secure_hook_that_meets_an_open_server_is_asked_again(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let patient = Patient::start(Wire::Plain)?;
    let hook = json!({"httpGet": {"host": "127.0.0.1", "port": patient.port(), "path": "/hello", "scheme": "HTTPS",
        "httpHeaders": [{"name": "Authorization", "value": "Bearer of-nobody"}]}});
    let hooked = with(sleeper("main"), json!({"lifecycle": {"postStart": hook}}));
    let seen = world.run(&world.pod("web", &[hooked]))?;
    let said = world.wait_event(&seen, "LifecycleHTTPFallback")?;
    ensure!(
        said.starts_with("request to HTTPS lifecycle hook ")
            && said.ends_with(" got HTTP response, retry with HTTP succeeded"),
        "{said:?}"
    );
    let asked = wait_asked(&mut world, &patient, "/hello")?;
    ensure!(!asked.contains("authorization"), "a credential went out in the open: {asked:?}");
    Ok(Outcome::Passed)
}

fn a_hook_that_is_a_socket_cannot_be_run(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let hooked =
        with(sleeper("main"), json!({"lifecycle": {"postStart": {"tcpSocket": {"port": 80}}}}));
    world.apply(&world.pod("web", &[hooked, sleeper("other")]))?;
    let seen = world.wait_pod("web", "to be tried again", LATER, |pod| {
        pod.container("main").is_ok_and(|it| it.restarts() >= 1)
            && pod.container("other").is_ok_and(|it| it.is_running())
    })?;
    let said = world.wait_event(&seen, "FailedPostStartHook")?;
    ensure!(said == "PostStartHook failed", "{said:?}");
    let said = world.wait_event(&seen, "Killing")?;
    ensure!(said == "FailedPostStartHook", "{said:?}");
    ensure!(seen.container("other")?.restarts() == 0, "{}", seen.0["status"]);
    Ok(Outcome::Passed)
}

fn a_sleeping_hook_after_the_start_holds_the_next_container(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let shared = world.node.node.directory().join("shared");
    fs::create_dir(&shared)?;
    let began = |name: &str| {
        let text = format!("date +%s > /shared/{name}; exec sleep 100000");
        let mount = json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
        with(script(name, &text), mount)
    };
    let first =
        with(began("first"), json!({"lifecycle": {"postStart": {"sleep": {"seconds": 3}}}}));
    let pod = with(
        world.pod("web", &[first, began("second")]),
        json!({"spec": {"terminationGracePeriodSeconds": 5,
            "volumes": [{"name": "shared", "hostPath": {"path": shared}}]}}),
    );
    world.run(&pod)?;
    let at = |name: &str| -> Result<u64> {
        wait_until("a container's first word", LATER, || {
            let text = fs::read_to_string(shared.join(name))?;
            Ok(Some(text.trim().parse()?))
        })
    };
    let apart = at("second")?.saturating_sub(at("first")?);
    ensure!(apart >= 2, "the second began {apart} s after the first");
    Ok(Outcome::Passed)
}

//! Sidecars, and how containers end: in which order, and what is told of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::build::{script, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    sidecars_start_in_order_come_back_and_stop_last,
    everybody_hears_of_the_end_at_once_and_sidecars_stop_last,
    a_job_ends_although_its_sidecar_does_not,
    ends_are_told_with_their_reason_and_last_words,
];

/// A container that notes when it comes and goes, and dies when a file of its name is put beside
/// the notes.
fn noted(name: &str) -> Value {
    let text = format!(
        "echo {name} up >> /shared/notes; trap 'echo {name} down >> /shared/notes; exit 0' TERM; \
         while :; do [ -e /shared/die-{name} ] && rm /shared/die-{name} && exit 1; sleep 0.1; done"
    );
    let mount = json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
    with(script(name, &text), mount)
}

fn sidecar(container: Value) -> Value {
    with(container, json!({"restartPolicy": "Always"}))
}

fn with_shared(pod: Value, directory: &Path, init: &[Value]) -> Value {
    with(
        pod,
        json!({"spec": {"initContainers": init, "terminationGracePeriodSeconds": 20,
            "volumes": [{"name": "shared", "hostPath": {"path": directory}}]}}),
    )
}

fn shared(world: &World<'_>) -> Result<PathBuf> {
    let directory = world.node.node.directory().join("shared");
    fs::create_dir(&directory)?;
    Ok(directory)
}

fn notes(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("notes")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn sidecars_start_in_order_come_back_and_stop_last(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let shared = shared(&world)?;
    let first = with(
        sidecar(noted("first")),
        json!({"startupProbe": {"exec": {"command": ["test", "-e", "/shared/started"]},
            "periodSeconds": 1, "failureThreshold": 100}}),
    );
    let init = [first, sidecar(noted("second"))];
    let pod = with_shared(world.pod("web", &[noted("main")]), &shared, &init);
    world.apply(&pod)?;
    let slow = world.wait_pod("web", "its first sidecar to run", SOON, |pod| {
        pod.container("first").is_ok_and(|it| it.is_running())
    })?;
    // Its startup probe has failed at least once, and nobody came after it.
    world.wait_event(&slow, "Unhealthy")?;
    ensure!(notes(&shared) == ["first up"], "{:?}", notes(&shared));
    fs::write(shared.join("started"), "")?;
    world.wait_ready("web")?;
    let in_order = ["first up", "second up", "main up"];
    ensure!(notes(&shared) == in_order, "{:?}", notes(&shared));
    fs::write(shared.join("die-second"), "")?;
    let again = world.wait_pod("web", "its second sidecar to be back", LATER, |pod| {
        let is_back = pod.container("second").is_ok_and(|it| it.restarts() == 1 && it.is_running());
        is_back && pod.condition("Ready") == Some("True")
    })?;
    for name in ["first", "main"] {
        ensure!(again.container(name)?.restarts() == 0, "{name} restarted");
    }
    world.kubectl(&["delete", "pod", "web", "--wait=false"])?;
    world.wait_gone(&again, SOON)?;
    let all = notes(&shared);
    ensure!(all[3..] == ["second up", "main down", "second down", "first down"], "{all:?}");
    Ok(Outcome::Passed)
}

fn everybody_hears_of_the_end_at_once_and_sidecars_stop_last(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let shared = shared(&world)?;
    let with_hook = |name: &str, container: Value| {
        let command = format!("echo {name} bye >> /shared/notes");
        let hook = json!({"exec": {"command": ["/bin/sh", "-c", command]}});
        with(container, json!({"lifecycle": {"preStop": hook}}))
    };
    // It takes its time, so that a hook that waited for its end would be seen to come later.
    let slow = "trap 'sleep 1; echo main down >> /shared/notes; exit 0' TERM; \
                echo main up >> /shared/notes; while :; do sleep 0.1; done";
    let mount = json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
    let main = with(script("main", slow), mount);
    let init = ["first", "second"].map(|name| sidecar(with_hook(name, noted(name))));
    let pod = with_shared(world.pod("web", &[main]), &shared, &init);
    world.apply(&pod)?;
    let pod = world.wait_ready("web")?;
    world.kubectl(&["delete", "pod", "web", "--wait=false"])?;
    world.wait_gone(&pod, SOON)?;
    let mut told = notes(&shared).split_off(3);
    // The two hooks run side by side.
    told[..2].sort();
    let expected = ["first bye", "second bye", "main down", "second down", "first down"];
    ensure!(told == expected, "{told:?}");
    Ok(Outcome::Passed)
}

fn a_job_ends_although_its_sidecar_does_not(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let shared = shared(&world)?;
    for (name, code, phase) in [("good", 0, "Succeeded"), ("bad", 3, "Failed")] {
        let directory = shared.join(name);
        fs::create_dir(&directory)?;
        let job = script("main", &format!("sleep 1; exit {code}"));
        let pod = with_shared(world.pod(name, &[job]), &directory, &[sidecar(noted("side"))]);
        let pod = with(pod, json!({"spec": {"restartPolicy": "Never"}}));
        world.apply(&pod)?;
        let over = world.wait_pod(name, phase, LATER, |pod| pod.phase() == phase)?;
        let side = over.container("side")?;
        ensure!(side.exit_code() == Some(0), "{}", side.0);
        let told = notes(&directory);
        ensure!(told == ["side up", "side down"], "{told:?}");
    }
    Ok(Outcome::Passed)
}

fn ends_are_told_with_their_reason_and_last_words(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let bounded = json!({"resources": {"limits": {"memory": "20Mi"}}});
    let from_logs = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let numbers = "n=0; while [ $n -lt 100 ]; do n=$((n + 1)); echo line $n; done";
    let rows = [
        (
            "oom",
            with(script("main", "exec dd if=/dev/zero of=/dev/shm/x bs=1M count=60"), bounded),
            (137, "OOMKilled"),
        ),
        ("words", script("main", "echo -n why > /dev/termination-log; exit 3"), (3, "Error")),
        (
            "lines",
            with(script("main", &format!("{numbers}; exit 4")), from_logs.clone()),
            (4, "Error"),
        ),
        ("quiet", with(script("main", &format!("{numbers}; exit 0")), from_logs), (0, "Completed")),
    ];
    for (name, container, _) in &rows {
        let pod = with(
            world.pod(name, std::slice::from_ref(container)),
            json!({"spec": {"restartPolicy": "Never"}}),
        );
        world.apply(&pod)?;
    }
    for (name, _, (code, reason)) in &rows {
        let seen = world.wait_pod(name, "to be over", LATER, |pod| {
            matches!(pod.phase(), "Succeeded" | "Failed")
        })?;
        let main = seen.container("main")?;
        ensure!(
            main.exit_code() == Some(*code) && main.terminated_reason() == Some(*reason),
            "{name}: {}",
            main.0
        );
        let words = main.0["state"]["terminated"]["message"].as_str().unwrap_or_default();
        match *name {
            "words" => ensure!(words == "why", "{words:?}"),
            // The last eighty lines, and none of a container that ended well.
            "lines" => ensure!(
                words.starts_with("line 21\n") && words.ends_with("line 100\n"),
                "{words:?}"
            ),
            "quiet" => ensure!(words.is_empty(), "{words:?}"),
            _ => {}
        }
    }
    Ok(Outcome::Passed)
}

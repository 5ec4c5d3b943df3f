//! The life of a static pod: it comes, runs, changes and goes.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{GONE, LATER, SOON, cases, wait_phase, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_static_pod_runs_and_shows_its_address,
    several_containers_run_in_one_pod,
    init_containers_run_one_after_the_other_before_the_others,
    a_failing_init_container_fails_a_pod_that_never_restarts,
    an_edited_manifest_gives_a_new_pod,
    a_removed_manifest_leaves_nothing,
    a_manifest_taken_away_and_put_back_starts_its_pod_anew,
    a_stubborn_container_is_killed_after_its_grace_period,
    a_polite_container_is_not_waited_for,
    a_container_is_stopped_with_the_signal_of_its_choice,
    a_directory_full_of_pods_runs,
    manifests_are_read_as_json_and_as_yaml,
    static_pods_of_one_name_take_turns,
    pods_are_run_once_by_an_agent_that_leaves,
];

fn a_static_pod_runs_and_shows_its_address(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("web", &[sleeper("main")]))?;
    let seen = node.wait_pod("web", "running with an address", SOON, |pod| {
        pod.phase() == "Running" && pod.ip().is_some()
    })?;
    let subnet = context.containerd()?.subnet().to_owned();
    ensure!(
        seen.ip().is_some_and(|ip| ip.starts_with(&subnet)),
        "{:?} is not in {subnet}",
        seen.ip()
    );
    ensure!(seen.name() == format!("web-{}", node.name()), "its name is {}", seen.name());
    ensure!(seen.namespace() == "default", "its namespace is {}", seen.namespace());
    ensure!(
        seen.annotation("kubernetes.io/config.source") == Some("file"),
        "config.source is missing"
    );
    ensure!(
        seen.annotation("kubernetes.io/config.hash") == Some(seen.uid()),
        "config.hash is not the UID"
    );
    ensure!(seen.annotation("kubernetes.io/config.seen").is_some(), "config.seen is missing");
    for kind in ["PodScheduled", "Initialized", "ContainersReady", "Ready"] {
        node.wait_pod("web", kind, SOON, |pod| pod.condition(kind) == Some("True"))?;
    }
    Ok(Outcome::Passed)
}

fn several_containers_run_in_one_pod(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("many", &[sleeper("a"), sleeper("b"), sleeper("c")]))?;
    let seen = wait_running(&mut node, "many")?;
    let mut ids: Vec<String> = seen.containers().iter().map(|it| it.id().to_owned()).collect();
    ids.sort();
    ids.dedup();
    ensure!(ids.len() == 3, "container ids are {ids:?}");
    let n = look::n_sandboxes(context.containerd()?)?;
    ensure!(n == 1, "{n} sandboxes");
    Ok(Outcome::Passed)
}

fn init_containers_run_one_after_the_other_before_the_others(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    let stamp = "cut -d' ' -f1 /proc/uptime; sleep 0.3; cut -d' ' -f1 /proc/uptime";
    let changed = with(
        pod("ordered", &[script("main", "cut -d' ' -f1 /proc/uptime; exec sleep 100000")]),
        json!({"spec": {"initContainers": [script("one", stamp), script("two", stamp)]}}),
    );
    node.put_pod(&changed)?;
    let seen = wait_running(&mut node, "ordered")?;
    for name in ["one", "two"] {
        ensure!(
            seen.container(name)?.terminated_reason() == Some("Completed"),
            "{name} has not completed"
        );
    }
    let stamps = node.wait("five times in the logs", Duration::from_secs(10), |node| {
        let mut stamps: Vec<f64> = Vec::new();
        for name in ["one", "two", "main"] {
            let lines = look::log_lines(node, &seen, name, 0)?;
            stamps.extend(lines.iter().filter_map(|line| line.parse::<f64>().ok()));
        }
        Ok((stamps.len() == 5).then_some(stamps))
    })?;
    ensure!(stamps.is_sorted(), "times are {stamps:?}");
    Ok(Outcome::Passed)
}

fn a_failing_init_container_fails_a_pod_that_never_restarts(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    let changed = with(
        pod("broken", &[sleeper("main")]),
        json!({"spec": {"restartPolicy": "Never", "initContainers": [script("prepare", "exit 7")]}}),
    );
    node.put_pod(&changed)?;
    let seen = wait_phase(&mut node, "broken", "Failed")?;
    ensure!(seen.container("prepare")?.exit_code() == Some(7), "status is {}", seen.0["status"]);
    let started = context.containerd()?.containers()?.iter().any(|it| it.name == "main");
    ensure!(!started, "main was started although init failed");
    Ok(Outcome::Passed)
}

fn an_edited_manifest_gives_a_new_pod(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("edited", &[sleeper("main")]))?;
    node.put_pod(&pod("neighbour", &[sleeper("main")]))?;
    let neighbour = wait_running(&mut node, "neighbour")?;
    let before = wait_running(&mut node, "edited")?;
    node.put_pod(&pod("edited", &[script("main", "echo second; exec sleep 100000")]))?;
    let after = node.wait_pod("edited", "running anew", SOON, |pod| {
        pod.uid() != before.uid() && pod.container("main").is_ok_and(|it| it.is_running())
    })?;
    node.wait("the new output", SOON, |node| {
        Ok((look::log_lines(node, &after, "main", 0)? == ["second"]).then_some(()))
    })?;
    let containerd = context.containerd()?;
    node.wait("the old pod to be gone", GONE, |node| {
        look::ensure_gone(node, containerd, &before).map(Some)
    })?;
    let same = wait_running(&mut node, "neighbour")?;
    ensure!(
        same.container("main")?.id() == neighbour.container("main")?.id(),
        "the neighbour was restarted"
    );
    Ok(Outcome::Passed)
}

fn a_removed_manifest_leaves_nothing(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    let changed = with(
        pod("leaving", &[sleeper("main"), sleeper("side")]),
        json!({"spec": {"initContainers": [script("prepare", "true")]}}),
    );
    node.put_pod(&changed)?;
    let seen = wait_running(&mut node, "leaving")?;
    ensure!(look::log_directory(&node, &seen).exists(), "no log directory to begin with");
    ensure!(!look::links(&node, &seen).is_empty(), "no links to begin with");
    node.remove_manifest("leaving.yaml")?;
    let containerd = context.containerd()?;
    node.wait("everything to be gone", GONE, |node| {
        look::ensure_gone(node, containerd, &seen).map(Some)
    })?;
    Ok(Outcome::Passed)
}

fn a_stubborn_container_is_killed_after_its_grace_period(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let took = stop_time(context, "trap '' TERM; while true; do sleep 0.1; done", 4)?;
    ensure!((3.5..9.0).contains(&took), "with 4 s of grace it took {took:.1} s");
    Ok(Outcome::Passed)
}

fn a_polite_container_is_not_waited_for(context: &mut Context<'_>) -> Result<Outcome> {
    let took = stop_time(context, "trap 'exit 0' TERM; while true; do sleep 0.1; done", 30)?;
    ensure!(took < 6.0, "with a quick exit it took {took:.1} s");
    Ok(Outcome::Passed)
}

/// Seconds from the removal of the manifest to the end of the container's process.
fn stop_time(context: &mut Context<'_>, text: &str, grace: u64) -> Result<f64> {
    let mut node = context.node()?;
    let changed = with(
        pod("stopping", &[script("main", text)]),
        json!({"spec": {"terminationGracePeriodSeconds": grace}}),
    );
    node.put_pod(&changed)?;
    let seen = wait_running(&mut node, "stopping")?;
    let id = seen.container("main")?.id().to_owned();
    let containerd = context.containerd()?;
    let pid = containerd
        .tasks()?
        .into_iter()
        .find(|(it, _)| *it == id)
        .context("no task of the container")?
        .1;
    node.remove_manifest("stopping.yaml")?;
    let began = std::time::Instant::now();
    node.wait("the process to end", Duration::from_secs(60), |_| {
        Ok((!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(()))
    })?;
    Ok(began.elapsed().as_secs_f64())
}

fn a_container_is_stopped_with_the_signal_of_its_choice(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"featureGates": {"ContainerStopSignals": true}});
    let mut node = context.node_with(options)?;
    let shared = node.directory().join("shared");
    fs::create_dir(&shared)?;
    let text = "trap 'echo usr1 > /shared/heard; exit 0' USR1; while :; do sleep 0.1; done";
    let container = with(
        script("main", text),
        json!({"lifecycle": {"stopSignal": "SIGUSR1"},
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}),
    );
    let changed = with(
        pod("stopping", &[container]),
        json!({"spec": {"os": {"name": "linux"}, "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "shared", "hostPath": {"path": shared}}]}}),
    );
    node.put_pod(&changed)?;
    let seen = wait_running(&mut node, "stopping")?;
    let told = &seen.container("main")?.0["stopSignal"];
    ensure!(told == "SIGUSR1", "its status says {told}");
    node.remove_manifest("stopping.yaml")?;
    node.wait("the signal to be heard", SOON, |_| {
        let heard = fs::read_to_string(shared.join("heard")).unwrap_or_default();
        Ok((heard == "usr1\n").then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn a_directory_full_of_pods_runs(context: &mut Context<'_>) -> Result<Outcome> {
    let options = context.node_options();
    let mut node = context.prepare(options)?;
    for n in 0..8 {
        node.put_pod(&pod(&format!("pod-{n}"), &[sleeper("main")]))?;
    }
    node.launch()?;
    node.wait_healthy()?;
    let mut addresses = Vec::new();
    for n in 0..8 {
        let seen = wait_running(&mut node, &format!("pod-{n}"))?;
        addresses.push(seen.ip().context("no address")?.to_owned());
    }
    addresses.sort();
    addresses.dedup();
    ensure!(addresses.len() == 8, "addresses are {addresses:?}");
    Ok(Outcome::Passed)
}

const YAML: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: as-yaml
  namespace: other
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: docker.io/library/busybox:latest
    imagePullPolicy: IfNotPresent
    command: [sleep, '100000']
";

fn manifests_are_read_as_json_and_as_yaml(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_manifest("as-json.json", &pod("as-json", &[sleeper("main")]).to_string())?;
    node.put_manifest("as-yaml", YAML)?;
    wait_running(&mut node, "as-json")?;
    let seen = wait_running(&mut node, "as-yaml")?;
    ensure!(seen.namespace() == "other", "its namespace is {}", seen.namespace());
    Ok(Outcome::Passed)
}

/// Upstream's own test of mirror pods (`test/e2e_node/mirror_pod_test.go`) asks for the count.
fn a_manifest_taken_away_and_put_back_starts_its_pod_anew(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    let web = pod("web", &[sleeper("main")]);
    node.put_pod(&web)?;
    let first = wait_running(&mut node, "web")?;
    // Nobody who looks now and then can see that it was away.
    node.remove_manifest("web.yaml")?;
    node.put_pod(&web)?;
    let second = node.wait_pod("web", "running again, counted", LATER, |pod| {
        pod.restarts() == 1 && pod.container("main").is_ok_and(|main| main.is_running())
    })?;
    ensure!(second.uid() == first.uid(), "it is another pod");
    Ok(Outcome::Passed)
}

fn static_pods_of_one_name_take_turns(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    let shared = node.directory().join("shared");
    fs::create_dir(&shared)?;
    // Takes two seconds to leave, and notes when it comes and when it is gone.
    let turn = |word: &str| {
        let text = format!(
            "echo {word} up >> /shared/notes; \
             trap 'sleep 2; echo {word} down >> /shared/notes; exit 0' TERM; while :; do sleep 0.1; done"
        );
        let mount = json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
        with(
            pod("turns", &[with(script("main", &text), mount)]),
            json!({"spec": {"terminationGracePeriodSeconds": 20,
                "volumes": [{"name": "shared", "hostPath": {"path": shared}}]}}),
        )
    };
    node.put_pod(&turn("first"))?;
    wait_running(&mut node, "turns")?;
    let notes = || fs::read_to_string(shared.join("notes")).unwrap_or_default();
    node.wait("its first word", SOON, |_| Ok((notes() == "first up\n").then_some(())))?;
    // The second waits behind the first, and is gone again before its turn has come.
    node.put_pod(&turn("second"))?;
    node.wait("the first to be told to end", SOON, |node| {
        let is_told = node.log_text().contains("Stopping container main");
        Ok(is_told.then_some(()))
    })?;
    node.put_pod(&turn("third"))?;
    let told = node.wait("the third to have its turn", LATER, |_| {
        let told = notes();
        Ok(told.contains("third up").then_some(told))
    })?;
    ensure!(told == "first up\nfirst down\nthird up\n", "they came and went like this: {told:?}");
    Ok(Outcome::Passed)
}

fn pods_are_run_once_by_an_agent_that_leaves(context: &mut Context<'_>) -> Result<Outcome> {
    if context.is_upstream() {
        return Ok(Outcome::Skipped("upstream's kubelet has no such mode any more".to_owned()));
    }
    let mut options = context.node_options();
    options.arguments = vec!["--run-once-within=50s".to_owned()];
    let mut node = context.prepare(options)?;
    let job = |name: &str, first: &str| {
        let init =
            json!({"spec": {"restartPolicy": "Never", "initContainers": [script("first", first)]}});
        with(pod(name, &[script("main", "exit 0")]), init)
    };
    node.put_pod(&pod("stays", &[sleeper("a"), sleeper("b")]))?;
    node.put_pod(&job("works", "true"))?;
    node.launch()?;
    let ended = node.wait_ended(LATER)?;
    ensure!(ended.success(), "it ended with {ended}: {}", node.log_text());
    let running = |context: &mut Context<'_>| -> Result<Vec<(String, u32)>> {
        let containerd = context.containerd()?;
        let mut tasks = containerd.tasks()?;
        let all = containerd.containers()?;
        tasks.retain(|(id, _)| {
            all.iter().any(|it| it.id == *id && ["a", "b"].contains(&it.name.as_str()))
        });
        tasks.sort();
        Ok(tasks)
    };
    let before = running(context)?;
    ensure!(before.len() == 2, "{before:?} run");
    // Once more finds everything as it should be.
    node.launch()?;
    let ended = node.wait_ended(SOON)?;
    ensure!(ended.success(), "it ended with {ended}");
    ensure!(running(context)? == before, "containers were touched");
    // One that never comes up is named, and holds nobody else up.
    node.put_pod(&job("breaks", "exit 3"))?;
    node.put_pod(&pod("late", &[sleeper("main")]))?;
    node.launch()?;
    let ended = node.wait_ended(LATER)?;
    let log = node.log_text();
    let told = format!("pods did not come up: default/{}: ", node.pod_name("breaks"));
    ensure!(
        ended.code() == Some(1) && log.contains(&told),
        "it ended with {ended} and no {told:?} in {log}"
    );
    let late = context.containerd()?.containers()?;
    ensure!(late.iter().any(|it| it.name == "main"), "late never came");
    ensure!(running(context)? == before, "containers were touched");
    Ok(Outcome::Passed)
}

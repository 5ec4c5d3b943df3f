//! The API server is away for a while, or the agent is.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ferrolet_lab::cluster::{Access, Watching, condition};
use ferrolet_lab::{Containerd, PodView, mounts};
use serde_json::{Value, json};

use super::{GONE, LATER, SOON, cases};
use crate::build::{pod, script, sleeper, with};
use crate::cluster::{World, create_namespace};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_node_outlives_half_a_minute_without_the_api_server,
    an_agent_killed_during_churn_ends_with_what_the_api_says,
    a_killed_agent_comes_back_and_nobody_notices,
    after_a_reboot_without_the_api_server_pods_start_from_the_disk,
    without_offline_start_nothing_runs_before_the_api_server_is_back;
    long:
    fifty_pods_outlive_twenty_kills_during_churn,
    a_node_outlives_three_minutes_without_the_api_server,
];

fn a_node_outlives_half_a_minute_without_the_api_server(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let before = populate(&mut world)?;
    world.node.relay.cut();
    churn_without_api(&mut world, context.containerd()?, &before)?;
    // The API side goes on without the node, and doubts its pods as the controller of silent nodes
    // does.
    world.kubectl(&["delete", "pod", "leaves", "--wait=false"])?;
    world.apply(&world.pod("comes", &[sleeper("main")]))?;
    let doubt = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    for pod in ["restarts", "stays"] {
        let subresource = ["patch", "pod", pod, "--subresource=status", "--patch"];
        world.kubectl(&[&subresource[..], &[&doubt.to_string()]].concat())?;
    }
    pass_time(&mut world, Duration::from_secs(25))?;
    world.node.relay.heal()?;
    check_converged(&mut world, context.containerd()?, &before)?;
    Ok(Outcome::Passed)
}

fn a_node_outlives_three_minutes_without_the_api_server(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let cluster = context.own_cluster()?;
    create_namespace(&cluster, "own")?;
    let options = context.node_options();
    let node = context.prepare_joined(&cluster, options, &Access::Certificate)?;
    let mut world = World { cluster: &cluster, node, namespace: "own".to_owned() };
    world.node.node.launch()?;
    world.node.wait_ready(&cluster)?;
    let before = populate(&mut world)?;
    // Asked for at the last moment, so that the node may or may not have heard of it.
    world.kubectl(&["delete", "pod", "leaves", "--wait=false"])?;
    world.apply(&world.pod("comes", &[sleeper("main")]))?;
    cluster.kill_apiserver()?;
    churn_without_api(&mut world, context.containerd()?, &before)?;
    pass_time(&mut world, Duration::from_secs(180))?;
    cluster.start_apiserver()?;
    check_converged(&mut world, context.containerd()?, &before)?;
    drop(world);
    cluster.stop()?;
    Ok(Outcome::Passed)
}

/// Pods that stay, restart, end and leave.
fn populate(world: &mut World<'_>) -> Result<BTreeMap<String, PodView>> {
    // Ends when told through its own file system, as nobody can be asked meanwhile.
    let ends = script("main", "while ! test -e /tmp/end; do sleep 0.2; done");
    world.apply(&with(world.pod("ends", &[ends]), json!({"spec": {"restartPolicy": "Never"}})))?;
    for name in ["stays", "restarts", "leaves"] {
        world.apply(&world.pod(name, &[sleeper("main")]))?;
    }
    let names = ["ends", "stays", "restarts", "leaves"];
    names.into_iter().map(|name| Ok((name.to_owned(), world.wait_ready(name)?))).collect()
}

fn main_id(pod: &PodView) -> Result<String> {
    Ok(pod.container("main")?.id().to_owned())
}

/// One container dies and must be restarted, another ends for good.
fn churn_without_api(
    world: &mut World<'_>,
    containerd: &Containerd,
    before: &BTreeMap<String, PodView>,
) -> Result<()> {
    let dies = main_id(&before["restarts"])?;
    containerd.ctr(&["tasks", "kill", "--signal", "SIGKILL", &dies])?;
    let ends = main_id(&before["ends"])?;
    containerd.ctr(&["tasks", "exec", "--exec-id", "end", &ends, "touch", "/tmp/end"])?;
    let uid = before["restarts"].uid();
    world.node.node.wait("a restart without the API server", LATER, |_| {
        let all = containerd.containers()?;
        let tasks = containerd.tasks()?;
        let is_back = all.iter().any(|it| {
            it.pod_uid == uid
                && it.name == "main"
                && it.id != dies
                && tasks.iter().any(|(id, _)| *id == it.id)
        });
        Ok(is_back.then_some(()))
    })?;
    Ok(())
}

/// Lets time pass while the agent must stay alive.
fn pass_time(world: &mut World<'_>, span: Duration) -> Result<()> {
    let began = Instant::now();
    world.node.node.wait("time to pass", span * 2, |_| Ok((began.elapsed() >= span).then_some(())))
}

fn check_converged(
    world: &mut World<'_>,
    containerd: &Containerd,
    before: &BTreeMap<String, PodView>,
) -> Result<()> {
    // Upstream backs off up to two minutes when it mounts volumes.
    world.wait_pod("comes", "Ready", Duration::from_secs(150), |pod| {
        pod.condition("Ready") == Some("True")
    })?;
    world.wait_pod("ends", "Succeeded", LATER, |pod| pod.phase() == "Succeeded")?;
    let restarted = world.wait_pod("restarts", "Ready after one restart", LATER, |pod| {
        pod.restarts() == 1 && pod.condition("Ready") == Some("True")
    })?;
    ensure!(
        main_id(&restarted)? != main_id(&before["restarts"])?,
        "the status names the dead container"
    );
    world.wait_gone(&before["leaves"], LATER)?;
    let stays = world.wait_ready("stays")?;
    ensure!(
        stays.restarts() == 0 && main_id(&stays)? == main_id(&before["stays"])?,
        "the pod that should stay was touched: {}",
        stays.0["status"]
    );
    world.node.wait_ready(world.cluster)?;
    wait_one_sandbox_each(world, containerd)
}

fn a_killed_agent_comes_back_and_nobody_notices(context: &mut Context<'_>) -> Result<Outcome> {
    let is_upstream = context.is_upstream();
    let mut world = World::start(context)?;
    let probed = with(
        sleeper("main"),
        json!({"readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}),
    );
    world.run(&world.pod("plain", &[sleeper("main"), sleeper("side")]))?;
    world.run(&world.pod("probed", &[probed]))?;
    let ill = with(
        sleeper("main"),
        json!({"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}}),
    );
    world.apply(&world.pod("ill", &[ill]))?;
    world.wait_pod("ill", "to run", SOON, |pod| pod.phase() == "Running")?;
    // A manifest does not remember what its mirror said.
    let every_second = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    let probes = json!({"startupProbe": every_second, "readinessProbe": every_second});
    let fixed = pod("fixed", &[with(sleeper("main"), probes)]);
    let home = json!({"metadata": {"namespace": world.namespace}});
    world.node.node.put_pod(&with(fixed, home))?;
    world.wait_ready(&world.node.node.pod_name("fixed"))?;
    let before = context.containerd()?.tasks()?;
    let (cluster, name) = (world.cluster, world.node_name().to_owned());
    // A flap may last a moment; a watch misses none.
    let nodes = cluster.watch(&format!("/api/v1/nodes?fieldSelector=metadata.name%3D{name}"))?;
    let pods = cluster.watch(&format!("/api/v1/namespaces/{}/pods", world.namespace))?;
    check_that_flaps_are_seen(&mut world, &nodes)?;
    for _ in 0..3 {
        world.node.node.kill()?;
        world.node.node.launch()?;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            let now = context.containerd()?.tasks()?;
            ensure!(now == before, "containers were {before:?} and are {now:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
    world.node.wait_ready(cluster)?;
    let flaps: Vec<Value> = nodes.seen().iter().filter_map(unready).collect();
    ensure!(flaps.is_empty(), "the node said {flaps:?}");
    for pod in pods.seen().into_iter().map(PodView) {
        let is_as_it_was = match pod.name() {
            "ill" => pod.condition("Ready") == Some("False"),
            // Upstream's probes begin anew, and their pods say so.
            _ => is_ready(&pod) || is_upstream,
        };
        let has_started = pod.0["status"]["containerStatuses"][0]["started"] == true;
        ensure!(
            is_as_it_was && (has_started || is_upstream) && pod.restarts() == 0,
            "{} said {}",
            pod.name(),
            pod.0["status"]
        );
    }
    wait_one_sandbox_each(&mut world, context.containerd()?)?;
    Ok(Outcome::Passed)
}

/// The condition Ready of a node, when it is not true.
fn unready(node: &Value) -> Option<Value> {
    let ready = condition(node, "Ready");
    (ready["status"] != "True").then_some(ready)
}

/// Makes the node flap once, from outside, and forgets it when the watch has seen it.
fn check_that_flaps_are_seen(world: &mut World<'_>, nodes: &Watching) -> Result<()> {
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let patch = patch.to_string();
    let name = world.node_name().to_owned();
    let flap = ["patch", "node", &name, "--subresource=status", "--patch", &patch];
    world.cluster.kubectl(&flap)?;
    // Upstream corrects it with its next report, five minutes later at worst.
    let mend = patch.replace("False", "True");
    world.node.node.wait("the flap to be seen", SOON, |_| {
        Ok(nodes.seen().iter().any(|node| unready(node).is_some()).then_some(()))
    })?;
    let mend = ["patch", "node", &name, "--subresource=status", "--patch", &mend];
    world.cluster.kubectl(&mend)?;
    world.node.wait_ready(world.cluster)?;
    world.node.node.wait("the end of the flap to be seen", SOON, |_| {
        let last = nodes.seen().pop();
        Ok(last.filter(|node| unready(node).is_none()).map(drop))
    })?;
    nodes.forget();
    Ok(())
}

fn after_a_reboot_without_the_api_server_pods_start_from_the_disk(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if context.is_upstream() {
        let reason = "upstream's kubelet knows no --offline-start";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let mut options = context.node_options();
    options.arguments = vec!["--offline-start".to_owned()];
    let mut world = World::start_with(context, options)?;
    world.apply(&world.object("Secret", "keys", json!({"stringData": {"word": "hush"}})))?;
    let mut main = sleeper("main");
    main["volumeMounts"] = json!([
        {"name": "keys", "mountPath": "/keys"}, {"name": "extra", "mountPath": "/extra"},
    ]);
    let pod = with(
        world.pod("survivor", &[main]),
        json!({"spec": {"volumes": [
            {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "extra", "configMap": {"name": "absent", "optional": true}},
        ]}}),
    );
    let before = world.run(&pod)?;
    let leaves = world.run(&world.pod("leaves", &[sleeper("main")]))?;
    for pod in [&before, &leaves] {
        wait_copied(&mut world, pod)?;
    }
    world.node.relay.cut();
    reboot(&mut world, context.containerd()?)?;
    // The API side goes on without the node.
    world.kubectl(&["delete", "pod", "leaves", "--force", "--grace-period=0"])?;
    world.node.node.launch()?;
    let containerd = context.containerd()?;
    let what = "the pods to run without the API server";
    world.node.node.wait(what, LATER, |_| {
        let tasks = containerd.tasks()?;
        let all = containerd.containers()?;
        let runs = |uid: &str| {
            all.iter().any(|it| {
                it.pod_uid == uid && it.name == "main" && tasks.iter().any(|(id, _)| *id == it.id)
            })
        };
        Ok((runs(before.uid()) && runs(leaves.uid())).then_some(()))
    })?;
    world.node.relay.heal()?;
    let after = world
        .wait_pod("survivor", "Ready again", LATER, |pod| is_ready(pod) && pod.restarts() == 1)?;
    ensure!(after.uid() == before.uid(), "it is another pod");
    let word = world.read_inside(containerd, &after, "/keys/word")?;
    ensure!(word == "hush", "its secret is {word:?}");
    wait_one_sandbox_each(&mut world, containerd)?;
    let copy = copy_of(&world, &leaves);
    world.node.node.wait("the copy to be gone", LATER, |_| Ok((!copy.exists()).then_some(())))?;
    Ok(Outcome::Passed)
}

fn without_offline_start_nothing_runs_before_the_api_server_is_back(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let before = world.run(&world.pod("survivor", &[sleeper("main")]))?;
    world.node.relay.cut();
    reboot(&mut world, context.containerd()?)?;
    world.node.node.launch()?;
    // Longer than a stand-in would wait.
    pass_time(&mut world, Duration::from_secs(15))?;
    let tasks = context.containerd()?.tasks()?;
    ensure!(tasks.is_empty(), "{tasks:?} run");
    let copy = copy_of(&world, &before);
    ensure!(!copy.exists(), "there is a copy at {}", copy.display());
    world.node.relay.heal()?;
    let after = world
        .wait_pod("survivor", "Ready again", LATER, |pod| is_ready(pod) && pod.restarts() == 1)?;
    ensure!(after.uid() == before.uid(), "it is another pod");
    Ok(Outcome::Passed)
}

/// Ends every process of the node, and everything that lived in memory only.
fn reboot(world: &mut World<'_>, containerd: &mut Containerd) -> Result<()> {
    world.node.node.kill()?;
    containerd.reboot()?;
    mounts::detach_below(&world.node.node.root())?;
    let tasks = containerd.tasks()?;
    ensure!(tasks.is_empty(), "{tasks:?} outlived the reboot");
    Ok(())
}

fn copy_of(world: &World<'_>, pod: &PodView) -> PathBuf {
    let name = format!("{}.json", pod.uid());
    world.node.node.root().join("ferrolet/offline").join(name)
}

/// Waits until the pod's copy has all that it mounts, and checks that it is for root only.
fn wait_copied(world: &mut World<'_>, pod: &PodView) -> Result<()> {
    let path = copy_of(world, pod);
    let volumes = pod.0["spec"]["volumes"].as_array();
    let n_secrets = volumes.into_iter().flatten().filter(|it| it["secret"].is_object()).count();
    world.node.node.wait("the pod's copy", LATER, |_| {
        let copy: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let n_copied = copy["secrets"].as_object().map_or(0, |it| it.len());
        let has_token = copy["tokens"].as_array().is_some_and(|it| !it.is_empty());
        Ok((n_copied == n_secrets && has_token).then_some(()))
    })?;
    for (path, expected) in [(path.as_path(), 0o600), (path.parent().unwrap_or(&path), 0o700)] {
        let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
        ensure!(mode == expected, "{} has mode {mode:o}", path.display());
    }
    Ok(())
}

fn an_agent_killed_during_churn_ends_with_what_the_api_says(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    kill_during_churn(context, 10, 5)
}

fn fifty_pods_outlive_twenty_kills_during_churn(context: &mut Context<'_>) -> Result<Outcome> {
    kill_during_churn(context, 50, 20)
}

/// What containerd 2.4 says when a request ends with its caller in the wrong moment: it has made a
/// task, and forgets it (ADR 0021).
const CUT_OFF: &str = "failed to get task pid: context canceled";

/// Pods come and go in every round, and in its middle the agent is killed and started again.
fn kill_during_churn(context: &mut Context<'_>, n_pods: usize, n_kills: u32) -> Result<Outcome> {
    let mut options = context.node_options();
    // A slow machine has many pods that are still ending; they count.
    options.configuration["maxPods"] = json!(4 * n_pods);
    let mut world = World::start_with(context, options)?;
    let mut alive: Vec<String> = (0..n_pods).map(|n| format!("pod-{n}")).collect();
    create(&world, &alive)?;
    let mut settled: BTreeMap<String, String> = BTreeMap::new();
    for name in alive.iter().take(n_pods / 2) {
        let pod = world.wait_pod(name, "Ready", LATER, is_ready)?;
        settled.insert(name.clone(), main_id(&pod)?);
    }
    let n_swapped = (n_pods / 10).max(1);
    for round in 0..n_kills {
        // The oldest of the second half go: the first half must outlive everything.
        let gone: Vec<String> = alive.drain(n_pods / 2..n_pods / 2 + n_swapped).collect();
        let mut args = vec!["delete", "pod", "--wait=false"];
        args.extend(gone.iter().map(String::as_str));
        world.kubectl(&args)?;
        let new: Vec<String> = (0..n_swapped).map(|n| format!("new-{round}-{n}")).collect();
        create(&world, &new)?;
        alive.extend(new);
        // Anywhere between at once and well into the work of the round; the same in every run.
        thread::sleep(Duration::from_millis(u64::from(round * 7919 % 1500)));
        world.node.node.kill()?;
        thread::sleep(Duration::from_millis(u64::from(round * 104_729 % 400)));
        world.node.node.launch()?;
    }
    for name in &alive {
        let pod = world.wait_pod(name, "Ready", Duration::from_secs(120), is_ready)?;
        ensure!(pod.restarts() == 0, "{name} was restarted: {}", pod.0["status"]);
        if let Some(id) = settled.get(name) {
            ensure!(main_id(&pod)? == *id, "{name} has another container");
        }
    }
    let path = format!("/api/v1/namespaces/{}/pods", world.namespace);
    let cluster = world.cluster;
    world.node.node.wait("deleted pods to be gone", GONE, |_| {
        let list = cluster.get(&path)?;
        let n_left = list["items"].as_array().map_or(0, Vec::len);
        ensure!(n_left == alive.len(), "{n_left} pods are left of {}", alive.len());
        Ok(Some(()))
    })?;
    let containerd = context.containerd()?;
    if std::fs::read_to_string(containerd.log())?.contains(CUT_OFF) {
        // What it lost sight of it finds again when it is started anew, and the agent takes it
        // down. Nobody else could.
        containerd.kill()?;
        containerd.launch()?;
    }
    wait_one_sandbox_each(&mut world, containerd)?;
    Ok(Outcome::Passed)
}

fn is_ready(pod: &PodView) -> bool {
    pod.phase() == "Running" && pod.condition("Ready") == Some("True")
}

fn create(world: &World<'_>, names: &[String]) -> Result<()> {
    let pods: Vec<Value> = names.iter().map(|name| world.pod(name, &[sleeper("main")])).collect();
    world.apply(&json!({"apiVersion": "v1", "kind": "List", "items": pods}))
}

/// Exactly the API server's pods have a sandbox, and each has one; of the others nothing is left.
fn wait_one_sandbox_each(world: &mut World<'_>, containerd: &Containerd) -> Result<()> {
    let path = format!("/api/v1/namespaces/{}/pods", world.namespace);
    let cluster = world.cluster;
    let root = world.node.node.root().join("pods");
    world.node.node.wait("one sandbox for each pod", GONE, |_| {
        let list = cluster.get(&path)?;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        // The runtime knows the static pod, not its mirror.
        let uid = |pod: &Value| {
            let metadata = &pod["metadata"];
            let mirrored = metadata["annotations"]["kubernetes.io/config.hash"].as_str();
            let uid = mirrored.or(metadata["uid"].as_str());
            uid.unwrap_or_default().to_owned()
        };
        let mut wanted: Vec<String> =
            pods.iter().filter(|pod| pod["status"]["phase"] == "Running").map(uid).collect();
        wanted.sort();
        let tasks = containerd.tasks()?;
        let all = containerd.containers()?;
        let mut found: Vec<String> = all
            .iter()
            .filter(|it| it.kind == "sandbox" && tasks.iter().any(|(id, _)| *id == it.id))
            .map(|it| it.pod_uid.clone())
            .collect();
        found.sort();
        ensure!(found == wanted, "sandboxes of {found:?} run for pods {wanted:?}");
        let known: Vec<String> = pods.iter().map(uid).collect();
        let leaked: Vec<String> = all
            .iter()
            .map(|it| it.pod_uid.clone())
            .chain(
                std::fs::read_dir(&root)?
                    .flatten()
                    .map(|entry| entry.file_name().to_string_lossy().into_owned()),
            )
            .filter(|uid| !known.contains(uid))
            .collect();
        ensure!(leaked.is_empty(), "something is left of {leaked:?}");
        Ok(Some(()))
    })
}

//! What a pod shares with its node and its containers with each other: processes, users, and the
//! room of a runtime class.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::{Part, PodView, cgroups};
use serde_json::{Value, json};

use super::{SOON, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    namespaces_are_shared_as_the_pod_says,
    a_pod_with_users_of_its_own_is_root_inside_only,
    a_runtime_class_adds_its_overhead_to_the_pods_bounds,
];

/// Says in which namespaces it is, and as what its first process is known.
const WHERE: &str = "readlink /proc/self/ns/pid; readlink /proc/self/ns/ipc; \
    tr '\\0' ' ' < /proc/1/cmdline; echo; exec sleep 100000";

/// What is said of a runtime that cannot give a pod users of its own.
const REFUSAL: &str = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces";

/// Namespaces of processes and of messages, and the command of process 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    pid: String,
    ipc: String,
    first: String,
}

fn place(world: &mut World<'_>, pod: &PodView, container: &str) -> Result<Place> {
    let what = format!("{container} of {} to say where it is", pod.name());
    world.node.node.wait(&what, SOON, |node| {
        let lines = look::log_lines(node, pod, container, 0)?;
        let [pid, ipc, first] = lines.as_slice() else {
            bail!("it says {lines:?}");
        };
        Ok(Some(Place { pid: pid.clone(), ipc: ipc.clone(), first: first.trim().to_owned() }))
    })
}

/// A namespace that the agent is in.
fn own(kind: &str) -> Result<String> {
    let link = fs::read_link(format!("/proc/self/ns/{kind}"))?;
    Ok(link.to_string_lossy().into_owned())
}

fn namespaces_are_shared_as_the_pod_says(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let containers = [script("a", WHERE), script("b", WHERE)];
    let rows: [(&str, Value); 4] = [
        ("alone", json!({})),
        ("together", json!({"shareProcessNamespace": true})),
        ("host-pid", json!({"hostPID": true})),
        ("host-ipc", json!({"hostIPC": true})),
    ];
    for (name, spec) in &rows {
        let pod = with(world.pod(name, &containers), json!({"spec": spec}));
        world.apply(&pod)?;
    }
    let (host_pid, host_ipc) = (own("pid")?, own("ipc")?);
    for (name, _) in &rows {
        let seen = world.wait_ready(name)?;
        let (a, b) = (place(&mut world, &seen, "a")?, place(&mut world, &seen, "b")?);
        // Messages are always shared within a pod, and with the node only on request.
        ensure!(a.ipc == b.ipc, "{name}: {a:?} {b:?}");
        ensure!((a.ipc == host_ipc) == (*name == "host-ipc"), "{name}: {a:?}");
        ensure!((a.pid == host_pid) == (*name == "host-pid"), "{name}: {a:?}");
        let is_shared = matches!(*name, "together" | "host-pid");
        ensure!((a.pid == b.pid) == is_shared, "{name}: {a:?} {b:?}");
        match *name {
            "together" => ensure!(a.first == "/pause", "{name}: {a:?}"),
            "host-pid" => ensure!(!a.first.contains("sleep"), "{name}: {a:?}"),
            _ => ensure!(a.first.starts_with("sh -c"), "{name}: {a:?}"),
        }
    }
    Ok(Outcome::Passed)
}

fn a_pod_with_users_of_its_own_is_root_inside_only(context: &mut Context<'_>) -> Result<Outcome> {
    match context.options.newer_runc.clone() {
        Part::Available(runc) => context.take_runc(runc)?,
        // With the one that is installed the test shows at least what is said of it.
        Part::Missing(_) => {}
    }
    let mut world = World::start(context)?;
    let words =
        "id -u; touch /data/x; stat -c %u /data/x; cat /proc/self/uid_map; exec sleep 100000";
    let main = with(
        script("main", words),
        json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
    );
    // With users of its own a container may see all of /proc.
    let bare = with(
        script("bare", "grep -c ' /proc/' /proc/mounts; exec sleep 100000"),
        json!({"securityContext": {"procMount": "Unmasked"}}),
    );
    let containers = [main, bare];
    let pods = ["one", "two"].map(|name| {
        with(
            world.pod(name, &containers),
            json!({"spec": {"hostUsers": false, "volumes": [{"name": "data", "emptyDir": {}}]}}),
        )
    });
    for pod in &pods {
        world.apply(pod)?;
    }
    let mut firsts = Vec::new();
    for name in ["one", "two"] {
        let seen = world.wait_known(name)?;
        // Either it runs or the runtime is said to be unable.
        let refusal = world.node.node.wait("a word about its users", SOON, |_| {
            let now = world_pod(world.cluster, &seen)?;
            if now.phase() == "Running" {
                return Ok(Some(None));
            }
            let path = format!(
                "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.uid%3D{}",
                seen.namespace(),
                seen.uid()
            );
            let events = world.cluster.get(&path)?;
            let events = events["items"].as_array().cloned().unwrap_or_default();
            let failed = events
                .iter()
                .find(|it| it["reason"] == "FailedCreatePodSandBox")
                .context("neither runs it nor was it refused")?;
            Ok(Some(failed["message"].as_str().map(str::to_owned)))
        })?;
        if let Some(message) = refusal {
            ensure!(message == REFUSAL, "{message}");
            return Ok(Outcome::Skipped(
                "the runtime or the kernel has no user namespaces for pods".to_owned(),
            ));
        }
        let lines = world.settled_log(&seen, "main")?;
        let numbers: Vec<u64> = lines
            .last()
            .map(|it| it.split_whitespace().filter_map(|n| n.parse().ok()).collect())
            .unwrap_or_default();
        ensure!(lines[..2] == ["0", "0"], "it runs and writes as {lines:?}");
        let hidden = world.settled_log(&seen, "bare")?;
        ensure!(hidden == ["0"], "{hidden:?} parts of /proc are hidden");
        // What it writes into a volume is root's on the node too, whoever has its users next.
        let file = "volumes/kubernetes.io~empty-dir/data/x";
        let file = look::pod_directory(&world.node.node, &seen).join(file);
        let owner = fs::metadata(&file)?.uid();
        ensure!(owner == 0, "{} belongs to {owner}", file.display());
        let [inside, outside, length] = numbers[..] else {
            bail!("its map is {lines:?}");
        };
        ensure!(
            inside == 0 && outside >= 65_536 && outside % 65_536 == 0 && length == 65_536,
            "its map is {lines:?}"
        );
        firsts.push(outside);
    }
    ensure!(firsts[0] != firsts[1], "two pods have the same users: {firsts:?}");
    Ok(Outcome::Passed)
}

fn world_pod(cluster: &ferrolet_lab::Cluster, pod: &PodView) -> Result<PodView> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace(), pod.name());
    Ok(PodView(cluster.get(&path)?))
}

fn a_runtime_class_adds_its_overhead_to_the_pods_bounds(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let class = format!("roomy-{}", world.node_name());
    world.apply(&json!({
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": class},
        "handler": "runc",
        "overhead": {"podFixed": {"cpu": "100m", "memory": "16Mi"}},
    }))?;
    let both = json!({"cpu": "100m", "memory": "32Mi"});
    let bounded = with(sleeper("main"), json!({"resources": {"requests": both, "limits": both}}));
    let pod = with(world.pod("web", &[bounded]), json!({"spec": {"runtimeClassName": class}}));
    let seen = world.run(&pod)?;
    ensure!(
        seen.0["spec"]["overhead"]["memory"] == "16Mi",
        "the API server has not put the overhead in: {}",
        seen.0["spec"]["overhead"]
    );
    let group = look::pod_cgroup(&world.node.node, "", &seen);
    let container = format!("{group}/{}", seen.container("main")?.id());
    let whole = (48_u64 << 20).to_string();
    let own = (32_u64 << 20).to_string();
    let (memory, cpu, weight) = if cgroups::is_v2() {
        ("memory.max", ("cpu.max", "20000 100000"), ("cpu.weight", "8"))
    } else {
        ("memory.limit_in_bytes", ("cpu.cfs_quota_us", "20000"), ("cpu.shares", "204"))
    };
    for (group, file, expected) in [
        (&group, memory, whole.as_str()),
        (&group, cpu.0, cpu.1),
        (&group, weight.0, weight.1),
        (&container, memory, own.as_str()),
    ] {
        let value = cgroups::value(group, file)?;
        ensure!(value == expected, "{file} of {group} is {value}, not {expected}");
    }
    world.kubectl(&["delete", "pod", "web"])?;
    world.cluster.kubectl(&["delete", "runtimeclass", &class])?;
    Ok(Outcome::Passed)
}

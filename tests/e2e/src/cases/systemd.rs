//! The agent on a machine whose first process is systemd, as most nodes are: slices made over the
//! bus, real logind, and memory that really runs short. All in a virtual machine ([`crate::guest`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::process::call;
use ferrolet_lab::wait::wait_until;
use ferrolet_lab::{Node, PodView, StandIn};
use serde_json::{Value, json};

use super::{GONE, LATER, SOON, cases, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    ; systemd:
    slices_have_upstreams_names_and_values_and_keep_them,
    pods_start_once_a_bus_that_went_away_is_back,
    memory_that_runs_short_costs_the_pod_that_has_no_claim_to_it,
    pods_end_by_priority_before_the_machine_goes_down_for_good,
];

const TREE: &str = "/sys/fs/cgroup";
/// Bounds and weights. What counts up (`memory.current`) is nobody's setting.
const FILES: [&str; 16] = [
    "cgroup.subtree_control",
    "cpu.idle",
    "cpu.max",
    "cpu.weight",
    "cpuset.cpus",
    "hugetlb.1GB.max",
    "hugetlb.2MB.max",
    "io.weight",
    "memory.high",
    "memory.low",
    "memory.max",
    "memory.min",
    "memory.oom.group",
    "memory.swap.max",
    "pids.max",
    "rdma.max",
];

/// `path/file` in words that are the same for every agent, and what it says.
type Values = BTreeMap<String, String>;

/// Pods of every class, and what each asks for.
fn matrix() -> Vec<(&'static str, Value)> {
    let asks = |name: &str, requests: Value, limits: Value| {
        with(sleeper(name), json!({"resources": {"requests": requests, "limits": limits}}))
    };
    let both = json!({"cpu": "200m", "memory": "32Mi"});
    let part = json!({"cpu": "100m", "memory": "16Mi"});
    let more = json!({"cpu": "1500m", "memory": "64Mi"});
    vec![
        ("sure", pod("sure", &[asks("main", both.clone(), both.clone())])),
        ("burst", pod("burst", &[asks("main", part.clone(), more.clone())])),
        // One without a bound takes the bound of all away.
        ("open", pod("open", &[asks("main", part, more), sleeper("other")])),
        ("best", pod("best", &[sleeper("main")])),
    ]
}

/// The configuration of a node that kubeadm set up, but for the driver: the runtime says that.
fn configuration() -> Value {
    json!({
        "cgroupRoot": "/",
        "cgroupDriver": "cgroupfs",
        "podPidsLimit": 96,
        "systemReserved": {"cpu": "250m", "memory": "128Mi", "pid": "1000"},
    })
}

/// What upstream's kubelet 1.37.1 writes for the matrix in this guest. Of all values
/// one differs: it takes the bound of huge pages off `kubepods.slice` again, which here stays at what
/// the node has of them.
const UPSTREAM: [(&str, [&str; 4]); 7] = [
    // cpu.max, cpu.weight, memory.max, pids.max
    ("kubepods-besteffort.slice", ["max 100000", "1", "max", "max"]),
    (
        "kubepods-besteffort.slice/kubepods-besteffort-pod<best>.slice",
        ["max 100000", "1", "max", "96"],
    ),
    ("kubepods-burstable.slice", ["max 100000", "8", "max", "max"]),
    (
        "kubepods-burstable.slice/kubepods-burstable-pod<burst>.slice",
        ["150000 100000", "4", "67108864", "96"],
    ),
    (
        "kubepods-burstable.slice/kubepods-burstable-pod<open>.slice",
        ["max 100000", "4", "max", "96"],
    ),
    ("kubepods-pod<sure>.slice", ["20000 100000", "8", "33554432", "96"]),
    ("kubepods-pod<sure>.slice/cri-containerd-main.scope", ["20000 100000", "8", "33554432", ""]),
];

fn slices_have_upstreams_names_and_values_and_keep_them(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    context.take_systemd()?;
    // The slice of daemons is there before the agent bounds it.
    call("systemctl", &["start", "daemons.slice"])?;
    let mut options = context.node_options();
    options.configuration = with(
        configuration(),
        json!({
            "enforceNodeAllocatable": ["pods", "system-reserved"],
            "systemReservedCgroup": "/daemons.slice",
        }),
    );
    let mut node = context.node_with(options)?;
    let values = play(&mut node)?;
    for (path, expected) in UPSTREAM {
        for (file, expected) in
            ["cpu.max", "cpu.weight", "memory.max", "pids.max"].into_iter().zip(expected)
        {
            // How many processes a unit may have by itself follows from the machine.
            if path.ends_with(".scope") && file == "pids.max" {
                continue;
            }
            let value = values.get(&format!("kubepods.slice/{path}/{file}")).map(String::as_str);
            ensure!(value == Some(expected), "{path}/{file} is {value:?}, not {expected}");
        }
    }
    let reserved = 128 << 20;
    let bound = (memory_of_machine()? - reserved).to_string();
    let rows = [
        ("kubepods.slice/memory.max", bound.as_str()),
        ("kubepods.slice/cpu.weight", "69"),
        ("daemons.slice/memory.max", "134217728"),
        ("daemons.slice/cpu.weight", "10"),
        ("daemons.slice/pids.max", "1000"),
    ];
    for (file, expected) in rows {
        let value = fs::read_to_string(Path::new(TREE).join(file))?;
        ensure!(value.trim() == expected, "{file} is {value:?}, not {expected}");
    }
    Ok(Outcome::Passed)
}

fn memory_of_machine() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|it| it.trim().strip_suffix(" kB")).context("no MemTotal")?;
    Ok(total.trim().parse::<u64>()? * 1024)
}

/// Runs the matrix on an agent, gives what the cgroups say, and lets it all end. They have to say
/// the same after systemd has read its files again.
fn play(node: &mut Node) -> Result<Values> {
    let mut seen = BTreeMap::new();
    for (name, pod) in matrix() {
        node.put_pod(&pod)?;
        seen.insert(name, wait_running(node, name)?);
    }
    let values = read(&seen)?;
    call("systemctl", &["daemon-reload"])?;
    let different = differences(&slices(values.clone()), &slices(read(&seen)?));
    ensure!(different.is_empty(), "before, after a reload:\n{}", different.join("\n"));
    for name in seen.keys() {
        node.remove_manifest(&format!("{name}.yaml"))?;
    }
    node.wait("the slices of pods to be gone", GONE, |_| {
        let left = read(&seen)?;
        let left: Vec<&String> = left.keys().filter(|path| path.contains("pod<")).collect();
        ensure!(left.is_empty(), "{left:?}");
        let units = call(
            "systemctl",
            &["list-units", "--all", "--plain", "--no-legend", "kubepods-*pod*"],
        )?;
        ensure!(units.trim().is_empty(), "{units}");
        Ok(Some(()))
    })?;
    Ok(values)
}

/// What is the agent's. Scopes are the runtime's, and a reload takes their `memory.oom.group` away.
fn slices(mut values: Values) -> Values {
    values.retain(|path, _| !path.contains(".scope/"));
    values
}

fn differences(one: &Values, other: &Values) -> Vec<String> {
    let paths: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let is_different = |path: &&String| one.get(*path) != other.get(*path);
    let shown = |path: &String| format!("{path}: {:?}, {:?}", one.get(path), other.get(path));
    paths.into_iter().filter(is_different).map(shown).collect()
}

/// Every setting below the slice of all pods.
fn read(seen: &BTreeMap<&'static str, PodView>) -> Result<Values> {
    let mut values = Values::new();
    let mut left = vec![Path::new(TREE).join("kubepods.slice")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
        let shown = words(directory.strip_prefix(TREE)?, seen);
        for file in FILES {
            if let Ok(value) = fs::read_to_string(directory.join(file)) {
                values.insert(format!("{shown}/{file}"), value.trim().to_owned());
            }
        }
    }
    Ok(values)
}

/// A path with names in place of ids.
fn words(path: &Path, seen: &BTreeMap<&'static str, PodView>) -> String {
    let mut text = path.display().to_string();
    for (name, pod) in seen {
        text =
            text.replace(&format!("pod{}", pod.uid().replace('-', "_")), &format!("pod<{name}>"));
        for container in pod.containers() {
            text = text.replace(container.id(), container.name());
        }
    }
    // A sandbox has an id of its own.
    let last = text.rsplit('/').next().unwrap_or_default().to_owned();
    match last.strip_prefix("cri-containerd-").and_then(|it| it.strip_suffix(".scope")) {
        Some(id) if id.len() == 64 => text.replace(id, "sandbox"),
        _ => text,
    }
}

fn pods_start_once_a_bus_that_went_away_is_back(context: &mut Context<'_>) -> Result<Outcome> {
    context.take_systemd()?;
    let mut options = context.node_options();
    options.configuration = configuration();
    let mut node = context.node_with(options)?;
    node.put_pod(&pod("before", &[sleeper("main")]))?;
    let before = wait_running(&mut node, "before")?;
    call("systemctl", &["stop", "dbus.socket", "dbus.service"])?;
    node.put_pod(&pod("meanwhile", &[sleeper("main")]))?;
    let told = node.wait("a word about the bus", SOON, |node| {
        Ok(node.log_text().lines().find(|line| line.contains("by systemd")).map(str::to_owned))
    });
    call("systemctl", &["start", "dbus.socket", "dbus.service"])?;
    told?;
    wait_running(&mut node, "meanwhile")?;
    // One that is started anew while nobody asks it anything is not noticed at all.
    call("systemctl", &["restart", "dbus.service"])?;
    node.put_pod(&pod("after", &[sleeper("main")]))?;
    wait_running(&mut node, "after")?;
    let still = node.pod("before")?;
    ensure!(still.container("main")?.id() == before.container("main")?.id(), "{}", still.state());
    Ok(Outcome::Passed)
}

/// Takes memory until it is ended, a little at a time.
const GREEDY: &str = "n=0; while :; do dd if=/dev/zero of=/memory/$n bs=1M count=16 2>/dev/null || sleep 1; n=$((n+1)); done";

fn memory_that_runs_short_costs_the_pod_that_has_no_claim_to_it(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    context.take_systemd()?;
    let api = StandIn::start()?;
    let mut options = context.node_options();
    let name = options.name.clone();
    let directory = context.bench.directory(&format!("node-{name}"))?;
    let kubeconfig = directory.join("kubeconfig");
    fs::write(&kubeconfig, api.kubeconfig().to_string())?;
    options.arguments = vec![format!("--kubeconfig={}", kubeconfig.display())];
    options.configuration = with(
        configuration(),
        json!({"evictionHard": {"memory.available": "120Mi"}, "systemReserved": null}),
    );
    let mut node = context.node_with(options)?;
    let of_api = |node: &Node, name: &str, pod: Value| {
        let full = node.pod_name(name);
        let placed = json!({
            "metadata": {"name": full, "namespace": "default", "uid": format!("{name}-of-the-api")},
            "spec": {"nodeName": node.name(), "restartPolicy": "Always", "enableServiceLinks": false},
        });
        api.put("pods", with(pod, placed));
    };
    let asks = json!({"resources": {"requests": {"memory": "64Mi"}}});
    of_api(&node, "modest", pod("modest", &[with(sleeper("main"), asks)]));
    of_api(&node, "small", pod("small", &[sleeper("main")]));
    let before: Vec<PodView> = ["modest", "small"]
        .into_iter()
        .map(|name| wait_running(&mut node, name))
        .collect::<Result<_>>()?;
    let mounts = json!({"volumeMounts": [{"name": "memory", "mountPath": "/memory"}]});
    let volumes =
        json!({"spec": {"volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}]}});
    let greedy = pod("greedy", &[with(script("main", GREEDY), mounts)]);
    of_api(&node, "greedy", with(greedy, volumes));
    let over = node.wait_pod("greedy", "evicted", LATER, |pod| pod.phase() == "Failed")?;
    let status = &over.0["status"];
    ensure!(status["reason"] == "Evicted", "{status}");
    let message = status["message"].as_str().unwrap_or_default();
    ensure!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: 120Mi"),
        "{status}"
    );
    let log = node.log_text();
    let short = log.find("The node runs short").context("nobody said that memory runs short")?;
    let alarm = log[..short].contains("The kernel says that memory runs short");
    ensure!(alarm, "the clock and not the kernel told of it");
    for before in before {
        let name = before.name().trim_end_matches(&format!("-{}", node.name())).to_owned();
        let after = node.pod(&name)?;
        ensure!(after.phase() == "Running", "{name}: {}", after.state());
        ensure!(
            after.container("main")?.id() == before.container("main")?.id(),
            "{name} was touched"
        );
    }
    let evicted = log.lines().filter(|line| line.contains("Evicting pod")).count();
    ensure!(evicted == 1, "{evicted} pods were evicted");
    Ok(Outcome::Passed)
}

/// A pod that says when it is told to end, takes two seconds and says when it ends.
fn slow(name: &str, priority: i64) -> Value {
    let text = "trap 'echo told; sleep 2; echo ended; exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    with(
        pod(name, &[script("main", text)]),
        json!({"spec": {"priority": priority, "terminationGracePeriodSeconds": 60}}),
    )
}

/// The last of all: the machine goes down.
fn pods_end_by_priority_before_the_machine_goes_down_for_good(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    context.take_systemd()?;
    let mut options = context.node_options();
    options.configuration = with(
        configuration(),
        json!({"shutdownGracePeriod": "150s", "shutdownGracePeriodCriticalPods": "70s"}),
    );
    let mut node = context.node_with(options)?;
    let lock = node.wait("the machine to be held up", SOON, |_| {
        let locks = call("systemd-inhibit", &["--list", "--no-pager", "--no-legend"])?;
        Ok(locks.lines().find(|line| line.contains("kubelet")).map(str::to_owned))
    })?;
    ensure!(lock.contains("shutdown") && lock.contains("delay"), "{lock}");
    let most = call(
        "busctl",
        &[
            "get-property",
            "org.freedesktop.login1",
            "/org/freedesktop/login1",
            "org.freedesktop.login1.Manager",
            "InhibitDelayMaxUSec",
        ],
    )?;
    ensure!(most.trim() == "t 150000000", "logind waits for {most}");
    let rows = [("plain", 0), ("dear", 5000), ("vital", 2_000_001_000)];
    let mut seen = BTreeMap::new();
    for (name, priority) in rows {
        node.put_pod(&slow(name, priority))?;
        let pod = wait_running(&mut node, name)?;
        node.wait("it to listen", SOON, |node| {
            let lines = look::log_lines(node, &pod, "main", 0)?;
            Ok(lines.contains(&"ready".to_owned()).then_some(()))
        })?;
        seen.insert(name, pod);
    }
    call("systemctl", &["poweroff"])?;
    node.wait("every pod to have had its time", LATER, |node| {
        Ok(node.log_text().contains("Every pod had its time").then_some(()))
    })?;
    let mut lines = Vec::new();
    for (name, pod) in &seen {
        let log = look::log_directory(&node, pod).join("main/0.log");
        for line in fs::read_to_string(&log)?.lines() {
            let mut parts = line.split_whitespace();
            let (Some(time), Some(word)) = (parts.next(), parts.nth(2)) else { bail!("{line}") };
            lines.push(format!("{time} {name} {word}"));
        }
    }
    lines.sort();
    let at = |text: &str| {
        let found = lines.iter().position(|line| line.ends_with(text));
        found.with_context(|| format!("nobody said {text}: {lines:?}"))
    };
    for first in ["plain ended", "dear ended"] {
        ensure!(at(first)? < at("vital told")?, "{lines:?}");
    }
    at("vital ended")?;
    wait_until("systemd to go on", SOON, || {
        let jobs = call("systemctl", &["list-jobs", "--no-pager", "--no-legend"])?;
        Ok(jobs.contains("poweroff.target").then_some(()))
    })?;
    Ok(Outcome::Passed)
}

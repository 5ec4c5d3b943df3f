//! What a container is given: command, environment, network, limits, logs.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::{Node, PodView, StandIn, cgroups, http};
use serde_json::{Value, json};

use super::{GONE, LATER, SOON, cases, wait_phase, wait_running};
use crate::build::{pod, script, sleeper, with};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    environment_and_arguments_are_expanded,
    a_limit_that_is_not_set_is_what_the_node_has,
    command_arguments_and_working_directory_are_obeyed,
    a_container_port_and_a_host_port_answer,
    quality_of_service_chooses_the_cgroup,
    a_host_network_pod_has_the_nodes_address,
    logs_and_links_are_where_upstream_puts_them,
    the_runtime_sees_upstreams_labels_and_annotations,
    the_termination_message_is_reported,
    ; guest:
    huge_pages_are_given_and_bounded,
    memory_is_reserved_and_throttled_as_the_policy_says,
    a_static_pod_does_not_swap_although_its_class_may,
    a_burstable_pod_of_the_api_swaps_by_its_share_of_the_memory,
    a_machine_without_memory_says_whom_it_cost,
    ; both: limits_arrive_in_the_cgroups,
];

/// Runs a pod to its end and gives what its container wrote.
fn run_to_end(context: &mut Context<'_>, pod: Value) -> Result<Vec<String>> {
    let mut node = context.node()?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    node.put_pod(&with(pod, json!({"spec": {"restartPolicy": "Never"}})))?;
    let seen = wait_phase(&mut node, &name, "Succeeded")?;
    look::log_lines(&node, &seen, "main", 0)
}

fn environment_and_arguments_are_expanded(context: &mut Context<'_>) -> Result<Outcome> {
    let container = with(
        script("main", "unused"),
        json!({
            "command": ["sh", "-c", "echo \"$A|$B|$C|$D\"; echo $0 $1", "$(A)"],
            "args": ["$(B)-$$(B)-$(NONE)"],
            "env": [
                {"name": "A", "value": "one"},
                {"name": "B", "value": "$(A)-two"},
                {"name": "C", "value": "$$(A)"},
                {"name": "D", "value": "$(NONE)"},
            ],
        }),
    );
    let lines = run_to_end(context, pod("expand", &[container]))?;
    ensure!(
        lines == ["one|one-two|$(A)|$(NONE)", "one one-two-$(B)-$(NONE)"],
        "it wrote {lines:?}"
    );
    Ok(Outcome::Passed)
}

fn a_limit_that_is_not_set_is_what_the_node_has(context: &mut Context<'_>) -> Result<Outcome> {
    let of = |name: &str, resource: &str| json!({"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource}}});
    let container = with(
        script("main", "echo $CPU $MEMORY; cat /down/cpu"),
        json!({
            "env": [of("CPU", "limits.cpu"), of("MEMORY", "limits.memory")],
            "volumeMounts": [{"name": "down", "mountPath": "/down"}],
        }),
    );
    let item = json!({"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}});
    let volumes =
        json!({"spec": {"volumes": [{"name": "down", "downwardAPI": {"items": [item]}}]}});
    let lines = run_to_end(context, with(pod("unlimited", &[container]), volumes))?;
    let n_cpus = std::thread::available_parallelism()?.get().to_string();
    let text = lines.join(" ");
    let words: Vec<&str> = text.split_whitespace().collect();
    ensure!(words.len() == 3 && words[0] == n_cpus && words[2] == n_cpus, "it wrote {lines:?}");
    // Something is kept for the threshold of eviction, so it is not all of the memory, but it is
    // most.
    let memory: u64 = words[1].parse()?;
    ensure!(memory > 1 << 28, "{memory} bytes are no node");
    Ok(Outcome::Passed)
}

fn command_arguments_and_working_directory_are_obeyed(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    // Only arguments: the image's command (a shell) is replaced by them.
    let container = with(
        sleeper("main"),
        json!({"command": ["sh"], "args": ["-c", "pwd; hostname"], "workingDir": "/www"}),
    );
    let lines = run_to_end(context, pod("where", &[container]))?;
    ensure!(
        lines.len() == 2 && lines[0] == "/www" && lines[1].starts_with("where-"),
        "it wrote {lines:?}"
    );
    Ok(Outcome::Passed)
}

fn a_container_port_and_a_host_port_answer(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    let host_port = http::free_port()?;
    let container = with(
        sleeper("main"),
        json!({
            "command": ["httpd", "-f", "-p", "8080", "-h", "/www"],
            "ports": [{"containerPort": 8080, "hostPort": host_port}],
        }),
    );
    node.put_pod(&pod("web", &[container]))?;
    let seen = wait_running(&mut node, "web")?;
    let ip = seen.ip().context("no address")?.to_owned();
    for address in [format!("{ip}:8080"), format!("{}:{host_port}", context.bench.node_ip())] {
        node.wait(&format!("an answer on {address}"), SOON, |_| {
            let answer = http::get(&address, "/index.html")?;
            Ok((answer.body == "It works.\n").then_some(()))
        })?;
    }
    Ok(Outcome::Passed)
}

fn limited(name: &str, requests: Value, limits: Value) -> Value {
    pod(
        name,
        &[with(sleeper("main"), json!({"resources": {"requests": requests, "limits": limits}}))],
    )
}

/// What upstream and the runtime write for 200m of CPU, 32 MiB and 96 processes: whose cgroup,
/// which file, what.
fn bounds() -> &'static [(&'static str, &'static str, &'static str)] {
    if cgroups::is_v2() {
        // The weight of a container is not here: newer runtimes have another scale than upstream's
        // for pods.
        &[
            ("pod", "cpu.weight", "8"),
            ("pod", "cpu.max", "20000 100000"),
            ("pod", "memory.max", "33554432"),
            ("pod", "memory.oom.group", "0"),
            ("pod", "pids.max", "96"),
            ("container", "cpu.max", "20000 100000"),
            ("container", "memory.max", "33554432"),
            ("container", "memory.swap.max", "0"),
            ("container", "memory.oom.group", "1"),
            ("container", "memory.min", "0"),
            ("container", "memory.high", "max"),
            ("container", "pids.max", "max"),
        ]
    } else {
        &[
            ("pod", "cpu.shares", "204"),
            ("pod", "cpu.cfs_quota_us", "20000"),
            ("pod", "cpu.cfs_period_us", "100000"),
            ("pod", "memory.limit_in_bytes", "33554432"),
            ("pod", "pids.max", "96"),
            ("container", "cpu.shares", "204"),
            ("container", "cpu.cfs_quota_us", "20000"),
            ("container", "cpu.cfs_period_us", "100000"),
            ("container", "memory.limit_in_bytes", "33554432"),
            ("container", "pids.max", "max"),
        ]
    }
}

fn limits_arrive_in_the_cgroups(context: &mut Context<'_>) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({"podPidsLimit": 96});
    let mut node = context.node_with(options)?;
    let both = json!({"cpu": "200m", "memory": "32Mi"});
    node.put_pod(&limited("limited", both.clone(), both))?;
    let seen = wait_running(&mut node, "limited")?;
    let pod_group = look::pod_cgroup(&node, "", &seen);
    let container_group = format!("{pod_group}/{}", seen.container("main")?.id());
    for (whose, file, expected) in bounds() {
        let group = if *whose == "pod" { &pod_group } else { &container_group };
        let value = cgroups::value(group, file)?;
        ensure!(value == *expected, "{file} of the {whose} is {value}, not {expected}");
    }
    ensure!(seen.0["status"]["qosClass"] == "Guaranteed", "{}", seen.0["status"]);
    // The end belongs to it: in a virtual machine this is the one pod that is looked at from
    // beginning to end.
    node.remove_manifest("limited.yaml")?;
    let containerd = context.containerd()?;
    node.wait("nothing of the pod to be left", GONE, |node| {
        look::ensure_gone(node, containerd, &seen).map(Some)
    })?;
    Ok(Outcome::Passed)
}

fn huge_pages_are_given_and_bounded(context: &mut Context<'_>) -> Result<Outcome> {
    let free = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    let n_free: u64 =
        fs::read_to_string(free).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if n_free < 2 {
        return Ok(Outcome::Skipped(
            "this machine keeps no huge pages of 2 MiB (vm.nr_hugepages)".to_owned(),
        ));
    }
    let mut options = context.node_options();
    options.configuration = json!({"failSwapOn": false});
    let mut node = context.node_with(options)?;
    let container = with(
        script("main", "grep ' /huge ' /proc/mounts; exec sleep 100000"),
        json!({
            "resources": {"limits": {"hugepages-2Mi": "4Mi", "memory": "32Mi"}},
            "volumeMounts": [{"name": "huge", "mountPath": "/huge"}],
        }),
    );
    node.put_pod(&with(
        pod("huge", &[container]),
        json!({"spec": {"volumes": [{"name": "huge", "emptyDir": {"medium": "HugePages"}}]}}),
    ))?;
    let seen = wait_running(&mut node, "huge")?;
    let mount = node.wait("it to show its mount", SOON, |node| {
        Ok(look::log_lines(node, &seen, "main", 0)?.into_iter().next())
    })?;
    ensure!(
        mount.contains(" hugetlbfs ") && mount.contains("pagesize=2M"),
        "the volume is mounted as {mount:?}"
    );
    let pod_group = look::pod_cgroup(&node, "burstable/", &seen);
    let container_group = format!("{pod_group}/{}", seen.container("main")?.id());
    let file = if cgroups::is_v2() { "hugetlb.2MB.max" } else { "hugetlb.2MB.limit_in_bytes" };
    for group in [&pod_group, &container_group] {
        let value = cgroups::value(group, file)?;
        ensure!(value == "4194304", "{file} of {group} is {value}");
    }
    Ok(Outcome::Passed)
}

fn memory_is_reserved_and_throttled_as_the_policy_says(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if !cgroups::is_v2() {
        return Ok(Outcome::Skipped("cgroup v1 has nothing of the kind".to_owned()));
    }
    let mut options = context.node_options();
    options.configuration = json!({
        "failSwapOn": false,
        "memoryReservationPolicy": "TieredReservation",
        "memoryThrottlingFactor": 0.5,
    });
    let mut node = context.node_with(options)?;
    // A bound on the processor would hold up the start on an emulated one.
    let both = json!({"cpu": "2", "memory": "32Mi"});
    node.put_pod(&limited("sure", both.clone(), both))?;
    let (request, limit) = (json!({"memory": "16Mi"}), json!({"memory": "64Mi"}));
    let whole = json!({"spec": {"resources": {"requests": {"memory": "24Mi"}, "limits": {"memory": "72Mi"}}}});
    node.put_pod(&with(limited("burst", request, limit), whole))?;
    let all = format!("{}/kubepods", node.cgroup_root());
    let burstable = format!("{all}/burstable");
    let sure = wait_running(&mut node, "sure")?;
    let burst = wait_running(&mut node, "burst")?;
    let pod_of = |class: &str, seen: &PodView| look::pod_cgroup(&node, class, seen);
    let (sure_pod, burst_pod) = (pod_of("", &sure), pod_of("burstable/", &burst));
    let sure_main = format!("{sure_pod}/{}", sure.container("main")?.id());
    let burst_main = format!("{burst_pod}/{}", burst.container("main")?.id());
    let mi = |n: u64| (n << 20).to_string();
    let max = "max".to_owned();
    let shows = |group: &str, file: &str, expected: &str| -> Result<()> {
        let value = cgroups::value(group, file)?;
        ensure!(value == expected, "{file} of {group} is {value}, not {expected}");
        Ok(())
    };
    for (group, min, low, high) in [
        (&sure_pod, mi(32), mi(0), max.clone()),
        (&sure_main, mi(32), mi(0), max.clone()),
        (&burst_pod, mi(0), mi(24), mi(48)),
        (&burst_main, mi(0), mi(16), mi(40)),
    ] {
        shows(group, "memory.min", &min)?;
        shows(group, "memory.low", &low)?;
        shows(group, "memory.high", &high)?;
    }
    let together = |min: u64, low: u64| -> Result<Option<()>> {
        shows(&all, "memory.min", &mi(min))?;
        shows(&all, "memory.low", &mi(low))?;
        shows(&burstable, "memory.min", &mi(0))?;
        shows(&burstable, "memory.low", &mi(low))?;
        Ok(Some(()))
    };
    node.wait("both pods to be counted", SOON, |_| together(56, 24))?;
    node.remove_manifest("burst.yaml")?;
    node.wait("one to be left", GONE, |_| together(32, 0))?;
    // An agent that reserves nothing takes back what this one did.
    node.kill()?;
    let file = node.directory().join("kubelet.yaml");
    let text = fs::read_to_string(&file)?;
    fs::write(&file, text.replace("TieredReservation", "None"))?;
    node.launch()?;
    node.wait("it to be taken back", LATER, |_| together(0, 0))?;
    wait_running(&mut node, "sure")?;
    Ok(Outcome::Passed)
}

/// Why nothing can be swapped here.
fn without_swap() -> Result<Option<Outcome>> {
    if !cgroups::is_v2() {
        return Ok(Some(Outcome::Skipped(
            "with cgroup v1 no container swaps; the rules of v1 are in core".to_owned(),
        )));
    }
    let swaps = fs::read_to_string("/proc/swaps")?;
    let is_off = swaps.lines().count() < 2;
    Ok(is_off.then(|| Outcome::Skipped("this machine has no swap".to_owned())))
}

/// A line of `/proc/meminfo`, in bytes.
fn amount_of(what: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|it| it.strip_prefix(what));
    let kilobytes = line.and_then(|it| it.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kilobytes.with_context(|| format!("no {what}"))? << 10)
}

/// The pods come from a stand-in, because a virtual machine has no API server and static pods do
/// not swap.
fn a_burstable_pod_of_the_api_swaps_by_its_share_of_the_memory(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if let Some(outcome) = without_swap()? {
        return Ok(outcome);
    }
    let api = StandIn::start()?;
    let mut options = context.node_options();
    let name = options.name.clone();
    let directory = context.bench.directory(&format!("node-{name}"))?;
    let kubeconfig = directory.join("kubeconfig");
    fs::write(&kubeconfig, api.kubeconfig().to_string())?;
    options.arguments = vec![format!("--kubeconfig={}", kubeconfig.display())];
    options.configuration =
        json!({"failSwapOn": false, "memorySwap": {"swapBehavior": "LimitedSwap"}});
    let mut node = context.node_with(options)?;
    let request = 256_u64 << 20;
    let rows = [
        ("burst", json!({"memory": request.to_string()}), json!({}), "burstable/"),
        (
            "sure",
            json!({"cpu": "50m", "memory": "32Mi"}),
            json!({"cpu": "50m", "memory": "32Mi"}),
            "",
        ),
    ];
    for (kind, requests, limits, _) in &rows {
        let full = node.pod_name(kind);
        let pod = with(
            limited(&full, requests.clone(), limits.clone()),
            json!({
                "metadata": {"namespace": "default", "uid": format!("{kind}-of-the-api")},
                "spec": {"nodeName": name, "restartPolicy": "Always", "enableServiceLinks": false},
            }),
        );
        api.put("pods", pod);
    }
    // Nobody rounds up: the kernel counts whole pages.
    let share = request * amount_of("SwapTotal")? / amount_of("MemTotal")?;
    let page = 4096;
    ensure!(share > 16 * page, "{share} bytes are too few to tell");
    for (kind, _, _, class) in &rows {
        let seen = wait_running(&mut node, kind)?;
        let group = look::pod_cgroup(&node, class, &seen);
        let group = format!("{group}/{}", seen.container("main")?.id());
        let value: u64 = cgroups::value(&group, "memory.swap.max")?.parse()?;
        let expected = if *kind == "burst" { share } else { 0 };
        ensure!(
            value.abs_diff(expected) <= page && (value > 0) == (expected > 0),
            "{kind} may swap {value} bytes, not {expected}"
        );
    }
    Ok(Outcome::Passed)
}

/// Only where nobody else lives.
fn a_machine_without_memory_says_whom_it_cost(context: &mut Context<'_>) -> Result<Outcome> {
    if fs::read_to_string("/proc/sys/kernel/hostname")?.trim() != "guest" {
        return Ok(Outcome::Skipped("only a virtual machine may run out of memory".to_owned()));
    }
    let mut node = context.node()?;
    node.put_pod(&pod("well", &[sleeper("main")]))?;
    let before = wait_running(&mut node, "well")?;
    let greedy = with(
        pod("greedy", &[script("main", "exec tail /dev/zero")]),
        json!({"spec": {"restartPolicy": "Never"}}),
    );
    node.put_pod(&greedy)?;
    node.wait("a word about it", LATER, |node| {
        let told = "System OOM encountered, victim process: tail, pid: ";
        Ok(node.log_text().contains(told).then_some(()))
    })?;
    let over = wait_phase(&mut node, "greedy", "Failed")?;
    ensure!(over.container("main")?.exit_code() == Some(137), "{}", over.0["status"]);
    let after = wait_running(&mut node, "well")?;
    ensure!(
        after.container("main")?.id() == before.container("main")?.id(),
        "its neighbour was touched"
    );
    Ok(Outcome::Passed)
}

/// Static pods are critical, and critical pods do not swap.
fn a_static_pod_does_not_swap_although_its_class_may(context: &mut Context<'_>) -> Result<Outcome> {
    if let Some(outcome) = without_swap()? {
        return Ok(outcome);
    }
    let mut options = context.node_options();
    options.configuration =
        json!({"failSwapOn": false, "memorySwap": {"swapBehavior": "LimitedSwap"}});
    let mut node = context.node_with(options)?;
    let (request, limit) = (json!({"memory": "32Mi"}), json!({"memory": "64Mi"}));
    node.put_pod(&limited("burst", request, limit))?;
    let seen = wait_running(&mut node, "burst")?;
    let group = look::pod_cgroup(&node, "burstable/", &seen);
    let group = format!("{group}/{}", seen.container("main")?.id());
    for (file, expected) in [("memory.swap.max", "0"), ("memory.max", "67108864")] {
        let value = cgroups::value(&group, file)?;
        ensure!(value == expected, "{file} is {value}, not {expected}");
    }
    Ok(Outcome::Passed)
}

fn quality_of_service_chooses_the_cgroup(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("best", &[sleeper("main")]))?;
    node.put_pod(&limited("burst", json!({"cpu": "100m"}), json!({})))?;
    node.put_pod(&limited(
        "sure",
        json!({"cpu": "50m", "memory": "20Mi"}),
        json!({"cpu": "50m", "memory": "20Mi"}),
    ))?;
    for (name, class, word) in [
        ("best", "besteffort/", "BestEffort"),
        ("burst", "burstable/", "Burstable"),
        ("sure", "", "Guaranteed"),
    ] {
        let seen = wait_running(&mut node, name)?;
        ensure!(seen.0["status"]["qosClass"] == word, "{name} is {}", seen.0["status"]["qosClass"]);
        let inside = cgroups::processes(&look::pod_cgroup(&node, class, &seen))?;
        ensure!(
            inside.len() >= 2,
            "sandbox and container of {name} are not in its cgroup: {inside:?}"
        );
    }
    let (file, least) = match cgroups::is_v2() {
        true => ("cpu.weight", "1"),
        false => ("cpu.shares", "2"),
    };
    let besteffort = format!("{}/kubepods/besteffort", node.cgroup_root());
    let value = cgroups::value(&besteffort, file)?;
    ensure!(value == least, "{file} of the best effort class is {value}");
    Ok(Outcome::Passed)
}

fn a_host_network_pod_has_the_nodes_address(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    let told = json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
    let container = with(
        script("main", "ip address; echo told $POD_IP; exec sleep 100000"),
        json!({"env": [told]}),
    );
    let changed = with(pod("host", &[container]), json!({"spec": {"hostNetwork": true}}));
    node.put_pod(&changed)?;
    let seen = wait_running(&mut node, "host")?;
    let ip = context.bench.node_ip();
    let told = format!("told {ip}");
    node.wait("the node's address in the output", SOON, |node| {
        let lines = look::log_lines(node, &seen, "main", 0)?;
        let has_link = lines.iter().any(|line| line.contains(&format!("inet {ip}/")));
        Ok((has_link && lines.contains(&told)).then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn logs_and_links_are_where_upstream_puts_them(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod(
        "talks",
        &[script("main", "echo to stdout; echo to stderr >&2; exec sleep 100000")],
    ))?;
    let seen = wait_running(&mut node, "talks")?;
    let file = look::log_directory(&node, &seen).join("main/0.log");
    node.wait("both lines", SOON, |_| {
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        Ok((text.contains(" stdout F to stdout\n") && text.contains(" stderr F to stderr\n"))
            .then_some(()))
    })?;
    let id = seen.container("main")?.id().to_owned();
    let expected = format!("{}_default_main-{id}.log", seen.name());
    node.wait("the link", SOON, |node| {
        Ok((look::links(node, &seen) == [expected.clone()]).then_some(()))
    })?;
    let target = look::link_target(&expected)?;
    ensure!(target == file, "the link leads to {}", target.display());
    Ok(Outcome::Passed)
}

fn the_runtime_sees_upstreams_labels_and_annotations(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    let changed =
        with(pod("labelled", &[sleeper("main")]), json!({"metadata": {"labels": {"app": "lab"}}}));
    node.put_pod(&changed)?;
    let seen: PodView = wait_running(&mut node, "labelled")?;
    check_labels(&node, context, &seen)?;
    Ok(Outcome::Passed)
}

fn check_labels(node: &Node, context: &mut Context<'_>, seen: &PodView) -> Result<()> {
    for kind in ["sandbox", "container"] {
        let found = context.containerd()?.containers()?;
        let one = found.iter().find(|it| it.kind == kind).with_context(|| format!("no {kind}"))?;
        let text = context.containerd()?.ctr(&["containers", "info", &one.id])?;
        let info: Value = serde_json::from_str(&text)?;
        let labels = &info["Labels"];
        ensure!(labels["io.kubernetes.pod.name"] == node.pod_name("labelled"), "{kind}: {labels}");
        ensure!(labels["io.kubernetes.pod.namespace"] == "default", "{kind}: {labels}");
        ensure!(labels["io.kubernetes.pod.uid"] == seen.uid(), "{kind}: {labels}");
        match kind {
            "sandbox" => ensure!(labels["app"] == "lab", "{kind}: {labels}"),
            _ => ensure!(labels["io.kubernetes.container.name"] == "main", "{kind}: {labels}"),
        }
    }
    Ok(())
}

fn the_termination_message_is_reported(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    let changed = with(
        pod("last-words", &[script("main", "echo -n because > /dev/termination-log; exit 1")]),
        json!({"spec": {"restartPolicy": "Never"}}),
    );
    node.put_pod(&changed)?;
    let seen = wait_phase(&mut node, "last-words", "Failed")?;
    let said = seen.container("main")?.0["state"]["terminated"]["message"].clone();
    ensure!(said == "because", "the message is {said}");
    Ok(Outcome::Passed)
}

//! A node that is its own container runtime: one process, no containerd.
//!
//! Every pod here runs the demonstration image, which comes out of the agent itself.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::process::call;
use ferrolet_lab::{Node, cgroups, http, wait_until};
use serde_json::{Value, json};

use super::{SOON, cases, wait_phase, wait_running};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_node_that_names_no_runtime_is_its_own,
    containers_of_an_embedded_runtime_outlive_the_agent,
    volumes_and_bounds_hold_on_the_embedded_runtime,
    one_pod_runs_in_the_foreground,
];

const IMAGE: &str = "ferrolet.dev/demo:1";

fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": IMAGE, "command": ["sh", "-c", script] }],
        },
    })
}

/// Upstream's kubelet has no runtime of its own.
fn not_upstreams() -> Outcome {
    Outcome::Skipped("upstream's kubelet has no runtime of its own".to_owned())
}

/// A healthy agent that is its own runtime.
fn start(context: &mut Context<'_>, configuration: Value) -> Result<Node> {
    let mut node = context.prepare_embedded(configuration)?;
    node.launch()?;
    node.wait_healthy()?;
    Ok(node)
}

/// What a pod's container has written, without times and streams.
fn log(node: &Node, pod: &str) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(node.pod_logs())?.flatten() {
        let is_its = entry.file_name().to_string_lossy().contains(&format!("_{pod}-"));
        let file = entry.path().join("main/0.log");
        if is_its && file.exists() {
            text.push_str(&fs::read_to_string(file)?);
        }
    }
    let lines = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

fn a_node_that_names_no_runtime_is_its_own(context: &mut Context<'_>) -> Result<Outcome> {
    if context.is_upstream() {
        return Ok(not_upstreams());
    }
    // Null takes the bench's own endpoint away.
    let mut node = start(context, json!({ "containerRuntimeEndpoint": null }))?;
    node.put_pod(&pod("work", "echo hello; exit 0"))?;
    let mut web = pod("web", "exec httpd -p 8080");
    web["spec"]["containers"][0]["ports"] =
        json!([{ "containerPort": 8080, "hostPort": http::free_port()? }]);
    node.put_pod(&web)?;
    let seen = wait_running(&mut node, "web")?;
    let id = seen.0["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
    ensure!(id.starts_with("ferrolet://"), "its container is {id}");
    let address = seen.ip().context("it has no address")?;
    let page =
        node.wait("its page", SOON, |_| Ok(http::get(&format!("{address}:8080"), "/").ok()))?;
    ensure!(page.body == "It works.\n", "its page is {page:?}");
    let port = web["spec"]["containers"][0]["ports"][0]["hostPort"].clone();
    let page = http::get(&format!("{}:{port}", context.bench.node_ip()), "/")?;
    ensure!(page.body == "It works.\n", "by the host port its page is {page:?}");
    ensure!(node.log_text().contains("The container runtime is the embedded one"));
    node.put_pod(&{
        let mut once = pod("once", "echo done; exit 3");
        once["spec"]["restartPolicy"] = json!("Never");
        once
    })?;
    let ended = wait_phase(&mut node, "once", "Failed")?;
    let code = &ended.0["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
    ensure!(*code == 3, "it ended with {code}");
    ensure!(log(&node, "once")? == "done\n", "its log is {:?}", log(&node, "once")?);
    node.remove_manifest("web.yaml")?;
    node.wait("its page to go", SOON, |_| {
        Ok(http::get(&format!("{address}:8080"), "/").is_err().then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn containers_of_an_embedded_runtime_outlive_the_agent(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    if context.is_upstream() {
        return Ok(not_upstreams());
    }
    let mut node = start(context, json!({}))?;
    node.put_pod(&pod("ticks", "while true; do date; sleep 0.1; done"))?;
    let mut ends = pod("ends", "sleep 2; exit 5");
    ends["spec"]["restartPolicy"] = json!("Never");
    node.put_pod(&ends)?;
    let before = wait_running(&mut node, "ticks")?;
    wait_running(&mut node, "ends")?;
    node.kill()?;
    let said = log(&node, "ticks")?.len();
    // Nobody is there to read, and it goes on writing; the other one ends, and nobody sees it.
    wait_until("lines without an agent", SOON, || {
        Ok((log(&node, "ticks")?.len() > said + 200).then_some(()))
    })?;
    wait_until("the other one's end", SOON, || {
        let left = node.n_processes_named("sh")?;
        Ok((left == 1).then_some(()))
    })?;
    node.launch()?;
    node.wait_healthy()?;
    let after = wait_running(&mut node, "ticks")?;
    let ids =
        [&before, &after].map(|it| it.0["status"]["containerStatuses"][0]["containerID"].clone());
    ensure!(ids[0] == ids[1], "it is another container: {ids:?}");
    let ended = wait_phase(&mut node, "ends", "Failed")?;
    let code = &ended.0["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
    ensure!(*code == 5, "what ended meanwhile is known as {code}");
    Ok(Outcome::Passed)
}

fn volumes_and_bounds_hold_on_the_embedded_runtime(context: &mut Context<'_>) -> Result<Outcome> {
    if context.is_upstream() {
        return Ok(not_upstreams());
    }
    let mut node = start(context, json!({}))?;
    let mut pod =
        pod("bound", "cat /inside/file; echo to > /own/deep; cat /all/sub/deep; exec burn");
    let spec = &mut pod["spec"];
    let directory = node.directory().join("given");
    fs::create_dir_all(directory.join("sub"))?;
    fs::write(directory.join("sub/file"), "given\n")?;
    spec["volumes"] = json!([
        { "name": "given", "hostPath": { "path": directory } },
        { "name": "own", "emptyDir": {} },
    ]);
    spec["containers"][0]["volumeMounts"] = json!([
        { "name": "given", "mountPath": "/inside", "subPath": "sub", "readOnly": true },
        { "name": "own", "mountPath": "/own", "subPath": "sub" },
        { "name": "own", "mountPath": "/all" },
    ]);
    let bounds = json!({ "cpu": "100m", "memory": "32Mi" });
    spec["containers"][0]["resources"] = json!({ "limits": bounds, "requests": bounds });
    node.put_pod(&pod)?;
    let seen = wait_running(&mut node, "bound")?;
    node.wait("its words", SOON, |node| Ok((log(node, "bound")? == "given\nto\n").then_some(())))?;
    let id = seen.0["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
    let id = id.trim_start_matches("ferrolet://");
    let group = format!("{}/kubepods/pod{}/{id}", node.cgroup_root(), seen.uid());
    let (file, expected) = match cgroups::is_v2() {
        true => ("memory.max", "33554432"),
        false => ("memory.limit_in_bytes", "33554432"),
    };
    let found = cgroups::value(&group, file)?;
    ensure!(found == expected, "{file} of its group is {found}");
    Ok(Outcome::Passed)
}

fn one_pod_runs_in_the_foreground(context: &mut Context<'_>) -> Result<Outcome> {
    if context.is_upstream() {
        return Ok(not_upstreams());
    }
    let place = context.bench.directory("foreground")?;
    let file = |name: &str, pod: &Value| -> Result<String> {
        let path = place.join(name);
        fs::write(&path, pod.to_string())?;
        Ok(path.display().to_string())
    };
    let mut fails = pod("fails", "echo out; echo err >&2; exit 7");
    fails["spec"]["restartPolicy"] = json!("Never");
    let run = |manifest: String| {
        let mut command = Command::new(&context.options.agent);
        command.args(["run", &manifest]).stdin(Stdio::null());
        command
    };
    let done = run(file("fails.yaml", &fails)?).output()?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(done.status.code() == Some(7), "it ended with {}: {errors}", done.status);
    ensure!(said == "out\n" && errors.contains("err\n"), "it said {said:?} and {errors:?}");

    let mut holds = pod("holds", "trap 'echo bye; exit 0' TERM; echo up; sleep 1000");
    holds["spec"]["terminationGracePeriodSeconds"] = json!(30);
    let out = place.join("out");
    let mut child = run(file("holds.yaml", &holds)?).stdout(fs::File::create(&out)?).spawn()?;
    let seen =
        wait_until("it to be up", SOON, || Ok((fs::read_to_string(&out)? == "up\n").then_some(())));
    call("kill", &["-INT", &child.id().to_string()])?;
    let began = Instant::now();
    child.wait()?;
    seen?;
    ensure!(fs::read_to_string(&out)? == "up\nbye\n", "it said {:?}", fs::read_to_string(&out)?);
    ensure!(began.elapsed() < Duration::from_secs(25), "it used up its grace");

    let mut broken = pod("broken", "true");
    broken["spec"]["containers"][0]["imagee"] = json!("a");
    let done = run(file("broken.yaml", &broken)?).output()?;
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(!done.status.success() && errors.contains("imagee"), "it said {errors:?}");

    let left: Vec<String> = [std::env::temp_dir(), "/run".into(), "/sys/fs/cgroup/memory".into()]
        .iter()
        .flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("ferrolet-run-"))
        .collect();
    ensure!(left.is_empty(), "it left {left:?}");
    Ok(Outcome::Passed)
}

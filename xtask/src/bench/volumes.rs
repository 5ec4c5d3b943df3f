//! `cargo xtask bench volumes`: how fast volumes are ready, and what they cost at rest.
//!
//! * `fsGroup` on many files, against a program that does what upstream does (`tests/upstream-walk`), in turn, on one tree: with
//!   everything to change, on a disk that nobody has read and on one that is in memory, and with nothing to change.
//! * Pods with five config maps, five secrets and a token, all of them known to the node: the agent's own part of making them,
//!   as its log tells it (`"Volumes are ready" gathered=… made=…`); gathering is the API server's part.
//! * The agent's share of a core with all those pods and nothing happening.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ArgMatches;
use ferrolet_lab::cluster::{Access, Api};
use ferrolet_lab::image::BUSYBOX;
use ferrolet_lab::parts::{self, ControlPlane};
use ferrolet_lab::process::output;
use ferrolet_lab::{
    Bench, Cluster, ClusterNode, ClusterOptions, Containerd, Network, NodeOptions, Toolbox,
    isolation,
};
use serde_json::{Value, json};

use super::cost::Cost;
use super::figures::Figures;
use super::trace;
use crate::span::brief;
use crate::{build, given};

const DEFAULT: &str = "/api/v1/namespaces/default";
const GROUP: &str = "4242";
const N_OBJECTS: usize = 5;
/// A volume's place below a kubelet's directory. Whoever walks by path goes all this way for each
/// call.
const VOLUME: &str = "pods/4c0f2c4e-61a5-4d6c-9a0e-2f6f1f1b7a10/volumes/kubernetes.io~csi/pvc-8d2f7c3a-5b1e-4f0a-b6f3-0c9e6a7d5e21/mount";
const FILES_PER_DIRECTORY: usize = 250;
const PATIENCE: Duration = Duration::from_secs(300);

struct Plan {
    agent: PathBuf,
    ours: PathBuf,
    theirs: PathBuf,
    n_files: usize,
    n_rounds: usize,
    n_pods: usize,
    quiet: Duration,
}

pub(crate) fn command(args: &ArgMatches) -> Result<u8> {
    let plan = Plan {
        agent: build::agent(args)?,
        ours: build::example("ferrolet-mounts", "set_ownership", args)?,
        theirs: parts::upstream_walk().required()?,
        n_files: given(args, "files"),
        n_rounds: given(args, "rounds"),
        n_pods: given(args, "pods"),
        quiet: given(args, "quiet"),
    };
    let (tools, binaries) = (parts::toolbox().required()?, parts::control_plane().required()?);
    isolation::run(Network::Private, |bench| {
        walks(&bench.directory("walk")?, &plan)?;
        if plan.n_pods > 0 {
            pods(bench, &tools, &binaries, &plan)?;
        }
        Ok(0)
    })
}

/// Times both walks in turn.
fn walks(directory: &Path, plan: &Plan) -> Result<()> {
    let tree = directory.join(VOLUME);
    let n_directories = plan.n_files.div_ceil(FILES_PER_DIRECTORY);
    for n in 0..n_directories {
        // A few levels, as programs make them.
        let deep = tree.join(format!("a{}/b{}/c{n}", n % 7, n % 31));
        fs::create_dir_all(&deep)?;
        let left = plan.n_files - n * FILES_PER_DIRECTORY;
        for file in 0..left.min(FILES_PER_DIRECTORY) {
            fs::write(deep.join(format!("file-{file}")), "x")?;
        }
    }
    let time = |program: &Path| -> Result<f64> {
        let said = output(Command::new(program).arg(GROUP).arg(&tree))?;
        said.trim().parse().with_context(|| format!("{} said {said:?}", program.display()))
    };
    // As root made them.
    let reset = || -> Result<()> {
        output(Command::new("chown").args(["-R", "0:0"]).arg(&tree))?;
        output(Command::new("chmod").args(["-R", "u=rwX,go=rX,g-s"]).arg(&tree))?;
        rustix::fs::sync();
        Ok(())
    };
    let mut found: [[Vec<f64>; 2]; 3] = Default::default();
    for round in 0..plan.n_rounds {
        let mut contenders = [(&plan.theirs, 0), (&plan.ours, 1)];
        if round % 2 == 1 {
            contenders.reverse();
        }
        for (program, at) in contenders {
            reset()?;
            // A volume that was just mounted is on its disk only.
            fs::write("/proc/sys/vm/drop_caches", "3").context("forget what was read")?;
            found[0][at].push(time(program)?);
            reset()?;
            found[1][at].push(time(program)?);
            found[2][at].push(time(program)?);
        }
    }
    println!("fsGroup on {} files       upstream's walk        ours", plan.n_files);
    let what =
        ["everything to change, unread", "everything to change, read", "nothing to change, read"];
    for (what, times) in what.into_iter().zip(found) {
        let [theirs, ours] = times.map(|values| Figures::of(values).median);
        println!(
            "  {what:<28} {theirs:8.1} ms {ours:8.1} ms   {:5.1} times as fast (goal: 5)",
            theirs / ours
        );
    }
    fs::remove_dir_all(&tree)?;
    Ok(())
}

fn pods(bench: &Bench, tools: &Toolbox, binaries: &ControlPlane, plan: &Plan) -> Result<()> {
    let cluster = Cluster::start(bench, binaries, &ClusterOptions::default())?;
    cluster.wait("the namespace's authority", PATIENCE, |it| {
        it.find(&format!("{DEFAULT}/configmaps/kube-root-ca.crt"))
    })?;
    let api = Api::new(&cluster.proxy_address())?;
    for n in 0..N_OBJECTS {
        for (kind, collection, field) in
            [("ConfigMap", "configmaps", "data"), ("Secret", "secrets", "stringData")]
        {
            let content: serde_json::Map<String, Value> =
                (0..4).map(|key| (format!("key-{key}"), json!("value ".repeat(50)))).collect();
            let object = json!({
                "apiVersion": "v1", "kind": kind,
                "metadata": {"name": format!("object-{n}")}, field: content,
            });
            api.create(&format!("{DEFAULT}/{collection}"), &object)?;
        }
    }
    let containerd = Containerd::start(bench, tools, "containerd")?;
    let mut options = NodeOptions::new("bench", &plan.agent);
    options.configuration = json!({"maxPods": plan.n_pods + 10});
    let mut joined =
        ClusterNode::prepare(bench, &containerd, &cluster, options, &Access::Certificate)?;
    joined.node.launch()?;
    joined.wait_ready(&cluster)?;
    for n in 0..plan.n_pods {
        let name = format!("pod-{n}");
        api.create(&format!("{DEFAULT}/pods"), &pod(&name))?;
        let path = format!("{DEFAULT}/pods/{name}");
        joined.node.wait(&format!("{name} to be Ready"), PATIENCE, |_| {
            let pod = ferrolet_lab::PodView(cluster.get(&path)?);
            Ok((pod.condition("Ready") == Some("True")).then_some(()))
        })?;
    }
    let (gathered, made): (Vec<f64>, Vec<f64>) = joined
        .node
        .log_text()
        .lines()
        .filter(|line| line.contains("\"Volumes are ready\"") && line.contains("pod-"))
        // The first pod is the one that makes the objects known.
        .skip(1)
        .filter_map(|line| Some((spent(line, "gathered")?, spent(line, "made")?)))
        .unzip();
    ensure!(!made.is_empty(), "the agent's log tells nothing of volumes");
    println!(
        "\n{:<40} {:>10} {:>10} {:>10} {:>10}",
        format!("{} pods: 5 maps, 5 secrets, a token", plan.n_pods),
        "median",
        "p90",
        "p99",
        "last"
    );
    println!("{:<40} {}", "  asking the API server (the token)", Figures::of(gathered));
    println!("{:<40} {}   (goal: under 30 ms)", "  ours", Figures::of(made));
    Cost::settled(joined.node.pid()?)?;
    let share = Cost::cpu_share(joined.node.pid()?, plan.quiet, || bench.is_interrupted())?;
    println!(
        "CPU of {} such pods over a quiet {}: {:.2} % of a core",
        plan.n_pods,
        brief(plan.quiet),
        share * 100.0
    );
    containerd.destroy()?;
    joined.node.destroy()?;
    cluster.stop()
}

/// A span of time in milliseconds, from a line of the log.
fn spent(line: &str, key: &str) -> Option<f64> {
    let text = line.split(&format!("{key}=")).nth(1)?;
    let text = text.trim_start_matches('"').split(['"', ' ']).next()?;
    Some(trace::parse_duration(text)? * 1e3)
}

fn pod(name: &str) -> Value {
    let mut volumes = Vec::new();
    for n in 0..N_OBJECTS {
        let object = format!("object-{n}");
        volumes.push(json!({"name": format!("map-{n}"), "configMap": {"name": object}}));
        volumes.push(json!({"name": format!("secret-{n}"), "secret": {"secretName": object}}));
    }
    let mounts: Vec<Value> = volumes
        .iter()
        .map(|it| json!({"name": it["name"], "mountPath": format!("/v/{}", it["name"].as_str().unwrap_or_default())}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": "bench",
            "terminationGracePeriodSeconds": 1,
            "volumes": volumes,
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "100000"],
                "volumeMounts": mounts,
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_from_the_log() {
        let line =
            r#"I1 "Volumes are ready" pod="default/pod-1" gathered="1.5ms" made="640µs" n=11"#;
        assert_eq!(spent(line, "gathered"), Some(1.5));
        assert_eq!(spent(line, "made").map(f64::round), Some(1.0));
        assert_eq!(spent(line, "other"), None);
    }
}

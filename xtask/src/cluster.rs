//! `cargo xtask cluster`: a control plane with one Ferrolet node for a person, in the background.
//!
//! ```text
//! up ── starts ──► serve (hidden, in a session of its own) ── isolation::run ── control plane, containerd, node
//!  │ waits for target/cluster/ready                             writes target/cluster/{kubeconfig,ready}
//! down ── SIGTERM ──► serve, waits for its end, removes target/cluster, counts what is left
//! ```
//!
//! The run has a network of its own with an uplink, so the API server, pods and host ports can be
//! reached from this machine with any kubectl. One cluster per checkout.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Arg, ArgMatches};
use ferrolet_lab::cluster::Access;
use ferrolet_lab::isolation::RunId;
use ferrolet_lab::node::Ports;
use ferrolet_lab::parts::{self, ControlPlane};
use ferrolet_lab::{
    Bench, Cluster, ClusterNode, ClusterOptions, Containerd, Network, NodeOptions, Toolbox, census,
    isolation, wait_until,
};
use serde_json::{Value, json};

use crate::build;

/// The node's name; also what `kubectl get nodes` shows.
const NODE: &str = "lab";
const API_PORT: u16 = 6443;
const START: Duration = Duration::from_secs(120);

/// The subcommands of `cluster`.
pub(crate) fn command(fast: Arg, agent: Arg) -> clap::Command {
    clap::Command::new("cluster")
        .about("A real control plane with a Ferrolet node, in the background, for kubectl")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            clap::Command::new("up").about("Start it and say how to use it").arg(fast).arg(agent),
        )
        .subcommand(clap::Command::new("down").about("End it; nothing is left"))
        .subcommand(clap::Command::new("status").about("Show its nodes and pods"))
        .subcommand(
            clap::Command::new("kubectl")
                .about(
                    "Run the cluster's kubectl, such as: cargo xtask cluster kubectl get pods -A",
                )
                .arg(
                    Arg::new("args").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true),
                ),
        )
        .subcommand(
            clap::Command::new("serve")
                .hide(true)
                .arg(crate::option("agent", "PATH", "The node's agent").required(true)),
        )
}

pub(crate) fn dispatch(args: &ArgMatches) -> Result<u8> {
    match args.subcommand() {
        Some(("up", args)) => up(args),
        Some(("down", _)) => down(),
        Some(("status", _)) => status(),
        Some(("kubectl", args)) => {
            let words: Vec<&String> = args.get_many("args").into_iter().flatten().collect();
            let status = kubectl()?.args(words).status().context("start kubectl")?;
            Ok(u8::from(!status.success()))
        }
        Some(("serve", args)) => serve(args),
        _ => bail!("no such command"),
    }
}

/// Files of the cluster that outlive the command, below `target/cluster`.
struct Place(PathBuf);

impl Place {
    fn find() -> Place {
        Place(build::root().join("target/cluster"))
    }

    fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Written when everything runs: `{"run": …, "block": …, "kubectl": …, "logs": …}`.
    fn ready(&self) -> PathBuf {
        self.0.join("ready")
    }

    fn facts(&self) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.ready()).ok()?).ok()
    }

    fn pid_file(&self) -> PathBuf {
        self.0.join("pid")
    }

    /// The serving process, if it is still ours.
    fn pid(&self) -> Option<u32> {
        let pid: u32 = fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains("cluster serve").then_some(pid)
    }
}

fn up(args: &ArgMatches) -> Result<u8> {
    let place = Place::find();
    if place.pid().is_some() {
        println!("it is up already");
        return explain(&place);
    }
    let agent = build::agent(args)?;
    parts::toolbox().required()?;
    parts::control_plane().required()?;
    if place.0.exists() {
        fs::remove_dir_all(&place.0)?;
    }
    fs::create_dir_all(&place.0)?;
    let log = File::create(place.log())?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["cluster", "serve", "--agent"])
        .arg(&agent)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Neither Ctrl-C nor the terminal's end may reach it.
        .process_group(0)
        .spawn()
        .context("start the cluster's process")?;
    fs::write(place.pid_file(), child.id().to_string())?;
    let began = wait_until("the cluster to be ready", START, || {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(Err(status)));
        }
        Ok(place.facts().map(Ok))
    });
    match began {
        Ok(Ok(_)) => explain(&place),
        Ok(Err(status)) => {
            let said = ferrolet_lab::process::tail(&place.log(), 30);
            bail!("the cluster's process ended with {status}\n{said}")
        }
        Err(error) => {
            down()?;
            Err(error)
        }
    }
}

fn explain(place: &Place) -> Result<u8> {
    let facts = place.facts().context("the cluster is not ready yet")?;
    let text = |key: &str| facts[key].as_str().unwrap_or_default().to_owned();
    println!("API server   {}", text("server"));
    println!("node         {NODE} ({})", text("node"));
    println!("logs         {}", text("logs"));
    println!("kubectl      {}", text("kubectl"));
    println!();
    println!("  export KUBECONFIG={}", place.kubeconfig().display());
    println!("  kubectl get nodes -o wide");
    println!();
    println!("or, without a kubectl of your own: cargo xtask cluster kubectl get nodes -o wide");
    println!(
        "images that are there: {} (no registry can be reached)",
        ferrolet_lab::image::BUSYBOX
    );
    println!("cargo xtask cluster down ends it");
    Ok(0)
}

fn down() -> Result<u8> {
    let place = Place::find();
    let run = place.facts().and_then(|facts| {
        Some(RunId {
            id: facts["run"].as_str()?.to_owned(),
            block: u8::try_from(facts["block"].as_u64()?).ok()?,
            network: Network::Uplink,
        })
    });
    match place.pid() {
        Some(pid) => {
            ferrolet_lab::process::call("kill", &["-TERM", &pid.to_string()])?;
            wait_until("the cluster to end", Duration::from_secs(60), || {
                Ok(place.pid().is_none().then_some(()))
            })?;
        }
        None => println!("it is not up"),
    }
    if place.0.exists() {
        fs::remove_dir_all(&place.0)?;
    }
    if let Some(run) = run {
        let left = census::leftovers(&run, None)?;
        ensure!(left.is_empty(), "left behind:\n  {}", left.join("\n  "));
    }
    Ok(0)
}

fn status() -> Result<u8> {
    let place = Place::find();
    if place.pid().is_none() {
        println!("it is not up: cargo xtask cluster up");
        return Ok(1);
    }
    for what in ["nodes", "pods"] {
        let shown = kubectl()?
            .args(["get", what, "--all-namespaces", "--output=wide"])
            .status()
            .context("start kubectl")?;
        if !shown.success() {
            return Ok(1);
        }
    }
    Ok(0)
}

/// The kubectl of the cluster's version, pointed at it.
fn kubectl() -> Result<Command> {
    let place = Place::find();
    let facts = place.facts().context("the cluster is not up: cargo xtask cluster up")?;
    let program = facts["kubectl"].as_str().context("the ready file names no kubectl")?;
    let mut command = Command::new(program);
    command.env("KUBECONFIG", place.kubeconfig());
    Ok(command)
}

fn serve(args: &ArgMatches) -> Result<u8> {
    let agent = PathBuf::from(args.get_one::<String>("agent").context("--agent is required")?);
    let tools = parts::toolbox().required()?;
    let binaries = parts::control_plane().required()?;
    isolation::run(Network::Uplink, |bench| hold(bench, &tools, &binaries, &agent))
}

/// Runs the cluster until somebody ends it.
fn hold(bench: &Bench, tools: &Toolbox, binaries: &ControlPlane, agent: &Path) -> Result<u8> {
    let place = Place::find();
    let options = ClusterOptions { api_port: Some(API_PORT), ..ClusterOptions::default() };
    let mut cluster = Cluster::start(bench, binaries, &options)?;
    let containerd = Containerd::start(bench, tools, "containerd")?;
    let mut options = NodeOptions::new(NODE, agent);
    options.ports = Ports::Usual;
    options.verbosity = 2;
    let access = Access::Certificate;
    let mut joined = ClusterNode::prepare(bench, &containerd, &cluster, options, &access)?;
    joined.node.launch()?;
    joined.wait_ready(&cluster)?;
    write_whole(&place.kubeconfig(), &cluster.outside_kubeconfig()?)?;
    write_whole(
        &place.ready(),
        &json!({
            "run": bench.run_id().id,
            "block": bench.run_id().block,
            "server": format!("https://{}:{API_PORT}", bench.node_ip()),
            "node": bench.node_ip(),
            "logs": bench.run_id().directory(),
            "kubectl": cluster.kubectl_program(),
        }),
    )?;
    while !bench.is_interrupted() {
        // A person may want to see why: the log says it, and the rest stays up.
        if let Err(error) = joined.node.expect_running() {
            println!("{error:#}\nstarting the node again");
            joined.node.relaunch()?;
        }
        cluster.expect_running()?;
        thread::sleep(Duration::from_millis(200));
    }
    Ok(0)
}

/// Written beside and renamed, readable for the owner only: it may hold a key.
fn write_whole(path: &Path, value: &Value) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let draft = path.with_extension("draft");
    let mut file =
        File::options().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(value.to_string().as_bytes())?;
    fs::rename(&draft, path)?;
    Ok(())
}

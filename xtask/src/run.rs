//! `cargo xtask run`: a node that is its own runtime, running `examples/pods`, as a live table.
//!
//! `--runtime containerd` puts it on a private containerd instead, which takes the examples' image out of the agent too.
//! The node lives in a network of its own with an uplink, so pods and host ports can be reached
//! from this machine at the addresses that the table shows. Each example names the state it should
//! reach in the annotation `examples.ferrolet.dev/expect`. Ctrl-C ends everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ArgMatches;
use ferrolet_lab::node::Ports;
use ferrolet_lab::process::output;
use ferrolet_lab::{Bench, Containerd, Network, Node, NodeOptions, PodView, isolation, parts};

use crate::build;
use crate::span::brief;

const EXPECT: &str = "examples.ferrolet.dev/expect";
const REFRESH: Duration = Duration::from_millis(250);

/// The examples' image, by the name that they use.
const DEMO: &str = "ferrolet.dev/demo:1";

/// Which runtime a node gets.
pub(crate) const RUNTIMES: [&str; 2] = ["embedded", "containerd"];

pub(crate) fn command(args: &ArgMatches) -> Result<u8> {
    let limit = args.get_one::<Duration>("for").copied();
    let wants_containerd = args.get_one::<String>("runtime").is_some_and(|it| it == "containerd");
    if isolation::is_outer() && wants_containerd {
        println!(
            "building the agent, then containerd and what it needs; a first time takes minutes, a second one seconds"
        );
    } else if isolation::is_outer() {
        println!("building the agent; a first time takes minutes, a second one seconds");
    }
    let agent = build::agent_to_look_at(args)?;
    if !wants_containerd {
        return isolation::run(Network::Uplink, |bench| {
            let node = Node::prepare_embedded(bench, options(&agent))?;
            show(bench, node, "the embedded runtime", limit)
        });
    }
    let tools = parts::toolbox().required()?;
    let ours = build::own_agent_to_look_at(args)?;
    isolation::run(Network::Uplink, |bench| {
        let containerd = Containerd::start(bench, &tools, "containerd")?;
        import_demonstration(&containerd, &ours)?;
        let node = Node::prepare(bench, &containerd, options(&agent))?;
        show(bench, node, &format!("containerd {}", tools.containerd.version), limit)
    })
}

fn options(agent: &Path) -> NodeOptions {
    let mut options = NodeOptions::new("lab", agent);
    options.ports = Ports::Usual;
    options
}

/// Takes the examples' image out of the agent.
fn import_demonstration(containerd: &Containerd, agent: &Path) -> Result<()> {
    let archive = containerd.directory().join("demo.tar.gz");
    output(Command::new(agent).args(["runtime", "demo"]).arg(&archive))?;
    containerd.import_archive(&archive, DEMO)
}

fn show(bench: &Bench, mut node: Node, runtime: &str, limit: Option<Duration>) -> Result<u8> {
    let n_examples = put_examples(&node)?;
    let began = Instant::now();
    node.launch()?;
    node.wait_healthy()?;
    println!("{runtime}, {n_examples} manifests from examples/pods");
    println!(
        "pods as JSON: http://{}/pods   node address: {}   Ctrl-C ends",
        node.read_only_address(),
        bench.node_ip()
    );
    println!(
        "try next, from another terminal: curl http://{}:8088/; curl http://{}/pods; then `cargo xtask cluster up`, \
         a whole cluster for kubectl",
        bench.node_ip(),
        node.read_only_address()
    );

    let mut table = Table::new();
    let mut reached = BTreeSet::new();
    while !bench.is_interrupted() {
        node.wait("the list of pods", Duration::from_secs(20), |node| Ok(Some(node.pods()?)))
            .and_then(|pods| {
                for pod in
                    pods.iter().filter(|pod| pod.annotation(EXPECT) == Some(pod.state().as_str()))
                {
                    reached.insert(pod.name().to_owned());
                }
                table.draw(&pods)
            })
            .with_context(|| {
                format!("read the node's pods\n{}", ferrolet_lab::process::tail(&node.log(), 20))
            })?;
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            let pods = node.pods()?;
            return Ok(judge(&pods, &reached, n_examples));
        }
        thread::sleep(REFRESH);
    }
    println!("\nstopping");
    Ok(0)
}

/// Copies the examples into the node's manifest directory and gives their number.
fn put_examples(node: &Node) -> Result<usize> {
    let dir = build::root().join("examples/pods");
    let mut count = 0;
    for entry in fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "yaml") {
            let name = path.file_name().context("a directory entry has a name")?.to_string_lossy();
            node.put_manifest(&name, &fs::read_to_string(&path)?)?;
            count += 1;
        }
    }
    ensure!(count > 0, "no examples in {}", dir.display());
    Ok(count)
}

/// Says of each pod whether it reached its state; the exit code says it of all.
fn judge(pods: &[PodView], reached: &BTreeSet<String>, n_examples: usize) -> u8 {
    println!();
    let mut is_fine = pods.len() == n_examples;
    if !is_fine {
        println!("{n_examples} examples but {} pods", pods.len());
    }
    for pod in pods {
        let expected = pod.annotation(EXPECT).unwrap_or("nothing: the annotation is missing");
        if reached.contains(pod.name()) {
            println!("{} reached {expected}", pod.name());
        } else {
            is_fine = false;
            println!("{} should have reached {expected} but is {}", pod.name(), pod.state());
        }
    }
    u8::from(!is_fine)
}

/// The table: redrawn in a terminal, and elsewhere printed line by line when something changed.
struct Table {
    is_terminal: bool,
    /// How many lines of the table the terminal shows, and the size it had then.
    n_drawn: usize,
    size: Option<(usize, usize)>,
    first_seen: BTreeMap<String, Instant>,
    printed: BTreeMap<String, String>,
}

impl Table {
    fn new() -> Table {
        Table {
            is_terminal: std::io::stdout().is_terminal(),
            n_drawn: 0,
            size: None,
            first_seen: BTreeMap::new(),
            printed: BTreeMap::new(),
        }
    }

    fn draw(&mut self, pods: &[PodView]) -> Result<()> {
        let mut pods: Vec<&PodView> = pods.iter().collect();
        pods.sort_by_key(|pod| pod.name().to_owned());
        let now = Instant::now();
        let head =
            format!("{:<32} {:<20} {:>8} {:>7}  {}", "NAME", "STATE", "RESTARTS", "AGE", "IP");
        let (mut lines, mut news) = (vec![head.clone()], Vec::new());
        for pod in pods {
            let first = *self.first_seen.entry(pod.uid().to_owned()).or_insert(now);
            let facts = format!("{:<32} {:<20} {:>8}", pod.name(), pod.state(), pod.restarts());
            let (age, ip) = (brief(now - first), pod.ip().unwrap_or("-"));
            let line = format!("{facts} {age:>7}  {ip}");
            let facts = format!("{facts} {ip}");
            if self.printed.get(pod.uid()) != Some(&facts) {
                self.printed.insert(pod.uid().to_owned(), facts);
                news.push(line.clone());
            }
            lines.push(line);
        }
        let mut out = std::io::stdout().lock();
        if self.is_terminal {
            self.redraw(&lines, &mut out)?;
        } else {
            if self.n_drawn == 0 {
                self.n_drawn = 1;
                writeln!(out, "{head}")?;
            }
            for line in news {
                writeln!(out, "{line}")?;
            }
        }
        out.flush()?;
        Ok(())
    }

    fn redraw(&mut self, lines: &[String], out: &mut impl Write) -> Result<()> {
        let size = terminal_size();
        if self.size.is_some_and(|was| was != size) {
            // A terminal of another width has broken the lines anew: nobody knows where the table
            // began.
            write!(out, "\x1b[H\x1b[2J")?;
        } else if self.n_drawn > 0 {
            // Back to the head of the table, and everything below it away.
            write!(out, "\x1b[{}A\r\x1b[J", self.n_drawn)?;
        }
        let lines = fitted(lines, size);
        for line in &lines {
            writeln!(out, "{line}")?;
        }
        (self.size, self.n_drawn) = (Some(size), lines.len());
        Ok(())
    }
}

/// Columns and rows; a terminal that does not tell is taken for a usual one.
fn terminal_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// As much of a table as a terminal can show without breaking lines or scrolling: what scrolled
/// away is never redrawn.
fn fitted(lines: &[String], (columns, rows): (usize, usize)) -> Vec<String> {
    let room = rows.saturating_sub(1).max(2);
    let mut fitted: Vec<String> = lines.to_vec();
    if lines.len() > room {
        fitted.truncate(room - 1);
        fitted.push(format!("and {} more", lines.len() - (room - 1)));
    }
    for line in &mut fitted {
        *line = line.chars().take(columns).collect();
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_cut_to_its_terminal() {
        let lines: Vec<String> =
            ["NAME  STATE", "a  Running", "b  Pending", "c  Running"].map(str::to_owned).into();
        let check = |size, expected: &[&str]| assert_eq!(fitted(&lines, size), expected);
        check((80, 24), &["NAME  STATE", "a  Running", "b  Pending", "c  Running"]);
        check((4, 24), &["NAME", "a  R", "b  P", "c  R"]);
        check((80, 4), &["NAME  STATE", "a  Running", "and 2 more"]);
        check((80, 1), &["NAME  STATE", "and 3 more"]);
    }
}

//! The kubelet's chains in the packet filter, on agents that have a network, and with it a filter,
//! of their own.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use ferrolet_lab::process::call;
use ferrolet_lab::wait::stays_true;
use ferrolet_lab::{Node, NodeOptions};
use serde_json::{Value, json};

use super::{GONE, SOON, cases, wait_running};
use crate::build::{pod, sleeper};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    the_chains_are_there_and_come_back_when_somebody_empties_the_packet_filter,
    a_node_without_iptables_runs_pods,
];

/// A network namespace of one test; it goes with the test.
struct Network(String);

impl Network {
    fn make(name: &str) -> Result<Network> {
        call("ip", &["netns", "add", name])?;
        let network = Network(name.to_owned());
        network.run(&["ip", "link", "set", "lo", "up"])?;
        Ok(network)
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let network = format!("--net={}", self.path());
        call("nsenter", &[&[network.as_str()][..], words].concat())
    }

    /// What is in the packet filter, with its table in front: chains that are not the kernel's own,
    /// and rules.
    fn shown(&self, program: &str) -> Result<Vec<String>> {
        let text = self.run(&[program])?;
        let (mut table, mut shown) = ("", Vec::new());
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name;
            } else if let Some((chain, _)) = line.split_once(" - [") {
                shown.push(format!("{table} {chain}"));
            } else if line.starts_with('-') {
                shown.push(format!("{table} {line}"));
            }
        }
        Ok(shown)
    }

    /// As a firewall's own reload does it.
    fn empty(&self) -> Result<()> {
        for program in ["iptables", "ip6tables"] {
            for table in ["mangle", "nat", "filter"] {
                self.run(&[program, "-t", table, "-F"])?;
                self.run(&[program, "-t", table, "-X"])?;
            }
        }
        Ok(())
    }

    /// Something that starts the agent in this network; mounts and processes stay the run's.
    fn agent(&self, options: &mut NodeOptions, directory: &Path) -> Result<()> {
        let real = directory.join("inside");
        fs::create_dir_all(&real)?;
        symlink(&options.agent, real.join("kubelet"))?;
        let script = format!(
            "#!/bin/sh\nexec nsenter --net={} {}/kubelet \"$@\"\n",
            self.path(),
            real.display()
        );
        let path = directory.join("enter");
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        options.agent = path;
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The run's end takes it along in any case.
        let _ = call("ip", &["netns", "delete", &self.0]);
    }
}

const FOREIGN: &str = "filter -A INPUT -s 192.0.2.7/32 -j ACCEPT";
const JUMP: &str = "filter -A INPUT -j KUBE-FIREWALL";
/// Upstream's chains and rules, as the program for saving them writes them.
const V4: [&str; 8] = [
    "filter -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" \
     -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
    "filter -A OUTPUT -j KUBE-FIREWALL",
    JUMP,
    "filter :KUBE-FIREWALL",
    "filter :KUBE-KUBELET-CANARY",
    "mangle :KUBE-IPTABLES-HINT",
    "mangle :KUBE-KUBELET-CANARY",
    "nat :KUBE-KUBELET-CANARY",
];
const V6: [&str; 4] = [
    "filter :KUBE-KUBELET-CANARY",
    "mangle :KUBE-IPTABLES-HINT",
    "mangle :KUBE-KUBELET-CANARY",
    "nat :KUBE-KUBELET-CANARY",
];

/// Fails unless both filters hold exactly what they should, nothing of it twice.
fn ensure_whole(network: &Network, foreign: &[&str]) -> Result<()> {
    let check = |program: &str, expected: &[&[&str]]| {
        let mut found = network.shown(program)?;
        found.sort();
        let mut expected = expected.concat();
        expected.sort_unstable();
        ensure!(found == expected, "{program} shows {found:#?}");
        Ok(())
    };
    check("iptables-save", &[&V4, foreign])?;
    check("ip6tables-save", &[&V6])
}

fn the_chains_are_there_and_come_back_when_somebody_empties_the_packet_filter(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let network = Network::make(&context.node_options().name)?;
    network.run(&["iptables", "-A", "INPUT", "-s", "192.0.2.7", "-j", "ACCEPT"])?;
    let mut prepare = |chains: Value| {
        let mut options = context.node_options();
        let directory = context.bench.directory(&format!("node-{}", options.name))?;
        network.agent(&mut options, &directory)?;
        // The node's own address is not in this network.
        options.configuration = json!({
            "address": "127.0.0.1",
            "makeIPTablesUtilChains": chains,
        });
        context.prepare(options)
    };
    let is_up = |node: &Node| {
        let health = format!("http://{}/healthz", node.healthz_address());
        network.run(&["curl", "--silent", "--fail", &health]).map(Some)
    };

    // An agent that shall not touch the filter does not.
    let mut idle = prepare(json!(false))?;
    idle.launch()?;
    idle.wait("health", SOON, is_up)?;
    stays_true("an untouched filter", Duration::from_secs(1), || {
        let found = [network.shown("iptables-save")?, network.shown("ip6tables-save")?];
        Ok(found.concat() == [FOREIGN])
    })?;
    idle.stop()?;

    // By default it does, and once is enough: the next life finds everything.
    let mut node = prepare(Value::Null)?;
    for life in 1..=2 {
        node.launch()?;
        node.wait("both families to be done", SOON, |node| {
            let said = |words: &str| node.log_text().matches(words).count();
            let n_done = said("chains are in the packet filter") + said("Initialized iptables");
            Ok((n_done == 2 * life).then_some(()))
        })?;
        node.wait("the chains", SOON, |_| ensure_whole(&network, &[FOREIGN]).map(Some))?;
        if life == 1 {
            node.kill()?;
        }
    }
    let rules = network.shown("iptables-save")?;
    let position = |rule: &str| rules.iter().position(|it| it == rule);
    ensure!(position(JUMP) < position(FOREIGN), "the jump is not the first rule: {rules:#?}");

    network.empty()?;
    ensure!(network.shown("iptables-save")?.is_empty(), "something is left");
    node.wait("everything to come back", GONE, |_| ensure_whole(&network, &[]).map(Some))?;
    Ok(Outcome::Passed)
}

fn a_node_without_iptables_runs_pods(context: &mut Context<'_>) -> Result<Outcome> {
    let mut options = context.node_options();
    options.configuration = json!({ "makeIPTablesUtilChains": true });
    options.environment = vec![("PATH".to_owned(), "/nowhere".to_owned())];
    let mut node = context.node_with(options)?;
    node.put_pod(&pod("web", &[sleeper("main")]))?;
    wait_running(&mut node, "web")?;
    node.wait("a word about it", SOON, |node| {
        let text = node.log_text();
        let is_said = text.contains("iptables cannot be used") || text.contains("No iptables");
        Ok(is_said.then_some(()))
    })?;
    node.expect_running()?;
    Ok(Outcome::Passed)
}

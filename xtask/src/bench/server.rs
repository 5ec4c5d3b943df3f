//! `cargo xtask bench server`: what the agent's server costs, at a number of pods, beside
//! upstream's kubelet.
//!
//! ```text
//! node with pods ─► scrapes, one a second, in rounds ─► pods started alone, beside a flood of a mere sender, and while /pods is flooded
//!                ─► 200 followed logs of 1 MB/s together ─► megabytes through a forwarded port
//! ```
//!
//! One turn each, in one run on one control plane. It never fails because of a slow figure: the
//! table says what fell short.

mod leg;
mod load;

use anyhow::{Result, ensure};
use clap::ArgMatches;
use ferrolet_lab::cluster::Api;
use ferrolet_lab::{Cluster, ClusterOptions, Network, isolation, parts};

use super::machine::Machine;
use super::score::{Figure, Goal, Unit, Values, missing, rows};
use super::table;
use crate::{build, given};

/// Streams that are followed at once.
const N_FOLLOWERS: usize = 200;
/// Requests a second that the node is flooded with.
const FLOOD: usize = 1000;
/// A pod's start under a flood, in percent of its start under the same flood of a server that only
/// sends: the median of nine starts is not known better than this.
const SLOWDOWN: f64 = 110.0;
/// Paths that are scraped, as keys name them. The one whose reading would serve the others comes
/// last.
const SCRAPED: [(&str, &str); 4] = [
    ("summary", "/stats/summary"),
    ("resource", "/metrics/resource"),
    ("metrics", "/metrics"),
    ("cadvisor", "/metrics/cadvisor"),
];

pub(super) fn command(args: &ArgMatches) -> Result<u8> {
    let (tools, binaries) = (parts::toolbox().required()?, parts::control_plane().required()?);
    let agent = build::agent(args)?;
    let n_pods = given(args, "pods");
    let is_alone = args.get_flag("only-ours");
    let part = args.get_one::<String>("part").map(String::as_str);
    isolation::run(Network::Private, |bench| {
        let machine = Machine::look(&tools, &binaries, &agent)?;
        println!(
            "{} against kubelet {}, {n_pods} pods, {} cores, load {:.1}",
            machine.ours, machine.upstream, machine.n_cores, machine.load
        );
        let cluster = Cluster::start(bench, &binaries, &ClusterOptions::default())?;
        let scene = leg::Scene {
            bench,
            tools: &tools,
            cluster: &cluster,
            api: Api::new(&cluster.proxy_address())?,
            n_pods,
            part,
        };
        let ours = leg::run(&scene, "ferrolet", &agent)?;
        println!("ferrolet done");
        let upstream = if is_alone {
            ours.clone()
        } else {
            leg::run(&scene, "upstream", &binaries.binary("kubelet"))?
        };
        report(n_pods, part, ours, upstream)
    })
}

fn report(n_pods: usize, part: Option<&str>, ours: Values, upstream: Values) -> Result<u8> {
    let mut figures = catalogue(n_pods);
    // A part has only its own.
    figures.retain(|it| part.is_none() || ours.contains_key(&it.key));
    let (ours, upstream) = ([ours], [upstream]);
    let rows = rows(&figures, &ours, &upstream);
    println!("\n{}\n{}", table::text(&rows, "upstream"), table::summary(&rows));
    let mut gone = missing(&figures, &ours);
    gone.extend(missing(&figures, &upstream));
    ensure!(gone.is_empty(), "figures are missing: {}", gone.join(", "));
    Ok(0)
}

/// Every figure, in the order of the table.
fn catalogue(n_pods: usize) -> Vec<Figure> {
    let mut all = Vec::new();
    let mut add = |key: &str, label: String, unit: Unit, goal: Option<Goal>| {
        all.push(Figure { key: key.to_owned(), label, unit, goal });
    };
    for (key, path) in SCRAPED {
        let goal = ["cadvisor", "summary"].contains(&key);
        let goal = goal.then_some(Goal::AtMost(0.2));
        let (time, cpu) = (format!("{key}_time"), format!("{key}_cpu"));
        add(&time, format!("{path}, time"), Unit::Milliseconds, goal);
        add(&cpu, format!("{path}, CPU"), Unit::Milliseconds, goal);
    }
    let followed = format!("{N_FOLLOWERS} followed logs of 1 MB/s together");
    let cpu = Some(Goal::Below(10.0));
    add("follow_cpu", format!("{followed}, CPU"), Unit::Percent, cpu);
    let memory = Some(Goal::Below(10.0));
    let label = format!("{followed}, more memory");
    add("follow_memory", label, Unit::Megabytes, memory);
    let label = format!("{followed}, delivered");
    add("follow_delivered", label, Unit::Throughput, None);
    let at_least = Some(Goal::AtLeast(1.0));
    add("forward", "a forwarded port".into(), Unit::Throughput, at_least);
    let label = "a forwarded port, CPU for a gigabyte".into();
    add("forward_cpu", label, Unit::CpuSeconds, None);
    let label = format!("/pods with {n_pods} pods, answers a second");
    let goal = Some(Goal::AtLeast(1.0));
    add("flood_rate", label, Unit::Count, goal);
    let label = "share of a core for those, pods started meanwhile".to_owned();
    add("flood_cpu", label, Unit::Percent, None);
    let label = "the same for a server that only sends the bytes".to_owned();
    add("send_cpu", label, Unit::Percent, None);
    let label = "the same for those who ask the kubelet".to_owned();
    add("ask_cpu", label, Unit::Percent, None);
    let label = "the same for those who ask such a server".to_owned();
    add("ask_beside_cpu", label, Unit::Percent, None);
    add("start_alone", "a pod's start".into(), Unit::Seconds, None);
    let label = "a pod's start while such a server is asked".to_owned();
    add("start_beside", label, Unit::Seconds, None);
    let label = "a pod's start while the kubelet is asked".to_owned();
    let at_most = Some(Goal::AtMost(1.0));
    add("start_flooded", label, Unit::Seconds, at_most);
    // Asking takes the machine's time, whoever answers; what the kubelet adds to that is its own.
    let label = "that, of the one before".to_owned();
    let below = Some(Goal::Below(SLOWDOWN));
    add("start_slowdown", label, Unit::Percent, below);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_key_of_its_own_and_the_goals_are_those_of_the_issue() {
        let all = catalogue(100);
        let mut keys: Vec<&str> = all.iter().map(|it| it.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all.len());
        let goal = |key: &str| all.iter().find(|it| it.key == key).unwrap().goal;
        assert_eq!(goal("cadvisor_cpu"), Some(Goal::AtMost(0.2)));
        assert_eq!(goal("summary_time"), Some(Goal::AtMost(0.2)));
        assert_eq!(goal("follow_cpu"), Some(Goal::Below(10.0)));
        assert_eq!(goal("follow_memory"), Some(Goal::Below(10.0)));
        assert_eq!(goal("forward"), Some(Goal::AtLeast(1.0)));
        assert_eq!(goal("start_slowdown"), Some(Goal::Below(110.0)));
    }
}

//! How often the node asks and is heard: events, leases, connections that died without a word.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::cluster::Asked;
use serde_json::json;

use super::{LATER, SOON, cases};
use crate::build::{script, sleeper};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    events_come_no_faster_than_they_may,
    a_lease_is_not_late_because_of_other_work,
    a_connection_that_hangs_is_replaced,
];

fn events_come_no_faster_than_they_may(context: &mut Context<'_>) -> Result<Outcome> {
    const BURST: usize = 3;
    let mut options = context.node_options();
    options.configuration = json!({"eventRecordQPS": 2, "eventBurst": BURST});
    let mut world = World::start_with(context, options)?;
    // Three events each, far more than may be said at once.
    for n in 0..5 {
        let pod = world.pod(&format!("talker-{n}"), &[sleeper("main")]);
        world.apply(&pod)?;
    }
    let last = world.wait_ready("talker-4")?;
    world.wait_event(&last, "Started")?;
    let name = world.node_name().to_owned();
    let times: Vec<f64> =
        world.cluster.asked_by(&name)?.iter().filter(|it| is_event(it)).map(|it| it.at).collect();
    ensure!(times.len() >= 15, "only {} events came", times.len());
    for first in 0..times.len() {
        for last in first + BURST..times.len() {
            let span = times[last] - times[first];
            let owed = (last - first + 1 - BURST) as f64 / 2.0;
            // Requests overtake one another a little on their way.
            ensure!(span > owed - 0.6, "{} events within {span:.2} s", last - first + 1);
        }
    }
    Ok(Outcome::Passed)
}

fn is_event(asked: &Asked) -> bool {
    matches!(asked.verb.as_str(), "create" | "patch") && asked.uri.contains("/events")
}

fn a_lease_is_not_late_because_of_other_work(context: &mut Context<'_>) -> Result<Outcome> {
    const DURATION: u32 = 8;
    let mut options = context.node_options();
    // Everything else has to stand in line: ten pods ask for far more than one thing a second.
    options.configuration = json!({
        "nodeLeaseDurationSeconds": DURATION,
        "kubeAPIQPS": 1,
        "kubeAPIBurst": 1,
        "eventRecordQPS": 1,
        "eventBurst": 1,
    });
    let mut world = World::start_with(context, options)?;
    let name = world.node_name().to_owned();
    for n in 0..10 {
        let text = "for n in $(seq 100); do cat /proc/self/mounts > /dev/null; done; exit 1";
        world.apply(&world.pod(&format!("busy-{n}"), &[script("main", text)]))?;
    }
    let renewals = |world: &World<'_>| -> Result<Vec<f64>> {
        let asked = world.cluster.asked_by(&name)?;
        let renewals = asked.iter().filter(|it| it.verb == "update" && it.uri.contains("/leases/"));
        Ok(renewals.map(|it| it.at).collect())
    };
    let n_before = renewals(&world)?.len();
    // A quarter of the duration is the interval: two seconds.
    let cluster = world.cluster;
    cluster.wait("ten renewals", LATER, |_| {
        Ok((renewals(&world)?.len() >= n_before + 10).then_some(()))
    })?;
    world.node.node.expect_running()?;
    let all = renewals(&world)?;
    for pair in all.windows(2) {
        let gap = pair[1] - pair[0];
        ensure!(
            gap < f64::from(DURATION) / 2.0,
            "{gap:.1} s between two renewals of a lease of {DURATION} s"
        );
    }
    let first = world.find_pod("busy-9")?.context("the pod is gone")?;
    // The line was real: not everybody had his turn yet.
    ensure!(first.phase() == "Pending" || all.len() > 10, "nothing stood in line");
    Ok(Outcome::Passed)
}

fn a_connection_that_hangs_is_replaced(context: &mut Context<'_>) -> Result<Outcome> {
    // Upstream's client gives a silent connection 30 seconds and then 15 for an answer; ours the
    // heartbeat's ten for both. Its lease goes the same way as all the rest, ours has a connection
    // of its own.
    let (patience, n_least) = if context.is_upstream() { (75, 1) } else { (20, 2) };
    let patience = Duration::from_secs(patience);
    let mut world = World::start(context)?;
    world.run(&world.pod("before", &[sleeper("main")]))?;
    let began = Instant::now();
    world.node.relay.hang();
    let n_hanging = world.node.relay.n_hanging();
    ensure!(n_hanging >= n_least, "only {n_hanging} connections were there");
    // The watch is dead and does not know it; only heartbeats can tell.
    world.apply(&world.pod("after", &[sleeper("main")]))?;
    let relay = &world.node.relay;
    world.node.node.wait("the silent connections to be closed", patience, |_| {
        let n_left = relay.n_hanging();
        ensure!(n_left == 0, "{n_left} of {n_hanging} are still there");
        Ok(Some(()))
    })?;
    let took = began.elapsed();
    ensure!(took <= patience, "it took {took:?}");
    world.wait_pod("after", "Ready", SOON, |pod| pod.condition("Ready") == Some("True"))?;
    ensure!(world.wait_ready("before")?.restarts() == 0, "the other pod was restarted");
    Ok(Outcome::Passed)
}

//! The runtime killed at random moments while pods come and go, monitors killed in between, and a census at the end.
//!
//! ```text
//!  churn: pods made, used and removed all the time, whatever of it fails
//!  killer: kill -9 of the runtime, a start, a look at the steady pods; each few rounds kill -9 of a steady pod's monitor
//!  steady: pods that count in their logs; only those whose monitor was killed may end
//! ```
//!
//! `FERROLET_KILLS=1000` is the long run; the seed is printed, and `FERROLET_SEED` repeats its choices.

use std::cell::Cell;

use ferrolet_ports::RuntimeError;

use super::*;

/// Kills in an ordinary run.
const N_KILLS: u32 = 30;
/// One in so many rounds kills a monitor too.
const MONITOR_EVERY: u32 = 5;
/// Steady pods.
const N_STEADY: usize = 3;
/// The longest time between a start and the next kill.
const LONGEST_PAUSE: u64 = 300;
/// What a runtime says at a start that found somebody's network left over.
const NETWORK_LEFT: &str = "network that no pod has was removed";
const COUNT: &str = "i=0; while :; do echo $i; i=$((i+1)); busybox usleep 10000; done";

/// A pod that nobody but its monitor's end may disturb.
struct Steady {
    spec: SandboxSpec,
    sandbox: SandboxId,
    container: ContainerId,
    name: String,
    state: ContainerState,
}

async fn steady(bench: &Bench, n: usize, generation: u32) -> Steady {
    let name = format!("steady-{n}-{generation}");
    let mut spec = bench.sandbox(&name);
    spec.security.namespaces.network = NamespaceMode::Pod;
    let sandbox = bench.client.run_sandbox(&spec).await.unwrap();
    let container = bench.run(&sandbox, &spec, (&name, COUNT)).await;
    let state = bench.state(&spec, &container).await;
    Steady { spec, sandbox, container, name, state }
}

impl Steady {
    /// The same process runs, and its sandbox is ready.
    async fn expect_undisturbed(&self, bench: &Bench) {
        let pod = bench.observe(&self.spec).await;
        assert!(pod.sandboxes[0].is_ready, "{}: {pod:?}", self.name);
        assert_eq!(bench.state(&self.spec, &self.container).await, self.state, "{}", self.name);
    }

    /// Every line of its log is there, in order.
    fn expect_whole_log(&self, bench: &Bench) {
        let text = bench.text(&self.name);
        for (n, line) in text.iter().enumerate() {
            assert_eq!(*line, format!("stdout F {n}"), "{}", self.name);
        }
        assert!(!text.is_empty(), "{}", self.name);
    }
}

/// A pod's whole life; an error where the runtime was not there.
async fn life(bench: &Bench, n: u32) -> Result<(), RuntimeError> {
    let mut spec = bench.sandbox(&format!("churn-{n}"));
    if n.is_multiple_of(2) {
        spec.security.namespaces.network = NamespaceMode::Pod;
        let host_port = i32::try_from(20_000 + n % 1000).unwrap();
        spec.port_mappings = vec![PortMapping {
            protocol: "TCP",
            container_port: 80,
            host_port,
            host_ip: String::new(),
        }];
    }
    let client = &bench.client;
    let sandbox = client.run_sandbox(&spec).await?;
    let container = bench.container(&spec, &format!("churn-{n}"), "echo up; sleep 999");
    let id = client.create_container(&sandbox, &spec, &container).await?;
    client.start_container(&id).await?;
    client.exec(&id, &words(&["true"]), Duration::from_secs(30)).await?;
    if n.is_multiple_of(3) {
        client.stop_container(&id, ferrolet_types::GracePeriod::from_secs(0)).await?;
        client.remove_container(&id).await?;
    }
    client.stop_sandbox(&sandbox).await?;
    client.remove_sandbox(&sandbox).await
}

/// Pods come and go until somebody has enough; how many whole lives there were.
async fn churn(bench: &Bench, is_over: &Cell<bool>, first: u32) -> usize {
    let mut n_whole = 0;
    let mut n = first;
    while !is_over.get() {
        n += 4;
        match life(bench, n).await {
            Ok(()) => n_whole += 1,
            // The runtime is away: what it left of this pod is found at the end.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    n_whole
}

/// Kills the runtime again and again, and now and then a monitor; how many of those.
async fn killer(bench: &Bench, pods: &mut [Steady], n_kills: u32, mut dice: fastrand::Rng) -> u32 {
    let mut n_monitors = 0;
    for round in 1..=n_kills {
        tokio::time::sleep(Duration::from_millis(dice.u64(0..LONGEST_PAUSE))).await;
        bench.kill();
        let lost = round.is_multiple_of(MONITOR_EVERY).then(|| dice.usize(..pods.len()));
        // Half of the monitors die while nobody is there to see it.
        let is_alone = dice.bool();
        if let Some(at) = lost.filter(|_| is_alone) {
            bench.kill_monitor(&pods[at].sandbox);
        }
        bench.start_again().await;
        if let Some(at) = lost.filter(|_| !is_alone) {
            bench.kill_monitor(&pods[at].sandbox);
        }
        for (n, pod) in pods.iter().enumerate() {
            if lost != Some(n) {
                pod.expect_undisturbed(bench).await;
            }
        }
        if let Some(at) = lost {
            n_monitors += 1;
            let pod = &pods[at];
            let exit = bench.exit(&pod.spec, &pod.container).await;
            assert_eq!((exit.code, exit.reason.as_str()), (137, "MonitorLost"));
            assert!(!bench.observe(&pod.spec).await.sandboxes[0].is_ready);
            pod.expect_whole_log(bench);
            bench.client.stop_sandbox(&pod.sandbox).await.unwrap();
            bench.client.remove_sandbox(&pod.sandbox).await.unwrap();
            pods[at] = steady(bench, at, round).await;
        }
    }
    n_monitors
}

/// Processes of the runtime's: in its network, or in a group of its pods. The runtime and its spawner are not counted.
fn processes(bench: &Bench) -> Vec<String> {
    let own = fs::read_link("/proc/thread-self/ns/net").unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse::<u32>().ok()) else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        let path = entry.path();
        let is_in_network = fs::read_link(path.join("ns/net")).is_ok_and(|it| it == own);
        let groups = fs::read_to_string(path.join("cgroup")).unwrap_or_default();
        if is_in_network || groups.contains(&bench.group) {
            let status = fs::read_to_string(path.join("stat")).unwrap_or_default();
            found.push(status);
        }
    }
    found
}

/// Nothing is left but an empty store: no file, group, link, mount, process, address or element.
async fn census(bench: &Bench) {
    bench.expect_nothing_left();
    for directory in ["root/staging", "root/trash"] {
        let left: Vec<_> =
            fs::read_dir(bench.place.path().join(directory)).into_iter().flatten().collect();
        assert!(left.is_empty(), "{directory}: {left:?}");
    }
    assert_eq!(links(), [""; 0]);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = bench.place.path().to_str().unwrap();
    let left: Vec<_> = mounts.lines().filter(|it| it.contains(place)).collect();
    assert!(left.is_empty(), "{left:?}");
    // A start compares links, addresses and elements with the records, of which there are none.
    bench.kill();
    let said = || fs::read_to_string(bench.place.path().join("log")).unwrap();
    let before = said().len();
    bench.start_again().await;
    assert!(!said()[before..].contains(NETWORK_LEFT), "{}", &said()[before..]);
    bench.kill();
    until("every process is gone", async || processes(bench).is_empty().then_some(())).await;
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|it| it.parse().unwrap())
}

#[tokio::test]
async fn kills_at_random_moments_disturb_nobody_and_leave_nothing() {
    if !is_equipped() {
        return;
    }
    let n_kills = number("FERROLET_KILLS").map_or(N_KILLS, |it| u32::try_from(it).unwrap());
    let seed = number("FERROLET_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("{n_kills} kills, FERROLET_SEED={seed}");
    let bench = Bench::new("kills").await;
    let mut pods = Vec::new();
    for n in 0..N_STEADY {
        pods.push(steady(&bench, n, 0).await);
    }
    let is_over = Cell::new(false);
    let killing = async {
        let n = killer(&bench, &mut pods, n_kills, fastrand::Rng::with_seed(seed)).await;
        is_over.set(true);
        n
    };
    let lives = futures::future::join_all((0..3).map(|first| churn(&bench, &is_over, first)));
    let (n_monitors, lives) = tokio::join!(killing, lives);
    println!("{n_monitors} monitors killed; whole lives of other pods: {lives:?}");
    assert!(lives.iter().sum::<usize>() > 0, "no pod ever lived in between");

    for pod in &pods {
        pod.expect_undisturbed(&bench).await;
    }
    // What the census looks at is there to be seen.
    assert!(!processes(&bench).is_empty() && !links().is_empty());
    assert!(!bench.groups_below().is_empty());
    let listed = bench.client.list().await.unwrap();
    assert!(listed.sandboxes.len() >= N_STEADY);
    for sandbox in &listed.sandboxes {
        bench.client.stop_sandbox(&sandbox.id).await.unwrap();
        bench.client.remove_sandbox(&sandbox.id).await.unwrap();
    }
    for pod in &pods {
        pod.expect_whole_log(&bench);
    }
    census(&bench).await;
}

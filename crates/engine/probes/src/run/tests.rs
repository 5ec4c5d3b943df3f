//! The loop with a prober of the test's own, in paused time; and with commands in the fake world's
//! containers.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use ferrolet_ports::{EventObject, ExecOutput, RuntimeErrorKind};
use ferrolet_testkit::{Call, World, container_spec, pod, sandbox_spec};
use ferrolet_types::pod::{PodView as _, ProbeKind};
use ferrolet_types::probe::{ProbeResult, ProbeStage, RunningContainer};
use ferrolet_types::{ContainerId, Pod};
use k8s_openapi::api::core::v1::{Container, ExecAction, Probe as Spec};

use super::*;

/// Takes this long, and then answers with the next outcome; the last one repeats.
struct Scripted {
    takes: Duration,
    outcomes: Mutex<VecDeque<Outcome>>,
    ran: Mutex<Vec<(Instant, ProbeKind)>>,
    under_way: Mutex<usize>,
}

impl Scripted {
    fn new(takes: Duration, outcomes: impl IntoIterator<Item = Outcome>) -> Arc<Self> {
        Arc::new(Self {
            takes,
            outcomes: Mutex::new(outcomes.into_iter().collect()),
            ran: Mutex::default(),
            under_way: Mutex::default(),
        })
    }
}

struct UnderWay<'a>(&'a Mutex<usize>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap() -= 1;
    }
}

impl Probe for Scripted {
    fn probe<'a>(&'a self, target: &'a Target) -> Fut<'a, Outcome> {
        Box::pin(async move {
            let ran = (Instant::now(), target.kind);
            self.ran.lock().unwrap().push(ran);
            *self.under_way.lock().unwrap() += 1;
            let _guard = UnderWay(&self.under_way);
            tokio::time::sleep(self.takes).await;
            let mut outcomes = self.outcomes.lock().unwrap();
            let outcome =
                if outcomes.len() > 1 { outcomes.pop_front() } else { outcomes.front().cloned() };
            outcome.expect("panics when it has nothing to say")
        })
    }
}

fn spec(period: i32, failures: i32) -> Spec {
    Spec {
        period_seconds: Some(period),
        failure_threshold: Some(failures),
        exec: Some(ExecAction { command: Some(vec!["check".to_owned()]) }),
        ..Default::default()
    }
}

fn probed(edit: impl FnOnce(&mut Container)) -> Pod {
    let pod = pod("p").container("c", "i");
    pod.edit_container("c", edit).build()
}

fn order(pod: &Pod, id: &str, world: &World) -> PodProbes {
    PodProbes {
        pod: pod.clone(),
        pod_ips: vec!["10.0.0.1".to_owned()],
        running: vec![RunningContainer {
            name: "c".into(),
            id: id.into(),
            started_at: world.now(),
            told: None,
        }],
        stage: ProbeStage::Running,
    }
}

fn failure(text: &str) -> Outcome {
    Outcome::Failure(text.to_owned())
}

/// Spawns the loop; whatever goes out of scope at a test's end takes it along.
fn spawn(
    prober: &Arc<Scripted>,
    world: &World,
) -> (ProbesHandle, mpsc::UnboundedReceiver<ProbeReport>) {
    let (handle, probe_loop, reports) = start(prober.clone(), world.events(), world.clock());
    tokio::spawn(probe_loop.run());
    (handle, reports)
}

fn messages(world: &World) -> Vec<(String, String)> {
    let events = world.recorded_events().into_iter();
    events.map(|(_, it)| (it.reason, it.message)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_is_reported_once_and_told_each_time() {
    let world = World::new();
    let prober = Scripted::new(Duration::ZERO, [failure("sick\n")]);
    let (handle, mut reports) = spawn(&prober, &world);
    let pod = probed(|c| c.liveness_probe = Some(spec(10, 2)));
    let began = Instant::now();
    handle.watch_pod(order(&pod, "c1", &world));
    let report = reports.recv().await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    let expected = ProbeReport {
        uid: pod.uid(),
        container: "c".into(),
        container_id: "c1".into(),
        kind: ProbeKind::Liveness,
        result: ProbeResult::Failure { grace: None },
    };
    assert_eq!(report, expected);
    let told = ("Unhealthy".to_owned(), "Liveness probe failed: sick\n".to_owned());
    assert_eq!(messages(&world), [told.clone(), told]);
    let EventObject::Pod { field_path, .. } = &world.recorded_events()[0].1.object else {
        panic!("it is about a pod");
    };
    assert_eq!(field_path.as_deref(), Some("spec.containers{c}"));
    // Held from here on.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(prober.ran.lock().unwrap().len(), 2);
}

/// Events and thresholds: errors are retried and then do not count.
#[tokio::test(start_paused = true)]
async fn warnings_and_errors_are_told_in_their_own_words() {
    let world = World::new();
    let broken = Outcome::unknown("no idea");
    let outcomes = [broken, Outcome::Warning("hm".to_owned())];
    let prober = Scripted::new(Duration::ZERO, outcomes);
    let (handle, mut reports) = spawn(&prober, &world);
    let pod = probed(|c| c.readiness_probe = Some(spec(1, 1)));
    handle.watch_pod(order(&pod, "c1", &world));
    assert_eq!(reports.recv().await.unwrap().result, ProbeResult::Success);
    let told = [
        ("Unhealthy", "Readiness probe errored and resulted in unknown state: no idea"),
        ("ProbeWarning", "Readiness probe warning: hm"),
    ];
    let told = told.map(|(reason, message)| (reason.to_owned(), message.to_owned()));
    assert_eq!(messages(&world), told);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_holds_up_nobody_else() {
    let world = World::new();
    let hung = Scripted::new(Duration::from_secs(3600), [Outcome::Success]);
    let (handle, _reports) = spawn(&hung, &world);
    for n in 0..50 {
        let pod = pod(&format!("p{n}")).container("c", "i");
        let pod = pod.edit_container("c", |c| c.readiness_probe = Some(spec(1, 1)));
        handle.watch_pod(order(&pod.build(), &format!("c{n}"), &world));
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    // Each is under way once, and never twice.
    assert_eq!(*hung.under_way.lock().unwrap(), 50);
    assert_eq!(hung.ran.lock().unwrap().len(), 50);
}

/// A worker and a ticker for each probe is what upstream has; here all of them share one
/// task and one timer.
#[tokio::test(start_paused = true)]
async fn a_thousand_probes_cost_one_task_between_their_ticks() {
    let world = World::new();
    let prober = Scripted::new(Duration::ZERO, [Outcome::Success]);
    let (handle, _reports) = spawn(&prober, &world);
    let tasks = tokio::runtime::Handle::current();
    let n_before = tasks.metrics().num_alive_tasks();
    for n in 0..1000 {
        let pod = pod(&format!("p{n}")).container("c", "i");
        let pod = pod.edit_container("c", |c| c.readiness_probe = Some(spec(10, 1)));
        handle.watch_pod(order(&pod.build(), &format!("c{n}"), &world));
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let n_ran = prober.ran.lock().unwrap().len();
    assert!((6000..=8000).contains(&n_ran), "{n_ran} probes");
    assert_eq!(*prober.under_way.lock().unwrap(), 0);
    assert_eq!(tasks.metrics().num_alive_tasks(), n_before);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_forgotten_is_probed_no_more_not_even_half() {
    let world = World::new();
    let prober = Scripted::new(Duration::from_secs(5), [failure("late")]);
    let (handle, mut reports) = spawn(&prober, &world);
    let pod = probed(|c| c.readiness_probe = Some(spec(10, 1)));
    handle.watch_pod(order(&pod, "c1", &world));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*prober.under_way.lock().unwrap(), 1);
    handle.forget(&pod.uid());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(*prober.under_way.lock().unwrap(), 0);
    assert_eq!(prober.ran.lock().unwrap().len(), 1);
    assert!(reports.try_recv().is_err() && messages(&world).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_is_tried_again() {
    let world = World::new();
    let prober = Scripted::new(Duration::ZERO, []);
    let (handle, mut reports) = spawn(&prober, &world);
    let pod = probed(|c| c.readiness_probe = Some(spec(1, 1)));
    handle.watch_pod(order(&pod, "c1", &world));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(reports.try_recv().is_err());
    // The panic poisoned its lock; that is not what is tested here.
    prober.outcomes.clear_poison();
    prober.outcomes.lock().unwrap().push_back(Outcome::Success);
    assert_eq!(reports.recv().await.unwrap().result, ProbeResult::Success);
}

#[tokio::test(start_paused = true)]
async fn a_hurried_readiness_does_not_wait_for_its_tick() {
    let world = World::new();
    let outcomes = [failure("not yet"), Outcome::Success];
    let prober = Scripted::new(Duration::ZERO, outcomes);
    let (handle, mut reports) = spawn(&prober, &world);
    let pod = probed(|c| c.readiness_probe = Some(spec(60, 3)));
    let began = Instant::now();
    handle.watch_pod(order(&pod, "c1", &world));
    tokio::time::sleep(Duration::from_secs(3)).await;
    handle.hurry(&pod.uid());
    assert_eq!(reports.recv().await.unwrap().result, ProbeResult::Success);
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

/// A running container `c` of that pod in the fake world.
async fn run_container(world: &World, pod: &Pod) -> ContainerId {
    world.add_image("i");
    let runtime = world.runtime();
    let sandbox = sandbox_spec(pod, 0);
    let sandbox_id = runtime.run_sandbox(&sandbox).await.unwrap();
    let spec = container_spec(pod, "c", 0);
    let made = runtime.create_container(&sandbox_id, &sandbox, &spec).await;
    let id = made.unwrap();
    runtime.start_container(&id).await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn commands_run_in_the_container() {
    let said = |code, text: &str| ExecOutput {
        code,
        stdout: text.as_bytes().to_vec(),
        stderr: Vec::new(),
    };
    let check = async |takes: u64, output, n_faults, expected: &str| {
        let world = World::new();
        let pod = probed(|c| c.readiness_probe = Some(spec(10, 1)));
        let id = run_container(&world, &pod).await;
        world.exec_answers("c", Duration::from_secs(takes), output);
        world.fail_next(Call::Exec, n_faults, RuntimeErrorKind::Unknown, "broken");
        let doors = Doors {
            runtime: world.runtime(),
            events: world.events(),
            clock: world.clock(),
            outbound: Arc::new(ferrolet_testkit::FakeOutbound::default()),
        };
        let (handle, probe_loop, mut reports) = probes(doors, Arc::default());
        tokio::spawn(probe_loop.run());
        handle.watch_pod(order(&pod, id.as_str(), &world));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let told = messages(&world).pop().map_or(String::new(), |it| it.1);
        assert_eq!(told, expected);
        let is_ready = reports.try_recv().is_ok_and(|it| it.result == ProbeResult::Success);
        assert_eq!(is_ready, expected.is_empty());
    };
    check(0, said(0, "fine"), 0, "").await;
    check(0, said(0, "fine"), 2, "").await;
    check(0, said(1, "sick\n"), 0, "Readiness probe failed: sick\n").await;
    check(0, said(1, ""), 0, "Readiness probe failed: ").await;
    let late = "Readiness probe failed: command timed out: \"check\" timed out after 1s";
    check(2, said(0, ""), 0, late).await;
    let broken = "Readiness probe errored and resulted in unknown state: rpc error: code = Unknown desc = broken";
    check(0, said(0, ""), 3, broken).await;
}

//! The fakes keep the contract, and misbehave exactly as they are told.

use std::time::Duration;

use ferrolet_ports::{
    Clock as _, Images as _, PodCgroups as _, PodFiles as _, PodVolumes as _, PullRequest, Runtime,
    RuntimeErrorKind, RuntimeEventKind, SubPath,
};
use ferrolet_resources::{CgroupLimits, PodCgroup};
use ferrolet_types::observed::ContainerState;
use ferrolet_types::pod::{PodView as _, RestartPolicy};
use ferrolet_types::{ContainerId, GracePeriod, Pod, Qos, SandboxId};
use tokio::time::Instant;

use crate::{Act, Call, Script, World, container_spec, contract, pod, sandbox_spec};

const IMAGE: &str = "example.com/web:1";

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn world() -> World {
    let world = World::new();
    world.add_image(IMAGE);
    world
}

fn web() -> Pod {
    pod("web").container("main", IMAGE).build()
}

async fn sandbox(world: &World, pod: &Pod) -> SandboxId {
    let spec = sandbox_spec(pod, 0);
    world.runtime().run_sandbox(&spec).await.unwrap()
}

async fn started(world: &World, pod: &Pod, attempt: u32) -> ContainerId {
    let existing = world.sandboxes().into_iter();
    let existing = existing.map(|it| it.id).next();
    let sandbox = match existing {
        Some(id) => id,
        None => sandbox(world, pod).await,
    };
    let (pod_spec, spec) = (sandbox_spec(pod, 0), container_spec(pod, "main", attempt));
    let runtime = world.runtime();
    let id = runtime.create_container(&sandbox, &pod_spec, &spec).await;
    let id = id.unwrap();
    let _ = runtime.start_container(&id).await;
    id
}

fn state_of(world: &World, id: &ContainerId) -> ContainerState {
    let containers = world.containers().into_iter();
    let mut states = containers.filter(|it| it.id == *id).map(|it| it.state);
    states.next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_fake_runtime_keeps_the_contract() {
    let world = world();
    world.script_name(contract::QUITTER, Script::ExitsAfter(secs(1), 3));
    let bench = contract::Bench::new(IMAGE, "/logs".into(), "/kubepods", "contract");
    contract::runtime(&*world.runtime(), &bench).await;
    world.disable_events();
    contract::runtime(&*world.runtime(), &bench).await;
}

#[tokio::test(start_paused = true)]
async fn a_script_ends_its_container_at_the_exact_moment() {
    let (world, pod) = (world(), web());
    world.script_image(IMAGE, Script::ExitsAfter(Duration::from_millis(1500), 7));
    let id = started(&world, &pod, 0).await;
    let ContainerState::Running { started_at } = state_of(&world, &id) else {
        panic!("it runs");
    };
    tokio::time::sleep(secs(3600)).await;
    let exit = state_of(&world, &id).exit().cloned().unwrap();
    assert_eq!(exit.finished_at.since(started_at), Duration::from_millis(1500));
    assert_eq!((exit.code, exit.reason.as_str()), (7, "Error"));
}

#[tokio::test(start_paused = true)]
async fn scripts_run_in_series_and_the_last_repeats() {
    let (world, pod) = (world(), web());
    let crash = Script::ExitsAfter(Duration::ZERO, 1);
    world.script_series(&pod.key(), "main", vec![crash.clone(), crash, Script::Runs]);
    let mut running = Vec::new();
    for attempt in 0..4 {
        let id = started(&world, &pod, attempt).await;
        running.push(state_of(&world, &id).is_running());
    }
    assert_eq!(running, [false, false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn stopping_takes_as_long_as_the_process_makes_it() {
    let check = async |script: Script, grace: u64, takes: u64, code: i32| {
        let (world, pod) = (world(), web());
        world.set_default_latency(Duration::ZERO, Duration::ZERO);
        world.script_name("main", script.clone());
        let id = started(&world, &pod, 0).await;
        let began = Instant::now();
        let grace = GracePeriod(secs(grace));
        world.runtime().stop_container(&id, grace).await.unwrap();
        assert_eq!(began.elapsed(), secs(takes), "{script:?}");
        assert_eq!(state_of(&world, &id).exit().unwrap().code, code);
    };
    check(Script::Runs, 30, 0, 143).await;
    check(Script::Runs, 0, 0, 137).await;
    check(Script::StopsAfter(secs(5)), 30, 5, 0).await;
    check(Script::StopsAfter(secs(5)), 2, 2, 137).await;
    check(Script::IgnoresSignal, 30, 30, 137).await;
    check(Script::ExitsAfter(secs(3), 0), 30, 0, 143).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_is_abandoned_never_kills() {
    let (world, pod) = (world(), web());
    world.script_name("main", Script::IgnoresSignal);
    let id = started(&world, &pod, 0).await;
    let runtime = world.runtime();
    let stop = runtime.stop_container(&id, GracePeriod(secs(30)));
    assert!(tokio::time::timeout(secs(10), stop).await.is_err());
    tokio::time::sleep(secs(600)).await;
    assert!(state_of(&world, &id).is_running());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_leaves_a_dead_container() {
    let (world, pod) = (world(), web());
    world.script_name("main", Script::FailsToStart("no such file".to_owned()));
    let id = started(&world, &pod, 0).await;
    let exit = state_of(&world, &id).exit().cloned().unwrap();
    assert_eq!((exit.code, exit.reason.as_str()), (128, "StartError"));
    assert_eq!(exit.started_at, None);
    assert_eq!(exit.message, "no such file");
}

#[tokio::test(start_paused = true)]
async fn events_come_when_the_clock_says_so() {
    let (world, pod) = (world(), web());
    world.script_name("main", Script::ExitsAfter(secs(60), 0));
    let mut stream = world.runtime().events().await.unwrap();
    let id = started(&world, &pod, 0).await;
    let began = Instant::now();
    let mut kinds = Vec::new();
    while kinds.last() != Some(&RuntimeEventKind::Stopped) {
        let event = stream.next().await.unwrap().unwrap();
        if event.id == id.as_str() {
            kinds.push(event.kind);
        }
    }
    use RuntimeEventKind::{Created, Started, Stopped};
    assert_eq!(kinds, [Created, Started, Stopped]);
    assert!(began.elapsed() >= secs(59) && began.elapsed() <= secs(61));
}

#[tokio::test(start_paused = true)]
async fn lost_events_reach_nobody_and_later_ones_do() {
    let (world, pod) = (world(), web());
    let mut stream = world.runtime().events().await.unwrap();
    world.lose_events(2);
    let id = started(&world, &pod, 0).await;
    let event = stream.next().await.unwrap().unwrap();
    assert_eq!(event.id, id.as_str(), "the sandbox's two events are lost");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_down_refuses_all_and_loses_nothing() {
    let (world, pod) = (world(), web());
    let id = started(&world, &pod, 0).await;
    let mut stream = world.runtime().events().await.unwrap();
    world.runtime_down();
    let runtime = world.runtime();
    let refused = runtime.list().await.unwrap_err();
    assert_eq!(refused.kind, RuntimeErrorKind::Unavailable);
    assert!(stream.next().await.unwrap().is_err());
    assert!(stream.next().await.is_none());
    assert!(world.images().list_images().await.is_err());
    world.runtime_up();
    assert_eq!(runtime.list().await.unwrap().containers[0].id, id);
    assert!(state_of(&world, &id).is_running());
}

#[tokio::test(start_paused = true)]
async fn planned_failures_are_used_up_one_by_one() {
    let (world, pod) = (world(), web());
    let kind = RuntimeErrorKind::Internal;
    world.fail_next(Call::RunSandbox, 2, kind, "no network");
    let spec = sandbox_spec(&pod, 0);
    let runtime = world.runtime();
    for _ in 0..2 {
        let error = runtime.run_sandbox(&spec).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (kind, "no network"));
    }
    runtime.run_sandbox(&spec).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_hung_pod_holds_up_nobody_else() {
    let (world, slow, fast) = (world(), web(), pod("fast").build());
    world.hang_pod(&slow.uid());
    let runtime = world.runtime();
    let (slow_uid, fast_uid) = (slow.uid(), fast.uid());
    let hung = runtime.observe_pod(&slow_uid);
    let began = Instant::now();
    runtime.observe_pod(&fast_uid).await.unwrap();
    assert!(began.elapsed() < secs(1));
    let error = hung.await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::DeadlineExceeded);
    assert!(began.elapsed() >= secs(120));
    world.free_hung();
    runtime.observe_pod(&slow_uid).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_can_have_its_effect_without_its_caller() {
    let (world, pod) = (world(), web());
    let (before, after) = (Duration::from_millis(5), Duration::from_millis(50));
    world.set_default_latency(before, after);
    let (runtime, spec) = (world.runtime(), sandbox_spec(&pod, 0));
    let patience = Duration::from_millis(20);
    let ran = tokio::time::timeout(patience, runtime.run_sandbox(&spec)).await;
    assert!(ran.is_err());
    assert_eq!(world.sandboxes().len(), 1);
    assert_eq!(world.in_flight(Call::RunSandbox), 0);
}

#[tokio::test(start_paused = true)]
async fn images_are_here_or_pulled_or_missing() {
    let world = world();
    let images = world.images();
    world.add_pullable_image("busybox", secs(4));
    assert!(images.image_status("busybox").await.unwrap().is_none());
    let began = Instant::now();
    let id = images.pull_image(PullRequest::of("busybox:latest")).await.unwrap();
    assert!(began.elapsed() >= secs(4));
    let found = images.image_status("docker.io/library/busybox").await;
    assert_eq!(found.unwrap().unwrap().id, id);
    assert!(images.image_status(&id).await.unwrap().is_some());
    assert!(images.pull_image(PullRequest::of("nobody/has:this")).await.is_err());
    images.remove_image(&id).await.unwrap();
    images.remove_image(&id).await.unwrap();
    assert!(!world.has_image("busybox"));
}

#[tokio::test(start_paused = true)]
async fn directories_stay_while_volumes_are_mounted() {
    let (world, pod) = (world(), pod("web").empty_dir("data").build());
    let (uid, key) = (pod.uid(), pod.key());
    let (files, volumes) = (world.files(), world.volumes());
    files.ensure_pod(&key, &uid).await.unwrap();
    let mounts = volumes.ensure(&pod).await.unwrap();
    assert!(mounts["data"].host_path.starts_with("/var/lib/kubelet/pods/"));
    assert!(files.remove_pod(&uid).await.is_err());
    volumes.release(&uid).await.unwrap();
    for _ in 0..2 {
        files.remove_pod(&uid).await.unwrap();
        files.remove_logs(&key, &uid).await.unwrap();
    }
    assert!(world.is_gone(&uid));
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_volume_stays_inside_it() {
    let (world, pod) = (world(), pod("web").empty_dir("data").build());
    let check = async |path: &str, is_fine: bool| {
        let part = SubPath {
            uid: pod.uid(),
            volume: "data".to_owned(),
            host_path: "/data".to_owned(),
            container: "main".to_owned(),
            index: 0,
            path: path.to_owned(),
            is_read_only: false,
        };
        let answer = world.volumes().sub_path(&part).await;
        assert_eq!(answer.is_ok(), is_fine, "{path}");
    };
    check("a/b", true).await;
    check("a/../../b", false).await;
    check("/etc", false).await;
}

#[tokio::test(start_paused = true)]
async fn last_words_travel_through_the_mounted_file() {
    let (world, pod) = (world(), web());
    let (uid, key) = (pod.uid(), pod.key());
    let words = "out of cheese".to_owned();
    world.script_name("main", Script::ExitsWithMessage(secs(1), 1, words.clone()));
    let files = world.files();
    files.ensure_pod(&key, &uid).await.unwrap();
    let path = files.new_termination_log(&uid, "main").await.unwrap();
    let path = path.to_str().unwrap().to_owned();
    let sandbox = sandbox(&world, &pod).await;
    let mut spec = container_spec(&pod, "main", 0);
    spec.mounts.push(ferrolet_spec::Mount {
        container_path: "/dev/termination-log".to_owned(),
        host_path: path.clone(),
        ..Default::default()
    });
    let runtime = world.runtime();
    let pod_spec = sandbox_spec(&pod, 0);
    let id = runtime.create_container(&sandbox, &pod_spec, &spec).await;
    runtime.start_container(&id.unwrap()).await.unwrap();
    tokio::time::sleep(secs(2)).await;
    let read = files.read_termination_log(&path, 6).await.unwrap();
    assert_eq!(read, words[..6]);
    let highest = files.ensure_container_logs(&key, &uid, "main").await;
    assert_eq!(highest.unwrap(), Some(0), "the container left 0.log");
}

#[tokio::test(start_paused = true)]
async fn removing_a_cgroup_ends_what_runs_in_it() {
    let (world, pod) = (world(), web());
    let cgroup = PodCgroup {
        uid: pod.uid(),
        qos: Qos::BestEffort,
        limits: CgroupLimits::default(),
        huge_pages: Default::default(),
    };
    let cgroups = world.cgroups();
    cgroups.ensure(&cgroup).await.unwrap();
    assert!(cgroups.exists(&cgroup).await.unwrap());
    let id = started(&world, &pod, 0).await;
    cgroups.remove(&pod.uid()).await.unwrap();
    cgroups.remove(&pod.uid()).await.unwrap();
    assert_eq!(state_of(&world, &id).exit().unwrap().code, 137);
}

#[tokio::test(start_paused = true)]
async fn the_journal_tells_a_pods_life_in_order() {
    let (world, pod) = (world(), web());
    let id = started(&world, &pod, 0).await;
    let runtime = world.runtime();
    let grace = GracePeriod(secs(30));
    runtime.stop_container(&id, grace).await.unwrap();
    let sandbox = world.sandboxes()[0].id.clone();
    runtime.stop_sandbox(&sandbox).await.unwrap();
    runtime.remove_sandbox(&sandbox).await.unwrap();
    let journal = world.journal_of(&pod.uid());
    assert!(journal.is_sorted_by_key(|entry| entry.at));
    let acts: Vec<Act> = journal.into_iter().map(|entry| entry.act).collect();
    let (name, attempt) = (ferrolet_types::ContainerName::new("main"), 0);
    let ended = |code| Act::ContainerExited { id: id.clone(), name: name.clone(), code };
    let expected = [
        Act::SandboxRan { id: sandbox.clone(), attempt },
        Act::ContainerCreated {
            id: id.clone(),
            name: name.clone(),
            attempt,
            sandbox: sandbox.clone(),
        },
        Act::ContainerStarted { id: id.clone(), name: name.clone() },
        Act::ContainerSignalled { id: id.clone(), name: name.clone(), grace },
        ended(143),
        Act::SandboxStopped { id: sandbox.clone() },
        Act::ContainerRemoved { id: id.clone(), name: name.clone() },
        Act::SandboxRemoved { id: sandbox },
    ];
    assert_eq!(acts, expected);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_world_needs_no_ticks() {
    let (world, pod) = (world(), web());
    world.script_name("main", Script::ExitsAfter(secs(3000), 0));
    let id = started(&world, &pod, 0).await;
    let is_over = |world: &World| state_of(world, &id).exit().is_some();
    let both = async {
        world.until("the exit", secs(4000), is_over).await;
        world.clock().now()
    };
    // Two who wait must not keep each other awake.
    let other = world.until("the exit", secs(4000), is_over);
    let (at, ()) = tokio::join!(both, other);
    let finished_at = state_of(&world, &id).exit().unwrap().finished_at;
    assert!(at.since(finished_at) <= Duration::from_millis(1));
}

#[tokio::test(start_paused = true)]
async fn a_reboot_ends_everything_and_tells_nobody() {
    let (world, pod) = (world(), web());
    let id = started(&world, &pod, 0).await;
    world.reboot();
    assert_eq!(state_of(&world, &id).exit().unwrap().code, 255);
    assert!(!world.sandboxes()[0].is_ready);
}

#[test]
fn pods_are_built_with_the_apis_defaults() {
    let built = pod("web")
        .container("main", "busybox")
        .init("first", IMAGE)
        .restart_policy(RestartPolicy::Never)
        .grace(7)
        .static_file()
        .build();
    assert!(built.is_static());
    assert_eq!(built.restart_policy(), RestartPolicy::Never);
    assert_eq!(built.grace_period(), GracePeriod(secs(7)));
    assert_eq!(built.uid().as_str().len(), 32);
    let policy = |name: &str| {
        let (_, container) = built.find_container(name).unwrap();
        container.image_pull_policy.clone().unwrap()
    };
    assert_eq!((policy("main").as_str(), policy("first").as_str()), ("Always", "IfNotPresent"));
    assert_eq!(pod("web").build().uid().as_str().len(), 36);
}

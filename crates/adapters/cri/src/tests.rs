//! The client against a runtime in memory, over a real socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::{
    CgroupDriver, Clock, Images, ListedState, LogReopen as _, PullRequest, RegistryAuth, Runtime,
    RuntimeErrorKind, RuntimeEventKind,
};
use ferrolet_spec::LinuxResources;
use ferrolet_types::{ContainerId, GracePeriod, PodUid, SandboxId, Timestamp};
use tempfile::TempDir;
use tonic::Status;

use crate::encode::tests::{rich_container, rich_sandbox};
use crate::fake::{FakeRuntime, Running, World};
use crate::{CriClient, StreamOptions, Timeouts, proto};

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_000)
    }
}

struct Stage {
    fake: FakeRuntime,
    client: CriClient,
    server: Option<Running>,
    socket: PathBuf,
    _directory: TempDir,
}

fn client_of(socket: &Path, request: Duration) -> CriClient {
    let endpoint = format!("unix://{}", socket.display());
    CriClient::connect_lazy(&endpoint, "", Timeouts { request }, Arc::new(FixedClock)).unwrap()
}

fn stage() -> Stage {
    stage_with(Duration::from_secs(60))
}

fn stage_with(request: Duration) -> Stage {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("cri.sock");
    let fake = FakeRuntime::new();
    Stage {
        client: client_of(&socket, request),
        server: Some(fake.serve(&socket)),
        fake,
        socket,
        _directory: directory,
    }
}

fn event(uid: &str, id: &str, kind: proto::ContainerEventType) -> proto::ContainerEventResponse {
    proto::ContainerEventResponse {
        container_id: id.to_owned(),
        container_event_type: kind.into(),
        pod_sandbox_status: (!uid.is_empty()).then(|| proto::PodSandboxStatus {
            metadata: Some(proto::PodSandboxMetadata { uid: uid.to_owned(), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_missing_socket_fails_at_once_and_is_named() {
    let client = client_of(Path::new("/nowhere/x.sock"), Duration::from_secs(60));
    for _ in 0..3 {
        let error = client.version().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: \
             dial unix /nowhere/x.sock: connect: no such file or directory\""
        );
    }
    let error = client.image_status("busybox").await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unavailable);
    assert!(client.events().await.is_err_and(|error| error.kind == RuntimeErrorKind::Unavailable));
}

#[tokio::test]
async fn a_lost_connection_is_made_again() {
    let mut stage = stage();
    assert_eq!(stage.client.version().await.unwrap().name, "fake");
    stage.server = None;
    let error = stage.client.version().await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unavailable, "{error}");
    // Whatever the first call met, the second one finds no socket.
    let error = stage.client.version().await.unwrap_err();
    assert!(error.message.contains("dial unix"), "{error}");
    stage.server = Some(stage.fake.serve(&stage.socket));
    assert_eq!(stage.client.version().await.unwrap().name, "fake");
}

#[tokio::test]
async fn a_call_in_flight_ends_when_the_runtime_dies() {
    let mut stage = stage();
    stage.fake.change(|world| world.hanging.insert("StartContainer"));
    let (client, id) = (stage.client.clone(), ContainerId::from("c"));
    let call = tokio::spawn(async move { client.start_container(&id).await });
    stage.fake.until(|world| world.deadlines.contains_key("StartContainer")).await;
    stage.server = None;
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unavailable, "{error}");
    assert_eq!(error.call, "StartContainer");
}

#[tokio::test]
async fn a_start_that_its_caller_gives_up_is_not_cut_off() {
    let stage = stage();
    let (client, spec) = (&stage.client, rich_sandbox());
    let sandbox = client.run_sandbox(&spec).await.unwrap();
    let container = rich_container();
    let made = client.create_container(&sandbox, &spec, &container);
    let id = made.await.unwrap();
    let fake = &stage.fake;
    fake.change(|world| world.hanging.insert("StartContainer"));
    tokio::select! {
        answer = client.start_container(&id) => panic!("it hangs, and answers {answer:?}"),
        () = fake.until(|world| world.deadlines.contains_key("StartContainer")) => {}
    }
    fake.change(|world| world.hanging.remove("StartContainer"));
    let is_running = proto::ContainerState::ContainerRunning;
    let runs = |world: &World| world.containers[id.as_str()].2 == is_running;
    fake.until(runs).await;
}

#[tokio::test]
async fn a_runtime_that_does_not_answer_is_given_up_on() {
    let stage = stage_with(Duration::from_millis(50));
    stage.fake.change(|world| world.hanging.insert("Version"));
    let error = stage.client.version().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    );
    assert!(stage.client.list().await.is_ok());
}

#[tokio::test]
async fn each_call_tells_the_runtime_how_long_it_waits() {
    let stage = stage();
    let (client, id) = (&stage.client, ContainerId::from("c"));
    let sandbox = client.run_sandbox(&rich_sandbox()).await.unwrap();
    let (sandbox_spec, spec) = (rich_sandbox(), rich_container());
    let made = client.create_container(&sandbox, &sandbox_spec, &spec);
    made.await.unwrap();
    let grace = GracePeriod::from_secs(30);
    client.stop_container(&id, grace).await.unwrap();
    client.pull_image(PullRequest::of("busybox")).await.unwrap();
    let check = |method: &str, expected: Option<u64>| {
        let told = stage.fake.look(|world| world.deadlines[method]);
        assert_eq!(told, expected.map(Duration::from_secs), "{method}");
    };
    check("RunPodSandbox", Some(120));
    check("CreateContainer", Some(60));
    check("StopContainer", Some(90));
    check("PullImage", None);
    client.exec(&id, &[], Duration::ZERO).await.unwrap();
    check("ExecSync", None);
    client.exec(&id, &[], Duration::from_secs(5)).await.unwrap();
    check("ExecSync", Some(65));
}

#[tokio::test]
async fn what_is_gone_already_stops_and_goes_without_complaint() {
    let stage = stage();
    let client = &stage.client;
    let (container, sandbox) = (ContainerId::from("c"), SandboxId::from("s"));
    let grace = GracePeriod::from_secs(1);
    assert_eq!(client.stop_container(&container, grace).await, Ok(()));
    assert_eq!(client.remove_container(&container).await, Ok(()));
    assert_eq!(client.stop_sandbox(&sandbox).await, Ok(()));
    assert_eq!(client.remove_sandbox(&sandbox).await, Ok(()));
    assert_eq!(client.remove_image("busybox").await, Ok(()));
    let error = client.start_container(&container).await.unwrap_err();
    assert_eq!(error.to_string(), "rpc error: code = NotFound desc = \"c\": not found");
}

#[tokio::test]
async fn a_pod_is_made_observed_and_removed() {
    let stage = stage();
    let (client, spec) = (&stage.client, rich_sandbox());
    let sandbox = client.run_sandbox(&spec).await.unwrap();
    let mut container_spec = rich_container();
    container_spec.annotations.insert("ferrolet.dev/crash-streak".to_owned(), "4".to_owned());
    let container = client.create_container(&sandbox, &spec, &container_spec);
    let container = container.await.unwrap();
    client.start_container(&container).await.unwrap();

    let observed = client.observe_pod(&spec.uid).await.unwrap();
    assert_eq!(observed.at, Timestamp::from_second(1_000));
    assert_eq!(observed.key.as_ref(), Some(&spec.key));
    assert_eq!(observed.newest_sandbox().unwrap().id, sandbox);
    let main = observed.newest_container("main").unwrap();
    assert_eq!((&main.id, &main.sandbox), (&container, &sandbox));
    assert_eq!(main.spec_hash.as_deref(), Some("85580d84"));
    assert_eq!(main.crash_streak, Some(4));
    assert!(main.state.is_running());

    let other = client.observe_pod(&PodUid::from("other")).await.unwrap();
    assert!(other.is_empty());

    client.stop_container(&container, GracePeriod::from_secs(1)).await.unwrap();
    let listing = client.list().await.unwrap();
    assert_eq!(listing.sandboxes[0].key, spec.key);
    assert_eq!(listing.containers[0].state, ListedState::Exited);

    client.remove_container(&container).await.unwrap();
    client.stop_sandbox(&sandbox).await.unwrap();
    client.remove_sandbox(&sandbox).await.unwrap();
    assert!(client.observe_pod(&spec.uid).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_vanishes_between_list_and_status_is_left_out() {
    let stage = stage();
    let (client, spec) = (&stage.client, rich_sandbox());
    let sandbox = client.run_sandbox(&spec).await.unwrap();
    let mut containers = Vec::new();
    for _ in 0..20 {
        let container_spec = rich_container();
        let container = client.create_container(&sandbox, &spec, &container_spec);
        containers.push(container.await.unwrap());
    }
    stage.fake.change(|world| {
        world.vanishing.insert(sandbox.to_string());
        world.vanishing.insert(containers[3].to_string());
    });
    let observed = client.observe_pod(&spec.uid).await.unwrap();
    assert!(observed.sandboxes.is_empty());
    assert_eq!(observed.containers.len(), 19);
    assert_eq!(observed.key, Some(spec.key.clone()));
    let refusal = Status::internal("disk on fire");
    stage.fake.change(|world| world.refusing.insert("ContainerStatus", refusal));
    let error = client.observe_pod(&spec.uid).await.unwrap_err();
    assert_eq!((error.call, error.kind), ("ContainerStatus", RuntimeErrorKind::Internal));
}

#[tokio::test]
async fn what_no_kubelet_made_is_not_listed() {
    let stage = stage();
    let mut stranger = rich_sandbox();
    stranger.labels.clear();
    stage.client.run_sandbox(&stranger).await.unwrap();
    assert!(stage.client.list().await.unwrap().sandboxes.is_empty());
}

#[tokio::test]
async fn a_runtime_may_keep_its_cgroup_driver_to_itself() {
    let stage = stage();
    let status = stage.client.status().await.unwrap();
    assert!(status.runtime.is_ok && status.network.is_ok);
    assert_eq!(status.cgroup_driver, Some(CgroupDriver::Cgroupfs));
    let refusal = Status::unimplemented("unknown method RuntimeConfig");
    stage.fake.change(|world| world.refusing.insert("RuntimeConfig", refusal));
    assert_eq!(stage.client.status().await.unwrap().cgroup_driver, None);
}

#[tokio::test]
async fn events_come_in_order_and_end_with_the_connection() {
    use proto::ContainerEventType as Wire;
    let mut stage = stage();
    let mut events = stage.client.events().await.unwrap();
    stage.fake.change(|world| {
        world.events = vec![
            event("u", "c", Wire::ContainerCreatedEvent),
            event("", "whose", Wire::ContainerStartedEvent),
            event("u", "c", Wire::ContainerDeletedEvent),
        ];
    });
    for kind in [RuntimeEventKind::Created, RuntimeEventKind::Deleted] {
        let event = events.next().await.unwrap().unwrap();
        assert_eq!((event.uid.as_str(), event.id.as_str()), ("u", "c"));
        assert_eq!(event.kind, kind);
    }
    stage.server = None;
    let error = events.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unavailable, "{error}");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_quiet_stream_can_be_left_and_taken_up_again() {
    let stage = stage();
    let mut events = stage.client.events().await.unwrap();
    let nothing = tokio::time::timeout(Duration::from_millis(10), events.next()).await;
    assert!(nothing.is_err());
    let late = event("u", "c", proto::ContainerEventType::ContainerStoppedEvent);
    stage.fake.change(|world| world.events.push(late));
    let event = events.next().await.unwrap().unwrap();
    assert_eq!(event.kind, RuntimeEventKind::Stopped);
}

#[tokio::test]
async fn a_runtime_without_events_says_so_when_asked() {
    let stage = stage();
    let refusal = Status::unimplemented("unknown method GetContainerEvents");
    stage.fake.change(|world| world.refusing.insert("GetContainerEvents", refusal));
    let error = stage.client.events().await.err().unwrap();
    assert_eq!(error.kind, RuntimeErrorKind::Unimplemented);
}

#[tokio::test]
async fn a_commands_output_is_bounded() {
    let stage = stage();
    let command = ["echo".to_owned(), "hello".to_owned()];
    let id = ContainerId::from("c");
    let output = stage.client.exec(&id, &command, Duration::from_millis(1500));
    let output = output.await.unwrap();
    assert_eq!((output.code, output.stdout.len()), (7, 256 * 1024));
    assert_eq!(output.stderr, b"echo hello");
}

#[tokio::test]
async fn images_are_pulled_found_and_removed() {
    let stage = stage();
    let client = &stage.client;
    assert_eq!(client.image_status("busybox").await, Ok(None));
    let auth = RegistryAuth { username: "me".to_owned(), ..Default::default() };
    let sandbox = rich_sandbox();
    let request = PullRequest { image: "busybox", auth: Some(&auth), sandbox: Some(&sandbox) };
    let pulled = client.pull_image(request).await.unwrap();
    assert_eq!(pulled, "sha256:busybox");
    let told = stage.fake.look(|world| world.pulled_as.clone());
    assert_eq!(told.unwrap().username, "me");
    // Rules of the runtime may depend on whose image it is.
    let pulled_for = stage.fake.look(|world| world.pulled_for.clone()).unwrap();
    assert_eq!(pulled_for.metadata.unwrap().uid, sandbox.uid.to_string());
    let found = client.image_status("busybox").await.unwrap().unwrap();
    assert_eq!(client.list_images().await.unwrap(), [found]);
    client.remove_image("busybox").await.unwrap();
    assert!(client.list_images().await.unwrap().is_empty());
    let refusal = Status::unknown("failed to resolve reference");
    stage.fake.change(|world| world.refusing.insert("PullImage", refusal));
    let error = client.pull_image(PullRequest::of("busybox")).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to resolve reference");
}

#[tokio::test]
async fn streams_and_live_changes_reach_the_runtime() {
    let stage = stage();
    let client = &stage.client;
    let sandbox = client.run_sandbox(&rich_sandbox()).await.unwrap();
    let (sandbox_spec, spec) = (rich_sandbox(), rich_container());
    let container = client.create_container(&sandbox, &sandbox_spec, &spec);
    let container = container.await.unwrap();
    let streams = StreamOptions { tty: true, stdin: true, stdout: true, stderr: false };
    let command = ["sh".to_owned(), "-l".to_owned()];
    let url = client.exec_url(&container, &command, streams).await.unwrap();
    assert_eq!(url, "http://[::1]/exec/sh+-l");
    let url = client.port_forward_url(&sandbox, &[80]).await.unwrap();
    assert_eq!(url, "http://[::1]/forward/[80]");
    // This runtime forgets to say where to attach.
    let error = client.attach_url(&container, streams).await.unwrap_err();
    assert_eq!(error.message, "URL is not set");
    let less = LinuxResources { cpu_shares: 2, ..Default::default() };
    client.update_container(&container, &less).await.unwrap();
    let shares = stage.fake.look(|world| {
        let (_, config, _) = &world.containers[container.as_str()];
        let linux = config.linux.as_ref().unwrap();
        linux.resources.as_ref().unwrap().cpu_shares
    });
    assert_eq!(shares, 2);
    client.reopen_log(&container).await.unwrap();
    client.set_pod_cidr("10.0.0.0/24").await.unwrap();
    assert_eq!(stage.fake.look(|world| world.pod_cidr.clone()), "10.0.0.0/24");
}

//! Commands in the fake world, requests to real servers on loopback.

use ferrolet_ports::{ExecOutput, metrics::Counter};
use ferrolet_testkit::{FakeOutbound, World, container_spec, pod, sandbox_spec};
use ferrolet_types::{ContainerId, Pod};
use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPHeader, SleepAction, TCPSocketAction};
use tokio::time::Instant;

use super::*;
use crate::http::tests::Server;

fn call(handler: LifecycleHandler, pod: &Pod, id: &ContainerId) -> HookCall {
    HookCall {
        pod: pod.clone(),
        pod_ip: Some("127.0.0.1".to_owned()),
        container: Container { name: "c".to_owned(), ..Default::default() },
        id: id.clone(),
        handler,
    }
}

fn some_pod() -> Pod {
    pod("p").uid("u-1").container("c", "i").build()
}

async fn run(world: &World, handler: LifecycleHandler, id: &ContainerId) -> Result<(), String> {
    let runner =
        HookRunner::new(world.runtime(), world.events(), Arc::new(FakeOutbound::default()));
    let answer = runner.run(&call(handler, &some_pod(), id)).await;
    answer.map_err(|error| error.to_string())
}

/// Lifecycle hooks: exec.
#[tokio::test(start_paused = true)]
async fn commands_fail_with_upstreams_message() {
    let world = World::new();
    let pod = some_pod();
    world.add_image("i");
    let (runtime, sandbox) = (world.runtime(), sandbox_spec(&pod, 0));
    let sandbox_id = runtime.run_sandbox(&sandbox).await.unwrap();
    let spec = container_spec(&pod, "c", 0);
    let made = runtime.create_container(&sandbox_id, &sandbox, &spec).await;
    let id = made.unwrap();
    runtime.start_container(&id).await.unwrap();
    let command = ["sh", "-c", "exit 3"].map(str::to_owned).to_vec();
    let handler = LifecycleHandler {
        exec: Some(ExecAction { command: Some(command) }),
        ..Default::default()
    };
    assert_eq!(run(&world, handler.clone(), &id).await, Ok(()));
    let output = ExecOutput { code: 3, stdout: b"out\n".to_vec(), stderr: b"err".to_vec() };
    // However long it takes.
    world.exec_answers("c", Duration::from_secs(3600), output);
    let message = "Exec lifecycle hook ([sh -c exit 3]) for Container \"c\" in Pod \"p_default(u-1)\" failed - error: command 'sh -c exit 3' exited with 3: err, message: \"out\\nerr\"";
    assert_eq!(run(&world, handler, &id).await, Err(message.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn sleep_sleeps() {
    let handler =
        LifecycleHandler { sleep: Some(SleepAction { seconds: 30 }), ..Default::default() };
    let began = Instant::now();
    assert_eq!(run(&World::new(), handler, &"x".into()).await, Ok(()));
    assert_eq!(began.elapsed(), Duration::from_secs(30));
}

/// What is counted of one family.
fn count(counter: Counter<0>) -> f64 {
    process().samples_of(counter).iter().map(|it| it.value.total()).sum()
}

#[tokio::test(start_paused = true)]
async fn a_sleep_that_is_cut_short_is_counted() {
    let handler =
        LifecycleHandler { sleep: Some(SleepAction { seconds: 30 }), ..Default::default() };
    let before = count(metrics::KUBELET_SLEEP_ACTION_TERMINATED_EARLY_TOTAL);
    let (world, id) = (World::new(), "x".into());
    let asleep = run(&world, handler, &id);
    let cut = tokio::time::timeout(Duration::from_secs(5), asleep).await;
    assert!(cut.is_err());
    assert_eq!(count(metrics::KUBELET_SLEEP_ACTION_TERMINATED_EARLY_TOTAL), before + 1.0);
}

/// Lifecycle hooks: tcpSocket is not executed.
#[tokio::test]
async fn a_tcp_socket_is_no_handler() {
    let handler = LifecycleHandler {
        tcp_socket: Some(TCPSocketAction { host: None, port: IntOrString::Int(8080) }),
        ..Default::default()
    };
    let message = "Cannot run handler: invalid handler: &LifecycleHandler{Exec:nil,HTTPGet:nil,TCPSocket:&TCPSocketAction{Port:{0 8080 },Host:,},Sleep:nil,}";
    let answer = run(&World::new(), handler, &"x".into()).await;
    assert_eq!(answer, Err(message.to_owned()));
}

fn http_get(scheme: &str, port: u16) -> LifecycleHandler {
    LifecycleHandler {
        http_get: Some(HTTPGetAction {
            scheme: Some(scheme.to_owned()),
            path: Some("/echo".to_owned()),
            port: IntOrString::Int(i32::from(port)),
            http_headers: Some(vec![HTTPHeader {
                name: "Authorization".to_owned(),
                value: "secret".to_owned(),
            }]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[tokio::test]
async fn any_answer_to_a_request_is_good() {
    let world = World::new();
    let server = Server::says("HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n").await;
    let answer = run(&world, http_get("HTTP", server.port), &"x".into()).await;
    assert_eq!(answer, Ok(()));
    let asked = server.asked().remove(0);
    assert!(asked.starts_with("GET /echo HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("User-Agent: kube-lifecycle/1.37\r\n"), "{asked}");
    assert!(asked.contains("Authorization: secret\r\n"), "{asked}");
    assert!(world.recorded_events().is_empty());
}

#[tokio::test]
async fn no_answer_fails_with_upstreams_message() {
    let server = Server::says("").await;
    let answer = run(&World::new(), http_get("HTTP", server.port), &"x".into()).await;
    let message = format!(
        "HTTP lifecycle hook (/echo) for Container \"c\" in Pod \"p_default(u-1)\" failed - error: Get \"http://127.0.0.1:{}/echo\": EOF",
        server.port
    );
    assert_eq!(answer, Err(message));
}

/// Lifecycle hooks: HTTPS answered by plain HTTP.
#[tokio::test]
async fn a_server_without_tls_is_asked_again_without_credentials() {
    let world = World::new();
    let before = count(metrics::KUBELET_LIFECYCLE_HANDLER_HTTP_FALLBACKS_TOTAL);
    let server = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let answer = run(&world, http_get("HTTPS", server.port), &"x".into()).await;
    assert_eq!(answer, Ok(()));
    assert_eq!(count(metrics::KUBELET_LIFECYCLE_HANDLER_HTTP_FALLBACKS_TOTAL), before + 1.0);
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert!(!asked[1].contains("Authorization"), "{}", asked[1]);
    let event = world.recorded_events().remove(0).1;
    let message = format!(
        "request to HTTPS lifecycle hook 127.0.0.1:{} got HTTP response, retry with HTTP succeeded",
        server.port
    );
    let told = (event.reason.as_str(), event.message);
    assert_eq!(told, ("LifecycleHTTPFallback", message));
}

//! Looking into the process and into containers: profiles, verbosity, versioned pages, checkpoints.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrolet_ports::{Checkpoints, FileRoom, Fut, RuntimeError, RuntimeErrorKind, TRACED};
use ferrolet_testkit::{FakeStreams, FakeUsage};
use ferrolet_types::ContainerId;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

use super::rig::{Identity, Rig, Wish, read_all, split};

#[tokio::test]
async fn profiles_are_served_where_they_are_switched_on() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    for (path, part) in [
        ("/debug/pprof/", "<a href=\"heap?debug=1\">heap</a>"),
        ("/debug/pprof/cmdline", "kubelet\0-v=2"),
        ("/debug/pprof/symbol", "num_symbols: 0\n"),
        ("/debug/pprof/heap?debug=1", "1: 100 [4: 400] @ 0x10\n"),
        ("/debug/pprof/goroutine?debug=2", "total 1\n7 S main\n"),
        ("/debug/pprof/mutex?debug=1", "--- mutex:\n"),
        ("/debug/pprof/block?debug=1", "--- contention:\n"),
        ("/debug/pprof/threadcreate?debug=1", "threadcreate profile: total 1\n"),
    ] {
        let (status, text) = rig.ask(Some(&admin), "GET", path, "").await;
        assert_eq!(status, 200, "{path}: {text}");
        assert!(text.contains(part), "{path}: {text:?}");
    }
    for (path, status) in
        [("/debug/pprof/trace", 404), ("/debug/pprof/nothing", 404), ("/debug/nothing", 404)]
    {
        assert_eq!(rig.ask(Some(&admin), "GET", path, "").await.0, status, "{path}");
    }
    assert_eq!(rig.ask(Some(&admin), "POST", "/debug/pprof/heap", "").await.0, 405);
    for path in [
        "/debug/pprof/profile?seconds=2",
        "/debug/pprof/heap",
        "/debug/pprof/allocs",
        "/debug/pprof/block",
        "/debug/pprof/mutex",
    ] {
        let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await.unwrap();
        let head = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        let body = &answer[head + 4..];
        assert!(body.starts_with(b"\x1f\x8b"), "{path} is gzipped");
    }
}

/// Method, path, status, and the header that says what else there is or where.
const METHODS: [(&str, &str, u16, &str); 24] = [
    ("HEAD", "/pods", 405, "allow: GET"),
    ("POST", "/pods", 405, "allow: GET"),
    ("HEAD", "/stats/summary", 405, "allow: GET, POST"),
    ("PUT", "/stats/summary/", 405, "allow: GET, POST"),
    ("GET", "/stats", 307, "location: /stats/"),
    ("HEAD", "/metrics", 200, ""),
    ("PUT", "/configz", 200, "x-content-type-options: nosniff"),
    ("POST", "/flagz", 200, ""),
    ("HEAD", "/statusz", 200, ""),
    ("HEAD", "/logs/", 405, "allow: GET"),
    ("GET", "/logs?query=a&b", 307, "location: /logs/?query=a&b"),
    ("HEAD", "/runningpods/", 405, "allow: GET"),
    ("DELETE", "/runningpods", 307, "location: /runningpods/"),
    ("HEAD", "/debug/pprof/heap", 405, "allow: GET"),
    ("GET", "/debug/pprof", 307, "location: /debug/pprof/"),
    ("GET", "/run/default/web/main", 405, "allow: POST"),
    ("HEAD", "/exec/default/web/main", 405, "allow: GET, POST"),
    ("PUT", "/attach/default/web/main", 405, "allow: GET, POST"),
    ("HEAD", "/portForward/default/web", 405, "allow: GET, POST"),
    ("HEAD", "/containerLogs/default/web/main", 405, "allow: GET"),
    ("GET", "/checkpoint/default/web/main", 405, "allow: POST"),
    ("GET", "/checkpoint", 307, "location: /checkpoint/"),
    ("HEAD", "/allocatedPods", 405, "allow: GET"),
    ("GET", "/exec/default", 404, ""),
];

#[tokio::test]
async fn each_path_has_upstreams_methods() {
    // `HEAD` is no verb of the API, so nobody can be granted it by name.
    let rig = Rig::new(Wish { is_always_allowed: true, ..Wish::default() }).await;
    let admin = rig.admin();
    for (method, path, status, header) in METHODS {
        let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let (got, head, _) = split(&read_all(&mut stream).await);
        assert_eq!(got, status, "{method} {path}");
        let has_header = header.is_empty() || head.lines().any(|line| line == header);
        assert!(has_header, "{method} {path}: {head}");
    }
    for (path, words) in [
        ("/exec/default", "404: Page Not Found"),
        ("/pods/x", "404: Page Not Found"),
        ("/nothing", "404 page not found\n"),
    ] {
        let got = rig.ask(Some(&admin), "GET", path, "").await;
        assert_eq!(got, (404, words.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn what_is_switched_off_says_so() {
    let off = Wish { has_profiler: false, ..Wish::default() };
    let rig = Rig::new(off).await;
    let admin = rig.admin();
    for (method, path, words) in [
        ("GET", "/debug/pprof/", "profiling endpoint is disabled.\n"),
        ("GET", "/debug/pprof/heap", "profiling endpoint is disabled.\n"),
        ("PUT", "/debug/flags/v", "flags endpoint is disabled.\n"),
    ] {
        let got = rig.ask(Some(&admin), method, path, "").await;
        assert_eq!(got, (405, words.to_owned()), "{path}");
    }
    let none = Wish { has_debugging_handlers: false, ..Wish::default() };
    let rig = Rig::new(none).await;
    let admin = rig.admin();
    for (method, path, status) in [
        ("GET", "/debug/pprof/heap", 405),
        ("PUT", "/debug/flags/v", 404),
        ("GET", "/flagz", 404),
        ("GET", "/statusz", 404),
        ("POST", "/checkpoint/default/web/main", 404),
    ] {
        assert_eq!(rig.ask(Some(&admin), method, path, "").await.0, status, "{path}");
    }
}

async fn put(rig: &Rig, who: &Identity, body: &str) -> (u16, String) {
    let mut stream = rig.connect(Some(who), &["http/1.1"]).await.unwrap();
    let request = format!(
        "PUT /debug/flags/v HTTP/1.1\r\nHost: n\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let (status, _, body) = split(&read_all(&mut stream).await);
    (status, body)
}

#[tokio::test]
async fn verbosity_is_set_with_a_put() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let done = put(&rig, &admin, "6").await;
    let words = "successfully set klog.logging.verbosity to 6\n".to_owned();
    assert_eq!(done, (200, words));
    assert_eq!(rig.verbosity.load(Ordering::Relaxed), 6);
    let refused = put(&rig, &admin, "loud").await;
    let words = "strconv.ParseUint: parsing \"loud\": invalid syntax\n".to_owned();
    assert_eq!(refused, (400, words));
    assert_eq!(rig.ask(Some(&admin), "GET", "/debug/flags/v", "").await.0, 406);
    assert_eq!(put(&rig, &admin, &"9".repeat(100_000)).await.0, 413);
    assert_eq!(rig.verbosity.load(Ordering::Relaxed), 6);
    // Reading is not enough to change something.
    rig.reviews.allow("reader", "get", "proxy");
    let reader = rig.authority.client("reader", &[]);
    assert_eq!(put(&rig, &reader, "1").await.0, 403);
}

#[tokio::test]
async fn pages_are_versioned_objects_when_asked_for() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let ask = async |path: &str, accept: &str| {
        let header = format!("Accept: {accept}\r\n");
        rig.ask(Some(&admin), "GET", path, &header).await
    };
    let (status, body) = ask("/flagz", "application/json;as=Flagz;v=v1beta1;g=config.k8s.io").await;
    assert_eq!(status, 200);
    let start = "{\"kind\":\"Flagz\",\"apiVersion\":\"config.k8s.io/v1beta1\",\"metadata\":{\"name\":\"kubelet\"},\"flags\":{";
    assert!(body.starts_with(start), "{body}");
    let as_yaml = "application/yaml;as=Statusz;v=v1alpha1;g=config.k8s.io";
    let (status, body) = ask("/statusz", as_yaml).await;
    assert_eq!(status, 200);
    for line in [
        "kind: \"Statusz\"\n",
        "  name: \"kubelet\"\n",
        "binaryVersion: \"1.37.1\"\n",
        "emulationVersion: \"1.37\"\n",
        "paths:\n- \"/configz\"\n",
    ] {
        assert!(body.contains(line), "{body}");
    }
    assert_eq!(ask("/statusz", "*/*").await.0, 200);
    let as_cbor = "application/cbor;as=Statusz;v=v1beta1;g=config.k8s.io";
    let (status, body) = ask("/statusz", as_cbor).await;
    assert_eq!(status, 200);
    // The name with its length in front, and so the value.
    assert!(body.contains("MbinaryVersionF1.37.1"), "{body}");
    let (status, body) = ask("/flagz", "application/json").await;
    assert_eq!(status, 406);
    let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&answer["kind"], &answer["reason"]), (&"Status".into(), &"NotAcceptable".into()));
}

#[tokio::test]
async fn a_container_is_written_to_a_named_archive() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let ask = async |path: &str| rig.ask(Some(&admin), "POST", path, "").await;
    let (status, body) = ask("/checkpoint/default/web/main?timeout=1&timeout=300").await;
    assert_eq!(status, 200, "{body}");
    let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
    let location = answer["items"][0].as_str().unwrap();
    let start = "/var/lib/kubelet/checkpoints/checkpoint-web_default-main-20";
    assert!(location.starts_with(start) && location.ends_with("Z.tar"), "{location}");
    let asked = format!("checkpoint {} {location} 300", rig.container);
    assert_eq!(rig.streams.asked(), [asked]);
    for (path, status, words) in [
        ("/checkpoint/default/nope/main", 404, "pod does not exist"),
        ("/checkpoint/default/web/nope", 404, "container nope does not exist"),
        ("/checkpoint/default/web/main?timeout=x", 404, "cannot parse value of timeout parameter"),
        (
            "/checkpoint/default/web/main?timeout=-1",
            500,
            "checkpointing of default/web/main failed (CheckpointContainer requires the timeout value to be > 0)",
        ),
    ] {
        assert_eq!(ask(path).await, (status, words.to_owned()), "{path}");
    }
    let get = rig.ask(Some(&admin), "GET", "/checkpoint/default/web/main", "").await;
    assert_eq!(get.0, 405);
    // A right to something else is none to this.
    rig.reviews.allow("reader", "create", "proxy");
    let reader = rig.authority.client("reader", &[]);
    let refused = rig.ask(Some(&reader), "POST", "/checkpoint/default/web/main", "").await;
    assert_eq!(refused.0, 403);
}

/// CVE-2025-0426: archives filled the disk.
#[tokio::test]
async fn a_disk_that_is_nearly_full_gets_no_more_archives() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let room = |available| FileRoom { capacity: 1000, available, ..FileRoom::default() };
    for (available, status) in [(500, 200), (99, 500), (100, 200)] {
        rig.usage.set_room(room(available));
        let path = "/checkpoint/default/web/main";
        let (got, words) = rig.ask(Some(&admin), "POST", path, "").await;
        assert_eq!(got, status, "{available}: {words}");
        let is_told = words.contains("less than 10 % of the disk are free");
        assert_eq!(is_told, status == 500, "{words}");
    }
    assert_eq!(rig.streams.asked().len(), 2);
}

/// A disk on which one archive takes what room there is, after a while.
struct LastRoom(FakeUsage);

impl Checkpoints for LastRoom {
    fn checkpoint<'a>(
        &'a self,
        _id: &'a ContainerId,
        _location: &'a Path,
        _timeout: u32,
    ) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.0.set_room(FileRoom { capacity: 1000, available: 50, ..FileRoom::default() });
            Ok(())
        })
    }
}

#[tokio::test]
async fn archives_that_are_asked_for_at_once_do_not_share_the_last_room() {
    let usage = FakeUsage::default();
    usage.set_room(FileRoom { capacity: 1000, available: 500, ..FileRoom::default() });
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(LastRoom(usage.clone()));
    let rig = Rig::new(Wish { usage, checkpoints: Some(checkpoints), ..Wish::default() }).await;
    let admin = rig.admin();
    let ask = || rig.ask(Some(&admin), "POST", "/checkpoint/default/web/main", "");
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    let mut statuses = [one.0, two.0, three.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 500, 500]);
}

#[tokio::test]
async fn a_runtime_that_cannot_write_checkpoints_is_quoted() {
    let error = RuntimeError {
        call: "CheckpointContainer",
        kind: RuntimeErrorKind::Unimplemented,
        message: "no criu".to_owned(),
    };
    let words = format!("checkpointing of default/web/main failed ({error})");
    let wish = Wish { streams: FakeStreams::new(Err(error)), ..Wish::default() };
    let rig = Rig::new(wish).await;
    let admin = rig.admin();
    let got = rig.ask(Some(&admin), "POST", "/checkpoint/default/web/main", "").await;
    assert_eq!(got, (500, words));
}

/// Spans that were opened for traces, with their fields.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        *self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl<S: Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if attributes.metadata().target() == TRACED {
            let mut text = attributes.metadata().name().to_owned();
            attributes.record(&mut Fields(&mut text));
            self.0.lock().unwrap().push(text);
        }
    }
}

#[tokio::test]
async fn requests_of_guests_are_traced_and_those_of_strangers_are_not() {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    // With one subscriber alone the first thread that comes along, which may be another test's,
    // decides for all what is of interest.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let _guard = tracing::subscriber::set_default(subscriber);
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let parent = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    rig.ask(None, "GET", "/pods", parent).await;
    assert!(spans.0.lock().unwrap().is_empty(), "a stranger");
    rig.ask(Some(&admin), "GET", "/containerLogs/default/web/main", parent).await;
    rig.ask(Some(&admin), "GET", "/made-up", "").await;
    let seen = spans.0.lock().unwrap().clone();
    let requests: Vec<&String> = seen.iter().filter(|it| it.starts_with("request")).collect();
    assert_eq!(requests.len(), 2, "{seen:?}");
    for part in ["otel.name=GET /containerLogs", "traceparent=\"00-0af7", "otel.kind=\"server\""] {
        assert!(requests[0].contains(part), "{part} in {}", requests[0]);
    }
    assert!(requests[1].contains("otel.name=GET /other"), "{}", requests[1]);
    assert!(!requests[1].contains("traceparent"), "{}", requests[1]);
}

#[tokio::test]
async fn pods_are_shown_with_what_they_were_granted() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let ask = async |path: &str| rig.ask(Some(&admin), "GET", path, "").await;
    let cpu = "/spec/containers/0/resources/requests/cpu";
    for (path, start) in [
        ("/allocatedPods", "/items/0"),
        ("/allocatedPods/default/web", ""),
        ("/allocatedPods/default/web/uid-web", ""),
    ] {
        let (status, body) = ask(path).await;
        assert_eq!(status, 200, "{path}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let granted = body.pointer(&format!("{start}{cpu}"));
        assert_eq!(granted, Some(&json!("500m")), "{path}");
        let shown = body.pointer(&format!("{start}/status"));
        assert_eq!(shown, Some(&json!({})), "{path}");
    }
    for path in ["/allocatedPods/default/nobody", "/allocatedPods/default/web/another"] {
        assert_eq!(ask(path).await, (404, "pod not found".to_owned()), "{path}");
    }
    // A pod that has ended holds nothing.
    for pod in rig.board.0.lock().unwrap().iter_mut() {
        let ended = Arc::make_mut(pod);
        ended.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    }
    let (_, body) = ask("/allocatedPods").await;
    assert!(body.contains("\"items\":[]"), "{body}");
    assert_eq!(ask("/allocatedPods/default/web").await.0, 404);
}

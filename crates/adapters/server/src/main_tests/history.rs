//! Published holes of kubelets that concern the server, each with a test that names it.
//!
//! | row | test |
//! | --- | --- |
//! | CVE-2018-1002105 | `streams::an_upgrade_that_fails_half_way_is_an_answer_and_the_end`, `attackers::upgrades_that_fail_half_way_leave_nothing` |
//! | CVE-2019-11248 | `cve_2019_11248_the_health_port_serves_health_only` |
//! | CVE-2020-8551 | `cve_2020_8551_made_up_requests_make_no_figures` |
//! | CVE-2020-8559 | `cve_2020_8559_redirects_of_a_runtime_are_not_passed_on` |
//! | CVE-2020-8564, CVE-2020-8565 | `cve_2020_8564_credentials_are_in_no_log_line` |
//! | CVE-2022-31030, CVE-2022-1708 | `cri` `tests::a_commands_output_is_bounded` |
//! | CVE-2022-23471, CVE-2025-64329 (streams whose tasks stay) | `bridge::a_client_that_goes_ends_the_runtimes_connection`, `attackers::upgrades_that_fail_half_way_leave_nothing` |
//! | CVE-2024-5321 | `host` `files::tests::the_layout_and_its_modes_are_upstreams` |
//! | CVE-2024-9042 | `cve_2024_9042_a_log_query_is_a_name_and_nothing_more`, `log_query::tests`, `host` `journal::tests::names_that_are_not_plain_are_never_passed_on` |
//! | CVE-2025-0426, CVE-2025-46599 | `cve_2025_0426_what_writes_is_not_on_the_read_only_port`, `inside::a_disk_that_is_nearly_full_gets_no_more_archives` |
//! | kubernetes#83465, KEP-2862 | `identities::commands_need_create_whatever_the_method` |
//! | /var/log symlinks | tests of `host::system_logs` and `host::logs`; e2e `planted_links_are_not_followed_by_any_log_endpoint` |
//! | anonymous access | `identities::each_identity_gets_exactly_what_it_was_granted` |
//! | RUSTSEC-2024-0003 (resets) | `limits::a_flood_of_resets_ends_the_connection` |
//! | RUSTSEC-2024-0332 (continuations) | `attackers::a_flood_of_continuations_ends_the_connection` |
//! | RUSTSEC-2026-0258 | `rustsec_2026_0258_the_http2_library_has_the_fix` |

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use ferrolet_testkit::FakeStreams;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::rig::{Rig, Wish, read_all, split};
use super::runtime::runtime;
use crate::{Limits, Listener, Server, Views, router};

/// The status that a plain listener answers with.
async fn plain_status(listener: Listener, rig: &Rig, method: &str, path: &str) -> u16 {
    let views = Views { pods: rig.board.clone(), checks: Arc::new([]) };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::bind(any).await.unwrap();
    let address = server.address();
    let rows = router(listener, views);
    let task = tokio::spawn(server.serve(rows, Limits::LOCAL, std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    task.abort();
    split(&String::from_utf8_lossy(&answer)).0
}

#[tokio::test]
async fn cve_2019_11248_the_health_port_serves_health_only() {
    let rig = Rig::new(Wish::default()).await;
    let check = async |path: &str, expected: u16| {
        let got = plain_status(Listener::Health, &rig, "GET", path).await;
        assert_eq!(got, expected, "{path}");
    };
    check("/healthz", 200).await;
    for path in [
        "/debug/pprof/",
        "/debug/pprof/heap",
        "/debug/flags/v",
        "/metrics",
        "/metrics/cadvisor",
        "/stats/summary",
        "/pods",
        "/runningpods/",
        "/configz",
        "/flagz",
        "/statusz",
        "/logs/",
        "/page/",
        "/containerLogs/default/web/main",
        "/exec/default/web/main",
    ] {
        check(path, 404).await;
    }
}

#[tokio::test]
async fn cve_2025_0426_what_writes_is_not_on_the_read_only_port() {
    let rig = Rig::new(Wish::default()).await;
    for (method, path) in [
        ("POST", "/checkpoint/default/web/main"),
        ("GET", "/checkpoint/default/web/main"),
        ("POST", "/run/default/web/main?cmd=id"),
        ("POST", "/exec/default/web/main?output=1"),
        ("GET", "/containerLogs/default/web/main"),
        ("GET", "/logs/syslog"),
        ("GET", "/configz"),
        ("GET", "/flagz"),
        ("PUT", "/debug/flags/v"),
        ("GET", "/page/"),
    ] {
        let got = plain_status(Listener::ReadOnly, &rig, method, path).await;
        // Some are named as switched off, as by upstream; none is done.
        assert!([404, 405].contains(&got), "{method} {path}: {got}");
    }
    assert_eq!(plain_status(Listener::ReadOnly, &rig, "GET", "/pods").await, 200);
}

#[tokio::test]
async fn cve_2020_8551_made_up_requests_make_no_figures() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let lines = async || {
        let (status, text) = rig.ask(Some(&admin), "GET", "/metrics", "").await;
        assert_eq!(status, 200);
        text.lines().filter(|line| line.starts_with("kubelet_http_requests_total")).count()
    };
    // Everything that a made-up request can be counted as.
    rig.ask(Some(&admin), "GET", "/made-up", "").await;
    rig.ask(Some(&admin), "MADEUP", "/made-up", "").await;
    lines().await;
    let before = lines().await;
    for i in 0..50 {
        let path = format!("/made-up-{i}");
        rig.ask(Some(&admin), "GET", &path, "").await;
        rig.ask(Some(&admin), &format!("MADEUP{i}"), "/made-up", "").await;
    }
    assert_eq!(lines().await, before);
}

#[tokio::test]
async fn cve_2020_8559_redirects_of_a_runtime_are_not_passed_on() {
    for code in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect"] {
        let answer = format!(
            "HTTP/1.1 {code}\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
        );
        let (address, runtime) = runtime(answer, |_| async {}).await;
        let rig = Rig::new(Wish {
            streams: FakeStreams::new(Ok(format!("http://{address}/token"))),
            ..Wish::default()
        })
        .await;
        let admin = rig.admin();
        let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        let request = "POST /exec/default/web/main?output=1 HTTP/1.1\r\nHost: x\r\n\
                       Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let whole = read_all(&mut stream).await;
        assert_eq!(split(&whole).0, 500, "{whole}");
        assert!(!whole.contains("169.254"), "{whole}");
        runtime.await.unwrap();
    }
}

#[tokio::test]
async fn cve_2024_9042_a_log_query_is_a_name_and_nothing_more() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    // What would be a command is not even a name.
    for query in [
        "syslog;id",
        "syslog%26%26id",
        "%24(id)",
        "%60id%60",
        "syslog%7Cid",
        "syslog%0Aid",
        "%22%3Bid",
        "syslog%00",
        "../etc/shadow",
        "a/../../etc/shadow",
        "kubelet&pattern=x%0Ay",
    ] {
        let path = format!("/logs/?query={query}");
        let (status, text) = rig.ask(Some(&admin), "GET", &path, "").await;
        assert_eq!(status, 406, "{query}: {text}");
    }
    // These are names, of logs that are not there, and never options.
    for query in ["--version", "-rf", ".."] {
        let path = format!("/logs/?query={query}");
        let answer = rig.ask(Some(&admin), "GET", &path, "").await;
        assert_eq!(answer, (200, format!("\nlog not found for {query}\n")));
    }
    assert_eq!(rig.ask(Some(&admin), "GET", "/logs/?query=", "").await.0, 400);
}

/// What was logged.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn cve_2020_8564_credentials_are_in_no_log_line() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    // With one subscriber alone the first thread that comes along, which may be another test's,
    // decides for all what is of interest.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let _guard = tracing::subscriber::set_default(subscriber);
    let rig = Rig::new(Wish::default()).await;
    let bearer = "Authorization: Bearer hunter2\r\n";
    let protocol = "Upgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.aHVudGVyMg\r\n";
    let basic = "Authorization: Basic aHVudGVyMjpodW50ZXIy\r\nCookie: token=hunter2\r\n";
    for headers in [bearer, protocol, basic] {
        for path in ["/pods", "/exec/default/web/main?output=1&command=id"] {
            let (status, text) = rig.ask(None, "GET", path, headers).await;
            assert!([401, 403].contains(&status), "{status} {text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
    // The fake names the token in its errors, so this one is no secret.
    rig.reviews.set_away(true);
    rig.ask(None, "GET", "/pods", "Authorization: Bearer other\r\n").await;
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert!(!text.is_empty(), "nothing was logged at all");
    for secret in ["hunter2", "aHVudGVyMg"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn rustsec_2026_0258_the_http2_library_has_the_fix() {
    let lock = include_str!("../../../../../Cargo.lock");
    let (_, rest) = lock.split_once("name = \"h2\"\nversion = \"").expect("the library is there");
    let version = rest.split('"').next().unwrap_or_default();
    let parts: Vec<u32> = version.split('.').map(|it| it.parse().unwrap()).collect();
    assert!(parts >= vec![0, 4, 16], "{version}");
}

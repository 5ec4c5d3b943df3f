//! `/containerLogs` from query to pieces.

use std::sync::Arc;

use ferrolet_ports::LogOutput;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::rig::{Rig, SOON, Wish, read_all, read_head, split};

#[tokio::test]
async fn the_right_file_is_read_as_asked() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    rig.logs.append(&rig.log_path, b"one\n");
    rig.logs.append(&rig.log_path, b"two\n");
    let path =
        "/containerLogs/default/web/main?tailLines=5&limitBytes=9&timestamps=true&sinceSeconds=60";
    let (status, body) = rig.ask(Some(&admin), "GET", path, "").await;
    assert_eq!((status, body.as_str()), (200, "one\ntwo\n"));
    let ask = &rig.logs.asks()[0];
    assert_eq!((ask.tail_lines, ask.limit_bytes), (Some(5), Some(9)));
    assert!(ask.with_timestamps && ask.since.is_some() && ask.follow.is_none());
    assert_eq!(ask.output, LogOutput::All);
}

#[tokio::test]
async fn refusals_have_upstreams_status_and_words() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let check = async |path: &str, status: u16, words: &str| {
        let got = rig.ask(Some(&admin), "GET", path, "").await;
        assert_eq!(got, (status, words.to_owned()), "{path}");
    };
    check("/containerLogs/default/nope/main", 404, "pod \"nope\" does not exist").await;
    check("/containerLogs/default/web/nope", 404, "container \"nope\" not found in pod \"web\"")
        .await;
    check(
        "/containerLogs/default/web/main?tailLines=x",
        400,
        "{\"message\": \"Unable to decode query.\"}",
    )
    .await;
    check(
        "/containerLogs/default/web/main?tailLines=-1",
        422,
        "{\"message\": \"Invalid request.\"}",
    )
    .await;
    check(
        "/containerLogs/default/web/main?previous=true",
        400,
        "previous terminated container \"main\" in pod \"web\" not found",
    )
    .await;
    let missing = format!("open {}: no such file", rig.log_path);
    check("/containerLogs/default/web/main", 400, &missing).await;
    assert_eq!(rig.ask(Some(&admin), "POST", "/containerLogs/default/web/main", "").await.0, 405);
}

#[tokio::test]
async fn a_followed_log_goes_on_until_its_container_ends() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    rig.logs.append(&rig.log_path, b"first\n");
    let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
    let request = "GET /containerLogs/default/web/main?follow=true HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(split(&read_head(&mut stream).await).0, 200);
    let mut heard = [0; 11];
    tokio::time::timeout(SOON, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(&heard, b"6\r\nfirst\n\r\n");
    rig.logs.append(&rig.log_path, b"later\n");
    tokio::time::timeout(SOON, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(&heard, b"6\r\nlater\n\r\n");
    {
        let mut pods = rig.board.0.lock().unwrap();
        let mut ended = (*pods[0]).clone();
        let statuses = &mut ended.status.as_mut().unwrap().container_statuses;
        statuses.as_mut().unwrap()[0].state = None;
        pods[0] = Arc::new(ended);
    }
    assert_eq!(read_all(&mut stream).await, "0\r\n\r\n");
}

#[tokio::test]
async fn system_logs_are_listed_read_and_found_by_service() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    for (path, status, part) in [
        ("/logs/", 200, "<a href=\"syslog\">syslog</a>"),
        ("/logs/syslog", 200, "a line\n"),
        ("/logs/nothing", 404, "404 page not found"),
        ("/logs/?query=syslog", 200, "a line\n"),
        ("/logs/?query=/syslog", 200, "a line\n"),
        ("/logs/?query=nobody", 200, "\nlog not found for nobody\n"),
        ("/logs/?query=kubelet", 200, "first\nlast\n"),
        ("/logs/?query=kubelet&tailLines=1", 200, "last\n"),
        ("/logs/?query=kubelet&query=syslog", 200, "last\na line\n"),
        (
            "/logs/?query=syslog&boot=0",
            200,
            "\noptions present and query resolved to log files for [syslog]\ntry without",
        ),
        ("/logs/syslog?query=kubelet", 406, "path not allowed in query mode"),
        ("/logs/?query=../etc/shadow", 406, "path escapes"),
        ("/logs/?query=kubelet&tailLines=x", 400, "tailLines: Invalid value"),
        ("/logs/?query=kubelet&boot=1", 406, "must be less than 1"),
        ("/logs/../etc/shadow", 400, "invalid path"),
        ("/logs/%2e%2e/etc/shadow", 400, "invalid path"),
        ("/logs/..%2fetc%2fshadow", 400, "invalid path"),
    ] {
        let (got, text) = rig.ask(Some(&admin), "GET", path, "").await;
        assert_eq!(got, status, "{path}: {text}");
        assert!(text.contains(part), "{path}: {text}");
    }
    let reader = rig.authority.client("reader", &[]);
    assert_eq!(rig.ask(Some(&reader), "GET", "/logs/", "").await.0, 403);
    rig.reviews.allow("reader", "get", "log");
    let reader = rig.authority.client("reader", &["again"]);
    assert_eq!(rig.ask(Some(&reader), "GET", "/logs/", "").await.0, 200);
}

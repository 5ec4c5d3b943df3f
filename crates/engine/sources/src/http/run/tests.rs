use std::{collections::VecDeque, sync::Mutex};

use ferrolet_ports::Fut;
use ferrolet_types::pod::PodView as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::Instant,
};

use super::*;
use crate::http::{Answer, ClientError, HttpClient};

const URL: &str = "http://example.invalid/pods";

fn pod(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: m, image: i}}]}}}}"
    )
}

fn ok(body: impl Into<Vec<u8>>) -> Result<Answer, String> {
    Ok(Answer { status: 200, body: body.into() })
}

fn names(update: &SourceUpdate) -> Vec<String> {
    update.pods.iter().map(|sourced| sourced.pod.key().to_string()).collect()
}

#[test]
fn a_pod_or_a_list_is_sent_and_an_unchanged_body_is_not() {
    let mut pods = UrlSet::new(URL, "n");
    let update = pods.answer(ok(pod("a"))).update.unwrap();
    assert_eq!(names(&update), ["default/a-n"]);
    assert_eq!(pods.answer(ok(pod("a"))).update, None);
    let list = format!("apiVersion: v1\nkind: PodList\nitems:\n- {}\n- {}\n", pod("a"), pod("b"));
    let update = pods.answer(ok(list)).update.unwrap();
    assert_eq!(names(&update), ["default/a-n", "default/b-n"]);
    let update = pods.answer(ok("kind: PodList\napiVersion: v1\n")).update.unwrap();
    assert!(update.pods.is_empty());
}

#[test]
fn an_empty_body_is_an_empty_set() {
    let mut pods = UrlSet::new(URL, "n");
    pods.answer(ok(pod("a")));
    let answered = pods.answer(ok(""));
    assert!(answered.update.unwrap().pods.is_empty());
    assert_eq!(answered.notices.len(), 1);
    assert_eq!(names(&pods.answer(ok(pod("a"))).update.unwrap()).len(), 1);
}

#[test]
fn failures_keep_the_last_good_set_and_are_told_four_times() {
    let mut pods = UrlSet::new(URL, "n");
    pods.answer(ok(pod("a")));
    let failure = || Ok(Answer { status: 503, body: b"busy".to_vec() });
    let told: Vec<String> = (0..8)
        .flat_map(|_| {
            let answered = pods.answer(failure());
            assert_eq!(answered.update, None);
            answered.notices
        })
        .map(|notice| notice.message)
        .collect();
    let message = "the manifest URL answers with status 503";
    assert_eq!(told.len(), 4);
    assert_eq!(told[0], message);
    assert_eq!(told[3], format!("{message} (not told again until it works)"));
    let answered = pods.answer(ok(pod("a")));
    assert_eq!(answered.update, None);
    assert_eq!(answered.notices[0].message, "the manifest URL can be read again");
}

#[test]
fn a_bad_body_names_its_faults_with_the_entry() {
    let mut pods = UrlSet::new(URL, "n");
    let bad = "{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: []}}";
    let list = format!("apiVersion: v1\nkind: PodList\nitems: [{}, {bad}]", pod("a"));
    let answered = pods.answer(ok(list));
    assert_eq!(answered.update, None);
    assert_eq!(answered.notices[0].message, "items[1].spec.containers: required value is missing");
}

/// Answers one after the other, then hangs.
struct FakeServer(Mutex<VecDeque<Result<Answer, String>>>);

impl Fetch for FakeServer {
    fn get(&self) -> Fut<'_, Result<Answer, String>> {
        let answer = self.0.lock().unwrap().pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

/// The next update; an hour without one is a failure, and costs nothing.
async fn next(updates: &mut mpsc::Receiver<SourceUpdate>) -> SourceUpdate {
    let update = timeout(Duration::from_secs(3600), updates.recv()).await;
    update.expect("an update within the hour").expect("the loop runs")
}

#[tokio::test(start_paused = true)]
async fn the_url_is_asked_every_period_and_a_hanging_request_is_given_up() {
    let answers = [Err("connection refused".to_owned()), ok(pod("a")), ok(pod("b"))];
    let server = Arc::new(FakeServer(Mutex::new(answers.into())));
    let (sender, mut updates) = mpsc::channel(4);
    let source =
        HttpSource { url: URL.to_owned(), node: "n".to_owned(), period: Duration::from_secs(20) };
    let began = Instant::now();
    let task = tokio::spawn(run(source, server.clone(), sender));
    assert_eq!(names(&next(&mut updates).await), ["default/a-n"]);
    assert_eq!(began.elapsed(), Duration::from_secs(20));
    assert_eq!(names(&next(&mut updates).await), ["default/b-n"]);
    // The server hangs now: ten seconds, then another period.
    sleep(Duration::from_secs(31)).await;
    server.0.lock().unwrap().extend([ok(pod("c"))]);
    assert_eq!(names(&next(&mut updates).await), ["default/c-n"]);
    drop(updates);
    task.await.unwrap();
}

/// A server on loopback that answers each connection with the next of `answers` and hands back what
/// it was asked.
async fn serve(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/pods", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            requests.push(String::from_utf8(request).unwrap());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    (url, task)
}

#[tokio::test]
async fn the_client_sends_its_headers_and_follows_redirects() {
    let (url, server) = serve(vec![
        "HTTP/1.1 302 Found\r\nlocation: /other\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            .to_owned(),
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi".to_owned(),
    ])
    .await;
    let client = HttpClient::new(&url, [("X-Token", "secret"), ("X-Token", "again")], b"").unwrap();
    let answer = client.get().await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"hi"[..]));
    let requests = server.await.unwrap();
    assert!(requests[1].starts_with("GET /other HTTP/1.1\r\n"), "{requests:?}");
    assert!(
        requests.iter().all(|it| it.contains("x-token: secret") && it.contains("x-token: again"))
    );
}

#[tokio::test]
async fn a_body_that_never_ends_is_cut_off() {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
    let (url, _server) =
        serve(vec![format!("{head}{}", " ".repeat(crate::manifest::MAX_BYTES + 1))]).await;
    let answer = HttpClient::new(&url, [], b"").unwrap().get().await;
    assert!(answer.unwrap_err().contains("limit"), "too large");
}

#[tokio::test]
async fn nobody_at_home_is_an_error_with_its_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let fault = HttpClient::new(&url, [], b"").unwrap().get().await.unwrap_err();
    assert!(fault.contains("refused"), "{fault}");
}

#[test]
fn urls_headers_and_roots_are_checked_at_the_start() {
    let made = |url: &str| HttpClient::new(url, [], b"").map(|_| ());
    assert!(made("http://localhost:1/x").is_ok());
    for url in ["", "x", "/a", "ftp://a/", "http://", "http:///x"] {
        assert!(matches!(made(url), Err(ClientError::Url { .. })), "{url}");
    }
    assert!(matches!(made("https://localhost/"), Err(ClientError::Roots { .. })));
    let bad = HttpClient::new("http://a/", [("a b", "c")], b"");
    assert!(matches!(bad, Err(ClientError::Header { .. })));
}

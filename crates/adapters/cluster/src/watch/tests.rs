use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::*;
use crate::fake::FakeApi;

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/n/configmaps/{name}")
}

fn object(name: &str, value: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "n",
        "managedFields": [{"manager": "me"}]}, "data": {"k": value}})
}

fn start(api: &FakeApi) -> mpsc::Receiver<WatchEvent<ConfigMap>> {
    let (sink, events) = mpsc::channel(8);
    let scope = Scope { namespace: Some("n".to_owned()), ..Scope::default() };
    tokio::spawn(run(api.client(), scope, sink));
    events
}

async fn next(events: &mut mpsc::Receiver<WatchEvent<ConfigMap>>) -> String {
    let describe = |object: ConfigMap| {
        assert_eq!(object.metadata.managed_fields, None);
        let value = object.data.unwrap_or_default().remove("k");
        format!("{}={}", object.metadata.name.unwrap(), value.unwrap())
    };
    match events.recv().await.expect("the watch goes on") {
        WatchEvent::Restarted { objects, .. } => {
            let all: Vec<String> = objects.into_iter().map(describe).collect();
            format!("restarted {}", all.join(" "))
        }
        WatchEvent::Applied(object) => format!("applied {}", describe(object)),
        WatchEvent::Deleted(object) => format!("deleted {}", describe(object)),
    }
}

#[tokio::test(start_paused = true)]
async fn a_collection_becomes_a_channel_of_changes() {
    let api = FakeApi::new();
    api.put(&path("a"), object("a", "1"));
    let mut events = start(&api);
    assert_eq!(next(&mut events).await, "restarted a=1");
    api.put(&path("b"), object("b", "1"));
    assert_eq!(next(&mut events).await, "applied b=1");
    api.put(&path("a"), object("a", "2"));
    assert_eq!(next(&mut events).await, "applied a=2");
    api.remove(&path("b"));
    assert_eq!(next(&mut events).await, "deleted b=1");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_resumed_without_listing_again_and_nothing_is_lost() {
    let api = FakeApi::new();
    let mut events = start(&api);
    assert_eq!(next(&mut events).await, "restarted ");
    api.until("watching", |api| api.lines().len() == 2).await;
    api.go_away();
    api.put(&path("a"), object("a", "1"));
    api.until("tried in vain", |api| api.n_dials() > 4).await;
    api.come_back();
    assert_eq!(next(&mut events).await, "applied a=1");
    let lists = api.lines().into_iter().filter(|line| !line.contains("watch=1"));
    assert_eq!(lists.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_version_means_listing_again() {
    let api = FakeApi::new();
    let mut events = start(&api);
    assert_eq!(next(&mut events).await, "restarted ");
    api.until("watching", |api| api.lines().len() == 2).await;
    api.go_away();
    api.put(&path("a"), object("a", "1"));
    api.compact();
    api.come_back();
    assert_eq!(next(&mut events).await, "restarted a=1");
    let last = api.lines().into_iter().rfind(|line| !line.contains("watch=1"));
    assert_eq!(last.unwrap(), "GET /api/v1/namespaces/n/configmaps");
}

#[tokio::test(start_paused = true)]
async fn a_client_told_to_reconnect_resumes_where_it_was() {
    let api = FakeApi::new();
    let client = api.client();
    let (sink, mut events) = mpsc::channel(8);
    tokio::spawn(run(client.clone(), Scope::default(), sink));
    assert_eq!(next(&mut events).await, "restarted ");
    api.until("watching", |api| api.lines().len() == 2).await;
    client.reconnect();
    api.until("watching again", |api| api.lines().len() == 3).await;
    assert_eq!(api.n_dials(), 2);
    api.put(&path("a"), object("a", "1"));
    assert_eq!(next(&mut events).await, "applied a=1");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_nobody_ends_is_ended_here() {
    let api = FakeApi::new();
    let mut events = start(&api);
    assert_eq!(next(&mut events).await, "restarted ");
    api.until("watching", |api| api.lines().len() == 2).await;
    let began = Instant::now();
    // The fake never ends a watch, whatever time was asked for.
    api.until("watching anew", |api| api.lines().len() == 3).await;
    let passed = began.elapsed();
    assert!(passed >= WATCH_AT_LEAST + OVERTIME, "{passed:?}");
    assert!(passed <= WATCH_AT_LEAST * 2 + OVERTIME + Duration::from_secs(1), "{passed:?}");
    api.put(&path("a"), object("a", "1"));
    assert_eq!(next(&mut events).await, "applied a=1");
}

#[tokio::test(start_paused = true)]
async fn the_loop_ends_with_its_receiver() {
    let api = FakeApi::new();
    let (sink, events) = mpsc::channel(8);
    let task = tokio::spawn(run::<ConfigMap>(api.client(), Scope::default(), sink));
    drop(events);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_somebody_else_ends_a_long_wait() {
    let api = FakeApi::new();
    let client = api.client();
    let (sink, mut events) = mpsc::channel(8);
    tokio::spawn(run(client.clone(), Scope::default(), sink));
    assert_eq!(next(&mut events).await, "restarted ");
    api.until("watching", |api| api.lines().len() == 2).await;
    api.go_away();
    api.put(&path("a"), object("a", "1"));
    // By now it sleeps for a quarter of a minute at least.
    sleep(Duration::from_secs(600)).await;
    let n_dials = api.n_dials();
    api.until("one more try", |api| api.n_dials() > n_dials).await;
    api.come_back();
    let began = Instant::now();
    let place = Place::one::<ConfigMap>(Some("n"), "a");
    client.get::<ConfigMap>(&place).await.unwrap();
    assert_eq!(next(&mut events).await, "applied a=1");
    assert!(began.elapsed() < Duration::from_secs(1));
}

use serde_json::{Value, json};

use super::*;
use crate::fake::{FakeApi, TokioClock};

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/n/configmaps/{name}")
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "n"}, "data": {"k": value}})
}

fn pod(uid: &str, config_maps: &[&str]) -> Pod {
    let volumes: Vec<Value> =
        config_maps.iter().map(|name| json!({"name": name, "configMap": {"name": name}})).collect();
    let pod = json!({"metadata": {"name": uid, "namespace": "n", "uid": uid}, "spec": {"containers": [], "volumes": volumes}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn objects(api: &FakeApi, strategy: Strategy) -> Objects {
    let tokens = Tokens::new(api.client(), Arc::new(TokioClock));
    Objects::new(api.client(), tokens, strategy)
}

async fn value(objects: &Objects, name: &str) -> String {
    let found = objects.get_config_map("n", name).await.unwrap();
    found.data.as_ref().unwrap()["k"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_watched_object_is_read_once_followed_and_announced() {
    let api = FakeApi::new();
    api.put(&path("m"), config_map("m", "1"));
    let objects = objects(&api, Strategy::Watch);
    let mut changes = objects.changes();
    objects.register(&pod("a", &["m"]));
    objects.register(&pod("b", &["m"]));
    assert_eq!(value(&objects, "m").await, "1");
    let change = ObjectChange {
        kind: ObjectKind::ConfigMap,
        namespace: "n".to_owned(),
        name: "m".to_owned(),
    };
    assert_eq!(changes.recv().await.unwrap(), change);
    api.until("watching", |api| api.lines().len() == 2).await;
    api.put(&path("m"), config_map("m", "2"));
    assert_eq!(changes.recv().await.unwrap(), change);
    assert_eq!(value(&objects, "m").await, "2");
    api.remove(&path("m"));
    changes.recv().await.unwrap();
    let error = objects.get_config_map("n", "m").await.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(api.lines().len(), 2);
    assert!(api.lines()[1].contains("fieldSelector=metadata.name%3Dm"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_lives_as_long_as_some_pod_refers_to_it() {
    let api = FakeApi::new();
    api.put(&path("m"), config_map("m", "1"));
    let objects = objects(&api, Strategy::Watch);
    objects.register(&pod("a", &["m"]));
    objects.register(&pod("b", &["m"]));
    value(&objects, "m").await;
    objects.unregister(&PodUid::new("a"));
    assert_eq!(value(&objects, "m").await, "1");
    objects.register(&pod("b", &["other"]));
    let error = objects.get_config_map("n", "m").await.unwrap_err();
    assert_eq!(error.message, r#"object "n"/"m" not registered"#);
    objects.unregister(&PodUid::new("b"));
    objects.unregister(&PodUid::new("b"));
    assert!(objects.get_config_map("n", "other").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_immutable_object_is_not_watched_any_longer() {
    let api = FakeApi::new();
    let mut fixed = config_map("m", "1");
    fixed["immutable"] = json!(true);
    api.put(&path("m"), fixed);
    let objects = objects(&api, Strategy::Watch);
    objects.register(&pod("a", &["m"]));
    assert_eq!(value(&objects, "m").await, "1");
    // No server allows this; it shows that nobody looks any more.
    api.put(&path("m"), config_map("m", "2"));
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(value(&objects, "m").await, "1");
}

#[tokio::test(start_paused = true)]
async fn an_absent_server_is_not_waited_for_longer_than_a_second() {
    let api = FakeApi::new();
    api.go_away();
    let objects = objects(&api, Strategy::Watch);
    objects.register(&pod("a", &["m"]));
    let began = tokio::time::Instant::now();
    let error = objects.get_config_map("n", "m").await.unwrap_err();
    assert_eq!(error.kind, ferrolet_ports::ApiErrorKind::Timeout);
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    api.put(&path("m"), config_map("m", "1"));
    api.come_back();
    api.until("watching", |api| api.lines().len() == 2).await;
    assert_eq!(value(&objects, "m").await, "1");
}

#[tokio::test(start_paused = true)]
async fn the_other_strategies_read_when_asked() {
    let check = async |strategy: Strategy, n_reads: &[usize]| {
        let api = FakeApi::new();
        api.put(&path("m"), config_map("m", "1"));
        let objects = objects(&api, strategy);
        objects.register(&pod("a", &["m"]));
        let mut counts = Vec::new();
        for _ in 0..3 {
            value(&objects, "m").await;
            counts.push(api.lines().len());
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        objects.register(&pod("b", &["m"]));
        value(&objects, "m").await;
        counts.push(api.lines().len());
        assert_eq!(counts, n_reads, "{strategy:?}");
    };
    check(Strategy::Get, &[1, 2, 3, 4]).await;
    check(Strategy::Cache(Duration::from_secs(60)), &[1, 1, 2, 3]).await;
}

/// The loop that users would otherwise see as failed mounts: the authorizer hears of the pod later
/// than we do.
#[tokio::test(start_paused = true)]
async fn a_server_that_learns_of_the_pod_late_is_asked_again_without_a_word() {
    for strategy in [Strategy::Watch, Strategy::Get] {
        for n_refusals in 0..=15_u32 {
            let api = FakeApi::new();
            api.put(&path("m"), config_map("m", "1"));
            for _ in 0..n_refusals {
                let message = "no relationship found between node 'a' and this object";
                api.refuse_next(
                    403,
                    json!({"status": "Failure", "reason": "Forbidden", "message": message}),
                );
            }
            let objects = objects(&api, strategy);
            let began = tokio::time::Instant::now();
            objects.register(&pod("a", &["m"]));
            assert_eq!(value(&objects, "m").await, "1", "{strategy:?} {n_refusals}");
            let pauses = (1..=n_refusals).filter_map(crate::early::pause);
            let longest: Duration = pauses.sum();
            let slack = Duration::from_millis(50);
            assert!(began.elapsed() <= longest + slack, "{strategy:?} {n_refusals}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_lasts_is_told_in_the_servers_words() {
    for strategy in [Strategy::Watch, Strategy::Get] {
        let api = FakeApi::new();
        for _ in 0..40 {
            let body = json!({"status": "Failure", "reason": "Forbidden", "message": "not yours"});
            api.refuse_next(403, body);
        }
        let objects = objects(&api, strategy);
        objects.register(&pod("a", &["m"]));
        let began = tokio::time::Instant::now();
        let error = objects.get_config_map("n", "m").await.unwrap_err();
        assert_eq!(error.message, "not yours", "{strategy:?}");
        assert_eq!(error.kind, ferrolet_ports::ApiErrorKind::Forbidden);
        assert!(began.elapsed() <= crate::early::PATIENCE + Duration::from_millis(50));
    }
}

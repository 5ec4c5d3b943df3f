use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;

use super::*;
use crate::fake::FakeApi;

const PLACE: &str = "/api/v1/namespaces/n/configmaps/a";

fn place() -> Place {
    Place::one::<ConfigMap>(Some("n"), "a")
}

fn config_map() -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n",
        "managedFields": [{"manager": "me", "operation": "Update"}]}, "data": {"k": "v"}})
}

#[tokio::test(start_paused = true)]
async fn verbs_go_to_their_paths_and_come_back_typed() {
    let api = FakeApi::new();
    let client = api.client();
    let all = Place::all::<ConfigMap>(Some("n"));
    let created: ConfigMap = client.create(&all, &config_map()).await.unwrap();
    assert_eq!(created.metadata.managed_fields, None);
    let read: ConfigMap = client.get(&place()).await.unwrap();
    assert_eq!(read, created);
    let patch = json!({"data": {"k": "w"}});
    let patched: ConfigMap =
        client.patch(&place(), PatchKind::StrategicMerge, &patch).await.unwrap();
    assert_eq!(patched.data.unwrap()["k"], "w");
    let stale: Result<ConfigMap, _> = client.replace(&place(), &read).await;
    assert_eq!(stale.unwrap_err().kind, ApiErrorKind::Conflict);
    let list = client.list::<ConfigMap>(&all, &Selector::named("a"), "0").await.unwrap();
    assert_eq!(list.objects.len(), 1);
    let other = PodUid::new("other");
    let refused = client.delete(&place(), Some(&other), Some(0)).await;
    assert_eq!(refused.unwrap_err().kind, ApiErrorKind::Conflict);
    client.delete(&place(), None, None).await.unwrap();
    let gone = client.get::<ConfigMap>(&place()).await.unwrap_err();
    assert_eq!(gone.to_string(), format!("GET {PLACE}: NotFound"));
    assert_eq!(api.n_dials(), 1);
    assert_eq!(
        api.lines()[4],
        "GET /api/v1/namespaces/n/configmaps?fieldSelector=metadata.name%3Da&resourceVersion=0"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out_and_the_next_request_takes_a_new_connection() {
    let api = FakeApi::new();
    let client = api.client();
    api.put(PLACE, config_map());
    api.fall_silent(true);
    let began = Instant::now();
    let error = client.get::<ConfigMap>(&place()).await.unwrap_err();
    assert_eq!(error.kind, ApiErrorKind::Timeout);
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    api.fall_silent(false);
    client.get::<ConfigMap>(&place()).await.unwrap();
    assert_eq!(api.n_dials(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_found_again() {
    let api = FakeApi::new();
    let client = api.client();
    api.put(PLACE, config_map());
    client.get::<ConfigMap>(&place()).await.unwrap();
    api.go_away();
    let error = client.get::<ConfigMap>(&place()).await.unwrap_err();
    assert_eq!(error.kind, ApiErrorKind::Unavailable);
    api.come_back();
    client.get::<ConfigMap>(&place()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_rate_wait_their_turn_but_watches_do_not() {
    let api = FakeApi::new();
    let client = api.client_with(Rate::Limited { per_second: 1.0, burst: 2 });
    api.put(PLACE, config_map());
    let began = Instant::now();
    for _ in 0..4 {
        client.get::<ConfigMap>(&place()).await.unwrap();
    }
    assert_eq!(began.elapsed().as_secs(), 2);
    let pods = Place::all::<Pod>(None);
    let limit = Duration::from_secs(300);
    client.watch(&pods, &Selector::default(), "1", limit).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn more_watches_than_a_connection_can_carry_share_several() {
    let api = FakeApi::new();
    let client = api.client();
    let pods = Place::all::<Pod>(None);
    let mut open = Vec::new();
    for _ in 0..250 {
        let limit = Duration::from_secs(300);
        let selector = Selector::default();
        open.push(client.watch(&pods, &selector, "1", limit).await.unwrap());
    }
    assert_eq!(api.n_dials(), 3);
    drop(open);
    client.list::<Pod>(&pods, &Selector::default(), "").await.unwrap();
    assert_eq!(api.n_dials(), 3);
}

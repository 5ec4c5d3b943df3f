use serde_json::{Value, json};

use super::*;
use crate::fake::{FakeApi, TokioClock};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/me";
const NODE: &str = "/api/v1/nodes/me";

fn node() -> Value {
    json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "me", "uid": "node-uid"}})
}

fn start(api: &FakeApi) {
    let plan = LeasePlan { node_name: "me".to_owned(), duration: Duration::from_secs(40) };
    tokio::spawn(LeaseKeeper::new(api.client(), Arc::new(TokioClock), plan).run());
}

fn n_writes(api: &FakeApi) -> usize {
    let lines = api.lines();
    let writes = lines.iter().filter(|line| line.contains("leases"));
    writes.filter(|line| !line.starts_with("GET")).count()
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_created_with_its_owner_and_then_renewed_without_reading_it() {
    let api = FakeApi::new();
    api.put(NODE, node());
    start(&api);
    api.until("created", |api| api.object(LEASE).is_some()).await;
    let lease = api.object(LEASE).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "me");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    let owner = &lease["metadata"]["ownerReferences"][0];
    assert_eq!(
        *owner,
        json!({"apiVersion": "v1", "kind": "Node", "name": "me", "uid": "node-uid"})
    );
    let began = Instant::now();
    api.until("renewed", |api| n_writes(api) == 4).await;
    let passed = began.elapsed().as_secs_f64();
    assert!((30.0..=31.3).contains(&passed), "{passed}");
    let reads = api.lines().into_iter().filter(|line| line.starts_with("GET"));
    assert_eq!(reads.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_lease_is_made_before_there_is_a_node_to_own_it() {
    let api = FakeApi::new();
    start(&api);
    api.until("asked for the node", |api| api.lines().len() >= 6).await;
    assert_eq!(api.object(LEASE), None);
    api.put(NODE, node());
    api.until("created", |api| api.object(LEASE).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_change_costs_one_read() {
    let api = FakeApi::new();
    api.put(NODE, node());
    start(&api);
    api.until("created", |api| api.object(LEASE).is_some()).await;
    let mut lease = api.object(LEASE).unwrap();
    lease["metadata"]["labels"] = json!({"theirs": "yes"});
    api.put(LEASE, lease);
    api.until("renewed", |api| n_writes(api) == 3).await;
    assert_eq!(api.object(LEASE).unwrap()["metadata"]["labels"]["theirs"], "yes");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_comes_back_and_an_outage_ends_with_a_beat() {
    let api = FakeApi::new();
    api.put(NODE, node());
    start(&api);
    api.until("created", |api| api.object(LEASE).is_some()).await;
    api.remove(LEASE);
    api.until("created again", |api| api.object(LEASE).is_some()).await;
    api.go_away();
    let dials = api.n_dials();
    api.until("tried in vain", |api| api.n_dials() > dials + 8).await;
    api.come_back();
    let (began, before) = (Instant::now(), n_writes(&api));
    api.until("beating", |api| n_writes(api) > before).await;
    assert!(began.elapsed() <= Duration::from_secs(8));
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_left_alone_as_long_as_it_asks_and_over_the_same_connection() {
    let api = FakeApi::new();
    api.put(NODE, node());
    start(&api);
    api.until("created", |api| api.object(LEASE).is_some()).await;
    let dials = api.n_dials();
    for _ in 0..3 {
        let details = json!({"retryAfterSeconds": 2});
        let reason = "TooManyRequests";
        api.refuse_next(429, json!({"status": "Failure", "reason": reason, "details": details}));
    }
    let before = n_writes(&api);
    api.until("refused", |api| n_writes(api) == before + 1).await;
    let began = Instant::now();
    api.until("renewed", |api| n_writes(api) == before + 4).await;
    assert_eq!(began.elapsed(), Duration::from_secs(6));
    assert_eq!(api.n_dials(), dials);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_us_away_for_ever_is_asked_with_the_next_beat() {
    let api = FakeApi::new();
    api.put(NODE, node());
    start(&api);
    api.until("created", |api| api.object(LEASE).is_some()).await;
    let details = json!({"retryAfterSeconds": i32::MAX});
    api.refuse_next(
        429,
        json!({"status": "Failure", "reason": "TooManyRequests", "details": details}),
    );
    let before = n_writes(&api);
    api.until("refused", |api| n_writes(api) == before + 1).await;
    let began = Instant::now();
    api.until("renewed", |api| n_writes(api) == before + 2).await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
}

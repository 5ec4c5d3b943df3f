//! `/runningpods/`: what the runtime runs, whoever wanted it.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ferrolet_ports::{ListedState, RuntimeListing};
use ferrolet_types::PodUid;
use serde_json::{Value, json};

use crate::main_routes::Main;
use crate::routes::text;

pub(crate) async fn list(State(main): State<Main>) -> Response {
    match main.runtime.list().await {
        Ok(listing) => axum::Json(pod_list(&listing)).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// A pod runs while a sandbox of it is ready or a container of it runs; only what runs is shown.
fn pod_list(listing: &RuntimeListing) -> Value {
    let mut containers: BTreeMap<&PodUid, Vec<Value>> = BTreeMap::new();
    let running = listing.containers.iter();
    for container in running.filter(|it| it.state == ListedState::Running) {
        containers.entry(&container.uid).or_default().push(json!({
            "name": container.name.as_str(),
            "image": container.image_ref,
            "resources": {},
        }));
    }
    let mut items: BTreeMap<&PodUid, Value> = BTreeMap::new();
    for sandbox in &listing.sandboxes {
        let own = containers.get(&sandbox.uid);
        if !sandbox.is_ready && own.is_none() {
            continue;
        }
        items.entry(&sandbox.uid).or_insert_with(|| {
            json!({
                "metadata": {
                    "name": &*sandbox.key.name,
                    "namespace": &*sandbox.key.namespace,
                    "uid": sandbox.uid.as_str(),
                },
                "spec": {"containers": own.cloned().unwrap_or_default()},
                "status": {},
            })
        });
    }
    json!({
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {},
        "items": items.into_values().collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use ferrolet_ports::{ListedContainer, ListedSandbox};
    use ferrolet_types::PodKey;

    use super::*;

    #[test]
    fn only_what_runs_is_listed() {
        let sandbox = |uid: &str, is_ready| ListedSandbox {
            id: format!("s-{uid}").into(),
            uid: uid.into(),
            key: PodKey::new("default", format!("pod-{uid}")),
            is_ready,
            created_at: None,
        };
        let container = |uid: &str, name: &str, state| ListedContainer {
            id: format!("c-{uid}-{name}").into(),
            uid: uid.into(),
            name: name.into(),
            sandbox: format!("s-{uid}").into(),
            state,
            image_ref: "sha256:1".to_owned(),
            created_at: None,
        };
        let listing = RuntimeListing {
            sandboxes: vec![sandbox("1", true), sandbox("2", false), sandbox("1", false)],
            containers: vec![
                container("1", "main", ListedState::Running),
                container("1", "old", ListedState::Exited),
                container("2", "dead", ListedState::Exited),
            ],
        };
        let list = pod_list(&listing);
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 1);
        assert_eq!(
            items[0]["metadata"],
            json!({"name": "pod-1", "namespace": "default", "uid": "1"})
        );
        let own = &items[0]["spec"]["containers"];
        assert_eq!(*own, json!([{"name": "main", "image": "sha256:1", "resources": {}}]));
    }
}

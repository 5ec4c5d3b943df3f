//! `/allocatedPods`: pods with the resources they were granted, which may be behind what is wanted
//! of them; without status.
//!
//! Alpha upstream, and here only with the gate `KubeletAllocatedPodsEndpoint`. Pods that have ended
//! hold nothing and are not shown.

use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ferrolet_types::Pod;
use ferrolet_types::pod::{Phase, PodView as _};
use serde_json::{Value, json};

use crate::main_routes::Main;
use crate::refusal::Refusal;
use crate::target::PodPath;

pub(crate) async fn list(State(main): State<Main>) -> Response {
    let pods = main.views.pods.pods();
    let items: Vec<Value> = pods.iter().filter_map(|pod| shown(&main, pod)).collect();
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
    answer(&list)
}

pub(crate) async fn one(State(main): State<Main>, Path(path): Path<PodPath>) -> Response {
    let found = main.views.pods.pod_named(&path.namespace, &path.pod);
    let found = found.filter(|pod| {
        let asked = path.uid.as_deref();
        asked.is_none() || asked == pod.metadata.uid.as_deref()
    });
    match found.and_then(|pod| shown(&main, &pod)) {
        Some(mut pod) => {
            pod["kind"] = "Pod".into();
            pod["apiVersion"] = "v1".into();
            answer(&pod)
        }
        None => Refusal::not_found("pod not found").into_response(),
    }
}

/// The pod as it was granted; `None` when it has ended.
fn shown(main: &Main, pod: &Pod) -> Option<Value> {
    let grants = main.allocated.as_ref()?;
    if pod.api_phase().is_some_and(Phase::is_terminal) {
        return None;
    }
    let granted = grants.granted(pod);
    Some(json!({"metadata": granted.metadata, "spec": granted.spec, "status": {}}))
}

fn answer(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

//! Small pods for tables of cases.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde_json::{Map, Value, json};

type Pairs<'a> = &'a [(&'a str, &'a str)];

pub(crate) fn pod_json(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn pod<const N: usize>(containers: [Container; N]) -> Pod {
    let spec = PodSpec { containers: containers.into(), ..Default::default() };
    Pod { spec: Some(spec), ..Default::default() }
}

pub(crate) fn container(name: &str, requests: Pairs<'_>, limits: Pairs<'_>) -> Container {
    let list = |pairs: Pairs<'_>| {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect::<Map<String, Value>>()
    };
    let value =
        json!({"name": name, "resources": {"requests": list(requests), "limits": list(limits)}});
    serde_json::from_value(value).unwrap()
}

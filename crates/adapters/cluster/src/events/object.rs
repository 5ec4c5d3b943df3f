//! An event of ours as the API's object. Pure.

use ferrolet_ports::{Event, EventKind, EventObject};
use ferrolet_types::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event as ApiEvent, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

/// Who speaks.
const COMPONENT: &str = "kubelet";
/// The longest name that the API takes, less a dot and sixteen digits.
const MAX_NAME: usize = 253 - 17;

/// The object for an event that happened at `at`.
pub(super) fn build(event: &Event, node_name: &str, at: Timestamp) -> ApiEvent {
    let involved = match &event.object {
        EventObject::Pod { uid, key, field_path } => ObjectReference {
            kind: Some("Pod".to_owned()),
            api_version: Some("v1".to_owned()),
            namespace: Some(key.namespace.to_string()),
            name: Some(key.name.to_string()),
            uid: Some(uid.to_string()),
            field_path: field_path.clone(),
            ..ObjectReference::default()
        },
        // Upstream's node events carry the name as identity: the node may not exist yet.
        EventObject::Node => ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node_name.to_owned()),
            uid: Some(node_name.to_owned()),
            ..ObjectReference::default()
        },
    };
    let namespace = involved.namespace.clone();
    ApiEvent {
        metadata: ObjectMeta {
            name: Some(name(involved.name.as_deref().unwrap_or_default(), at)),
            namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
            ..ObjectMeta::default()
        },
        involved_object: involved,
        reason: Some(event.reason.clone()),
        message: Some(event.message.clone()),
        type_: Some(
            match event.kind {
                EventKind::Normal => "Normal",
                EventKind::Warning => "Warning",
            }
            .to_owned(),
        ),
        source: Some(EventSource {
            component: Some(COMPONENT.to_owned()),
            host: Some(node_name.to_owned()),
        }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(node_name.to_owned()),
        first_timestamp: Some(Time(at.0)),
        last_timestamp: Some(Time(at.0)),
        count: Some(1),
        ..ApiEvent::default()
    }
}

/// The object's name and the moment in nanoseconds, in hexadecimal.
pub(super) fn name(object: &str, at: Timestamp) -> String {
    let cut = object.get(..MAX_NAME).unwrap_or(object);
    let cut = cut.trim_end_matches(['.', '-']);
    format!("{cut}.{:x}", at.0.as_nanosecond())
}

//! One line of a watch, decoded. Pure.

use ferrolet_ports::{ApiError, ApiErrorKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::answer;

/// What a line says.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame<K> {
    /// The object is there, like this.
    Applied(K),
    /// The object is gone; this is how it was last.
    Deleted(K),
    /// Nothing happened up to this version.
    Bookmark(String),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Only what a bookmark's object has.
#[derive(Deserialize)]
struct Marked {
    metadata: ObjectMeta,
}

/// Decodes a line. An ERROR becomes the error that its `Status` describes.
pub(crate) fn read<K: DeserializeOwned>(attempt: &str, line: &[u8]) -> Result<Frame<K>, ApiError> {
    let bad = |message: String| ApiError {
        attempt: attempt.to_owned(),
        kind: ApiErrorKind::Malformed,
        message,
        code: None,
        causes: Vec::new(),
    };
    let envelope: Envelope<'_> =
        serde_json::from_slice(line).map_err(|error| bad(error.to_string()))?;
    let text = envelope.object.get();
    let object =
        || serde_json::from_slice::<K>(text.as_bytes()).map_err(|error| bad(error.to_string()));
    match envelope.kind {
        "ADDED" | "MODIFIED" => object().map(Frame::Applied),
        "DELETED" => object().map(Frame::Deleted),
        "BOOKMARK" => {
            let marked: Marked =
                serde_json::from_slice(text.as_bytes()).map_err(|error| bad(error.to_string()))?;
            let version = marked.metadata.resource_version.unwrap_or_default();
            Ok(Frame::Bookmark(version))
        }
        "ERROR" => {
            let status: Status =
                serde_json::from_slice(text.as_bytes()).map_err(|error| bad(error.to_string()))?;
            Err(answer::from_status(attempt.to_owned(), None, None, &status))
        }
        other => Err(bad(format!("unknown kind of event {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn lines_of_a_watch_are_understood() {
        let check = |line: &str, expected: Result<&str, ApiErrorKind>| {
            let name = |object: ConfigMap| object.metadata.name.unwrap_or_default();
            let got = read::<ConfigMap>("GET /x", line.as_bytes());
            let got = match got {
                Ok(Frame::Applied(object)) => Ok(format!("applied {}", name(object))),
                Ok(Frame::Deleted(object)) => Ok(format!("deleted {}", name(object))),
                Ok(Frame::Bookmark(version)) => Ok(format!("bookmark {version}")),
                Err(error) => Err(error.kind),
            };
            assert_eq!(got.as_deref(), expected.as_ref().map(|text| &**text), "{line}");
        };
        let object = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#;
        let event = |kind: &str, object: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
        check(&event("ADDED", object), Ok("applied a"));
        check(&event("MODIFIED", object), Ok("applied a"));
        check(&event("DELETED", object), Ok("deleted a"));
        let bookmark = r#"{"metadata":{"resourceVersion":"12"}}"#;
        check(&event("BOOKMARK", bookmark), Ok("bookmark 12"));
        let gone = r#"{"kind":"Status","reason":"Expired","code":410}"#;
        check(&event("ERROR", gone), Err(ApiErrorKind::Gone));
        let internal = r#"{"kind":"Status","code":500}"#;
        check(&event("ERROR", internal), Err(ApiErrorKind::Server));
        check(&event("DANCED", object), Err(ApiErrorKind::Malformed));
        check("{", Err(ApiErrorKind::Malformed));
    }
}

//! Bytes to pods: what a manifest file or URL holds, read strictly.
//!
//! In: the bytes and whether a list may be among them. Out: the pods as written, nothing defaulted,
//! or one error that names every fault with its field path and value. Stricter than upstream on
//! purpose: a field that upstream drops in silence, a key written twice or a second document is an
//! error here, because its author meant something by it. Refuses: files, defaults, validation of
//! what the values mean.

mod check;
mod text;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::{
    fault::{self, Fault, Show as _},
    schema,
};

/// Largest manifest that is read at all, as upstream.
pub const MAX_BYTES: usize = 10 << 20;

/// What a source may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// One pod: manifest files.
    OnePod,
    /// One pod or a list of them: manifest URLs.
    Pods,
}

/// Why bytes are no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Nothing in it, or nothing but white space and comments.
    #[error("the manifest is empty")]
    Empty,
    /// More than [`MAX_BYTES`].
    #[error("the manifest is larger than 10 MiB")]
    TooLarge,
    /// Not UTF-8, or with bytes that no text has.
    #[error("the manifest is not text: byte 0x{byte:02x} at offset {offset}")]
    NotText {
        /// The byte that gave it away.
        byte: u8,
        /// Where it stands.
        offset: usize,
    },
    /// Neither YAML nor JSON; the parser says where.
    #[error("the manifest is not valid YAML or JSON: {0}")]
    Syntax(String),
    /// More than one YAML document.
    #[error("the manifest holds {0} YAML documents where one is expected")]
    Documents(usize),
    /// Faults of single fields, all of them.
    #[error("{}", fault::join(.0))]
    Faults(Vec<Fault>),
}

/// Reads the pods that `bytes` hold, exactly as written.
pub fn decode(bytes: &[u8], expect: Expect) -> Result<Vec<Pod>, ManifestError> {
    let value = text::parse(bytes)?;
    let Value::Object(object) = &value else {
        let problem = format!("expected an object, found {}", (&value).show());
        return Err(ManifestError::Faults(vec![Fault::new("", problem)]));
    };
    match (object.get("kind").and_then(Value::as_str), expect) {
        (Some("PodList" | "List"), Expect::Pods) => decode_list(value),
        (Some("Pod"), _) => decode_pod(value, "", Header::Required).map(|pod| vec![pod]),
        _ => {
            let wanted = match expect {
                Expect::OnePod => "a manifest file holds one Pod",
                Expect::Pods => "expected a Pod or a PodList",
            };
            let fault = match object.get("kind") {
                None | Some(Value::Null) => Fault::new("kind", format!("missing; {wanted}")),
                Some(kind) => Fault::invalid("kind", kind, wanted),
            };
            Err(ManifestError::Faults(vec![fault]))
        }
    }
}

/// Whether `kind` and `apiVersion` must be there: entries of a list may leave them to the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    Required,
    Optional,
}

fn decode_list(list: Value) -> Result<Vec<Pod>, ManifestError> {
    let mut faults = Vec::new();
    check_api_version(&list, "", Header::Required, &mut faults);
    let Value::Object(mut object) = list else {
        return Err(ManifestError::Faults(faults));
    };
    for (name, value) in &object {
        if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata" | "items") {
            faults.push(check::unknown(name, name, value, None));
        }
    }
    let items = match object.remove("items") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(other) => {
            faults.push(Fault::invalid("items", &other, "must be a list of pods"));
            Vec::new()
        }
    };
    let mut pods = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let path = format!("items[{index}]");
        match item.get("kind").filter(|kind| !kind.is_null()) {
            Some(kind) if kind != "Pod" => {
                faults.push(Fault::invalid(format!("{path}.kind"), kind, "must be Pod"));
                continue;
            }
            _ => {}
        }
        match decode_pod(item, &path, Header::Optional) {
            Ok(pod) => pods.push(pod),
            Err(ManifestError::Faults(mut more)) => faults.append(&mut more),
            Err(other) => return Err(other),
        }
    }
    if faults.is_empty() { Ok(pods) } else { Err(ManifestError::Faults(faults)) }
}

fn decode_pod(mut value: Value, path: &str, header: Header) -> Result<Pod, ManifestError> {
    let mut faults = Vec::new();
    check_api_version(&value, path, header, &mut faults);
    check::check(schema::POD, &mut value, path, &mut faults);
    if !faults.is_empty() {
        return Err(ManifestError::Faults(faults));
    }
    if let Value::Object(object) = &mut value {
        // Said once for a whole list, but each pod is read alone.
        object.insert("kind".to_owned(), "Pod".into());
        object.insert("apiVersion".to_owned(), "v1".into());
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        let path = match (path, inner.as_str()) {
            ("", _) => inner,
            (_, ".") => path.to_owned(),
            (_, _) => format!("{path}.{inner}"),
        };
        ManifestError::Faults(vec![Fault::new(path, error.into_inner().to_string())])
    })
}

fn check_api_version(value: &Value, path: &str, header: Header, faults: &mut Vec<Fault>) {
    let path = check::child(path, "apiVersion");
    match value.get("apiVersion") {
        Some(Value::String(text)) if text == "v1" => {}
        None | Some(Value::Null) if header == Header::Optional => {}
        None | Some(Value::Null) => faults.push(Fault::new(path, "missing; expected v1")),
        Some(other) => faults.push(Fault::invalid(path, other, "must be v1")),
    }
}

#[cfg(test)]
mod tests;

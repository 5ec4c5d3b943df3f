//! A pod as protobuf: the bytes that upstream's `v1.Pod` reads.
//!
//! The types we carry know JSON only. So a pod becomes JSON first, and a table of names and numbers
//! (`pod_schema.txt`) says how each field is written. The table is read at the first use; a test
//! compares every field of it with what real clients decode.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use ferrolet_types::Pod;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value};

const TABLE: &str = include_str!("pod_schema.txt");

static MESSAGES: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| parse(TABLE));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    One,
    Repeated,
    /// By text.
    Map,
    /// Its fields are its parent's, in JSON.
    Inline,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Bool,
    Number,
    Bytes,
    /// Text in a message: `Quantity`.
    WrappedText,
    /// Seconds and nanoseconds.
    Time,
    NumberOrText,
    /// JSON in a message: `FieldsV1`.
    WrappedJson,
    Message(&'static str),
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    number: u32,
    shape: Shape,
    kind: Kind,
}

/// The pod's bytes.
pub(super) fn pod_bytes(pod: &Pod) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    if let Value::Object(pod) = serde_json::to_value(&**pod)? {
        message(&pod, "Pod", &mut bytes);
    }
    Ok(bytes)
}

fn message(object: &Map<String, Value>, name: &str, out: &mut Vec<u8>) {
    for field in MESSAGES.get(name).into_iter().flatten() {
        if field.shape == Shape::Inline {
            let Kind::Message(name) = field.kind else {
                continue;
            };
            let mut inner = Vec::new();
            message(object, name, &mut inner);
            framed(field.number, &inner, out);
            continue;
        }
        match (field.shape, object.get(field.name)) {
            (_, None | Some(Value::Null)) => {}
            (Shape::Repeated, Some(Value::Array(values))) => {
                for item in values {
                    value(item, field, out);
                }
            }
            (Shape::Map, Some(Value::Object(entries))) => {
                for (key, item) in entries {
                    let mut entry = Vec::new();
                    framed(1, key.as_bytes(), &mut entry);
                    let second = Field { number: 2, ..*field };
                    value(item, &second, &mut entry);
                    framed(field.number, &entry, out);
                }
            }
            (_, Some(one)) => value(one, field, out),
        }
    }
}

/// One value with its number. What does not fit its kind is left out: the types it came from do not
/// allow that.
fn value(value: &Value, field: &Field, out: &mut Vec<u8>) {
    let mut inner = Vec::new();
    match (field.kind, value) {
        (Kind::Text, Value::String(text)) => inner.extend_from_slice(text.as_bytes()),
        (Kind::Bool, Value::Bool(is_true)) => {
            return varint(field.number, u64::from(*is_true), out);
        }
        (Kind::Number, Value::Number(number)) => {
            return varint(field.number, twos_complement(number), out);
        }
        (Kind::Bytes, Value::String(text)) => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            inner = decoded.unwrap_or_default();
        }
        (Kind::WrappedText, Value::String(text)) => framed(1, text.as_bytes(), &mut inner),
        (Kind::WrappedJson, json) => framed(1, json.to_string().as_bytes(), &mut inner),
        (Kind::Time, Value::String(text)) => {
            let Ok(time) = text.parse::<jiff::Timestamp>() else {
                return;
            };
            let (seconds, nanos) = (time.as_second(), time.subsec_nanosecond());
            varint(1, seconds.cast_unsigned(), &mut inner);
            if nanos != 0 {
                varint(2, i64::from(nanos).cast_unsigned(), &mut inner);
            }
        }
        (Kind::NumberOrText, Value::Number(number)) => {
            varint(1, 0, &mut inner);
            varint(2, twos_complement(number), &mut inner);
        }
        (Kind::NumberOrText, Value::String(text)) => {
            varint(1, 1, &mut inner);
            framed(3, text.as_bytes(), &mut inner);
        }
        (Kind::Message(name), Value::Object(object)) => message(object, name, &mut inner),
        _ => return,
    }
    framed(field.number, &inner, out);
}

fn twos_complement(number: &serde_json::Number) -> u64 {
    number.as_i64().unwrap_or_default().cast_unsigned()
}

fn varint(number: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value, out);
}

fn framed(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn parse(table: &'static str) -> HashMap<&'static str, Vec<Field>> {
    let mut messages: HashMap<&'static str, Vec<Field>> = HashMap::new();
    let mut current = "";
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(name), None, None) => current = name,
            (Some(name), Some(number), Some(kind)) => {
                let number = number.parse().expect("numbers of fields are numbers");
                let (shape, kind) = shape_of(kind);
                let field = Field { name, number, shape, kind };
                messages.entry(current).or_default().push(field);
            }
            _ => {}
        }
    }
    messages
}

fn shape_of(word: &'static str) -> (Shape, Kind) {
    let (shape, name) = match word.split_at(1) {
        ("*", name) => (Shape::Repeated, name),
        ("%", name) => (Shape::Map, name),
        (".", name) => (Shape::Inline, name),
        _ => (Shape::One, word),
    };
    let kind = match name {
        "string" => Kind::Text,
        "bool" => Kind::Bool,
        "int32" | "int64" => Kind::Number,
        "bytes" => Kind::Bytes,
        "Quantity" => Kind::WrappedText,
        "Time" | "MicroTime" => Kind::Time,
        "IntOrString" => Kind::NumberOrText,
        "FieldsV1" => Kind::WrappedJson,
        name => Kind::Message(name),
    };
    (shape, kind)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn bytes(pod: Value) -> Vec<u8> {
        pod_bytes(&Arc::new(serde_json::from_value(pod).unwrap())).unwrap()
    }

    #[test]
    fn every_message_that_is_named_is_there() {
        let all = MESSAGES.values().flatten();
        for field in all {
            if let Kind::Message(name) = field.kind {
                // Messages without fields have no entry of their own.
                let is_empty = TABLE.lines().any(|line| line == name);
                assert!(MESSAGES.contains_key(name) || is_empty, "{name}");
            }
        }
        assert!(MESSAGES.len() > 100, "{}", MESSAGES.len());
    }

    #[test]
    fn kinds_are_written_as_protobuf_wants_them() {
        let check = |pod: Value, expected: &[u8]| assert_eq!(bytes(pod.clone()), expected, "{pod}");
        check(
            serde_json::json!({"metadata": {"name": "ab", "labels": {"k": "v"}}}),
            b"\x0a\x0c\x0a\x02ab\x5a\x06\x0a\x01k\x12\x01v",
        );
        check(
            serde_json::json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:05Z"}}),
            b"\x0a\x04\x42\x02\x08\x05",
        );
        check(
            serde_json::json!({"metadata": {}, "spec": {"priority": -1, "containers": [], "hostNetwork": true}}),
            b"\x0a\x00\x12\x0e\x58\x01\xc8\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        );
    }

    #[test]
    fn a_volume_and_a_probe_keep_their_source_in_a_message_of_its_own() {
        let pod = serde_json::json!({"metadata": {}, "spec": {
            "containers": [{"name": "c", "livenessProbe": {"httpGet": {"port": 80}},
                            "resources": {"limits": {"cpu": "1"}}}],
            "volumes": [{"name": "v", "hostPath": {"path": "/x"}}],
        }});
        let got = bytes(pod);
        let find = |part: &[u8]| got.windows(part.len()).any(|window| window == part);
        // Volume { name: 1, volumeSource: 2 { hostPath: 1 { path: 1 } } }
        assert!(find(b"\x0a\x01v\x12\x06\x0a\x04\x0a\x02/x"), "{got:?}");
        // Probe { handler: 1 { httpGet: 2 { port: 2 { type: 1, intVal: 2 } } } }
        assert!(find(b"\x0a\x08\x12\x06\x12\x04\x08\x00\x10\x50"), "{got:?}");
        // ResourceRequirements { limits: 1 { key: 1, value: 2 { string: 1 } } }
        assert!(find(b"\x0a\x0a\x0a\x03cpu\x12\x03\x0a\x011"), "{got:?}");
    }
}

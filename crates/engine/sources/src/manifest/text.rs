//! Text to a tree of values, with YAML 1.1's idea of numbers and truth, as Go reads it.
//!
//! JSON is tried first where the text looks like it; otherwise YAML. A key that occurs twice is an
//! error in both. Aliases are expanded within a budget, so a small file cannot become a large one.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{MAX_BYTES, ManifestError};

/// Deepest nesting; a real pod needs about fifteen.
const MAX_DEPTH: usize = 100;
/// Most values in one manifest, aliases expanded.
const MAX_NODES: usize = 250_000;
/// Most values that aliases may add.
const MAX_REPLAYED: usize = 50_000;

/// Reads the one document that `bytes` hold.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, ManifestError> {
    if bytes.len() > MAX_BYTES {
        return Err(ManifestError::TooLarge);
    }
    let text = as_text(bytes)?;
    if text.trim_start().starts_with('{')
        && let Ok(Unique(value)) = serde_json::from_str(text)
    {
        return Ok(value);
    }
    let documents: Vec<Unique> = serde_saphyr::from_multiple_with_options(text, options())
        .map_err(|error| ManifestError::Syntax(one_line(&error.to_string())))?;
    let mut values: Vec<Value> =
        documents.into_iter().map(|document| document.0).filter(|value| !value.is_null()).collect();
    match values.len() {
        0 => Err(ManifestError::Empty),
        1 => Ok(values.remove(0)),
        several => Err(ManifestError::Documents(several)),
    }
}

fn as_text(bytes: &[u8]) -> Result<&str, ManifestError> {
    // White space apart, no control character belongs into a manifest; a zero byte is the mark of
    // binary junk.
    let stray = |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r');
    if let Some(offset) = bytes.iter().position(stray) {
        let byte = bytes[offset];
        return Err(ManifestError::NotText { byte, offset });
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let offset = error.valid_up_to();
            let byte = bytes.get(offset).copied().unwrap_or_default();
            Err(ManifestError::NotText { byte, offset })
        }
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_total_scalar_bytes: MAX_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED,
        },
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A value in which no key occurs twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Unique, E> {
        Ok(Unique(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Unique, E> {
        Number::from_f64(value)
            .map(|number| Unique(Value::Number(number)))
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Unique, E> {
        Ok(Unique(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Unique, D::Error> {
        Unique::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Unique, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(Unique(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Unique, A::Error> {
        let mut object = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let Unique(value) = access.next_value()?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate key {key:?}")));
            }
            object.insert(key, value);
        }
        Ok(Unique(Value::Object(object)))
    }
}

//! YAML and JSON text into a tree of values, with every repeated key noted.
//!
//! JSON is read as the YAML it also is. In: one document. Out: the tree and the paths of duplicate keys, or one message
//! with line and column. The parser's own limits stop alias bombs; nothing here looks at what the keys mean.

use std::{cell::RefCell, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

/// A document and what was wrong with its keys.
pub(crate) struct Tree {
    pub(crate) value: Value,
    pub(crate) duplicates: Vec<String>,
}

thread_local! {
    // `Deserialize` has no room for a collector, so the document's duplicates are gathered beside it.
    static DUPLICATES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Reads one document.
pub(crate) fn read(text: &str) -> Result<Tree, String> {
    DUPLICATES.take();
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins, with_snippet: false };
    let document: Document = serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    Ok(Tree { value: document.0, duplicates: DUPLICATES.take() })
}

struct Document(Value);

impl<'de> serde::Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Node { path: String::new() }.deserialize(deserializer).map(Document)
    }
}

struct Node {
    path: String,
}

impl<'de> DeserializeSeed<'de> for Node {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Node { path: format!("{}[{}]", self.path, list.len()) })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            let value = entries.next_value_seed(Node { path: path.clone() })?;
            if map.insert(key, value).is_some() {
                DUPLICATES.with_borrow_mut(|duplicates| duplicates.push(path));
            }
        }
        Ok(Value::Object(map))
    }
}

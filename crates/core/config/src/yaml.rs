//! YAML and JSON text into a tree of values, with every repeated key noted.
//!
//! JSON is read as the YAML it also is. In: one document. Out: the tree, the paths of duplicate
//! keys and the line of each key, or one message with line and column. The parser's own limits stop alias bombs; nothing
//! here looks at what the keys mean.

use std::{collections::BTreeMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Spanned, options::DuplicateKeyPolicy};

/// A value and the paths of the keys that were given twice inside it.
pub(crate) struct Tree {
    pub(crate) value: Value,
    pub(crate) duplicates: Vec<String>,
    pub(crate) lines: Lines,
}

/// In which line each key stands, by its path; the last place counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines(BTreeMap<String, usize>);

impl Lines {
    /// The lines of a text; none of one that cannot be read.
    pub(crate) fn read(text: &str) -> Self {
        read(text).map(|tree| tree.lines).unwrap_or_default()
    }

    /// The line of a path, or of what it lies in.
    pub(crate) fn of(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.0.get(path) {
                return Some(*line);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// Reads one document.
pub(crate) fn read(text: &str) -> Result<Tree, String> {
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

impl<'de> serde::Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Node { path: String::new() }.deserialize(deserializer)
    }
}

fn leaf<E>(value: impl Into<Value>) -> Result<Tree, E> {
    Ok(Tree { value: value.into(), duplicates: Vec::new(), lines: Lines::default() })
}

/// A place in the document that is being read.
struct Node {
    path: String,
}

impl<'de> DeserializeSeed<'de> for Node {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        leaf(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        leaf(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        leaf(value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        leaf(value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        leaf(value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        leaf(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        leaf(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let (mut list, mut duplicates, mut lines) = (Vec::new(), Vec::new(), Lines::default());
        while let Some(item) =
            items.next_element_seed(Node { path: format!("{}[{}]", self.path, list.len()) })?
        {
            list.push(item.value);
            duplicates.extend(item.duplicates);
            lines.0.extend(item.lines.0);
        }
        Ok(Tree { value: Value::Array(list), duplicates, lines })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let (mut map, mut duplicates, mut lines) = (Map::new(), Vec::new(), Lines::default());
        while let Some(Spanned { value: key, referenced, .. }) =
            entries.next_key::<Spanned<String>>()?
        {
            let path =
                if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            let item = entries.next_value_seed(Node { path: path.clone() })?;
            duplicates.extend(item.duplicates);
            lines.0.extend(item.lines.0);
            lines.0.insert(path.clone(), usize::try_from(referenced.line()).unwrap_or(0));
            if map.insert(key, item.value).is_some() {
                duplicates.push(path);
            }
        }
        Ok(Tree { value: Value::Object(map), duplicates, lines })
    }
}

//! The effective configuration, one line a field, with where each value comes from.

use std::fmt;

use serde_json::Value;

use crate::{Loaded, Origin, effective_json};

/// A field as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownField {
    /// Its path.
    pub path: String,
    /// Its value; secrets are masked.
    pub value: Value,
    /// Who set it; none for a default.
    pub origin: Option<Origin>,
}

impl fmt::Display for ShownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}  # ", self.path, self.value)?;
        match &self.origin {
            None => write!(f, "default"),
            Some(Origin { name, line: Some(line) }) => write!(f, "{name}:{line}"),
            Some(Origin { name, line: None }) => write!(f, "{name}"),
        }
    }
}

/// Every field that has a value, in the order of the schema.
pub fn shown_fields(loaded: &Loaded) -> Vec<ShownField> {
    let masked = effective_json(&loaded.raw);
    let fields = loaded.raw.paths().into_iter().filter_map(|path| {
        let value = path.split('.').try_fold(&masked, |value, name| value.get(name));
        Some(ShownField {
            value: value.or_else(|| loaded.raw.get(&path))?.clone(),
            origin: loaded.origins.of(&path).cloned(),
            path,
        })
    });
    fields.collect()
}

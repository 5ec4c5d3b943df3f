//! The text that upstream's checksums are made over: what Go's printer says of a value, type names
//! included.

use std::{collections::BTreeMap, fmt::Display};

/// `<nil>` for what was never made, else what `print` says.
pub(crate) fn or_nil<T>(value: Option<&T>, print: impl FnOnce(&T) -> String) -> String {
    value.map_or_else(|| "<nil>".to_owned(), print)
}

/// A slice inside another value.
pub(crate) fn list<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("[{}]", items.join(" "))
}

/// A map inside another value, sorted by its keys.
pub(crate) fn map<K: Display, V>(entries: &BTreeMap<K, V>, print: impl Fn(&V) -> String) -> String {
    let entries: Vec<String> =
        entries.iter().map(|(key, value)| format!("{key}:{}", print(value))).collect();
    format!("map[{}]", entries.join(" "))
}

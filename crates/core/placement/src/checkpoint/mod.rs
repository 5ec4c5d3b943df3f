//! `cpu_manager_state` and `memory_manager_state`: upstream's files, read and written.
//!
//! A file says everything twice: once as kubelets before 1.37 know it, with a checksum over what Go
//! prints for that value, and once as JSON in a string, with a checksum over the string. The string
//! counts where there is one. Written byte for byte as upstream writes them. Refuses: judging
//! whether what a file says is still possible, which the policies do.

mod cpu;
mod memory;

pub use cpu::{decode_cpus, encode_cpus, encode_no_cpus};
pub use memory::{decode_memory, encode_memory, encode_no_memory};

use ferrolet_types::hash::fnv1a_32;
use serde_json::{Map, Value};

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// It is not what such a file looks like.
    #[error("not a checkpoint: {0}")]
    Shape(String),
    /// It was changed by somebody, or half written.
    #[error("checkpoint is corrupted: its checksum is {told}, its content's is {found}")]
    Checksum {
        /// What it says.
        told: u64,
        /// What it should say.
        found: u64,
    },
}

fn shape(what: impl std::fmt::Display) -> CheckpointError {
    CheckpointError::Shape(what.to_string())
}

fn checksum(text: &str) -> u64 {
    u64::from(fnv1a_32(text.as_bytes()))
}

/// The checksum over a string, as Go prints one.
fn checksum_of_data(data: &str) -> u64 {
    checksum(&format!("(string){data}"))
}

/// The content of a file: its string if it has one, else itself after `print` shows that nobody
/// changed it. `print` gives what Go may have printed for it, by version.
fn content(
    file: &[u8],
    print: impl FnOnce(&Map<String, Value>) -> Vec<String>,
) -> Result<Map<String, Value>, CheckpointError> {
    let object = |value: Value| match value {
        Value::Object(object) => Ok(object),
        _ => Err(shape("no object")),
    };
    let outer = object(serde_json::from_slice(file).map_err(shape)?)?;
    let number = |name: &str| outer.get(name).and_then(Value::as_u64).unwrap_or(0);
    let data = outer.get("data").and_then(Value::as_str).unwrap_or_default();
    let told = number("dataChecksum");
    if !data.is_empty() || told != 0 {
        let found = checksum_of_data(data);
        if told != found {
            return Err(CheckpointError::Checksum { told, found });
        }
        return object(serde_json::from_str(data).map_err(shape)?);
    }
    let told = number("checksum");
    let printed = print(&outer);
    let found: Vec<u64> = printed.iter().map(|text| checksum(text)).collect();
    // Zero is what very old kubelets wrote.
    if told != 0 && !found.contains(&told) {
        let found = found.first().copied().unwrap_or(0);
        return Err(CheckpointError::Checksum { told, found });
    }
    Ok(outer)
}

/// A field that is an object, or nothing.
fn entries(of: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, CheckpointError> {
    match of.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => Err(shape(format_args!("{name} is no object"))),
    }
}

fn text<'a>(of: &'a Map<String, Value>, name: &str) -> Result<&'a str, CheckpointError> {
    let value = of.get(name).and_then(Value::as_str);
    value.ok_or_else(|| shape(format_args!("no {name}")))
}

/// A JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// `"key":value` pairs in braces.
fn braced(pairs: impl Iterator<Item = (String, String)>) -> String {
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{}:{value}", quoted(&key))).collect();
    format!("{{{}}}", pairs.join(","))
}

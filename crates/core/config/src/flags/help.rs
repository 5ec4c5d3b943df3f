//! The help text, topic by topic, from the table of flags.

use serde_json::Value;

use super::table::{FLAGS, Flag, Future, Kind, Target, Topic};
use crate::{FeatureGates, RawConfig};

const HEAD: &str = "\
The kubelet is the agent of a Kubernetes node: it is given pods by the API server
(--kubeconfig), by files (staticPodPath) or by a web address (staticPodURL), and keeps
their containers running through a container runtime that speaks CRI. This one is
Ferrolet, written in Rust; flags, configuration and behaviour are those of Kubernetes
1.37. Without --kubeconfig the node stands alone.

Usage: kubelet [--config FILE] [flags]

Flags win over drop-ins, drop-ins over the file, the file over defaults. Those marked *
still work but are better written in the file; defaults are those without a file.
";

/// The width that help lines keep to.
const WIDTH: usize = 100;
/// Where the description starts.
const INDENT: usize = 34;

/// The whole text, ending in a newline.
pub(super) fn text() -> String {
    let defaults = RawConfig::legacy_defaults(&FeatureGates::default());
    let mut text = HEAD.to_owned();
    for (topic, title) in Topic::ALL {
        text.push_str(&format!("\n{title}:\n"));
        for flag in FLAGS.iter().filter(|flag| flag.topic == topic) {
            push_flag(&mut text, flag, &default_text(flag, &defaults));
        }
    }
    text
}

fn push_flag(text: &mut String, flag: &Flag, default: &str) {
    let short = match flag.name {
        "v" => "-v, ",
        "help" => "-h, ",
        _ => "",
    };
    let mark = if flag.future == Future::Deprecated { '*' } else { ' ' };
    let head = format!(" {mark}{short}--{}{}", flag.name, value_name(flag.kind));
    let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
    let mut lines = wrapped(&format!("{}{shown}", flag.help)).into_iter();
    if head.chars().count() + 2 > INDENT {
        text.push_str(&format!("{head}\n"));
    } else {
        text.push_str(&format!("{head:INDENT$}{}\n", lines.next().unwrap_or_default()));
    }
    for line in lines {
        text.push_str(&format!("{:INDENT$}{line}\n", ""));
    }
}

/// The text in lines that fit beside the flags' names.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH - INDENT => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

pub(super) fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "",
        Kind::Int32 | Kind::Int64 | Kind::Uint32 => " N",
        Kind::Text => " TEXT",
        Kind::Duration => " TIME",
        Kind::Address => " IP",
        Kind::Quantity => " SIZE",
        Kind::List | Kind::Taints | Kind::NumaMemory | Kind::Verbosities => " LIST",
        Kind::Pairs | Kind::Labels | Kind::Thresholds | Kind::Gates | Kind::Headers => " MAP",
        Kind::Version => "[=raw]",
    }
}

pub(super) fn default_text(flag: &Flag, defaults: &RawConfig) -> String {
    match flag.target {
        Target::Own(default) if flag.kind == Kind::Version || default == "false" => String::new(),
        Target::Own(default) => default.to_owned(),
        Target::Field(path) => match defaults.get(path) {
            None | Some(Value::Null | Value::Bool(false)) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => {
                items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
            }
            Some(other) => other.to_string(),
        },
    }
}

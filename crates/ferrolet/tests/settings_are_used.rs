//! Every field, flag and gate has a place that uses it, or is listed with the reason why it has none.
//!
//! `members.txt` says which value of `Config` a field becomes; the sources of the executable and of
//! the core crate that is handed a section whole are searched for it. A field that is listed as
//! effective and that nobody reads fails here, and so does one that is in no list.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use ferrolet_config::{
    EFFECTIVE, FeatureGates, Lock, MEANINGLESS_FIELDS, MEANINGLESS_FLAGS, UNREAD, field_names,
    own_flag_names,
};

/// Each field of `KubeletConfiguration` and the members of `Config` that it becomes.
const MEMBERS: &str = include_str!("members.txt");
/// The gates that upstream's kubelet reads.
const KUBELET_GATES: &str = include_str!("kubelet_gates.txt");

/// Flags that become a member of another name.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("minimum-container-ttl-duration", "minimum_container_ttl"),
    ("node-ip", "node_ips"),
    ("version", "kubelet_version"),
];
/// Flags that end in the command line itself.
const OF_THE_COMMAND_LINE: &[&str] = &["help", "seccomp-default"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in crates").to_owned()
}

/// Every source file below a directory, tests apart.
fn sources(directory: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).expect("the sources are here") {
        let path = entry.expect("a directory can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "target" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.contains("tests") {
            let text = fs::read_to_string(&path).expect("sources are text");
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            found.insert(path, text.to_owned());
        }
    }
}

/// Who reads a `Config`: the executable, and the one core crate that is handed a section whole.
fn readers() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for directory in ["ferrolet/src", "core/eviction/src"] {
        sources(&crates().join(directory), &mut found);
    }
    found
}

/// The first file that has this word after a dot.
fn place<'a>(files: &'a BTreeMap<PathBuf, String>, member: &str) -> Option<&'a Path> {
    let word = format!(".{member}");
    let ends = |rest: &str| !rest.starts_with(|it: char| it.is_alphanumeric() || it == '_');
    let has =
        |text: &String| text.match_indices(&word).any(|(at, _)| ends(&text[at + word.len()..]));
    files.iter().find(|(_, text)| has(text)).map(|(path, _)| path.as_path())
}

fn is_in(list: &[&str], field: &str) -> bool {
    let inside = |it: &str| it.strip_prefix(field).is_some_and(|rest| rest.starts_with('.'));
    list.iter().any(|it| *it == field || inside(it))
}

#[test]
fn every_field_is_used_or_listed() {
    let members: BTreeMap<&str, Vec<&str>> = MEMBERS
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(field, members)| (field, members.split(' ').collect()))
        .collect();
    let meaningless: Vec<&str> = MEANINGLESS_FIELDS.iter().map(|(field, _)| *field).collect();
    let files = readers();
    let mut faults = Vec::new();
    for field in field_names() {
        if is_in(EFFECTIVE, field) {
            match members.get(field) {
                None => faults.push(format!("{field} is missing from members.txt")),
                Some(all) if all.iter().any(|member| place(&files, member).is_some()) => {}
                Some(all) => faults.push(format!("{field} ({}) is used nowhere", all.join(", "))),
            }
        } else if !is_in(&meaningless, field) {
            faults.push(format!("{field} has no effect and is in no list of effect.rs"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_flag_of_the_kubelet_itself_is_used_or_listed() {
    let files = readers();
    let faults: Vec<&str> = own_flag_names()
        .filter(|flag| !OF_THE_COMMAND_LINE.contains(flag))
        .filter(|flag| !MEANINGLESS_FLAGS.iter().any(|(name, _)| name == flag))
        .filter(|flag| {
            let other = OTHER_NAMES.iter().find(|(name, _)| name == flag).map(|(_, it)| *it);
            let member = other.map_or_else(|| flag.replace('-', "_"), str::to_owned);
            place(&files, &member).is_none()
        })
        .collect();
    assert!(faults.is_empty(), "flags that nobody reads: {faults:?}");
}

#[test]
fn every_gate_of_the_kubelet_is_read_or_listed() {
    let mut files = BTreeMap::new();
    sources(&crates(), &mut files);
    files.retain(|path, _| !path.ends_with("gates/table.rs") && !path.ends_with("gates/effect.rs"));
    let asks = |gate: &str, before: &str| {
        let word = format!("{before}\"{gate}\"");
        files.values().any(|text| text.contains(&word))
    };
    let mut faults = Vec::new();
    for name in KUBELET_GATES.lines() {
        let gate = FeatureGates::known().iter().find(|gate| gate.name == name);
        let Some(gate) = gate else {
            faults.push(format!("{name} is no gate"));
            continue;
        };
        let is_listed = UNREAD.iter().any(|(listed, _)| *listed == name);
        if gate.lock == Lock::Free && !is_listed && !asks(name, "") {
            faults.push(format!("{name} is read nowhere and not in UNREAD"));
        }
        if is_listed && asks(name, "enabled(") {
            faults.push(format!("{name} is read; take it out of UNREAD"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

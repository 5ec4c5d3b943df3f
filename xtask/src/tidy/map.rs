//! The drawing of crates and edges in ARCHITECTURE.md, made from the workspace: `cargo xtask map`
//! writes it, and tidy finds it when it is no longer true.
//!
//! A crate's line names the crates of ours that it uses, less those that it has through another
//! one anyway; edges for tests only are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use super::{Finding, edges};
use crate::build;

const DOCUMENT: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- cargo xtask map -->\n```\n";
const END: &str = "```\n<!-- end of the map -->";

/// From the ground up, by their place in the tree.
const FLOORS: [&str; 10] = [
    "crates/core/",
    "crates/ports",
    "crates/engine/",
    "crates/agent",
    "crates/linux",
    "crates/cri-proto",
    "crates/adapters/",
    "crates/runtime/",
    "crates/ferrolet",
    "crates/",
];

/// `cargo xtask map`: writes the drawing anew.
pub(crate) fn command() -> Result<u8> {
    let path = build::root().join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (before, after) = around(&text).context("ARCHITECTURE.md has no place for the map")?;
    let drawn = format!("{before}{BEGIN}{}{END}{after}", draw(&edges()?));
    fs::write(&path, drawn).with_context(|| path.display().to_string())?;
    Ok(0)
}

/// A drawing that is not the workspace's.
pub(super) fn check() -> Result<Option<Finding>> {
    let path = build::root().join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let expected = format!("{BEGIN}{}{END}", draw(&edges()?));
    Ok((!text.contains(&expected)).then(|| Finding {
        path: DOCUMENT.to_owned(),
        line: 1 + text.split(BEGIN).next().unwrap_or_default().lines().count(),
        message: "the map is not of this workspace: run `cargo xtask map`".to_owned(),
    }))
}

fn around(text: &str) -> Option<(&str, &str)> {
    let (before, rest) = text.split_once(BEGIN)?;
    Some((before, rest.split_once(END)?.1))
}

fn edges() -> Result<Edges> {
    Ok(edges::read(&build::metadata()?, &build::root())?
        .iter()
        .map(edges::Package::edges)
        .collect())
}

/// Directories of crates, each with those it uses.
type Edges = BTreeMap<String, BTreeSet<String>>;

fn draw(edges: &Edges) -> String {
    let mut left: BTreeSet<&String> = edges.keys().filter(|it| it.starts_with("crates/")).collect();
    let width = left.iter().map(|it| it.len()).max().unwrap_or(0) - "crates/".len();
    let mut text = String::new();
    for floor in FLOORS {
        let here: Vec<&String> = left.iter().copied().filter(|it| it.starts_with(floor)).collect();
        for directory in here {
            left.remove(directory);
            let used = reduce(edges, directory);
            let line = format!("{:<width$}  {}", short(directory), used.join(" "));
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

/// What a crate uses and does not have through another one.
fn reduce<'a>(edges: &'a Edges, directory: &str) -> Vec<&'a str> {
    let Some(used) = edges.get(directory) else { return Vec::new() };
    let is_needed = |it: &&String| !used.iter().any(|via| via != *it && reaches(edges, via, it));
    used.iter().filter(is_needed).map(|it| short(it)).collect()
}

fn reaches(edges: &Edges, from: &str, to: &str) -> bool {
    edges
        .get(from)
        .is_some_and(|used| used.contains(to) || used.iter().any(|via| reaches(edges, via, to)))
}

fn short(directory: &str) -> &str {
    directory.strip_prefix("crates/").unwrap_or(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_shows_each_crate_with_what_it_has_through_no_other() {
        let crates: [(&str, &[&str]); 4] = [
            ("crates/core/types", &[]),
            ("crates/core/pod", &["crates/core/types"]),
            ("crates/engine/pods", &["crates/core/pod", "crates/core/types", "crates/ports"]),
            ("crates/ports", &["crates/core/types"]),
        ];
        let edges: Edges = crates
            .map(|(it, used)| (it.to_owned(), used.iter().map(|it| (*it).to_owned()).collect()))
            .into();
        assert_eq!(
            draw(&edges),
            "core/pod     core/types\n\
             core/types\n\
             ports        core/types\n\
             engine/pods  core/pod ports\n"
        );
    }
}

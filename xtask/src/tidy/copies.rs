//! Files that must say the same, because a tool reads only the nearest one.
//!
//! Clippy's rules for core are in every crate below `crates/core`; one that falls behind would let
//! through what the others refuse, and nobody would see it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

const CORE: &str = "crates/core";
const RULES: &str = "clippy.toml";

/// The rules of each crate of core, by path; `None` where there are none.
pub(super) fn read(root: &Path) -> Result<Vec<(String, Option<String>)>> {
    let mut copies = Vec::new();
    let core = root.join(CORE);
    for entry in fs::read_dir(&core).with_context(|| format!("read {}", core.display()))? {
        let directory = entry?.path();
        if directory.join("Cargo.toml").exists() {
            let file = directory.join(RULES);
            let path = file.strip_prefix(root)?.display().to_string();
            copies.push((path, fs::read_to_string(&file).ok()));
        }
    }
    copies.sort();
    Ok(copies)
}

/// One finding for each copy that differs from the first.
pub(super) fn check(copies: &[(String, Option<String>)]) -> Vec<Finding> {
    let found =
        |path: &str, line: usize, message: String| Finding { path: path.to_owned(), line, message };
    let Some((model, text)) = copies.iter().find_map(|(path, text)| {
        let text = text.as_deref()?;
        Some((path.as_str(), text))
    }) else {
        return vec![found(CORE, 1, format!("no crate has a {RULES}"))];
    };
    let differs = copies.iter().filter_map(|(path, copy)| match copy {
        None => Some(found(path, 1, format!("missing: copy {model}"))),
        Some(copy) if copy == text => None,
        Some(copy) => {
            let same = copy.lines().zip(text.lines()).take_while(|(a, b)| a == b);
            let line = same.count() + 1;
            Some(found(path, line, format!("differs from {model}")))
        }
    });
    differs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_differs_or_is_missing_is_found() {
        let copies = [
            ("a", Some("one\ntwo\n")),
            ("b", Some("one\ntwo\n")),
            ("c", Some("one\nthree\n")),
            ("d", None),
        ];
        let copies: Vec<(String, Option<String>)> = copies
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.map(str::to_owned)))
            .collect();
        let findings = check(&copies);
        let seen: Vec<(&str, usize)> =
            findings.iter().map(|finding| (finding.path.as_str(), finding.line)).collect();
        assert_eq!(seen, [("c", 2), ("d", 1)]);
        assert!(check(&copies[..2]).is_empty());
        assert_eq!(check(&[]).len(), 1);
    }
}

//! House rules as a test: what `cargo xtask tidy` checks and how it reports.
//!
//! Four kinds: edges between crates, read from `cargo metadata` ([`edges`]), their drawing ([`map`]),
//! rules on the text of each source file ([`text`], [`lengths`]), and files that must be copies of one another
//! ([`copies`]). Each finding is `path:line: message`. It changes nothing.

mod copies;
mod edges;
mod lengths;
pub(crate) mod map;
mod scrub;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::build;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// Prints every finding; the exit code says whether there were any.
pub(crate) fn command() -> Result<u8> {
    let (findings, n_files) = check()?;
    for finding in &findings {
        println!("{}:{}: {}", finding.path, finding.line, finding.message);
    }
    match findings.len() {
        0 => println!("tidy: {n_files} files, nothing to say"),
        n => println!("tidy: {n} findings in {n_files} files"),
    }
    Ok(u8::from(!findings.is_empty()))
}

/// All findings in the checkout, and the number of files read.
pub(crate) fn check() -> Result<(Vec<Finding>, usize)> {
    let root = build::root();
    let mut findings = edges::check(&edges::read(&build::metadata()?, &root)?);
    let files = sources(&root)?;
    for file in &files {
        let content = fs::read_to_string(root.join(file))
            .with_context(|| format!("read {}", file.display()))?;
        findings.extend(text::check(&file.to_string_lossy(), &content));
    }
    findings.extend(map::check()?);
    findings.extend(copies::check(&copies::read(&root)?));
    findings.sort();
    Ok((findings, files.len()))
}

/// Rust files of ours, relative to the checkout.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = ["crates", "tests", "xtask"].map(|dir| root.join(dir)).into();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path.strip_prefix(root)?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

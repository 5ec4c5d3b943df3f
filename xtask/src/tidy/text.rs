//! Rules on the text of one source file.

use super::Finding;
use super::lengths;
use super::scrub::scrub;

/// No file is longer than this; tests and generated code apart.
const MAX_LINES: usize = 800;

/// Where `unsafe` may be: a room of the agent's, one of the runtime's, and the signals of the demonstration program, which
/// has no dependencies that could do it.
const UNSAFE_ROOMS: [&str; 3] =
    ["crates/linux/src/sys", "crates/runtime/sys/src", "crates/runtime/demo/program/signals.rs"];
/// The crates with those rooms cannot forbid it as a whole.
const UNSAFE_CRATES: [&str; 3] =
    ["crates/linux/", "crates/runtime/sys/", "crates/runtime/demo/program/"];

/// Crates that run in a process which forks, and what they never name: whatever may have a thread.
const FORKING: [&str; 2] = ["crates/runtime/monitor/src/", "crates/runtime/sys/src/"];
const THREADED: [&str; 3] = ["std::thread", "tokio", "tonic"];

/// What the core never names: the world, the clock, other tasks.
const OUTSIDE_CORE: [&str; 11] = [
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "std::io",
    "tokio",
    "SystemTime::now",
    "Instant::now",
    "async fn",
    ".await",
];

/// Leftovers and shortcuts, with what to do about them.
const BANNED: [(&str, &str); 6] = [
    ("todo!", "unfinished code: finish it or leave it out"),
    ("unimplemented!", "unfinished code: finish it or leave it out"),
    ("dbg!", "debugging left in"),
    ("#[ignore", "an ignored test: assert today's behaviour with a note instead"),
    ("#[allow(", "use #[expect(…, reason = \"…\")]"),
    ("#![allow(", "use #![expect(…, reason = \"…\")]"),
];

/// Words by which a program would start a shell. CVE-2018-1002101 and its successors: the agent
/// never does.
const SHELLS: [&str; 5] = [
    "Command::new(\"sh\"",
    "Command::new(\"bash\"",
    "\"/bin/sh\"",
    "\"/bin/bash\"",
    "\"/usr/bin/env\"",
];

/// Every broken rule in a file; `path` is relative to the checkout.
pub(super) fn check(path: &str, source: &str) -> Vec<Finding> {
    let lines = scrub(source);
    let n_code_lines = tests_begin(&lines).unwrap_or(lines.len());
    let mut findings = Vec::new();
    let mut report = |line: usize, message: String| {
        findings.push(Finding { path: path.to_owned(), line, message });
    };
    for (index, line) in lines.iter().enumerate() {
        for (word, advice) in BANNED {
            if has_word(line, word) {
                report(index + 1, format!("{word}: {advice}"));
            }
        }
        if has_word(line, "unsafe") && !UNSAFE_ROOMS.iter().any(|room| path.starts_with(room)) {
            report(index + 1, format!("unsafe outside {}", UNSAFE_ROOMS.join(" and ")));
        }
        if FORKING.iter().any(|it| path.starts_with(it)) && index < n_code_lines {
            for name in THREADED.iter().filter(|name| has_word(line, name)) {
                report(index + 1, format!("{name} in a process that forks: it has one thread"));
            }
        }
        if path.starts_with("crates/core/") && !is_test_file(path) && index < n_code_lines {
            for name in named_outside(&lines, index) {
                report(
                    index + 1,
                    format!("{name} in a core crate: core has no I/O, no clock, no async"),
                );
            }
        }
    }
    if path.starts_with("crates/") && !is_test_file(path) {
        for (index, line) in source.lines().take(n_code_lines).enumerate() {
            let is_remark = line.trim_start().starts_with("//");
            if !is_remark && SHELLS.iter().any(|it| line.contains(it)) {
                report(index + 1, "a shell: run the program itself".to_owned());
            }
        }
    }
    if !is_test_file(path) && !source.contains("@generated") {
        for it in lengths::too_long(source, &lines, n_code_lines) {
            let (name, n_lines, limit) = (it.name, it.n_lines, lengths::MAX_LINES);
            report(
                it.index + 1,
                format!("{name} has {n_lines} lines: split it (limit {limit}, tables apart)"),
            );
        }
    }
    if is_root(path)
        && !UNSAFE_CRATES.iter().any(|it| path.starts_with(it))
        && !lines.iter().any(|it| it.contains("#![forbid(unsafe_code)]"))
    {
        report(1, "a crate's root says #![forbid(unsafe_code)]".to_owned());
    }
    if n_code_lines > MAX_LINES && !is_test_file(path) && !source.contains("@generated") {
        report(
            MAX_LINES + 1,
            format!("{n_code_lines} lines: split the file (limit {MAX_LINES}, tests apart)"),
        );
    }
    findings
}

fn named_outside(lines: &[String], index: usize) -> Vec<String> {
    let line = &lines[index];
    let mut named: Vec<String> = OUTSIDE_CORE
        .iter()
        .filter(|name| has_word(line, name) && !is_plain_data(line, name))
        .map(|name| (*name).to_owned())
        .collect();
    // `use std::{fs, …}` hides the path in a group, which may go over several lines.
    if let Some((_, group)) = line.split_once("use std::{") {
        let rest = lines[index + 1..].iter().map(String::as_str);
        let group: Vec<&str> = std::iter::once(group).chain(rest).collect();
        let group = group.join(" ");
        let group = group.split(';').next().unwrap_or_default();
        let modules = OUTSIDE_CORE.iter().filter_map(|name| name.strip_prefix("std::"));
        let in_group =
            modules.filter(|module| has_word(group, module) && !is_plain_data(group, module));
        named.extend(in_group.map(|module| format!("std::{module}")));
    }
    named
}

/// Parts of those modules that are values: addresses are, sockets are not.
fn is_plain_data(line: &str, name: &str) -> bool {
    const VALUES: [(&str, &str); 4] = [
        ("net", "net::Ip"),
        ("net", "net::{Ip"),
        ("net", "net::AddrParseError"),
        ("env", "env::consts"),
    ];
    VALUES.iter().any(|(module, value)| name.ends_with(module) && line.contains(value))
}

/// The line where the tests at the end of a file begin.
fn tests_begin(lines: &[String]) -> Option<usize> {
    let is_module = |at: usize| {
        let declaration = lines
            .iter()
            .skip(at + 1)
            .find(|line| !line.trim().is_empty() && !line.trim().starts_with("#["));
        declaration.is_some_and(|line| line.contains("mod ") && line.contains('{'))
    };
    (0..lines.len()).find(|at| lines[*at].trim() == "#[cfg(test)]" && is_module(*at))
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs")
        || path.split('/').skip(1).any(|part| part == "tests" || part.ends_with("_tests"))
        || path.starts_with("tests/e2e")
}

fn is_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")
}

/// Whether `word` stands alone: `unsafe` is not in `unsafe_code`, `tokio` is in `tokio::time`.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |it: char| it.is_alphanumeric() || it == '_';
    let begins_as_word = word.starts_with(is_part);
    let ends_as_word = word.ends_with(is_part);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_longer = (begins_as_word && before.is_some_and(is_part))
            || (ends_as_word && after.is_some_and(is_part));
        !is_longer
    })
}

#[cfg(test)]
mod tests;

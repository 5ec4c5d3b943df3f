use super::*;

const CORE: &str = "crates/core/lifecycle/src/decide.rs";
const ENGINE: &str = "crates/engine/pods/src/run.rs";

fn messages(path: &str, source: &str) -> Vec<String> {
    check(path, source)
        .into_iter()
        .map(|finding| format!("{}: {}", finding.line, finding.message))
        .collect()
}

fn is_clean(path: &str, source: &str) -> bool {
    messages(path, source).is_empty()
}

#[test]
fn core_does_not_name_the_world() {
    let cases = [
        ("use std::fs;", false),
        ("use std::{collections::BTreeMap, fs};", false),
        ("use std::{\n    collections::BTreeMap,\n    env,\n};", false),
        ("let now = std::time::SystemTime::now();", false),
        ("pub async fn decide() {}", false),
        ("tokio::spawn(run());", false),
        ("use std::{collections::BTreeMap, fmt};", true),
        ("use std::net::IpAddr;", true),
        ("use std::net::{Ipv4Addr, Ipv6Addr};", true),
        ("let arch = std::env::consts::ARCH;", true),
        ("use std::net::TcpStream;", false),
        ("// std::fs is not for us", true),
        ("let text = \"std::fs\";", true),
        ("fn a() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}", true),
    ];
    for (source, is_fine) in cases {
        assert_eq!(is_clean(CORE, source), is_fine, "{source}");
        assert!(is_clean(ENGINE, source), "{source} is fine outside core");
    }
}

#[test]
fn unsafe_has_its_rooms() {
    let source = "fn f() { unsafe { g() } }";
    let found = "1: unsafe outside crates/linux/src/sys and crates/runtime/sys/src and crates/runtime/demo/program/signals.rs";
    assert_eq!(messages(ENGINE, source), [found]);
    assert!(is_clean("crates/linux/src/sys/mount.rs", source));
    assert!(is_clean("crates/runtime/sys/src/fork.rs", source));
    assert!(!is_clean("crates/runtime/monitor/src/launch.rs", source));
    assert!(!is_clean("crates/linux/src/mount.rs", source));
    assert!(is_clean(ENGINE, "let unsafe_code = 1; // unsafe"));
}

#[test]
fn a_process_that_forks_names_no_threads() {
    let monitor = "crates/runtime/monitor/src/run.rs";
    let source = "std::thread::spawn(run);";
    assert_eq!(
        messages(monitor, source),
        ["1: std::thread in a process that forks: it has one thread"]
    );
    assert!(!is_clean(monitor, "use tokio::net::UnixStream;"));
    assert!(is_clean("crates/runtime/client/src/run.rs", "tokio::spawn(read());"));
    assert!(is_clean("crates/runtime/monitor/tests/launch.rs", "tokio::spawn(read());"));
}

#[test]
fn the_agent_never_starts_a_shell() {
    let source = "let made = Command::new(\"sh\").arg(\"-c\");";
    assert_eq!(messages(ENGINE, source), ["1: a shell: run the program itself"]);
    assert!(!is_clean(ENGINE, "let path = \"/bin/sh\";"));
    assert!(is_clean("crates/engine/pods/src/tests.rs", source));
    assert!(is_clean("tests/e2e/src/build.rs", source));
    assert!(is_clean(ENGINE, "// Never \"/bin/sh\"."));
    let in_tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n    {source}\n}}");
    assert!(is_clean(ENGINE, &in_tests));
}

#[test]
fn a_crate_root_forbids_unsafe() {
    assert!(!is_clean("crates/ports/src/lib.rs", "//! Ports."));
    assert!(is_clean("crates/ports/src/lib.rs", "//! Ports.\n#![forbid(unsafe_code)]\n"));
    assert!(is_clean("crates/linux/src/lib.rs", "//! Linux."));
    assert!(is_clean("crates/ports/src/runtime.rs", "//! Not a root."));
}

#[test]
fn leftovers_are_found_with_their_line() {
    let cases = [
        ("\n    todo!()", 2),
        ("dbg!(x);", 1),
        ("fn f() {\n    unimplemented!(\"later\")\n}", 2),
        ("#[test]\n#[ignore = \"slow\"]\nfn f() {}", 2),
        ("#[allow(dead_code)]", 1),
        ("#![allow(unused)]", 1),
    ];
    for (source, line) in cases {
        let found = check(ENGINE, source);
        assert_eq!(found.len(), 1, "{source}");
        assert_eq!(found[0].line, line, "{source}");
    }
    assert!(is_clean(ENGINE, "fn ignored() { my_todo!(); }"));
}

#[test]
fn long_files_are_found_but_their_tests_do_not_count() {
    let long = "fn f() {}\n".repeat(MAX_LINES + 1);
    let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert_eq!(
        messages(ENGINE, &long),
        ["801: 801 lines: split the file (limit 800, tests apart)"]
    );
    assert!(is_clean(ENGINE, &tested));
    assert!(is_clean("crates/engine/pods/src/run/tests.rs", &long));
    assert!(is_clean("crates/engine/pods/tests/loop.rs", &long));
    assert!(is_clean(ENGINE, &format!("// @generated\n{long}")));
}

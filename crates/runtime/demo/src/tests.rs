//! The program as the build script made it, run on this machine, and the image's archive.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Command, Output, Stdio},
};

use ferrolet_runtime_images::{BootId, Limits, Store, load, manifest::Platform};

use super::*;

const PROGRAM: &str = concat!(env!("OUT_DIR"), "/demo");

fn sh(script: &str) -> Output {
    Command::new(PROGRAM).args(["sh", "-c", script]).output().unwrap()
}

#[test]
fn a_script_is_done_in_order_and_its_code_is_the_last_ones() {
    let check = |script: &str, out: &str, code: i32| {
        let done = sh(script);
        assert_eq!(String::from_utf8_lossy(&done.stdout), out, "{script}");
        assert_eq!(done.status.code(), Some(code), "{script}: {done:?}");
    };
    check("echo one; echo 'two  three'", "one\ntwo  three\n", 0);
    check("echo working; sleep 0.01; exit 3", "working\n", 3);
    check("false && echo no; true || echo no; false || echo yes", "yes\n", 0);
    check("X=1", "", 127);
    check("false; echo $?", "1\n", 0);
    check("while false; do echo no; done; echo after", "after\n", 0);
    check("exec echo last; echo never", "last\n", 0);
    check("nonsense", "", 127);
    check("# a remark\necho \"a b\"'c'\\ d", "a bc d\n", 0);
}

#[test]
fn what_the_shell_cannot_do_is_said() {
    for (script, why) in [
        ("echo a | cat", "'|' is more than this shell can do"),
        ("echo $(date)", "$(…) is more than this shell can do"),
        ("echo 'open", "' is missing at the end"),
        ("while true; do echo", "done is missing"),
        ("echo >", "a file's name is missing after >"),
    ] {
        let done = sh(script);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(said.contains(why), "{script}: {said}");
        assert_eq!(done.status.code(), Some(2), "{script}");
    }
}

#[test]
fn output_goes_where_it_is_sent() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("f");
    let done = sh(&format!("echo a > {0}; echo b >> {0}; cat {0}; echo c >&2", file.display()));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "a\nb\n");
    assert_eq!(String::from_utf8_lossy(&done.stderr), "c\n");
}

#[test]
fn variables_are_the_environments() {
    let command = ["sh", "-c", "echo \"$WHO\" ${WHO}s $NOBODY."];
    let done = Command::new(PROGRAM).args(command).env("WHO", "node").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "node nodes .\n");
}

#[test]
fn a_trap_has_the_last_word() {
    let mut child = Command::new(PROGRAM)
        .args(["sh", "-c", "trap 'echo bye; exit 7' TERM; echo ready; sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), child.wait().unwrap().code()), ("bye\n", Some(7)));
}

#[test]
fn the_web_server_gives_its_directory_and_nothing_above() {
    let place = tempfile::tempdir().unwrap();
    let pages = place.path().join("www");
    std::fs::create_dir(&pages).unwrap();
    std::fs::write(pages.join("index.html"), "hello").unwrap();
    std::fs::write(place.path().join("secret"), "secret").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = Command::new(PROGRAM)
        .args(["httpd", "-f", "-p", &format!("127.0.0.1:{port}"), "-h"])
        .arg(&pages)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let get = |path: &str| {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };
    let (page, above, missing) = (get("/"), get("/../secret"), get("/none"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK") && page.ends_with("hello"), "{page}");
    assert!(above.starts_with("HTTP/1.1 404"), "{above}");
    assert!(missing.starts_with("HTTP/1.1 404"), "{missing}");
}

#[test]
fn the_archive_is_one_image_with_both_names() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("demo.tar.gz");
    std::fs::write(&path, ARCHIVE).unwrap();
    let limits = Limits { reserved_bytes: 0, ..Limits::USUAL };
    let store =
        Store::open(&place.path().join("store"), BootId("boot".to_owned()), &limits).unwrap();
    let archive = std::fs::File::open(&path).unwrap();
    load(&store, archive, &Platform::own(), &limits).unwrap();
    let image = store.find(&format!("{REPOSITORY}:1")).unwrap();
    assert_eq!(store.find(&format!("{REPOSITORY}:latest")).unwrap().id, image.id);
    assert_eq!(store.images().len(), 1);
}

#[test]
fn the_image_costs_the_agent_less_than_a_megabyte() {
    assert!(ARCHIVE.len() < 1_000_000, "{} bytes", ARCHIVE.len());
}

#[test]
fn only_its_own_names_mean_it() {
    for (name, is_ours) in [
        ("ferrolet.dev/demo", true),
        ("ferrolet.dev/demo:1", true),
        ("ferrolet.dev/demo:latest", true),
        ("ferrolet.dev/demo:2", false),
        ("ferrolet.dev/demonstration:1", false),
        ("docker.io/ferrolet.dev/demo:1", false),
    ] {
        assert_eq!(is_meant(name), is_ours, "{name}");
    }
}

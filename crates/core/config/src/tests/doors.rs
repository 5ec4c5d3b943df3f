//! Doors that stand open to everybody.

use super::{command_line, file, load_all};

fn refused(arguments: &[&str]) -> Vec<String> {
    match load_all(&command_line(arguments), None, &[]) {
        Ok(_) => Vec::new(),
        Err(error) => error.faults.into_iter().map(|fault| fault.path).collect(),
    }
}

#[test]
fn open_doors_that_nobody_asked_for_are_refused() {
    let webhook = ["--anonymous-auth=false", "--authorization-mode=Webhook", "--kubeconfig=/k"];
    let meant = ["--anonymous-auth=true", "--authorization-mode=AlwaysAllow"];
    let with = |more: &[&'static str], last: &'static str| {
        let all: Vec<&str> = more.iter().copied().chain([last]).collect();
        refused(&all)
    };
    assert_eq!(refused(&[]), ["authorization.mode", "readOnlyPort"]);
    assert_eq!(refused(&["--read-only-port=0"]), ["authorization.mode"]);
    assert_eq!(refused(&meant), ["readOnlyPort"]);
    assert_eq!(with(&meant, "--read-only-port=10255"), [""; 0]);
    assert_eq!(with(&webhook, "--read-only-port=0"), [""; 0]);
    assert_eq!(with(&["--enable-server=false"], "--read-only-port=0"), [""; 0]);
    assert_eq!(refused(&["--address=127.0.0.1"]), [""; 0]);
    assert_eq!(refused(&["--address=::1"]), [""; 0]);
    assert_eq!(refused(&["--anonymous-auth=true", "--read-only-port=0"]), ["authorization.mode"]);
}

#[test]
fn a_file_that_opens_them_has_asked() {
    let main = file(
        "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\n\
         authorization: {mode: AlwaysAllow}\nreadOnlyPort: 10255",
    );
    assert!(load_all(&command_line(&[]), Some(main), &[]).is_ok());
    assert!(load_all(&command_line(&[]), Some(file("")), &[]).is_ok());
}

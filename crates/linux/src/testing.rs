//! What tests of the adapters need of a machine: mounts of their own, and a way to say that it does
//! not have what they need.

use std::{path::Path, process::Command};

/// Says that this test cannot do its work here. The harness has no word for that, so the line goes
/// past it to whoever counts: `cargo xtask test` takes the test for skipped.
pub fn skip(reason: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let line = format!("[skipped] {}: {reason}\n", thread.name().unwrap_or("?"));
    std::io::stdout().write_all(line.as_bytes()).expect("tests have an output");
}

/// Runs one of this binary's tests again inside a mount namespace of its own, where it may mount;
/// `false` when the machine does not let us.
pub fn again_with_own_mounts(test: &str) -> bool {
    let binary = std::env::current_exe().expect("this program has a path");
    let answer = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(binary)
        .args(["--exact", test, "--nocapture"])
        .env("FERROLET_OWN_MOUNTS", "1")
        .output();
    match answer {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains("1 passed"), "{test} is not a test: {said}");
            true
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                said.contains("unshare failed"),
                "{said}{}",
                String::from_utf8_lossy(&output.stdout)
            );
            skip(&format!("no mount namespace: {}", said.trim_end()));
            false
        }
        Err(cause) => {
            skip(&format!("no unshare: {cause}"));
            false
        }
    }
}

pub fn has_own_mounts() -> bool {
    std::env::var_os("FERROLET_OWN_MOUNTS").is_some()
}

pub fn mount_tmpfs(point: &Path) {
    let done = Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs"])
        .arg(point)
        .status()
        .expect("mount can be run");
    assert!(done.success());
}

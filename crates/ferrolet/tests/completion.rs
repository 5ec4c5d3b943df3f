//! What bash completes with the script that the executable prints.

use std::process::Command;

/// What is offered when these words were typed; the last one is not finished.
fn offered(function: &str, words: &[&str]) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source <({} completion bash) && cd {} && COMP_WORDS=({}) COMP_CWORD={} && {function} && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        env!("CARGO_BIN_EXE_ferrolet"),
        env!("CARGO_MANIFEST_DIR"),
        quoted.join(" "),
        words.len() - 1,
    );
    let answer = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success(), "{words:?}: {said}");
    let text = String::from_utf8(answer.stdout).expect("names are text");
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_words_flags_and_values() {
    let check = |function: &str, words: &[&str], expected: &[&str]| {
        assert_eq!(offered(function, words), expected, "{words:?}");
    };
    check("_kubelet", &["kubelet", "--config"], &["--config", "--config-dir"]);
    check("_kubelet", &["kubelet", "--config", "Cargo.t"], &["Cargo.toml"]);
    check("_kubelet", &["kubelet", "--config", "=", "Cargo.t"], &["Cargo.toml"]);
    check("_kubelet", &["kubelet", "--fail-swap-on", "=", "f"], &["false"]);
    check("_kubelet", &["kubelet", "--fail-swap-on", "="], &["true", "false"]);
    check("_ferrolet", &["ferrolet", "co"], &["config", "completion"]);
    check("_ferrolet", &["ferrolet", "config", "s"], &["show"]);
    check("_ferrolet", &["ferrolet", "config", "check", "Cargo.t"], &["Cargo.toml"]);
    check("_ferrolet", &["ferrolet", "kubelet", "--offline"], &["--offline-start"]);
    check("_ferrolet", &["ferrolet", "runtime", ""], &["check"]);
}

#[test]
fn a_shell_that_is_not_known_is_refused() {
    for words in [&["completion"][..], &["completion", "tcsh"], &["man", "cat"]] {
        let answer = Command::new(env!("CARGO_BIN_EXE_ferrolet")).args(words).output();
        assert!(!answer.expect("it runs").status.success(), "{words:?}");
    }
}

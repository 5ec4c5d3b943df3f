use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use ferrolet_ports::{NodeDockerConfig, PluginCall, PullFile, PullFiles as _, RegistryLogins as _};

use super::{logins::run, *};

#[tokio::test]
async fn records_are_private_whole_and_found_again() {
    let root = tempfile::tempdir().unwrap();
    let files = NodePullFiles::new(root.path());
    let (intent, record) = (PullFile::Intent, PullFile::Record);
    assert_eq!(files.read(intent, "sha256-1").await, Ok(None));
    files.write(intent, "sha256-1", "one").await.unwrap();
    files.write(record, "sha256-1", "two").await.unwrap();
    files.write(record, "sha256-1", "three").await.unwrap();
    let path = root.path().join("image_manager/pulled");
    assert_eq!(fs::read(path.join("sha256-1")).unwrap(), b"three");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("sha256-1"))), (0o700, 0o600));
    for stranger in ["other", "sha256-2.tmp"] {
        fs::write(path.join(stranger), "x").unwrap();
    }
    let listed = files.list(record).await.unwrap();
    assert_eq!(listed, [("sha256-1".to_owned(), b"three".to_vec())]);
    files.remove(record, "sha256-1").await.unwrap();
    files.remove(record, "sha256-1").await.unwrap();
    assert_eq!(files.read(record, "sha256-1").await, Ok(None));
    assert!(files.write(record, "../escape", "x").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_start_together_write_the_same_intent() {
    let root = tempfile::tempdir().unwrap();
    let files = NodePullFiles::new(root.path());
    for _ in 0..20 {
        let writes = (0..16).map(|_| files.write(PullFile::Intent, "sha256-1", "one"));
        let written = futures::future::join_all(writes).await;
        assert!(written.iter().all(Result::is_ok), "{written:?}");
    }
}

fn places(root: &Path) -> LoginPlaces {
    LoginPlaces {
        json: vec![root.join("a"), root.join("b")],
        old: vec![root.join("b")],
        plugins: Some(root.to_owned()),
    }
}

#[tokio::test]
async fn the_first_configuration_counts_and_the_old_kind_comes_last() {
    let root = tempfile::tempdir().unwrap();
    let logins = NodeLogins::new(places(root.path()));
    assert_eq!(logins.node_config().await, None);
    fs::create_dir(root.path().join("b")).unwrap();
    fs::write(root.path().join("b/.dockercfg"), "old").unwrap();
    let old = Some(NodeDockerConfig::Old(b"old".to_vec()));
    assert_eq!(logins.node_config().await, old);
    fs::write(root.path().join("b/config.json"), "json").unwrap();
    let json = Some(NodeDockerConfig::Json(b"json".to_vec()));
    assert_eq!(logins.node_config().await, json);
}

fn plugin(root: &Path, script: &str) -> std::path::PathBuf {
    let path = root.join("plugin");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn call() -> PluginCall {
    PluginCall {
        name: "plugin".to_owned(),
        args: vec!["arg".to_owned()],
        env: vec![("LAB".to_owned(), "env".to_owned())],
        input: "in".to_owned(),
    }
}

#[tokio::test]
async fn a_plugin_gets_arguments_variables_and_input_and_its_output_comes_back() {
    let root = tempfile::tempdir().unwrap();
    let path = plugin(root.path(), "echo \"$1 $LAB $(cat)\"");
    let said = run(path, &call(), Duration::from_secs(20)).await.unwrap();
    assert_eq!(said, b"arg env in\n");
    let logins = NodeLogins::new(places(root.path()));
    assert!(logins.check_plugin("plugin").is_ok());
    let missing = logins.check_plugin("missing").unwrap_err().to_string();
    assert!(missing.contains("missing"), "{missing}");
}

#[tokio::test]
async fn a_plugin_that_fails_floods_or_hangs_is_told_apart_and_ended() {
    let root = tempfile::tempdir().unwrap();
    let check = async |script: &str, time: u64, message: &str| {
        let path = plugin(root.path(), script);
        let error = run(path, &call(), Duration::from_secs(time)).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(message), "{script}: {error}");
    };
    check("echo no luck >&2; exit 3", 20, "exit status 3: no luck").await;
    check("exec yes", 20, "it answers more than 1048576 bytes").await;
    // The child of the plugin is ended with it.
    let pid = root.path().join("pid");
    let hang = format!("sleep 1000 & echo $! > {}; wait", pid.display());
    check(&hang, 1, "no end within 1 s").await;
    let pid = fs::read_to_string(&pid).unwrap();
    let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    for _ in 0..200 {
        if state().is_empty() || state().contains(") Z ") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the plugin's child still runs: {}", state());
}

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use ferrolet_linux::testing::{again_with_own_mounts, has_own_mounts, mount_tmpfs};
use ferrolet_ports::{PodFiles, Retry, StoredPod};
use ferrolet_types::{ContainerId, PodKey, PodUid};
use tempfile::TempDir;

use super::*;

struct Node {
    held: TempDir,
    files: NodeFiles,
    key: PodKey,
    uid: PodUid,
}

fn node() -> Node {
    let held = TempDir::new().unwrap();
    let files = NodeFiles::new(NodeFilesSettings {
        root: held.path().join("kubelet"),
        pod_logs: held.path().join("log/pods"),
        container_links: held.path().join("log/containers"),
    });
    Node { held, files, key: PodKey::new("ns", "web"), uid: PodUid::from("u-1") }
}

impl Node {
    fn at(&self, path: &str) -> PathBuf {
        self.held.path().join(path)
    }

    fn log(&self, path: &str) -> String {
        let log = self.at("log/pods/ns_web_u-1").join(path);
        log.to_str().unwrap().to_owned()
    }

    fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.at(path)).unwrap().permissions().mode() & 0o7777
    }
}

#[tokio::test]
async fn the_layout_and_its_modes_are_upstreams() {
    let node = node();
    node.files.prepare().await.unwrap();
    for _ in 0..2 {
        node.files.ensure_pod(&node.key, &node.uid).await.unwrap();
    }
    let message = node.files.new_termination_log(&node.uid, "main").await.unwrap();
    let hosts = node.files.write_hosts(&node.uid, "hosts").await.unwrap();
    node.files.ensure_container_logs(&node.key, &node.uid, "main").await.unwrap();
    for (path, mode) in [
        ("kubelet", 0o750),
        ("kubelet/pods", 0o750),
        ("kubelet/plugins", 0o750),
        ("kubelet/plugins_registry", 0o750),
        ("kubelet/pod-resources", 0o750),
        ("kubelet/checkpoints", 0o700),
        ("kubelet/pods/u-1", 0o750),
        ("kubelet/pods/u-1/volumes", 0o750),
        ("kubelet/pods/u-1/plugins", 0o750),
        ("kubelet/pods/u-1/containers", 0o750),
        ("kubelet/pods/u-1/containers/main", 0o750),
        ("kubelet/pods/u-1/etc-hosts", 0o644),
        ("log/pods", 0o750),
        ("log/pods/ns_web_u-1", 0o755),
        ("log/pods/ns_web_u-1/main", 0o755),
        ("log/containers", 0o755),
    ] {
        assert_eq!(node.mode(path), mode, "{path}");
    }
    let name = message.file_name().unwrap().to_str().unwrap();
    assert!(name.len() == 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(message.parent().unwrap(), node.at("kubelet/pods/u-1/containers/main"));
    let mode = fs::metadata(&message).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o666);
    assert_eq!(hosts, node.at("kubelet/pods/u-1/etc-hosts"));
    assert_eq!(node.files.log_directory(&node.key, &node.uid), node.at("log/pods/ns_web_u-1"));
}

#[tokio::test]
async fn the_hosts_file_stays_the_same_file_when_its_content_changes() {
    let node = node();
    let path = node.files.write_hosts(&node.uid, "a long first").await.unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    node.files.write_hosts(&node.uid, "second").await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
}

#[tokio::test]
async fn the_highest_restart_count_is_read_from_old_logs() {
    let node = node();
    let count =
        async || node.files.ensure_container_logs(&node.key, &node.uid, "main").await.unwrap();
    assert_eq!(count().await, None);
    let directory = node.at("log/pods/ns_web_u-1/main");
    for name in ["0.log", "3.log.20260102-030405", "x.log"] {
        fs::write(directory.join(name), "").unwrap();
    }
    fs::create_dir(directory.join("9.log")).unwrap();
    assert_eq!(count().await, Some(3));
    fs::write(directory.join("4.log"), "").unwrap();
    assert_eq!(count().await, Some(4));
}

#[tokio::test]
async fn a_termination_message_is_bounded_and_missing_means_empty() {
    let node = node();
    let path = node.files.new_termination_log(&node.uid, "main").await.unwrap();
    let text = path.to_str().unwrap();
    let read = async |limit| node.files.read_termination_log(text, limit).await.unwrap();
    assert_eq!(read(4096).await, "");
    fs::write(&path, "0123456789").unwrap();
    assert_eq!(read(4096).await, "0123456789");
    assert_eq!(read(4).await, "6789", "upstream keeps the end");
    fs::write(&path, b"bad \xff").unwrap();
    assert_eq!(read(4096).await, "bad \u{fffd}");
    fs::remove_file(&path).unwrap();
    assert_eq!(read(4096).await, "");
}

#[tokio::test]
async fn a_termination_log_cannot_be_turned_into_something_else() {
    let node = node();
    let path = node.files.new_termination_log(&node.uid, "main").await.unwrap();
    let text = path.to_str().unwrap();
    let secret = node.at("secret");
    fs::write(&secret, "secret").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&secret, &path).unwrap();
    assert!(node.files.read_termination_log(text, 100).await.is_err());
    fs::remove_file(&path).unwrap();
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    assert!(node.files.read_termination_log(text, 100).await.is_err());
    for elsewhere in [
        secret.to_str().unwrap(),
        "/etc/passwd",
        &format!("{}/../../../../secret", path.parent().unwrap().display()),
        "",
    ] {
        let error = node.files.read_termination_log(elsewhere, 100).await.unwrap_err();
        assert_eq!(error.retry, Retry::Never, "{elsewhere}");
    }
}

#[tokio::test]
async fn the_end_of_a_log_is_read_without_prefixes() {
    let node = node();
    node.files.ensure_container_logs(&node.key, &node.uid, "main").await.unwrap();
    let path = node.log("main/0.log");
    let line = "2016-10-06T00:17:09.669794202Z stdout F";
    fs::write(&path, format!("{line} one\n{line} two\n")).unwrap();
    let tail = node.files.read_log_tail(&path, 1, 100).await.unwrap();
    assert_eq!(tail, "two\n");
    fs::remove_file(&path).unwrap();
    symlink("/etc/passwd", &path).unwrap();
    assert!(node.files.read_log_tail(&path, 1, 100).await.is_err());
    assert!(node.files.read_log_tail("/etc/passwd", 1, 100).await.is_err());
}

#[tokio::test]
async fn logs_are_linked_and_removed_with_their_links() {
    let node = node();
    let (first, second) = (ContainerId::from("id-1"), ContainerId::from("id-2"));
    node.files.ensure_container_logs(&node.key, &node.uid, "main").await.unwrap();
    let (one, two) = (node.log("main/0.log"), node.log("main/1.log"));
    let link = async |id: &ContainerId, log: &str| {
        node.files.link_container_log(&node.key, "main", id, log).await.unwrap();
    };
    let link_path = node.at("log/containers/web_ns_main-id-1.log");
    link(&first, &one).await;
    assert!(fs::symlink_metadata(&link_path).is_err(), "no log, no link");
    for log in [&one, &two] {
        fs::write(log, "").unwrap();
    }
    fs::write(format!("{one}.20260102-030405.gz"), "").unwrap();
    link(&first, &two).await;
    link(&first, &one).await;
    link(&first, &one).await;
    link(&second, &two).await;
    assert_eq!(fs::read_link(&link_path).unwrap(), Path::new(&one));

    for _ in 0..2 {
        node.files.remove_container_log(&one, (&node.key, "main", &first)).await.unwrap();
    }
    assert!(fs::symlink_metadata(&link_path).is_err());
    let left: Vec<_> = fs::read_dir(node.at("log/pods/ns_web_u-1/main"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["1.log"]);

    let foreign = node.at("log/containers/other.log");
    symlink("/var/log/pods/other/0.log", &foreign).unwrap();
    for _ in 0..2 {
        node.files.remove_logs(&node.key, &node.uid).await.unwrap();
    }
    assert!(!node.at("log/pods/ns_web_u-1").exists());
    assert!(fs::symlink_metadata(node.at("log/containers/web_ns_main-id-2.log")).is_err());
    assert!(fs::symlink_metadata(&foreign).is_ok(), "another pod's link stays");
}

#[tokio::test]
async fn stored_pods_are_found_by_directory_and_by_logs() {
    let node = node();
    assert!(node.files.list().await.unwrap().is_empty());
    node.files.ensure_pod(&node.key, &node.uid).await.unwrap();
    fs::create_dir(node.at("kubelet/pods/u-2")).unwrap();
    fs::create_dir(node.at("log/pods/ns_db_u-0")).unwrap();
    fs::write(node.at("kubelet/pods/file"), "").unwrap();
    let stored = |uid: &str, key: Option<PodKey>| StoredPod { uid: PodUid::from(uid), key };
    let expected = [
        stored("u-0", Some(PodKey::new("ns", "db"))),
        stored("u-1", Some(node.key.clone())),
        stored("u-2", None),
    ];
    assert_eq!(node.files.list().await.unwrap(), expected);
}

#[tokio::test]
async fn removing_a_pod_leaves_what_its_links_point_to() {
    let node = node();
    node.files.ensure_pod(&node.key, &node.uid).await.unwrap();
    fs::write(node.at("precious"), "data").unwrap();
    let volume = node.at("kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/e");
    fs::create_dir_all(&volume).unwrap();
    symlink(node.held.path(), volume.join("out")).unwrap();
    symlink("/", volume.join("root")).unwrap();
    for _ in 0..2 {
        node.files.remove_pod(&node.uid).await.unwrap();
    }
    assert!(!node.at("kubelet/pods/u-1").exists());
    assert_eq!(fs::read_to_string(node.at("precious")).unwrap(), "data");
}

#[tokio::test]
async fn names_from_manifests_cannot_leave_the_tree() {
    let node = node();
    fs::create_dir_all(node.at("victim/x")).unwrap();
    for bad in ["", ".", "..", "../../victim", "a/b", "/etc"] {
        let uid = PodUid::from(bad);
        let errors = [
            node.files.remove_pod(&uid).await.err(),
            node.files.ensure_pod(&node.key, &uid).await.err(),
            node.files.write_hosts(&uid, "x").await.err(),
            node.files.new_termination_log(&node.uid, bad).await.err(),
            node.files.ensure_container_logs(&node.key, &node.uid, bad).await.err(),
        ];
        for (n, error) in errors.into_iter().enumerate() {
            let retry = error.map(|error| error.retry);
            assert_eq!(retry, Some(Retry::Never), "{bad:?}, call {n}");
        }
    }
    let slashed = PodKey::new("../../victim", "x");
    assert!(node.files.remove_logs(&slashed, &node.uid).await.is_err());
    assert!(node.at("victim/x").exists());
}

#[tokio::test]
async fn a_pod_with_a_mount_below_is_not_removed() {
    if !has_own_mounts() {
        again_with_own_mounts("files::tests::a_pod_with_a_mount_below_is_not_removed");
        return;
    }
    let node = node();
    node.files.ensure_pod(&node.key, &node.uid).await.unwrap();
    let volume = node.at("kubelet/pods/u-1/volumes/v");
    fs::create_dir(&volume).unwrap();
    mount_tmpfs(&volume);
    fs::write(volume.join("precious"), "data").unwrap();
    let error = node.files.remove_pod(&node.uid).await.unwrap_err();
    assert_eq!(error.retry, Retry::Later);
    assert!(error.cause.contains("mounted"), "{error}");
    assert!(node.at("kubelet/pods/u-1/plugins").exists(), "all or nothing");
    assert_eq!(fs::read_to_string(volume.join("precious")).unwrap(), "data");
    let umounted = Command::new("umount").arg(&volume).status().unwrap();
    assert!(umounted.success());
    node.files.remove_pod(&node.uid).await.unwrap();
    assert!(!node.at("kubelet/pods/u-1").exists());
}

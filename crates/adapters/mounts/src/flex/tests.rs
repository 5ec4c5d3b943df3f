//! Drivers that are scripts, on real directories.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use ferrolet_ports::VolumePlace;
use tempfile::TempDir;

use super::*;

struct Node {
    directory: TempDir,
    drivers: NodeFlexDrivers,
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("pods")).unwrap();
        let mut drivers =
            NodeFlexDrivers::new(&directory.path().join("exec"), NodeVolumes::new(&root));
        drivers.patience = |command| match command {
            FlexCommand::Mount => Duration::from_secs(2),
            _ => Duration::from_secs(20),
        };
        Self { directory, drivers }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    /// Installs a driver that notes its calls and answers them with these lines of a script.
    fn install(&self, directory: &str, name: &str, lines: &str) {
        let place = self.path("exec").join(directory);
        fs::create_dir_all(&place).unwrap();
        let script = format!(
            "#!/bin/sh\ncd {}\necho \"$@\" >> calls\n{lines}\n",
            self.directory.path().display()
        );
        // A program that is being written cannot be started, so it comes by its name at once, as
        // installers do it.
        let new = place.join(".new");
        fs::write(&new, script).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, place.join(name)).unwrap();
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        fs::remove_file(self.path("calls")).ok();
        text.lines().map(str::to_owned).collect()
    }

    async fn call(&self, command: FlexCommand, words: &[&str]) -> Result<FlexAnswer, FlexError> {
        let call = FlexCall { command, words: words.iter().map(|it| (*it).to_owned()).collect() };
        self.drivers.call("ours/disk", &call).await
    }
}

const SUCCESS: &str = r#"echo '{"status": "Success"}'"#;

fn failed(why: &str) -> FlexError {
    FlexError::Failed(why.to_owned())
}

#[tokio::test]
async fn a_driver_is_found_when_it_comes_and_asked_once_what_it_can_do() {
    let node = Node::new();
    let missing = node.drivers.abilities("ours/disk").await;
    assert_eq!(missing, Err(FlexError::Missing));
    node.install("ours~disk", "disk", SUCCESS);
    for _ in 0..2 {
        let abilities = node.drivers.abilities("ours/disk").await.unwrap();
        assert_eq!(abilities, FlexAbilities::default());
    }
    assert_eq!(node.calls(), ["init"]);
    let lines = r#"case "$1" in
init) echo '{"status": "Success", "capabilities": {"attach": false}}';;
waitforattach) echo '{"status": "Success", "device": "/dev/x"}';;
*) echo '{"status": "Not supported"}'; exit 1;;
esac"#;
    node.install("ours~disk", "disk", lines);
    let answer = node.call(FlexCommand::WaitForAttach, &["/dev/y", "{}"]).await;
    assert_eq!(answer.unwrap().device, "/dev/x");
    let abilities = node.drivers.abilities("ours/disk").await.unwrap();
    assert!(!abilities.attaches);
    for _ in 0..2 {
        let answer = node.call(FlexCommand::Unmount, &["/mnt"]).await;
        assert_eq!(answer, Err(FlexError::NotSupported));
    }
    // What it does not support is not asked for again.
    assert_eq!(node.calls(), ["init", "waitforattach /dev/y {}", "unmount /mnt"]);
    fs::remove_dir_all(node.path("exec/ours~disk")).unwrap();
    let missing = node.call(FlexCommand::Unmount, &["/mnt"]).await;
    assert_eq!(missing, Err(FlexError::Missing));
}

#[tokio::test]
async fn only_what_stands_in_the_directory_is_a_driver() {
    let node = Node::new();
    node.install("disk", "disk", SUCCESS);
    node.install("..own", "own", SUCCESS);
    node.install("elsewhere", "disk", SUCCESS);
    symlink(node.path("exec/elsewhere"), node.path("exec/linked~disk")).unwrap();
    fs::create_dir_all(node.path("exec/dir~disk/disk")).unwrap();
    node.drivers.abilities("disk").await.unwrap();
    let names = [
        "",
        "/",
        "..",
        "../exec/disk",
        "disk/",
        "disk/../disk",
        "..own",
        "ours~disk",
        "linked/disk",
        "dir/disk",
        "a/b/c",
    ];
    for name in names {
        let found = node.drivers.abilities(name).await;
        assert_eq!(found, Err(FlexError::Missing), "{name:?}");
    }
    assert_eq!(node.calls(), ["init"]);
}

#[tokio::test]
async fn a_driver_that_does_not_introduce_itself_is_none_and_says_why() {
    let node = Node::new();
    let broken = |why: &str| {
        Err(FlexError::Broken(format!(
            "error creating Flexvolume plugin from directory ours~disk, skipping. Error: {why}"
        )))
    };
    for (lines, why) in [
        (
            r#"echo '{"status": "Failure", "message": "no licence"}'"#,
            "init command failed, status: Failure, reason: no licence",
        ),
        ("echo what", "invalid character 'w' looking for beginning of value"),
        ("exit 3", "unexpected end of JSON input"),
        ("kill -9 $$", "unexpected end of JSON input"),
    ] {
        node.install("ours~disk", "disk", lines);
        assert_eq!(node.drivers.abilities("ours/disk").await, broken(why));
    }
    let program = node.path("exec/ours~disk/disk");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = node.drivers.abilities("ours/disk").await;
    let why = format!("fork/exec {}: Permission denied (os error 13)", program.display());
    assert_eq!(refused, broken(&why));
}

fn is_running(pid: &str) -> bool {
    // One that has ended and was not waited for yet is no harm.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

async fn wait_until(mut is_true: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("in time");
}

#[tokio::test]
async fn a_driver_that_hangs_ends_with_its_time_or_its_caller_and_so_do_its_children() {
    let node = Node::new();
    let lines = format!(
        r#"case "$1" in init) {SUCCESS};; *) sleep 1000 & echo $! > child.new; mv child.new child; wait;; esac"#
    );
    node.install("ours~disk", "disk", &lines);
    let hung = node.call(FlexCommand::Mount, &["/mnt", "{}"]).await;
    assert_eq!(hung, Err(failed("timeout")));
    let child = fs::read_to_string(node.path("child")).unwrap();
    wait_until(|| !is_running(child.trim())).await;
    fs::remove_file(node.path("child")).unwrap();

    // Whoever waits goes away.
    {
        let call = node.call(FlexCommand::Unmount, &["/mnt"]);
        let begun = wait_until(|| node.path("child").exists());
        tokio::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("it answers"),
            () = begun => {}
        }
    }
    let child = fs::read_to_string(node.path("child")).unwrap();
    wait_until(|| !is_running(child.trim())).await;
}

#[tokio::test]
async fn a_flood_of_words_is_not_listened_to() {
    let node = Node::new();
    let lines = format!(
        r#"case "$1" in init) {SUCCESS};; *) head -c 300000 /dev/zero | tr '\0' x >&2; {SUCCESS};; esac"#
    );
    node.install("ours~disk", "disk", &lines);
    let answer = node.call(FlexCommand::Unmount, &["/mnt"]).await;
    let Err(FlexError::Failed(why)) = answer else {
        panic!("{answer:?}");
    };
    assert!(why.len() < 200, "{why}");
}

#[tokio::test]
async fn words_reach_the_driver_as_they_are() {
    let node = Node::new();
    let lines = format!(
        r#"case "$1" in init) ;; *) printf '%s\n' "$#" "$2" "$3" > words;; esac; {SUCCESS}"#
    );
    node.install("ours~disk", "disk", &lines);
    let words = ["/mnt", r#"{"a":"$(touch hurt) ; `touch hurt`"}"#];
    node.call(FlexCommand::Mount, &words).await.unwrap();
    let seen = fs::read_to_string(node.path("words")).unwrap();
    assert_eq!(seen, format!("3\n{}\n{}\n", words[0], words[1]));
    assert!(!node.path("hurt").exists());
}

#[tokio::test]
async fn places_are_upstreams_and_only_empty_ones_go() {
    let node = Node::new();
    let own = FlexPlace::Pod(VolumePlace {
        uid: PodUid::new("uid"),
        plugin: "ours~disk".to_owned(),
        name: "v".to_owned(),
    });
    let nodes = FlexPlace::Node { driver: "ours/disk".to_owned(), volume: "v".to_owned() };
    let drivers = &node.drivers;
    for (place, path) in [
        (&own, "root/pods/uid/volumes/ours~disk/v"),
        (&nodes, "root/plugins/kubernetes.io/flexvolume/ours/disk/mounts/v"),
    ] {
        assert_eq!(drivers.look_at(place).await.unwrap(), None);
        let expected = FlexStand { path: node.path(path), is_mounted: false };
        assert_eq!(drivers.make_place(place).await.unwrap(), expected);
        assert_eq!(drivers.make_place(place).await.unwrap(), expected);
        assert_eq!(drivers.look_at(place).await.unwrap(), Some(expected));
    }
    let users = drivers.users("ours/disk", "v").await.unwrap();
    assert_eq!(users, [PodUid::new("uid")]);
    let stored = drivers.stored().await.unwrap();
    assert_eq!(stored, [("ours/disk".to_owned(), "v".to_owned())]);
    let kept = node.path("root/pods/uid/volumes/ours~disk/v/kept");
    fs::write(&kept, "").unwrap();
    drivers.clear_place(&own).await.unwrap_err();
    fs::remove_file(kept).unwrap();
    for place in [&own, &nodes] {
        drivers.clear_place(place).await.unwrap();
        drivers.clear_place(place).await.unwrap();
        assert_eq!(drivers.look_at(place).await.unwrap(), None);
    }
    assert!(drivers.users("ours/disk", "v").await.unwrap().is_empty());
    let out = FlexPlace::Node { driver: "ours/../..".to_owned(), volume: "v".to_owned() };
    drivers.make_place(&out).await.unwrap_err();
}

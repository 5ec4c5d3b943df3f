//! Volumes on real directories, as root. What mounts runs in a child with a mount namespace of its
//! own.

mod mounting;
mod races;

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::AtomicU64,
};

use ferrolet_linux::{
    project_quota,
    rooted::{Removed, Rooted},
    testing::skip,
};
use ferrolet_ports::{EmptyDir, Medium, Payload, PayloadFile, VolumePlace, Written};
use ferrolet_types::{PodUid, Timestamp};
use tempfile::TempDir;

use super::{
    empty_dir,
    fs_group::{Access, set_ownership},
    payload, programs, sub_path, take_away,
};

const GROUP: u32 = 2000;
const NOON: i64 = 1_794_744_000;

struct Node {
    directory: TempDir,
    pods: Rooted,
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("pods")).unwrap();
        let pods = Rooted::open(&directory.path().join("pods")).unwrap();
        Self { directory, pods }
    }

    fn path(&self, below_pod: &str) -> PathBuf {
        self.directory.path().join("pods/uid").join(below_pod)
    }
}

fn place(plugin: &str, name: &str) -> VolumePlace {
    VolumePlace { uid: PodUid::new("uid"), plugin: plugin.to_owned(), name: name.to_owned() }
}

fn disk(marker: &str, group: Option<u32>) -> EmptyDir {
    EmptyDir {
        marker: marker.to_owned(),
        medium: Medium::Disk,
        group,
        is_metered: true,
        mode: EmptyDir::OPEN_TO_ALL,
    }
}

fn payload_of(files: &[(&str, &str)]) -> Payload {
    let files = files.iter().map(|(path, content)| {
        let file = PayloadFile { content: content.as_bytes().to_vec(), mode: 0o644, owner: None };
        ((*path).to_owned(), file)
    });
    Payload { files: files.collect(), mount_points: Vec::new(), group: None }
}

const NEEDS_ROOT: &str = "needs root";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Permissions with owner and group, as the recorded listing writes them.
fn facts(path: &Path) -> (String, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (format!("{:o}", found.mode() & 0o7777), found.gid())
}

/// Every name below a directory, links with their text.
fn listing(directory: &Path) -> BTreeMap<String, String> {
    fn walk(top: &Path, directory: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if kind.is_symlink() {
                found.insert(name, format!("-> {}", fs::read_link(&path).unwrap().display()));
            } else if kind.is_dir() {
                walk(top, &path, found);
            } else {
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(directory, directory, &mut found);
    found
}

/// As the port does it.
fn taken_away(pods: &Rooted, place: &VolumePlace) -> io::Result<()> {
    take_away::unmount(pods, place)?;
    while take_away::slice(pods, place)? == Removed::Part {}
    Ok(())
}

#[test]
fn a_volume_on_disk_gets_upstreams_layout_and_is_left_alone_once_ready() {
    let node = Node::new();
    let place = place("kubernetes.io~empty-dir", "e");
    let group = is_root().then_some(GROUP);
    empty_dir::ensure(&node.pods, &place, &disk("e", group)).unwrap();
    let volume = node.path("volumes/kubernetes.io~empty-dir/e");
    let expected = if is_root() { "2777" } else { "777" };
    assert_eq!(facts(&volume).0, expected);
    let mode = |path: &str| facts(&node.path(path)).0;
    assert_eq!(mode("volumes"), "750");
    assert_eq!(mode("volumes/kubernetes.io~empty-dir"), "755");
    assert_eq!(mode("plugins/kubernetes.io~empty-dir"), "750");
    assert_eq!(mode("plugins/kubernetes.io~empty-dir/e"), "750");
    assert_eq!(mode("plugins/kubernetes.io~empty-dir/e/ready"), "644");

    fs::write(volume.join("kept"), "x").unwrap();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o700)).unwrap();
    empty_dir::ensure(&node.pods, &place, &disk("e", group)).unwrap();
    assert_eq!(facts(&volume).0, "700");
    assert!(volume.join("kept").exists());
}

#[test]
fn a_volume_whose_directory_vanished_is_made_again() {
    let node = Node::new();
    let place = place("kubernetes.io~empty-dir", "e");
    empty_dir::ensure(&node.pods, &place, &disk("e", None)).unwrap();
    let volume = node.path("volumes/kubernetes.io~empty-dir/e");
    fs::remove_dir(&volume).unwrap();
    empty_dir::ensure(&node.pods, &place, &disk("e", None)).unwrap();
    assert!(volume.is_dir());
}

#[test]
fn a_payload_is_written_in_upstreams_format_and_replaced_whole() {
    let node = Node::new();
    let place = place("kubernetes.io~configmap", "c");
    empty_dir::ensure(&node.pods, &place, &disk("wrapped_c", None)).unwrap();
    let top = node.path("volumes/kubernetes.io~configmap/c");
    let volume = Rooted::open(&top).unwrap();
    let write = |files: &[(&str, &str)], second: i64| {
        payload::write(&volume, &payload_of(files), Timestamp::from_second(second)).unwrap()
    };

    let first = [("k", "v"), ("d/e", "w")];
    assert_eq!(write(&first, NOON), Written::Replaced);
    let version = fs::read_link(top.join("..data")).unwrap();
    assert!(version.to_str().unwrap().starts_with("..2026_11_15_12_00_00."));
    assert_eq!(facts(&top.join(&version)).0, "755");
    let found = listing(&top);
    assert_eq!(found["k"], "-> ..data/k");
    assert_eq!(found["d"], "-> ..data/d");
    assert_eq!(fs::read_to_string(top.join("d/e")).unwrap(), "w");

    assert_eq!(write(&first, NOON + 1), Written::Unchanged);
    assert_eq!(fs::read_link(top.join("..data")).unwrap(), version);

    assert_eq!(write(&[("k", "v2"), ("n", "x")], NOON + 2), Written::Replaced);
    assert_eq!(fs::read_to_string(top.join("k")).unwrap(), "v2");
    assert!(fs::symlink_metadata(top.join("d")).is_err());
    assert!(!top.join(&version).exists());
    assert_eq!(listing(&top).len(), 5);

    assert_eq!(write(&[], NOON + 3), Written::Replaced);
    assert_eq!(listing(&top).len(), 1);
}

#[test]
fn what_a_crash_left_behind_is_tidied_by_the_next_write() {
    let node = Node::new();
    let place = place("kubernetes.io~configmap", "c");
    empty_dir::ensure(&node.pods, &place, &disk("wrapped_c", None)).unwrap();
    let top = node.path("volumes/kubernetes.io~configmap/c");
    let volume = Rooted::open(&top).unwrap();
    fs::create_dir(top.join("..2026_01_01_00_00_00.1")).unwrap();
    fs::write(top.join("..2026_01_01_00_00_00.1/half"), "x").unwrap();
    symlink("..2026_01_01_00_00_00.1", top.join("..data_tmp")).unwrap();
    symlink("..data/gone", top.join("gone")).unwrap();
    let now = Timestamp::from_second(NOON);
    payload::write(&volume, &payload_of(&[("k", "v")]), now).unwrap();
    let found = listing(&top);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found["k"], "-> ..data/k");
}

#[test]
fn modes_owners_and_groups_are_as_recorded_from_upstream() {
    if !is_root() {
        return skip(NEEDS_ROOT);
    }
    let node = Node::new();
    let place = place("kubernetes.io~projected", "t");
    empty_dir::ensure(&node.pods, &place, &disk("wrapped_t", Some(GROUP))).unwrap();
    let top = node.path("volumes/kubernetes.io~projected/t");
    let mut payload = payload_of(&[("ca.crt", "c"), ("d/x", "y")]);
    let token = PayloadFile { content: b"secret".to_vec(), mode: 0o600, owner: Some(1001) };
    payload.files.insert("token".to_owned(), token);
    payload.group = Some(GROUP);
    payload.mount_points = vec!["nested/point".to_owned()];
    let volume = Rooted::open(&top).unwrap();
    payload::write(&volume, &payload, Timestamp::from_second(NOON)).unwrap();

    let check = |path: &str, mode: &str| {
        assert_eq!(facts(&top.join(path)), (mode.to_owned(), GROUP), "{path}");
    };
    check("", "2777");
    check("..data/.", "2755");
    check("..data/ca.crt", "644");
    check("..data/d", "2755");
    check("..data/token", "640");
    check("ca.crt", "777");
    check("nested/point", "2755");
    assert_eq!(fs::metadata(top.join("token")).unwrap().uid(), 1001);
    assert_eq!(fs::symlink_metadata(top.join("token")).unwrap().uid(), 1001);
    assert_eq!(fs::symlink_metadata(top.join("ca.crt")).unwrap().uid(), 0);
}

#[test]
fn a_payload_path_that_leads_out_is_refused_and_leaves_nothing() {
    let node = Node::new();
    let place = place("kubernetes.io~configmap", "c");
    empty_dir::ensure(&node.pods, &place, &disk("wrapped_c", None)).unwrap();
    let top = node.path("volumes/kubernetes.io~configmap/c");
    let volume = Rooted::open(&top).unwrap();
    for path in ["../x", "/x", "a/../../x"] {
        let payload = payload_of(&[(path, "v")]);
        assert!(payload::write(&volume, &payload, Timestamp::from_second(NOON)).is_err());
        assert_eq!(listing(&top).len(), 0, "{path}");
    }
}

#[test]
fn a_group_gets_everything_but_links_keep_their_targets_as_they_are() {
    if !is_root() {
        return skip(NEEDS_ROOT);
    }
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "x").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let volume = tempfile::tempdir().unwrap();
    for n in 0..40 {
        let directory = volume.path().join(format!("d{}/e{n}", n % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("f"), "x").unwrap();
        fs::set_permissions(directory.join("f"), fs::Permissions::from_mode(0o400)).unwrap();
        symlink(&secret, directory.join("l")).unwrap();
    }
    let root = Rooted::open(volume.path()).unwrap();
    set_ownership(&root, GROUP, Access::ReadWrite, &AtomicU64::new(0)).unwrap();
    for n in 0..40 {
        let directory = volume.path().join(format!("d{}/e{n}", n % 7));
        assert_eq!(facts(&directory), ("2775".to_owned(), GROUP));
        assert_eq!(facts(&directory.join("f")), ("660".to_owned(), GROUP));
        assert_eq!(facts(&directory.join("l")).1, GROUP);
    }
    assert_eq!(facts(&secret), ("600".to_owned(), 0));
}

#[test]
fn large_directories_are_shared_out_and_nothing_is_left_over() {
    if !is_root() {
        return skip(NEEDS_ROOT);
    }
    let volume = tempfile::tempdir().unwrap();
    for directory in ["", "deep/down"] {
        let directory = volume.path().join(directory);
        fs::create_dir_all(&directory).unwrap();
        for n in 0..1500 {
            fs::write(directory.join(format!("f{n}")), "").unwrap();
        }
    }
    let root = Rooted::open(volume.path()).unwrap();
    let walked = AtomicU64::new(0);
    set_ownership(&root, GROUP, Access::ReadWrite, &walked).unwrap();
    for directory in ["", "deep/down"] {
        for entry in fs::read_dir(volume.path().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let mode = if path.is_dir() { "2775" } else { "664" };
            assert_eq!(facts(&path), (mode.to_owned(), GROUP), "{}", path.display());
        }
    }
    assert_eq!(facts(volume.path()).1, GROUP);
    let n_walked = walked.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(n_walked, 3002);
}

#[test]
fn what_is_stored_is_listed_and_taken_away_without_following_links() {
    let node = Node::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    let empty = place("kubernetes.io~empty-dir", "e");
    let map = place("kubernetes.io~configmap", "c");
    empty_dir::ensure(&node.pods, &empty, &disk("e", None)).unwrap();
    empty_dir::ensure(&node.pods, &map, &disk("wrapped_c", None)).unwrap();
    let volume = node.path("volumes/kubernetes.io~empty-dir/e");
    symlink(outside.path(), volume.join("trap")).unwrap();
    fs::create_dir(volume.join("deep")).unwrap();
    fs::write(volume.join("deep/file"), "x").unwrap();

    let uid = PodUid::new("uid");
    let stored = take_away::stored(&node.pods, &uid).unwrap();
    assert_eq!(stored.volumes, [map.clone(), empty.clone()]);
    assert_eq!(stored.sub_paths, Vec::<String>::new());
    for place in [&empty, &map, &empty] {
        taken_away(&node.pods, place).unwrap();
    }
    assert_eq!(take_away::stored(&node.pods, &uid).unwrap().volumes, []);
    assert!(outside.path().join("precious").exists());
    let markers = fs::read_dir(node.path("plugins/kubernetes.io~empty-dir")).unwrap();
    assert_eq!(markers.count(), 0);
}

#[test]
fn a_pod_that_was_never_here_has_nothing_stored() {
    let node = Node::new();
    let uid = PodUid::new("stranger");
    assert_eq!(take_away::stored(&node.pods, &uid).unwrap(), Default::default());
    taken_away(&node.pods, &place("kubernetes.io~secret", "s")).unwrap();
    take_away::sub_paths(&node.pods, &uid, "v").unwrap();
}

#[test]
fn names_that_are_paths_are_refused() {
    let node = Node::new();
    for name in ["..", "a/b", "", "."] {
        let place = place("kubernetes.io~empty-dir", name);
        assert!(empty_dir::ensure(&node.pods, &place, &disk("m", None)).is_err());
        assert!(taken_away(&node.pods, &place).is_err());
    }
}

#[test]
fn sub_paths_are_found_inside_the_volume_only() {
    let volume = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "x").unwrap();
    let top = volume.path();
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::write(top.join("a/file"), "x").unwrap();
    symlink("a/b", top.join("inside")).unwrap();
    symlink(top.join("a"), top.join("absolute")).unwrap();
    symlink(outside.path(), top.join("out")).unwrap();
    symlink("../..", top.join("a/up")).unwrap();
    let check = |path: &str, is_fine: bool| {
        let found = sub_path::open_part(top, Path::new(path));
        assert_eq!(found.is_ok(), is_fine, "{path}: {found:?}");
    };
    check("a", true);
    check("a/file", true);
    check("inside", true);
    check("absolute/file", true);
    check("new/and/deep", true);
    check("inside/new", true);
    check("out", false);
    check("out/secret", false);
    check("out/made", false);
    check("a/up", false);
    check("a/up/x", false);
    check("../x", false);
    check("/etc", false);
    check("a/file/x", false);
    assert!(top.join("new/and/deep").is_dir());
    assert!(top.join("a/b/new").is_dir());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_missing_sub_path_is_made_like_the_volume_itself() {
    let volume = tempfile::tempdir().unwrap();
    fs::set_permissions(volume.path(), fs::Permissions::from_mode(0o2777)).unwrap();
    sub_path::open_part(volume.path(), Path::new("x/y")).unwrap();
    assert_eq!(facts(&volume.path().join("x")).0, "2777");
    assert_eq!(facts(&volume.path().join("x/y")).0, "2777");
}

/// CVE-2018-1002101, CVE-2023-3676, -3893, -3955 and CVE-2023-5528: words of a volume were read by
/// a shell.
#[tokio::test]
async fn words_of_a_volume_are_never_read_by_a_shell() {
    let place = tempfile::tempdir().unwrap();
    let made = |name: &str| place.path().join(name).display().to_string();
    let target = place.path().join("target; touch no-target");
    fs::create_dir(&target).unwrap();
    let kind = format!("nfs; touch {};", made("kind"));
    let source = format!("$(touch {}):/x", made("source"));
    let options = [format!("`touch {}`", made("option")), "| ls".to_owned()];
    let refused = programs::mount(&kind, &source, &target, &options).await;
    let said = refused.unwrap_err().to_string();
    assert!(said.contains(&source), "{said}");
    // Whatever begins like an option of the program's own is a name like any other.
    let refused = programs::mount("nfs", "--all", &target, &[]).await;
    assert!(refused.is_err());
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_volume_that_nobody_keeps_account_of_is_made_all_the_same() {
    let node = Node::new();
    let place = place("kubernetes.io~empty-dir", "plain");
    empty_dir::ensure(&node.pods, &place, &disk("plain", None)).unwrap();
    let path = node.path("volumes/kubernetes.io~empty-dir/plain");
    let volume = Rooted::open(&path).unwrap();
    match project_quota::metered(&volume) {
        None => {}
        // This very file system has quotas.
        Some(used) => assert_eq!(used.inodes, 1),
    }
}

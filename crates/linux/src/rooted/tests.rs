use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
};

use tempfile::TempDir;

use super::*;
use crate::testing::{again_with_own_mounts, has_own_mounts, mount_tmpfs};

/// A tree with a secret beside it that no operation may reach.
struct Attack {
    _held: TempDir,
    outside: PathBuf,
    root: Rooted,
    inside: PathBuf,
}

fn attack() -> Attack {
    let held = TempDir::new().unwrap();
    let (outside, inside) = (held.path().join("outside"), held.path().join("inside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    fs::create_dir_all(inside.join("real/deep")).unwrap();
    fs::write(inside.join("real/file"), "content").unwrap();
    symlink(&outside, inside.join("absolute")).unwrap();
    symlink("../outside", inside.join("relative")).unwrap();
    symlink(outside.join("secret"), inside.join("to-secret")).unwrap();
    symlink("real", inside.join("harmless")).unwrap();
    let root = Rooted::open(&inside).unwrap();
    Attack { _held: held, outside, root, inside }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

const ESCAPES: [&str; 10] = [
    "absolute/secret",
    "relative/secret",
    "to-secret",
    "harmless/file",
    "../outside/secret",
    "real/../../outside/secret",
    "/etc/passwd",
    "",
    ".",
    "..",
];

#[test]
fn no_operation_reaches_through_a_link_or_out_of_the_tree() {
    let Attack { _held, outside, root, .. } = attack();
    for path in ESCAPES {
        assert!(root.open_file(path).is_err(), "open {path}");
        assert!(root.read(path, 10).is_err(), "read {path}");
        assert!(root.read_end(path, 10).is_err(), "read end {path}");
        assert!(root.write_existing(path, b"x").is_err(), "write {path}");
        assert!(root.create_new(path, 0o644).is_err(), "create {path}");
        assert!(root.ensure_directory(path, 0o755).is_err(), "make directory {path}");
        assert!(root.directory(path).is_err(), "directory {path}");
    }
    for path in ["absolute/new", "relative/new", "../outside/new", "/tmp/ferrolet-rooted-new"] {
        assert!(root.create_new(path, 0o644).is_err(), "create {path}");
        assert!(
            root.write_atomically(path, b"x", 0o644, Durability::Cached).is_err(),
            "replace {path}"
        );
        assert!(root.rename("real/file", path).is_err(), "rename to {path}");
        assert!(root.symlink(Path::new("x"), path).is_err(), "link at {path}");
        assert!(root.ensure_directory(path, 0o755).is_err(), "mkdir {path}");
    }
    for path in
        ["absolute/secret", "relative/secret", "../outside/secret", "real/../../outside/secret"]
    {
        assert!(root.unlink(path).is_err(), "unlink {path}");
        assert!(root.rename(path, "stolen").is_err(), "rename from {path}");
        assert!(root.remove_tree(path).is_err(), "remove {path}");
        assert!(root.kind(path).is_err(), "kind {path}");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
}

#[test]
fn the_kernel_says_what_it_refused() {
    let Attack { _held, root, .. } = attack();
    let error = root.open_file("absolute/secret").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    let error = root.open_file("real/../file").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn replacing_a_link_replaces_the_link_and_not_its_target() {
    let Attack { _held, outside, root, inside } = attack();
    root.write_atomically("to-secret", b"mine", 0o640, Durability::Synced).unwrap();
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert!(fs::symlink_metadata(inside.join("to-secret")).unwrap().is_file());
    assert_eq!(root.read("to-secret", 10).unwrap(), b"mine");
    assert_eq!(mode_of(&inside.join("to-secret")), 0o640);
}

#[test]
fn a_link_planted_as_the_temporary_name_is_not_written_through() {
    let Attack { _held, outside, root, inside } = attack();
    symlink(outside.join("secret"), inside.join(".state.tmp")).unwrap();
    root.write_atomically("state", b"new", 0o600, Durability::Cached).unwrap();
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(root.read("state", 10).unwrap(), b"new");
    assert_eq!(root.kind(".state.tmp").unwrap(), None);
}

#[test]
fn removing_a_tree_removes_links_and_leaves_their_targets() {
    let Attack { _held, outside, root, inside } = attack();
    symlink(&outside, inside.join("real/deep/link")).unwrap();
    root.remove_tree("real").unwrap();
    root.remove_tree("absolute").unwrap();
    root.remove_tree("real").unwrap();
    root.remove_tree("never/was").unwrap();
    assert_eq!(root.kind("real").unwrap(), None);
    assert_eq!(root.kind("absolute").unwrap(), None);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
}

#[test]
fn a_tree_deeper_than_descriptors_and_path_lengths_is_removed() {
    let Attack { _held, root, .. } = attack();
    let mut current = root.ensure_directory("deep", 0o755).unwrap();
    for _ in 0..3_000 {
        current = current.ensure_directory("abcdefgh", 0o755).unwrap();
        current.create_new("f", 0o600).unwrap();
    }
    drop(current);
    root.remove_tree("deep").unwrap();
    assert_eq!(root.kind("deep").unwrap(), None);
}

#[test]
fn swapping_a_directory_for_a_link_during_the_work_never_leaves_the_tree() {
    let Attack { _held, outside, root, inside } = attack();
    let n_rounds = 2_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..n_rounds {
                let _ = fs::rename(inside.join("real"), inside.join("away"));
                let _ = symlink(&outside, inside.join("real"));
                let _ = fs::remove_file(inside.join("real"));
                let _ = fs::rename(inside.join("away"), inside.join("real"));
            }
        });
        for _ in 0..n_rounds {
            // Each may fail while the attacker is at it; none may land outside.
            if let Ok(content) = root.read("real/secret", 10) {
                assert_ne!(content, b"secret");
            }
            let _ = root.write_atomically("real/planted", b"x", 0o644, Durability::Cached);
            let _ = root.unlink("real/secret");
            let _ = root.ensure_directory("real/sub", 0o755);
        }
    });
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
}

#[test]
fn modes_are_exact_whatever_the_umask_says() {
    let Attack { _held, root, inside, .. } = attack();
    root.ensure_directory("a/b", 0o777).unwrap();
    root.create_new("a/b/open", 0o666).unwrap();
    assert_eq!(mode_of(&inside.join("a")), 0o777);
    assert_eq!(mode_of(&inside.join("a/b")), 0o777);
    assert_eq!(mode_of(&inside.join("a/b/open")), 0o666);
    root.ensure_directory("a/b", 0o700).unwrap();
    assert_eq!(mode_of(&inside.join("a/b")), 0o777, "what was there keeps its mode");
}

#[test]
fn a_fifo_or_socket_in_place_of_a_file_is_refused_without_waiting() {
    let Attack { _held, root, inside, .. } = attack();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        inside.join("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(inside.join("socket")).unwrap();
    for name in ["fifo", "socket", "real"] {
        assert!(root.open_file(name).is_err(), "{name}");
        assert!(root.write_existing(name, b"x").is_err(), "{name}");
    }
    assert_eq!(root.kind("fifo").unwrap(), Some(Kind::Special));
}

#[test]
fn reading_is_bounded_from_either_end() {
    let Attack { _held, root, .. } = attack();
    assert_eq!(root.read("real/file", 4).unwrap(), b"cont");
    assert_eq!(root.read_end("real/file", 4).unwrap(), b"tent");
    assert_eq!(root.read_end("real/file", 100).unwrap(), b"content");
    root.write_existing("real/file", b"now").unwrap();
    assert_eq!(root.read("real/file", 100).unwrap(), b"now");
}

#[test]
fn entries_are_listed_with_what_they_are() {
    let Attack { _held, root, .. } = attack();
    let mut entries: Vec<_> = root
        .entries()
        .unwrap()
        .into_iter()
        .map(|entry| (entry.name.into_string().unwrap(), entry.kind))
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("absolute", Kind::Link),
        ("harmless", Kind::Link),
        ("real", Kind::Directory),
        ("relative", Kind::Link),
        ("to-secret", Kind::Link),
    ]
    .map(|(name, kind)| (name.to_owned(), kind));
    assert_eq!(entries, expected);
    assert_eq!(root.read_link("harmless").unwrap(), Path::new("real"));
}

#[test]
fn plain_names_are_one_component() {
    for good in ["a", "..data", "a.b", "3fb2-1", "_"] {
        assert!(is_plain_name(good), "{good}");
    }
    for bad in ["", ".", "..", "a/b", "/a", "a\0b", &"x".repeat(256)] {
        assert!(!is_plain_name(bad), "{bad}");
    }
}

#[test]
fn a_large_tree_is_removed_a_slice_at_a_time() {
    let Attack { _held, root, inside, .. } = attack();
    for directory in ["real/deep", "real/other"] {
        fs::create_dir_all(inside.join(directory)).unwrap();
        for n in 0..50 {
            fs::write(inside.join(directory).join(n.to_string()), "").unwrap();
        }
    }
    let left = || {
        fs::read_dir(inside.join("real/deep")).map_or(0, Iterator::count)
            + fs::read_dir(inside.join("real/other")).map_or(0, Iterator::count)
    };
    let mut before = left();
    let mut n_slices = 0;
    while root.remove_some("real", 30).unwrap() == Removed::Part {
        assert!(left() < before && left() + 30 >= before, "{before} became {}", left());
        before = left();
        n_slices += 1;
    }
    assert!(n_slices >= 3, "{n_slices}");
    assert_eq!(root.kind("real").unwrap(), None);
    assert_eq!(root.remove_some("real", 0).unwrap(), Removed::All);
}

#[test]
fn another_mount_is_neither_entered_nor_removed() {
    if !has_own_mounts() {
        again_with_own_mounts("rooted::tests::another_mount_is_neither_entered_nor_removed");
        return;
    }
    let Attack { _held, root, inside, .. } = attack();
    mount_tmpfs(&inside.join("real/deep"));
    fs::write(inside.join("real/deep/precious"), "data").unwrap();
    let error = root.open_file("real/deep/precious").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::XDEV.raw_os_error()));
    assert!(root.directory("real/deep").is_err());
    assert!(root.create_new("real/deep/x", 0o600).is_err());
    assert!(root.remove_tree("real").is_err());
    assert!(root.remove_tree("real/deep").is_err());
    assert_eq!(fs::read_to_string(inside.join("real/deep/precious")).unwrap(), "data");
    let umounted = Command::new("umount").arg(inside.join("real/deep")).status().unwrap();
    assert!(umounted.success());
}

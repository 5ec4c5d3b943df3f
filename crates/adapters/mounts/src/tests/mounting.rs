//! What mounts, in a mount namespace of its own: the test runs itself again under `unshare`, so
//! that nothing leaks into the machine even when it fails. Needs root; skipped where there is none.

use std::{collections::BTreeMap, fs, path::Path, process::Command, sync::Arc};

use ferrolet_linux::{mountinfo, rooted::Rooted, testing::skip};
use ferrolet_ports::{
    Detached, Disk, DiskForm, FcDisk, FlexDrivers as _, FlexPlace, FsGroupChangePolicy,
    FsGroupOwner, Medium, MountAccess, NodeMounts as _, RecordPlace, SubPathBind,
};
use ferrolet_types::{PodUid, Timestamp};

use super::{GROUP, NEEDS_ROOT, NOON, Node, facts, is_root, payload_of, place, taken_away};
use crate::{
    NodeFlexDrivers, NodeVolumes, disks, empty_dir, kernel, mounts, payload, sub_path, take_away,
};

const INSIDE: &str = "FERROLET_TEST_MOUNT_NAMESPACE";

/// Runs the named test again in a namespace of its own; `true` for the one that is inside and
/// should do the work.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if !is_root() {
        skip(NEEDS_ROOT);
        return false;
    }
    let ended = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tests::mounting::{test}")])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(ended.success());
    false
}

fn n_mounts_below(path: &Path) -> usize {
    let real = fs::canonicalize(path).unwrap();
    let table = mountinfo::read().unwrap();
    mountinfo::points_at_or_below(&table, &real).count()
}

fn memory(marker: &str, size: u64) -> ferrolet_ports::EmptyDir {
    ferrolet_ports::EmptyDir {
        marker: marker.to_owned(),
        medium: Medium::Memory { size: Some(size) },
        group: Some(GROUP),
        is_metered: false,
        mode: ferrolet_ports::EmptyDir::OPEN_TO_ALL,
    }
}

#[test]
fn memory_is_mounted_once_bounded_written_and_taken_away() {
    if !is_inside("memory_is_mounted_once_bounded_written_and_taken_away") {
        return;
    }
    let node = Node::new();
    let place = place("kubernetes.io~secret", "s");
    let top = node.path("volumes/kubernetes.io~secret/s");
    for _ in 0..3 {
        empty_dir::ensure(&node.pods, &place, &memory("wrapped_s", 65536)).unwrap();
        assert_eq!(n_mounts_below(&top), 1);
    }
    assert_eq!(facts(&top), ("3777".to_owned(), GROUP));
    let size = rustix::fs::statvfs(&top).unwrap();
    assert_eq!(size.f_blocks * size.f_frsize, 65536);

    let relative = Path::new("uid/volumes/kubernetes.io~secret/s");
    let volume = mounts::open_volume(&node.pods, relative).unwrap();
    let now = Timestamp::from_second(NOON);
    payload::write(&volume, &payload_of(&[("k", "v")]), now).unwrap();
    assert_eq!(fs::read_to_string(top.join("k")).unwrap(), "v");
    let large = "x".repeat(100_000);
    assert!(payload::write(&volume, &payload_of(&[("k", &large)]), now).is_err());
    assert_eq!(fs::read_to_string(top.join("k")).unwrap(), "v");

    // Even while somebody has a file open in it.
    let _held = fs::File::open(top.join("k")).unwrap();
    drop(volume);
    taken_away(&node.pods, &place).unwrap();
    assert!(!top.exists());
    assert_eq!(n_mounts_below(node.directory.path()), 0);
}

#[test]
fn what_is_mounted_inside_a_volume_is_unmounted_but_never_emptied() {
    if !is_inside("what_is_mounted_inside_a_volume_is_unmounted_but_never_emptied") {
        return;
    }
    let node = Node::new();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("precious"), "x").unwrap();
    let place = place("kubernetes.io~empty-dir", "e");
    empty_dir::ensure(&node.pods, &place, &super::disk("e", None)).unwrap();
    let top = node.path("volumes/kubernetes.io~empty-dir/e");
    fs::create_dir_all(top.join("in/ner")).unwrap();
    rustix::mount::mount_bind(elsewhere.path(), top.join("in/ner")).unwrap();
    rustix::mount::mount_bind(elsewhere.path(), top.join("in/ner")).unwrap();
    taken_away(&node.pods, &place).unwrap();
    assert!(!top.exists());
    assert!(elsewhere.path().join("precious").exists());
    assert_eq!(n_mounts_below(node.directory.path()), 0);
}

#[test]
fn sub_paths_are_bound_once_replaced_when_they_changed_and_taken_away() {
    if !is_inside("sub_paths_are_bound_once_replaced_when_they_changed_and_taken_away") {
        return;
    }
    let node = Node::new();
    let place = place("kubernetes.io~empty-dir", "e");
    empty_dir::ensure(&node.pods, &place, &super::disk("e", None)).unwrap();
    let top = node.path("volumes/kubernetes.io~empty-dir/e");
    let part = |path: &str, index: usize| SubPathBind {
        uid: PodUid::new("uid"),
        volume: "e".to_owned(),
        volume_path: top.clone(),
        path: path.to_owned(),
        container: "main".to_owned(),
        index,
    };
    fs::create_dir(top.join("sub")).unwrap();
    fs::write(top.join("sub/file"), "one").unwrap();
    let all = node.path("volume-subpaths");
    for _ in 0..2 {
        let bound = sub_path::bind(&node.pods, &part("sub", 2)).unwrap();
        assert_eq!(bound, Path::new("uid/volume-subpaths/e/main/2"));
        assert_eq!(fs::read_to_string(all.join("e/main/2/file")).unwrap(), "one");
        sub_path::bind(&node.pods, &part("sub/file", 3)).unwrap();
        assert_eq!(fs::read_to_string(all.join("e/main/3")).unwrap(), "one");
        assert_eq!(n_mounts_below(&all), 2);
    }
    assert_eq!(facts(&all.join("e/main")).0, "750");

    fs::write(top.join("new"), "two").unwrap();
    fs::rename(top.join("new"), top.join("sub/file")).unwrap();
    sub_path::bind(&node.pods, &part("sub/file", 3)).unwrap();
    assert_eq!(fs::read_to_string(all.join("e/main/3")).unwrap(), "two");
    fs::remove_file(top.join("sub/file")).unwrap();
    sub_path::bind(&node.pods, &part("sub/file", 3)).unwrap();
    assert!(all.join("e/main/3").is_dir());
    assert_eq!(n_mounts_below(&all), 2);

    let uid = PodUid::new("uid");
    assert_eq!(take_away::stored(&node.pods, &uid).unwrap().sub_paths, ["e"]);
    take_away::sub_paths(&node.pods, &uid, "e").unwrap();
    assert!(!all.exists());
    assert!(top.join("sub/file").is_dir());
    assert_eq!(n_mounts_below(node.directory.path()), 0);
}

fn at_once<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

#[test]
fn a_directory_is_shown_once_and_taken_away_without_its_content() {
    if !is_inside("a_directory_is_shown_once_and_taken_away_without_its_content") {
        return;
    }
    let node = Node::new();
    let volumes = NodeVolumes::new(node.directory.path());
    let disk = node.directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    fs::write(disk.join("file"), "kept").unwrap();
    let place = place("kubernetes.io~local-volume", "pv");
    let shown = node.path("volumes/kubernetes.io~local-volume/pv");
    let source = disk.to_str().unwrap();
    for _ in 0..2 {
        at_once(volumes.bind(&place, source, MountAccess::ReadOnly)).unwrap();
        assert_eq!(n_mounts_below(&shown), 1);
    }
    assert_eq!(fs::read_to_string(shown.join("file")).unwrap(), "kept");
    let refused = fs::write(shown.join("new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let stored = take_away::stored(&node.pods, &PodUid::new("uid")).unwrap();
    assert!(stored.volumes.contains(&place));
    for _ in 0..2 {
        at_once(volumes.unmount(&place)).unwrap();
        assert!(!shown.exists());
    }
    assert!(disk.join("file").exists());
}

#[test]
fn a_device_is_held_and_linked_for_its_pod_and_let_go_again() {
    if !is_inside("a_device_is_held_and_linked_for_its_pod_and_let_go_again") {
        return;
    }
    let node = Node::new();
    let volumes = NodeVolumes::new(node.directory.path());
    let place = place("kubernetes.io~local-volume", "raw");
    for _ in 0..2 {
        let link = at_once(volumes.map_device(&place, "/dev/null")).unwrap();
        assert_eq!(fs::read_link(link).unwrap(), Path::new("/dev/null"));
        let held =
            node.directory.path().join("plugins/kubernetes.io~local-volume/volumeDevices/raw/uid");
        assert_eq!(n_mounts_below(&held), 1);
    }
    let stored = take_away::stored(&node.pods, &PodUid::new("uid")).unwrap();
    assert!(stored.devices.contains(&place));
    for _ in 0..2 {
        at_once(volumes.unmap_device(&place)).unwrap();
        assert_eq!(n_mounts_below(node.directory.path()), 0);
    }
    assert!(!node.path("volumeDevices/kubernetes.io~local-volume/raw").exists());
}

#[test]
fn a_drivers_device_is_known_before_it_is_there_and_until_it_has_gone() {
    if !is_inside("a_drivers_device_is_known_before_it_is_there_and_until_it_has_gone") {
        return;
    }
    let node = Node::new();
    let volumes = NodeVolumes::new(node.directory.path());
    let place = place("kubernetes.io~csi", "raw");
    let record_place = RecordPlace::Device { name: "raw".to_owned() };
    let record = BTreeMap::from([("driverName".to_owned(), "d".to_owned())]);
    at_once(volumes.save_record(&record_place, &record)).unwrap();
    at_once(volumes.announce_device(&place)).unwrap();
    let link = node.path("volumeDevices/kubernetes.io~csi/raw");
    let shown = volumes.driver_device(&place);
    assert_eq!(fs::read_link(&link).unwrap(), shown);
    let users = at_once(volumes.device_users("kubernetes.io~csi", "raw")).unwrap();
    assert_eq!(users, [PodUid::new("uid")]);
    // What a driver does.
    fs::write(&shown, "").unwrap();
    let bound = Command::new("mount").args(["--bind", "/dev/null"]).arg(&shown).status();
    assert!(bound.unwrap().success());
    for _ in 0..2 {
        let mapped = at_once(volumes.map_device(&place, shown.to_str().unwrap())).unwrap();
        assert_eq!(mapped, link);
    }
    let devices = node.directory.path().join("plugins/kubernetes.io/csi/volumeDevices");
    assert_eq!(n_mounts_below(&devices.join("raw/dev/uid")), 1);
    at_once(volumes.let_go_device(&place)).unwrap();
    assert_eq!(n_mounts_below(&devices.join("raw")), 0);
    // A driver that has not taken its mount away keeps the link: it has to be asked again.
    at_once(volumes.unmap_device(&place)).unwrap_err();
    assert!(link.symlink_metadata().is_ok());
    let unbound = Command::new("umount").arg(&shown).status();
    assert!(unbound.unwrap().success());
    for _ in 0..2 {
        at_once(volumes.unmap_device(&place)).unwrap();
        assert!(link.symlink_metadata().is_err());
    }
    at_once(volumes.remove_record(&record_place)).unwrap();
    assert!(!devices.join("raw").exists());
    assert_eq!(at_once(volumes.records()).unwrap(), []);
}

#[test]
fn another_machines_disk_is_held_in_its_own_directory_until_it_has_gone() {
    if !is_inside("another_machines_disk_is_held_in_its_own_directory_until_it_has_gone") {
        return;
    }
    let node = Node::new();
    let volumes = NodeVolumes::new(node.directory.path());
    let place = place("kubernetes.io~fc", "raw");
    // One that this machine cannot have, so that nothing of the machine is touched when it goes.
    let disk = Disk::Fc(FcDisk::Names(vec!["ferrolet.test.none".to_owned()]));
    let link = node.path("volumeDevices/kubernetes.io~fc/raw");
    for _ in 0..2 {
        let mapped = at_once(volumes.map_disk(&place, &disk, "/dev/null")).unwrap();
        assert_eq!(mapped, link);
    }
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/null"));
    let held =
        node.directory.path().join("plugins/kubernetes.io/fc/volumeDevices/ferrolet.test.none");
    assert_eq!(n_mounts_below(&held.join("uid")), 1);
    at_once(volumes.detach_disk(&disk.key())).unwrap();
    assert_eq!(n_mounts_below(&held.join("uid")), 1);
    for _ in 0..2 {
        at_once(volumes.unmap_device(&place)).unwrap();
        assert!(link.symlink_metadata().is_err());
    }
    assert_eq!(at_once(volumes.unused_disks()).unwrap(), [disk.key()]);
    at_once(volumes.detach_disk(&disk.key())).unwrap();
    assert!(!held.exists());
}

#[test]
fn what_a_driver_mounts_is_seen_and_taken_away_where_it_leaves_that_to_us() {
    if !is_inside("what_a_driver_mounts_is_seen_and_taken_away_where_it_leaves_that_to_us") {
        return;
    }
    let node = Node::new();
    let volumes = NodeVolumes::new(node.directory.path());
    let drivers = NodeFlexDrivers::new(Path::new("/nowhere"), volumes);
    let own = FlexPlace::Pod(place("ours~disk", "v"));
    let nodes = FlexPlace::Node { driver: "ours/disk".to_owned(), volume: "v".to_owned() };
    for place in [&own, &nodes] {
        let path = at_once(drivers.make_place(place)).unwrap().path;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&path).status();
        assert!(mounted.unwrap().success());
        fs::write(path.join("file"), "").unwrap();
        assert!(at_once(drivers.make_place(place)).unwrap().is_mounted);
        let seen = at_once(drivers.look_at(place)).unwrap().unwrap();
        assert!(seen.is_mounted);
        assert!(!at_once(drivers.stored()).unwrap().is_empty() || *place == own);
        at_once(drivers.clear_place(place)).unwrap();
        assert_eq!(n_mounts_below(node.directory.path()), 0);
        assert!(!path.exists());
    }
}

#[test]
fn a_record_outlives_us_and_stays_while_something_is_mounted() {
    if !is_inside("a_record_outlives_us_and_stays_while_something_is_mounted") {
        return;
    }
    let node = Node::new();
    let volumes = NodeVolumes::new(node.directory.path());
    let csi = RecordPlace::Pod(place("kubernetes.io~csi", "pv"));
    let whole = RecordPlace::Node { driver: "d".to_owned(), hash: "h".to_owned() };
    let record = BTreeMap::from([("driverName".to_owned(), "d".to_owned())]);
    for place in [&csi, &whole] {
        at_once(volumes.save_record(place, &record)).unwrap();
    }
    let text = fs::read_to_string(node.path("volumes/kubernetes.io~csi/pv/vol_data.json"));
    assert_eq!(text.unwrap(), "{\"driverName\":\"d\"}\n");
    let found = at_once(volumes.records()).unwrap();
    assert_eq!(found, [(csi.clone(), Some(record.clone())), (whole.clone(), Some(record.clone()))]);
    let mount = volumes.driver_path(&csi);
    fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&mount).status();
    assert!(mounted.unwrap().success());
    assert!(at_once(volumes.is_mounted(&csi)).unwrap());
    at_once(volumes.remove_record(&csi)).unwrap_err();
    // What cannot be read is somebody's as long as it is mounted.
    fs::write(node.path("volumes/kubernetes.io~csi/pv/vol_data.json"), "{\"driverNa").unwrap();
    let found = at_once(volumes.records()).unwrap();
    assert_eq!(found, [(csi.clone(), None), (whole.clone(), Some(record))]);
    assert!(Command::new("umount").arg(&mount).status().unwrap().success());
    let found = at_once(volumes.records()).unwrap();
    assert_eq!(found[0], (csi.clone(), Some(BTreeMap::new())));
    for place in [&csi, &whole] {
        at_once(volumes.remove_record(place)).unwrap();
    }
    assert_eq!(at_once(volumes.records()).unwrap(), []);
}

#[test]
fn a_volume_whose_top_is_right_is_not_walked_when_asked_so() {
    if !is_inside("a_volume_whose_top_is_right_is_not_walked_when_asked_so") {
        return;
    }
    use std::os::unix::fs::MetadataExt as _;
    let node = Node::new();
    let volumes = NodeVolumes::new(node.directory.path());
    let top = node.directory.path().join("volume");
    fs::create_dir(&top).unwrap();
    let give = |change: FsGroupChangePolicy| {
        let owner = FsGroupOwner { group: GROUP, policy: change };
        at_once(volumes.set_ownership(top.to_str().unwrap(), owner, Arc::default())).unwrap();
    };
    give(FsGroupChangePolicy::OnRootMismatch);
    fs::write(top.join("late"), "x").unwrap();
    std::os::unix::fs::chown(top.join("late"), None, Some(0)).unwrap();
    give(FsGroupChangePolicy::OnRootMismatch);
    assert_eq!(fs::metadata(top.join("late")).unwrap().gid(), 0);
    give(FsGroupChangePolicy::Always);
    assert_eq!(fs::metadata(top.join("late")).unwrap().gid(), GROUP);
}

#[test]
fn huge_pages_are_mounted_once_with_their_size() {
    if !is_inside("huge_pages_are_mounted_once_with_their_size") {
        return;
    }
    const PAGE: u64 = 2 * 1024 * 1024;
    if !fs::exists("/sys/kernel/mm/hugepages/hugepages-2048kB").unwrap() {
        return skip("the kernel has no pages of 2 MiB");
    }
    let node = Node::new();
    let place = place("kubernetes.io~empty-dir", "huge");
    let directory = ferrolet_ports::EmptyDir {
        marker: "huge".to_owned(),
        medium: Medium::HugePages { page_size: PAGE },
        group: Some(GROUP),
        is_metered: false,
        mode: ferrolet_ports::EmptyDir::OPEN_TO_ALL,
    };
    let top = node.path("volumes/kubernetes.io~empty-dir/huge");
    for _ in 0..2 {
        empty_dir::ensure(&node.pods, &place, &directory).unwrap();
        assert_eq!(n_mounts_below(&top), 1);
    }
    let found = rustix::fs::statfs(&top).unwrap();
    assert_eq!(u64::try_from(found.f_bsize).unwrap(), PAGE);
    assert_eq!(facts(&top).1, GROUP);
    taken_away(&node.pods, &place).unwrap();
    assert!(!top.exists());
}

#[test]
fn a_disk_stays_as_long_as_somebody_uses_its_mount() {
    if !is_inside("a_disk_stays_as_long_as_somebody_uses_its_mount") {
        return;
    }
    let node = Node::new();
    let root = Rooted::open(node.directory.path()).unwrap();
    let volumes = NodeVolumes::new(node.directory.path());
    let disk = Disk::Fc(FcDisk::Names(vec!["ferrolet-test".to_owned()]));
    disks::note(&root, &disk, DiskForm::Files).unwrap();
    let top = node.directory.path().join("plugins/kubernetes.io/fc/ferrolet-test");
    let local = node.directory.path().join("plugins/kubernetes.io/local-volume/mounts/pv");
    fs::create_dir_all(&local).unwrap();
    for place in [&top, &local] {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(place).status();
        assert!(mounted.unwrap().success());
    }
    let held = [&top, &local].map(|it| fs::File::create(it.join("held")).unwrap());
    let detached = at_once(volumes.detach_disk(&disk.key()));
    assert!(detached.unwrap_err().cause.contains("busy"));
    let unmounted = at_once(volumes.unmount_device("kubernetes.io/local-volume", "pv"));
    assert!(unmounted.unwrap_err().cause.contains("busy"));
    assert_eq!((n_mounts_below(&top), n_mounts_below(&local)), (1, 1));
    drop(held);
    assert_eq!(at_once(volumes.detach_disk(&disk.key())).unwrap(), Detached::Gone);
    at_once(volumes.unmount_device("kubernetes.io/local-volume", "pv")).unwrap();
    assert!(!top.exists() && !local.exists());
}

#[test]
fn a_device_with_a_file_system_out_of_sight_is_not_free() {
    if !is_inside("a_device_with_a_file_system_out_of_sight_is_not_free") {
        return;
    }
    let node = Node::new();
    let at = |name: &str| node.directory.path().join(name);
    fs::File::create(at("image")).unwrap().set_len(16 << 20).unwrap();
    let run = |program: &str, words: &[&Path]| {
        let ended = Command::new(program).args(words).output().unwrap();
        ended.status.success().then(|| String::from_utf8(ended.stdout).unwrap())
    };
    let shown = run("losetup", &[Path::new("-f"), Path::new("--show"), &at("image")]);
    let Some(device) = shown.map(|it| it.trim().to_owned()) else {
        return skip("no loop device can be had here");
    };
    let device = Path::new(&device);
    run("mkfs.ext4", &[Path::new("-q"), device]).unwrap();
    at_once(kernel::check_free(device.to_owned())).unwrap();
    fs::create_dir(at("top")).unwrap();
    run("mount", &[device, &at("top")]).unwrap();
    let held = fs::File::create(at("top/held")).unwrap();
    run("umount", &[Path::new("-l"), &at("top")]).unwrap();
    let busy = at_once(kernel::check_free(device.to_owned()));
    drop(held);
    run("losetup", &[Path::new("-d"), device]).unwrap();
    assert_eq!(busy.unwrap_err().cause, format!("device {} is still in use", device.display()));
    at_once(kernel::check_free(at("nowhere"))).unwrap();
}

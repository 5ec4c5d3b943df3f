//! Directories of disks, without the disks.

use std::{collections::BTreeMap, fs};

use tempfile::TempDir;

use super::*;
use crate::iscsi::tests::disk as iscsi_disk;

const NAME: &str = "10.0.0.1:3260-iqn.t-lun-3";

fn node() -> (TempDir, Rooted) {
    let held = tempfile::tempdir().unwrap();
    let root = Rooted::open(held.path()).unwrap();
    (held, root)
}

fn taken(root: &Rooted, key: &DiskKey) -> Left {
    match let_go(root, key).unwrap() {
        LetGo::Left(left) => left,
        other => panic!("{other:?}"),
    }
}

fn fc_disk() -> Disk {
    Disk::Fc(FcDisk::Ports { names: vec!["5006".to_owned(), "5007".to_owned()], lun: 1 })
}

#[test]
fn what_is_on_disk_is_enough_to_log_out() {
    let (held, root) = node();
    assert!(unused(&root).unwrap().is_empty());
    let mut own = iscsi_disk();
    own.initiator = Some("iqn.me".to_owned());
    let mut secret = own.clone();
    secret.secrets = BTreeMap::from([("key".to_owned(), "hush".to_owned())]);
    let secret = Disk::Iscsi(secret);
    for (form, directory) in [
        (DiskForm::Files, "iface-10.0.0.1:3260:pv"),
        (DiskForm::Raw, "volumeDevices/iface-10.0.0.1:3260:pv"),
    ] {
        note(&root, &secret, form).unwrap();
        note(&root, &secret, form).unwrap();
        let place = held.path().join("plugins/kubernetes.io/iscsi");
        let place = place.join(directory).join(NAME);
        let text = fs::read_to_string(place.join("iscsi.json")).unwrap();
        assert!(!text.contains("hush") && !format!("{secret:?}").contains("hush"));
        let keys = unused(&root).unwrap();
        assert_eq!(keys, [secret.key()]);
        let left = taken(&root, &keys[0]);
        assert_eq!(left.disk, Disk::Iscsi(own.clone()));
        assert_eq!(left.target, iscsi::Target::Unused);
        forget(&root, &left).unwrap();
        assert!(!place.exists());
        let again = let_go(&root, &keys[0]).unwrap();
        assert!(matches!(again, LetGo::Gone), "{again:?}");
    }
}

#[test]
fn a_target_is_logged_out_of_with_its_last_disk() {
    let (_held, root) = node();
    let (first, mut second) = (iscsi_disk(), iscsi_disk());
    second.lun = 4;
    let (first, second) = (Disk::Iscsi(first), Disk::Iscsi(second));
    note(&root, &first, DiskForm::Files).unwrap();
    note(&root, &first, DiskForm::Raw).unwrap();
    note(&root, &second, DiskForm::Raw).unwrap();
    let left = taken(&root, &second.key());
    assert_eq!(left.target, iscsi::Target::Used);
    forget(&root, &left).unwrap();
    let left = taken(&root, &first.key());
    assert_eq!((left.target, left.places.len()), (iscsi::Target::Unused, 2));
    forget(&root, &left).unwrap();
    assert!(all(&root).unwrap().is_empty());
}

#[test]
fn a_disk_that_is_held_for_a_pod_stays_in_whatever_form() {
    let (held, root) = node();
    let uid = PodUid::new("uid");
    for disk in [Disk::Iscsi(iscsi_disk()), fc_disk()] {
        note(&root, &disk, DiskForm::Files).unwrap();
        note(&root, &disk, DiskForm::Raw).unwrap();
        let directory = raw_directory(&disk).unwrap();
        let plugin = disk.key().kind.plugin().replace('/', "~");
        assert!(is_plugin(&plugin));
        assert!(held_for(&root, &plugin, &uid).unwrap().is_empty());
        let own = held.path().join(&directory).join("uid");
        fs::write(&own, "").unwrap();
        assert_eq!(held_for(&root, &plugin, &uid).unwrap(), [directory]);
        assert!(!unused(&root).unwrap().contains(&disk.key()));
        let still = let_go(&root, &disk.key()).unwrap();
        assert!(matches!(still, LetGo::Used), "{still:?}");
        assert!(known(&root).unwrap().contains(&disk.key()));
        fs::remove_file(own).unwrap();
        let left = taken(&root, &disk.key());
        assert_eq!(left.disk, disk);
        forget(&root, &left).unwrap();
    }
    assert!(!is_plugin("kubernetes.io~csi"));
    assert!(all(&root).unwrap().is_empty());
}

#[test]
fn a_name_that_leads_elsewhere_is_refused() {
    let (held, root) = node();
    let (mut interface, mut target) = (iscsi_disk(), iscsi_disk());
    interface.interface = "../../x".to_owned();
    target.target = "iqn/../..".to_owned();
    let names = |name: &str| Disk::Fc(FcDisk::Names(vec![name.to_owned()]));
    let bad = [Disk::Iscsi(interface), Disk::Iscsi(target), names(".."), names("a/b"), names("")];
    for disk in bad {
        for form in [DiskForm::Files, DiskForm::Raw] {
            assert!(note(&root, &disk, form).is_err(), "{disk:?}");
        }
        assert!(raw_directory(&disk).is_err());
    }
    let pods = fs::read_dir(held.path()).unwrap();
    let made: Vec<_> = pods.flatten().map(|it| it.file_name()).collect();
    assert!(made.is_empty(), "{made:?}");
}

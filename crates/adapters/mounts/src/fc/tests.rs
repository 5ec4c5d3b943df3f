//! A kernel that is played by directories, and programs by scripts.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;

use super::*;

struct Played {
    directory: TempDir,
    system: System,
}

impl Played {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in [
            "dev/disk/by-path",
            "dev/disk/by-id",
            "sys/block",
            "sys/class/scsi_host/host0",
            "sys/class/scsi_host/host1",
        ] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["multipath", "blockdev"] {
            let text = format!(
                "#!/bin/sh\ncd {}\necho {name} \"$@\" >> calls\n[ ! -e refuse-{name} ] || {{ echo busy; exit 1; }}\n",
                directory.path().display()
            );
            fs::write(at(name), text).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let system = System {
            multipath: at("multipath").display().to_string(),
            blockdev: at("blockdev").display().to_string(),
            sys: at("sys"),
            dev: at("dev"),
        };
        Self { directory, system }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A device that the kernel shows under a link.
    fn show(&self, device: &str, link: &str) {
        fs::write(self.at("dev").join(device), "").unwrap();
        fs::create_dir_all(self.at("sys/block").join(device).join("device")).unwrap();
        symlink(self.at("dev").join(device), self.at("dev/disk").join(link)).unwrap();
    }

    /// A device over these paths.
    fn put_over(&self, map: &str, paths: &[&str]) {
        fs::write(self.at("dev").join(map), "").unwrap();
        for path in paths {
            let slave = self.at("sys/block").join(map).join("slaves").join(path);
            fs::create_dir_all(slave).unwrap();
        }
    }

    async fn device(&self, disk: &FcDisk) -> Result<String, String> {
        let found = self.system.attach(disk).await;
        let dev = format!("{}/", self.at("dev").display());
        let found = found.map(|it| it.strip_prefix(&dev).unwrap_or(&it).to_owned());
        found.map_err(|error| error.cause)
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.at("calls")).unwrap_or_default();
        fs::remove_file(self.at("calls")).ok();
        let dev = format!("{}/", self.at("dev").display());
        text.lines().map(|it| it.replace(&dev, "")).collect()
    }

    fn is_forgotten(&self, device: &str) -> bool {
        let delete = self.at("sys/block").join(device).join("device/delete");
        fs::read_to_string(delete).is_ok_and(|it| it == "1")
    }
}

fn ports(names: &[&str], lun: i32) -> FcDisk {
    FcDisk::Ports { names: names.iter().map(|it| (*it).to_owned()).collect(), lun }
}

fn named(name: &str) -> FcDisk {
    FcDisk::Names(vec![name.to_owned()])
}

#[tokio::test]
async fn a_disk_is_found_by_its_ports_or_its_name_and_by_nothing_like_them() {
    let played = Played::new();
    let none = || Err("no fc disk found".to_owned());
    assert_eq!(played.device(&ports(&["5006"], 1)).await, none());
    for host in ["host0", "host1"] {
        let scan = played.at("sys/class/scsi_host").join(host).join("scan");
        assert_eq!(fs::read_to_string(scan).unwrap(), "- - -");
    }
    played.show("sda", "by-path/fc-0x5006-lun-1");
    played.show("sdb", "by-path/pci-0000:41:00.0-fc-0x5007-lun-1");
    played.show("sdc", "by-path/usb-fc-0x5008-lun-1");
    played.show("sdd", "by-id/scsi-3600");
    for (disk, expected) in [
        (ports(&["5006"], 1), Ok("sda".to_owned())),
        (ports(&["5007"], 1), Ok("sdb".to_owned())),
        (ports(&["5006", "5007"], 1), Ok("sdb".to_owned())),
        (ports(&["5006"], 11), none()),
        (ports(&["006"], 1), none()),
        (ports(&["5008"], 1), none()),
        (named("3600"), Ok("sdd".to_owned())),
        (named("360"), none()),
    ] {
        assert_eq!(played.device(&disk).await, expected, "{disk:?}");
    }
    fs::remove_file(played.at("dev/sda")).unwrap();
    assert_eq!(played.device(&ports(&["5006"], 1)).await, none());
}

#[tokio::test]
async fn the_device_over_several_paths_is_used_and_goes_before_its_paths() {
    let played = Played::new();
    played.show("sda", "by-path/fc-0x5006-lun-1");
    played.show("sdb", "by-path/fc-0x5007-lun-1");
    played.show("sdz", "by-path/fc-0x5007-lun-2");
    played.put_over("dm-0", &["sdx"]);
    played.put_over("dm-3", &["sda", "sdb"]);
    let disk = ports(&["5006", "5007"], 1);
    assert_eq!(played.device(&disk).await.unwrap(), "dm-3");
    // It was there already, so nobody had to look.
    assert!(!played.at("sys/class/scsi_host/host0/scan").exists());

    fs::write(played.at("refuse-multipath"), "").unwrap();
    let error = played.system.detach(&disk).await.unwrap_err();
    let map = played.at("dev/dm-3").display().to_string();
    assert_eq!(
        error.cause,
        format!("failed to flush multipath device {map}: exit status 1\nbusy\n")
    );
    assert!(!played.is_forgotten("sda"));
    played.calls();
    fs::remove_file(played.at("refuse-multipath")).unwrap();
    // What cannot be flushed goes nevertheless, as upstream has it.
    fs::write(played.at("refuse-blockdev"), "").unwrap();
    played.system.detach(&disk).await.unwrap();
    assert_eq!(
        played.calls(),
        ["multipath -f dm-3", "blockdev --flushbufs sda", "blockdev --flushbufs sdb"]
    );
    assert!(played.is_forgotten("sda") && played.is_forgotten("sdb"));
    assert!(!played.is_forgotten("sdz"));
}

#[tokio::test]
async fn a_name_that_leads_to_the_device_over_the_paths_is_followed() {
    let played = Played::new();
    played.show("dm-1", "by-id/scsi-3600");
    played.put_over("dm-1", &["sda"]);
    fs::create_dir_all(played.at("sys/block/sda/device")).unwrap();
    assert_eq!(played.device(&named("3600")).await.unwrap(), "dm-1");
    played.system.detach(&named("3600")).await.unwrap();
    assert_eq!(played.calls(), ["multipath -f dm-1", "blockdev --flushbufs sda"]);
    assert!(played.is_forgotten("sda"));
    // One that is gone is gone.
    played.system.detach(&named("3601")).await.unwrap();
    assert!(played.calls().is_empty());
}

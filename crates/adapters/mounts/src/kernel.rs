//! Disks as the kernel shows them below `/sys`: looking for the device that stands for several
//! paths to one disk, and telling the kernel to look for disks or to forget them.
//!
//! In: where `/sys` is (tests have their own) and names of devices. Out: names of devices. Refuses:
//! knowing how a disk is reached.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

use ferrolet_linux::offload::{Job, Pool};
use ferrolet_ports::{HostError, Retry};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

/// True for the device that stands for several paths to one disk.
pub(super) fn is_map(device: &OsStr) -> bool {
    device.to_string_lossy().starts_with("dm-")
}

/// The device that stands for several paths to a disk, this one among them.
pub(super) fn map_over(sys: &Path, device: &OsStr) -> Option<OsString> {
    let blocks = fs::read_dir(sys.join("block")).ok()?.flatten();
    let mut maps = blocks
        .filter(|it| is_map(&it.file_name()) && it.path().join("slaves").join(device).exists());
    Some(maps.next()?.file_name())
}

/// The paths that a device stands for.
pub(super) fn paths_under(sys: &Path, map: &OsStr) -> Vec<OsString> {
    let slaves = fs::read_dir(sys.join("block").join(map).join("slaves"));
    let slaves = slaves.into_iter().flatten().flatten();
    slaves.map(|it| it.file_name()).collect()
}

/// Refuses a device that somebody has claimed: a file system that is still mounted somewhere, be it
/// out of sight, would lose what it has not written yet. Absent is fine.
pub(super) async fn check_free(device: PathBuf) -> Result<(), HostError> {
    Job::on(Pool::Mounts, "look whether a disk is in use")
        .run(move || {
            let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match rustix::fs::open(&device, flags, Mode::empty()) {
                Err(Errno::BUSY) => Err(HostError {
                    attempt: "take a disk away".to_owned(),
                    cause: format!("device {} is still in use", device.display()),
                    retry: Retry::Later,
                }),
                _ => Ok(()),
            }
        })
        .await
}

/// Lets the kernel forget a disk. Gone already is as good.
pub(super) async fn forget(sys: &Path, device: impl AsRef<Path>) {
    let delete = sys.join("block").join(device).join("device/delete");
    write(delete, "1".to_owned()).await.ok();
}

/// Has the kernel look for disks on every bus. One that refuses does not keep the others.
pub(super) async fn look_for_disks(sys: &Path) {
    let hosts = fs::read_dir(sys.join("class/scsi_host"));
    for host in hosts.into_iter().flatten().flatten() {
        write(host.path().join("scan"), "- - -".to_owned()).await.ok();
    }
}

/// Writes one of the kernel's control files, which may take as long as the disk does.
pub(super) async fn write(path: PathBuf, text: String) -> Result<(), HostError> {
    Job::on(Pool::Mounts, "write to a disk's control file")
        .run(move || {
            let written = fs::write(&path, text);
            written.map_err(|cause| HostError {
                attempt: "write to a disk's control file".to_owned(),
                cause: format!("{}: {cause}", path.display()),
                retry: Retry::Later,
            })
        })
        .await
}

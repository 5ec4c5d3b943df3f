//! Directories for volumes: on disk, in memory, on huge pages.
//!
//! A marker outside the volume says that it has been set up once; on disk it and the directory mean
//! ready, in memory it and a mount do. So a second call finds its work done, a crash in the middle
//! is finished, and tmpfs is never mounted twice.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use ferrolet_linux::{
    project_quota::meter,
    rooted::{Kind, Rooted},
};
use ferrolet_ports::{EmptyDir, Medium, VolumePlace};
use rustix::{fs::Mode, io::Errno};

use super::{
    fs_group::{Access, set_ownership},
    layout::{PRIVATE, VOLUMES, marker_directory, plain, relative},
    mounts::{MountedOn, is, mount_new, mounted_on, open_volume},
};

const READY: &str = "ready";
const OPEN: u32 = 0o755;

/// Makes the volume's directory, on its medium and with its group.
pub(super) fn ensure(pods: &Rooted, place: &VolumePlace, directory: &EmptyDir) -> io::Result<()> {
    let volumes = pods
        .ensure_directory(plain(place.uid.as_str())?, PRIVATE)?
        .ensure_directory(VOLUMES, PRIVATE)?;
    let plugin = volumes.ensure_directory(plain(&place.plugin)?, OPEN)?;
    let marker = marker_directory(&place.uid, &directory.marker)?;
    let name = plain(&place.name)?;

    let is_marked = pods.kind(marker.join(READY))? == Some(Kind::File);
    let there = plugin.kind(name)?;
    if is_marked && there == Some(Kind::Directory) && is_on(&plugin, name, directory.medium)? {
        return Ok(());
    }
    if there.is_none() {
        plugin.ensure_directory(name, directory.mode)?;
        if directory.is_metered && directory.medium == Medium::Disk {
            let whole_name = format!("{}/{name}", place.uid);
            if let Err(cause) = meter(&plugin.directory(name)?, &whole_name) {
                tracing::debug!(volume = whole_name, %cause, "File system does not keep account of a volume");
            }
        }
    }
    if !is_on(&plugin, name, directory.medium)? {
        mount(&plugin.directory(name)?, directory.medium)?;
    }
    if let Some(group) = directory.group {
        let volume = open_volume(pods, &relative(place)?)?;
        set_ownership(&volume, group, Access::ReadWrite, &AtomicU64::new(0))?;
    }
    mark(pods, &marker)
}

/// True when the directory lives on the medium already.
fn is_on(plugin: &Rooted, name: &str, medium: Medium) -> io::Result<bool> {
    let mounted = mounted_on(plugin, name)?;
    match (medium, mounted) {
        (Medium::Disk, None)
        | (Medium::Memory { .. }, Some(MountedOn::Memory))
        | (Medium::HugePages { .. }, Some(MountedOn::HugePages)) => Ok(true),
        (Medium::Memory { .. } | Medium::HugePages { .. }, None) => Ok(false),
        (_, Some(_other)) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "something else is mounted on the volume's directory",
        )),
    }
}

fn mount(directory: &Rooted, medium: Medium) -> io::Result<()> {
    use std::os::fd::AsFd as _;
    match medium {
        Medium::Disk => Ok(()),
        Medium::Memory { size } => mount_memory(directory, size),
        Medium::HugePages { page_size } => {
            mount_new("hugetlbfs", directory.as_fd(), &format!("pagesize={page_size}"))
        }
    }
}

/// Mounts tmpfs, kept out of swap where the kernel can (since 6.4).
fn mount_memory(directory: &Rooted, size: Option<u64>) -> io::Result<()> {
    use std::os::fd::AsFd as _;
    static REFUSES_NOSWAP: AtomicBool = AtomicBool::new(false);
    let size = size.map(|bytes| format!("size={bytes}"));
    let bounded = size.unwrap_or_default();
    if !REFUSES_NOSWAP.load(Ordering::Relaxed) {
        let separator = if bounded.is_empty() { "" } else { "," };
        let options = format!("{bounded}{separator}noswap");
        match mount_new("tmpfs", directory.as_fd(), &options) {
            Err(cause) if is(&cause, Errno::INVAL) => {
                REFUSES_NOSWAP.store(true, Ordering::Relaxed);
            }
            other => return other,
        }
    }
    mount_new("tmpfs", directory.as_fd(), &bounded)
}

fn mark(pods: &Rooted, marker: &Path) -> io::Result<()> {
    let directory = pods.ensure_directory(marker, PRIVATE)?;
    match directory.create_new(READY, Mode::from_raw_mode(0o644).bits()) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => Err(cause),
        _ => Ok(()),
    }
}

//! Disks of other machines by Fibre Channel. The host's adapter has logged in by itself; a disk
//! only has to be found.
//!
//! ```text
//! /dev/disk/by-path/[pci-…-]fc-0x<port>-lun-<n>      by the port of its machine
//! /dev/disk/by-id/scsi-<name>                        by its own name
//! ```
//!
//! In: a disk. Out: its device, that over several paths where somebody made one. Nothing is
//! remembered: the name of its directory says all that is needed to find it again. Refuses:
//! deciding when.

#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use ferrolet_ports::{FcDisk, HostError, Retry};

use super::{
    kernel,
    programs::{self, status},
};

/// Where programs, devices and the kernel's answers are.
pub(super) struct System {
    multipath: String,
    blockdev: String,
    sys: PathBuf,
    dev: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        Self {
            multipath: "multipath".to_owned(),
            blockdev: "blockdev".to_owned(),
            sys: "/sys".into(),
            dev: "/dev".into(),
        }
    }
}

/// One path to a disk, and the device over it and others.
struct Found {
    path: OsString,
    map: Option<OsString>,
}

impl System {
    /// Finds the disk and answers with its device. Unless one over several paths is there already,
    /// the kernel looks first.
    pub(super) async fn attach(&self, disk: &FcDisk) -> Result<String, HostError> {
        let mut found = self.find(disk);
        if !found.iter().any(|it| it.map.is_some()) {
            kernel::look_for_disks(&self.sys).await;
            found = self.find(disk);
        }
        let map = found.iter().find_map(|it| it.map.clone());
        // Of several paths without a device over them upstream takes the last.
        let device = map.or_else(|| Some(found.pop()?.path));
        let device = device.ok_or_else(|| refused("no fc disk found".to_owned()))?;
        let device = self.dev.join(device);
        if !device.exists() {
            let why = format!("device {} does not exist", device.display());
            return Err(refused(why));
        }
        Ok(device.display().to_string())
    }

    /// Lets the kernel forget the disk and what stands over its paths.
    pub(super) async fn detach(&self, disk: &FcDisk) -> Result<(), HostError> {
        let mut paths: Vec<OsString> = Vec::new();
        let mut maps: Vec<OsString> = Vec::new();
        for found in self.find(disk) {
            // A link may lead to the device over the paths at once.
            let map =
                if kernel::is_map(&found.path) { Some(found.path.clone()) } else { found.map };
            match map {
                Some(map) => {
                    paths.extend(kernel::paths_under(&self.sys, &map));
                    maps.push(map);
                }
                None => paths.push(found.path),
            }
        }
        for all in [&mut paths, &mut maps] {
            all.sort();
            all.dedup();
        }
        // What stands over paths is refused below while it is in use; a single path is asked here.
        let under: Vec<OsString> =
            maps.iter().flat_map(|map| kernel::paths_under(&self.sys, map)).collect();
        for path in paths.iter().filter(|it| !under.contains(it)) {
            kernel::check_free(self.dev.join(path)).await?;
        }
        for map in maps {
            self.flush_map(&self.dev.join(map)).await?;
        }
        for path in paths {
            let device = self.dev.join(&path).display().to_string();
            let words = ["--flushbufs".to_owned(), device.clone()];
            if let Err(error) = programs::run(&self.blockdev, &words).await {
                tracing::warn!(device, %error, "Device cannot be flushed");
            }
            kernel::forget(&self.sys, &path).await;
        }
        Ok(())
    }

    async fn flush_map(&self, map: &Path) -> Result<(), HostError> {
        let words = ["-f".to_owned(), map.display().to_string()];
        let ended = programs::run(&self.multipath, &words).await?;
        match ended.code {
            Some(0) => Ok(()),
            code => Err(refused(format!(
                "failed to flush multipath device {}: {}\n{}",
                map.display(),
                status(code),
                ended.output
            ))),
        }
    }

    /// Every path to the disk that the kernel shows, in the order of the disk's names.
    fn find(&self, disk: &FcDisk) -> Vec<Found> {
        let links: Vec<PathBuf> = match disk {
            FcDisk::Ports { names, lun } => {
                let ends = names.iter().map(|it| format!("fc-0x{it}-lun-{lun}"));
                let links = self.dev.join("disk/by-path");
                ends.filter_map(|end| link_with(&links, &end)).collect()
            }
            FcDisk::Names(names) => {
                let links = self.dev.join("disk/by-id");
                let named = names.iter().map(|it| links.join(format!("scsi-{it}")));
                named.collect()
            }
        };
        let found = links.iter().filter_map(|link| {
            let device = fs::canonicalize(link).ok()?;
            let path = device.file_name()?.to_owned();
            let map = kernel::map_over(&self.sys, &path);
            Some(Found { path, map })
        });
        found.collect()
    }
}

/// The link of that name, with or without the place of an adapter before it.
fn link_with(links: &Path, end: &str) -> Option<PathBuf> {
    let mut entries = fs::read_dir(links).ok()?.flatten();
    let with_adapter = format!("-{end}");
    let is_it = |it: &str| it == end || it.starts_with("pci-") && it.ends_with(&with_adapter);
    let found = entries.find(|it| it.file_name().to_str().is_some_and(is_it))?;
    Some(found.path())
}

fn refused(cause: String) -> HostError {
    HostError { attempt: "attach Fibre Channel disk".to_owned(), cause, retry: Retry::Later }
}

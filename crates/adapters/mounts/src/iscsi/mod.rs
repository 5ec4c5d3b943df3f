//! Disks of other machines by iSCSI, with the host's own `iscsiadm`.
//!
//! In: a disk. Out: its device. [`plan`] says what the program is told; here it is told, and the
//! kernel is asked what came of it. What has to be known to log out of a target one day is a
//! record, which [`super::disks`] keeps. Refuses: deciding when.

mod plan;
#[cfg(test)]
pub(super) mod tests;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ferrolet_ports::{HostError, IscsiDisk, Retry};
use serde_json::{Value, json};
use tokio::time::sleep;

use self::plan::{
    Call, Failure, delete_interface, device_name, login, logout, own_interface, show_interface,
    transport,
};
use super::{
    kernel,
    programs::{self, status},
};

/// How often the kernel is asked for a device that should be there.
const LOOK: Duration = Duration::from_millis(200);
/// How long a device, and the device over several paths to it, are waited for.
const DEVICE_LOOKS: u32 = 150;
const PATHS_LOOKS: u32 = 50;

/// Where the program and the kernel's answers are.
pub(super) struct System {
    program: String,
    sys: PathBuf,
    by_path: PathBuf,
    dev: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        Self {
            program: "iscsiadm".to_owned(),
            sys: "/sys".into(),
            by_path: "/dev/disk/by-path".into(),
            dev: "/dev".into(),
        }
    }
}

impl System {
    /// Brings the disk to this node and answers with its device.
    pub(super) async fn attach(&self, disk: &IscsiDisk) -> Result<String, HostError> {
        let shown = programs::run(&self.program, &show_interface(disk)).await?;
        if shown.code != Some(0) {
            return Err(refused(format!("{}: {}", status(shown.code), shown.output)));
        }
        let transport = transport(&shown.output)
            .ok_or_else(|| refused(format!("could not parse iface file for {}", disk.interface)))?;
        if let Some(initiator) = &disk.initiator {
            let calls = own_interface(disk, initiator, &shown.output);
            self.call_all(&calls).await?;
        }
        let mut found = Vec::new();
        let mut last = "no portal is known".to_owned();
        for portal in &disk.portals {
            match self.path_through(disk, portal, &transport).await {
                Ok(path) => found.push(path),
                Err(error) => last = error.cause,
            }
        }
        let Some(first) = found.first().cloned() else {
            if disk.initiator.is_some() {
                programs::run(&self.program, &delete_interface(disk)).await.ok();
            }
            let why = format!("failed to get any path for iscsi disk, last err seen:\n{last}");
            return Err(refused(why));
        };
        let n_looks = if disk.portals.len() > 1 { PATHS_LOOKS } else { 1 };
        let device = self.device_over(&found, n_looks).await;
        Ok(device.unwrap_or(first).display().to_string())
    }

    /// The kernel's device of the disk, reached through one portal.
    async fn path_through(
        &self,
        disk: &IscsiDisk,
        portal: &str,
        transport: &str,
    ) -> Result<PathBuf, HostError> {
        if self.host_of(&disk.target, portal).is_none() {
            self.call_all(&login(disk, portal)).await?;
        }
        let host = self.host_of(&disk.target, portal).ok_or_else(|| {
            refused(format!("Could not get SCSI host number for portal {portal} after logging in"))
        })?;
        // This one disk only: others of the target may be nobody's business here.
        let scan = self.sys.join(format!("class/scsi_host/host{host}/scan"));
        let scanned = kernel::write(scan, format!("0 0 {}", disk.lun)).await;
        scanned.map_err(|error| refused(error.cause))?;
        let name = device_name(disk, portal);
        for _ in 0..DEVICE_LOOKS {
            if let Some(path) = self.device_named(&name, transport) {
                return Ok(path);
            }
            sleep(LOOK).await;
        }
        Err(refused(format!(
            "Timed out waiting for device at path {} after {}s",
            self.by_path.join(name).display(),
            (LOOK * DEVICE_LOOKS).as_secs()
        )))
    }

    fn device_named(&self, name: &str, transport: &str) -> Option<PathBuf> {
        if transport == "tcp" {
            let path = self.by_path.join(name);
            return fs::symlink_metadata(&path).is_ok().then_some(path);
        }
        // Hardware puts its own place before the name.
        let mut entries = fs::read_dir(&self.by_path).ok()?.flatten();
        let is_it = |it: &str| it.starts_with("pci-") && it.ends_with(&format!("-{name}"));
        let found = entries.find(|it| it.file_name().to_str().is_some_and(is_it))?;
        Some(found.path())
    }

    /// The device that stands for several paths to one disk, when somebody makes one.
    async fn device_over(&self, paths: &[PathBuf], n_looks: u32) -> Option<PathBuf> {
        for look in 0..n_looks {
            if look > 0 {
                sleep(LOOK).await;
            }
            let found = paths.iter().find_map(|path| {
                let device = fs::canonicalize(path).ok()?;
                kernel::map_over(&self.sys, device.file_name()?)
            });
            if let Some(map) = found {
                return Some(Path::new("/dev").join(map));
            }
        }
        None
    }

    /// The number of the kernel's host that is logged in to a target through a portal.
    fn host_of(&self, target: &str, portal: &str) -> Option<u32> {
        self.sessions(target)
            .into_iter()
            .find(|it| it.portals.iter().any(|it| it == portal))
            .map(|it| it.host)
    }

    fn sessions(&self, target: &str) -> Vec<Session> {
        let hosts = self.sys.join("class/iscsi_host");
        let mut found = Vec::new();
        for (name, host) in numbered(&hosts, "host") {
            let device = hosts.join(&name).join("device");
            for (session, _) in numbered(&device, "session") {
                let place = device.join(&session);
                let own = place.join("iscsi_session").join(&session);
                if line(&own.join("targetname")).as_deref() != Some(target) {
                    continue;
                }
                let portals = portals(&place);
                found.push(Session { host, place, portals });
            }
        }
        found
    }

    /// Lets the kernel forget the disk, and logs out when nobody else uses the target.
    pub(super) async fn detach(&self, disk: &IscsiDisk, target: Target) -> Result<(), HostError> {
        let sessions = self.sessions(&disk.target);
        let is_logged_in = !sessions.is_empty();
        let devices = sessions.iter().flat_map(|it| disks_of(&it.place, disk.lun));
        let devices: Vec<String> = devices.collect();
        // All of them first: a device over several paths is in use as long as one of them is.
        for device in &devices {
            let map = kernel::map_over(&self.sys, OsStr::new(device));
            let top = map.unwrap_or_else(|| device.into());
            kernel::check_free(self.dev.join(top)).await?;
        }
        for device in &devices {
            kernel::forget(&self.sys, device).await;
        }
        // One that was never reached has nothing to log out of.
        if target == Target::Unused && is_logged_in {
            self.call_all(&logout(disk)).await?;
        }
        Ok(())
    }

    async fn call_all(&self, calls: &[Call]) -> Result<(), HostError> {
        for call in calls {
            let ended = programs::run(&self.program, &call.words).await?;
            let is_fine = ended.code == Some(0);
            match &call.failure {
                _ if is_fine => {}
                Failure::Ignored => {}
                Failure::Fine(codes) if ended.code.is_some_and(|it| codes.contains(&it)) => {}
                Failure::Fine(_) => {
                    return Err(refused(format!("{}: {}", status(ended.code), ended.output)));
                }
                Failure::Ends { sentence, undo } => {
                    if let Some(undo) = undo {
                        programs::run(&self.program, undo).await.ok();
                    }
                    let sentence = sentence.replace("{status}", &status(ended.code));
                    return Err(refused(sentence.replace("{output}", &ended.output)));
                }
            }
        }
        Ok(())
    }
}

/// Whether other disks of a target are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// They are.
    Used,
    /// There are none.
    Unused,
}

struct Session {
    host: u32,
    place: PathBuf,
    portals: Vec<String>,
}

/// What has to be known to log out one day, as upstream writes it; no secrets.
pub(super) fn record_of(disk: &IscsiDisk) -> Value {
    json!({
        "VolName": disk.volume,
        "Portals": disk.portals,
        "Iqn": disk.target,
        "Lun": disk.lun.to_string(),
        "InitIface": disk.interface,
        "Iface": disk.own_interface(),
        "InitiatorName": disk.initiator.clone().unwrap_or_default(),
    })
}

/// What a record tells; `None` when it is not one.
pub(super) fn disk_of(text: &[u8]) -> Option<IscsiDisk> {
    let record: Value = serde_json::from_slice(text).ok()?;
    let word = |key: &str| record[key].as_str().map(str::to_owned);
    let portals = record["Portals"].as_array()?.iter();
    let portals: Vec<String> = portals.filter_map(|it| it.as_str().map(str::to_owned)).collect();
    if portals.is_empty() {
        return None;
    }
    Some(IscsiDisk {
        portals,
        target: word("Iqn")?,
        lun: word("Lun")?.parse().ok()?,
        interface: word("InitIface")?,
        initiator: word("InitiatorName").filter(|it| !it.is_empty()),
        volume: word("VolName")?,
        guards_discovery: false,
        guards_session: false,
        secrets: BTreeMap::new(),
    })
}

/// Where a session's connections lead: as they are, and as they were asked for.
fn portals(session: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(session).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with("connection") {
            continue;
        }
        let own = entry.path().join("iscsi_connection").join(&name);
        for (address, port) in [("address", "port"), ("persistent_address", "persistent_port")] {
            if let (Some(address), Some(port)) = (line(&own.join(address)), line(&own.join(port))) {
                let is_ipv6 = address.contains(':');
                found.push(if is_ipv6 {
                    format!("[{address}]:{port}")
                } else {
                    format!("{address}:{port}")
                });
            }
        }
    }
    found
}

/// The block devices of one disk below a session.
fn disks_of(session: &Path, lun: i32) -> Vec<String> {
    let mut found = Vec::new();
    for target in fs::read_dir(session).into_iter().flatten().flatten() {
        if !target.file_name().to_string_lossy().starts_with("target") {
            continue;
        }
        for unit in fs::read_dir(target.path()).into_iter().flatten().flatten() {
            let is_it = unit.file_name().to_string_lossy().ends_with(&format!(":{lun}"));
            let blocks = fs::read_dir(unit.path().join("block")).ok();
            if let Some(blocks) = blocks.filter(|_| is_it) {
                let names = blocks.flatten().map(|it| it.file_name());
                found.extend(names.filter_map(|it| it.into_string().ok()));
            }
        }
    }
    found
}

/// Entries of a directory that are a word and a number.
fn numbered(directory: &Path, word: &str) -> Vec<(String, u32)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter_map(|it| it.file_name().into_string().ok());
    named
        .filter_map(|name| {
            let number = name.strip_prefix(word)?.parse().ok()?;
            Some((name, number))
        })
        .collect()
}

fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|it| !it.is_empty())
}

fn refused(cause: String) -> HostError {
    HostError { attempt: "attach iSCSI disk".to_owned(), cause, retry: Retry::Later }
}

//! Disks of other machines by iSCSI, with the host's own `iscsiadm`.
//!
//! ```text
//! plugins/kubernetes.io/iscsi/iface-<interface>/<portal>-<target>-lun-<n>             the disk, mounted once for the node
//!                                                                   .../iscsi.json    under the mount: what to log out of
//! ```
//!
//! In: a disk. Out: its device. [`plan`] says what the program is told; here it is told, and the kernel is asked what came of it.
//! Who uses a disk is read from the mount table, so a restart forgets nothing. Refuses: raw disks for pods, and deciding when.

mod plan;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs, io,
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
    mounts::unmount_all,
    plain,
    programs::{self, status},
};
use crate::{
    mountinfo,
    offload::off_thread,
    rooted::{Durability, Kind, Rooted},
};

/// Where disks are mounted for the node.
const DISKS: &str = "plugins/kubernetes.io/iscsi";
const RECORD: &str = "iscsi.json";
const RECORD_LIMIT: usize = 64 * 1024;
const PRIVATE: u32 = 0o750;
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
}

impl Default for System {
    fn default() -> Self {
        Self {
            program: "iscsiadm".to_owned(),
            sys: "/sys".into(),
            by_path: "/dev/disk/by-path".into(),
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
                programs::run(&self.program, &delete_interface(disk))
                    .await
                    .ok();
            }
            let why = format!("failed to get any path for iscsi disk, last err seen:\n{last}");
            return Err(refused(why));
        };
        let n_looks = if disk.portals.len() > 1 {
            PATHS_LOOKS
        } else {
            1
        };
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
            refused(format!(
                "Could not get SCSI host number for portal {portal} after logging in"
            ))
        })?;
        // This one disk only: others of the target may be nobody's business here.
        let scan = self.sys.join(format!("class/scsi_host/host{host}/scan"));
        write(scan, format!("0 0 {}", disk.lun)).await?;
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
                let name = fs::canonicalize(path).ok()?;
                let name = name.file_name()?.to_owned();
                let blocks = fs::read_dir(self.sys.join("block")).ok()?.flatten();
                let mut over = blocks.filter(|it| {
                    let is_map = it.file_name().to_string_lossy().starts_with("dm-");
                    is_map && it.path().join("slaves").join(&name).exists()
                });
                Some(Path::new("/dev").join(over.next()?.file_name()))
            });
            if found.is_some() {
                return found;
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
                found.push(Session {
                    host,
                    place,
                    portals,
                });
            }
        }
        found
    }

    /// Lets the kernel forget the disk, and logs out when nobody else uses the target.
    async fn detach(&self, left: &Left) -> Result<(), HostError> {
        let sessions = self.sessions(&left.disk.target);
        let is_logged_in = !sessions.is_empty();
        for session in sessions {
            for device in disks_of(&session.place, left.disk.lun) {
                let delete = self.sys.join("block").join(device).join("device/delete");
                // Gone already is as good.
                write(delete, "1".to_owned()).await.ok();
            }
        }
        // One that was never reached has nothing to log out of.
        if left.is_last && is_logged_in {
            self.call_all(&logout(&left.disk)).await?;
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

struct Session {
    host: u32,
    place: PathBuf,
    portals: Vec<String>,
}

/// A disk that no pod has.
pub(super) struct Left {
    disk: IscsiDisk,
    place: PathBuf,
    /// No other disk of its target is here.
    is_last: bool,
}

/// Makes the disk's directory and notes what has to be logged out of one day.
pub(super) fn note(root: &Rooted, disk: &IscsiDisk) -> io::Result<()> {
    let (directory, name) = (plain_directory(disk)?, disk.name());
    plain(&name)?;
    let parent = root.ensure_directory(Path::new("plugins").join(directory), PRIVATE)?;
    parent.ensure_directory_across(&name, PRIVATE)?;
    match parent.directory(&name) {
        Ok(own) => {
            let text = record_of(disk).to_string();
            own.write_atomically(RECORD, text.as_bytes(), 0o600, Durability::Synced)
        }
        // Mounted on already, so it was noted before.
        Err(cause) if cause.raw_os_error() == Some(libc::EXDEV) => Ok(()),
        Err(cause) => Err(cause),
    }
}

/// Names of disks that are here and that no pod has.
pub(super) fn unused(root: &Rooted) -> io::Result<Vec<String>> {
    let table = mountinfo::read()?;
    let top = root.real_path()?.join(DISKS);
    let mut found = Vec::new();
    for (_, name, place) in all(root)? {
        if !is_used(&table, &top, &place) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Unmounts a disk that no pod has, and answers with what to log out of; `None` when somebody has it after all.
pub(super) fn let_go(root: &Rooted, name: &str) -> io::Result<Option<Left>> {
    let table = mountinfo::read()?;
    let top = root.real_path()?.join(DISKS);
    let known = all(root)?;
    let Some((interface, _, place)) = known.iter().find(|(_, it, _)| it == name) else {
        return Ok(None);
    };
    if is_used(&table, &top, place) {
        return Ok(None);
    }
    let beneath = Path::new(DISKS).join(interface).join(name);
    unmount_all(root, &beneath)?;
    let text = root.read(beneath.join(RECORD), RECORD_LIMIT);
    let disk = match text {
        Ok(text) => disk_of(&text),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => None,
        Err(cause) => return Err(cause),
    };
    let Some(disk) = disk else {
        // Nobody knows any more what it was; an empty directory is no harm.
        root.remove_directory(&beneath)?;
        return Ok(None);
    };
    let prefix = format!("{}-{}-lun-", disk.portals[0], disk.target);
    let n_alike = known.iter().filter(|(_, it, _)| it.starts_with(&prefix));
    Ok(Some(Left {
        is_last: n_alike.count() <= 1,
        disk,
        place: beneath,
    }))
}

/// Forgets a disk that is gone.
pub(super) fn forget(root: &Rooted, left: &Left) -> io::Result<()> {
    root.unlink(left.place.join(RECORD))?;
    root.remove_directory(&left.place)
}

/// Lets the kernel forget a disk that was let go.
pub(super) async fn detach(left: &Left) -> Result<(), HostError> {
    System::default().detach(left).await
}

/// Every disk: its interface's directory, its name, and where it is.
fn all(root: &Rooted) -> io::Result<Vec<(PathBuf, String, PathBuf)>> {
    let disks = match root.directory(DISKS) {
        Ok(disks) => disks,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(cause),
    };
    let mut found = Vec::new();
    for interface in disks.entries()? {
        let is_one = interface.name.to_string_lossy().starts_with("iface-");
        if interface.kind != Kind::Directory || !is_one {
            continue;
        }
        let own = disks.directory(&interface.name)?;
        let place = own.real_path()?;
        for disk in own.entries()? {
            if let (Kind::Directory, Ok(name)) = (disk.kind, disk.name.into_string()) {
                let whole = place.join(&name);
                found.push((PathBuf::from(&interface.name), name, whole));
            }
        }
    }
    Ok(found)
}

/// True when what is mounted at the disk's place is mounted for a pod too.
fn is_used(table: &[mountinfo::Mount], top: &Path, place: &Path) -> bool {
    let own = table.iter().rfind(|it| it.point == place);
    own.is_some_and(|own| {
        let mut alike = table.iter().filter(|it| it.device == own.device);
        alike.any(|it| !it.point.starts_with(top))
    })
}

fn plain_directory(disk: &IscsiDisk) -> io::Result<PathBuf> {
    let interface = format!("iface-{}", disk.own_interface());
    plain(&interface)?;
    Ok(disk.directory().into())
}

fn record_of(disk: &IscsiDisk) -> Value {
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
fn disk_of(text: &[u8]) -> Option<IscsiDisk> {
    let record: Value = serde_json::from_slice(text).ok()?;
    let word = |key: &str| record[key].as_str().map(str::to_owned);
    let portals = record["Portals"].as_array()?.iter();
    let portals: Vec<String> = portals
        .filter_map(|it| it.as_str().map(str::to_owned))
        .collect();
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
        for (address, port) in [
            ("address", "port"),
            ("persistent_address", "persistent_port"),
        ] {
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
            let is_it = unit
                .file_name()
                .to_string_lossy()
                .ends_with(&format!(":{lun}"));
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

/// Writes one of the kernel's control files, which may take as long as the disk does.
async fn write(path: PathBuf, text: String) -> Result<(), HostError> {
    off_thread("write to a disk's control file", move || {
        let written = fs::write(&path, text);
        written.map_err(|cause| refused(format!("{}: {cause}", path.display())))
    })
    .await
}

fn refused(cause: String) -> HostError {
    HostError {
        attempt: "attach iSCSI disk".to_owned(),
        cause,
        retry: Retry::Later,
    }
}

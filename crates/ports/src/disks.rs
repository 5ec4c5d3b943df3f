//! Disks of other machines: what one is, and what it is called on this node.
//!
//! Plain data. Names and directories are upstream's, so that a node can be handed over.

use std::collections::BTreeMap;

/// A disk of another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Reached by iSCSI.
    Iscsi(IscsiDisk),
    /// Reached by Fibre Channel.
    Fc(FcDisk),
}

impl Disk {
    /// What it is known by on this node.
    pub fn key(&self) -> DiskKey {
        match self {
            Self::Iscsi(disk) => DiskKey { kind: DiskKind::Iscsi, name: disk.name() },
            Self::Fc(disk) => DiskKey { kind: DiskKind::Fc, name: disk.name() },
        }
    }

    /// The directory of its directory, below that of plugins.
    pub fn directory(&self, form: DiskForm) -> String {
        let top = self.key().kind.directory(form);
        match self {
            Self::Iscsi(disk) => format!("{top}/iface-{}", disk.own_interface()),
            Self::Fc(_) => top,
        }
    }
}

/// How a disk is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskKind {
    /// By iSCSI.
    Iscsi,
    /// By Fibre Channel.
    Fc,
}

impl DiskKind {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Iscsi, Self::Fc];

    /// The name of its volumes' plugin.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::Iscsi => "kubernetes.io/iscsi",
            Self::Fc => "kubernetes.io/fc",
        }
    }

    /// The directory of its disks, below that of plugins.
    pub fn directory(self, form: DiskForm) -> String {
        match form {
            DiskForm::Files => self.plugin().to_owned(),
            DiskForm::Raw => format!("{}/volumeDevices", self.plugin()),
        }
    }
}

/// What a disk is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskForm {
    /// With a file system, mounted once for the node.
    Files,
    /// As it is.
    Raw,
}

/// What a disk is known by on this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskKey {
    /// How it is reached.
    pub kind: DiskKind,
    /// The name of its directory.
    pub name: String,
}

impl DiskKey {
    /// What the cluster may call the disk in a node's status. A portal's usual port may have been
    /// written or not.
    pub fn cluster_names(&self) -> Vec<String> {
        let plugin = self.kind.plugin();
        let names = match self.kind {
            DiskKind::Iscsi => self.iscsi_names(),
            DiskKind::Fc => FcDisk::of_name(&self.name).map(|disk| match disk {
                FcDisk::Ports { names, lun } => vec![format!("[{}]:{lun}", names.join(" "))],
                FcDisk::Names(names) => vec![format!("[{}]", names.join(" "))],
            }),
        };
        let names = names.unwrap_or_default().into_iter();
        names.map(|name| format!("{plugin}/{name}")).collect()
    }

    fn iscsi_names(&self) -> Option<Vec<String>> {
        let (disk, lun) = self.name.rsplit_once("-lun-")?;
        let begins = ["-iqn.", "-eui.", "-naa."];
        let at = begins.iter().find_map(|it| disk.find(it))?;
        let (portal, target) = (&disk[..at], &disk[at + 1..]);
        let portals = [Some(portal), portal.strip_suffix(":3260")];
        let portals = portals.into_iter().flatten();
        Some(portals.map(|it| format!("{it}:{target}:{lun}")).collect())
    }
}

/// What became of a disk that was to be taken away from this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// It is not here any more.
    Gone,
    /// Some pod has it.
    Used,
}

/// A disk of another machine, reached by iSCSI.
#[derive(Clone, PartialEq, Eq)]
pub struct IscsiDisk {
    /// Where the target answers, with ports; there is at least one, and the first gives the disk
    /// its name.
    pub portals: Vec<String>,
    /// The target's name.
    pub target: String,
    /// The disk's number at the target.
    pub lun: i32,
    /// The interface that the administrator prepared.
    pub interface: String,
    /// Our name towards the target, where the volume wants another than the node's.
    pub initiator: Option<String>,
    /// The volume's name.
    pub volume: String,
    /// Finding the target wants a password.
    pub guards_discovery: bool,
    /// Logging in wants a password.
    pub guards_session: bool,
    /// Names and passwords, by the program's keys.
    pub secrets: BTreeMap<String, String>,
}

impl IscsiDisk {
    /// The interface that is used: one of the disk's own where it wants a name of its own.
    pub fn own_interface(&self) -> String {
        match (&self.initiator, self.portals.first()) {
            (Some(_), Some(portal)) => format!("{portal}:{}", self.volume),
            _ => self.interface.clone(),
        }
    }

    /// The name of its directory.
    pub fn name(&self) -> String {
        let portal = self.portals.first().map_or("", String::as_str);
        format!("{portal}-{}-lun-{}", self.target, self.lun)
    }
}

// Secrets never reach a log.
impl std::fmt::Debug for IscsiDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IscsiDisk").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A disk that is reached by Fibre Channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FcDisk {
    /// By the ports of its machine, and its number there.
    Ports {
        /// The ports' world-wide names.
        names: Vec<String>,
        /// The number.
        lun: i32,
    },
    /// By its own world-wide names.
    Names(Vec<String>),
}

impl FcDisk {
    /// The name of its directory.
    pub fn name(&self) -> String {
        match self {
            Self::Ports { names, lun } => format!("{}-lun-{lun}", names.join("-")),
            Self::Names(names) => names.join("-"),
        }
    }

    /// The disk whose directory has that name; `None` when no disk's has.
    pub fn of_name(name: &str) -> Option<Self> {
        let words = |text: &str| text.split('-').map(str::to_owned).collect();
        match name.rsplit_once("-lun-") {
            Some((names, lun)) => Some(Self::Ports { names: words(names), lun: lun.parse().ok()? }),
            None => (!name.is_empty()).then(|| Self::Names(words(name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_of_fibre_channel_can_be_told_by_its_directory() {
        let check = |disk: FcDisk, name: &str| {
            assert_eq!(disk.name(), name);
            assert_eq!(FcDisk::of_name(name), Some(disk));
        };
        let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
        check(
            FcDisk::Ports { names: names(&["50060e801049cfd1", "50060e801049cfd2"]), lun: 3 },
            "50060e801049cfd1-50060e801049cfd2-lun-3",
        );
        check(
            FcDisk::Names(names(&["3600508b400105e21", "3600508b400105e22"])),
            "3600508b400105e21-3600508b400105e22",
        );
        assert_eq!(FcDisk::of_name("a-lun-b"), None);
        assert_eq!(FcDisk::of_name(""), None);
    }

    #[test]
    fn the_clusters_names_can_be_told_by_directories() {
        let check = |kind: DiskKind, name: &str, expected: &[&str]| {
            let name = name.to_owned();
            assert_eq!(DiskKey { kind, name }.cluster_names(), expected);
        };
        check(
            DiskKind::Iscsi,
            "my-host:3260-iqn.2026-01.dev:a-lun-b-lun-3",
            &[
                "kubernetes.io/iscsi/my-host:3260:iqn.2026-01.dev:a-lun-b:3",
                "kubernetes.io/iscsi/my-host:iqn.2026-01.dev:a-lun-b:3",
            ],
        );
        check(
            DiskKind::Iscsi,
            "10.0.0.1:860-eui.0-lun-0",
            &["kubernetes.io/iscsi/10.0.0.1:860:eui.0:0"],
        );
        check(DiskKind::Iscsi, "what-is-this", &[]);
        check(DiskKind::Fc, "5006-5007-lun-1", &["kubernetes.io/fc/[5006 5007]:1"]);
        check(DiskKind::Fc, "3600", &["kubernetes.io/fc/[3600]"]);
    }

    #[test]
    fn directories_are_upstreams() {
        let disk = Disk::Fc(FcDisk::Names(vec!["a".to_owned()]));
        assert_eq!(disk.directory(DiskForm::Files), "kubernetes.io/fc");
        let raw = disk.directory(DiskForm::Raw);
        assert_eq!(raw, "kubernetes.io/fc/volumeDevices");
    }
}

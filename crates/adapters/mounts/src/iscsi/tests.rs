//! A program and a kernel that are played by a script and a directory.

use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;

struct Played {
    directory: TempDir,
    system: System,
}

impl Played {
    /// A program that notes what it is told and, at a login, does what a kernel and its helpers do.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["by-path", "sys/class/scsi_host/host7", "sys/block"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let script = format!(
            r#"#!/bin/sh
cd {}
echo "$@" >> calls
[ -e refuse ] && case "$*" in *"$(cat refuse)"*) echo no such target; exit 8;; esac
case "$*" in
*show) echo "iface.transport_name = tcp";;
*--login)
    session=sys/class/iscsi_host/host7/device/session1
    mkdir -p $session/iscsi_session/session1 $session/connection1:0/iscsi_connection/connection1:0
    echo iqn.t > $session/iscsi_session/session1/targetname
    echo 10.0.0.1 > $session/connection1:0/iscsi_connection/connection1:0/address
    echo 3260 > $session/connection1:0/iscsi_connection/connection1:0/port
    touch by-path/ip-10.0.0.1:3260-iscsi-iqn.t-lun-3;;
esac
"#,
            directory.path().display()
        );
        fs::write(at("iscsiadm"), script).unwrap();
        fs::set_permissions(at("iscsiadm"), fs::Permissions::from_mode(0o755)).unwrap();
        let system = System {
            program: at("iscsiadm").display().to_string(),
            sys: at("sys"),
            by_path: at("by-path"),
            dev: at("dev"),
        };
        Self { directory, system }
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.path().join("calls")).unwrap_or_default();
        fs::remove_file(self.directory.path().join("calls")).ok();
        text.lines().map(str::to_owned).collect()
    }
}

/// A disk that asks for nothing special.
pub(crate) fn disk() -> IscsiDisk {
    IscsiDisk {
        portals: vec!["10.0.0.1:3260".to_owned()],
        target: "iqn.t".to_owned(),
        lun: 3,
        interface: "default".to_owned(),
        initiator: None,
        volume: "pv".to_owned(),
        guards_discovery: false,
        guards_session: false,
        secrets: BTreeMap::new(),
    }
}

#[tokio::test]
async fn a_disk_is_logged_in_to_once_scanned_for_and_logged_out_of_last() {
    let played = Played::new();
    let device = played.system.attach(&disk()).await.unwrap();
    assert!(device.ends_with("by-path/ip-10.0.0.1:3260-iscsi-iqn.t-lun-3"), "{device}");
    let scan = played.directory.path().join("sys/class/scsi_host/host7/scan");
    assert_eq!(fs::read_to_string(scan).unwrap(), "0 0 3");
    assert_eq!(played.calls().len(), 6);
    // Logged in already.
    played.system.attach(&disk()).await.unwrap();
    assert_eq!(played.calls(), ["-m iface -I default -o show"]);

    let sys = played.directory.path().join("sys");
    let unit = "class/iscsi_host/host7/device/session1/target7:0:0/7:0:0:3/block/sdx";
    fs::create_dir_all(sys.join(unit)).unwrap();
    fs::create_dir_all(sys.join("block/sdx/device")).unwrap();
    let detached = played.system.detach(&disk(), Target::Used).await;
    detached.unwrap();
    assert_eq!(fs::read_to_string(sys.join("block/sdx/device/delete")).unwrap(), "1");
    assert!(played.calls().is_empty(), "another disk needs the session");
    let detached = played.system.detach(&disk(), Target::Unused).await;
    detached.unwrap();
    assert_eq!(
        played.calls(),
        [
            "-m node -p 10.0.0.1:3260 -T iqn.t --logout -I default",
            "-m node -p 10.0.0.1:3260 -T iqn.t -o delete -I default"
        ]
    );
}

#[tokio::test]
async fn a_login_that_is_refused_says_so_in_upstreams_words_and_is_undone() {
    let played = Played::new();
    for (refuse, says, undone) in [
        (
            "--login",
            "iscsi: failed to attach disk: Error: no such target\n (exit status 8)",
            "-m node -p 10.0.0.1:3260 -T iqn.t -I default -o delete",
        ),
        (
            "--discover",
            "iscsi: failed to sendtargets to portal 10.0.0.1:3260 output: no such target\n, err exit status 8",
            "-m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o delete",
        ),
    ] {
        fs::write(played.directory.path().join("refuse"), refuse).unwrap();
        let error = played.system.attach(&disk()).await.unwrap_err();
        let expected = format!("failed to get any path for iscsi disk, last err seen:\n{says}");
        assert_eq!(error.cause, expected);
        assert_eq!(played.calls().last().unwrap(), undone);
    }
}

#[tokio::test]
async fn a_host_without_the_program_says_so() {
    let mut played = Played::new();
    played.system.program = "ferrolet-no-iscsiadm".to_owned();
    let error = played.system.attach(&disk()).await.unwrap_err();
    assert!(error.cause.contains("executable file not found in $PATH"), "{}", error.cause);
}

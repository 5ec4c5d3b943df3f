//! What `iscsiadm` is told, in upstream's words and order. Pure.
//!
//! In: a disk, and what the program showed. Out: [`Call`]s, each with what its failure means. Words
//! go to the program as they are, never through a shell.

use std::collections::BTreeMap;

use ferrolet_ports::IscsiDisk;

/// Exit codes that say that what should go is gone: no session, no record.
const GONE: [i32; 2] = [2, 21];
/// Somebody is logged in through an interface of that name already.
const SESSION_EXISTS: i32 = 15;

const DISCOVERY_SECRETS: [&str; 4] = [
    "discovery.sendtargets.auth.username",
    "discovery.sendtargets.auth.password",
    "discovery.sendtargets.auth.username_in",
    "discovery.sendtargets.auth.password_in",
];
const SESSION_SECRETS: [&str; 4] = [
    "node.session.auth.username",
    "node.session.auth.password",
    "node.session.auth.username_in",
    "node.session.auth.password_in",
];

/// One call of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) words: Vec<String>,
    pub(super) failure: Failure,
}

/// What a failure of a call means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing.
    Ignored,
    /// Nothing, where the program ends with one of these codes; otherwise it ends the work.
    Fine(Vec<i32>),
    /// It ends the work with this sentence, in which `{output}` and `{status}` stand for the
    /// program's; then this is undone.
    Ends { sentence: String, undo: Option<Vec<String>> },
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

fn ignored(text: &[&str]) -> Call {
    Call { words: words(text), failure: Failure::Ignored }
}

/// Shows how the interface that the administrator prepared is set up.
pub(super) fn show_interface(disk: &IscsiDisk) -> Vec<String> {
    words(&["-m", "iface", "-I", &disk.interface, "-o", "show"])
}

/// The transport of an interface that was shown.
pub(super) fn transport(shown: &str) -> Option<String> {
    let value = settings(shown).find_map(|(key, value)| {
        let is_it = key == "iface.transport_name";
        is_it.then_some(value)
    })?;
    Some(match value {
        "<empty>" => "tcp".to_owned(),
        other => other.to_owned(),
    })
}

/// Makes an interface of the disk's own, like the one that was shown but under the initiator's name
/// that the disk wants.
pub(super) fn own_interface(disk: &IscsiDisk, initiator: &str, shown: &str) -> Vec<Call> {
    let own = disk.own_interface();
    let mut wanted: BTreeMap<&str, &str> = settings(shown)
        .filter(|(key, value)| *key != "iface.iscsi_ifacename" && !value.contains("<empty>"))
        .collect();
    wanted.insert("iface.initiatorname", initiator);
    let mut calls = vec![Call {
        words: words(&["-m", "iface", "-I", &own, "-o", "new"]),
        failure: Failure::Fine(vec![SESSION_EXISTS]),
    }];
    calls.extend(wanted.into_iter().map(|(key, value)| {
        let text = ["-m", "iface", "-I", &own, "-o", "update", "-n", key, "-v", value];
        Call {
            words: words(&text),
            failure: Failure::Ends {
                sentence: "iscsi: failed to update iface records: {output} ({status})".to_owned(),
                undo: Some(delete_interface(disk)),
            },
        }
    }));
    calls
}

/// Takes the disk's own interface away.
pub(super) fn delete_interface(disk: &IscsiDisk) -> Vec<String> {
    words(&["-m", "iface", "-I", &disk.own_interface(), "-o", "delete"])
}

/// Finds the target behind a portal and logs in.
pub(super) fn login(disk: &IscsiDisk, portal: &str) -> Vec<Call> {
    let mut calls = discover(disk, portal);
    calls.extend(log_in_to(disk, portal));
    calls
}

fn discover(disk: &IscsiDisk, portal: &str) -> Vec<Call> {
    let discovery = |more: &[&str]| {
        let mut all = words(&["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I"]);
        all.push(disk.own_interface());
        all.extend(words(more));
        all
    };
    let mut calls = vec![Call { words: discovery(&["-o", "new"]), failure: Failure::Ignored }];
    if disk.guards_discovery {
        let refused = |what: &str| Failure::Ends {
            sentence: format!(
                "iscsi: failed to update discoverydb to portal {portal} error: iscsi: failed to update discoverydb {what}"
            ),
            undo: None,
        };
        let method = ["-o", "update", "-n", "discovery.sendtargets.auth.authmethod", "-v", "CHAP"];
        let failure = refused("with CHAP, output: {output}");
        calls.push(Call { words: discovery(&method), failure });
        for (key, value) in given(disk, &DISCOVERY_SECRETS) {
            calls.push(Call {
                words: discovery(&["-o", "update", "-n", key, "-v", value]),
                failure: refused(&format!("key {key:?} error: {{output}}")),
            });
        }
    }
    calls.push(Call {
        words: discovery(&["--discover"]),
        failure: Failure::Ends {
            sentence: format!(
                "iscsi: failed to sendtargets to portal {portal} output: {{output}}, err {{status}}"
            ),
            undo: Some(discovery(&["-o", "delete"])),
        },
    });
    calls
}

fn log_in_to(disk: &IscsiDisk, portal: &str) -> Vec<Call> {
    let target = disk.target.as_str();
    let node = |more: &[&str]| {
        let mut all = words(&["-m", "node", "-p", portal, "-T", target, "-I"]);
        all.push(disk.own_interface());
        all.extend(words(more));
        all
    };
    // Only the disk that is wanted is looked for, not all that the target has.
    let scan = ["-o", "update", "-n", "node.session.scan", "-v", "manual"];
    let mut calls = vec![Call { words: node(&scan), failure: Failure::Ignored }];
    if disk.guards_session {
        let refused = |what: &str| Failure::Ends {
            sentence: format!(
                "iscsi: failed to update iscsi node to portal {portal} error: iscsi: failed to update node {what}"
            ),
            undo: None,
        };
        let method = ["-o", "update", "-n", "node.session.auth.authmethod", "-v", "CHAP"];
        let failure = refused("with CHAP, output: {output}");
        calls.push(Call { words: node(&method), failure });
        for (key, value) in given(disk, &SESSION_SECRETS) {
            calls.push(Call {
                words: node(&["-o", "update", "-n", key, "-v", value]),
                failure: refused(&format!("session key {key:?} error: {{output}}")),
            });
        }
    }
    calls.push(Call {
        words: node(&["--login"]),
        failure: Failure::Ends {
            sentence: "iscsi: failed to attach disk: Error: {output} ({status})".to_owned(),
            undo: Some(node(&["-o", "delete"])),
        },
    });
    // A node that starts again does not wait for targets.
    let update = ["-o", "update", "-n", "node.startup", "-v", "manual"];
    let startup = [&["-m", "node", "-p", portal, "-T", target], &update[..]].concat();
    calls.push(ignored(&startup));
    calls
}

/// Logs out of the target at every portal, and forgets it.
pub(super) fn logout(disk: &IscsiDisk) -> Vec<Call> {
    let (interface, target) = (disk.own_interface(), disk.target.as_str());
    let fine = |words: Vec<String>| Call { words, failure: Failure::Fine(GONE.to_vec()) };
    let mut calls = Vec::new();
    for portal in &disk.portals {
        let node = ["-m", "node", "-p", portal, "-T", target];
        for last in [["--logout"].as_slice(), ["-o", "delete"].as_slice()] {
            let mut all = words(&node);
            all.extend(words(last));
            all.extend(["-I".to_owned(), interface.clone()]);
            calls.push(fine(all));
        }
    }
    if disk.initiator.is_some() {
        calls.push(fine(delete_interface(disk)));
    }
    calls
}

/// The end of the name that the kernel's device gets, by the portal it is reached through.
pub(super) fn device_name(disk: &IscsiDisk, portal: &str) -> String {
    let address: String = portal.chars().filter(|it| !matches!(it, '[' | ']')).collect();
    format!("ip-{address}-iscsi-{}-lun-{}", disk.target, disk.lun)
}

fn given<'a>(
    disk: &'a IscsiDisk,
    keys: &'a [&'static str],
) -> impl Iterator<Item = (&'static str, &'a str)> {
    keys.iter().filter_map(|key| {
        let value = disk.secrets.get(*key)?;
        (!value.is_empty()).then_some((*key, value.as_str()))
    })
}

/// The lines `key = value` about an interface.
fn settings(shown: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = shown.lines().filter(|line| line.starts_with("iface."));
    lines.filter_map(|line| {
        let (key, value) = line.split_once(" = ")?;
        Some((key.trim(), value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::disk;
    use super::*;

    fn shown(calls: &[Call]) -> Vec<String> {
        calls.iter().map(|it| it.words.join(" ")).collect()
    }

    #[test]
    fn a_login_is_what_upstream_says_to_the_program() {
        let expected = [
            "-m discoverydb -t sendtargets -p P -I default -o new",
            "-m discoverydb -t sendtargets -p P -I default --discover",
            "-m node -p P -T iqn.t -I default -o update -n node.session.scan -v manual",
            "-m node -p P -T iqn.t -I default --login",
            "-m node -p P -T iqn.t -o update -n node.startup -v manual",
        ];
        assert_eq!(shown(&login(&disk(), "P")), expected);
        let secrets = [
            ("discovery.sendtargets.auth.password", "d"),
            ("node.session.auth.username", "me"),
            ("node.session.auth.password", ""),
            ("other", "x"),
        ];
        let guarded = IscsiDisk {
            guards_discovery: true,
            guards_session: true,
            secrets: secrets.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..disk()
        };
        let expected = [
            "-m discoverydb -t sendtargets -p P -I default -o new",
            "-m discoverydb -t sendtargets -p P -I default -o update -n discovery.sendtargets.auth.authmethod -v CHAP",
            "-m discoverydb -t sendtargets -p P -I default -o update -n discovery.sendtargets.auth.password -v d",
            "-m discoverydb -t sendtargets -p P -I default --discover",
            "-m node -p P -T iqn.t -I default -o update -n node.session.scan -v manual",
            "-m node -p P -T iqn.t -I default -o update -n node.session.auth.authmethod -v CHAP",
            "-m node -p P -T iqn.t -I default -o update -n node.session.auth.username -v me",
            "-m node -p P -T iqn.t -I default --login",
            "-m node -p P -T iqn.t -o update -n node.startup -v manual",
        ];
        assert_eq!(shown(&login(&guarded, "P")), expected);
    }

    #[test]
    fn an_initiator_of_its_own_has_an_interface_of_its_own() {
        let own = IscsiDisk { initiator: Some("iqn.me".to_owned()), ..disk() };
        let seen = "# BEGIN RECORD\niface.iscsi_ifacename = default\niface.net_ifacename = <empty>\niface.transport_name = tcp\niface.initiatorname = <empty>\n# END RECORD\n";
        let expected = [
            "-m iface -I 10.0.0.1:3260:pv -o new",
            "-m iface -I 10.0.0.1:3260:pv -o update -n iface.initiatorname -v iqn.me",
            "-m iface -I 10.0.0.1:3260:pv -o update -n iface.transport_name -v tcp",
        ];
        assert_eq!(shown(&own_interface(&own, "iqn.me", seen)), expected);
        let expected = [
            "-m node -p 10.0.0.1:3260 -T iqn.t --logout -I 10.0.0.1:3260:pv",
            "-m node -p 10.0.0.1:3260 -T iqn.t -o delete -I 10.0.0.1:3260:pv",
            "-m iface -I 10.0.0.1:3260:pv -o delete",
        ];
        assert_eq!(shown(&logout(&own)), expected);
        assert_eq!(logout(&disk()).len(), 2);
    }

    #[test]
    fn interfaces_say_their_transport() {
        assert_eq!(transport("iface.transport_name = tcp\n").as_deref(), Some("tcp"));
        assert_eq!(transport("iface.transport_name = <empty>\n").as_deref(), Some("tcp"));
        assert_eq!(transport("iface.mtu = 0\n"), None);
    }

    #[test]
    fn devices_are_named_by_portal_target_and_number() {
        assert_eq!(device_name(&disk(), "10.0.0.1:3260"), "ip-10.0.0.1:3260-iscsi-iqn.t-lun-3");
        assert_eq!(device_name(&disk(), "[fd00::1]:3260"), "ip-fd00::1:3260-iscsi-iqn.t-lun-3");
    }
}

//! The ids that the system set aside for the agent's user namespaces: those of the user `kubelet`,
//! as `getsubids` tells.
//!
//! Without that user, or without the program, nothing was set aside and the caller has a default.
//! With both, an answer is expected: the program may ask a directory service, and one that is away
//! must not look like one that has no entry. Refuses: anything but one range, the same for users
//! and groups.

use std::{io, process::Command};

/// Upstream's user.
const USER: &str = "kubelet";
const PROGRAM: &str = "getsubids";
const PASSWD: &str = "/etc/passwd";

/// Why the ids are not known.
#[derive(Debug, thiserror::Error)]
pub enum SubIdsError {
    /// The program could not be run.
    #[error("run {PROGRAM} for user {USER}")]
    Run(#[source] io::Error),
    /// The program failed.
    #[error("retrieve additional ids for user {USER}: {PROGRAM} ended with {0}")]
    Refused(std::process::ExitStatus),
    /// Users and groups have different ranges.
    #[error("mismatched subuids and subgids for user {USER}")]
    Mismatch,
    /// The answer is no single range.
    #[error("read the ids of user {USER}: {0:?} is not one line of 4 words with two numbers")]
    Answer(String),
}

/// The first id and how many; `None` when nothing was set aside.
pub fn read_sub_ids() -> Result<Option<(u32, u32)>, SubIdsError> {
    let users = std::fs::read(PASSWD).unwrap_or_default();
    if !has_user(&String::from_utf8_lossy(&users), USER) {
        return Ok(None);
    }
    let ask = |args: &[&str]| match Command::new(PROGRAM).args(args).output() {
        Ok(output) if output.status.success() => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
        }
        Ok(output) => Err(SubIdsError::Refused(output.status)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(SubIdsError::Run(cause)),
    };
    let Some(uids) = ask(&[USER])? else {
        return Ok(None);
    };
    if ask(&["-g", USER])?.as_ref() != Some(&uids) {
        return Err(SubIdsError::Mismatch);
    }
    parse(&uids).map(Some).ok_or(SubIdsError::Answer(uids))
}

fn has_user(passwd: &str, name: &str) -> bool {
    passwd.lines().any(|line| line.split(':').next() == Some(name))
}

/// `0: kubelet 65536 2147483648`.
fn parse(answer: &str) -> Option<(u32, u32)> {
    let mut lines = answer.lines();
    let words: Vec<&str> = lines.next()?.split_whitespace().collect();
    let [_, _, first, n_ids] = words.as_slice() else {
        return None;
    };
    let range = (first.parse().ok()?, n_ids.parse().ok()?);
    lines.next().is_none().then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_read_and_nothing_else() {
        let check = |text: &str, expected| assert_eq!(parse(text), expected, "{text:?}");
        check("0: kubelet 65536 2147483648\n", Some((65_536, 2_147_483_648)));
        check("", None);
        check("0: kubelet 65536", None);
        check("0: kubelet 65536 many", None);
        check("0: kubelet 65536 65536\n1: kubelet 0 1\n", None);
    }

    #[test]
    fn a_user_is_known_by_its_whole_name() {
        let users = "root:x:0:0::/:/bin/sh\nkubelet2:x:1:1::/:/bin/sh\n";
        assert!(has_user(users, "root"));
        assert!(!has_user(users, "kubelet"));
    }
}

//! Which SELinux label a volume is mounted with, so that nobody has to relabel its files one by
//! one. Pure.
//!
//! In: what the node calls containers' files, what containers ask for, what the driver supports.
//! Out: a label, none, or why the containers contradict one another. A label without a level is
//! none: the runtime picks a level of its own, and files mounted with another one could not be
//! read. Refuses: labels of processes; those are the runtime's business.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::SELinuxOptions;

/// What a node with SELinux calls things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelinuxNode {
    /// The label of containers' files by default, `system_u:object_r:container_file_t:s0`.
    pub file_label: String,
    /// Volumes of every access mode are mounted with a label, not only those for one pod alone.
    pub is_for_all_modes: bool,
}

/// What a container asks of SELinux, as far as it says something about files: roles and types of
/// processes do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelinuxAsk {
    user: Option<String>,
    level: Option<String>,
}

impl From<&SELinuxOptions> for SelinuxAsk {
    fn from(options: &SELinuxOptions) -> Self {
        let given = |it: &Option<String>| it.clone().filter(|it| !it.is_empty());
        Self { user: given(&options.user), level: given(&options.level) }
    }
}

/// What is known of one volume.
pub(crate) struct Labelled<'a> {
    /// What the containers that mount it ask for; those that ask for nothing are not among them.
    pub(crate) asked: &'a [SelinuxAsk],
    /// It is a persistent volume with these access modes; `None` for what a pod names in its own
    /// words.
    pub(crate) access_modes: Option<&'a [String]>,
    /// The pod wants files relabelled one by one.
    pub(crate) is_recursive: bool,
}

/// The label to mount with, if the driver supports that; or why there cannot be one.
pub(crate) fn mount_label(
    node: &SelinuxNode,
    volume: &Labelled<'_>,
) -> Result<Option<String>, String> {
    let is_supported = volume.access_modes.is_some_and(|modes| {
        node.is_for_all_modes || matches!(modes, [only] if only == "ReadWriteOncePod")
    });
    let labels: BTreeSet<String> =
        volume.asked.iter().map(|ask| file_label(node, ask).unwrap_or_default()).collect();
    if !is_supported {
        return Ok(None);
    }
    if labels.len() > 1 {
        let labels: Vec<String> = labels.into_iter().collect();
        return Err(format!("multiple SELinux labels found: {}", labels.join(",")));
    }
    let only = labels.into_iter().next().filter(|it| !it.is_empty());
    Ok(only.filter(|_| !volume.is_recursive))
}

/// The label of files for processes with these options; `None` when it is not known before the
/// container is there.
fn file_label(node: &SelinuxNode, ask: &SelinuxAsk) -> Option<String> {
    let mut parts = node.file_label.splitn(4, ':');
    let (user, role, kind) = (parts.next()?, parts.next()?, parts.next()?);
    let level = ask.level.as_ref()?;
    let user = ask.user.as_deref().unwrap_or(user);
    Some(format!("{user}:{role}:{kind}:{level}"))
}

/// The mount option for a label. The quotes keep the commas of its categories together.
pub(crate) fn mount_option(label: &str) -> String {
    format!("context={label:?}")
}

/// Why a volume that another pod has with another label cannot be had now.
pub(crate) fn conflict(volume: &str, theirs: &str, ours: &str) -> String {
    format!("conflicting SELinux labels of volume {volume}: {theirs:?} and {ours:?}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_label_is_what_all_containers_agree_on_and_the_volume_allows() {
        let check = |asked: Value,
                     volume: (Option<&[&str]>, bool, bool),
                     expected: Result<Option<&str>, &str>| {
            let (modes, is_recursive, is_for_all_modes) = volume;
            let node = SelinuxNode {
                file_label: "system_u:object_r:container_file_t:s0".to_owned(),
                is_for_all_modes,
            };
            let parsed: Vec<SELinuxOptions> = serde_json::from_value(asked.clone()).unwrap();
            let parsed: Vec<SelinuxAsk> = parsed.iter().map(SelinuxAsk::from).collect();
            let modes: Option<Vec<String>> =
                modes.map(|it| it.iter().map(|mode| (*mode).to_owned()).collect());
            let found = mount_label(
                &node,
                &Labelled { asked: &parsed, access_modes: modes.as_deref(), is_recursive },
            );
            let found = found.as_ref().map(Option::as_deref).map_err(String::as_str);
            assert_eq!(found, expected, "{asked} {volume:?}");
        };
        let once: &[&str] = &["ReadWriteOnce"];
        let alone: &[&str] = &["ReadWriteOncePod"];
        let level = json!([{"level": "s0:c1,c2"}]);
        let label = Some("system_u:object_r:container_file_t:s0:c1,c2");
        check(level.clone(), (Some(once), false, true), Ok(label));
        check(level.clone(), (Some(once), true, true), Ok(None));
        check(level.clone(), (Some(once), false, false), Ok(None));
        check(level.clone(), (Some(alone), false, false), Ok(label));
        check(
            level.clone(),
            (Some(&["ReadWriteOncePod", "ReadWriteOnce"]), false, false),
            Ok(None),
        );
        check(level, (None, false, true), Ok(None));
        check(json!([]), (Some(once), false, true), Ok(None));
        // Without a level the runtime picks one that nobody knows yet.
        check(json!([{}]), (Some(once), false, true), Ok(None));
        check(json!([{"type": "spc_t", "user": "u"}]), (Some(once), false, true), Ok(None));
        check(
            json!([{"user": "me_u", "role": "r", "type": "t", "level": "s0"}]),
            (Some(once), false, true),
            Ok(Some("me_u:object_r:container_file_t:s0")),
        );
        let same = json!([{"level": "s0", "type": "a"}, {"level": "s0", "type": "b"}]);
        check(same, (Some(once), false, true), Ok(Some("system_u:object_r:container_file_t:s0")));
        let two = json!([{"level": "s0:c2"}, {"level": "s0:c1"}]);
        let contradiction = "multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,system_u:object_r:container_file_t:s0:c2";
        check(two.clone(), (Some(once), false, true), Err(contradiction));
        check(two.clone(), (Some(once), true, true), Err(contradiction));
        check(two.clone(), (Some(once), false, false), Ok(None));
        check(two, (None, false, true), Ok(None));
    }

    #[test]
    fn the_mount_option_is_quoted() {
        assert_eq!(mount_option("u:r:t:s0:c1,c2"), r#"context="u:r:t:s0:c1,c2""#);
    }
}

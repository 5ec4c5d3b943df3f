//! Whose cgroup a directory is, by its name. Pure.

use ferrolet_types::{ContainerId, PodUid};

/// The pod of a directory below the pods' cgroup or one of its classes.
pub(super) fn pod(name: &str) -> Option<PodUid> {
    if let Some(slice) = name.strip_suffix(".slice") {
        // Dashes separate levels in a slice's name; those of the uid were made underscores.
        let (_, uid) = slice.rsplit_once("-pod")?;
        return (!uid.is_empty()).then(|| PodUid::from(uid.replace('_', "-")));
    }
    let uid = name.strip_prefix("pod")?;
    (!uid.is_empty()).then(|| PodUid::from(uid))
}

/// True for the directories of the classes that hold pods.
pub(super) fn is_class(name: &str) -> bool {
    let slice = name.strip_suffix(".slice");
    let class = slice.and_then(|slice| slice.rsplit('-').next()).unwrap_or(name);
    class == "burstable" || class == "besteffort"
}

/// The container of a directory below a pod's: its id, bare or in a scope's name.
pub(super) fn container(name: &str) -> Option<ContainerId> {
    let id = name
        .strip_suffix(".scope")
        .map_or(name, |scope| scope.rsplit_once('-').map_or(scope, |(_, id)| id));
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_helper = name.starts_with("crio-conmon-");
    (is_id && !is_helper).then(|| ContainerId::from(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_tell_whose_they_are() {
        let check = |name: &str, expected: Option<&str>| {
            let got = pod(name);
            assert_eq!(got.as_ref().map(PodUid::as_str), expected, "{name}");
        };
        check("pod1234-ab", Some("1234-ab"));
        check("kubepods-burstable-pod1234_ab.slice", Some("1234-ab"));
        check("kubepods-pod1234_ab.slice", Some("1234-ab"));
        check("kubepods-burstable.slice", None);
        check("pod", None);
        check("burstable", None);
        assert!(is_class("burstable") && is_class("kubepods-besteffort.slice"));
        assert!(!is_class("pod1") && !is_class("kubepods.slice"));
        let id = "a".repeat(64);
        let check = |name: String, expected: bool| {
            let got = container(&name);
            assert_eq!(got.is_some_and(|got| got.as_str() == id), expected, "{name}");
        };
        check(id.clone(), true);
        check(format!("cri-containerd-{id}.scope"), true);
        check(format!("crio-{id}.scope"), true);
        check(format!("crio-conmon-{id}.scope"), false);
        check("something".to_owned(), false);
    }
}

//! How files and directories of pods are called. Pure.

use ferrolet_ports::StoredPod;
use ferrolet_types::{ContainerId, PodKey, PodUid};

/// The longest name a directory takes.
const LONGEST: usize = 255;
const SUFFIX: &str = ".log";

/// `<namespace>_<name>_<uid>`: the directory of a pod's logs.
pub fn log_directory_name(key: &PodKey, uid: &PodUid) -> String {
    format!("{}_{}_{uid}", key.namespace, key.name)
}

/// `<pod>_<namespace>_<container>-<id>.log`, cut to what a directory takes: the link that log
/// collectors look for.
pub fn link_name(key: &PodKey, container: &str, id: &ContainerId) -> String {
    let mut name = format!("{}_{}_{container}-{id}", key.name, key.namespace);
    let mut end = name.len().min(LONGEST - SUFFIX.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name + SUFFIX
}

/// Reads a log directory's name back; an old one is a bare uid.
pub(super) fn stored_pod(directory: &str) -> StoredPod {
    let parts: Vec<&str> = directory.split('_').collect();
    match parts[..] {
        [namespace, name, uid] => {
            StoredPod { uid: PodUid::from(uid), key: Some(PodKey::new(namespace, name)) }
        }
        _ => StoredPod { uid: PodUid::from(parts.last().copied().unwrap_or(directory)), key: None },
    }
}

/// The restart count in `<count>.log` and in its rotated forms `<count>.log.<time>`.
pub(super) fn restart_count(file: &str) -> Option<u32> {
    let (count, rest) = file.split_once('.')?;
    if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let is_log = rest == "log" || rest.starts_with("log.");
    is_log.then(|| count.parse().ok())?
}

/// Whether a file is the log or one of its rotated forms.
pub(super) fn belongs_to_log(file: &str, log: &str) -> bool {
    file.strip_prefix(log).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_counts_are_read_from_log_names() {
        let check =
            |name: &str, count: Option<u32>| assert_eq!(restart_count(name), count, "{name}");
        check("0.log", Some(0));
        check("12.log", Some(12));
        check("12.log.20260102-030405", Some(12));
        check("12.log.20260102-030405.gz", Some(12));
        check("x.log", None);
        check(".log", None);
        check("1.logs", None);
        check("1", None);
        check("+1.log", None);
        check("99999999999.log", None);
    }

    #[test]
    fn links_are_named_for_collectors_and_fit_a_directory() {
        let key = PodKey::new("ns", "pod");
        let id = ContainerId::from("abc123");
        assert_eq!(link_name(&key, "main", &id), "pod_ns_main-abc123.log");
        let long = PodKey::new("ns", "p".repeat(253));
        let name = link_name(&long, "main", &id);
        assert_eq!(name.len(), 255);
        assert!(name.ends_with(".log"));
    }

    #[test]
    fn log_directories_tell_whose_they_are() {
        let key = PodKey::new("ns", "pod");
        let uid = PodUid::from("u-1");
        let stored = stored_pod(&log_directory_name(&key, &uid));
        assert_eq!(stored.uid, uid);
        assert_eq!(stored.key, Some(key));
        let old = stored_pod("u-2");
        assert_eq!((old.uid, old.key), (PodUid::from("u-2"), None));
    }

    #[test]
    fn rotated_logs_belong_to_their_log() {
        assert!(belongs_to_log("1.log", "1.log"));
        assert!(belongs_to_log("1.log.20260102-030405.gz", "1.log"));
        assert!(!belongs_to_log("11.log", "1.log"));
        assert!(!belongs_to_log("1.logger", "1.log"));
    }
}

//! Takes out of texts and statuses what differs from run to run: ids, addresses, times, the names
//! of the run.
//!
//! | in the world | in an answer |
//! | --- | --- |
//! | a UID, also one of a static pod | `UID` |
//! | a container's or image's 64 digits | `ID` |
//! | addresses of pods and of the node | `POD_IP`, `NODE_IP` |
//! | the node's, the namespace's name | `NODE`, `NAMESPACE` |
//! | directories and cgroups of the run | `ROOT`, nothing |
//! | `back-off 20s`, `used: 300` | `back-off DURATION`, `used: N` |
//!
//! Pure. It refuses to guess: what it does not know stays, and shows up as a difference.

use serde_json::Value;

/// What belongs to one run of one case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub(crate) node: String,
    pub(crate) node_ip: String,
    pub(crate) namespace: String,
    /// How pod addresses begin, with the last dot.
    pub(crate) pod_network: String,
    /// Texts that are replaced as they are, such as directories, with their words; longest first.
    pub(crate) places: Vec<(String, String)>,
}

/// Fields that are times or ids and nothing else.
const DROPPED: [&str; 6] =
    ["startTime", "startedAt", "finishedAt", "lastTransitionTime", "lastProbeTime", "containerID"];
/// What the kernel of cgroup v1 says for "no limit"; upstream reports it as the pod's limit, now
/// and then.
const NO_LIMIT: &str = "9007199254740988Ki";

impl Names {
    /// A text without what belongs to the run.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let run = [(&self.namespace, "NAMESPACE"), (&self.node, "NODE")];
        for (from, to) in &self.places {
            text = text.replace(from.as_str(), to);
        }
        for (from, to) in run.into_iter().filter(|(from, _)| !from.is_empty()) {
            text = text.replace(from.as_str(), to);
        }
        let text = self.addresses(&ids(&text));
        let text = numbers_after(&text, "back-off ", "DURATION");
        let text = numbers_after(&text, "used: ", "N");
        let text = numbers_after(&text, "capacity: ", "N");
        volume_of_the_token(&text)
    }

    /// A status without what belongs to the run.
    pub(crate) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(all) => all.iter().map(|it| self.value(it)).collect(),
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(key, value)| {
                    !DROPPED.contains(&key.as_str()) && **value != NO_LIMIT && !value.is_null()
                });
                let kept = kept.map(|(key, value)| (key.clone(), self.value(value)));
                // Limits that held nothing but "no limit" are no limits.
                let kept = kept.filter(|(key, value)| {
                    key != "limits" || value.as_object().is_none_or(|it| !it.is_empty())
                });
                Value::Object(kept.collect())
            }
            other => other.clone(),
        }
    }

    fn addresses(&self, text: &str) -> String {
        let is_part = |it: char| it.is_ascii_digit() || it == '.';
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|it: char| it.is_ascii_digit()) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|it| !is_part(it)).unwrap_or(from.len());
            let (word, after) = from.split_at(end);
            let address = word.trim_end_matches('.');
            out.push_str(before);
            if address.split('.').count() != 4 {
                out.push_str(word);
            } else if address == self.node_ip {
                out.push_str(&word.replace(address, "NODE_IP"));
            } else if !self.pod_network.is_empty() && address.starts_with(&self.pod_network) {
                out.push_str(&word.replace(address, "POD_IP"));
            } else {
                out.push_str(word);
            }
            rest = after;
        }
        out + rest
    }
}

/// UIDs and the 64 digits of images, containers and sandboxes.
fn ids(text: &str) -> String {
    let bytes = text.as_bytes();
    let is_hex = |index: usize| {
        let byte = bytes.get(index);
        byte.is_some_and(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(it))
    };
    let is_run = |from: usize, n: usize| (from..from + n).all(is_hex);
    let mut out = String::new();
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        let found = if is_run(at, 64) && !is_hex(at + 64) {
            Some((64, "ID"))
        } else if is_uid(bytes, at, is_run) {
            Some((36, "UID"))
        } else if is_run(at, 32) && !is_hex(at + 32) && (at == 0 || !is_hex(at - 1)) {
            Some((32, "UID"))
        } else {
            None
        };
        match found {
            Some((n, word)) => {
                out.push_str(&text[copied..at]);
                out.push_str(word);
                at += n;
                copied = at;
            }
            None => at += 1,
        }
    }
    out + &text[copied..]
}

fn is_uid(bytes: &[u8], at: usize, is_run: impl Fn(usize, usize) -> bool) -> bool {
    let hyphens = [8, 13, 18, 23].map(|it| at + it);
    hyphens.iter().all(|it| bytes.get(*it) == Some(&b'-'))
        && [(0, 8), (9, 4), (14, 4), (19, 4), (24, 12)]
            .iter()
            .all(|(from, n)| is_run(at + from, *n))
}

/// Replaces a number, or a duration like `1m20s`, that follows a word.
fn numbers_after(text: &str, word: &str, replacement: &str) -> String {
    let mut parts = text.split(word);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(word);
        let end = part
            .find(|it: char| !it.is_ascii_digit() && !matches!(it, 'h' | 'm' | 's' | '.'))
            .unwrap_or(part.len());
        if part.starts_with(|it: char| it.is_ascii_digit()) {
            out.push_str(replacement);
            out.push_str(&part[end..]);
        } else {
            out.push_str(part);
        }
    }
    out
}

/// The volume that the API server adds has five random letters.
fn volume_of_the_token(text: &str) -> String {
    const VOLUME: &str = "kube-api-access-";
    let mut parts = text.split(VOLUME);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(VOLUME);
        match part.get(5..) {
            Some(rest) => {
                out.push('X');
                out.push_str(rest);
            }
            None => out.push_str(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names() -> Names {
        Names {
            node: "diff-ours".to_owned(),
            node_ip: "10.7.255.2".to_owned(),
            namespace: "o-crash".to_owned(),
            pod_network: "10.7.0.".to_owned(),
            places: vec![("/tmp/x/root".to_owned(), "ROOT".to_owned())],
        }
    }

    #[test]
    fn what_belongs_to_a_run_becomes_a_word() {
        let long = "0123456789abcdef".repeat(4);
        let cases = [
            (
                "back-off 1m20s restarting failed container=c pod=p_o-crash(1234abcd-12ab-34cd-56ef-1234567890ab)".to_owned(),
                "back-off DURATION restarting failed container=c pod=p_NAMESPACE(UID)",
            ),
            (format!("sha256:{long}"), "sha256:ID"),
            (format!("/kubepods/poddeadbeef-12ab-34cd-56ef-1234567890ab/{long}"), "/kubepods/podUID/ID"),
            ("pod 0123456789abcdef0123456789abcdef".to_owned(), "pod UID"),
            (
                "Get \"http://10.7.0.12:8080/\": dial tcp 10.7.255.2:1, not 10.1.2.3.".to_owned(),
                "Get \"http://POD_IP:8080/\": dial tcp NODE_IP:1, not 10.1.2.3.",
            ),
            ("requested: 1000000, used: 300, capacity: 2000".to_owned(), "requested: 1000000, used: N, capacity: N"),
            ("kube-api-access-4xk2p".to_owned(), "kube-api-access-X"),
            ("s-diff-ours in /tmp/x/root/pods".to_owned(), "s-NODE in ROOT/pods"),
            ("exit 3, version 1.37.1".to_owned(), "exit 3, version 1.37.1"),
        ];
        for (text, expected) in cases {
            assert_eq!(names().text(&text), expected);
        }
    }

    #[test]
    fn a_status_loses_times_ids_and_the_kernels_word_for_no_limit() {
        let status = json!({
            "startTime": "2026-01-01T00:00:00Z",
            "podIP": "10.7.0.3",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "resources": {"limits": {"memory": NO_LIMIT}},
            "containerStatuses": [{"containerID": "containerd://1", "name": "c", "resources": {"limits": {"cpu": "1"}}}],
        });
        assert_eq!(
            names().value(&status),
            json!({
                "podIP": "POD_IP",
                "state": {"running": {}},
                "resources": {},
                "containerStatuses": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}],
            })
        );
    }
}

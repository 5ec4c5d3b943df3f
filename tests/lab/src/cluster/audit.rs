//! What nodes asked of the API server, from its audit log.

use anyhow::{Context, Result};
use serde_json::Value;

/// One request of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// The path with its query.
    pub uri: String,
    /// The answer's status.
    pub code: u64,
    /// What the server said about a refusal.
    pub message: String,
    /// When it came, in seconds.
    pub at: f64,
}

/// The requests of one user, in the order of their answers; a watch has its line when it begins.
pub(super) fn parse(text: &str, user: &str) -> Result<Vec<Asked>> {
    let mut asked = Vec::new();
    for line in text.lines().filter(|line| line.contains(user)) {
        let Ok(entry) = serde_json::from_str::<Value>(line) else {
            // The last line may be half written.
            continue;
        };
        if entry["user"]["username"] != user {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let at = text(&entry["requestReceivedTimestamp"]);
        let at: jiff::Timestamp = at.parse().with_context(|| format!("time {at:?}"))?;
        asked.push(Asked {
            verb: text(&entry["verb"]),
            uri: text(&entry["requestURI"]),
            code: entry["responseStatus"]["code"].as_u64().unwrap_or(0),
            message: text(&entry["responseStatus"]["message"]),
            at: at.as_duration().as_secs_f64(),
        });
    }
    Ok(asked)
}

/// A refusal that is taken back within this time, in seconds, was an early one: the server's node
/// authorizer learns of a pod from a watch of its own, at about the time when the node does.
const EARLY: f64 = 5.0;

/// Refusals that were not taken back at once: what a node asked for although it may not have it.
pub(super) fn lasting_refusals(asked: &[Asked]) -> Vec<&Asked> {
    let is_taken_back = |refused: &Asked| {
        asked.iter().any(|other| {
            let after = other.at - refused.at;
            (200..300).contains(&other.code)
                && (0.0..EARLY).contains(&after)
                && subject(&other.uri) == subject(&refused.uri)
        })
    };
    let refused = asked.iter().filter(|it| it.code == 403);
    refused.filter(|it| !is_taken_back(it)).collect()
}

/// What a request is about: its path, and the one name that a watch or list is limited to.
fn subject(uri: &str) -> (&str, Option<&str>) {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let limit = query.split('&').find(|it| it.starts_with("fieldSelector="));
    (path, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_that_last_count() {
        let asked = |uri: &str, code: u64, at: f64| Asked {
            verb: "list".to_owned(),
            uri: uri.to_owned(),
            code,
            message: String::new(),
            at,
        };
        let watched = "/s?fieldSelector=metadata.name%3Da&resourceVersion=";
        let all = [
            asked(&format!("{watched}0"), 403, 1.0),
            asked("/s?fieldSelector=metadata.name%3Db", 403, 1.0),
            asked("/t", 403, 1.0),
            asked("/u", 403, 1.0),
            asked(&format!("{watched}7"), 200, 1.2),
            asked("/t", 201, 9.0),
        ];
        let left: Vec<&str> = lasting_refusals(&all).iter().map(|it| it.uri.as_str()).collect();
        assert_eq!(left, ["/s?fieldSelector=metadata.name%3Db", "/t", "/u"]);
    }

    #[test]
    fn only_whole_lines_of_the_user_count() {
        let line = |user: &str| {
            format!(
                r#"{{"user":{{"username":"{user}"}},"verb":"get","requestURI":"/x","requestReceivedTimestamp":"1970-01-01T00:00:01.500000Z","responseStatus":{{"code":403,"message":"no"}}}}"#
            )
        };
        let text = format!("{}\n{}\n{}", line("a"), line("b"), &line("a")[..30]);
        let expected = Asked {
            verb: "get".to_owned(),
            uri: "/x".to_owned(),
            code: 403,
            message: "no".to_owned(),
            at: 1.5,
        };
        assert_eq!(parse(&text, "a").unwrap(), [expected]);
    }
}

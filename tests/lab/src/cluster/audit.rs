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

#[cfg(test)]
mod tests {
    use super::*;

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

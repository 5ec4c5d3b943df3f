//! From an answer that says no to a typed error. Pure.

use std::time::Duration;

use ferrolet_ports::{ApiError, ApiErrorKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

/// The longest that a server can ask us to stay away. A number without bound, from a server or from
/// whatever stands before it, would silence the node for good.
const LONGEST_STAY_AWAY: Duration = Duration::from_secs(5 * 60);

/// The error for an answer with this status code and body.
pub(crate) fn refusal(
    attempt: String,
    code: u16,
    retry_after: Option<Duration>,
    body: &[u8],
) -> ApiError {
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if status.status.is_some() || status.reason.is_some() => {
            from_status(attempt, Some(code), retry_after, &status)
        }
        _ => ApiError {
            attempt,
            kind: kind_of(code, None, retry_after),
            message: plain_message(code, body),
            code: Some(code),
            causes: Vec::new(),
        },
    }
}

/// The error for a `Status`, be it an answer's body or an ERROR inside a watch.
pub(crate) fn from_status(
    attempt: String,
    code: Option<u16>,
    retry_after: Option<Duration>,
    status: &Status,
) -> ApiError {
    let code = code.or_else(|| status.code.and_then(|code| u16::try_from(code).ok()));
    let details = status.details.as_ref();
    let retry_after = retry_after.or_else(|| {
        let secs = details?.retry_after_seconds?;
        u64::try_from(secs).ok().map(Duration::from_secs)
    });
    let causes = details.and_then(|details| details.causes.as_ref());
    ApiError {
        attempt,
        kind: kind_of(code.unwrap_or(500), status.reason.as_deref(), retry_after),
        message: status
            .message
            .clone()
            .filter(|message| !message.is_empty())
            .unwrap_or_else(|| "the server gave no reason".to_owned()),
        code,
        causes: causes
            .into_iter()
            .flatten()
            .map(|cause| {
                let parts = [&cause.field, &cause.reason, &cause.message];
                let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
                parts.join(": ")
            })
            .collect(),
    }
}

/// The server's reason says more than the code; the code stands in when there is none.
fn kind_of(code: u16, reason: Option<&str>, retry_after: Option<Duration>) -> ApiErrorKind {
    use ApiErrorKind as Kind;
    let retry_after = retry_after.map(|span| span.min(LONGEST_STAY_AWAY));
    match (reason, code) {
        (Some("NotFound"), _) => Kind::NotFound,
        (Some("AlreadyExists"), _) => Kind::AlreadyExists,
        (Some("Conflict"), _) => Kind::Conflict,
        (Some("Unauthorized"), _) => Kind::Unauthorized,
        (Some("Forbidden"), _) => Kind::Forbidden,
        (Some("Invalid"), _) => Kind::Invalid,
        (Some("BadRequest"), _) => Kind::BadRequest,
        (Some("Gone" | "Expired"), _) => Kind::Gone,
        (Some("TooManyRequests"), _) => Kind::TooManyRequests { retry_after },
        (Some("Timeout" | "ServerTimeout"), _) => Kind::Timeout,
        (Some("ServiceUnavailable"), _) => Kind::Unavailable,
        (_, 400) => Kind::BadRequest,
        (_, 401) => Kind::Unauthorized,
        (_, 403) => Kind::Forbidden,
        (_, 404) => Kind::NotFound,
        (_, 409) => Kind::Conflict,
        (_, 410) => Kind::Gone,
        (_, 422) => Kind::Invalid,
        (_, 429) => Kind::TooManyRequests { retry_after },
        (_, 408 | 504) => Kind::Timeout,
        (_, 502 | 503) => Kind::Unavailable,
        (_, 400..500) => Kind::BadRequest,
        _ => Kind::Server,
    }
}

/// What to say about a body that is not a `Status`: its first line, cut short.
fn plain_message(code: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(512)]);
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() { format!("status {code}") } else { format!("status {code}: {line}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_say_no_become_typed_errors() {
        let check = |code: u16, body: &str, kind: ApiErrorKind, message: &str| {
            let error = refusal("GET /x".to_owned(), code, None, body.as_bytes());
            assert_eq!((error.kind, error.message.as_str()), (kind, message));
            assert_eq!(error.code, Some(code));
        };
        let status = |reason: &str| {
            format!(r#"{{"kind":"Status","status":"Failure","message":"m","reason":"{reason}"}}"#)
        };
        use ApiErrorKind as Kind;
        check(404, &status("NotFound"), Kind::NotFound, "m");
        check(409, &status("AlreadyExists"), Kind::AlreadyExists, "m");
        check(409, &status("Conflict"), Kind::Conflict, "m");
        check(410, &status("Expired"), Kind::Gone, "m");
        check(500, &status("ServerTimeout"), Kind::Timeout, "m");
        check(422, &status("Invalid"), Kind::Invalid, "m");
        check(502, "bad gateway\nmore", Kind::Unavailable, "status 502: bad gateway");
        check(401, "", Kind::Unauthorized, "status 401");
        check(418, "", Kind::BadRequest, "status 418");
        check(500, "{}", Kind::Server, "status 500: {}");
    }

    #[test]
    fn a_busy_server_says_when_to_come_back() {
        let body =
            r#"{"status":"Failure","reason":"TooManyRequests","details":{"retryAfterSeconds":7}}"#;
        let error = refusal("GET /x".to_owned(), 429, None, body.as_bytes());
        let retry_after = Some(Duration::from_secs(7));
        assert_eq!(error.kind, ApiErrorKind::TooManyRequests { retry_after });
        let error = refusal("GET /x".to_owned(), 429, Some(Duration::from_secs(1)), b"");
        let retry_after = Some(Duration::from_secs(1));
        assert_eq!(error.kind, ApiErrorKind::TooManyRequests { retry_after });
    }

    #[test]
    fn a_server_cannot_send_us_away_for_ever() {
        let longest = ApiErrorKind::TooManyRequests { retry_after: Some(LONGEST_STAY_AWAY) };
        let error = refusal("GET /x".to_owned(), 429, Some(Duration::from_secs(u64::MAX)), b"");
        assert_eq!(error.kind, longest);
        let body = r#"{"status":"Failure","reason":"TooManyRequests",
            "details":{"retryAfterSeconds":2147483647}}"#;
        let error = refusal("GET /x".to_owned(), 429, None, body.as_bytes());
        assert_eq!(error.kind, longest);
    }

    #[test]
    fn causes_are_kept_in_the_servers_words() {
        let body = r#"{"status":"Failure","reason":"Invalid","message":"no","details":{"causes":[
            {"field":"spec.x","reason":"FieldValueInvalid","message":"bad"},{"message":"only this"}]}}"#;
        let error = refusal("POST /x".to_owned(), 422, None, body.as_bytes());
        assert_eq!(error.causes, ["spec.x: FieldValueInvalid: bad", "only this"]);
    }
}

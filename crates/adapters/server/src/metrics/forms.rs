//! The form in which figures are sent: text, or protobuf for those who prefer it, all families or those that are named, and compressed for
//! those who ask for that.
//!
//! As upstream's endpoints choose it: by `Accept`, in which anything unknown means text, by `name[]` in the query, and by `Accept-Encoding`.
//! Like upstream's, answers say when the process began, so that whoever scrapes knows when counters did. Stands around the
//! handlers, which all write text; whoever asks for nothing else pays a look at three headers.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ferrolet_types::Timestamp;

use super::protobuf;
use super::squeezed::squeezed;
use crate::accept::{accepted, accepts_gzip};
use crate::query::{pairs_of, values};

pub(super) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PROTOBUF: &str = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                        encoding=delimited";
/// No text of ours is longer.
const LONGEST: usize = 1 << 30;
const BEGAN: &str = "process-start-time-unix";

/// When counting began, in seconds since the epoch.
#[derive(Clone)]
pub(crate) struct Began(HeaderValue);

impl Began {
    pub(crate) fn at(moment: Timestamp) -> Self {
        Self(HeaderValue::from(moment.0.as_second()))
    }
}

/// Answers in the form that is asked for.
pub(crate) async fn as_asked(State(began): State<Began>, request: Request, next: Next) -> Response {
    let wants_messages = prefers_protobuf(request.headers());
    let wants_less = accepts_gzip(request.headers());
    let pairs = request.uri().query().map(pairs_of).unwrap_or_default();
    let mut answer = next.run(request).await;
    let names: Vec<&str> = values(&pairs, "name[]").collect();
    let is_text = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind == TEXT);
    if !is_text {
        return answer;
    }
    answer.headers_mut().insert(BEGAN, began.0);
    if !wants_messages && !wants_less && names.is_empty() {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let Ok(mut said) = to_bytes(body, LONGEST).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    parts.headers.remove(CONTENT_LENGTH);
    if wants_messages || !names.is_empty() {
        let Ok(mut text) = String::from_utf8(said.into()) else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        if !names.is_empty() {
            text = only(&text, &names);
        }
        if wants_messages {
            let kind = HeaderValue::from_static(PROTOBUF);
            parts.headers.insert(CONTENT_TYPE, kind);
            said = Bytes::from(protobuf::families(&text));
        } else {
            said = Bytes::from(text);
        }
    }
    let body = if wants_less {
        let gzip = HeaderValue::from_static("gzip");
        parts.headers.insert(CONTENT_ENCODING, gzip);
        squeezed(said)
    } else {
        Body::from(said)
    };
    Response::from_parts(parts, body)
}

/// True when messages are the first of the two forms that the client accepts.
fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let choices = accepted(headers).into_iter().filter_map(|clause| {
        let messages = [Some("io.prometheus.client.MetricFamily"), Some("delimited")];
        match clause.media {
            "application/vnd.google.protobuf" => {
                let is_ours = [clause.value("proto"), clause.value("encoding")] == messages;
                is_ours.then_some(true)
            }
            "text/plain" => {
                let is_ours = matches!(clause.value("version"), None | Some("0.0.4"));
                is_ours.then_some(false)
            }
            _ => None,
        }
    });
    choices.into_iter().next().unwrap_or(false)
}

/// The families of these names.
fn only(text: &str, names: &[&str]) -> String {
    let mut is_wanted = false;
    let mut kept = String::new();
    for line in text.split_inclusive('\n') {
        if let Some(head) = line.strip_prefix("# HELP ") {
            let name = head.split_whitespace().next().unwrap_or_default();
            is_wanted = names.contains(&name);
        }
        if is_wanted {
            kept.push_str(line);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use axum::http::header::ACCEPT;

    use super::*;

    #[test]
    fn messages_are_sent_only_to_those_who_like_them_better() {
        let messages = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accept, expected) in [
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            ("application/openmetrics-text;version=1.0.0", false),
            ("application/vnd.google.protobuf", false),
            (messages, true),
            (&messages.replace("delimited", "text"), false),
            (
                &format!("{messages};q=0.5,text/plain;version=0.0.4;q=0.9"),
                false,
            ),
            (
                &format!("{messages};q=0.9,text/plain;version=0.0.4;q=0.5"),
                true,
            ),
            // Of a version that there is not.
            (&format!("text/plain;version=1.0.0,{messages};q=0.5"), true),
            // What a Prometheus sends that looks for histograms of the newer kind.
            (
                &format!(
                    "{messages},application/openmetrics-text;version=1.0.0;q=0.8,\
                     application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
                ),
                true,
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(prefers_protobuf(&headers), expected, "{accept}");
        }
        assert!(!prefers_protobuf(&HeaderMap::new()));
    }

    #[test]
    fn families_are_chosen_by_their_whole_names() {
        let text =
            "# HELP a A\n# TYPE a gauge\na 1\n# HELP ab B\n# TYPE ab gauge\nab 2\nab{x=\"1\"} 3\n";
        let check = |names: &[&str], expected: &str| assert_eq!(only(text, names), expected);
        check(&["a"], "# HELP a A\n# TYPE a gauge\na 1\n");
        check(&["ab"], &text[text.find("# HELP ab").unwrap()..]);
        check(&["a", "ab", "c"], text);
        check(&["b"], "");
    }
}

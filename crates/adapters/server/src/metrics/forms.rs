//! The form in which figures are sent: text, or protobuf for those who prefer it, all families or
//! those that are named, and compressed for those who ask for that.
//!
//! As upstream's endpoints choose it: by `Accept`, in which anything unknown means text, by
//! `name[]` in the query, and by `Accept-Encoding`. Like upstream's, answers say when the process
//! began, so that whoever scrapes knows when counters did. Stands around the handlers, which all
//! write text; whoever asks for nothing else pays a look at three headers.

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

pub(super) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
/// Names of ours are the same in all of these.
const ESCAPINGS: [&str; 4] = ["allow-utf-8", "underscores", "dots", "values"];
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
    let wanted = Wanted::of(request.headers());
    let wants_messages = wanted.form == Form::Messages;
    let wants_less = accepts_gzip(request.headers());
    let pairs = request.uri().query().map(pairs_of).unwrap_or_default();
    let mut answer = next.run(request).await;
    let names: Vec<&str> = values(&pairs, "name[]").collect();
    let is_text = answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == TEXT);
    if !is_text {
        return answer;
    }
    answer.headers_mut().insert(BEGAN, began.0);
    if wanted != Wanted::USUAL {
        let kind = wanted.content_type();
        answer.headers_mut().insert(CONTENT_TYPE, kind);
    }
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

/// A form of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Messages,
}

/// What a client likes best of what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    form: Form,
    /// What becomes of names that older readers do not know. Ours are known to all, but who asks is
    /// told that it was heard.
    escaping: &'static str,
}

impl Wanted {
    const USUAL: Self = Self { form: Form::Text, escaping: "underscores" };

    /// The first form that the client accepts, with the last escaping that it names up to there.
    fn of(headers: &HeaderMap) -> Self {
        let mut wanted = Self::USUAL;
        for clause in accepted(headers) {
            let named = clause.value("escaping");
            let named = ESCAPINGS.into_iter().find(|it| Some(*it) == named);
            wanted.escaping = named.unwrap_or(wanted.escaping);
            let form = match clause.media {
                "application/vnd.google.protobuf" => {
                    let messages = [Some("io.prometheus.client.MetricFamily"), Some("delimited")];
                    let is_ours = [clause.value("proto"), clause.value("encoding")] == messages;
                    is_ours.then_some(Form::Messages)
                }
                "text/plain" => {
                    let is_ours = matches!(clause.value("version"), None | Some("0.0.4"));
                    is_ours.then_some(Form::Text)
                }
                _ => None,
            };
            if let Some(form) = form {
                wanted.form = form;
                break;
            }
        }
        wanted
    }

    fn content_type(self) -> HeaderValue {
        let kind = match self.form {
            Form::Text => "text/plain; version=0.0.4; charset=utf-8",
            Form::Messages => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        };
        let kind = format!("{kind}; escaping={}", self.escaping);
        HeaderValue::try_from(kind).expect("all of these words are plain")
    }
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
            (&format!("{messages};q=0.5,text/plain;version=0.0.4;q=0.9"), false),
            (&format!("{messages};q=0.9,text/plain;version=0.0.4;q=0.5"), true),
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
            let form = Wanted::of(&headers).form;
            assert_eq!(form == Form::Messages, expected, "{accept}");
        }
        assert_eq!(Wanted::of(&HeaderMap::new()), Wanted::USUAL);
        assert_eq!(Wanted::USUAL.content_type(), TEXT);
    }

    #[test]
    fn who_names_an_escaping_is_told_that_it_was_heard() {
        for (accept, expected) in [
            ("text/plain;version=0.0.4;escaping=values", "values"),
            // Named with a form that there is not.
            ("application/openmetrics-text;escaping=allow-utf-8", "allow-utf-8"),
            ("text/plain;version=1.0.0;escaping=dots,text/plain;q=0.5", "dots"),
            // Too late.
            ("text/plain,text/plain;escaping=dots;q=0.5", "underscores"),
            ("text/plain;escaping=stars", "underscores"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(Wanted::of(&headers).escaping, expected, "{accept}");
        }
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

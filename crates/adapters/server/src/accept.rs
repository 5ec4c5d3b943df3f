//! What a client accepts, as its `Accept` and `Accept-Encoding` headers say.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::routes::text;

/// One media type, or encoding, with what follows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Clause<'a> {
    pub(crate) media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q");
        let quality = quality.and_then(|(_, value)| value.parse().ok());
        Self { media, quality: quality.unwrap_or(1.0), parameters }
    }

    /// The first value of this name.
    pub(crate) fn value(&self, name: &str) -> Option<&'a str> {
        let mut found = self.parameters.iter().filter(|(it, _)| *it == name);
        found.next().map(|(_, value)| *value)
    }
}

/// Everything the client accepts, best first; nothing when it does not say.
pub(crate) fn accepted(headers: &HeaderMap) -> Vec<Clause<'_>> {
    clauses(headers, header::ACCEPT)
}

/// True when the client likes a compressed answer at least as well as a plain one, and says so.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let best = clauses(headers, header::ACCEPT_ENCODING)
        .into_iter()
        .find(|it| ["gzip", "identity", "*"].contains(&it.media));
    // Who takes anything takes it plain.
    best.is_some_and(|it| it.media == "gzip" && it.quality > 0.0)
}

/// True when the client takes JSON, or does not say what it takes. As upstream reads it:
/// `application/*` does not mean it.
fn takes_json(headers: &HeaderMap) -> bool {
    let accepted = accepted(headers);
    let is_json = |it: &Clause<'_>| ["*/*", "application/json"].contains(&it.media);
    accepted.is_empty() || accepted.iter().any(is_json)
}

/// Stands before what is told in JSON and not otherwise.
pub(crate) async fn only_json(request: Request, next: Next) -> Response {
    if takes_json(request.headers()) {
        return next.run(request).await;
    }
    let words = "406: Not Acceptable\n\nAvailable representations: application/json";
    text(StatusCode::NOT_ACCEPTABLE, words.to_owned())
}

fn clauses(headers: &HeaderMap, name: HeaderName) -> Vec<Clause<'_>> {
    let accept = headers.get(name);
    let accept = accept.and_then(|it| it.to_str().ok()).unwrap_or_default();
    if accept.trim().is_empty() {
        return Vec::new();
    }
    let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::read).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compressed_for_those_who_ask_for_it() {
        assert!(!accepts_gzip(&HeaderMap::new()));
        for (accept, expected) in [
            // What Prometheus and curl send.
            ("gzip", true),
            ("deflate, gzip, br, zstd", true),
            ("gzip;q=0.5, deflate", true),
            ("", false),
            ("*", false),
            ("identity", false),
            ("identity, gzip", false),
            ("identity;q=0.5, gzip", true),
            ("gzip;q=0", false),
            ("zstd", false),
            ("gzipped", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
            assert_eq!(accepts_gzip(&headers), expected, "{accept}");
        }
    }

    #[test]
    fn json_is_for_those_who_take_it() {
        assert!(takes_json(&HeaderMap::new()));
        for (accept, expected) in [
            ("", true),
            ("*/*", true),
            ("application/json", true),
            ("application/json;as=Table", true),
            ("text/html, */*;q=0.1", true),
            ("text/html", false),
            ("application/*", false),
            ("application/yaml, application/cbor", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(takes_json(&headers), expected, "{accept}");
        }
    }

    #[test]
    fn the_best_comes_first_and_equals_stay_in_order() {
        let check = |accept: &str, expected: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            let found: Vec<&str> = accepted(&headers).iter().map(|it| it.media).collect();
            assert_eq!(found, expected, "{accept}");
        };
        check("", &[]);
        check("a/b, c/d", &["a/b", "c/d"]);
        check("a/b;q=0.5, c/d;x=1; q=0.9 ,e/f", &["e/f", "c/d", "a/b"]);
        assert!(accepted(&HeaderMap::new()).is_empty());
        let clause = Clause::read("a/b; v=1;v=2;w");
        assert_eq!((clause.value("v"), clause.value("w")), (Some("1"), None));
    }
}

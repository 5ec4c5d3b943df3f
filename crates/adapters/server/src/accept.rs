//! What a client accepts, as its `Accept` header says. Pure.

use axum::http::{HeaderMap, header};

/// One media type with what follows it.
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
        Self {
            media,
            quality: quality.unwrap_or(1.0),
            parameters,
        }
    }

    /// The first value of this name.
    pub(crate) fn value(&self, name: &str) -> Option<&'a str> {
        let mut found = self.parameters.iter().filter(|(it, _)| *it == name);
        found.next().map(|(_, value)| *value)
    }
}

/// Everything the client accepts, best first; nothing when it does not say.
pub(crate) fn accepted(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let accept = headers.get(header::ACCEPT);
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

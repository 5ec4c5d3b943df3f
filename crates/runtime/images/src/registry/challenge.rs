//! What a registry wants to be shown: `WWW-Authenticate`, read. Pure.

/// How a registry asks who somebody is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// A token from a service.
    Bearer {
        /// The service's address.
        realm: String,
        /// For whom tokens are.
        service: String,
        /// What a token must allow.
        scope: String,
    },
}

/// The first challenge of a header that can be met.
pub(super) fn parse(header: &str) -> Option<Challenge> {
    let (scheme, mut rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service, mut scope) = (String::new(), String::new(), String::new());
    while let Some((name, value, after)) = parameter(rest) {
        match name.to_ascii_lowercase().as_str() {
            "realm" => realm = value,
            "service" => service = value,
            "scope" => scope = value,
            _ => {}
        }
        rest = after;
    }
    (!realm.is_empty()).then_some(Challenge::Bearer { realm, service, scope })
}

/// `name=value` or `name="value"`, and what follows its comma.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([' ', ',', '\t']);
    let (name, rest) = text.split_once('=')?;
    let rest = rest.trim_start();
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(',').unwrap_or(rest.len());
        return Some((name.trim(), rest[..end].trim().to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut is_escaped = false;
    for (i, c) in quoted.char_indices() {
        match c {
            _ if is_escaped => {
                value.push(c);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => return Some((name.trim(), value, &quoted[i + 1..])),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: &str, scope: &str| {
            Some(Challenge::Bearer {
                realm: realm.to_owned(),
                service: service.to_owned(),
                scope: scope.to_owned(),
            })
        };
        let docker = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/busybox:pull,push""#;
        assert_eq!(
            parse(docker),
            bearer(
                "https://auth.docker.io/token",
                "registry.docker.io",
                "repository:library/busybox:pull,push"
            )
        );
        assert_eq!(
            parse(r#"bearer  realm = "https://a/t" , service=b"#),
            bearer("https://a/t", "b", "")
        );
        assert_eq!(parse(r#"Bearer realm="a\"b""#), bearer("a\"b", "", ""));
        assert_eq!(parse("Basic realm=\"x\""), Some(Challenge::Basic));
        assert_eq!(parse("Negotiate"), None);
        assert_eq!(parse("Bearer realm=\"open"), None);
        assert_eq!(parse(""), None);
    }

    proptest! {
        #[test]
        fn any_header_is_a_challenge_or_none(text in "(Bearer )?.{0,80}") {
            let _ = parse(&text);
        }
    }
}

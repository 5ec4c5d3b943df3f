//! What the API calls a label, a subdomain and a qualified name, and what to say when a text is
//! none.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

/// Why a text is no RFC 1123 label; `None` when it is one.
pub(crate) fn label_fault(text: &str) -> Option<String> {
    if text.len() > LABEL_MAX {
        return Some(format!("must be no more than {LABEL_MAX} characters"));
    }
    if is_label(text) {
        return None;
    }
    if is_subdomain(text) {
        return Some("must not contain dots".to_owned());
    }
    Some(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
         and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
         regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            .to_owned(),
    )
}

/// Why a text is no RFC 1123 subdomain; `None` when it is one.
pub(crate) fn subdomain_fault(text: &str) -> Option<String> {
    if text.len() > SUBDOMAIN_MAX {
        return Some(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if is_subdomain(text) {
        return None;
    }
    Some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
         and must start and end with an alphanumeric character (e.g. 'example.com', \
         regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .to_owned(),
    )
}

/// Why a text is no key of a label; `None` when it is one.
pub fn qualified_name_fault(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if prefix == Some("") {
        return Some("prefix part must be non-empty".to_owned());
    }
    if let Some(fault) = prefix.and_then(subdomain_fault) {
        return Some(format!("prefix part {fault}"));
    }
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > LABEL_MAX {
        return Some(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = name.chars().all(is_inner)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    (!is_name).then(|| {
        "name part must consist of alphanumeric characters, '-', '_' or '.', \
         and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
         regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            .to_owned()
    })
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(|c| is_end(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_apis_rules() {
        let long = "a".repeat(64);
        for (text, is_label, is_subdomain, is_qualified) in [
            ("web-1", true, true, true),
            ("a.b", false, true, true),
            ("-a", false, false, false),
            ("A", false, false, true),
            ("example.com/My_Name", false, false, true),
            ("/x", false, false, false),
            ("a/", false, false, false),
            ("a/b/c", false, false, false),
            ("", false, false, false),
            (long.as_str(), false, true, false),
        ] {
            assert_eq!(label_fault(text).is_none(), is_label, "label {text}");
            assert_eq!(subdomain_fault(text).is_none(), is_subdomain, "subdomain {text}");
            assert_eq!(qualified_name_fault(text).is_none(), is_qualified, "key {text}");
        }
    }
}

//! The API's rules for names. Each function answers with the rule that the text breaks.

/// The rule that a name breaks; `Ok` when it breaks none.
pub(super) type Rule = Result<(), &'static str>;

const LABEL: &str = "must consist of lower case letters, digits and '-', start and end with a letter or digit, \
                     and have at most 63 characters";
const SUBDOMAIN: &str = "must consist of lower case letters, digits, '-' and '.', each part starting and ending with a \
                         letter or digit, and have at most 253 characters";

/// A DNS label: names of containers, volumes and hosts.
pub(super) fn label(text: &str) -> Rule {
    rule(text.len() <= 63 && is_label(text), LABEL)
}

/// A DNS subdomain: names of pods and nodes.
pub(super) fn subdomain(text: &str) -> Rule {
    rule(text.len() <= 253 && text.split('.').all(is_label), SUBDOMAIN)
}

/// A subdomain that may hold underscores: DNS search paths.
pub(super) fn search_path(text: &str) -> Rule {
    let plain = text.replace('_', "x");
    rule(plain.len() <= 253 && plain.split('.').all(is_label), SUBDOMAIN)
}

/// A name with an optional DNS prefix: keys of labels, annotations and tolerations, names of
/// resources.
pub(super) fn qualified(text: &str) -> Rule {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(prefix) = prefix {
        subdomain(prefix).map_err(|_| "must have a DNS name before the '/'")?;
    }
    rule(
        !name.is_empty() && is_word(name),
        "must consist of letters, digits, '-', '_' and '.', start and end with a letter or digit, and have at most 63 characters, \
         with a DNS name and '/' before it where wanted",
    )
}

/// The value of a label.
pub(super) fn label_value(text: &str) -> Rule {
    rule(
        text.is_empty() || is_word(text),
        "must be empty or consist of letters, digits, '-', '_' and '.', start and end with a letter or digit, and have at most \
         63 characters",
    )
}

/// The name of a port.
pub(super) fn port_name(text: &str) -> Rule {
    let is_known = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    rule(
        (1..=15).contains(&text.len())
            && is_known
            && text.bytes().any(|b| b.is_ascii_lowercase())
            && !text.contains("--")
            && !text.starts_with('-')
            && !text.ends_with('-'),
        "must be at most 15 lower case letters, digits and single '-', with at least one letter",
    )
}

/// The name of an environment variable.
pub(super) fn variable(text: &str) -> Rule {
    rule(
        text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'='),
        "must consist of printable ASCII characters other than '='",
    )
}

/// An IP address.
pub(super) fn address(text: &str) -> Rule {
    rule(text.parse::<std::net::IpAddr>().is_ok(), "must be an IP address")
}

/// The number of a port.
pub(super) fn port(number: i32) -> Rule {
    rule((1..=65535).contains(&number), "must be between 1 and 65535")
}

fn rule(holds: bool, text: &'static str) -> Rule {
    if holds { Ok(()) } else { Err(text) }
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_word(text: &str) -> bool {
    let ends_well = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && ends_well(text.bytes().next())
        && ends_well(text.bytes().last())
}

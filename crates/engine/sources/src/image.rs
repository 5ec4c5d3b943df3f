//! Image references, as far as defaults need them: is it well formed, and which tag does it name?
//!
//! Matches the grammar of `github.com/distribution/reference`. Resolving and pulling are the
//! runtime's.

/// The pull policy of an image whose author gave none: always for `latest`, named or implied;
/// otherwise, and for what is no reference at all, only when absent.
pub(crate) fn default_pull_policy(reference: &str) -> &'static str {
    match tag_of(reference) {
        Some(Tag::Implied) | Some(Tag::Named("latest")) => "Always",
        Some(Tag::Named(_) | Tag::Digest) | None => "IfNotPresent",
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Tag<'a> {
    Named(&'a str),
    /// No tag and no digest: `latest` is meant.
    Implied,
    /// A digest and no tag.
    Digest,
}

fn tag_of(reference: &str) -> Option<Tag<'_>> {
    // Sixty-four hexadecimal digits are an image id, not a name.
    if reference.len() == 64
        && reference.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        return None;
    }
    let (named, digest) = match reference.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (reference, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return None;
    }
    let last = named.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match named[last..].split_once(':') {
        Some((_, tag)) => (&named[..named.len() - tag.len() - 1], Some(tag)),
        None => (named, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) || !is_name(name) {
        return None;
    }
    Some(match (tag, digest) {
        (Some(tag), _) => Tag::Named(tag),
        (None, Some(_)) => Tag::Digest,
        (None, None) => Tag::Implied,
    })
}

fn is_name(name: &str) -> bool {
    let (domain, path) = match name.split_once('/') {
        // The first part is a registry only when it cannot be a directory.
        Some((first, rest)) if is_domain_like(first) => (Some(first), rest),
        _ => (None, name),
    };
    domain.is_none_or(is_domain) && path.len() <= 255 && path.split('/').all(is_path_component)
}

fn is_domain_like(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) => {
                let is_address = host.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
                return is_address && !host.is_empty() && (port.is_empty() || is_port(port));
            }
            None => return false,
        },
        None => match domain.find(':') {
            Some(colon) => domain.split_at(colon),
            None => (domain, ""),
        },
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(is_label) && (port.is_empty() || is_port(port))
}

fn is_port(port: &str) -> bool {
    let digits = port.strip_prefix(':').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Lower-case words, joined by one dot, one or two underscores, or any number of dashes.
fn is_path_component(component: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    if !is_word(*first) || !is_word(*last) {
        return false;
    }
    let separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    separators.filter(|separator| !separator.is_empty()).all(|separator| {
        matches!(separator, "." | "_" | "__") || separator.bytes().all(|b| b == b'-')
    })
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
        && tag.bytes().next().is_some_and(is_word)
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pull_policy_follows_the_tag() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let pinned = format!("busybox@{digest}");
        let pinned_latest = format!("registry:5000/a/b:latest@{digest}");
        let id = "0a".repeat(32);
        for (reference, policy) in [
            ("busybox", "Always"),
            ("busybox:latest", "Always"),
            ("busybox:1.36", "IfNotPresent"),
            ("registry.k8s.io/pause:3.10", "IfNotPresent"),
            ("localhost:5000/a/b", "Always"),
            ("localhost:5000/a/b:1", "IfNotPresent"),
            (&pinned, "IfNotPresent"),
            (&pinned_latest, "Always"),
            // No references at all.
            (&id, "IfNotPresent"),
            ("Busybox", "IfNotPresent"),
            ("a//b", "IfNotPresent"),
            ("a:", "IfNotPresent"),
            ("", "IfNotPresent"),
            ("a__b/c---d", "Always"),
            ("a___b", "IfNotPresent"),
        ] {
            assert_eq!(default_pull_policy(reference), policy, "{reference}");
        }
    }
}

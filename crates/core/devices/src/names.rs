//! Which names a plugin may offer its devices under.

use ferrolet_types::is_native_resource;

const LONGEST_DOMAIN: usize = 253;
const LONGEST_PART: usize = 63;
/// Quotas name extended resources with this word in front, and must be able to.
const QUOTA_PREFIX: &str = "requests.";

/// True for `vendor.example/device`: a domain that is not Kubernetes' own and a name, both as the
/// API takes them.
pub fn is_extended_resource(name: &str) -> bool {
    if is_native_resource(name) || name.starts_with(QUOTA_PREFIX) {
        return false;
    }
    let Some((domain, part)) = name.split_once('/') else {
        return false;
    };
    is_domain(domain, LONGEST_DOMAIN - QUOTA_PREFIX.len()) && is_qualified_part(part)
}

fn is_domain(text: &str, longest: usize) -> bool {
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let is_inner = |it: &u8| it.is_ascii_lowercase() || it.is_ascii_digit() || *it == b'-';
        has_plain_ends(bytes, |it| it.is_ascii_lowercase() || it.is_ascii_digit())
            && bytes.iter().all(is_inner)
    };
    text.len() <= longest && text.split('.').all(is_label)
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_inner = |it: &u8| it.is_ascii_alphanumeric() || b"-_.".contains(it);
    bytes.len() <= LONGEST_PART
        && has_plain_ends(bytes, |it| it.is_ascii_alphanumeric())
        && bytes.iter().all(is_inner)
}

fn has_plain_ends(bytes: &[u8], is_plain: impl Fn(u8) -> bool) -> bool {
    bytes.first().is_some_and(|it| is_plain(*it)) && bytes.last().is_some_and(|it| is_plain(*it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_of_a_plugin_has_a_domain_of_its_own() {
        for good in ["nvidia.com/gpu", "a/B_c.d-1", "example.com/resource", "x.y-z/0"] {
            assert!(is_extended_resource(good), "{good}");
        }
        let long = format!("{}/gpu", "a".repeat(245));
        let long_part = format!("a/{}", "b".repeat(64));
        for bad in [
            "",
            "gpu",
            "/gpu",
            "a/",
            "kubernetes.io/gpu",
            "node.kubernetes.io/x",
            "requests.a/b",
            "A.com/x",
            "a..b/x",
            "-a/x",
            "a/x/y",
            "a/-x",
            "a/x ",
            "a b/x",
            long.as_str(),
            long_part.as_str(),
        ] {
            assert!(!is_extended_resource(bad), "{bad}");
        }
    }
}

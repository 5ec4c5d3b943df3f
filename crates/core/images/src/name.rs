//! Image names: what is one, its default tag, its registry.
//!
//! ```text
//! [domain[:port]/]path[:tag][@digest]
//! ```

/// Why a text is not an image name, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {name:?}: {fault}")]
pub struct ImageNameError {
    name: String,
    fault: String,
}

/// The registry of names that name none.
const DEFAULT_REGISTRY: &str = "docker.io";

/// A well-formed image name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName {
    text: String,
    /// Bytes of `text` before tag and digest.
    repository: usize,
    has_tag: bool,
    has_digest: bool,
}

impl ImageName {
    /// Reads a name as people write it.
    pub fn parse(name: &str) -> Result<Self, ImageNameError> {
        let refuse = |fault: String| ImageNameError { name: name.to_owned(), fault };
        let (rest, digest) = match name.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (name, None),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            // A colon before the last slash belongs to a port.
            Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
            _ => (rest, None),
        };
        let path = repository_path(repository);
        if path.chars().any(char::is_uppercase) {
            // Names without a registry of their own are told with the path they would have in the
            // usual one.
            let is_usual =
                matches!(domain(repository), None | Some(DEFAULT_REGISTRY | "index.docker.io"));
            let prefix = if is_usual && !path.contains('/') { "library/" } else { "" };
            return Err(refuse(format!(
                "invalid reference format: repository name ({prefix}{path}) must be lowercase"
            )));
        }
        let is_well_formed = is_domain_ok(repository)
            && path.split('/').all(is_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest)
            && repository.len() <= 255;
        if !is_well_formed {
            return Err(refuse("invalid reference format".to_owned()));
        }
        Ok(Self {
            text: name.to_owned(),
            repository: repository.len(),
            has_tag: tag.is_some(),
            has_digest: digest.is_some(),
        })
    }

    /// The name with `:latest` added when it has neither tag nor digest.
    #[must_use]
    pub fn with_default_tag(&self) -> String {
        if self.has_tag || self.has_digest {
            self.text.clone()
        } else {
            format!("{}:latest", self.text)
        }
    }

    /// The name as written, without tag and digest.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.text[..self.repository]
    }

    /// The registry that it is pulled from, with its port.
    #[must_use]
    pub fn registry(&self) -> &str {
        match domain(self.repository()) {
            None | Some("index.docker.io") => DEFAULT_REGISTRY,
            Some(domain) => domain,
        }
    }

    /// Registry and path spelt out, without tag and digest: what credentials are looked up by.
    #[must_use]
    pub fn place(&self) -> String {
        let (registry, path) = (self.registry(), repository_path(self.repository()));
        if registry == DEFAULT_REGISTRY && !path.contains('/') {
            format!("{registry}/library/{path}")
        } else {
            format!("{registry}/{path}")
        }
    }
}

/// The first part is a domain only when it looks like one.
fn domain(repository: &str) -> Option<&str> {
    let (first, _) = repository.split_once('/')?;
    (first.contains('.')
        || first.contains(':')
        || first == "localhost"
        || first.chars().any(char::is_uppercase))
    .then_some(first)
}

fn repository_path(repository: &str) -> &str {
    match domain(repository) {
        Some(domain) => &repository[domain.len() + 1..],
        None => repository,
    }
}

fn is_domain_ok(repository: &str) -> bool {
    let Some(domain) = domain(repository) else {
        return true;
    };
    if let Some(inner) = domain.strip_prefix('[') {
        return inner.split_once(']').is_some_and(|(ip, port)| {
            ip.parse::<std::net::Ipv6Addr>().is_ok()
                && (port.is_empty() || port.strip_prefix(':').is_some_and(is_number))
        });
    }
    let (host, port) =
        domain.split_once(':').map_or((domain, None), |(host, port)| (host, Some(port)));
    port.is_none_or(is_number)
        && host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Lower-case letters and digits, held together by `.`, `_`, `__` or dashes.
fn is_component(text: &str) -> bool {
    let is_alnum = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separator = String::new();
    let mut last_was_alnum = false;
    for c in text.chars() {
        if is_alnum(c) {
            let is_joined = matches!(separator.as_str(), "" | "." | "_" | "__")
                || separator.chars().all(|c| c == '-');
            if !is_joined {
                return false;
            }
            separator.clear();
            last_was_alnum = true;
        } else if matches!(c, '.' | '_' | '-') && (last_was_alnum || !separator.is_empty()) {
            separator.push(c);
            last_was_alnum = false;
        } else {
            return false;
        }
    }
    last_was_alnum
}

fn is_tag(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, hex)| {
        algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
            && algorithm
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '_' | '-'))
            && hex.len() >= 32
            && hex.chars().all(|c| c.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The default tag.
    #[test]
    fn names_get_their_default_tag() {
        let digest = format!("busybox@sha256:{}", "ab".repeat(32));
        for (name, full) in [
            ("busybox", "busybox:latest"),
            ("busybox:1.37", "busybox:1.37"),
            ("docker.io/library/busybox", "docker.io/library/busybox:latest"),
            ("localhost:5000/a/b_c", "localhost:5000/a/b_c:latest"),
            ("registry.example:5000/x--y:v1", "registry.example:5000/x--y:v1"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            (digest.as_str(), digest.as_str()),
        ] {
            let parsed = ImageName::parse(name).unwrap();
            assert_eq!(parsed.with_default_tag(), full);
        }
    }

    #[test]
    fn a_name_knows_its_registry_and_place() {
        let digest = format!("localhost:5000/a/b:v1@sha256:{}", "ab".repeat(32));
        for (name, repository, registry, place) in [
            ("busybox", "busybox", "docker.io", "docker.io/library/busybox"),
            ("team/app:1", "team/app", "docker.io", "docker.io/team/app"),
            ("index.docker.io/x", "index.docker.io/x", "docker.io", "docker.io/library/x"),
            (digest.as_str(), "localhost:5000/a/b", "localhost:5000", "localhost:5000/a/b"),
        ] {
            let parsed = ImageName::parse(name).unwrap();
            assert_eq!(parsed.repository(), repository);
            assert_eq!(parsed.registry(), registry);
            assert_eq!(parsed.place(), place);
        }
    }

    /// `InvalidImageName`.
    #[test]
    fn what_is_no_name_is_refused_in_upstreams_words() {
        let check = |name: &str, message: &str| {
            assert_eq!(ImageName::parse(name).unwrap_err().to_string(), message)
        };
        for (name, repository) in [
            ("Not A Name!", "library/Not A Name!"),
            ("docker.io/App", "library/App"),
            ("team/App:1", "team/App"),
            ("lab.local/Absent:1", "Absent"),
            ("Registry/a/B", "a/B"),
        ] {
            check(
                name,
                &format!(
                    "couldn't parse image name {name:?}: invalid reference format: repository name ({repository}) must be lowercase"
                ),
            );
        }
        for name in
            ["", "a b", "busybox:", "x@sha256:12", "a//b", "-a", "a/", "host:port/x", "a..b"]
        {
            check(name, &format!("couldn't parse image name {name:?}: invalid reference format"));
        }
    }
}

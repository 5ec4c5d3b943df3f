//! Names of images spelt out: registry, repository, and what is asked for there. Pure.

use ferrolet_images::{ImageName, ImageNameError};

use crate::digest::{Digest, DigestError};

/// A name that says everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    repository: String,
    wanted: Wanted,
}

/// What of a repository is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Whatever has this tag now.
    Tag(String),
    /// This content, whatever its tag was.
    Digest(Digest),
}

/// Why a text names no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// It is not formed like a name.
    #[error(transparent)]
    Name(#[from] ImageNameError),
    /// Its digest cannot be checked.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

impl Reference {
    /// Reads a name as people write it; without tag and digest it means `latest`.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let name = ImageName::parse(text)?;
        let place = name.place();
        let full = name.with_default_tag();
        let rest = &full[name.repository().len()..];
        let wanted = match rest.split_once('@') {
            // The digest says more than a tag beside it.
            Some((_, digest)) => Wanted::Digest(digest.parse()?),
            None => Wanted::Tag(rest.trim_start_matches(':').to_owned()),
        };
        let (registry, repository) = place.split_once('/').unwrap_or(("", &place));
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned(), wanted })
    }

    /// The registry's name, with its port.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path in the registry.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// What is asked for.
    #[must_use]
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// The name of a manifest in the same repository.
    #[must_use]
    pub fn with_digest(&self, digest: &Digest) -> String {
        format!("{}/{}@{digest}", self.registry, self.repository)
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match &self.wanted {
            Wanted::Tag(tag) => write!(f, ":{tag}"),
            Wanted::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_spelt_out() {
        let digest = Digest::of(b"");
        let cases = [
            ("busybox", "docker.io/library/busybox:latest".to_owned()),
            ("user/app:1", "docker.io/user/app:1".to_owned()),
            ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9".to_owned()),
            ("localhost:5000/a/b", "localhost:5000/a/b:latest".to_owned()),
            (&format!("busybox:1@{digest}"), format!("docker.io/library/busybox@{digest}")),
        ];
        for (text, expected) in cases {
            assert_eq!(Reference::parse(text).unwrap().to_string(), expected);
        }
        for text in ["", "UPPER", "a b", "a@sha256:12", "a@md5:d41d8cd98f00b204e9800998ecf8427e"] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }
}

//! Registries: OCI's distribution protocol, as a client that pulls.
//!
//! ```text
//! hosts.toml ─ hosts ─► whom to ask, in which order
//! challenge  ─ auth  ─► a token per host and repository, kept until it expires
//! client     ─ one request: redirects, deadlines, bounded answers
//! blob       ─ a stream that goes on where it broke, checked against its digest
//! ```
//!
//! In: references, credentials, descriptors. Out: documents and pieces of blobs. Credentials go to the registry that they
//! are for and to the token service that it names, never to mirrors and never along a redirect. Addresses in manifests
//! are not followed.

mod auth;
mod blob;
mod challenge;
mod client;
mod hosts;
#[cfg(test)]
pub(crate) mod tests;

use std::{path::PathBuf, time::Duration};

use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::{
    digest::Digest,
    limits::{Limits, OverLimit},
    manifest::MANIFEST_TYPES,
    reference::{Reference, Wanted},
};
use auth::Tokens;
pub(crate) use blob::Piece;
use client::{Answer, Client, Clients};
pub use hosts::HostsError;
use hosts::{Ability, Host};

/// How registries are reached.
#[derive(Clone, Debug)]
pub struct RegistrySettings {
    /// The directory of `<registry>/hosts.toml` files, where there is one.
    pub hosts: Option<PathBuf>,
    /// Certificates to trust registries by, as the system's bundle has them.
    pub roots_pem: Vec<u8>,
    /// How long an answer may take to begin.
    pub patience: Duration,
    /// How long a blob may make no progress.
    pub stall: Duration,
}

/// Who asks. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Anybody.
    Anonymous,
    /// A name and a password.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token that buys others.
    IdentityToken(String),
    /// A token that the registry takes itself.
    RegistryToken(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic",
            Self::IdentityToken(_) => "IdentityToken",
            Self::RegistryToken(_) => "RegistryToken",
        })
    }
}

/// Why a registry did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The configuration of hosts is broken.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// A client cannot be made.
    #[error("set up TLS for {host}")]
    Tls {
        /// The registry or mirror.
        host: String,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// An address that is none.
    #[error("{0:?} is not an address to ask")]
    Address(String),
    /// Nobody could be reached, or the connection broke.
    #[error("ask {host}")]
    Connection {
        /// The registry or mirror.
        host: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer, or none that went on.
    #[error("{host} gave no answer for {} s", waited.as_secs())]
    Silence {
        /// The registry or mirror.
        host: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Another answer than hoped for.
    #[error("{host} answered {status} for {what}")]
    Status {
        /// The registry or mirror.
        host: String,
        /// Its answer.
        status: StatusCode,
        /// What was asked for.
        what: String,
    },
    /// A redirect that is not followed.
    #[error("{host} redirects {fault}")]
    Redirect {
        /// The registry or mirror.
        host: String,
        /// Why not.
        fault: &'static str,
    },
    /// A token service that gives none.
    #[error("{host} wants a token, but {fault}")]
    Token {
        /// The registry or mirror.
        host: String,
        /// What went wrong.
        fault: String,
    },
    /// Content that is not what its digest says.
    #[error("{host} gave {found} for {expected}")]
    Content {
        /// The registry or mirror.
        host: String,
        /// What was asked for.
        expected: Digest,
        /// What came.
        found: String,
    },
    /// Too much of something.
    #[error(transparent)]
    Limit(#[from] OverLimit),
    /// Whoever wanted the blob has gone.
    #[error("nobody takes the blob")]
    Gone,
}

/// The client of all registries.
pub struct Registry {
    settings: RegistrySettings,
    clients: Clients,
    tokens: Tokens,
    limits: Limits,
}

/// A manifest or index as a registry gave it.
pub(crate) struct Served {
    pub(crate) bytes: Vec<u8>,
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
}

/// One repository, and who asks for it.
pub(crate) struct Repository<'r> {
    registry: &'r Registry,
    name: String,
    path: String,
    hosts: Vec<Host>,
    credentials: Credentials,
}

impl Registry {
    /// A client with these settings.
    #[must_use]
    pub fn new(settings: RegistrySettings, limits: &Limits) -> Self {
        let clients = Clients::new(settings.roots_pem.clone());
        Self { settings, clients, tokens: Tokens::default(), limits: limits.clone() }
    }

    pub(crate) fn repository(
        &self,
        reference: &Reference,
        credentials: &Credentials,
    ) -> Result<Repository<'_>, RegistryError> {
        Ok(Repository {
            registry: self,
            name: reference.registry().to_owned(),
            path: reference.repository().to_owned(),
            hosts: hosts::of(self.settings.hosts.as_deref(), reference.registry())?,
            credentials: credentials.clone(),
        })
    }
}

impl Repository<'_> {
    /// The document that a tag or digest means, checked as far as it can be.
    pub(crate) async fn manifest(&self, wanted: &Wanted) -> Result<Served, RegistryError> {
        let ability = match wanted {
            Wanted::Tag(_) => Ability::Resolve,
            Wanted::Digest(_) => Ability::Pull,
        };
        let mut refusal = None;
        for host in self.able(ability) {
            match self.manifest_of(host, wanted).await {
                Ok(served) => return Ok(served),
                Err(error) => refusal = Some(error),
            }
        }
        Err(self.refused(refusal))
    }

    async fn manifest_of(&self, host: &Host, wanted: &Wanted) -> Result<Served, RegistryError> {
        let name = match wanted {
            Wanted::Tag(tag) => tag.clone(),
            Wanted::Digest(digest) => digest.to_string(),
        };
        let path = format!("manifests/{name}");
        let types =
            HeaderValue::from_str(&MANIFEST_TYPES.join(", ")).expect("media types are text");
        let accepted = HeaderMap::from_iter([(header::ACCEPT, types)]);
        let answer = self.ask(host, &path, &accepted).await?.expect(&[StatusCode::OK], &path)?;
        let media_type =
            answer.header(&header::CONTENT_TYPE).split(';').next().unwrap_or("").trim();
        let media_type = media_type.to_owned();
        let told = answer.header_named("docker-content-digest");
        let host = answer.host.clone();
        let most = self.registry.limits.manifest_bytes;
        let bytes = answer.whole("bytes in a manifest", most).await?;
        // A tag's digest is the registry's word; what it sends must at least agree with that.
        let expected = match wanted {
            Wanted::Digest(digest) => Some(digest.clone()),
            Wanted::Tag(_) => told.parse().ok(),
        };
        let digest = checked(&host, &bytes, expected)?;
        Ok(Served { bytes, media_type, digest })
    }

    /// A blob that is small enough to be held.
    pub(crate) async fn document(
        &self,
        digest: &Digest,
        most: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        let mut refusal = None;
        for host in self.able(Ability::Pull) {
            match self.document_of(host, digest, most).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => refusal = Some(error),
            }
        }
        Err(self.refused(refusal))
    }

    async fn document_of(
        &self,
        host: &Host,
        digest: &Digest,
        most: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        let path = format!("blobs/{digest}");
        let answer = self.ask(host, &path, &HeaderMap::new()).await?;
        let answer = answer.expect(&[StatusCode::OK], &path)?;
        let host = answer.host.clone();
        let bytes = answer.whole("bytes in an image's configuration", most).await?;
        checked(&host, &bytes, Some(digest.clone()))?;
        Ok(bytes)
    }

    /// Whom to ask, one after the other.
    fn able(&self, ability: Ability) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(move |host| host.can(ability))
    }

    /// The last refusal counts, which is the registry's own.
    fn refused(&self, refusal: Option<RegistryError>) -> RegistryError {
        refusal.unwrap_or_else(|| RegistryError::Address(self.name.clone()))
    }

    /// One request, with a token where the host wants one.
    async fn ask(
        &self,
        host: &Host,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Answer, RegistryError> {
        let client = self.registry.clients.of(host)?;
        let mut uri = format!("{}/{}/{path}", host.base, self.path);
        if host.is_mirror {
            // Mirrors of several registries are told which one is meant.
            uri = format!("{uri}?ns={}", self.name);
        }
        let anonymous = Credentials::Anonymous;
        let credentials = if host.is_mirror { &anonymous } else { &self.credentials };
        let patience = self.registry.settings.patience;
        let asker =
            auth::Asker { client: &client, host, repository: &self.path, credentials, patience };
        self.registry.tokens.ask(&asker, &uri, headers).await
    }
}

fn checked(host: &str, bytes: &[u8], expected: Option<Digest>) -> Result<Digest, RegistryError> {
    let Some(expected) = expected else { return Ok(Digest::of(bytes)) };
    let mut hasher = expected.hasher();
    hasher.update(bytes);
    let found = hasher.finish();
    if found != expected {
        return Err(RegistryError::Content {
            host: host.to_owned(),
            expected,
            found: found.to_string(),
        });
    }
    Ok(expected)
}

/// How a client of one host is shared.
type SharedClient = std::sync::Arc<Client>;

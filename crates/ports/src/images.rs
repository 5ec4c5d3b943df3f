//! The image service: what is here, and fetching what is not.

use ferrolet_spec::SandboxSpec;

use crate::{Fut, Retry, RuntimeError};

/// An image service.
pub trait Images: Send + Sync {
    /// Looks an image up by name or reference; `None` when it is not here.
    fn image_status<'a>(
        &'a self,
        image: &'a str,
    ) -> Fut<'a, Result<Option<ImageInfo>, RuntimeError>>;
    /// Fetches an image and answers with its reference.
    fn pull_image<'a>(&'a self, request: PullRequest<'a>) -> Fut<'a, Result<String, ImageError>>;
    /// Everything that is here.
    fn list_images(&self) -> Fut<'_, Result<Vec<ImageInfo>, RuntimeError>>;
    /// Removes an image. Not found is success.
    fn remove_image<'a>(&'a self, image: &'a str) -> Fut<'a, Result<(), RuntimeError>>;
}

/// An image that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// The runtime's id.
    pub id: String,
    /// Names with tags.
    pub tags: Vec<String>,
    /// Names with digests.
    pub digests: Vec<String>,
    /// Bytes on disk.
    pub size: u64,
    /// Numeric user of the image, if it has one.
    pub user_id: Option<i64>,
    /// User name of the image, if it has one.
    pub username: String,
    /// Never to be removed.
    pub is_pinned: bool,
}

/// An image to fetch.
#[derive(Clone, Copy, Debug)]
pub struct PullRequest<'a> {
    /// Its name.
    pub image: &'a str,
    /// What opens its registry; nothing for an open one.
    pub auth: Option<&'a RegistryAuth>,
    /// The sandbox of the pod that wants it: runtimes may have rules of their own for a namespace,
    /// a handler or an annotation.
    pub sandbox: Option<&'a SandboxSpec>,
}

impl<'a> PullRequest<'a> {
    /// An image of an open registry that no pod asked for.
    pub fn of(image: &'a str) -> Self {
        Self { image, auth: None, sandbox: None }
    }
}

/// Credentials for a registry. `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RegistryAuth {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// Base64 of `user:password`.
    pub auth: String,
    /// Which server it is for.
    pub server_address: String,
    /// Token that buys an access token.
    pub identity_token: String,
    /// Token sent as it is.
    pub registry_token: String,
}

impl std::fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryAuth")
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

/// A pull that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The registry cannot be reached.
    #[error("registry is unavailable: {0}")]
    RegistryUnavailable(String),
    /// The image's signature is not accepted.
    #[error("image signature validation failed: {0}")]
    SignatureValidationFailed(String),
    /// A refusal without a gRPC code of its own, in the runtime's words; users see it without the
    /// `rpc error` in front.
    #[error("{0}")]
    Unspecified(String),
    /// Any other refusal, in the runtime's words.
    #[error(transparent)]
    Runtime(RuntimeError),
}

impl ImageError {
    /// When to try again.
    pub fn retry(&self) -> Retry {
        Retry::Later
    }
}

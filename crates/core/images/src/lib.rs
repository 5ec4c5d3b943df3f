//! Images by name: what a name means, whose credentials open its registry, and who may use what is
//! already here.
//!
//! ```text
//!  name      text ─► ImageName (repository, tag, digest, registry)
//!  docker    a docker configuration's text ─► logins by registry
//!  keyring   logins with their sources ─► those that fit an image, best first
//!  provider  the messages of credential-provider plugins, and what of an answer may be kept
//!  record    what was pulled with which credentials, in upstream's file format
//!  verify    policy, record and credentials ─► may this pod use the image, or must it be pulled again
//! ```
//!
//! Owned by nobody: values in, values out. Refuses: files, registries, clocks.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod docker;
mod keyring;
mod name;
mod pattern;
pub mod provider;
pub mod record;
pub mod verify;

pub use docker::{DockerConfig, DockerConfigError, Login};
pub use keyring::{Coordinates, Credential, Keyring, Source};
pub use name::{ImageName, ImageNameError};
pub use pattern::{PatternError, matches_place};

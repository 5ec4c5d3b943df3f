//! The demonstration image: one small static program, carried in the agent, so that a machine without a registry has
//! something to run.
//!
//! The program (`program/`) is compiled by this crate's build script (`build/`), which makes an image of it: an OCI
//! layout in a compressed archive, which the embedded runtime loads and containerd imports. Refuses: being a base for
//! other images; it holds what the examples need.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[path = "../program/names.rs"]
mod names;
#[cfg(test)]
mod tests;

/// The image's name, without a tag.
pub const REPOSITORY: &str = names::REPOSITORY;

/// The commands that are in it.
pub const COMMANDS: &[&str] = &names::NAMES;

/// The image as an archive.
pub const ARCHIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/demo.tar.gz"));

/// Whether a name means this image: its repository, with one of its tags or none.
#[must_use]
pub fn is_meant(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(REPOSITORY) else { return false };
    rest.is_empty() || rest.strip_prefix(':').is_some_and(|tag| names::TAGS.contains(&tag))
}

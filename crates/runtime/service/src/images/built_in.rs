//! An image that comes out of this program instead of a registry.
//!
//! Pulling it puts it into the store, also after somebody removed it; nothing is asked of the network.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
};

use ferrolet_runtime_images::{Digest, Limits, LoadError, Store, load, manifest::Platform};
use rustix::fs::{MemfdFlags, memfd_create};

/// The image, and who means it.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Whether a name, spelt out, means this image.
    pub is_meant: fn(&str) -> bool,
    /// The image as an archive, compressed or not.
    pub archive: &'static [u8],
}

impl BuiltIn {
    /// Puts it into the store; its id. Blocking.
    pub(super) fn load(&self, store: &Store) -> Result<Digest, LoadError> {
        let file = self.file().map_err(LoadError::Read)?;
        let images = load(store, file, &Platform::own(), &Limits::USUAL)?;
        images.into_iter().next().map(|image| image.id).ok_or(LoadError::NoImages)
    }

    fn file(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create("built-in image", MemfdFlags::CLOEXEC)?);
        file.write_all(self.archive)?;
        file.rewind()?;
        Ok(file)
    }
}

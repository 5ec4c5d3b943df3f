//! Images that come from files of this machine instead of a registry.

use std::{fs::File, path::PathBuf};

use anyhow::Context as _;
use ferrolet_runtime_images::{Limits, Store, load, manifest::Platform};

/// Loads every image of these archives. Blocking.
pub(super) fn load_all(store: &Store, archives: &[PathBuf]) -> anyhow::Result<()> {
    for path in archives {
        let archive = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let images = load(store, archive, &Platform::own(), &Limits::USUAL)
            .with_context(|| format!("load {}", path.display()))?;
        for image in images {
            tracing::info!(image = %image.id, tags = ?image.tags, "Loaded an image");
        }
    }
    Ok(())
}

//! Where a pod's volumes stand below the directory of all pods. Pure.

use std::{io, path::PathBuf};

use ferrolet_linux::rooted::is_plain_name;
use ferrolet_ports::VolumePlace;
use ferrolet_types::PodUid;

pub(crate) const PRIVATE: u32 = 0o750;
pub(crate) const VOLUMES: &str = "volumes";
pub(crate) const PLUGINS: &str = "plugins";
pub(crate) const SUB_PATHS: &str = "volume-subpaths";
/// Links to raw devices.
pub(crate) const DEVICES: &str = "volumeDevices";
/// The plugin whose directories every other local volume is made of.
pub(crate) const EMPTY_DIR: &str = "kubernetes.io~empty-dir";

/// Where a volume stands below the directory of all pods.
pub(crate) fn relative(place: &VolumePlace) -> io::Result<PathBuf> {
    let names = [plain(place.uid.as_str())?, VOLUMES, plain(&place.plugin)?, plain(&place.name)?];
    Ok(names.iter().collect())
}

/// The marker that says that a volume has been set up once.
pub(crate) fn marker_directory(uid: &PodUid, marker: &str) -> io::Result<PathBuf> {
    let names = [plain(uid.as_str())?, PLUGINS, EMPTY_DIR, plain(marker)?];
    Ok(names.iter().collect())
}

pub(crate) fn plain(text: &str) -> io::Result<&str> {
    if is_plain_name(text) {
        return Ok(text);
    }
    let cause = format!("{text:?} is not a plain name");
    Err(io::Error::new(io::ErrorKind::InvalidInput, cause))
}

//! The node's devices that a container may get.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_plan::container::NodeDevice;

use super::{error::RuntimeError, files::disk};

/// Directories of `/dev` that hold no devices of a privileged container's: terminals and file systems.
const PASSED_OVER: [&str; 6] =
    ["/dev/pts", "/dev/shm", "/dev/fd", "/dev/mqueue", "/dev/hugepages", "/dev/.udev"];
/// How deep devices are looked for.
const DEPTH: usize = 8;
/// How many devices one container gets at most.
const MOST: usize = 16_384;

/// Those that a container asks for by name, or all of them for a privileged one. Blocking.
pub(crate) fn find(config: &cri::ContainerConfig) -> Result<Vec<NodeDevice>, RuntimeError> {
    let security = config.linux.as_ref().and_then(|it| it.security_context.as_ref());
    let mut found = Vec::new();
    if security.is_some_and(|it| it.privileged) {
        look(Path::new("/dev"), DEPTH, &mut found);
        // The container's console is its own.
        found.retain(|it| it.path != "/dev/console" && it.path != "/dev/ptmx");
    }
    for device in &config.devices {
        let path = Path::new(&device.host_path);
        let metadata = fs::metadata(path).map_err(disk("find device", path))?;
        if metadata.is_dir() {
            look(path, DEPTH, &mut found);
        } else {
            found.extend(node_device(&device.host_path, &metadata));
        }
    }
    Ok(found)
}

fn look(directory: &Path, depth: usize, found: &mut Vec<NodeDevice>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if found.len() >= MOST {
            return;
        }
        let path = entry.path();
        let Some(name) = path.to_str() else { continue };
        // Links are not followed.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() && depth > 0 && !PASSED_OVER.contains(&name) {
            look(&path, depth - 1, found);
        } else {
            found.extend(node_device(name, &metadata));
        }
    }
}

fn node_device(path: &str, metadata: &fs::Metadata) -> Option<NodeDevice> {
    let kind = metadata.file_type();
    let is_block = kind.is_block_device();
    if !is_block && !kind.is_char_device() {
        return None;
    }
    Some(NodeDevice {
        path: path.to_owned(),
        is_block,
        major: rustix::fs::major(metadata.rdev()),
        minor: rustix::fs::minor(metadata.rdev()),
        mode: metadata.mode(),
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_device_is_found_and_a_missing_one_told() {
        let device =
            |path: &str| cri::Device { host_path: path.to_owned(), ..cri::Device::default() };
        let config =
            |path| cri::ContainerConfig { devices: vec![device(path)], ..Default::default() };
        let found = find(&config("/dev/null")).unwrap();
        assert_eq!((found[0].major, found[0].minor, found[0].is_block), (1, 3, false));
        assert!(find(&config("/etc/hostname")).unwrap().is_empty());
        let missing = find(&config("/dev/nothing-like-it")).unwrap_err();
        assert_eq!(missing.to_string(), "find device /dev/nothing-like-it");
    }
}

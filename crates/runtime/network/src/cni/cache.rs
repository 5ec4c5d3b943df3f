//! What is known of a sandbox that plugins connected, as a file, and its namespace bound to another.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::config::NetworkConfig;
use super::{CniError, failed, read};

/// A result and a configuration.
const LONGEST: u64 = 8 << 20;
/// What the kernel calls the file system of namespaces.
const NAMESPACES: u64 = 0x6e73_6673;
const ENDING: &str = ".json";

/// All that deleting needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cache {
    pub(super) sandbox: String,
    pub(super) network: NetworkConfig,
    pub(super) arguments: String,
    pub(super) capabilities: Map<String, Value>,
    pub(super) namespace: PathBuf,
    /// What the last plugin said; none if not all of them were done.
    pub(super) result: Option<Value>,
}

impl Cache {
    /// None if there is none. One that cannot be read is removed: nothing can be done with it.
    pub(super) fn read(directory: &Path, sandbox: &str) -> Result<Option<Self>, CniError> {
        let path = file(directory, sandbox);
        let bytes = match read(&path, LONGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(failed("read", &path))?,
        };
        match serde_json::from_slice(&bytes) {
            Ok(cache) => Ok(Some(cache)),
            Err(error) => {
                tracing::warn!(path = %path.display(), err = %error, "A cached CNI result cannot be read and is removed");
                fs::remove_file(&path).map_err(failed("remove", &path))?;
                Ok(None)
            }
        }
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), CniError> {
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
        let path = file(directory, &self.sandbox);
        let new = path.with_extension("new");
        let bytes = serde_json::to_vec(self).map_err(io::Error::from);
        let bytes = bytes.map_err(failed("encode", &path))?;
        fs::write(&new, bytes).map_err(failed("write", &new))?;
        fs::rename(&new, &path).map_err(failed("rename to", &path))
    }

    pub(super) fn remove(&self, directory: &Path) -> Result<(), CniError> {
        let path = file(directory, &self.sandbox);
        fs::remove_file(&path).map_err(failed("remove", &path))
    }

    /// The path of the namespace while there is one; plugins take an empty one for "gone".
    pub(super) fn namespace_if_bound(&self) -> PathBuf {
        if is_bound(&self.namespace) { self.namespace.clone() } else { PathBuf::new() }
    }
}

fn file(directory: &Path, sandbox: &str) -> PathBuf {
    directory.join(format!("{sandbox}{ENDING}"))
}

/// Every sandbox that has a cache.
pub(super) fn all(directory: &Path) -> Result<Vec<String>, CniError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed("read", directory))?,
    };
    let names = entries.flatten().filter_map(|it| it.file_name().into_string().ok());
    let mut all: Vec<String> =
        names.filter_map(|it| it.strip_suffix(ENDING).map(str::to_owned)).collect();
    all.sort_unstable();
    Ok(all)
}

/// Where a sandbox's namespace is bound.
pub(super) fn place(directory: &Path, sandbox: &str) -> PathBuf {
    directory.join(format!("ferrolet-{sandbox}"))
}

/// Binds a namespace to a file that plugins can keep.
pub(super) fn bind(
    directory: &Path,
    sandbox: &str,
    namespace: BorrowedFd<'_>,
) -> Result<PathBuf, CniError> {
    let path = place(directory, sandbox);
    fs::create_dir_all(directory).map_err(failed("create", directory))?;
    unbind(&path)?;
    fs::File::create_new(&path).map_err(failed("create", &path))?;
    let source = format!("/proc/self/fd/{}", namespace.as_raw_fd());
    let bound = mount_bind(source, &path).map_err(io::Error::from);
    if bound.is_err() {
        let _left = fs::remove_file(&path);
    }
    bound.map_err(failed("bind namespace to", &path))?;
    Ok(path)
}

/// Lets go of a namespace; no error if that was done.
pub(super) fn unbind(path: &Path) -> Result<(), CniError> {
    if is_bound(path) {
        let gone = unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        gone.map_err(|errno| failed("unmount", path)(errno.into()))?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

fn is_bound(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|it| u64::try_from(it.f_type) == Ok(NAMESPACES))
}

//! The service's directories: records replaced by rename, trees set aside and deleted.
//!
//! Blocking; callers are on a thread for it ([`off_thread`]). What is read is bounded: a record of another size is none.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use prost::Message;

use super::error::RuntimeError;

/// Records are small; what is larger is none.
const RECORD_BYTES: u64 = 16 << 20;
/// Bytes of the node's files that pods get copies of.
const NODE_FILE_BYTES: u64 = 1 << 20;

/// Where the service keeps what it knows.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) root: PathBuf,
    pub(crate) run: PathBuf,
}

impl Places {
    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub(crate) fn containers(&self) -> PathBuf {
        self.root.join("containers")
    }

    pub(crate) fn removed(&self) -> PathBuf {
        self.root.join("removed")
    }

    pub(crate) fn pods(&self) -> PathBuf {
        self.run.join("pods")
    }

    pub(crate) fn sandbox(&self, id: &str) -> PathBuf {
        self.sandboxes().join(id)
    }

    pub(crate) fn container(&self, id: &str) -> PathBuf {
        self.containers().join(id)
    }

    /// A pod's directory of what goes with the kernel.
    pub(crate) fn pod(&self, sandbox: &str) -> PathBuf {
        self.pods().join(sandbox)
    }

    /// A container's part of it.
    pub(crate) fn launched(&self, sandbox: &str, container: &str) -> PathBuf {
        self.pod(sandbox).join(container)
    }

    /// All directories, made and closed to everybody else.
    pub(crate) fn make(&self) -> Result<(), RuntimeError> {
        let all = [
            self.root.clone(),
            self.sandboxes(),
            self.containers(),
            self.removed(),
            self.run.clone(),
            self.pods(),
        ];
        all.iter().try_for_each(|path| make_directory(path))
    }

    /// Takes a tree away at once, and deletes it. What is not there is fine.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), RuntimeError> {
        let Some(name) = path.file_name() else { return Ok(()) };
        let aside = self.removed().join(name);
        match fs::rename(path, &aside) {
            Ok(()) => remove_tree(&aside),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // The run directory is on another file system.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => remove_tree(path),
            // A removal that did not end left something of that name.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                remove_tree(&aside)?;
                fs::rename(path, &aside).map_err(disk("set aside", path))?;
                remove_tree(&aside)
            }
            Err(error) => Err(disk("set aside", path)(error)),
        }
    }
}

/// Does blocking work on a thread for it.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(lost) => {
            let source = io::Error::other(lost);
            Err(RuntimeError::Disk { attempt: "work in", path: "the background".into(), source })
        }
    }
}

/// An error of the disk with what was attempted.
pub(crate) fn disk(
    attempt: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> RuntimeError + use<> {
    let path = path.to_owned();
    move |source| RuntimeError::Disk { attempt, path, source }
}

pub(crate) fn make_directory(path: &Path) -> Result<(), RuntimeError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(disk("make directory", path))
}

fn remove_tree(path: &Path) -> Result<(), RuntimeError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Replaces a record.
pub(crate) fn write_record(path: &Path, record: &impl Message) -> Result<(), RuntimeError> {
    write(path, &record.encode_to_vec(), 0o600)
}

/// Replaces a file by one of that mode.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), RuntimeError> {
    let mut draft = path.to_owned();
    draft.as_mut_os_string().push(".new");
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&draft)?;
        io::Write::write_all(&mut file, content)?;
        fs::rename(&draft, path)
    };
    write().map_err(disk("write", path))
}

/// A record; `None`: there is none that can be read.
pub(crate) fn read_record<M: Message + Default>(path: &Path) -> Option<M> {
    M::decode(&*read(path, RECORD_BYTES).ok()?).ok()
}

/// A file of the node; what is missing is empty.
pub(crate) fn read_node_file(path: &Path) -> Result<Vec<u8>, RuntimeError> {
    match read(path, NODE_FILE_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(disk("read", path)),
    }
}

/// All of a file, or an error when it is larger.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

/// The names in a directory; none: it is not there.
pub(crate) fn names(path: &Path) -> Result<Vec<String>, RuntimeError> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(disk("list", path))?,
    };
    Ok(entries.flatten().filter_map(|it| it.file_name().into_string().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_taken_away_even_where_an_earlier_removal_did_not_end() {
        let place = tempfile::tempdir().unwrap();
        let places = Places { root: place.path().join("root"), run: place.path().join("run") };
        places.make().unwrap();
        for _ in 0..2 {
            let tree = places.container("c1");
            fs::create_dir_all(tree.join("upper/deep")).unwrap();
            // What an earlier removal left.
            fs::create_dir_all(places.removed().join("c1/rest")).unwrap();
            places.remove(&tree).unwrap();
            assert!(!tree.exists() && names(&places.removed()).unwrap().is_empty());
        }
        places.remove(&places.container("c1")).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_no_record() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("spec");
        let record = super::super::record::SandboxRun { is_stopped: true, ..Default::default() };
        write_record(&path, &record).unwrap();
        assert_eq!(read_record(&path), Some(record));
        fs::write(&path, [0xff; 3]).unwrap();
        assert_eq!(read_record::<super::super::record::SandboxRun>(&path), None);
    }
}

//! The files below `<root>/image_manager`: `pulling` for intents, `pulled` for records, both closed
//! to others.

use std::{
    io,
    path::{Path, PathBuf},
};

use ferrolet_linux::{
    offload::{Job, Pool, refused},
    rooted::{Durability, Kind, Rooted, is_plain_name},
};
use ferrolet_ports::{Fut, HostError, NamedFile, PullFile, PullFiles};

const DIRECTORY: &str = "image_manager";
const PREFIX: &str = "sha256-";
const TEMPORARY: &str = ".tmp";
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// No record is bigger; a bigger file is not one.
const LARGEST: usize = 4 << 20;

/// The memory of pulls below one root directory.
#[derive(Clone, Debug)]
pub struct NodePullFiles {
    root: PathBuf,
}

impl NodePullFiles {
    /// Takes the agent's root directory, `/var/lib/kubelet`; touches nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn run<'a, T: Send + 'static>(
        &self,
        attempt: String,
        kind: PullFile,
        work: impl FnOnce(&Rooted) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        let root = self.root.clone();
        // Pods that start together want the same image, and two writers of one file would share its
        // draft.
        let job = Job::on(Pool::State, attempt.clone()).alone(attempt.as_str());
        Box::pin(job.run(move || {
            open(&root, kind)
                .and_then(|directory| work(&directory))
                .map_err(|cause| refused(attempt, &cause))
        }))
    }
}

fn open(root: &Path, kind: PullFile) -> io::Result<Rooted> {
    let name = match kind {
        PullFile::Intent => "pulling",
        PullFile::Record => "pulled",
    };
    Rooted::open(root)?
        .ensure_directory(DIRECTORY, PRIVATE_DIRECTORY)?
        .ensure_directory(name, PRIVATE_DIRECTORY)
}

fn plain(name: &str) -> io::Result<&str> {
    if is_plain_name(name) { Ok(name) } else { Err(io::Error::from(io::ErrorKind::InvalidInput)) }
}

fn read(directory: &Rooted, name: &str) -> io::Result<Vec<u8>> {
    let content = directory.read(plain(name)?, LARGEST + 1)?;
    if content.len() > LARGEST {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(content)
}

impl PullFiles for NodePullFiles {
    fn read<'a>(
        &'a self,
        kind: PullFile,
        name: &'a str,
    ) -> Fut<'a, Result<Option<Vec<u8>>, HostError>> {
        let (attempt, name) = (format!("read pull record {name}"), name.to_owned());
        self.run(attempt, kind, move |directory| match read(directory, &name) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn write<'a>(
        &'a self,
        kind: PullFile,
        name: &'a str,
        content: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        let attempt = format!("write pull record {name}");
        let (name, content) = (name.to_owned(), content.as_bytes().to_vec());
        self.run(attempt, kind, move |directory| {
            let name = plain(&name)?;
            // An image without a record counts as put here by the node's owner, for everybody. So
            // an intent is on the disk before the pull begins, and the record before the intent
            // goes.
            directory.write_atomically(name, &content, PRIVATE_FILE, Durability::Synced)
        })
    }

    fn remove<'a>(&'a self, kind: PullFile, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        let (attempt, name) = (format!("remove pull record {name}"), name.to_owned());
        self.run(attempt, kind, move |directory| directory.unlink(plain(&name)?))
    }

    /// Files that are not records are passed over, and those that cannot be read are shown empty.
    fn list(&self, kind: PullFile) -> Fut<'_, Result<Vec<NamedFile>, HostError>> {
        self.run("list pull records".to_owned(), kind, |directory| {
            let entries = directory.entries()?.into_iter();
            let names = entries
                .filter(|entry| entry.kind == Kind::File)
                .filter_map(|entry| entry.name.into_string().ok());
            let mut files: Vec<NamedFile> = names
                .filter(|name| name.starts_with(PREFIX) && !name.ends_with(TEMPORARY))
                .map(|name| {
                    let content = read(directory, &name).unwrap_or_default();
                    (name, content)
                })
                .collect();
            files.sort();
            Ok(files)
        })
    }
}

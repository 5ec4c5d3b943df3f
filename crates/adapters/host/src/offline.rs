//! Copies of pods on disk for a start without the API server: the port `OfflineStore` on a real
//! node.
//!
//! Owned by the offline source, which knows what the copies mean. Layout:
//! `<root>/ferrolet/offline/<uid>.json`, the directory 0700 and the files 0600, because they hold
//! secrets; nobody but root gets past the directory even when a file's mode was loosened. Files are
//! replaced by renames and synced: they are for the moment after a power cut. Must never happen:
//! following a link, reading without a bound, leaving copies behind when nobody wants them any
//! more.

use std::{
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use ferrolet_linux::{
    offload::{Job, Pool, never, refused},
    rooted::{Durability, Kind, Rooted, is_plain_name},
};
use ferrolet_ports::{Fut, HostError, OfflineStore, StoredCopy};
use ferrolet_types::PodUid;
use rustix::fs::Mode;

const OURS: &str = "ferrolet";
const COPIES: &str = "offline";
const SUFFIX: &str = ".json";
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// No copy is bigger; a bigger file is not ours.
pub const LARGEST_COPY: usize = 8 << 20;

/// The copies below one root directory.
#[derive(Clone, Debug)]
pub struct OfflineCopies {
    root: PathBuf,
}

impl OfflineCopies {
    /// Takes the agent's root directory, `/var/lib/kubelet`; touches nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Removes every copy: secrets of a node that no longer wants to start offline do not stay on
    /// its disk.
    pub async fn discard(&self) -> Result<(), HostError> {
        self.run("remove copies of pods".to_owned(), |root| {
            match Rooted::open(root).and_then(|root| root.directory(OURS)) {
                Ok(ours) => ours.remove_tree(COPIES),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(cause) => Err(cause),
            }
        })
        .await
    }

    fn run<'a, T: Send + 'static>(
        &self,
        attempt: String,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        let root = self.root.clone();
        Box::pin(
            Job::on(Pool::State, attempt.clone())
                .run(move || work(&root).map_err(|cause| refused(attempt, &cause))),
        )
    }
}

impl OfflineStore for OfflineCopies {
    fn read_all(&self) -> Fut<'_, Result<Vec<StoredCopy>, HostError>> {
        let attempt = "read copies of pods".to_owned();
        self.run(attempt, |root| {
            let directory = open(root)?;
            let entries = directory.entries()?.into_iter();
            let files = entries.filter(|entry| entry.kind == Kind::File);
            let mut copies: Vec<StoredCopy> = files
                .filter_map(|file| {
                    let uid = uid_of(file.name.to_str()?)?;
                    let content = read(&directory, &uid);
                    Some(StoredCopy { uid, content })
                })
                .collect();
            copies.sort_by(|a, b| a.uid.cmp(&b.uid));
            Ok(copies)
        })
    }

    fn write<'a>(&'a self, uid: &'a PodUid, content: &'a [u8]) -> Fut<'a, Result<(), HostError>> {
        let attempt = format!("write the copy of pod {uid}");
        if content.len() > LARGEST_COPY {
            let cause = format!("{} bytes are too many", content.len());
            return Box::pin(std::future::ready(Err(never(attempt, cause))));
        }
        let (uid, content) = (uid.clone(), content.to_vec());
        self.run(attempt, move |root| {
            let name = file_name(&uid)?;
            open(root)?.write_atomically(name, &content, PRIVATE_FILE, Durability::Synced)
        })
    }

    fn remove<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>> {
        let uid = uid.clone();
        let attempt = format!("remove the copy of pod {uid}");
        self.run(attempt, move |root| open(root)?.unlink(file_name(&uid)?))
    }
}

/// Opens the directory, made and closed to others where it was not.
fn open(root: &Path) -> io::Result<Rooted> {
    let beneath = Path::new(OURS).join(COPIES);
    let directory = Rooted::open(root)?.ensure_directory(beneath, PRIVATE_DIRECTORY)?;
    rustix::fs::fchmod(directory.as_fd(), Mode::from_raw_mode(PRIVATE_DIRECTORY))?;
    Ok(directory)
}

fn read(directory: &Rooted, uid: &PodUid) -> Result<Vec<u8>, HostError> {
    let attempt = format!("read the copy of pod {uid}");
    let content = file_name(uid).and_then(|name| directory.read(name, LARGEST_COPY + 1));
    match content {
        Ok(content) if content.len() > LARGEST_COPY => Err(never(attempt, "it is too big")),
        Ok(content) => Ok(content),
        Err(cause) => Err(refused(attempt, &cause)),
    }
}

fn file_name(uid: &PodUid) -> io::Result<String> {
    let name = format!("{uid}{SUFFIX}");
    if is_plain_name(&name) && !name.starts_with('.') {
        Ok(name)
    } else {
        let cause = format!("{uid:?} is not a plain name");
        Err(io::Error::new(io::ErrorKind::InvalidInput, cause))
    }
}

/// Whose file this is; half-written ones begin with a dot and are nobody's.
fn uid_of(name: &str) -> Option<PodUid> {
    let uid = name.strip_suffix(SUFFIX)?;
    (!uid.is_empty() && !uid.starts_with('.')).then(|| PodUid::new(uid))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use tempfile::TempDir;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn contents(copies: Vec<StoredCopy>) -> Vec<(String, Option<String>)> {
        let copies = copies.into_iter();
        copies
            .map(|copy| {
                let content = copy.content.ok();
                let text = content.map(|bytes| String::from_utf8(bytes).unwrap());
                (copy.uid.to_string(), text)
            })
            .collect()
    }

    #[tokio::test]
    async fn copies_are_kept_by_uid_and_readable_by_root_only() {
        let root = TempDir::new().unwrap();
        let store = OfflineCopies::new(root.path());
        assert_eq!(store.read_all().await, Ok(Vec::new()));
        let (a, b) = (PodUid::new("a"), PodUid::new("b"));
        store.write(&a, b"old").await.unwrap();
        store.write(&a, b"new").await.unwrap();
        store.write(&b, b"two").await.unwrap();
        let directory = root.path().join("ferrolet/offline");
        assert_eq!(mode_of(&directory), 0o700);
        assert_eq!(mode_of(&directory.join("a.json")), 0o600);
        let expected = [("a", "new"), ("b", "two")];
        let expected = expected.map(|(uid, text)| (uid.to_owned(), Some(text.to_owned())));
        assert_eq!(contents(store.read_all().await.unwrap()), expected);
        store.remove(&a).await.unwrap();
        store.remove(&a).await.unwrap();
        assert_eq!(contents(store.read_all().await.unwrap()), expected[1..]);
        store.discard().await.unwrap();
        store.discard().await.unwrap();
        assert!(!directory.exists());
    }

    #[tokio::test]
    async fn what_is_not_a_copy_is_refused_or_passed_over() {
        let root = TempDir::new().unwrap();
        let store = OfflineCopies::new(root.path());
        let directory = root.path().join("ferrolet/offline");
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        fs::write(directory.join(".a.json.tmp"), "half").unwrap();
        fs::write(directory.join("README"), "hello").unwrap();
        symlink("/etc/passwd", directory.join("link.json")).unwrap();
        let big = fs::File::create(directory.join("big.json")).unwrap();
        big.set_len(1 << 40).unwrap();
        let copies = contents(store.read_all().await.unwrap());
        assert_eq!(copies, [("big".to_owned(), None)]);
        // A directory that was open to others no longer is.
        assert_eq!(mode_of(&directory), 0o700);
        for uid in ["../x", "", ".hidden", "a/b"] {
            assert!(store.write(&PodUid::new(uid), b"x").await.is_err(), "{uid}");
        }
        let too_much = vec![b'x'; LARGEST_COPY + 1];
        assert!(store.write(&PodUid::new("a"), &too_much).await.is_err());
    }
}

//! Certificates and keys in the node's certificate directory, with upstream's names.
//!
//! ```text
//!  kubelet-client-2026-01-31-12-00-00.pem   certificate and key, one file for each that was ever obtained (0600)
//!  kubelet-client-updated.pem ─► …          the link on its way; a crash may leave it, the next start finishes the move
//!  kubelet-client-current.pem ─► …          the link to the pair in use
//!  kubelet-client.key.tmp                   the key of a request that nobody has signed yet
//! ```
//!
//! In: pairs from bootstrap and rotation. Out: the pair a start begins with. A reader sees the old
//! pair or the new, never a part. Refuses: replacing a file where a link is expected, because
//! somebody else put it there; removing old pairs.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use ferrolet_linux::rooted::{Durability, Rooted};
use ferrolet_ports::{CertStore, Pair, PairName};
use ferrolet_types::Timestamp;

/// The mode of everything that holds a key.
const PRIVATE: u32 = 0o600;
const PENDING_KEY: &str = "kubelet-client.key.tmp";
/// No chain of certificates with its key is bigger.
const LARGEST: u64 = 1 << 20;

/// The certificate directory.
#[derive(Clone, Debug)]
pub struct CertDirectory {
    directory: PathBuf,
}

impl CertDirectory {
    /// The directory at that path; nothing is touched yet.
    pub fn at(directory: &Path) -> io::Result<Self> {
        Ok(Self { directory: std::path::absolute(directory)? })
    }

    fn recover(&self, name: PairName) -> io::Result<()> {
        let (current, updated) = (self.current_path(name), self.updated_path(name));
        if current.try_exists()? {
            return Ok(());
        }
        match found(fs::symlink_metadata(&updated))? {
            Some(found) if found.is_symlink() => fs::rename(updated, current),
            Some(_) => Err(no_link(&updated)),
            None => Ok(()),
        }
    }

    fn updated_path(&self, name: PairName) -> PathBuf {
        self.directory.join(format!("{}-updated.pem", name.prefix()))
    }

    fn rooted(&self) -> io::Result<Rooted> {
        Rooted::open(&self.directory)
    }
}

impl CertStore for CertDirectory {
    fn prepare(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder
            .create(&self.directory)
            .and_then(|()| self.recover(PairName::Client))
            .and_then(|()| self.recover(PairName::Server))
    }

    fn write(&self, file: &str, text: &str, mode: u32) -> io::Result<()> {
        self.rooted()?.write_atomically(file, text.as_bytes(), mode, Durability::Synced)
    }

    fn read(&self, file: &str) -> io::Result<Option<String>> {
        let Some(opened) = found(fs::File::open(self.directory.join(file)))? else {
            return Ok(None);
        };
        let mut content = Vec::new();
        opened.take(LARGEST + 1).read_to_end(&mut content)?;
        if u64::try_from(content.len()).is_ok_and(|length| length > LARGEST) {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        String::from_utf8(content).map(Some).map_err(io::Error::other)
    }

    fn current(&self, name: PairName) -> io::Result<Option<Pair>> {
        let file = name.current_file();
        if let Some(text) = self.read(&file)? {
            let broken = || io::Error::other(format!("{file} lacks a certificate or its key"));
            return Pair::from_pem(&text).ok_or_else(broken).map(Some);
        }
        // Before there were links there were two files.
        let certificate = self.read(&format!("{}.crt", name.prefix()))?;
        let key = self.read(&format!("{}.key", name.prefix()))?;
        let pair = certificate.zip(key).map(|(certificate, key)| Pair { certificate, key });
        Ok(pair)
    }

    fn update(&self, name: PairName, pair: &Pair, now: Timestamp) -> io::Result<()> {
        let (current, updated) = (self.current_path(name), self.updated_path(name));
        for link in [&current, &updated] {
            if found(fs::symlink_metadata(link))?.is_some_and(|found| !found.is_symlink()) {
                return Err(no_link(link));
            }
        }
        let file = name.file_at(now);
        self.write(&file, &pair.to_pem(), PRIVATE)?;
        found(fs::remove_file(&updated))?;
        std::os::unix::fs::symlink(self.directory.join(file), &updated)?;
        fs::rename(updated, current)?;
        fs::File::open(&self.directory)?.sync_all()
    }

    fn current_path(&self, name: PairName) -> PathBuf {
        self.directory.join(name.current_file())
    }

    fn pending_key(&self) -> io::Result<Option<String>> {
        self.read(PENDING_KEY)
    }

    fn set_pending_key(&self, key: Option<&str>) -> io::Result<()> {
        match key {
            Some(key) => self.write(PENDING_KEY, key, PRIVATE),
            None => found(fs::remove_file(self.directory.join(PENDING_KEY))).map(|_| ()),
        }
    }
}

/// Absence is an answer, not an error.
fn found<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn no_link(path: &Path) -> io::Error {
    io::Error::other(format!("{} is a file and should be a link", path.display()))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second)
    }

    fn pair(name: &str) -> Pair {
        let block = |kind: &str| format!("-----BEGIN {kind}-----\n{name}\n-----END {kind}-----\n");
        Pair { certificate: block("CERTIFICATE"), key: block("PRIVATE KEY") }
    }

    fn open(directory: &Path) -> CertDirectory {
        let store = CertDirectory::at(directory).unwrap();
        store.prepare().unwrap();
        store
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_pair_comes_back_from_a_private_file_behind_the_link() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("var/pki");
        let store = open(&directory);
        assert!(store.current(PairName::Client).unwrap().is_none());
        let (one, two) = (pair("one"), pair("two"));
        store.update(PairName::Client, &one, at(0)).unwrap();
        store.update(PairName::Client, &two, at(1)).unwrap();
        let store = open(&directory);
        assert!(store.current(PairName::Client).unwrap() == Some(two));
        assert!(store.current(PairName::Server).unwrap().is_none());
        let link = store.current_path(PairName::Client);
        let target = fs::read_link(&link).unwrap();
        assert_eq!(target, directory.join(PairName::Client.file_at(at(1))));
        assert_eq!(mode(&link), 0o600);
        assert_eq!(names(&directory).len(), 3, "both files and the link");
    }

    #[test]
    fn a_move_that_was_interrupted_is_finished() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("kubelet-server-1.pem");
        let kept = pair("kept");
        fs::write(&file, kept.to_pem()).unwrap();
        let updated = root.path().join("kubelet-server-updated.pem");
        symlink(&file, &updated).unwrap();
        let store = open(root.path());
        assert!(store.current(PairName::Server).unwrap() == Some(kept));
        assert!(!names(root.path()).contains("kubelet-server-updated.pem"));
        // One that lost the race to a current link is only in the way.
        symlink("nowhere", &updated).unwrap();
        let next = pair("next");
        let store = open(root.path());
        store.update(PairName::Server, &next, at(5)).unwrap();
        assert!(store.current(PairName::Server).unwrap() == Some(next));
    }

    #[test]
    fn a_file_in_the_place_of_a_link_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let given = pair("given");
        let place = root.path().join("kubelet-client-current.pem");
        fs::write(&place, given.to_pem()).unwrap();
        let store = open(root.path());
        assert!(store.current(PairName::Client).unwrap() == Some(given.clone()));
        let error = store.update(PairName::Client, &pair("new"), at(0));
        assert!(error.unwrap_err().to_string().ends_with("should be a link"));
        assert_eq!(fs::read_to_string(&place).unwrap(), given.to_pem());
    }

    #[test]
    fn two_files_of_old_are_taken_and_half_a_pair_is_told() {
        let root = tempfile::tempdir().unwrap();
        let old = pair("old");
        fs::write(root.path().join("kubelet-client.crt"), &old.certificate).unwrap();
        let store = open(root.path());
        assert!(store.current(PairName::Client).unwrap().is_none());
        fs::write(root.path().join("kubelet-client.key"), &old.key).unwrap();
        assert!(store.current(PairName::Client).unwrap() == Some(old.clone()));
        fs::write(store.current_path(PairName::Client), &old.certificate).unwrap();
        assert!(store.current(PairName::Client).is_err());
    }

    #[test]
    fn the_key_of_an_open_request_is_kept_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path());
        assert_eq!(store.pending_key().unwrap(), None);
        store.set_pending_key(Some("secret")).unwrap();
        assert_eq!(mode(&root.path().join(PENDING_KEY)), 0o600);
        assert_eq!(store.pending_key().unwrap().as_deref(), Some("secret"));
        store.set_pending_key(None).unwrap();
        store.set_pending_key(None).unwrap();
        assert_eq!(store.pending_key().unwrap(), None);
    }
}

//! Checkpoints in the agent's root directory: the port `StateFiles` on a real node.
//!
//! Names and modes are upstream's (`<root>/allocated_pods_state`, 0600). Nothing is synced: what
//! the files describe, running containers, does not survive a power cut either. Must never happen:
//! following a link, reading without a bound.

use std::{
    io,
    path::{Path, PathBuf},
};

use ferrolet_linux::{
    offload::{Job, Pool, never, refused},
    rooted::{Durability, Rooted, is_plain_name},
};
use ferrolet_ports::{Fut, HostError, StateFiles};

const MODE: u32 = 0o600;
/// No checkpoint is bigger; a bigger file is not ours.
const LARGEST: usize = 16 << 20;

/// The state files below one root directory.
#[derive(Clone, Debug)]
pub struct NodeState {
    root: PathBuf,
}

impl NodeState {
    /// Takes the agent's root directory; touches nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }
}

impl StateFiles for NodeState {
    fn read<'a>(&'a self, name: &'a str) -> Fut<'a, Result<Option<Vec<u8>>, HostError>> {
        let attempt = format!("read {}", self.root.join(name).display());
        let (root, name) = (self.root.clone(), name.to_owned());
        Box::pin(Job::on(Pool::State, attempt.clone()).alone(name.as_str()).run(move || {
            let content = Rooted::open(&root).and_then(|root| root.read(&name, LARGEST + 1));
            match content {
                Ok(content) if content.len() > LARGEST => Err(never(attempt, "it is too big")),
                Ok(content) => Ok(Some(content)),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(cause) => Err(refused(attempt, &cause)),
            }
        }))
    }

    fn write<'a>(&'a self, name: &'a str, content: Vec<u8>) -> Fut<'a, Result<(), HostError>> {
        let attempt = format!("write {}", self.root.join(name).display());
        let (root, name) = (self.root.clone(), name.to_owned());
        Box::pin(Job::on(Pool::State, attempt.clone()).alone(name.as_str()).run(move || {
            if !is_plain_name(&name) || name.starts_with('.') {
                return Err(never(attempt, "not a plain name"));
            }
            Rooted::open(&root)
                .and_then(|root| root.write_atomically(&name, &content, MODE, Durability::Cached))
                .map_err(|cause| refused(attempt, &cause))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_absent_then_whole_and_only_for_us() {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().unwrap();
        let files = NodeState::new(root.path());
        assert_eq!(files.read("a_state").await.unwrap(), None);
        files.write("a_state", b"one".to_vec()).await.unwrap();
        files.write("a_state", b"two".to_vec()).await.unwrap();
        assert_eq!(files.read("a_state").await.unwrap().unwrap(), b"two");
        let mode = std::fs::metadata(root.path().join("a_state")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        for bad in ["../x", "", ".", ".hidden", "a/b"] {
            assert!(files.write(bad, Vec::new()).await.is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_link_is_not_followed() {
        let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = elsewhere.path().join("secret");
        std::fs::write(&target, "x").unwrap();
        std::os::unix::fs::symlink(&target, root.path().join("a_state")).unwrap();
        let files = NodeState::new(root.path());
        assert!(files.read("a_state").await.is_err());
        files.write("a_state", b"new".to_vec()).await.unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"x");
    }
}

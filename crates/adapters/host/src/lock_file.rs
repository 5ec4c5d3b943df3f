//! The file that keeps a second kubelet out: `--lock-file`.
//!
//! Held for as long as the value lives. With `--exit-on-lock-contention` whoever wants the file only
//! has to open it: the agent hears of that and gives way, as upstream's does. Refuses: reading or
//! writing the file.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use futures::StreamExt as _;
use inotify::{Inotify, WatchMask};
use rustix::fs::{FlockOperation, flock};

/// The lock, held.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    _file: File,
}

impl LockFile {
    /// Waits until nobody else holds the file, and makes it if need be. Blocks its thread.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let file = options.open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Self { path: path.to_owned(), _file: file })
    }

    /// Waits until somebody opens the file, or removes it.
    pub async fn contended(&self) -> io::Result<()> {
        let inotify = Inotify::init()?;
        inotify.watches().add(&self.path, WatchMask::OPEN | WatchMask::DELETE_SELF)?;
        let mut events = inotify.into_event_stream([0; 512])?;
        match events.next().await {
            Some(Ok(_)) | None => Ok(()),
            Some(Err(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn wait(held: &LockFile) -> Result<io::Result<()>, tokio::time::error::Elapsed> {
        tokio::time::timeout(Duration::from_secs(2), held.contended()).await
    }

    #[tokio::test]
    async fn the_lock_keeps_others_out_and_its_holder_hears_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet.lock");
        let held = LockFile::acquire(&path).unwrap();
        let other = File::open(&path).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap_err();
        let opening = async {
            // The watch is armed before it first waits, and that is now.
            tokio::task::yield_now().await;
            File::open(&path).unwrap()
        };
        let (contended, _) = tokio::join!(wait(&held), opening);
        contended.expect("heard in time").unwrap();
        drop(held);
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}

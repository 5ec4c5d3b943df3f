//! The sockets in a directory, and every change of them: where plugins make themselves known.
//!
//! In: a directory, made where it is missing. Out: a map from path to something that changes when a
//! socket is replaced. Also the sockets that this node listens on itself ([`listen`]). Refuses:
//! connecting, and looking into directories below.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{
        fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use ferrolet_linux::offload::{Job, Pool, refused};
use tokio::sync::watch;

use crate::watch::{DirectoryWatch, Hint};

/// Sockets by path, each with its inode and the time it was made.
pub type Sockets = BTreeMap<PathBuf, (u64, i64)>;

/// Shows the sockets in a directory until nobody looks any more.
pub async fn follow(directory: PathBuf, shown: watch::Sender<Sockets>) {
    if let Err(error) = make_directory(&directory) {
        tracing::warn!(directory = %directory.display(), %error, "Directory for plugins cannot be made");
    }
    let mut watch = DirectoryWatch::directory(&directory);
    while !shown.is_closed() {
        match watch.next().await {
            Hint::Names { .. } | Hint::Everything => {
                let (own, attempt) = (directory.clone(), format!("list {}", directory.display()));
                let listed = Job::on(Pool::State, attempt.clone())
                    .run(move || list(&own).map_err(|cause| refused(attempt, &cause)));
                match listed.await {
                    Ok(found) => {
                        shown.send_if_modified(|known| {
                            let is_new = *known != found;
                            *known = found;
                            is_new
                        });
                    }
                    Err(error) => tracing::warn!(%error, "Plugins cannot be looked for"),
                }
            }
            Hint::Unwatchable { directory, cause } => {
                tracing::warn!(directory = %directory.display(), cause, "Directory for plugins cannot be watched");
            }
        }
    }
}

/// Makes a directory for plugins, as only root reaches it.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)
}

/// Takes away the sockets that an earlier life of the agent, and plugins that registered with it,
/// left in a directory: plugins that live see that and register anew. Everything else stays.
pub fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Listens on a socket of this name, in a directory that only root reaches. It is made under
/// another name and moved into place: a client finds the old one or the new one, never one that
/// nobody listens to.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    make_directory(directory)?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&draft)?;
    listener.set_nonblocking(true)?;
    fs::rename(&draft, path)?;
    Ok(listener)
}

fn list(directory: &Path) -> io::Result<Sockets> {
    let mut found = Sockets::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Names with a dot in front are drafts, as upstream has it.
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let Ok(data) = entry.metadata() else { continue };
        if data.file_type().is_socket() {
            let made = data.ctime().wrapping_mul(1_000_000_000) + data.ctime_nsec();
            found.insert(entry.path(), (data.ino(), made));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_sockets_are_cleared_away() {
        let held = tempfile::tempdir().unwrap();
        let directory = held.path().join("device-plugins");
        make_directory(&directory).unwrap();
        fs::write(directory.join("kubelet_internal_checkpoint"), "{}").unwrap();
        fs::create_dir(directory.join("below")).unwrap();
        let _listener = UnixListener::bind(directory.join("gpu.sock")).unwrap();
        clear(&directory).unwrap();
        let left = fs::read_dir(&directory).unwrap().map(|it| it.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, ["below", "kubelet_internal_checkpoint"]);
    }

    #[tokio::test]
    async fn sockets_appear_are_told_apart_from_files_and_go() {
        let held = tempfile::tempdir().unwrap();
        let directory = held.path().join("registry");
        let (sender, mut shown) = watch::channel(Sockets::new());
        let following = tokio::spawn(follow(directory.clone(), sender));
        while !directory.exists() {
            tokio::task::yield_now().await;
        }
        fs::write(directory.join("file"), "x").unwrap();
        let socket = directory.join("a.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        shown.wait_for(|found| found.len() == 1).await.unwrap();
        assert!(shown.borrow().contains_key(&socket));
        drop(listener);
        fs::remove_file(&socket).unwrap();
        shown.wait_for(Sockets::is_empty).await.unwrap();
        following.abort();
    }
}

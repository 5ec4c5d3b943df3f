//! The machine's log files, read only, beneath one directory; and its journal ([`crate::journal`]).
//!
//! In: a path that somebody who may read logs asks for. Out: a listing, or the file as it was when
//! it was opened, in pieces. Unlike upstream's file server no link is followed: a pod that may
//! write below `/var/log` could plant one and have the agent read any file of the machine. Refuses:
//! links, specials, other mounts, names that are not plain.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use ferrolet_linux::{
    offload::{Job, Pool, refused},
    rooted::{Kind, Rooted, is_plain_name},
};
use ferrolet_ports::{Fut, HostError, JournalAsk, LogPieces, SystemLog, SystemLogFiles};

use crate::journal::Journal;

const PIECE: u64 = 64 * 1024;
/// More names than this are not listed.
const MOST_NAMES: usize = 10_000;

/// Log files beneath a directory.
pub struct SystemLogs {
    root: PathBuf,
    journal: Journal,
}

impl SystemLogs {
    /// Everything beneath this directory (upstream: `/var/log`).
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), journal: Journal::find() }
    }
}

impl SystemLogFiles for SystemLogs {
    fn look<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Option<SystemLog>, HostError>> {
        Box::pin(async move {
            let path = path.trim_matches('/').to_owned();
            let is_root = path.is_empty();
            if !is_root && !path.split('/').all(is_plain_name) {
                return Ok(None);
            }
            let (root, attempt) = (self.root.clone(), format!("look at log {path:?}"));
            let what = attempt.clone();
            Job::on(Pool::PodFiles, attempt)
                .run(move || {
                    let root = Rooted::open(&root).map_err(|cause| refused(&what, &cause))?;
                    if is_root {
                        return Ok(Some(listing(&root)));
                    }
                    if let Ok(file) = root.open_file(&path) {
                        let left = file.metadata().map_or(0, |it| it.len());
                        let pieces = Pieces { file: Some(file), left };
                        return Ok(Some(SystemLog::File(Box::new(pieces))));
                    }
                    let below = root.directory(&path).ok();
                    Ok(below.map(|below| listing(&below)))
                })
                .await
        })
    }

    fn in_journal<'a>(&'a self, services: &'a [String]) -> Fut<'a, Vec<String>> {
        Box::pin(self.journal.knows(services))
    }

    fn journal<'a>(
        &'a self,
        ask: &'a JournalAsk,
    ) -> Fut<'a, Result<Box<dyn LogPieces>, HostError>> {
        Box::pin(self.journal.read(ask))
    }
}

fn listing(directory: &Rooted) -> SystemLog {
    let entries = directory.entries().unwrap_or_default().into_iter();
    let mut names: Vec<(String, bool)> = entries
        .filter(|entry| matches!(entry.kind, Kind::Directory | Kind::File))
        .filter_map(|entry| Some((entry.name.into_string().ok()?, entry.kind == Kind::Directory)))
        .take(MOST_NAMES)
        .collect();
    names.sort_unstable();
    SystemLog::Directory(names)
}

/// A file up to the length it had when it was opened: a log that grows as fast as it is read would
/// never end.
struct Pieces {
    file: Option<File>,
    left: u64,
}

impl LogPieces for Pieces {
    fn next(&mut self) -> Fut<'_, Result<Option<Vec<u8>>, HostError>> {
        Box::pin(async move {
            let Some(file) = self.file.take().filter(|_| self.left > 0) else {
                return Ok(None);
            };
            let n = self.left.min(PIECE);
            let (file, piece) = Job::on(Pool::PodFiles, "read a log")
                .run(move || {
                    let mut piece = Vec::new();
                    (&file)
                        .take(n)
                        .read_to_end(&mut piece)
                        .map_err(|cause| refused("read a log", &cause))?;
                    Ok((file, piece))
                })
                .await?;
            if piece.is_empty() {
                return Ok(None);
            }
            let read = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.left = self.left.saturating_sub(read);
            self.file = Some(file);
            Ok(Some(piece))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(logs: &SystemLogs, path: &str) -> Option<String> {
        match logs.look(path).await.unwrap()? {
            SystemLog::Directory(names) => Some(format!("{names:?}")),
            SystemLog::File(mut pieces) => {
                let mut text = Vec::new();
                while let Some(piece) = pieces.next().await.unwrap() {
                    text.extend(piece);
                }
                Some(String::from_utf8(text).unwrap())
            }
        }
    }

    #[tokio::test]
    async fn files_are_read_and_planted_links_are_not() {
        let held = tempfile::tempdir().unwrap();
        let root = held.path().join("log");
        std::fs::create_dir_all(root.join("app")).unwrap();
        std::fs::write(held.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("syslog"), "line\n".repeat(50_000)).unwrap();
        std::fs::write(root.join("app/app.log"), "hello\n").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("planted")).unwrap();
        std::os::unix::fs::symlink("..", root.join("up")).unwrap();
        let logs = SystemLogs::new(&root);
        assert_eq!(told(&logs, "").await.unwrap(), r#"[("app", true), ("syslog", false)]"#);
        assert_eq!(told(&logs, "syslog").await.unwrap().len(), 250_000);
        assert_eq!(told(&logs, "app/app.log").await.unwrap(), "hello\n");
        for path in
            ["planted", "up/secret", "../secret", "app/../syslog", "nothing", "app//app.log"]
        {
            assert_eq!(told(&logs, path).await, None, "{path}");
        }
    }
}

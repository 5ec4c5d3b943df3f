//! Container logs for whoever asks: the port `LogFiles` over the files the runtime writes.
//!
//! In: a path from the runtime, which must lie below the node's log directory, and what part is
//! wanted. Out: text without the runtime's prefixes, in pieces of about 32 KiB; nothing else is
//! held in memory between two pieces.
//!
//! ```text
//!  reader ── reads bytes, off the async threads ──► shape (pure: lines, times, limits) ──► piece
//!    └ at the end of a followed file: waits for [`changes`] (one inotify for all followers) or a second,
//!      goes on in the file that took its place once the runtime has left the old one, through every file in between
//! ```
//!
//! Must never happen: following a link, reading outside the log directory, holding a whole log in
//! memory, one inotify instance per follower (a node has 128). Who runs [`NodeLogs::watch_changes`]
//! makes following prompt; without it a second may pass.

mod changes;
mod line;
mod reader;
mod shape;
mod tail;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrolet_linux::{
    offload::{Job, Pool, never, refused},
    rooted::Rooted,
};
use ferrolet_ports::{Fut, HostError, LogAsk, LogFiles, LogPieces};

use changes::{Changes, LogFile};
use reader::Reader;

/// The logs of this node's pods.
#[derive(Clone)]
pub struct NodeLogs {
    pod_logs: PathBuf,
    changes: Arc<Changes>,
}

impl NodeLogs {
    /// Logs below this directory (`podLogsDir`).
    pub fn new(pod_logs: impl Into<PathBuf>) -> Self {
        Self { pod_logs: pod_logs.into(), changes: Arc::new(Changes::new()) }
    }

    /// Tells followers of changes as they happen. Runs for ever, once per node.
    pub fn watch_changes(&self) -> impl Future<Output = ()> + Send + use<> {
        let changes = self.changes.clone();
        async move { changes.run().await }
    }
}

impl LogFiles for NodeLogs {
    fn open<'a>(
        &'a self,
        path: &'a str,
        ask: LogAsk,
    ) -> Fut<'a, Result<Box<dyn LogPieces>, HostError>> {
        Box::pin(async move {
            let attempt = format!("open log {path:?}");
            let beneath = Path::new(path)
                .strip_prefix(&self.pod_logs)
                .map_err(|_| never(&attempt, "it is not below the log directory"))?;
            let (Some(parent), Some(name)) = (beneath.parent(), beneath.file_name()) else {
                return Err(never(&attempt, "it names no file"));
            };
            let (root, parent) = (self.pod_logs.clone(), parent.to_owned());
            let (name, tail) = (name.to_owned(), ask.tail_lines);
            let what = attempt.clone();
            let opened = Job::on(Pool::PodFiles, &attempt).run(move || {
                let open = || {
                    let directory = Rooted::open(&root)?.directory(&parent)?;
                    let file = directory.open_file(&name)?;
                    let start = match tail {
                        Some(lines) => tail::start_of(&file, lines)?,
                        None => 0,
                    };
                    Ok((directory, name, LogFile::new(file)?, start))
                };
                open().map_err(|cause| refused(&what, &cause))
            });
            let (directory, name, file, start) = opened.await?;
            let place = reader::Place { directory: Arc::new(directory), name };
            let reader = Reader::new(place, file, start, ask, self.changes.clone());
            Ok(Box::new(reader) as Box<dyn LogPieces>)
        })
    }
}

//! Reads one log, and goes on where it went when it is followed.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use ferrolet_linux::{
    offload::{Job, Pool, never, refused},
    rooted::Rooted,
};
use ferrolet_ports::{Fut, HostError, LogAsk, LogPieces, StillWritten};
use tokio::time::Instant;

use super::changes::{Changes, Following, LogFile};
use super::shape::Shape;

/// Bytes read at once; also about the size of a piece.
const PIECE: usize = 32 * 1024;
/// A log that changes all the time is looked at this often, so that many followers of busy logs
/// cost little.
const AT_MOST_EVERY: Duration = Duration::from_millis(100);
/// A log of which nothing is heard is looked at this often.
const AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// Where the log is, to find what takes its place.
pub(super) struct Place {
    pub(super) directory: Arc<Rooted>,
    pub(super) name: OsString,
}

pub(super) struct Reader {
    place: Place,
    file: LogFile,
    position: u64,
    shape: Shape,
    follow: Option<Follow>,
    is_over: bool,
}

/// What only those need who wait for more.
struct Follow {
    writer: Arc<dyn StillWritten>,
    following: Following,
    /// When the end of the file was last reached.
    looked: Option<Instant>,
    /// The file that took the log's place, and when it was seen. The writer may need a moment to
    /// move there.
    successor: Option<(LogFile, Instant)>,
    /// The next file, when that was rotated too while we read this one.
    overdue: Option<LogFile>,
    is_writer_gone: bool,
}

impl Reader {
    pub(super) fn new(
        place: Place,
        file: LogFile,
        position: u64,
        ask: LogAsk,
        changes: Arc<Changes>,
    ) -> Self {
        let shape = Shape::new(&ask);
        let follow = ask.follow.map(|writer| Follow {
            writer,
            following: changes.follow(&place.directory, &place.name),
            looked: None,
            successor: None,
            overdue: None,
            is_writer_gone: false,
        });
        Self { place, file, position, shape, follow, is_over: false }
    }

    async fn piece(&mut self) -> Result<Option<Vec<u8>>, HostError> {
        let mut out = Vec::new();
        while !self.is_over && !self.shape.is_done() {
            let bytes = self.read().await?;
            if bytes.is_empty() {
                self.at_the_end(&mut out).await?;
            } else {
                self.position += bytes.len() as u64;
                let taken = self.shape.take(&bytes, &mut out);
                taken.map_err(|cause| never("read log", cause))?;
            }
            if !out.is_empty() {
                return Ok(Some(out));
            }
        }
        Ok(None)
    }

    async fn read(&self) -> Result<Vec<u8>, HostError> {
        let (file, position) = (self.file.file.clone(), self.position);
        Job::on(Pool::PodFiles, "read log")
            .run(move || {
                let mut bytes = vec![0; PIECE];
                let n = file
                    .read_at(&mut bytes, position)
                    .map_err(|cause| refused("read log", &cause))?;
                bytes.truncate(n);
                bytes.shrink_to_fit();
                Ok(bytes)
            })
            .await
    }

    /// Ends, or waits until there may be more.
    async fn at_the_end(&mut self, out: &mut Vec<u8>) -> Result<(), HostError> {
        let gone = |follow: &Follow| follow.is_writer_gone && follow.successor.is_none();
        let Some(follow) = self.follow.as_mut().filter(|follow| !gone(follow)) else {
            self.is_over = true;
            let finished = self.shape.finish(out);
            return finished.map_err(|cause| never("read log", cause));
        };
        if let Some(next) = follow.overdue.take() {
            let finished = self.shape.finish(out);
            finished.map_err(|cause| never("read log", cause))?;
            (self.file, self.position) = (next, 0);
            return Ok(());
        }
        if let Some(next) = follow.following.signal.next_after(&self.file) {
            // Its writer left this file a rotation ago, perhaps after our last read: once more, and
            // on. It may also have written to later ones.
            follow.overdue = Some(next);
            (follow.successor, follow.is_writer_gone) = (None, false);
            return Ok(());
        }
        if let Some((successor, seen)) = follow.successor.take() {
            if seen.elapsed() < AT_MOST_EVERY {
                follow.successor = Some((successor, seen));
                tokio::time::sleep_until(seen + AT_MOST_EVERY).await;
                return Ok(());
            }
            let finished = self.shape.finish(out);
            finished.map_err(|cause| never("read log", cause))?;
            (self.file, self.position) = (successor, 0);
            return Ok(());
        }
        if !follow.writer.is_written() {
            // One more look: it may have written its last words after ours.
            follow.is_writer_gone = true;
            return self.look_around().await;
        }
        if let Some(looked) = follow.looked {
            // Whatever happens in between is seen at the end of it.
            tokio::time::sleep_until(looked + AT_MOST_EVERY).await;
        }
        let is_quiet = match follow.looked {
            // The first time round something may have happened before the watch.
            None => true,
            Some(_) => {
                let stirred = follow.following.signal.stirred();
                tokio::time::timeout(AT_LEAST_EVERY, stirred).await.is_err()
            }
        };
        follow.looked = Some(Instant::now());
        if is_quiet || follow.following.signal.take_new_file() {
            self.look_around().await?;
        }
        Ok(())
    }

    /// Has another file taken the log's place, or was it cut short?
    async fn look_around(&mut self) -> Result<(), HostError> {
        let (directory, name) = (self.place.directory.clone(), self.place.name.clone());
        let file = self.file.clone();
        let (current, size) = Job::on(Pool::PodFiles, "look for a rotated log")
            .run(move || {
                let look = || {
                    let size = file.file.metadata()?.len();
                    let current = match directory.open_file(&name) {
                        Ok(current) => Some(LogFile::new(current)?),
                        // Between two names.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                        Err(error) => return Err(error),
                    };
                    Ok((current.filter(|it| !it.is_same(&file)), size))
                };
                look().map_err(|cause| refused("look for a rotated log", &cause))
            })
            .await?;
        if size < self.position {
            self.position = 0;
        }
        if let (Some(current), Some(follow)) = (current, &mut self.follow) {
            follow.successor = Some((current, Instant::now()));
        }
        Ok(())
    }
}

impl LogPieces for Reader {
    fn next(&mut self) -> Fut<'_, Result<Option<Vec<u8>>, HostError>> {
        Box::pin(self.piece())
    }
}

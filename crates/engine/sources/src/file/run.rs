//! The loop of the file source: read, judge, send; again on every hint and every period.

use std::{path::PathBuf, sync::Arc, time::Duration};

use ferrolet_ports::{ChangeHints, Gone, ManifestFiles};
use ferrolet_types::SourceUpdate;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::FileSet;
use crate::Notice;

/// An editor or a copy makes several hints at once; a reading waits until this long after the last
/// of them …
const QUIET: Duration = Duration::from_millis(2);
/// … but no longer than this after the first.
const LONGEST_BURST: Duration = Duration::from_millis(50);

/// What the file source needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSource {
    /// A directory of manifests or one manifest.
    pub path: PathBuf,
    /// The node's name.
    pub node: String,
    /// How often the path is read though nothing hinted at a change.
    pub period: Duration,
}

/// Keeps sending the path's pods until nobody listens any more.
pub async fn run(
    source: FileSource,
    manifests: Arc<dyn ManifestFiles>,
    updates: mpsc::Sender<SourceUpdate>,
) {
    let name = source.path.to_string_lossy().into_owned();
    let mut files = FileSet::new(&source.node);
    let mut hints = manifests.watch(&source.path);
    let mut has_hints = true;
    loop {
        let due = Instant::now() + source.period;
        let scanned = files.scan(&name, manifests.read(&source.path).await);
        scanned.notices.iter().for_each(Notice::log);
        if let Some(update) = scanned.update {
            tracing::debug!(path = name, n_pods = update.pods.len(), "manifests changed");
            if updates.send(update).await.is_err() {
                return;
            }
        }
        tokio::select! {
            // Cancel-safe by the trait's contract.
            hint = hints.next(), if has_hints => match hint {
                Some(mut gone) => {
                    settle(hints.as_mut(), &mut gone).await;
                    if let Some(update) = files.forget(&gone)
                        && updates.send(update).await.is_err()
                    {
                        return;
                    }
                }
                None => {
                    has_hints = false;
                    tracing::warn!(path = name, period = ?source.period, "no more change hints; reading by the clock only");
                }
            },
            // A timer loses nothing.
            () = sleep_until(due) => {}
            // A closed channel stays closed.
            () = updates.closed() => return,
        }
    }
}

/// Lets a burst of hints pass, and gathers what went.
async fn settle(hints: &mut dyn ChangeHints, gone: &mut Gone) {
    let burst = async {
        while let Ok(Some(more)) = timeout(QUIET, hints.next()).await {
            gone.extend(more);
        }
    };
    tokio::select! {
        // What is gathered stays, and the reading that follows answers the rest.
        () = burst => {}
        () = sleep(LONGEST_BURST) => {}
    }
}

#[cfg(test)]
mod tests;

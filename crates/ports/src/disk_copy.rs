//! The copy on disk of something that lives in memory, and whoever has to wait until it is true.
//!
//! One loop writes the copy; everybody else says that there is something new, and some wait until
//! what they noted is on disk: something that was given and that nobody remembers would be given
//! again after a restart.

use tokio::sync::{Notify, watch};

/// What became of the newest copy on disk.
#[derive(Clone, Debug, Default)]
struct Written {
    /// Which copy.
    copy: u64,
    /// Why it could not be written.
    fault: Option<String>,
}

/// Where the one who writes and those who wait meet.
#[derive(Debug, Default)]
pub struct DiskCopy {
    changed: Notify,
    written: watch::Sender<Written>,
}

impl DiskCopy {
    /// Says that there is something new to be written.
    pub fn touch(&self) {
        self.changed.notify_one();
    }

    /// Waits until there is something new. Cancel-safe: what was said and not waited for is
    /// remembered.
    pub async fn touched(&self) {
        self.changed.notified().await;
    }

    /// Says how writing the newest copy went.
    pub fn note(&self, outcome: Result<(), String>) {
        self.written.send_modify(|written| {
            *written = Written { copy: written.copy + 1, fault: outcome.err() };
        });
    }

    /// Waits until what was noted so far is on disk; else why it cannot be written.
    pub async fn settle(&self) -> Result<(), String> {
        let mut written = self.written.subscribe();
        // One that is being written may be older than what was noted; the one after it is not.
        let wanted = written.borrow_and_update().copy + 2;
        loop {
            self.touch();
            // Cannot end: the sender is ours.
            let _ = written.changed().await;
            let known = written.borrow_and_update().clone();
            if known.copy >= wanted {
                return known.fault.map_or(Ok(()), Err);
            }
        }
    }
}

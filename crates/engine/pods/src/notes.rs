//! What is noted of each pod for the agent's next life, in one file of the root directory.
//!
//! Workers note, and [`Notes::keep`] writes at once, since the world may have heard it when the agent
//! dies; what comes while it writes is written together. Nobody waits for the disk. A pod that is
//! gone is forgotten. Refuses: knowing what is noted; each [`Noted`] says how it is written.

use std::{collections::BTreeMap, convert::Infallible, sync::Mutex};

use ferrolet_ports::StateFiles;
use ferrolet_types::PodUid;
use tokio::sync::Notify;

/// What is noted of each pod.
pub(crate) type Book<T> = BTreeMap<PodUid, T>;

/// Something that is noted of a pod.
pub(crate) trait Noted: Clone + PartialEq {
    /// The file's name.
    const FILE: &'static str;

    fn encode(book: &Book<Self>) -> Vec<u8>;
    fn decode(content: &[u8]) -> Result<Book<Self>, String>;
}

/// The notes of every pod.
#[derive(Debug)]
pub(crate) struct Notes<T> {
    book: Mutex<Book<T>>,
    changed: Notify,
}

impl<T> Default for Notes<T> {
    fn default() -> Self {
        Self { book: Mutex::default(), changed: Notify::new() }
    }
}

impl<T: Noted> Notes<T> {
    /// Reads the file, once, before anybody notes anything. One that cannot be read is reported and
    /// begun anew.
    pub(crate) async fn load(&self, files: &dyn StateFiles) {
        let book = match files.read(T::FILE).await {
            Ok(content) => content.map_or_else(|| Ok(Book::new()), |it| T::decode(&it)),
            Err(error) => Err(error.to_string()),
        };
        match book {
            Ok(book) => self.edit(|noted| *noted = book),
            Err(error) => {
                tracing::warn!(file = T::FILE, error, "State file cannot be read and begins anew");
            }
        }
    }

    /// What was noted of one pod.
    pub(crate) fn of(&self, uid: &PodUid) -> Option<T> {
        self.edit(|book| book.get(uid).cloned())
    }

    /// Notes this now.
    pub(crate) fn note(&self, uid: &PodUid, told: T) {
        let is_new = self.edit(|book| {
            let is_new = book.get(uid) != Some(&told);
            if is_new {
                book.insert(uid.clone(), told);
            }
            is_new
        });
        if is_new {
            self.changed.notify_one();
        }
    }

    /// Keeps what is noted of these pods only.
    pub(crate) fn retain(&self, is_known: impl Fn(&PodUid) -> bool) {
        let is_less = self.edit(|book| {
            let before = book.len();
            book.retain(|uid, _| is_known(uid));
            book.len() < before
        });
        if is_less {
            self.changed.notify_one();
        }
    }

    /// Writes what was noted, for ever. Cancel-safe between two writes; each replaces the file in
    /// one step.
    pub(crate) async fn keep(&self, files: &dyn StateFiles) -> Infallible {
        loop {
            self.changed.notified().await;
            let content = self.edit(|book| T::encode(book));
            if let Err(error) = files.write(T::FILE, content).await {
                tracing::warn!(file = T::FILE, %error, "State file cannot be written");
            }
        }
    }

    fn edit<R>(&self, with: impl FnOnce(&mut Book<T>) -> R) -> R {
        with(&mut self.book.lock().expect("no panic while the lock is held"))
    }
}

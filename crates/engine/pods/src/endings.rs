//! Pods that the node ended for its own sake, kept on disk for the agent's next life:
//! `ended_pods_state` in the root directory.
//!
//! The API's status says so too, but only once the API server has heard of it. An agent that dies
//! before that, or while the server is away, would find the pod without containers and start it
//! anew on the node that had no room for it. Workers note their verdicts, and [`Endings::keep`]
//! writes them at once; what comes while it writes is written together. A pod that is gone is
//! forgotten. Refuses: deciding anything; deadlines, which follow from the pod itself.

use std::{collections::BTreeMap, convert::Infallible, sync::Mutex};

use ferrolet_pod::{EndReason, Ending};
use ferrolet_ports::StateFiles;
use ferrolet_types::PodUid;
use serde_json::{Value, json};
use tokio::sync::Notify;

const FILE: &str = "ended_pods_state";

type Book = BTreeMap<PodUid, Ending>;

/// Every pod that the node ended and that is still known.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    book: Mutex<Book>,
    changed: Notify,
}

impl Endings {
    /// Reads the file, once, before anybody notes anything. One that cannot be read is reported and
    /// begun anew: what the API knows is known anyway.
    pub(crate) async fn load(&self, files: &dyn StateFiles) {
        let book = match files.read(FILE).await {
            Ok(content) => content.map_or_else(|| Ok(Book::new()), |it| decode(&it)),
            Err(error) => Err(error.to_string()),
        };
        match book {
            Ok(book) => self.edit(|kept| *kept = book),
            Err(error) => {
                tracing::warn!(file = FILE, error, "Which pods were ended cannot be read");
            }
        }
    }

    /// Why the node ended a pod.
    pub(crate) fn of(&self, uid: &PodUid) -> Option<Ending> {
        self.edit(|book| book.get(uid).cloned())
    }

    /// Notes that the node ends a pod for its own sake.
    pub(crate) fn note(&self, uid: &PodUid, ending: &Ending) {
        if ending.reason == EndReason::DeadlineExceeded {
            return;
        }
        self.edit(|book| book.insert(uid.clone(), ending.clone()));
        self.changed.notify_one();
    }

    /// Keeps what is said of these pods only.
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
            let content = self.edit(|book| encode(book));
            if let Err(error) = files.write(FILE, content).await {
                tracing::warn!(%error, "Which pods were ended cannot be noted");
            }
        }
    }

    fn edit<T>(&self, with: impl FnOnce(&mut Book) -> T) -> T {
        with(&mut self.book.lock().expect("no panic while the lock is held"))
    }
}

fn encode(book: &Book) -> Vec<u8> {
    let told = |it: &Ending| {
        let (reason, message) = (it.reason.as_str(), &it.message);
        json!({"reason": reason, "message": message, "disruption": it.disruption})
    };
    let pods: BTreeMap<String, Value> =
        book.iter().map(|(uid, it)| (uid.to_string(), told(it))).collect();
    json!(pods).to_string().into_bytes()
}

fn decode(content: &[u8]) -> Result<Book, String> {
    let pods: BTreeMap<String, BTreeMap<String, Option<String>>> =
        serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let ending = |(uid, mut told): (String, BTreeMap<String, Option<String>>)| {
        let mut text = |name: &str| told.remove(name).flatten();
        let reason = text("reason").ok_or_else(|| format!("{uid}: no reason"))?;
        let mut ending =
            Ending::new(EndReason::parse(&reason), text("message").unwrap_or_default());
        ending.disruption = text("disruption");
        Ok((PodUid::new(uid), ending))
    };
    pods.into_iter().map(ending).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nonsense_is_refused() {
        let mut evicted = Ending::new(EndReason::Evicted, "too much");
        evicted.disruption = Some("short".to_owned());
        let preempted = Ending::new(EndReason::Preempting, "");
        let book = Book::from([("a".into(), evicted), ("b".into(), preempted)]);
        assert_eq!(decode(&encode(&book)), Ok(book));
        for bad in ["", "[]", r#"{"a": {}}"#, r#"{"a": {"reason": 1}}"#, "\u{0}"] {
            assert!(decode(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_deadline_is_not_noted() {
        let endings = Endings::default();
        endings.note(&"a".into(), &Ending::new(EndReason::DeadlineExceeded, ""));
        assert_eq!(endings.of(&"a".into()), None);
    }
}

//! What was told of the containers of static pods, kept on disk for the agent's next life:
//! `probe_results` in the root directory.
//!
//! The API remembers what was told of its pods; a manifest remembers nothing, and whenever the
//! agent restarts a healthy static pod would not be ready until its probes have run. Workers note
//! what they show, and [`Answers::keep`] writes it at once, since the world may have heard it when
//! the agent dies; what comes while it writes is written together. Nobody waits for the disk:
//! whoever is not remembered is probed first, as a new container is. What is kept names the very
//! container, so it never speaks of a later one. Refuses: deciding what a result means. ADR 0028.

use std::{collections::BTreeMap, convert::Infallible, sync::Mutex};

use ferrolet_ports::StateFiles;
use ferrolet_types::{ContainerId, PodUid, probe::Told};
use serde_json::{Value, json};
use tokio::sync::Notify;

const FILE: &str = "probe_results";

/// What was told of a pod's containers.
pub(crate) type Lives = BTreeMap<ContainerId, Told>;

type Book = BTreeMap<PodUid, Lives>;

/// What was told of every static pod.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    book: Mutex<Book>,
    changed: Notify,
}

impl Answers {
    /// Reads the file, once, before anybody notes anything. One that cannot be read is reported and
    /// begun anew: probes find everything out again.
    pub(crate) async fn load(&self, files: &dyn StateFiles) {
        let book = match files.read(FILE).await {
            Ok(content) => content.map_or_else(|| Ok(Book::new()), |it| decode(&it)),
            Err(error) => Err(error.to_string()),
        };
        match book {
            Ok(book) => self.edit(|kept| *kept = book),
            Err(error) => {
                tracing::warn!(
                    file = FILE,
                    error,
                    "What probes said cannot be read and begins anew"
                );
            }
        }
    }

    /// What was told of one pod.
    pub(crate) fn of(&self, uid: &PodUid) -> Lives {
        self.edit(|book| book.get(uid).cloned()).unwrap_or_default()
    }

    /// Notes what is told now.
    pub(crate) fn note(&self, uid: &PodUid, lives: Lives) {
        let is_new = self.edit(|book| {
            let is_new = book.get(uid) != Some(&lives);
            if is_new {
                book.insert(uid.clone(), lives);
            }
            is_new
        });
        if is_new {
            self.changed.notify_one();
        }
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
                tracing::warn!(%error, "What probes said cannot be noted");
            }
        }
    }

    fn edit<T>(&self, with: impl FnOnce(&mut Book) -> T) -> T {
        with(&mut self.book.lock().expect("no panic while the lock is held"))
    }
}

/// By pod and container: whether it had started, and whether it was ready.
fn encode(book: &Book) -> Vec<u8> {
    let lives = |lives: &Lives| -> BTreeMap<String, Value> {
        let lives = lives.iter();
        lives
            .map(|(id, told)| {
                let told = json!({"started": told.started, "ready": told.ready});
                (id.to_string(), told)
            })
            .collect()
    };
    let pods: BTreeMap<String, _> =
        book.iter().map(|(uid, it)| (uid.to_string(), lives(it))).collect();
    json!(pods).to_string().into_bytes()
}

fn decode(content: &[u8]) -> Result<Book, String> {
    let pods: BTreeMap<String, BTreeMap<String, BTreeMap<String, bool>>> =
        serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let lives = |lives: BTreeMap<String, BTreeMap<String, bool>>| -> Lives {
        let lives = lives.into_iter();
        lives
            .map(|(id, told)| {
                let is = |name| told.get(name) == Some(&true);
                let told = Told { started: is("started"), ready: is("ready") };
                (ContainerId::new(id), told)
            })
            .collect()
    };
    let pods = pods.into_iter();
    Ok(pods.map(|(uid, it)| (PodUid::new(uid), lives(it))).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferrolet_testkit::World;

    use super::*;

    fn told(started: bool, ready: bool) -> Lives {
        BTreeMap::from([("a1".into(), Told { started, ready })])
    }

    /// Runs the keeper until it has nothing to write.
    async fn settle(answers: &Answers, files: &dyn StateFiles) {
        tokio::select! {
            never = answers.keep(files) => match never {},
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_life_knows_what_was_told_of_pods_that_are_still_there() {
        let files = World::new().state_files();
        let (web, gone) = (PodUid::new("web"), PodUid::new("gone"));
        let answers = Answers::default();
        answers.note(&web, told(true, false));
        answers.note(&web, told(true, true));
        answers.note(&gone, told(false, false));
        settle(&answers, files.as_ref()).await;
        answers.retain(|uid| *uid != gone);
        settle(&answers, files.as_ref()).await;
        let next = Answers::default();
        next.load(files.as_ref()).await;
        assert_eq!(next.of(&web), told(true, true));
        assert_eq!(next.of(&gone), Lives::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_read_is_begun_anew() {
        let files = World::new().state_files();
        for content in ["", "[]", "{\"web\": {\"a1\": 3}}", "\u{0}"] {
            files.write(FILE, content.into()).await.unwrap();
            let answers = Answers::default();
            answers.load(files.as_ref()).await;
            let web = PodUid::new("web");
            assert_eq!(answers.of(&web), Lives::new(), "{content:?}");
            answers.note(&web, told(true, true));
            settle(&answers, files.as_ref()).await;
            let next = Answers::default();
            next.load(files.as_ref()).await;
            assert_eq!(next.of(&web), told(true, true), "{content:?}");
        }
    }
}

//! What was told of the containers of static pods, noted for the agent's next life in
//! `probe_results`.
//!
//! The API remembers what was told of its pods; a manifest remembers nothing, and whenever the
//! agent restarts a healthy static pod would not be ready until its probes have run. Whoever is not
//! remembered is probed first, as a new container is. What is noted names the very container, so it
//! never speaks of a later one. Refuses: deciding what a result means. ADR 0028.

use std::collections::BTreeMap;

use ferrolet_types::{ContainerId, PodUid, probe::Told};
use serde_json::{Value, json};

use crate::notes::{Book, Noted, Notes};

/// What was told of a pod's containers.
pub(crate) type Lives = BTreeMap<ContainerId, Told>;

/// What was told of every static pod.
pub(crate) type Answers = Notes<Lives>;

impl Noted for Lives {
    const FILE: &'static str = "probe_results";

    fn encode(book: &Book<Self>) -> Vec<u8> {
        encode(book)
    }

    fn decode(content: &[u8]) -> Result<Book<Self>, String> {
        decode(content)
    }
}

/// By pod and container: whether it had started, and whether it was ready.
fn encode(book: &Book<Lives>) -> Vec<u8> {
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

fn decode(content: &[u8]) -> Result<Book<Lives>, String> {
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

    use ferrolet_ports::StateFiles;
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
        assert_eq!(next.of(&web), Some(told(true, true)));
        assert_eq!(next.of(&gone), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_read_is_begun_anew() {
        let files = World::new().state_files();
        for content in ["", "[]", "{\"web\": {\"a1\": 3}}", "\u{0}"] {
            files.write(Lives::FILE, content.into()).await.unwrap();
            let answers = Answers::default();
            answers.load(files.as_ref()).await;
            let web = PodUid::new("web");
            assert_eq!(answers.of(&web), None, "{content:?}");
            answers.note(&web, told(true, true));
            settle(&answers, files.as_ref()).await;
            let next = Answers::default();
            next.load(files.as_ref()).await;
            assert_eq!(next.of(&web), Some(told(true, true)), "{content:?}");
        }
    }
}

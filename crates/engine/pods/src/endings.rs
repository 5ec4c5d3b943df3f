//! Pods that the node ended for its own sake, noted for the agent's next life in
//! `ended_pods_state`.
//!
//! The API's status says so too, but only once the API server has heard of it. An agent that dies
//! before that, or while the server is away, would find the pod without containers and start it
//! anew on the node that had no room for it. What the API knows is known anyway. Refuses: deciding
//! anything; deadlines, which follow from the pod itself.

use std::collections::BTreeMap;

use ferrolet_pod::{EndReason, Ending};
use ferrolet_types::PodUid;
use serde_json::{Value, json};

use crate::notes::{Book, Noted, Notes};

/// Every pod that the node ended and that is still known.
pub(crate) type Endings = Notes<Ending>;

impl Noted for Ending {
    const FILE: &'static str = "ended_pods_state";

    fn encode(book: &Book<Self>) -> Vec<u8> {
        encode(book)
    }

    fn decode(content: &[u8]) -> Result<Book<Self>, String> {
        decode(content)
    }
}

impl Endings {
    /// Notes a verdict that does not follow from the pod itself.
    pub(crate) fn note_verdict(&self, uid: &PodUid, ending: &Ending) {
        if ending.reason != EndReason::DeadlineExceeded {
            self.note(uid, ending.clone());
        }
    }
}

fn encode(book: &Book<Ending>) -> Vec<u8> {
    let told = |it: &Ending| {
        let (reason, message) = (it.reason.as_str(), &it.message);
        json!({"reason": reason, "message": message, "disruption": it.disruption})
    };
    let pods: BTreeMap<String, Value> =
        book.iter().map(|(uid, it)| (uid.to_string(), told(it))).collect();
    json!(pods).to_string().into_bytes()
}

fn decode(content: &[u8]) -> Result<Book<Ending>, String> {
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
        endings.note_verdict(&"a".into(), &Ending::new(EndReason::DeadlineExceeded, ""));
        assert_eq!(endings.of(&"a".into()), None);
    }
}

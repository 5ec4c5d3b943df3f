//! An agent that starts the pods it is given and leaves, as `--run-once-within` asks for.
//!
//! ```text
//!  merge ─► note_wanted ─► pods        which pods there are, noted until every source has spoken
//!               └─► await_all ◄─ Board  each runs or has ended: leave; time is over: leave with an error
//! ```
//!
//! Leaving ends no pod. Whether a pod has come up is decided in `status`; here is only the waiting.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_ports::PodsView;
use ferrolet_status::{OncePod, OnceVerdict, Patience, judge_once};
use ferrolet_types::{PodChange, PodChanges, PodUid, pod::PodView as _};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

/// How often pods are looked at. The mode lasts for seconds, and nobody tells when all sources
/// together are content.
const LOOK: Duration = Duration::from_millis(100);

/// The pods that were asked for, by identity, each with its name; nothing before every source has
/// spoken.
pub type WantedPods = Option<BTreeMap<PodUid, String>>;

/// Why an agent that should start its pods once has not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OnceError {
    /// These pods are not up.
    #[error("pods did not come up: {}", .0.join("; "))]
    Lost(Vec<String>),
    /// Nobody knows which pods there are.
    #[error("not every source of pods has spoken in time")]
    Silent,
}

/// Passes changes on as they are, and notes which pods they leave.
pub async fn note_wanted(
    mut changes: mpsc::Receiver<PodChanges>,
    onwards: mpsc::Sender<PodChanges>,
    wanted: watch::Sender<WantedPods>,
) {
    let mut known = BTreeMap::new();
    while let Some(told) = changes.recv().await {
        for change in &told.changes {
            let pod = change.pod();
            match change {
                PodChange::Removed(_) => known.remove(&pod.uid()),
                PodChange::Added(_)
                | PodChange::Updated(_)
                | PodChange::Deleting(_)
                | PodChange::Reconcile(_) => known.insert(pod.uid(), pod.key().to_string()),
            };
        }
        if told.all_sources_ready {
            wanted.send_replace(Some(known.clone()));
        }
        if onwards.send(told).await.is_err() {
            return;
        }
    }
}

/// Waits until every wanted pod has come up; an error names those that have not.
pub async fn await_all(
    wanted: watch::Receiver<WantedPods>,
    pods: Arc<dyn PodsView>,
    within: Duration,
) -> Result<(), OnceError> {
    let deadline = Instant::now() + within;
    loop {
        let patience = match Instant::now() < deadline {
            true => Patience::Left,
            false => Patience::Over,
        };
        let asked_for = wanted.borrow().clone();
        match (asked_for, patience) {
            (Some(asked_for), patience) => match judge_once(&shown(asked_for, &*pods), patience) {
                OnceVerdict::Waiting => {}
                OnceVerdict::Done => {
                    tracing::info!("Every pod has been started once; leaving, and pods go on");
                    return Ok(());
                }
                OnceVerdict::Failed(lost) => return Err(OnceError::Lost(lost)),
            },
            (None, Patience::Over) => return Err(OnceError::Silent),
            (None, Patience::Left) => {}
        }
        sleep(LOOK).await;
    }
}

fn shown(asked_for: BTreeMap<PodUid, String>, pods: &dyn PodsView) -> Vec<OncePod> {
    let all = pods.pods();
    asked_for
        .into_iter()
        .map(|(uid, name)| OncePod {
            name,
            shown: all.iter().find(|pod| pod.uid() == uid).cloned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ferrolet_types::{Pod, pod::PodSource};
    use serde_json::json;

    use super::*;

    #[derive(Default)]
    struct Shown(Mutex<Vec<Pod>>);

    impl PodsView for Shown {
        fn pods(&self) -> Vec<Pod> {
            self.0.lock().unwrap().clone()
        }
    }

    fn pod(name: &str, phase: &str) -> Pod {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"containers": []}, "status": {"phase": phase},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn told(changes: Vec<PodChange>, all_sources_ready: bool) -> PodChanges {
        PodChanges { source: PodSource::File, changes, all_sources_ready }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pods_of_all_sources_are_noted_on_their_way() {
        let (sender, changes) = mpsc::channel(4);
        let (onwards, mut arrived) = mpsc::channel(4);
        let (wanted_sender, wanted) = watch::channel(None);
        let passing = tokio::spawn(note_wanted(changes, onwards, wanted_sender));
        let (a, b) = (pod("a", "Pending"), pod("b", "Pending"));
        let first = told(vec![PodChange::Added(a.clone())], false);
        sender.send(first.clone()).await.unwrap();
        assert_eq!(arrived.recv().await, Some(first));
        assert_eq!(*wanted.borrow(), None, "a source has not spoken");
        let second = vec![PodChange::Removed(a), PodChange::Added(b)];
        sender.send(told(second, true)).await.unwrap();
        arrived.recv().await.unwrap();
        let names: Vec<String> = wanted.borrow().iter().flatten().map(|it| it.1.clone()).collect();
        assert_eq!(names, ["n/b"]);
        drop(sender);
        passing.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_agent_leaves_when_all_have_come_up_or_says_which_have_not() {
        let wanted = |names: &[&str]| {
            let all = names.iter().map(|it| (PodUid::new(*it), format!("n/{it}")));
            watch::channel(Some(all.collect::<BTreeMap<_, _>>())).1
        };
        let within = Duration::from_secs(60);
        let pods = Arc::new(Shown::default());
        let waiting = tokio::spawn(await_all(wanted(&["a", "b"]), pods.clone(), within));
        *pods.0.lock().unwrap() = vec![pod("a", "Succeeded")];
        sleep(Duration::from_secs(10)).await;
        assert!(!waiting.is_finished(), "b was never looked at");
        pods.0.lock().unwrap().push(pod("b", "Running"));
        waiting.await.unwrap().unwrap();

        *pods.0.lock().unwrap() = vec![pod("a", "Succeeded"), pod("b", "Pending")];
        let began = Instant::now();
        let ended = await_all(wanted(&["a", "b"]), pods.clone(), within).await;
        assert_eq!(ended.unwrap_err().to_string(), "pods did not come up: n/b: Pending");
        assert_eq!(began.elapsed().as_secs(), 60);
        let silent = watch::channel(None).1;
        let ended = await_all(silent, pods, within).await;
        assert!(ended.unwrap_err().to_string().contains("source"));
    }
}

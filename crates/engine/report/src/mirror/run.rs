//! The loop that keeps the mirrors: looks at every change of the three views, does what the plan
//! says, tries again later.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_node::NodeState;
use ferrolet_ports::{ApiError, ApiErrorKind, ClusterApi};
use ferrolet_types::{GracePeriod, Pod, PodKey, PodUid, pod::PodView as _};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::plan::{MirrorAction, StaticPods, Translations, plan_mirrors, plan_translations};

/// First and longest pause after something failed.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(7);
/// How long a mirror that was created may take to show in the watch before it counts as missing
/// again.
const SHOW_TIME: Duration = Duration::from_secs(5);

/// What the loop sees and says.
pub struct MirrorDoors {
    /// The cluster.
    pub api: Arc<dyn ClusterApi>,
    /// Our static pods.
    pub statics: watch::Receiver<StaticPods>,
    /// The API's pods of this node; `None` until the first list.
    pub api_pods: watch::Receiver<Option<Vec<Pod>>>,
    /// This node.
    pub node: watch::Receiver<Arc<NodeState>>,
    /// Which identities mean each other.
    pub translations: watch::Sender<Translations>,
}

/// Keeps the mirrors until one of its views ends.
pub async fn run(mut doors: MirrorDoors) {
    let mut made: BTreeMap<PodKey, (PodUid, Instant)> = BTreeMap::new();
    let mut pause = Duration::ZERO;
    loop {
        let wake_at = turn(&mut doors, &mut made, &mut pause).await;
        let timer = async {
            match wake_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        // Waiting for a change of a watch is cancel-safe: what is not seen stays changed.
        let goes_on = tokio::select! {
            changed = doors.statics.changed() => changed.is_ok(),
            changed = doors.api_pods.changed() => changed.is_ok(),
            changed = doors.node.changed() => changed.is_ok(),
            () = timer => true,
        };
        if !goes_on {
            return;
        }
    }
}

/// One look and what follows from it; answers when to look again at the latest.
async fn turn(
    doors: &mut MirrorDoors,
    made: &mut BTreeMap<PodKey, (PodUid, Instant)>,
    pause: &mut Duration,
) -> Option<Instant> {
    let statics = doors.statics.borrow_and_update().clone();
    // Before the first list a mirror that is missing may just not have been seen.
    let api_pods = doors.api_pods.borrow_and_update().clone()?;
    let node = doors.node.borrow_and_update().object.clone();
    doors.translations.send_if_modified(|known| {
        let current = plan_translations(&statics, &api_pods);
        let is_new = *known != current;
        *known = current;
        is_new
    });
    let now = Instant::now();
    // Once the watch has shown it, its absence means that it was deleted.
    made.retain(|_, (uid, due)| *due > now && !api_pods.iter().any(|pod| pod.uid() == *uid));
    let mut has_failed = false;
    for action in plan_mirrors(&statics, &api_pods, node.as_deref()) {
        if matches!(&action, MirrorAction::Create(pod) if made.contains_key(&pod.key())) {
            continue;
        }
        match execute(&*doors.api, &action).await {
            Ok(Some(pod)) => {
                made.insert(pod.key(), (pod.uid(), Instant::now() + SHOW_TIME));
            }
            Ok(None) => {}
            Err(error) => {
                has_failed = true;
                tracing::warn!(%error, "Failed to bring a mirror pod up to date");
            }
        }
    }
    *pause =
        if has_failed { (*pause * 2).clamp(RETRY_FIRST, RETRY_LONGEST) } else { Duration::ZERO };
    let retry = has_failed.then(|| Instant::now() + *pause);
    retry.into_iter().chain(made.values().map(|(_, due)| *due)).min()
}

/// Does one thing; answers with the mirror if that is what it made.
async fn execute(api: &dyn ClusterApi, action: &MirrorAction) -> Result<Option<Pod>, ApiError> {
    match action {
        MirrorAction::Delete { key, uid } => {
            tracing::info!(pod = %key, podUID = %uid, "Deleting a mirror pod");
            let no_grace = Some(GracePeriod::from_secs(0));
            match api.delete_pod(key, uid, no_grace).await {
                // Somebody else was faster, and that is as good.
                Err(error) if !error.is_not_found() && error.kind != ApiErrorKind::Conflict => {
                    Err(error)
                }
                Ok(()) | Err(_) => Ok(None),
            }
        }
        MirrorAction::Create(pod) => {
            tracing::info!(pod = %pod.key(), "Creating a mirror pod for static pod");
            api.create_pod(pod).await.map(Some)
        }
    }
}

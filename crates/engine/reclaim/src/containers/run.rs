//! The loop: once a minute, and once at the start.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ferrolet_ports::{
    Clock, Event, EventKind, EventObject, Events, HostError, LogStore, PodsView, Runtime,
    RuntimeError,
};
use ferrolet_types::{
    GracePeriod,
    pod::{Phase, PodView as _},
};
use tokio::time::sleep;

use super::plan::{Dead, Policy, dead_links, excess, remains};

const PERIOD: Duration = Duration::from_secs(60);
/// A container that nobody knows about gets no time: whatever it was, it is not watched any more.
const AT_ONCE: GracePeriod = GracePeriod(Duration::ZERO);

/// The doors of container collection.
pub struct Doors {
    /// Containers.
    pub runtime: Arc<dyn Runtime>,
    /// Pods whose containers are kept within limits.
    pub pods: Arc<dyn PodsView>,
    /// Links to logs.
    pub logs: Arc<dyn LogStore>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// Why a round could not be finished.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Links(#[from] HostError),
}

/// Collects remains for ever.
pub async fn run(doors: Doors, policy: Policy) {
    run_shared(Arc::new(doors), policy).await;
}

/// Collects remains for ever, beside whoever asks for more.
pub(crate) async fn run_shared(doors: Arc<Doors>, policy: Policy) {
    loop {
        if let Err(error) = collect(&doors, &policy).await {
            tracing::error!(%error, "Container garbage collection failed");
            doors.events.record(Event {
                object: EventObject::Node,
                kind: EventKind::Warning,
                reason: "ContainerGCFailed".to_owned(),
                message: error.to_string(),
            });
        }
        sleep(PERIOD).await;
    }
}

/// Removes what is left of pods that have ended, and what is beyond the limits; answers with how
/// many went.
pub(crate) async fn remove_remains(doors: &Doors, policy: &Policy) -> Result<usize, RuntimeError> {
    let listing = doors.runtime.list().await?;
    let (mut known, mut ended) = (BTreeSet::new(), BTreeSet::new());
    for pod in doors.pods.pods() {
        let has_ended = pod.api_phase().is_some_and(Phase::is_terminal);
        let uids = if has_ended { &mut ended } else { &mut known };
        uids.insert(pod.uid());
    }
    let (mut n_removed, mut failure) = (0, None);
    for dead in remains(policy, &listing, (&known, &ended), doors.clock.now()) {
        tracing::info!(container = %dead.id, "Removing dead container to free bytes");
        match remove(doors, &dead).await {
            Ok(()) => n_removed += 1,
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(n_removed), Err)
}

async fn collect(doors: &Doors, policy: &Policy) -> Result<(), RoundError> {
    let listing = doors.runtime.list().await?;
    let known = doors.pods.pods().iter().map(|pod| pod.uid()).collect();
    for dead in excess(policy, &listing, &known, doors.clock.now()) {
        tracing::info!(container = %dead.id, "Removing dead container");
        // One that the runtime will not let go of is no reason for the others to stay; it is asked
        // for again with the next round.
        if let Err(error) = remove(doors, &dead).await {
            tracing::error!(container = %dead.id, %error, "A dead container cannot be removed");
        }
    }
    // Links first, then what lives: a container made in between is alive when it is looked for.
    let dangling = doors.logs.dangling_links().await?;
    if dangling.is_empty() {
        return Ok(());
    }
    let listing = doors.runtime.list().await?;
    for link in dead_links(dangling, &listing) {
        tracing::debug!(link, "Removing link to a log that is gone");
        if let Err(error) = doors.logs.remove_link(&link).await {
            tracing::error!(link, %error, "A link to a log that is gone cannot be removed");
        }
    }
    Ok(())
}

async fn remove(doors: &Doors, dead: &Dead) -> Result<(), RuntimeError> {
    if dead.is_unknown {
        doors.runtime.stop_container(&dead.id, AT_ONCE).await?;
    }
    doors.runtime.remove_container(&dead.id).await
}

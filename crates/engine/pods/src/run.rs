//! The loop around the dispatcher: everything that can wake it, in one select.

use std::{pin::pin, sync::Arc, time::Duration};

use ferrolet_node::NodeState;
use ferrolet_ports::{PodCgroups, StoredPod};
use ferrolet_resources::ClassBounds;
use ferrolet_types::{
    Eviction, PodChanges, PodKey, PodUid, VolumeHealthReport, hint::Hint, probe::ProbeReport,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, interval_at, sleep, timeout},
};

use crate::{
    LoopHealth, World,
    dispatch::{Dispatcher, Event},
    userns::remember,
};

/// Upstream's period for resizes that wait for room nobody told of.
const RETRY_RESIZES: Duration = Duration::from_secs(180);

/// Upstream's period for the bounds of classes.
const BOUND_AGAIN: Duration = Duration::from_secs(60);
/// First and longest pause before what an earlier life left is listed again.
const LIST_AGAIN_FIRST: Duration = Duration::from_millis(200);
const LIST_AGAIN_LONGEST: Duration = Duration::from_secs(10);

/// What the sync loop listens to.
pub struct Inputs {
    /// Changes of pods, from the sources.
    pub changes: mpsc::Receiver<PodChanges>,
    /// Hints from the runtime.
    pub hints: mpsc::Receiver<Hint>,
    /// Reports of probes.
    pub probes: mpsc::UnboundedReceiver<ProbeReport>,
    /// Pods whose volumes were refused and are ready now.
    pub volumes_ready: mpsc::Receiver<PodUid>,
    /// What drivers say of volumes, when that changes.
    pub volume_health: mpsc::Receiver<VolumeHealthReport>,
    /// Pods whose devices feel different, or whose plugin is back.
    pub devices: mpsc::Receiver<PodUid>,
    /// Pods whose claimed devices feel different, or whose driver is back.
    pub claims: mpsc::Receiver<PodUid>,
    /// Pods that the node cannot afford any longer.
    pub evictions: mpsc::Receiver<Eviction>,
}

/// Runs the sync loop until the sources are closed. Pods go on running after it: an agent that
/// leaves is not an end of pods.
pub async fn run(world: Arc<World>, mut inputs: Inputs, pulse: Arc<LoopHealth>) {
    let mut dispatcher = Dispatcher::new(world.clone());
    let mut keeper = pin!(world.records.keep(world.state_files.as_ref()));
    let mut second_keeper = pin!(world.answers.keep(world.state_files.as_ref()));
    let mut third_keeper = pin!(world.endings.keep(world.state_files.as_ref()));
    let (together, changes_together) = watch::channel(ClassBounds::default());
    let mut classes = pin!(bound_classes(world.cgroups.as_ref(), changes_together));
    let mut retry = interval_at(Instant::now() + RETRY_RESIZES, RETRY_RESIZES);
    let (left_over, mut found) = mpsc::channel(1);
    let mut search = Some(left_over);
    let mut earlier = pin!(look_back(&world));
    let mut knows_earlier = false;
    let mut node = world.watch_node();
    dispatcher.handle(network(&mut node));
    loop {
        pulse.beat();
        let event = tokio::select! {
            // The rarest first: wishes never wait behind a crowd of hints, and a run on paused time
            // can be repeated.
            biased;
            // Polled on where it was: the future is kept, not made anew. A disk that hangs holds up
            // new pods only.
            stored = &mut earlier, if !knows_earlier => {
                knows_earlier = true;
                dispatcher.were_granted(world.records.allocated());
                Event::Earlier(stored)
            }
            // Receiving from a channel is cancel-safe: a message is taken only when it is returned.
            // Before pods of an earlier life are known, nobody can tell whether a pod was taken
            // before.
            changes = inputs.changes.recv(), if knows_earlier => match changes {
                Some(changes) => Event::Changes(changes),
                None => return,
            },
            // A watch keeps its newest value, so a dropped wait loses nothing.
            Ok(()) = node.changed() => network(&mut node),
            Some(found) = found.recv() => Event::LeftOver(found),
            ended = dispatcher.worker_ended() => ended,
            Some(eviction) = inputs.evictions.recv() => Event::Evicted(eviction),
            Some(report) = inputs.probes.recv() => Event::Probed(report),
            Some(uid) = inputs.volumes_ready.recv() => Event::VolumesReady(uid),
            Some(report) = inputs.volume_health.recv() => Event::VolumeHealth(report),
            Some(uid) = inputs.devices.recv() => Event::DevicesChanged(uid),
            Some(uid) = inputs.claims.recv() => Event::DevicesChanged(uid),
            Some(hint) = inputs.hints.recv() => Event::Hint(hint),
            // A tick that was not waited for comes at once the next time.
            _ = retry.tick() => Event::RetryResizes,
            // Goes on where it stopped: the future lives outside the loop.
            never = &mut keeper => match never {},
            never = &mut second_keeper => match never {},
            never = &mut third_keeper => match never {},
            () = &mut classes => unreachable!("the bounds' sender lives as long as this loop"),
            // A timer loses nothing.
            () = tokio::time::sleep(pulse.period()) => continue,
        };
        let is_about_pods = event.is_about_pods();
        dispatcher.handle(event);
        if is_about_pods {
            let bounds = dispatcher.class_bounds();
            together.send_if_modified(|old| std::mem::replace(old, bounds) != bounds);
        }
        if dispatcher.all_sources_ready()
            && let Some(left_over) = search.take()
        {
            tokio::spawn(search_left_overs(world.clone(), left_over));
        }
    }
}

/// Whether pods can be connected, as the node knows it now.
fn network(node: &mut watch::Receiver<Arc<NodeState>>) -> Event {
    let trouble = node.borrow_and_update().facts.runtime.network_trouble();
    Event::Network(trouble.map(Arc::from))
}

/// Learns what an earlier life of the agent left: who was taken, what was granted, and whose user
/// ids are taken.
async fn look_back(world: &World) -> Vec<StoredPod> {
    world.records.load(world.state_files.as_ref()).await;
    world.answers.load(world.state_files.as_ref()).await;
    world.endings.load(world.state_files.as_ref()).await;
    let mut pause = LIST_AGAIN_FIRST;
    let stored = loop {
        // A pod that runs and is not known to have been taken would be judged anew, and turned away
        // from a node that is full with itself. While its directories cannot be listed, no pod
        // could be started either.
        match world.files.list().await {
            Ok(stored) => break stored,
            Err(error) => {
                tracing::warn!(%error, "Pods of an earlier life cannot be listed, trying again");
                sleep(pause).await;
                pause = (pause * 2).min(LIST_AGAIN_LONGEST);
            }
        }
    };
    for pod in &stored {
        remember(world, &pod.uid).await;
    }
    stored
}

/// Gives the classes of pods what these have together, whenever that changes, and every minute
/// again: somebody else may have written there.
async fn bound_classes(cgroups: &dyn PodCgroups, mut changes: watch::Receiver<ClassBounds>) {
    // Nothing is known before the first change.
    let mut has_begun = false;
    loop {
        match timeout(BOUND_AGAIN, changes.changed()).await {
            Ok(Ok(())) => has_begun = true,
            Ok(Err(_)) => return,
            Err(_elapsed) if !has_begun => continue,
            Err(_elapsed) => {}
        }
        let bounds = *changes.borrow_and_update();
        if let Err(error) = cgroups.bound_classes(bounds).await {
            tracing::warn!(%error, ?bounds, "Classes of pods cannot be given what they have together");
        }
    }
}

/// Looks for what pods of an earlier life left on the node, until it has seen everything.
async fn search_left_overs(world: Arc<World>, answer: mpsc::Sender<Vec<(PodUid, Option<PodKey>)>>) {
    let (mut has_files, mut has_cgroups) = (false, false);
    let mut pause = LIST_AGAIN_FIRST;
    loop {
        let mut found: Vec<(PodUid, Option<PodKey>)> = Vec::new();
        if !has_files {
            match world.files.list().await {
                Ok(stored) => {
                    has_files = true;
                    found.extend(stored.into_iter().map(|pod| (pod.uid, pod.key)));
                }
                Err(error) => {
                    tracing::warn!(%error, "Directories of earlier pods cannot be listed")
                }
            }
        }
        if !has_cgroups {
            match world.cgroups.list().await {
                Ok(uids) => {
                    has_cgroups = true;
                    found.extend(uids.into_iter().map(|uid| (uid, None)));
                }
                Err(error) => tracing::warn!(%error, "Cgroups of earlier pods cannot be listed"),
            }
        }
        // The dispatcher may be gone already; then nobody needs the answer.
        if answer.send(found).await.is_err() || has_files && has_cgroups {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LIST_AGAIN_LONGEST);
    }
}

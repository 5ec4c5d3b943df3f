//! The sync loop put together: the doors of workers, what wakes the dispatcher, and what others
//! need of it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use ferrolet_ports::{Fut, Part};
use ferrolet_types::{
    Eviction, PodChanges, PodUid, VolumeHealthReport, hint::Hint, probe::ProbeReport,
};
use tokio::sync::{mpsc, watch};

use crate::{
    Doors, Inputs, LoopHealth, PodSettings, World, check_resolver, metrics,
    once::{self, OnceError},
    run, working_pods,
};

/// Orders to end pods on their way to the dispatcher.
const EVICTIONS: usize = 16;
/// Changes on their way through an agent that starts pods once.
const CHANGES: usize = 50;

/// What pods are made by on this node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How pods are made here.
    pub making: PodSettings,
    /// The node's resolver, looked at once when the agent begins.
    pub resolv_conf: Option<PathBuf>,
    /// The agent leaves when every pod has come up, or after this long.
    pub once_within: Option<Duration>,
}

/// What wakes the dispatcher.
pub struct Wakers {
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
}

/// What others need of the sync loop.
pub struct Pods {
    /// What workers share.
    pub world: Arc<World>,
    /// Where pods are named that the node cannot afford any longer.
    pub evictions: mpsc::Sender<Eviction>,
    /// The loop turns.
    pub pulse: Arc<LoopHealth>,
    /// Ends when an agent that starts pods once has done so; `None` for one that stays.
    pub finished: Option<Fut<'static, Result<(), OnceError>>>,
}

/// Puts the loop together.
pub fn build(settings: Settings, doors: Doors, wakers: Wakers) -> (Pods, Part) {
    metrics::begin();
    let mut part = Part::new("pods").with_metrics(working_pods());
    let (evictions, evicted) = mpsc::channel(EVICTIONS);
    let pulse = Arc::new(LoopHealth::new(settings.making.sync_frequency));
    part.checks.push(pulse.clone());
    let (changes, finished) = match settings.once_within {
        None => (wakers.changes, None),
        Some(within) => {
            let (onwards, noted) = mpsc::channel(CHANGES);
            let (wanted_sender, wanted) = watch::channel(None);
            part.add_loop(once::note_wanted(wakers.changes, onwards, wanted_sender));
            let finished = once::await_all(wanted, doors.board.clone(), within);
            (noted, Some(Box::pin(finished) as Fut<'static, _>))
        }
    };
    let (names, events) = (doors.names.clone(), doors.events.clone());
    let (resolv_conf, domain) = (settings.resolv_conf, settings.making.cluster_domain.clone());
    let world = Arc::new(World::new(doors, settings.making));
    let inputs = Inputs {
        changes,
        hints: wakers.hints,
        probes: wakers.probes,
        volumes_ready: wakers.volumes_ready,
        volume_health: wakers.volume_health,
        devices: wakers.devices,
        claims: wakers.claims,
        evictions: evicted,
    };
    let dispatching = run(world.clone(), inputs, pulse.clone());
    part.add_loop(async move {
        let checking = async {
            if let Some(path) = resolv_conf {
                check_resolver(&path, &domain, names.as_ref(), events.as_ref()).await;
            }
        };
        // No pod waits for the look at the resolver.
        tokio::join!(dispatching, checking);
    });
    (Pods { world, evictions, pulse, finished }, part)
}

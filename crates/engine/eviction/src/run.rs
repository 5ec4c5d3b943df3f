//! The loop: look, reclaim, evict one, wait.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ferrolet_config::config::Threshold;
use ferrolet_eviction::{
    Candidate, FileSystems, GraceLimits, Memory, NodeReclaim, Observations, Outlook,
    Pressure as Short, StarvedResource, effective_thresholds, look, node_reclaim, rank,
    resource_of, still_met, verdict,
};
use ferrolet_node::Pressure;
use ferrolet_ports::{
    Detail, Event, EventKind, EventObject, MeansReading, RuntimeError, StorePlaces, Tally, metrics,
};
use ferrolet_types::{ContainerId, Eviction, EvictionReason, Pod, PodUid, pod::PodView as _};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    Doors, Policy, Settings,
    candidates::{Measured, candidate, is_active},
    lines::lines,
    observe::{layout, observations},
};

/// Upstream looks this often.
const PERIOD: Duration = Duration::from_secs(10);
/// An alarm is taken up after this long: memory that swings around a line costs no more than ten looks
/// a second.
const ALARM_PAUSE: Duration = Duration::from_millis(100);
/// How long a victim gets to leave before somebody else is looked for, and how often it is looked
/// for.
const CLEANUP: Duration = Duration::from_secs(30);
const CLEANUP_POLL: Duration = Duration::from_millis(500);
/// After a start pods that ran before are taken over one by one: for this long nobody is evicted
/// while some of them are still unknown, and it is looked again soon.
const TAKING_OVER: Duration = Duration::from_secs(30);
const TAKING_OVER_POLL: Duration = Duration::from_secs(1);
/// Where stores are is asked again now and then: a runtime may come back with other ones.
const STORES_AGE: Duration = Duration::from_secs(300);
/// A runtime that does not answer keeps nobody from looking at memory.
const STORES_WAIT: Duration = Duration::from_secs(2);
/// What pods have on disk is known after this long, or pods are judged without it.
const WALK_WAIT: Duration = Duration::from_secs(60);

/// The watch over the node's means.
pub(crate) struct Watch {
    settings: Settings,
    /// What is in force of the settings.
    policy: Policy,
    doors: Doors,
    pressure: watch::Sender<Pressure>,
    tally: Arc<Tally>,
    memory: Memory,
    stores: StorePlaces,
    stores_asked: Option<Instant>,
    layout: FileSystems,
    /// When the alarm was set, and whether the kernel took it.
    armed: Option<(Instant, bool)>,
    has_read: bool,
    began: Instant,
}

/// What one look came to.
enum Looked {
    /// Nothing to wait for.
    Done,
    /// Somebody has to go, and not everybody is known yet.
    TooEarly,
    /// This pod has to go.
    Evicted(PodUid),
}

impl Watch {
    pub(crate) fn new(
        settings: Settings,
        doors: Doors,
        pressure: watch::Sender<Pressure>,
        tally: Arc<Tally>,
    ) -> Self {
        let policy = settings.policy.borrow().clone();
        Self {
            policy,
            settings,
            doors,
            pressure,
            tally,
            memory: Memory::default(),
            stores: StorePlaces::default(),
            stores_asked: None,
            layout: FileSystems::One,
            armed: None,
            has_read: true,
            began: Instant::now(),
        }
    }

    /// Watches until nobody takes orders any more.
    pub(crate) async fn run(mut self) {
        while !self.doors.evictions.is_closed() {
            self.take_policy();
            if self.policy.thresholds.is_empty() {
                tracing::info!(
                    "No eviction thresholds are set: nothing is evicted for the node's sake"
                );
                self.memory = Memory::default();
                self.show(&BTreeSet::new());
                if self.settings.policy.changed().await.is_err() {
                    return std::future::pending().await;
                }
                continue;
            }
            match self.look().await {
                Looked::Done => self.rest().await,
                Looked::TooEarly => sleep(TAKING_OVER_POLL).await,
                Looked::Evicted(uid) => self.await_cleanup(&uid).await,
            }
        }
    }

    /// Follows a configuration that was read again.
    fn take_policy(&mut self) {
        let news = self.settings.policy.borrow_and_update().clone();
        if news != self.policy {
            self.policy = news;
            // The kernel is to ring at other amounts.
            self.armed = None;
        }
    }

    async fn rest(&mut self) {
        tokio::select! {
            // All lose nothing: a timer, an alarm that remembers that it rang, and a policy that
            // remembers that it changed.
            () = sleep(PERIOD) => {}
            Ok(()) = self.settings.policy.changed() => {}
            () = self.doors.alarm.rings() => {
                tracing::info!("The kernel says that memory runs short");
                sleep(ALARM_PAUSE).await;
            }
        }
    }

    async fn look(&mut self) -> Looked {
        self.ask_for_stores().await;
        let Some(reading) = self.read().await else {
            return Looked::Done;
        };
        self.learn_layout(&reading);
        let thresholds = effective_thresholds(
            &self.policy.thresholds,
            self.layout,
            self.settings.is_pods_enforced,
        );
        let seen = observations(&reading, self.settings.huge_page_bytes);
        let now = self.doors.clock.now();
        let outlook = look(&thresholds, self.policy.transition, &self.memory, &seen, now);
        self.memory = outlook.memory.clone();
        self.show(&outlook.pressures);
        self.arm(&thresholds, &reading).await;
        self.act(&thresholds, &outlook, &seen).await
    }

    /// Does something about the first threshold that is due.
    async fn act(
        &mut self,
        thresholds: &[Threshold],
        outlook: &Outlook,
        seen: &Observations,
    ) -> Looked {
        let Some(threshold) = outlook.due.first() else {
            return Looked::Done;
        };
        let resource = resource_of(threshold.signal);
        tracing::warn!(signal = threshold.signal.as_str(), %resource, "The node runs short");
        self.doors.events.record(Event {
            object: EventObject::Node,
            kind: EventKind::Warning,
            reason: "EvictionThresholdMet".to_owned(),
            message: format!("Attempting to reclaim {resource}"),
        });
        if self.reclaim(threshold, thresholds).await {
            tracing::info!(%resource, "Pressure is reduced without evicting pods");
            return Looked::Done;
        }
        let (measured, n_strangers) = self.measure(resource).await;
        if n_strangers > 0 && self.began.elapsed() < TAKING_OVER {
            tracing::info!(n_strangers, "Nobody is evicted before all pods are known");
            return Looked::TooEarly;
        }
        let candidates = self.candidates(&measured);
        if candidates.is_empty() {
            tracing::error!(%resource, "Eviction thresholds have been met, but no pods are active to evict");
            return Looked::Done;
        }
        self.note_ages(&outlook.due, seen);
        let ranked = rank(threshold.signal, self.layout, &candidates);
        let Some(victim) = ranked.first() else {
            tracing::error!(%resource, "Unable to evict any pods from the node");
            return Looked::Done;
        };
        let limits = GraceLimits { max_pod: self.policy.max_pod_grace };
        let verdict = verdict(victim, threshold, &outlook.due, seen, limits);
        tracing::warn!(pod = victim.name, pod_uid = %victim.uid, why = verdict.message, "Evicting pod");
        let annotations = verdict.annotations.into_iter();
        let eviction = Eviction {
            uid: victim.uid.clone(),
            reason: EvictionReason::Evicted,
            disruption: Some(verdict.message.clone()),
            message: verdict.message,
            annotations: annotations.map(|(key, it)| (key.to_owned(), it)).collect(),
            grace: Some(verdict.grace),
        };
        if self.doors.evictions.send(eviction).await.is_err() {
            return Looked::Done;
        }
        self.tally.add(metrics::KUBELET_EVICTIONS, [threshold.signal.as_str()], 1.0);
        Looked::Evicted(victim.uid.clone())
    }

    /// Gives up what the node can do without; true when nothing is short any more.
    async fn reclaim(&mut self, threshold: &Threshold, thresholds: &[Threshold]) -> bool {
        let given_up = node_reclaim(threshold.signal, self.layout);
        for what in given_up {
            let removed = match what {
                NodeReclaim::DeadContainers => self.doors.collectors.remove_dead_containers().await,
                NodeReclaim::UnusedImages => self.doors.collectors.remove_unused_images().await,
            };
            report(*what, removed);
        }
        if given_up.is_empty() {
            return false;
        }
        let Some(reading) = self.read().await else {
            return false;
        };
        !still_met(thresholds, &observations(&reading, self.settings.huge_page_bytes))
    }

    /// What pods use of what is short, and how many have cgroups that nobody has shown yet.
    async fn measure(&self, resource: StarvedResource) -> (Measured, usize) {
        let (mut measured, mut n_strangers) = (Measured::default(), 0);
        match self.doors.usage.snapshot(Duration::ZERO).await {
            Ok(snapshot) => {
                let pods = self.doors.pods.pods();
                let known: BTreeSet<PodUid> = pods.iter().map(|pod| pod.uid()).collect();
                n_strangers = snapshot.pods.iter().filter(|it| !known.contains(&it.uid)).count();
                measured = measured.with_memory(&snapshot);
            }
            Err(error) => tracing::warn!(%error, "What pods use cannot be read"),
        }
        match resource {
            StarvedResource::Memory => {}
            StarvedResource::Pids => {
                let detail = Detail::Summary(Arc::new(known_containers(&self.doors.pods.pods())));
                match self.doors.usage.figures(detail, Duration::ZERO).await {
                    Ok(figures) => measured = measured.with_processes(&figures),
                    Err(error) => tracing::warn!(%error, "Processes of pods cannot be counted"),
                }
            }
            StarvedResource::EphemeralStorage | StarvedResource::Inodes => {
                measured = self.with_disks(measured).await;
            }
        }
        (measured, n_strangers)
    }

    /// The pods that run here, as they were granted their resources.
    fn candidates(&self, measured: &Measured) -> Vec<Candidate> {
        let pods = self.doors.pods.pods().into_iter().filter(is_active);
        pods.map(|pod| candidate(&self.doors.grants.granted(&pod), measured)).collect()
    }

    async fn with_disks(&self, mut measured: Measured) -> Measured {
        let asked =
            async { tokio::join!(self.doors.stores.written_layers(), self.doors.usage.disk()) };
        let Ok((layers, disk)) = timeout(WALK_WAIT, asked).await else {
            tracing::warn!("What pods have on disk is not known in time");
            return measured;
        };
        match layers {
            Ok(layers) => measured = measured.with_layers(&layers),
            Err(error) => tracing::warn!(%error, "The runtime does not say what containers wrote"),
        }
        match disk {
            Ok(disk) => measured = measured.with_disk(&disk),
            Err(error) => tracing::warn!(%error, "What pods have on disk cannot be measured"),
        }
        measured
    }

    fn note_ages(&self, due: &[Threshold], seen: &Observations) {
        let now = self.doors.clock.now();
        for threshold in due {
            if let Some(at) = seen.get(&threshold.signal).and_then(|it| it.at) {
                let histogram = metrics::KUBELET_EVICTION_STATS_AGE_SECONDS;
                let age = now.since(at).as_secs_f64();
                self.tally.observe(histogram, [threshold.signal.as_str()], age);
            }
        }
    }

    /// Waits until nothing of a victim runs any more: its cgroup is gone.
    async fn await_cleanup(&self, uid: &PodUid) {
        let gone = async {
            loop {
                sleep(CLEANUP_POLL).await;
                match self.doors.usage.snapshot(Duration::ZERO).await {
                    Ok(snapshot) if snapshot.pods.iter().all(|it| it.uid != *uid) => return,
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "What pods use cannot be read"),
                }
            }
        };
        match timeout(CLEANUP, gone).await {
            Ok(()) => tracing::info!(pod_uid = %uid, "Evicted pod is gone"),
            Err(_elapsed) => tracing::warn!(pod_uid = %uid, "Evicted pod is still there"),
        }
    }

    async fn read(&mut self) -> Option<MeansReading> {
        match self.doors.means.read_means(&self.stores).await {
            Ok(reading) => {
                self.has_read = true;
                Some(reading)
            }
            Err(error) => {
                // Said once, not every ten seconds.
                if std::mem::take(&mut self.has_read) {
                    tracing::error!(%error, "What is left on the node cannot be read");
                }
                None
            }
        }
    }

    /// Asks the runtime where its stores are, while that is not known or has become old.
    async fn ask_for_stores(&mut self) {
        let is_known = self.stores.images.is_some();
        let is_fresh = self.stores_asked.is_some_and(|at| at.elapsed() < STORES_AGE);
        if is_known && is_fresh {
            return;
        }
        match timeout(STORES_WAIT, self.doors.stores.stores()).await {
            Ok(Ok(stores)) => {
                let place = |it: &Option<ferrolet_ports::StoreUsage>| {
                    it.as_ref().map(|it| it.place.clone()).filter(|it| !it.is_empty())
                };
                let (images, containers) = (place(&stores.images), place(&stores.containers));
                self.stores = StorePlaces { containers: containers.or(images.clone()), images };
                self.stores_asked = Some(Instant::now());
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "The runtime does not say where its stores are")
            }
            Err(_elapsed) => tracing::debug!("The runtime does not answer where its stores are"),
        }
    }

    fn learn_layout(&mut self, reading: &MeansReading) {
        let Some(layout) = layout(reading).filter(|it| *it != self.layout) else {
            return;
        };
        tracing::info!(?layout, "Where images and containers lie is known");
        self.layout = layout;
        // Thresholds are remembered by their place in the list, which depends on the layout.
        self.memory.met_since.clear();
        self.memory.due.clear();
    }

    fn show(&self, pressures: &BTreeSet<Short>) {
        let new = Pressure {
            memory: pressures.contains(&Short::Memory),
            disk: pressures.contains(&Short::Disk),
            pid: pressures.contains(&Short::Pid),
        };
        let is_news = self.pressure.send_if_modified(|old| std::mem::replace(old, new) != new);
        if is_news {
            tracing::info!(
                memory = new.memory,
                disk = new.disk,
                pid = new.pid,
                "Pressure on the node"
            );
        }
    }

    /// Sets the kernel's alarm anew, as often as the loop looks by itself.
    async fn arm(&mut self, thresholds: &[Threshold], reading: &MeansReading) {
        if self.armed.is_some_and(|(at, _)| at.elapsed() < PERIOD) {
            return;
        }
        let was_taken = self.armed.is_none_or(|(_, is_taken)| is_taken);
        let lines = lines(thresholds, reading, self.settings.huge_page_bytes);
        let armed = self.doors.alarm.arm(lines).await;
        if let Err(error) = &armed
            && was_taken
        {
            tracing::info!(%error, "The kernel will not say when memory runs short; it is looked at every 10 s");
        }
        self.armed = Some((Instant::now(), armed.is_ok()));
    }
}

fn known_containers(pods: &[Pod]) -> std::collections::HashSet<ContainerId> {
    let ids = pods.iter().flat_map(|pod| ferrolet_pod::container_ids(pod));
    ids.map(|(_, id)| ContainerId::new(id)).collect()
}

fn report(what: NodeReclaim, removed: Result<usize, RuntimeError>) {
    match removed {
        Ok(n_removed) => tracing::info!(?what, n_removed, "Given up for the node's sake"),
        Err(error) => tracing::warn!(?what, %error, "Not everything could be given up"),
    }
}

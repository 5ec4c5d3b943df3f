//! The shell: gathers objects, asks the pure modules, and has the host do it.
//!
//! One attempt at a time per pod (its [`Turn`](crate::kept::Turn)), all volumes of the pod side by side; a volume that hangs or
//! fails holds up its own pod only. `ensure` is called by the pod's worker, [`VolumeEngine::refresh`] is the loop that
//! rewrites volumes of running pods when an object changed or a token is due. Both are the same attempt.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{
    Clock, ClusterObjects, CsiDrivers, Event, EventKind, EventObject, Events, FlexDrivers, Fut,
    ObjectChange, Payload, PodVolumes, ProvidedVolumes, RegisteredDriver, Retry, Room,
    StorageObjects, SubPath, SubPathBind, VolumeError, VolumeFiles, VolumeMount, VolumePlace,
};
use ferrolet_resources::Amounts;
use ferrolet_types::{Pod, PodUid, Timestamp};
use futures::future::join_all;
use tokio::{
    sync::{
        Notify, Semaphore,
        broadcast::{
            self,
            error::{RecvError, TryRecvError},
        },
        mpsc, watch,
    },
    task::JoinSet,
    time::Instant,
};

use crate::{
    credentials::Credentials,
    csi::{self, CsiShell, InUse},
    fault::{Fault, Step},
    figures::{Progress, Standing},
    flex::{self, Attaching, FlexShell},
    gather::{Needs, gather, gather_certificates, gather_claims, gather_trust, needs_of},
    host_path::{Expected, Verdict, judge},
    kept::{Ending, Memory, refers_to},
    numbers::volume_numbers,
    operations,
    pauses::Pauses,
    payload::{Gathered, compute},
    plan::{Desired, PlannedVolume, PodPlan, plan_pod},
    provide::{Provider, Shared},
    provided::{Backing, Provided},
    renewal::{back_off, renewal},
    selinux::SelinuxNode,
    unready::{Unready, rejection, to_tell},
};

const FAILED_MOUNT: &str = "FailedMount";
/// Appointments are kept by the wall clock, which may be set; a look now and then keeps sleep and wall together.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);
/// How often a driver that asks for it is told again to publish, as often as upstream looks at a settled pod.
const REPUBLISH: Duration = Duration::from_secs(60);
/// Pods rewritten at the same time; a change that concerns all of them must not take the whole machine.
const MOST_REFRESHES: usize = 16;

/// What the engine is made from.
pub struct Doors {
    /// Directories and mounts.
    pub files: Arc<dyn VolumeFiles>,
    /// Mounts of what others provide.
    pub mounts: Arc<dyn ProvidedVolumes>,
    /// Objects and tokens; a node on its own has none.
    pub objects: Option<Arc<dyn ClusterObjects>>,
    /// Claims and what they are bound to; a node on its own has none.
    pub storage: Option<Arc<dyn StorageObjects>>,
    /// Drivers that are registered on this node.
    pub drivers: Arc<dyn CsiDrivers>,
    /// Drivers of the old kind that are installed on this node.
    pub flex: Arc<dyn FlexDrivers>,
    /// Who attaches their volumes.
    pub attaching: Attaching,
    /// This node's name in the API.
    pub node_name: String,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// What the node has for pods: stands in for missing limits, and bounds memory.
    pub allocatable: Amounts,
    /// File systems that can are to keep account of volumes' sizes.
    pub meters_volumes: bool,
    /// What SELinux calls things here; a node without it has nothing to say.
    pub selinux: Option<SelinuxNode>,
    /// How often objects are looked at when their changes are not announced (strategies other than watch).
    pub look_again: Option<Duration>,
    /// Hears of pods whose volumes were refused by `ensure` and have become ready since.
    pub became_ready: Option<mpsc::Sender<PodUid>>,
}

/// The pod volumes engine.
pub struct VolumeEngine {
    pub(crate) doors: Doors,
    pub(crate) standing: Standing,
    credentials: Credentials,
    pauses: Pauses,
    memory: Memory,
    pub(crate) shared: Shared,
    pub(crate) csi: csi::Kept,
    flex: flex::Kept,
    appointments_changed: Notify,
    refreshes: Semaphore,
}

/// Which volumes of a pod an attempt is about.
enum About<'a> {
    All,
    Changed(&'a BTreeSet<ObjectChange>),
    Files,
}

type SetUp = Result<(String, VolumeMount), Unready>;

impl VolumeEngine {
    /// Takes the doors; touches nothing.
    pub fn new(doors: Doors) -> Self {
        Self {
            doors,
            standing: Standing::default(),
            credentials: Credentials::default(),
            pauses: Pauses::default(),
            memory: Memory::default(),
            shared: Shared::default(),
            csi: csi::Kept::default(),
            flex: flex::Kept::default(),
            appointments_changed: Notify::new(),
            refreshes: Semaphore::new(MOST_REFRESHES),
        }
    }

    /// Attachable volumes in use on this node, and every change of them.
    pub fn volumes_in_use(&self) -> watch::Receiver<InUse> {
        self.csi.in_use()
    }

    /// Takes away what drivers still hold for nobody, each time drivers come, until no more can come.
    pub async fn follow_drivers(
        self: Arc<Self>,
        mut drivers: watch::Receiver<BTreeMap<String, RegisteredDriver>>,
    ) {
        self.flex_shell().recall().await;
        self.recall_disks().await;
        if let Some(shell) = self.csi_shell() {
            shell.recall().await;
        }
        // Side by side: a disk or a program that hangs does not keep drivers from being asked.
        let leftovers = async {
            self.provider().sweep_disks().await;
            self.flex_shell().sweep().await;
        };
        let following = async {
            loop {
                let names: BTreeSet<String> = drivers.borrow_and_update().keys().cloned().collect();
                if !names.is_empty() {
                    self.sweep(&names).await;
                }
                if drivers.changed().await.is_err() {
                    return;
                }
            }
        };
        futures::join!(leftovers, following);
    }

    pub(crate) async fn sweep(&self, registered: &BTreeSet<String>) {
        if let Some(shell) = self.csi_shell() {
            shell.sweep(registered).await;
        }
    }

    /// Rewrites volumes of running pods when objects change and tokens come of age, until the news end.
    pub async fn refresh(self: Arc<Self>, mut news: broadcast::Receiver<ObjectChange>) {
        let mut attempts: JoinSet<()> = JoinSet::new();
        loop {
            let due = self.memory.next_due();
            tokio::select! {
                // Cancel-safe: a message is taken only when this arm wins.
                first = news.recv() => match first {
                    Ok(first) => self.begin_changed(first, &mut news, &mut attempts),
                    // Something may have changed that we were not told of.
                    Err(RecvError::Lagged(_)) => self.begin_all(&mut attempts),
                    Err(RecvError::Closed) => break,
                },
                // Cancel-safe: appointments stay where they are until they are taken below.
                () = self.until(due) => {
                    for uid in self.memory.take_due(self.doors.clock.now()) {
                        attempts.spawn(Arc::clone(&self).refresh_due(uid));
                    }
                }
                // Cancel-safe: a lost notice only means that the next turn of the loop looks by itself.
                () = self.appointments_changed.notified() => {}
                // Cancel-safe: a finished task stays in the set until it is taken.
                Some(ended) = attempts.join_next() => {
                    if let Err(panic) = ended {
                        tracing::error!(%panic, "Refresh of a pod's volumes broke off");
                    }
                }
            }
        }
        while attempts.join_next().await.is_some() {}
    }

    fn begin_changed(
        self: &Arc<Self>,
        first: ObjectChange,
        news: &mut broadcast::Receiver<ObjectChange>,
        attempts: &mut JoinSet<()>,
    ) {
        let mut changes = BTreeSet::from([first]);
        // Told together, done together.
        loop {
            match news.try_recv() {
                Ok(more) => changes.insert(more),
                Err(TryRecvError::Lagged(_)) => return self.begin_all(attempts),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
        }
        let changes = Arc::new(changes);
        for uid in self.memory.affected(&changes) {
            attempts.spawn(Arc::clone(self).refresh_changed(uid, Arc::clone(&changes)));
        }
    }

    fn begin_all(self: &Arc<Self>, attempts: &mut JoinSet<()>) {
        for uid in self.memory.all() {
            attempts.spawn(Arc::clone(self).refresh_due(uid));
        }
    }

    async fn until(&self, due: Option<Timestamp>) {
        match due {
            Some(due) => {
                let wait = due.since(self.doors.clock.now());
                tokio::time::sleep(wait.min(LONGEST_SLEEP)).await;
            }
            None => std::future::pending().await,
        }
    }

    async fn refresh_changed(self: Arc<Self>, uid: PodUid, changes: Arc<BTreeSet<ObjectChange>>) {
        self.refresh_pod(&uid, About::Changed(&changes)).await;
    }

    async fn refresh_due(self: Arc<Self>, uid: PodUid) {
        self.refresh_pod(&uid, About::Files).await;
    }

    async fn refresh_pod(&self, uid: &PodUid, about: About<'_>) {
        let slot = self.refreshes.acquire().await;
        let _slot = slot.expect("the line of refreshes is never closed");
        let turn = self.memory.turn(uid);
        let _turn = turn.lock().await;
        let Some(plan) = self.memory.plan(uid) else {
            // Released while we waited.
            return self.memory.forget(uid);
        };
        let outcomes = self.attempt(&plan, about).await;
        if self.memory.is_awaited(uid) {
            // The pod has not started: its worker tries again, and says why it must.
            return;
        }
        for outcome in outcomes {
            if let Err(Unready { error, .. }) = outcome
                && !error.is_expected()
            {
                self.say_of_pod(&plan, error.reason, error.message);
            }
        }
    }

    /// Makes the volumes what they should be, side by side, and makes the next appointment.
    async fn attempt(&self, plan: &PodPlan, about: About<'_>) -> Vec<SetUp> {
        let is_wanted = |volume: &&PlannedVolume| match about {
            About::All => true,
            About::Changed(changes) => refers_to(plan, volume, changes),
            About::Files => match volume.desired {
                Desired::Files { .. } => true,
                Desired::Claim(_) | Desired::Provided(_) => self.is_looked_after(&plan.uid),
                _ => false,
            },
        };
        let volumes: Vec<&PlannedVolume> = plan.volumes.iter().filter(is_wanted).collect();
        let needs = needs_of(volumes.iter().copied());
        let objects = self.doors.objects.as_deref();
        let storage = self.doors.storage.as_deref();
        let began = Instant::now();
        let now = self.doors.clock.now();
        let (mut gathered, claims, trust, (certificates, said)) = futures::join!(
            gather(objects, &plan.key.namespace, &needs),
            gather_claims(storage, plan, &volumes),
            gather_trust(storage, &needs),
            gather_certificates(storage, &self.credentials, &needs, now)
        );
        for (reason, message) in said {
            self.say_of_pod(plan, reason, message);
        }
        gathered.certificates = certificates;
        gathered.claims = claims;
        gathered.trust = trust;
        let gathering = began.elapsed();
        let attempts = volumes.iter().map(|volume| self.set_up_or_say(plan, volume, &gathered));
        let outcomes = join_all(attempts).await;
        if outcomes.iter().all(Result::is_ok) {
            tracing::debug!(
                pod = %plan.key,
                n_volumes = outcomes.len(),
                gathered = ?gathering,
                made = ?began.elapsed().saturating_sub(gathering),
                "Volumes are ready"
            );
        }
        let tokens = self.next_renewal(&plan.uid, &needs, &gathered);
        self.appoint(&plan.uid, &about, tokens, &outcomes);
        outcomes
    }

    fn next_renewal(&self, uid: &PodUid, needs: &Needs, gathered: &Gathered) -> Option<Timestamp> {
        let now = self.doors.clock.now();
        let tokens = needs.tokens.iter().filter_map(|ask| {
            let token = gathered.tokens.get(ask)?.as_ref().ok()?;
            Some(renewal(ask, token, now))
        });
        let look_again = self.doors.look_again.filter(|_| !needs.objects.is_empty());
        // Neither drivers nor claims announce themselves.
        let republish = self.is_looked_after(uid).then_some(REPUBLISH);
        let periods = look_again.into_iter().chain(republish);
        let certificates = self.credentials.due(uid, now);
        tokens.chain(periods.map(|period| now.after(period))).chain(certificates).min()
    }

    /// True when drivers want some volume of the pod looked at from time to time.
    fn is_looked_after(&self, uid: &PodUid) -> bool {
        self.csi.is_looked_after(uid) || self.flex.is_looked_after(uid)
    }

    fn say_of_pod(&self, plan: &PodPlan, reason: &str, message: String) {
        self.doors.events.record(Event {
            object: EventObject::Pod {
                uid: plan.uid.clone(),
                key: plan.key.clone(),
                field_path: None,
            },
            kind: EventKind::Warning,
            reason: reason.to_owned(),
            message,
        });
    }

    fn appoint(
        &self,
        uid: &PodUid,
        about: &About<'_>,
        tokens: Option<Timestamp>,
        outcomes: &[SetUp],
    ) {
        let now = self.doors.clock.now();
        let faults = || outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        let tokens = tokens.or_else(|| self.memory.due(uid));
        let ending = if faults().next().is_none() {
            Ending::Ready(tokens)
        } else {
            let is_ours_to_retry =
                matches!(about, About::Changed(_) | About::Files) && !self.memory.is_awaited(uid);
            let can_pass = is_ours_to_retry
                && faults().any(|it| !it.awaits_objects && it.error.retry != Retry::Never);
            let again = can_pass.then(|| now.after(back_off(self.memory.count_failure(uid))));
            Ending::NotReady(again.into_iter().chain(tokens).min())
        };
        let was_awaited = self.memory.note(uid, ending);
        if let Some(sender) = self.doors.became_ready.as_ref().filter(|_| was_awaited) {
            // A full channel only means that the worker finds out by itself, a little later.
            sender.try_send(uid.clone()).ok();
        }
        self.appointments_changed.notify_one();
    }

    async fn set_up_or_say(
        &self,
        plan: &PodPlan,
        volume: &PlannedVolume,
        gathered: &Gathered,
    ) -> SetUp {
        let name = &volume.name;
        let now = self.doors.clock.now();
        if let Some(refusal) = self.pauses.refusal(&plan.uid, name, now) {
            return Err(Unready::paused(refusal));
        }
        let resolved = gathered.claims.get(name).and_then(|it| it.as_ref().ok());
        let plugin = operations::plugin_of(volume, resolved);
        volume_numbers().wanted(&plan.uid, name, plugin);
        let work = self.set_up(plan, volume, gathered);
        match operations::mount(volume, resolved, work).await {
            Ok(mount) => {
                volume_numbers().here(&plan.uid, name);
                self.pauses.succeeded(&plan.uid, name);
                Ok((name.clone(), mount))
            }
            Err(fault) => {
                // A persistent volume is named by its own name, as upstream does.
                let resolved = gathered.claims.get(name);
                let shown = match resolved {
                    Some(Ok(provided)) if fault.step != Step::Process => &provided.spec_name,
                    _ => name,
                };
                let error = VolumeError {
                    volume: Some(name.clone()),
                    reason: fault.reason(),
                    message: fault.sentence(shown),
                    retry: fault.retry,
                };
                if fault.wants_pause {
                    let now = self.doors.clock.now();
                    self.pauses.failed(&plan.uid, name, &error, now);
                }
                Err(Unready {
                    error,
                    step: fault.step,
                    awaits_objects: fault.awaits_objects,
                    full: fault.full,
                })
            }
        }
    }

    async fn set_up(
        &self,
        plan: &PodPlan,
        volume: &PlannedVolume,
        gathered: &Gathered,
    ) -> Result<VolumeMount, Fault> {
        match &volume.desired {
            Desired::HostPath { path, expected } => {
                self.check_host_path(path, expected).await?;
                Ok(mount_of(path.clone(), false, false))
            }
            Desired::EmptyDir { medium } => {
                let room = Room {
                    marker: volume.name.clone(),
                    medium: *medium,
                    group: plan.group,
                    is_metered: plan.has_own_users && self.doors.meters_volumes,
                };
                let place = self.make_room(plan, volume, &room).await?;
                Ok(mount_of(self.path_of(&place), false, true))
            }
            Desired::Files { medium, sources, mount_points, .. } => {
                let files = compute(&volume.name, sources, gathered).map_err(|fault| Fault {
                    awaits_objects: fault.awaits_objects,
                    ..Fault::later(fault.message)
                })?;
                let room = Room {
                    marker: format!("wrapped_{}", volume.name),
                    medium: *medium,
                    group: plan.group,
                    is_metered: false,
                };
                let place = self.make_room(plan, volume, &room).await?;
                let payload =
                    Payload { files, mount_points: mount_points.clone(), group: plan.group };
                self.doors.files.write_payload(&place, &payload).await?;
                Ok(mount_of(self.path_of(&place), true, true))
            }
            Desired::Image { reference } => Ok(VolumeMount {
                image: Some(reference.clone()),
                ..mount_of(String::new(), true, true)
            }),
            Desired::Claim(_) => {
                let resolved = gathered.claims.get(&volume.name);
                let unknown = || Fault::unprocessed("the claim was not looked up".to_owned());
                let resolved = resolved.ok_or_else(unknown)?.clone();
                let provided = resolved.map_err(|missing| Fault::unprocessed(missing.message))?;
                self.provide_noted(plan, volume, &provided).await
            }
            Desired::Provided(provided) => self.provide_noted(plan, volume, provided).await,
            Desired::Impossible(why) => Err(Fault::lasting(why.clone())),
            Desired::Unsupported(kind) => {
                Err(Fault::lasting(format!("volumes of kind {kind} are not supported yet"))
                    .at(Step::Process))
            }
        }
    }

    /// The same as [`Self::provide`]; who asks later how the volume is will know of it.
    async fn provide_noted(
        &self,
        plan: &PodPlan,
        volume: &PlannedVolume,
        provided: &Provided,
    ) -> Result<VolumeMount, Fault> {
        self.note_standing(plan, &volume.name, provided, Progress::Tried);
        let mount = self.provide(plan, volume, provided).await?;
        self.note_standing(plan, &volume.name, provided, Progress::Ready);
        Ok(mount)
    }

    async fn provide(
        &self,
        plan: &PodPlan,
        planned: &PlannedVolume,
        provided: &Provided,
    ) -> Result<VolumeMount, Fault> {
        let label = self.selinux_label(plan, planned, provided)?;
        if let Some(why) = &provided.affinity_fault {
            return Err(Fault::later(why.clone()).at(Step::Affinity));
        }
        match &provided.backing {
            Backing::HostPath { path, expected } => {
                self.check_host_path(path, expected).await?;
                Ok(VolumeMount {
                    group: provided.group,
                    ..mount_of(path.clone(), provided.is_read_only, false)
                })
            }
            Backing::Csi(volume) => {
                let why = "volumes of drivers need a cluster".to_owned();
                let shell = self.csi_shell().ok_or_else(|| Fault::unprocessed(why))?;
                shell.set_up(plan, provided, volume, label).await
            }
            Backing::Disk(volume) => {
                self.await_disk(plan, volume).await?;
                let whole = self.with_secrets(plan, volume).await?;
                let provided = Provided { backing: Backing::Disk(whole), ..provided.clone() };
                self.provider().set_up(plan, &provided).await
            }
            Backing::Flex(volume) => self.flex_shell().set_up(plan, provided, volume).await,
            _ => self.provider().set_up(plan, provided).await,
        }
    }

    pub(crate) fn flex_shell(&self) -> FlexShell<'_> {
        FlexShell {
            drivers: self.doors.flex.as_ref(),
            storage: self.doors.storage.as_deref(),
            provider: self.provider(),
            kept: &self.flex,
            in_use: &self.csi,
            node_name: &self.doors.node_name,
            clock: self.doors.clock.as_ref(),
            attaching: self.doors.attaching,
        }
    }

    pub(crate) fn csi_shell(&self) -> Option<CsiShell<'_>> {
        Some(CsiShell {
            drivers: self.doors.drivers.as_ref(),
            storage: self.doors.storage.as_deref()?,
            objects: self.doors.objects.as_deref(),
            provider: self.provider(),
            kept: &self.csi,
            node_name: &self.doors.node_name,
            clock: self.doors.clock.as_ref(),
        })
    }

    pub(crate) fn provider(&self) -> Provider<'_> {
        Provider {
            files: self.doors.files.as_ref(),
            mounts: self.doors.mounts.as_ref(),
            events: self.doors.events.as_ref(),
            shared: &self.shared,
            in_use: &self.csi,
        }
    }

    async fn make_room(
        &self,
        plan: &PodPlan,
        volume: &PlannedVolume,
        room: &Room,
    ) -> Result<VolumePlace, Fault> {
        let place = volume.place(&plan.uid);
        let place = place.expect("a volume that needs room has a place");
        self.doors.files.ensure_room(&place, room).await?;
        Ok(place)
    }

    fn path_of(&self, place: &VolumePlace) -> String {
        self.doors.files.volume_path(place).display().to_string()
    }

    async fn check_host_path(&self, path: &str, expected: &Expected) -> Result<(), Fault> {
        if *expected == Expected::Anything {
            return Ok(());
        }
        let files = &self.doors.files;
        let found = files.path_kind(path).await;
        let found = found.map_err(|error| error.to_string());
        match judge(path, expected, &found) {
            Verdict::Fine => Ok(()),
            Verdict::MakeDirectory => Ok(files.make_directory(path).await?),
            Verdict::MakeFile => Ok(files.make_file(path).await?),
            Verdict::Wrong(message) => Err(Fault::later(message)),
        }
    }
}

pub(crate) fn mount_of(
    host_path: String,
    is_read_only: bool,
    selinux_relabel: bool,
) -> VolumeMount {
    VolumeMount { host_path, is_read_only, image: None, selinux_relabel, device: None, group: None }
}

impl PodVolumes for VolumeEngine {
    fn ensure<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> Fut<'a, Result<BTreeMap<String, VolumeMount>, VolumeError>> {
        Box::pin(async move {
            let plan = Arc::new(plan_pod(pod, &self.doors.allocatable));
            if plan.volumes.is_empty() {
                return Ok(BTreeMap::new());
            }
            let turn = self.memory.turn(&plan.uid);
            let _turn = turn.lock().await;
            if let Some(objects) = &self.doors.objects {
                objects.register(pod);
            }
            self.memory.keep(Arc::clone(&plan));
            let outcomes = self.attempt(&plan, About::All).await;
            let mut ready = BTreeMap::new();
            let mut failed = Vec::new();
            for outcome in outcomes {
                match outcome {
                    Ok((name, mount)) => drop(ready.insert(name, mount)),
                    Err(unready) => failed.push(unready),
                }
            }
            if failed.is_empty() {
                return Ok(ready);
            }
            let now = self.doors.clock.now();
            let waiting = now.since(self.memory.await_ready(&plan.uid, now));
            if let Some((driver, refusal)) = rejection(&failed, waiting) {
                if let Err(error) = self.doors.drivers.look_again(&driver).await {
                    tracing::warn!(driver, %error, "Driver does not say how many volumes this node takes");
                }
                return Err(refusal);
            }
            let mut told = to_tell(failed, waiting).into_iter();
            let first = told.next().expect("one failed");
            // The pod's worker tells of the one that it is answered with.
            told.for_each(|it| self.say_of_pod(&plan, it.reason, it.message));
            Err(first)
        })
    }

    fn sub_path<'a>(&'a self, part: &'a SubPath) -> Fut<'a, Result<String, VolumeError>> {
        Box::pin(async move {
            let turn = self.memory.turn(&part.uid);
            let _turn = turn.lock().await;
            let bind = SubPathBind {
                uid: part.uid.clone(),
                volume: part.volume.clone(),
                volume_path: part.host_path.clone().into(),
                path: part.path.clone(),
                container: part.container.clone(),
                index: part.index,
            };
            let bound = self.doors.files.bind_sub_path(&bind).await;
            let place = bound.map_err(|error| {
                // The event must not tell what the node's file system looks like; the log may.
                tracing::warn!(pod = %part.uid, container = %part.container, %error, "Sub path cannot be mounted");
                VolumeError {
                    volume: Some(part.volume.clone()),
                    reason: FAILED_MOUNT,
                    message: format!(
                        "failed to prepare subPath for volumeMount {:?} of container {:?}",
                        part.volume, part.container
                    ),
                    retry: error.retry,
                }
            })?;
            Ok(place.display().to_string())
        })
    }

    fn release<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), VolumeError>> {
        Box::pin(async move {
            let turn = self.memory.turn(uid);
            let _turn = turn.lock().await;
            volume_numbers().leaving(uid);
            self.release_stored(uid).await?;
            self.release_node(uid).await?;
            if let Some(shell) = self.csi_shell() {
                // What was staged and never published left nothing in the pod's directory.
                let drivers = self.csi.drivers_left(uid);
                if !drivers.is_empty() {
                    shell.sweep(&drivers).await;
                }
            }
            if let Some(objects) = &self.doors.objects {
                objects.unregister(uid);
            }
            self.memory.forget(uid);
            self.standing.forget(uid);
            self.credentials.forget(uid);
            self.pauses.forget(uid);
            volume_numbers().gone(uid);
            Ok(())
        })
    }
}

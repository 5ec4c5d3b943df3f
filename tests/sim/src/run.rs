//! Plays a plan: events in, the first broken invariant out.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Once},
    time::Duration,
};

use ferrolet_ports::{ExecOutput, RuntimeErrorKind};
use ferrolet_testkit::{Entry, World};
use ferrolet_types::{
    Eviction, EvictionReason, GracePeriod, Pod, PodUid, Timestamp, observed::ContainerState,
    pod::PodView as _,
};
use k8s_openapi::{api::core::v1::EphemeralContainer, apimachinery::pkg::apis::meta::v1::Time};
use tokio::time::sleep;

use crate::{
    Event,
    agent::Agent,
    bench::{Bench, NODE, as_read},
    check::Books,
    expect,
    manners::TALKERS,
    plan::{CALLS, N_SLOTS},
    shape::{HERE, HERE_TOO, Shape, bound, stock},
    watch::StatusWatch,
};

/// Long enough for every back-off and every hung call.
const IN_THE_END: Duration = Duration::from_secs(1000);
/// Longer than a probe takes to change its mind, with its jitter and the container's own start.
const LONGEST_DOUBT: Duration = Duration::from_secs(60);
/// Journal lines that a failure shows.
const TAIL: usize = 50;

/// A run in which everything held.
#[derive(Debug)]
pub struct Story {
    /// Everything that happened.
    pub journal: Vec<Entry>,
}

/// A run in which something did not hold.
#[derive(Debug)]
pub struct Failure {
    /// The event after which it showed; `None` in the end.
    pub after: Option<(usize, Event)>,
    /// What.
    pub what: String,
    /// The last lines of the journal.
    pub tail: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        match &self.after {
            Some((index, event)) => writeln!(f, "after event {index}: {event:?}")?,
            None => writeln!(f, "after the last event, when nothing went wrong any more")?,
        }
        self.tail.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Plays a plan from the first event to the last, then heals the world and waits for everything to
/// come right.
pub fn run(events: &[Event]) -> Result<Story, Box<Failure>> {
    count_panics();
    // The jitter of probes: the same in every run.
    fastrand::seed(0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing");
    runtime.block_on(async {
        let mut sim = Sim::new();
        for (index, event) in events.iter().enumerate() {
            let outcome = sim.play(event).await;
            outcome.map_err(|what| sim.failure(Some((index, event.clone())), what))?;
        }
        let outcome = sim.finish().await;
        outcome.map_err(|what| sim.failure(None, what))?;
        Ok(Story { journal: sim.world.journal() })
    })
}

/// The smallest list of events found that still fails: the shortest prefix, without what it does
/// not need.
pub fn smallest(events: &[Event]) -> Vec<Event> {
    let fails = |events: &[Event]| run(events).is_err();
    let n = (1..=events.len()).find(|n| fails(&events[..*n]));
    let mut small = events[..n.unwrap_or(events.len())].to_vec();
    for index in (0..small.len()).rev() {
        let mut without = small.clone();
        without.remove(index);
        if fails(&without) {
            small = without;
        }
    }
    small
}

/// A pod that a source has.
#[derive(Clone)]
struct Asked {
    pod: Pod,
    shape: Shape,
    is_deleting: bool,
}

struct Sim {
    bench: Bench,
    world: World,
    watch: Arc<StatusWatch>,
    agent: Option<Agent>,
    books: Books,
    slots: BTreeMap<u64, Asked>,
    removed: BTreeMap<u64, Asked>,
    disturbed: BTreeSet<PodUid>,
    evicted: BTreeSet<PodUid>,
    /// Containers, by name, whose commands do not succeed, and since when.
    sick: BTreeMap<&'static str, Timestamp>,
    /// Calls were slow, refused or without an answer since the beginning or since the agent's.
    is_troubled: bool,
    agent_since: Timestamp,
    n_made: u32,
    n_events: usize,
    n_calls: usize,
    n_panics: u32,
}

impl Sim {
    fn new() -> Self {
        let bench = Bench::new();
        let world = bench.world.clone();
        stock(&world);
        let watch = Arc::new(StatusWatch::new(world.clone()));
        let agent_since = world.now();
        Self {
            agent: None,
            watch,
            bench,
            world,
            books: Books::default(),
            slots: BTreeMap::new(),
            removed: BTreeMap::new(),
            disturbed: BTreeSet::new(),
            evicted: BTreeSet::new(),
            sick: BTreeMap::new(),
            is_troubled: false,
            agent_since,
            n_made: 0,
            n_events: 0,
            n_calls: 0,
            n_panics: panics(),
        }
    }

    async fn play(&mut self, event: &Event) -> Result<(), String> {
        if self.agent.is_none() {
            self.start_agent().await;
        }
        self.drop_deleted();
        let began = self.world.now();
        self.is_troubled |= matches!(
            event,
            Event::Down | Event::Fail { .. } | Event::Slow { .. } | Event::Hang { .. }
        );
        match event {
            Event::Put { slot, shape } => self.put(*slot, shape).await,
            Event::Change { slot } => self.change(*slot).await,
            Event::Delete { slot, grace } => self.delete(*slot, *grace).await,
            Event::Remove { slot } => self.remove(*slot).await,
            Event::Return { slot } => self.bring_back(*slot).await,
            Event::CrashContainer { pick, code } => self.crash_container(*pick, *code),
            Event::CrashSandbox { pick } => self.crash_sandbox(*pick),
            Event::Down => self.world.runtime_down(),
            Event::Up => self.world.runtime_up(),
            Event::Fail { call, n } => {
                let kind = RuntimeErrorKind::Internal;
                self.world.fail_next(*call, *n, kind, "on purpose");
            }
            Event::Slow { call, takes } => self.world.set_latency(*call, *takes),
            Event::Hang { slot } => {
                if let Some(asked) = self.slots.get(slot) {
                    // Its probes run out of time like everything else.
                    self.books.disturb(&asked.pod.uid());
                    self.books.adopted.clear();
                    self.world.hang_pod(&asked.pod.uid());
                }
            }
            Event::Free => self.world.free_hung(),
            Event::LoseEvents { n } => self.world.lose_events(*n),
            Event::NoEvents => self.world.disable_events(),
            Event::BreakVolumes => self.world.break_volume("data", Some("no such disk")),
            Event::MendVolumes => self.world.break_volume("data", None),
            Event::Answer { container, code, takes } => self.answer(container, *code, *takes),
            Event::Resize { slot, memory } => self.resize(*slot, *memory).await,
            Event::Debug { slot } => self.debug(*slot).await,
            Event::Evict { slot } => self.evict(*slot).await,
            Event::NetworkDown => {
                let trouble = ("NetworkPluginNotReady", "no CNI configuration");
                self.world.set_network_trouble(Some(trouble));
            }
            Event::NetworkUp => self.world.set_network_trouble(None),
            Event::Kill { away } => self.kill_agent(*away).await,
            Event::Reboot => {
                self.drop_agent().await;
                for asked in self.slots.values() {
                    self.disturbed.insert(asked.pod.uid());
                    self.books.disturb(&asked.pod.uid());
                }
                self.world.reboot();
                self.start_agent().await;
            }
            Event::Wait(pause) => sleep(*pause).await,
        }
        self.check(self.world.now().since(began))
    }

    /// Heals the world, waits, and asks whether everything is as wanted; then wants nothing and
    /// asks again.
    async fn finish(&mut self) -> Result<(), String> {
        if self.agent.is_none() {
            self.start_agent().await;
        }
        self.world.heal();
        self.world.break_volume("data", None);
        for call in CALLS {
            self.world.set_latency(call, Duration::from_millis(1));
        }
        for container in TALKERS {
            self.answer(container, 0, Duration::ZERO);
        }
        sleep(IN_THE_END).await;
        self.check(IN_THE_END)?;
        for asked in self.slots.values().filter(|asked| !asked.is_deleting) {
            let uid = asked.pod.uid();
            let wanted = expect::Wanted {
                uid: &uid,
                pod: &asked.pod,
                shape: &asked.shape,
                is_disturbed: self.disturbed.contains(&uid),
                is_evicted: self.evicted.contains(&uid),
            };
            expect::check(&wanted, &self.world, &self.watch)?;
            expect::check_reported(&wanted, &self.bench.api, &self.watch)?;
        }
        let wanted: BTreeSet<PodUid> = self.slots.values().map(|it| it.pod.uid()).collect();
        self.nothing_but(&wanted)?;
        for slot in 0..N_SLOTS {
            self.remove(slot).await;
        }
        sleep(IN_THE_END).await;
        self.check(IN_THE_END)?;
        self.nothing_but(&BTreeSet::new())?;
        if let Some(pod) = self.bench.api.watch_pods().borrow().first() {
            return Err(format!("{} is gone and still at the API server", pod.key()));
        }
        match self.watch.known().first() {
            Some(uid) => Err(format!("{uid} is gone and still has a status")),
            None => Ok(()),
        }
    }

    /// Everything on the node belongs to one of these pods.
    fn nothing_but(&self, wanted: &BTreeSet<PodUid>) -> Result<(), String> {
        let journal = self.world.journal();
        let all: BTreeSet<PodUid> = journal.into_iter().filter_map(|it| it.uid).collect();
        let is_left =
            |uid: &&PodUid| !self.world.is_gone(uid) || self.bench.volume_files.holds(uid);
        match all.difference(wanted).find(is_left) {
            Some(uid) => Err(format!("nobody wants {uid}, and something of it is left")),
            None if wanted.is_empty() && !self.world.log_links().is_empty() => {
                Err(format!("links are left: {:?}", self.world.log_links()))
            }
            None => Ok(()),
        }
    }

    fn check(&mut self, took: Duration) -> Result<(), String> {
        for (uid, since) in self.watch.ended() {
            self.books.ended(&uid, since);
        }
        self.books.forgotten(self.watch.forgotten());
        let n_new = self.books.read(&self.world.journal())?;
        for uid in self.books.ending() {
            if self.world.is_gone(&uid) && self.watch.phase(&uid).is_none() {
                self.books.released(&uid);
            }
        }
        if let Some(fault) = self.watch.fault() {
            return Err(fault);
        }
        if let Some(end) = self.agent.as_mut().and_then(Agent::end) {
            return Err(format!("the agent ended: {end}"));
        }
        if panics() > self.n_panics {
            return Err("a task panicked".to_owned());
        }
        self.nobody_sick_is_ready()?;
        // Crash loops of every container of every pod make less than this; anything that spins
        // makes more.
        let most = 300 + 20 * usize::try_from(took.as_secs()).unwrap_or(usize::MAX);
        let events = self.world.recorded_events();
        let n_said = events.len() - self.n_events;
        self.n_events = events.len();
        let n_asked = self.world.n_calls() - self.n_calls;
        self.n_calls += n_asked;
        if n_new > most || n_said > most || n_asked > 10 * most {
            let last = events.last().map(|(_, event)| event.message.clone());
            return Err(format!(
                "{n_new} deeds, {n_said} events and {n_asked} calls in {took:?}, the last event {last:?}"
            ));
        }
        Ok(())
    }

    /// Who has failed its readiness probe for long is not shown as ready.
    fn nobody_sick_is_ready(&self) -> Result<(), String> {
        let long_ago = |since: Timestamp| self.world.now().since(since) > LONGEST_DOUBT;
        if self.is_troubled || self.agent.is_none() || !long_ago(self.agent_since) {
            return Ok(());
        }
        for asked in self.slots.values() {
            let uid = asked.pod.uid();
            let status = self.watch.status(&uid).unwrap_or_default();
            let shown = status.container_statuses.into_iter().flatten();
            let shown: Vec<_> = shown.filter(|it| it.ready).map(|it| it.name).collect();
            for part in asked.shape.regular.iter() {
                let since = self.sick.get(part.name.as_str()).copied();
                let is_sick = part.manners.ready.is_some() && since.is_some_and(long_ago);
                if is_sick && shown.contains(&part.name) {
                    let name = &part.name;
                    return Err(format!("{uid}: {name} is shown as ready, sick since {since:?}"));
                }
            }
        }
        Ok(())
    }

    fn failure(&self, after: Option<(usize, Event)>, what: String) -> Box<Failure> {
        let journal = self.world.journal();
        let from = journal.len().saturating_sub(TAIL);
        let line = |entry: &Entry| {
            let uid = entry.uid.as_ref().map_or("-", PodUid::as_str);
            format!("{} {uid} {:?}", entry.at, entry.act)
        };
        Box::new(Failure { after, what, tail: journal[from..].iter().map(line).collect() })
    }
}

/// What is wanted.
impl Sim {
    async fn put(&mut self, slot: u64, shape: &Shape) {
        self.n_made += 1;
        let name = format!("pod{slot}");
        // A static pod's is a hash of its manifest.
        let uid = match shape.is_static {
            true => format!("{:024x}{slot:08x}", self.n_made),
            false => format!("pod{slot}-{}", self.n_made),
        };
        let pod = match shape.is_static {
            true => as_read(slot, &shape.build(&format!("{name}-{NODE}"), &uid, &self.world)),
            false => shape.build(&name, &uid, &self.world),
        };
        let asked = Asked { pod, shape: shape.clone(), is_deleting: false };
        self.take_away(slot);
        self.ask(slot, asked).await;
    }

    async fn ask(&mut self, slot: u64, asked: Asked) {
        self.books.wanted(&asked.pod, &asked.shape);
        for (name, part) in asked.shape.parts().map(|it| (it.name.as_str(), it)) {
            if self.sick.contains_key(name) && part.manners.talks() {
                self.books.disturb(&asked.pod.uid());
            }
        }
        self.bench.put(slot, &self.as_told(&asked.pod));
        self.slots.insert(slot, asked);
        self.tell().await;
    }

    /// Only pods of the API change in place.
    async fn change(&mut self, slot: u64) {
        let Some(asked) = self.slots.get_mut(&slot).filter(|it| !it.shape.is_static) else {
            return;
        };
        let mut pod = (*asked.pod).clone();
        let spec = pod.spec.get_or_insert_default();
        if let Some(last) = spec.containers.last_mut() {
            let is_first = last.image.as_deref() == Some(HERE);
            last.image = Some(if is_first { HERE_TOO } else { HERE }.to_owned());
        }
        asked.pod = pod.into();
        self.books.disturb(&asked.pod.uid());
        self.books.adopted.clear();
        self.tell_change(slot).await;
    }

    /// Only pods of the API are resized.
    async fn resize(&mut self, slot: u64, memory: i64) {
        let Some(asked) = self.slots.get_mut(&slot).filter(|it| !it.shape.is_static) else {
            return;
        };
        let mut pod = (*asked.pod).clone();
        let spec = pod.spec.get_or_insert_default();
        if let Some(last) = spec.containers.last_mut() {
            bound(last, memory);
        }
        asked.pod = pod.into();
        if asked.shape.restarts_to_resize {
            self.books.disturb(&asked.pod.uid());
            self.books.adopted.clear();
        }
        self.tell_change(slot).await;
    }

    /// Only pods of the API get ephemeral containers.
    async fn debug(&mut self, slot: u64) {
        let Some(asked) = self.slots.get_mut(&slot).filter(|it| !it.shape.is_static) else {
            return;
        };
        let mut pod = (*asked.pod).clone();
        let spec = pod.spec.get_or_insert_default();
        let list = spec.ephemeral_containers.get_or_insert_default();
        list.push(EphemeralContainer {
            name: format!("debug{}", list.len()),
            image: Some(HERE.to_owned()),
            ..Default::default()
        });
        asked.pod = pod.into();
        self.tell_change(slot).await;
    }

    async fn delete(&mut self, slot: u64, grace: i64) {
        let now = self.world.now();
        let Some(asked) = self.slots.get_mut(&slot).filter(|it| !it.shape.is_static) else {
            return;
        };
        let mut pod = (*asked.pod).clone();
        let grace = grace.min(asked.shape.grace);
        pod.metadata.deletion_timestamp.get_or_insert(Time(now.0));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        asked.pod = pod.into();
        asked.is_deleting = true;
        self.books.ended(&asked.pod.uid(), now);
        self.books.adopted.clear();
        self.tell_change(slot).await;
    }

    async fn remove(&mut self, slot: u64) {
        self.take_away(slot);
        self.tell().await;
    }

    fn take_away(&mut self, slot: u64) {
        if let Some(gone) = self.slots.remove(&slot) {
            self.bench.take_away(slot, &gone.pod);
            self.books.ended(&gone.pod.uid(), self.world.now());
            self.books.adopted.clear();
            self.removed.insert(slot, gone);
        }
    }

    /// The manifest that was there before comes back: the same pod, whatever became of it
    /// meanwhile.
    async fn bring_back(&mut self, slot: u64) {
        if self.slots.contains_key(&slot) {
            return;
        }
        if let Some(asked) = self.removed.remove(&slot).filter(|it| !it.is_deleting) {
            for part in asked.shape.parts() {
                let key = asked.pod.key();
                self.world.script_series(&key, &part.name, part.series.clone());
            }
            self.ask(slot, asked).await;
        }
    }

    /// The API server tells a pod with the status it last heard.
    fn as_told(&self, pod: &Pod) -> Pod {
        match self.watch.status(&pod.uid()) {
            Some(status) if !pod.is_static() => {
                let mut pod = (**pod).clone();
                pod.status = Some(status);
                pod.into()
            }
            _ => pod.clone(),
        }
    }

    /// The API server takes a change of a pod, and keeps the status that it has.
    async fn tell_change(&self, slot: u64) {
        let Some(asked) = self.slots.get(&slot) else { return };
        self.bench.api.edit_pod(&asked.pod.key(), |pod| {
            let (version, status) = (pod.metadata.resource_version.take(), pod.status.take());
            *pod = (*asked.pod).clone();
            (pod.metadata.resource_version, pod.status) = (version, status);
        });
        self.tell().await;
    }

    /// The agent hears of it before anything else happens.
    async fn tell(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// What the API server deleted because the agent said that it is gone.
    fn drop_deleted(&mut self) {
        let bench = &self.bench;
        let is_gone = |asked: &Asked| asked.is_deleting && !bench.has_in_api(&asked.pod);
        self.slots.retain(|_, asked| !is_gone(asked));
    }
}

/// What happens to what runs.
impl Sim {
    /// Commands in containers of this name answer like that from now on.
    fn answer(&mut self, container: &'static str, code: i32, takes: Duration) {
        let output = ExecOutput { code, stdout: Vec::new(), stderr: Vec::new() };
        self.world.exec_answers(container, takes, output);
        let is_well = code == 0;
        self.books.answers(container, is_well);
        if is_well {
            self.sick.remove(container);
            return;
        }
        let now = self.world.now();
        self.sick.entry(container).or_insert(now);
        self.books.adopted.clear();
        for asked in self.slots.values() {
            let mut parts = asked.shape.parts();
            if parts.any(|it| it.name == container && it.manners.talks()) {
                self.books.disturb(&asked.pod.uid());
            }
        }
    }

    /// Only pods of the API: what became of a static pod is nobody's to remember.
    async fn evict(&mut self, slot: u64) {
        let asked = self.slots.get(&slot).filter(|it| !it.shape.is_static);
        let (Some(asked), Some(agent)) = (asked, &self.agent) else {
            return;
        };
        let uid = asked.pod.uid();
        self.evicted.insert(uid.clone());
        self.books.disturb(&uid);
        self.books.adopted.clear();
        let eviction = Eviction {
            uid,
            reason: EvictionReason::Evicted,
            message: "The node was low on resource: memory. ".to_owned(),
            annotations: BTreeMap::new(),
            disruption: Some("The node was low on resource: memory. ".to_owned()),
            grace: Some(GracePeriod::from_secs(1)),
        };
        agent.evict(eviction).await;
    }

    fn crash_container(&mut self, pick: u64, code: i32) {
        let running = self.world.containers().into_iter();
        let running: Vec<_> = running.filter(|it| it.state.is_running()).collect();
        if let Some(victim) = pick_one(&running, pick) {
            self.disturbed.insert(victim.uid.clone());
            self.world.crash_container(&victim.id, code);
        }
    }

    fn crash_sandbox(&mut self, pick: u64) {
        let ready = self.world.sandboxes().into_iter();
        let ready: Vec<_> = ready.filter(|it| it.is_ready).collect();
        if let Some(victim) = pick_one(&ready, pick) {
            self.disturbed.insert(victim.spec.uid.clone());
            self.books.disturb(&victim.spec.uid);
            self.world.crash_sandbox(&victim.id);
            self.books.adopted.clear();
        }
    }

    async fn kill_agent(&mut self, away: Duration) {
        self.drop_agent().await;
        sleep(away).await;
        self.books.adopted = self.well().collect();
        self.start_agent().await;
    }

    /// Regular containers that run as wanted in a ready sandbox, of pods that never end by
    /// themselves.
    fn well(&self) -> impl Iterator<Item = ferrolet_types::ContainerId> {
        let sandboxes = self.world.sandboxes();
        let is_ready = |id: &ferrolet_types::SandboxId| {
            let mut sandboxes = sandboxes.iter();
            sandboxes.any(|it| it.id == *id && it.is_ready)
        };
        let wanted = self.slots.values().filter(|asked| {
            let mut parts = asked.shape.parts();
            let is_sick = parts.any(|it| self.sick.contains_key(it.name.as_str()));
            let is_evicted = self.evicted.contains(&asked.pod.uid());
            // One that waits for a restart may still be due.
            let is_resized = asked.shape.restarts_to_resize && !asked.shape.is_static;
            let is_left_alone = !asked.is_deleting && !is_sick && !is_evicted && !is_resized;
            asked.shape.is_calm() && is_left_alone
        });
        let mut well = Vec::new();
        for asked in wanted {
            for container in self.world.containers_of(&asked.pod.uid()) {
                let specified = asked.pod.find_container(container.spec.name.as_str());
                let image = specified.and_then(|(_, it)| it.image.as_deref());
                let is_regular = asked
                    .shape
                    .regular
                    .iter()
                    .any(|part| part.name == container.spec.name.as_str());
                if is_regular
                    && matches!(container.state, ContainerState::Running { .. })
                    && image == Some(container.spec.image.as_str())
                    && is_ready(&container.sandbox)
                {
                    well.push(container.id);
                }
            }
        }
        well.into_iter()
    }

    async fn drop_agent(&mut self) {
        self.agent = None;
        self.books.adopted.clear();
        // Tasks that were aborted end when the runtime comes round to them.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let pods = self.slots.values().map(|it| it.pod.clone());
        let wanted: BTreeMap<PodUid, Pod> = pods.map(|pod| (pod.uid(), pod)).collect();
        // What was done before the end is read with what was known before the end.
        let before = self.check(Duration::from_secs(1));
        self.watch.agent_died(&wanted, &self.bench.api);
        let deleting = self.slots.values().filter(|it| it.is_deleting);
        let mut stays: BTreeSet<PodUid> = deleting.map(|it| it.pod.uid()).collect();
        stays.extend(self.watch.ended().into_keys());
        self.books.agent_died(|uid| stays.contains(uid) || !wanted.contains_key(uid));
        // A fault found between two events shows in the check after this one.
        if let Err(what) = before {
            self.watch.blame(what);
        }
    }

    async fn start_agent(&mut self) {
        self.agent_since = self.world.now();
        self.agent = Some(Agent::start(&self.bench, self.watch.clone()).await);
        self.tell().await;
    }
}

fn pick_one<T>(all: &[T], pick: u64) -> Option<&T> {
    let n = u64::try_from(all.len()).ok().filter(|n| *n > 0)?;
    all.get(usize::try_from(pick % n).ok()?)
}

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

fn panics() -> u32 {
    PANICS.get()
}

/// Workers that panic are replaced by the agent, so the simulation must count them itself.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
}

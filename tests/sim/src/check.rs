//! What must hold at every moment, read from the journal entry by entry.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ferrolet_testkit::{Act, Entry};
use ferrolet_types::{
    ContainerId, ContainerName, GracePeriod, Pod, PodKey, PodUid, SandboxId, Timestamp,
    pod::PodView as _,
};

use crate::shape::{Part, Shape};

/// How long a wish takes from its source to the worker: the reader of manifests waits for the end of
/// a burst of changes.
const ON_ITS_WAY: Duration = Duration::from_millis(60);

/// The books that the journal is checked against.
#[derive(Default)]
pub(crate) struct Books {
    n_read: usize,
    running: BTreeMap<ContainerId, (PodUid, ContainerName)>,
    ready: BTreeMap<SandboxId, PodUid>,
    /// The restart count last given to a container, and whether that one ever came to life.
    counts: BTreeMap<(PodUid, ContainerName), (u32, bool)>,
    attempts: BTreeMap<ContainerId, (PodUid, ContainerName)>,
    /// The last grace of each container, and whether its pod was ending then.
    graces: BTreeMap<ContainerId, (GracePeriod, bool)>,
    /// Pods that left `Running`: removed, deleted or ended, and since when.
    ended: BTreeMap<PodUid, Timestamp>,
    /// When the agent last forgot a pod.
    forgotten: BTreeMap<PodUid, Timestamp>,
    /// Containers that come before the regular ones, by pod.
    before: BTreeMap<PodUid, BTreeSet<ContainerName>>,
    done: BTreeSet<(PodUid, ContainerName)>,
    /// Sidecars that the others wait for until a probe says that they have started.
    gated: BTreeSet<(PodUid, ContainerName)>,
    /// Containers, by name, whose commands do not succeed.
    sick: BTreeSet<String>,
    /// Pods of which no container has a reason to be stopped, but for their end.
    calm: BTreeSet<PodUid>,
    /// The names of static pods: those of one name take turns.
    turns: BTreeMap<PodUid, PodKey>,
    /// Ephemeral containers that were started.
    debugged: BTreeSet<(PodUid, ContainerName)>,
    /// Containers that a new life of the agent found well and must leave alone.
    pub(crate) adopted: BTreeSet<ContainerId>,
}

impl Books {
    /// A pod that is wanted.
    pub(crate) fn wanted(&mut self, pod: &Pod, shape: &Shape) {
        let uid = &pod.uid();
        if shape.is_static {
            self.turns.insert(uid.clone(), pod.key());
        }
        let named = |part: &Part| ContainerName::new(part.name.as_str());
        let inits = shape.init.iter().chain(&shape.sidecars);
        self.before.insert(uid.clone(), inits.map(named).collect());
        let gated = shape.sidecars.iter().filter(|it| it.manners.startup.is_some());
        self.gated.extend(gated.map(|part| (uid.clone(), named(part))));
        if shape.is_calm() {
            self.calm.insert(uid.clone());
        }
    }

    /// Something happened that is a reason to stop containers of this pod.
    pub(crate) fn disturb(&mut self, uid: &PodUid) {
        self.calm.remove(uid);
    }

    /// Commands in containers of this name succeed from now on, or do not.
    pub(crate) fn answers(&mut self, name: &str, is_well: bool) {
        if !is_well {
            self.sick.insert(name.to_owned());
            return;
        }
        self.sick.remove(name);
        let running = self.running.values().filter(|it| it.1.as_str() == name);
        let released: Vec<_> = running.filter(|it| self.gated.contains(*it)).cloned().collect();
        self.done.extend(released);
    }

    /// A pod that may start nothing from now on, until it is gone.
    pub(crate) fn ended(&mut self, uid: &PodUid, since: Timestamp) {
        self.ended.entry(uid.clone()).or_insert(since);
    }

    /// Nothing is left of a pod, or nobody remembers it.
    pub(crate) fn released(&mut self, uid: &PodUid) {
        self.ended.remove(uid);
    }

    /// The agent forgot these pods, each for the last time then.
    pub(crate) fn forgotten(&mut self, forgotten: BTreeMap<PodUid, Timestamp>) {
        self.forgotten = forgotten;
    }

    /// Another life of the agent: graces are not remembered, and pods that are wanted again may
    /// start again.
    pub(crate) fn agent_died(&mut self, has_ended: impl Fn(&PodUid) -> bool) {
        self.graces.clear();
        self.ended.retain(|uid, _| has_ended(uid));
    }

    /// Pods that left `Running` and are not known to be gone.
    pub(crate) fn ending(&self) -> Vec<PodUid> {
        self.ended.keys().cloned().collect()
    }

    /// Reads what is new, and says what must not be.
    pub(crate) fn read(&mut self, journal: &[Entry]) -> Result<usize, String> {
        let news = journal.get(self.n_read..).unwrap_or_default();
        for entry in news {
            if let Some(uid) = &entry.uid {
                self.take(uid, entry.at, &entry.act)
                    .map_err(|what| format!("{} {uid}: {what}", entry.at))?;
            }
        }
        let forgotten = &self.forgotten;
        self.ended.retain(|uid, since| forgotten.get(uid).is_none_or(|at| *at < *since));
        self.n_read = journal.len();
        Ok(news.len())
    }

    fn take(&mut self, uid: &PodUid, at: Timestamp, act: &Act) -> Result<(), String> {
        match act {
            Act::SandboxRan { id, .. } => {
                let other = self.ready.iter().find(|(_, owner)| *owner == uid);
                if let Some((other, _)) = other {
                    return Err(format!("sandbox {id} is made while {other} is ready"));
                }
                let key = self.turns.get(uid);
                let holds_name = |owner: &&PodUid| key.is_some() && self.turns.get(*owner) == key;
                if let Some(other) = self.ready.values().find(holds_name) {
                    return Err(format!("sandbox {id} is made while {other} has the name"));
                }
                self.may_start(uid, at, &format!("sandbox {id}"))?;
                self.ready.insert(id.clone(), uid.clone());
                self.done.retain(|(owner, _)| owner != uid);
            }
            Act::SandboxStopped { id } | Act::SandboxRemoved { id } => {
                self.ready.remove(id);
            }
            Act::ContainerCreated { id, name, attempt, .. } => {
                let place = (uid.clone(), name.clone());
                let before = self.counts.insert(place.clone(), (*attempt, false));
                let expected = before.map_or(0, |(count, lived)| count + u32::from(lived));
                if *attempt != expected {
                    return Err(format!(
                        "{name} has restart count {attempt} instead of {expected}"
                    ));
                }
                self.attempts.insert(id.clone(), place);
            }
            Act::ContainerStarted { id, name } => self.started(uid, at, id, name)?,
            Act::ContainerFailedToStart { id, .. } => self.note_life(id),
            Act::ContainerSignalled { id, name, grace } => self.signalled(uid, id, name, *grace)?,
            Act::ContainerExited { id, name, code } => {
                self.running.remove(id);
                if *code == 0 {
                    self.done.insert((uid.clone(), name.clone()));
                }
            }
            Act::ContainerRemoved { id, .. } => {
                self.running.remove(id);
                self.attempts.remove(id);
                self.graces.remove(id);
            }
            Act::ContainerBounded { name, .. } => {
                let place = (uid.clone(), name.clone());
                if !self.running.values().any(|it| *it == place) {
                    return Err(format!("{name} is bounded anew and does not run"));
                }
            }
            Act::CgroupBounded { .. } => {}
            Act::LogsRemoved => {
                // The history is gone with the logs.
                self.counts.retain(|(owner, _), _| owner != uid);
                self.debugged.retain(|(owner, _)| owner != uid);
            }
            Act::ImagePulled { .. }
            | Act::ImageRemoved { .. }
            | Act::CgroupMade
            | Act::CgroupRemoved
            | Act::DirectoriesMade
            | Act::DirectoriesRemoved
            | Act::VolumesReady
            | Act::VolumesReleased => {}
        }
        Ok(())
    }

    fn started(
        &mut self,
        uid: &PodUid,
        at: Timestamp,
        id: &ContainerId,
        name: &ContainerName,
    ) -> Result<(), String> {
        self.note_life(id);
        self.may_start(uid, at, name.as_str())?;
        let place = (uid.clone(), name.clone());
        let other = self.running.iter().find(|(_, other)| **other == place);
        if let Some((other, _)) = other {
            return Err(format!("{name} starts as {id} while {other} runs"));
        }
        self.comes_in_turn(uid, name)?;
        self.running.insert(id.clone(), place.clone());
        // A sidecar is done when it runs and its probe says so, as far as others wait for it; an init
        // container when it succeeded.
        let is_held = self.gated.contains(&place) && self.sick.contains(name.as_str());
        if name.as_str().starts_with("side") && !is_held {
            self.done.insert(place.clone());
        }
        if is_ephemeral(name) && !self.debugged.insert(place) {
            return Err(format!("the ephemeral {name} starts again"));
        }
        Ok(())
    }

    fn signalled(
        &mut self,
        uid: &PodUid,
        id: &ContainerId,
        name: &ContainerName,
        grace: GracePeriod,
    ) -> Result<(), String> {
        // Who was about to be restarted in a hurry gets the whole grace when the pod ends instead, as
        // upstream has it.
        let is_ending = self.ended.contains_key(uid);
        let before = self.graces.insert(id.clone(), (grace, is_ending));
        let before = before.filter(|before| before.1 == is_ending);
        if before.is_some_and(|before| before.0 < grace) {
            return Err(format!("{name}'s grace grows from {before:?} to {grace:?}"));
        }
        if self.calm.contains(uid) && !self.ended.contains_key(uid) {
            return Err(format!("{name} ({id}) is stopped without a reason"));
        }
        if self.adopted.contains(id) {
            return Err(format!("{name} ({id}) is stopped by an agent that came back"));
        }
        Ok(())
    }

    fn note_life(&mut self, id: &ContainerId) {
        let place = self.attempts.get(id);
        if let Some(count) = place.and_then(|place| self.counts.get_mut(place)) {
            count.1 = true;
        }
    }

    fn may_start(&self, uid: &PodUid, at: Timestamp, what: &str) -> Result<(), String> {
        let forgotten = self.forgotten.get(uid);
        let is_forgotten = |since| forgotten.is_some_and(|then| then >= since && *then <= at);
        match self.ended.get(uid) {
            Some(since) if at > since.after(ON_ITS_WAY) && !is_forgotten(since) => {
                Err(format!("{what} starts, but the pod is ending since {since}"))
            }
            _ => Ok(()),
        }
    }

    /// Regular containers start when every init container succeeded in this sandbox and every
    /// sidecar was started.
    fn comes_in_turn(&self, uid: &PodUid, name: &ContainerName) -> Result<(), String> {
        let Some(before) = self.before.get(uid) else {
            return Ok(());
        };
        if before.contains(name) || is_ephemeral(name) {
            return Ok(());
        }
        let is_done = |it: &&ContainerName| self.done.contains(&(uid.clone(), (*it).clone()));
        match before.iter().find(|it| !is_done(it)) {
            Some(missing) => Err(format!("{name} starts before {missing}")),
            None => Ok(()),
        }
    }
}

fn is_ephemeral(name: &ContainerName) -> bool {
    name.as_str().starts_with("debug")
}

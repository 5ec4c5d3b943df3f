//! What is to be written, what is being written, and what waits for better times.
//!
//! A value without a clock: the loop says what time it is. Per pod it keeps the latest status and
//! what the API had last; from these follows the one thing to do next. Two kinds of failure: the
//! API is away, which holds back everybody but one scout, and a request of its own that failed,
//! which holds back that pod alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ferrolet_ports::{ApiError, ApiErrorKind, StatusUpdate};
use ferrolet_status::{TransitionError, check_transition};
use ferrolet_types::{Pod, PodUid, edited_places, is_older, is_same, pod::PodView as _};
use tokio::time::Instant;

use super::plan::{Urgency, differs, may_delete, shown_pod, urgency};
use crate::metrics;

/// First and longest pause after a request of one pod failed.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// First and longest pause while nobody answers.
const AWAY_FIRST: Duration = Duration::from_millis(100);
const AWAY_LONGEST: Duration = Duration::from_secs(5);
/// What somebody else changed is repaired at most this often.
const REPAIR_PERIOD: Duration = Duration::from_secs(10);

/// The statuses on their way.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<PodUid, Entry>,
    /// The API's pods by the pod of ours whose status they show.
    api: BTreeMap<PodUid, Pod>,
    /// What the watch showed last, in its order.
    shown: Vec<Pod>,
    queue: BTreeSet<(Urgency, u64, PodUid)>,
    timers: BTreeSet<(Instant, PodUid)>,
    n_queued: u64,
    n_entries: u64,
    /// Pods that a writer is at work on.
    under_way: BTreeSet<PodUid>,
    away: Option<Away>,
}

#[derive(Debug)]
struct Entry {
    /// Tells it from an entry of the same pod that was forgotten before.
    number: u64,
    update: StatusUpdate,
    /// Which version which API object has.
    delivered: Option<(PodUid, u64)>,
    /// Since when there is a change that no API object has.
    changed: Option<Instant>,
    /// The API object whose deletion was accepted.
    deleted: Option<PodUid>,
    /// The watch showed a copy that nobody compared with ours yet.
    must_compare: bool,
    pause: Duration,
    not_before: Option<Instant>,
    last_write: Option<Instant>,
    queued: Option<(Urgency, u64)>,
    timer: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Away {
    until: Instant,
    pause: Duration,
}

/// One pod's turn: everything a writer needs.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The pod of ours.
    pub(crate) uid: PodUid,
    entry: u64,
    /// The API's copy as last seen.
    pub(crate) api: Pod,
    /// What it should say.
    pub(crate) update: StatusUpdate,
    /// False when its deletion was accepted before.
    pub(crate) can_delete: bool,
    /// How long the pod had to wait for this turn.
    pause: Duration,
}

/// What became of a job.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The API has it.
    Written(Pod),
    /// The API has it, and the object is deleted.
    Deleted(Pod),
    /// There is no such object any more.
    Gone,
    /// The copy was too old; here is a fresh one.
    Stale(Pod),
    /// It did not work; `written` when only the deletion did not.
    Failed { written: Option<Pod>, error: ApiError },
}

impl Ledger {
    /// Takes a status in. Refuses one that brings an ended container back to life.
    pub(crate) fn publish(
        &mut self,
        update: StatusUpdate,
        now: Instant,
    ) -> Result<(), TransitionError> {
        let uid = update.pod.uid();
        let known = self.entries.get(&uid);
        if known.is_some_and(|entry| entry.update.version >= update.version) {
            return Ok(());
        }
        let before = known.map(|entry| &entry.update.pod);
        let before = before.or_else(|| self.api.get(&uid));
        if let (Some(old), Some(new)) =
            (before.and_then(|pod| pod.status.as_ref()), &update.pod.status)
        {
            check_transition(&update.pod, old, new)?;
        }
        match self.entries.get_mut(&uid) {
            Some(entry) => {
                entry.update = update;
                entry.changed.get_or_insert(now);
            }
            None => {
                self.n_entries += 1;
                let mut entry = Entry::new(self.n_entries, update);
                entry.changed = Some(now);
                self.entries.insert(uid.clone(), entry);
            }
        }
        self.place(&uid, now);
        Ok(())
    }

    /// Forgets a pod of this node. What the API has of it is the watch's to take back.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.unplace(uid);
        self.entries.remove(uid);
    }

    /// The watch shows this copy.
    pub(crate) fn note_api_pod(&mut self, pod: &Pod, now: Instant) {
        let uid = shown_pod(pod);
        let known = self.api.get(&uid);
        if known.is_some_and(|known| is_older(&pod.metadata, &known.metadata)) {
            return;
        }
        let is_same_copy = known.is_some_and(|known| is_same(&pod.metadata, &known.metadata));
        // The watch's copy is shared with others, that of an answer is not: keep the shared one.
        self.api.insert(uid.clone(), pod.clone());
        if is_same_copy {
            return;
        }
        if let Some(entry) = self.entries.get_mut(&uid) {
            entry.must_compare = true;
            self.place(&uid, now);
        }
    }

    /// The watch shows these and no others.
    pub(crate) fn note_api_set(&mut self, pods: &[Pod], now: Instant) {
        let before = std::mem::replace(&mut self.shown, pods.to_vec());
        if let Some(places) = edited_places(before.iter(), pods.iter()) {
            for place in places {
                self.note_api_pod(&pods[place], now);
            }
            return;
        }
        let shown: BTreeSet<PodUid> = pods.iter().map(shown_pod).collect();
        let lost = self.api.keys().filter(|uid| !shown.contains(*uid));
        for uid in lost.cloned().collect::<Vec<_>>() {
            self.lose(&uid);
        }
        for pod in pods {
            self.note_api_pod(pod, now);
        }
    }

    /// The watch says that this object is gone.
    pub(crate) fn note_api_gone(&mut self, pod: &Pod) {
        let uid = shown_pod(pod);
        if self.api.get(&uid).is_some_and(|known| known.uid() == pod.uid()) {
            self.lose(&uid);
        }
    }

    /// The next job, if there is one for now.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Job> {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, uid)) = self.timers.pop_first() {
                self.place(&uid, now);
            }
        }
        if self.away.is_some_and(|away| now < away.until) {
            return None;
        }
        if self.away.is_some() && !self.under_way.is_empty() {
            return None;
        }
        let (_, _, uid) = self.queue.first().cloned()?;
        self.unplace(&uid);
        let api = self.api.get(&uid)?.clone();
        let entry = self.entries.get(&uid)?;
        self.under_way.insert(uid.clone());
        Some(Job {
            uid,
            entry: entry.number,
            can_delete: entry.deleted.as_ref() != Some(&api.uid()),
            api,
            update: entry.update.clone(),
            pause: entry.pause,
        })
    }

    /// Takes the outcome of a job.
    pub(crate) fn finish(&mut self, job: &Job, outcome: Outcome, now: Instant) {
        self.under_way.remove(&job.uid);
        let api_uid = job.api.uid();
        if let Some(entry) = self.entry_of(job) {
            entry.not_before = None;
        }
        match outcome {
            Outcome::Written(pod) => {
                self.is_back();
                let is_met = is_met(job, &pod);
                self.delivered(job, pod, now);
                if !is_met {
                    self.compare_soon(job, now);
                }
            }
            Outcome::Deleted(pod) => {
                self.is_back();
                self.delivered(job, pod, now);
                if let Some(entry) = self.entry_of(job) {
                    entry.deleted = Some(api_uid);
                }
            }
            Outcome::Gone => {
                self.is_back();
                let is_known = self.api.get(&job.uid).map(|pod| pod.uid());
                if is_known == Some(api_uid) {
                    self.lose(&job.uid);
                }
            }
            Outcome::Stale(pod) => {
                self.is_back();
                self.learn(&job.uid, pod);
                self.pause(job, None, now);
            }
            Outcome::Failed { written, error } => {
                if let Some(pod) = written {
                    self.delivered(job, pod, now);
                }
                self.hold_back(job, &error, now);
            }
        }
        self.place(&job.uid, now);
    }

    /// When there may be a job although nothing happens until then.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let away = self.away.as_ref().map(|away| away.until);
        let away = away.filter(|_| !self.queue.is_empty() && self.under_way.is_empty());
        match (timer, away) {
            (Some(timer), Some(away)) => Some(timer.min(away)),
            (timer, away) => timer.or(away),
        }
    }

    /// How many statuses the API does not have yet, as far as we know; those without an API object
    /// aside.
    pub(crate) fn n_pending(&self) -> usize {
        self.queue.len() + self.timers.len() + self.under_way.len()
    }

    fn delivered(&mut self, job: &Job, pod: Pod, now: Instant) {
        let known = self.api.get(&job.uid);
        let is_overtaken = known.is_some_and(|known| is_older(&pod.metadata, &known.metadata));
        if let Some(entry) = self.entry_of(job) {
            entry.delivered = Some((job.api.uid(), job.update.version));
            if entry.update.version == job.update.version
                && let Some(changed) = entry.changed.take()
            {
                metrics::status_arrived(now.duration_since(changed));
            }
            entry.last_write = Some(now);
            // The watch may have shown a later copy than the answer: that one is still to be
            // compared.
            entry.must_compare &= is_overtaken;
            entry.pause = Duration::ZERO;
        }
        self.learn(&job.uid, pod);
    }

    /// The patch was made from an old copy, and what came of it is not what was meant: once more,
    /// from the answer. Whoever keeps writing against us meets longer and longer pauses.
    fn compare_soon(&mut self, job: &Job, now: Instant) {
        if let Some(entry) = self.entry_of(job) {
            entry.must_compare = true;
            entry.last_write = None;
            entry.pause = (job.pause * 2).clamp(RETRY_FIRST, RETRY_LONGEST);
            if entry.update.version == job.update.version {
                entry.not_before = Some(now + entry.pause);
            }
        }
    }

    /// Takes an answer's copy, unless the watch was faster. A pod that was forgotten meanwhile
    /// stays forgotten.
    fn learn(&mut self, uid: &PodUid, pod: Pod) {
        let Some(known) = self.api.get_mut(uid) else {
            return;
        };
        if !is_older(&pod.metadata, &known.metadata) && !is_same(&pod.metadata, &known.metadata) {
            *known = pod;
        }
    }

    fn lose(&mut self, uid: &PodUid) {
        self.api.remove(uid);
        self.unplace(uid);
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.delivered = None;
        }
    }

    fn is_back(&mut self) {
        self.away = None;
    }

    fn hold_back(&mut self, job: &Job, error: &ApiError, now: Instant) {
        match error.kind {
            ApiErrorKind::Unavailable | ApiErrorKind::Timeout => {
                // Writers that were sent out together fail together: that is one failure.
                let pause = match self.away {
                    Some(away) if now < away.until => return,
                    Some(away) => (away.pause * 2).min(AWAY_LONGEST),
                    None => AWAY_FIRST,
                };
                self.away = Some(Away { until: now + pause, pause });
            }
            ApiErrorKind::TooManyRequests { retry_after } => {
                self.is_back();
                self.pause(job, retry_after, now);
            }
            _ => {
                self.is_back();
                self.pause(job, None, now);
            }
        }
    }

    /// Keeps one pod from trying again at once.
    fn pause(&mut self, job: &Job, asked: Option<Duration>, now: Instant) {
        if let Some(entry) = self.entry_of(job) {
            entry.pause = (entry.pause * 2).clamp(RETRY_FIRST, RETRY_LONGEST);
            entry.not_before = Some(now + asked.unwrap_or(entry.pause));
        }
    }

    /// The entry that a job was taken from, if it is still there.
    fn entry_of(&mut self, job: &Job) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&job.uid)?;
        (entry.number == job.entry).then_some(entry)
    }

    /// Puts a pod where it belongs now: into the queue, on a timer, or nowhere.
    fn place(&mut self, uid: &PodUid, now: Instant) {
        // Who waited in the queue keeps the place, however often its status changes meanwhile.
        let seat = self.unplace(uid);
        if self.under_way.contains(uid) {
            return;
        }
        let (Some(entry), Some(api)) = (self.entries.get_mut(uid), self.api.get(uid)) else {
            return;
        };
        let Some((urgency, due)) = entry.need(api, now) else {
            return;
        };
        if due > now {
            entry.timer = Some(due);
            self.timers.insert((due, uid.clone()));
            return;
        }
        let seat = seat.unwrap_or_else(|| {
            self.n_queued += 1;
            self.n_queued
        });
        entry.queued = Some((urgency, seat));
        self.queue.insert((urgency, seat, uid.clone()));
    }

    fn unplace(&mut self, uid: &PodUid) -> Option<u64> {
        let entry = self.entries.get_mut(uid)?;
        if let Some(at) = entry.timer.take() {
            self.timers.remove(&(at, uid.clone()));
        }
        let (urgency, seat) = entry.queued.take()?;
        self.queue.remove(&(urgency, seat, uid.clone()));
        Some(seat)
    }
}

/// Whether the answer says what was meant. A patch that changed nothing will not do better a second
/// time: what is missing is not the server's to keep.
fn is_met(job: &Job, answer: &Pod) -> bool {
    is_same(&answer.metadata, &job.api.metadata) || !differs(answer, &job.update)
}

impl Entry {
    fn new(number: u64, update: StatusUpdate) -> Self {
        Self {
            number,
            update,
            delivered: None,
            changed: None,
            deleted: None,
            must_compare: false,
            pause: Duration::ZERO,
            not_before: None,
            last_write: None,
            queued: None,
            timer: None,
        }
    }

    /// What has to be done about this pod, and from when on.
    fn need(&mut self, api: &Pod, now: Instant) -> Option<(Urgency, Instant)> {
        let due = self.not_before.map_or(now, |at| at.max(now));
        let api_uid = api.uid();
        let is_delivered = self.delivered == Some((api_uid.clone(), self.update.version));
        if !is_delivered {
            return Some((urgency(api, &self.update), due));
        }
        if may_delete(api, &self.update) && self.deleted.as_ref() != Some(&api_uid) {
            return Some((Urgency::Transition, due));
        }
        if self.must_compare {
            if differs(api, &self.update) {
                let last = self.last_write.map_or(now, |at| at + REPAIR_PERIOD);
                return Some((Urgency::Repair, due.max(last)));
            }
            self.must_compare = false;
        }
        None
    }
}

//! Volumes of running pods are kept what they should be: rewritten when an object of the API changed,
//! a token or certificate is due, or a driver wants to be called again.
//!
//! One attempt at a time per pod (its [`Turn`](crate::table::Turn)), all volumes of the pod side by
//! side; a volume that hangs or fails holds up its own pod only. `ensure` makes the same
//! [`attempt`](VolumeEngine::attempt).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ferrolet_ports::{Event, EventKind, EventObject, ObjectChange, Retry};
use ferrolet_types::{PodUid, Timestamp};
use futures::future::join_all;
use tokio::{
    sync::broadcast::{
        self,
        error::{RecvError, TryRecvError},
    },
    task::JoinSet,
    time::Instant,
};

use crate::{
    VolumeEngine,
    gather::{Needs, gather, gather_certificates, gather_claims, gather_trust, needs_of},
    mount::SetUp,
    payload::Gathered,
    plan::{Desired, PlannedVolume, PodPlan},
    renewal::{back_off, renewal},
    table::{Ending, refers_to},
    unready::Unready,
};

/// Appointments are kept by the wall clock, which may be set; a look now and then keeps sleep and
/// wall together.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);
/// How often a driver that asks for it is told again to publish, as often as upstream looks at a
/// settled pod.
const REPUBLISH: Duration = Duration::from_secs(60);

/// Which volumes of a pod an attempt is about.
pub(crate) enum About<'a> {
    All,
    Changed(&'a BTreeSet<ObjectChange>),
    Files,
}

impl VolumeEngine {
    /// Rewrites volumes of running pods when objects change and tokens come of age, until the news
    /// end.
    pub async fn refresh(self: Arc<Self>, mut news: broadcast::Receiver<ObjectChange>) {
        let mut attempts: JoinSet<()> = JoinSet::new();
        loop {
            let due = self.table.next_due();
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
                    for uid in self.table.take_due(self.doors.clock.now()) {
                        attempts.spawn(Arc::clone(&self).refresh_due(uid));
                    }
                }
                // Cancel-safe: a lost notice only means that the next turn of the loop looks by
                // itself.
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
        for uid in self.table.affected(&changes) {
            attempts.spawn(Arc::clone(self).refresh_changed(uid, Arc::clone(&changes)));
        }
    }

    fn begin_all(self: &Arc<Self>, attempts: &mut JoinSet<()>) {
        for uid in self.table.all_pods() {
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
        let turn = self.table.pod_turn(uid);
        let _turn = turn.lock().await;
        let Some(plan) = self.table.plan(uid) else {
            // Released while we waited.
            return self.table.forget(uid);
        };
        let outcomes = self.attempt(&plan, about).await;
        if self.table.is_awaited(uid) {
            // The pod has not started: its worker tries again, and says why it must.
            return;
        }
        for outcome in outcomes {
            if let Err(Unready { error, .. }) = outcome
                && !error.is_expected()
            {
                self.warn_pod(&plan, error.reason, error.message);
            }
        }
    }

    /// Makes the volumes what they should be, side by side, and makes the next appointment.
    pub(crate) async fn attempt(&self, plan: &PodPlan, about: About<'_>) -> Vec<SetUp> {
        let is_wanted = |volume: &&PlannedVolume| match about {
            About::All => true,
            About::Changed(changes) => refers_to(plan, volume, changes),
            About::Files => match volume.desired {
                Desired::Files { .. } => true,
                Desired::Claim(_) | Desired::Inline(_) => self.table.is_looked_after(&plan.uid),
                _ => false,
            },
        };
        let volumes: Vec<&PlannedVolume> = plan.volumes.iter().filter(is_wanted).collect();
        let needs = needs_of(volumes.iter().copied());
        let objects = self.doors.objects.as_deref();
        let storage = self.doors.storage.as_deref();
        let began = Instant::now();
        let now = self.doors.clock.now();
        let gates = self.doors.projections;
        let (mut gathered, claims, trust, (certificates, said)) = futures::join!(
            gather(objects, &plan.key.namespace, &needs),
            gather_claims(storage, plan, &volumes),
            gather_trust(gates.trust_from(storage), &needs),
            gather_certificates(gates.certificates_from(storage), &self.table, &needs, now)
        );
        for (reason, message) in said {
            self.warn_pod(plan, reason, message);
        }
        gathered.certificates = certificates;
        gathered.claims = claims;
        gathered.trust = trust;
        let gathering = began.elapsed();
        let attempts = volumes.iter().map(|volume| self.mount(plan, volume, &gathered));
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
        let republish = self.table.is_looked_after(uid).then_some(REPUBLISH);
        let periods = look_again.into_iter().chain(republish);
        let certificates = self.table.certificates_due(uid, now);
        tokens.chain(periods.map(|period| now.after(period))).chain(certificates).min()
    }

    pub(crate) fn warn_pod(&self, plan: &PodPlan, reason: &str, message: String) {
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
        let tokens = tokens.or_else(|| self.table.due(uid));
        let ending = if faults().next().is_none() {
            Ending::Ready(tokens)
        } else {
            let is_ours_to_retry =
                matches!(about, About::Changed(_) | About::Files) && !self.table.is_awaited(uid);
            let can_pass = is_ours_to_retry
                && faults().any(|it| !it.awaits_objects && it.error.retry != Retry::Never);
            let again = can_pass.then(|| now.after(back_off(self.table.count_failure(uid))));
            Ending::NotReady(again.into_iter().chain(tokens).min())
        };
        let was_awaited = self.table.note_ending(uid, ending);
        if let Some(sender) = self.doors.became_ready.as_ref().filter(|_| was_awaited) {
            // A full channel only means that the worker finds out by itself, a little later.
            sender.try_send(uid.clone()).ok();
        }
        self.appointments_changed.notify_one();
    }
}

//! Keeps one certificate fresh: waits for its time, asks for the next, stores it and hands it on.
//!
//! In: what is wanted (a watch, since addresses change), the current certificate. Out: the new
//! pair, in the store and over a channel. When it should happen is decided by [`plan`], a pure
//! function. A failed attempt leaves the old certificate in use.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::Clock;
use ferrolet_types::Timestamp;
use rcgen::KeyPair;
use tokio::{sync::watch, time::sleep};

use super::{
    CertStore, CertificateFacts, Pair, PairName, Wanted,
    issue::{Naming, issue},
    metrics, off_thread,
};
use crate::client::Client;

/// How long one request waits to be signed.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LAST_PAUSE: Duration = Duration::from_secs(32);

/// What became of the certificate; the shell decides whether an expired one ends the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotationOutcome {
    /// How many certificates were obtained.
    pub n_rotated: u64,
    /// How many attempts failed.
    pub n_failed: u64,
}

/// What keeps a certificate fresh.
pub struct Rotation {
    /// Whom to ask.
    pub client: Client,
    /// Where to keep it.
    pub store: Arc<dyn CertStore>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Which of the two.
    pub name: PairName,
    /// What is wanted; `None` until that is known.
    pub wanted: watch::Receiver<Option<Wanted>>,
    /// The pair in use; a new one is sent here.
    pub current: watch::Sender<Option<Pair>>,
    /// Counts, for metrics.
    pub outcome: watch::Sender<RotationOutcome>,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing can be asked for yet.
    Nothing,
    /// Ask now.
    Ask,
    /// The certificate is good until this moment.
    WaitUntil(Timestamp),
}

/// Whether a certificate is good enough, and for how long; `jitter` is between 0 and 1.
pub(super) fn plan(
    wanted: Option<&Wanted>,
    current: Option<&CertificateFacts>,
    now: Timestamp,
    jitter: f64,
) -> Plan {
    let Some(wanted) = wanted else {
        return Plan::Nothing;
    };
    let Some(current) = current.filter(|current| wanted.is_satisfied_by(current)) else {
        return Plan::Ask;
    };
    let deadline = current.rotation_deadline(jitter);
    if deadline <= now { Plan::Ask } else { Plan::WaitUntil(deadline) }
}

impl Rotation {
    /// Runs until nobody wants anything any more.
    pub async fn run(mut self) {
        let mut n_failures: u32 = 0;
        // One draw for each certificate: drawing again at each wake-up would move the deadline.
        let mut jitter = fastrand::f64();
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let facts = self.facts();
            metrics::in_use(self.name, facts.as_ref());
            let now = self.clock.now();
            let pause = match plan(wanted.as_ref(), facts.as_ref(), now, jitter) {
                Plan::Nothing => None,
                Plan::WaitUntil(deadline) => Some(deadline.since(now)),
                Plan::Ask => {
                    let wanted = wanted.expect("only what is wanted is asked for");
                    let mut news = self.wanted.clone();
                    let asked = tokio::select! {
                        asked = self.rotate(&wanted) => asked,
                        // A request for the old addresses is of no use; the next round makes a new
                        // one.
                        changed = news.changed() => match changed {
                            Ok(()) => continue,
                            Err(_) => return,
                        },
                    };
                    jitter = fastrand::f64();
                    n_failures = if asked { 0 } else { n_failures + 1 };
                    Some(pause_after(n_failures))
                }
            };
            let timer = async {
                match pause {
                    // Days are long and wall clocks are set: look again at least every hour.
                    Some(pause) => sleep(pause.min(Duration::from_secs(3600))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Nothing is under way.
                () = timer => {}
                changed = self.wanted.changed() => if changed.is_err() { return },
            }
        }
    }

    fn facts(&self) -> Option<CertificateFacts> {
        let current = self.current.borrow();
        CertificateFacts::read(&current.as_ref()?.certificate).ok()
    }

    /// Asks once. True when there is a new certificate.
    async fn rotate(&self, wanted: &Wanted) -> bool {
        match self.obtain(wanted).await {
            Ok(pair) => {
                metrics::replaced(self.name, self.facts().as_ref(), self.clock.now());
                self.current.send_replace(Some(pair));
                self.outcome.send_modify(|outcome| outcome.n_rotated += 1);
                true
            }
            Err(error) => {
                tracing::warn!(error, which = self.name.prefix(), "certificate not rotated");
                metrics::failed(self.name);
                self.outcome.send_modify(|outcome| outcome.n_failed += 1);
                false
            }
        }
    }

    async fn obtain(&self, wanted: &Wanted) -> Result<Pair, String> {
        let key = KeyPair::generate().map_err(|error| format!("make a key: {error}"))?;
        let issued = issue(&self.client, wanted, &key, Naming::Generated, PATIENCE);
        let certificate = issued.await.map_err(|error| {
            let source = std::error::Error::source(&error);
            source.map_or(error.to_string(), |source| format!("{error}: {source}"))
        })?;
        let pair = Pair { certificate, key: key.serialize_pem() };
        let (store, name, now) = (self.store.clone(), self.name, self.clock.now());
        off_thread(move || store.update(name, &pair, now).map(|()| pair))
            .await
            .map_err(|error| format!("store it: {error}"))
    }
}

/// Two seconds doubling to 32; one after success, so that a signer of very short lives is not asked
/// without rest.
fn pause_after(n_failures: u32) -> Duration {
    match n_failures {
        0 => Duration::from_secs(1),
        n => (FIRST_PAUSE * (1 << (n - 1).min(8))).min(LAST_PAUSE),
    }
}

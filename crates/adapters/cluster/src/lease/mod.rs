//! The heartbeat: a lease in the API that says this node was alive a moment ago.
//!
//! Owned by one task on a client of its own, so that nothing else on the node can make it late. The
//! lease is created once and then replaced from memory, without reading it first; a conflict or
//! four more failures in a row mean reading it again. A server that says how long to stay away is
//! obeyed, up to the time of the next beat; only one that gives no answer is tried over another
//! connection. Refuses: deciding what a missed beat means;
//! the control plane does that.

mod plan;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{ApiError, ApiErrorKind, Clock};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use tokio::time::{Instant, sleep, sleep_until};

use crate::client::{Client, Place};
pub use plan::{LeasePlan, NAMESPACE};

const TRIES: usize = 5;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAIT: Duration = Duration::from_secs(7);
/// How long a server is left alone that has too much to do and does not say for how long.
const STAY_AWAY: Duration = Duration::from_secs(1);
/// The part of its duration after which a lease is renewed, and how much that varies.
const RENEW_AT: f64 = 0.25;
const JITTER: f64 = 0.04;

/// What keeps the lease.
pub struct LeaseKeeper {
    client: Client,
    clock: Arc<dyn Clock>,
    plan: LeasePlan,
    latest: Option<Lease>,
}

impl LeaseKeeper {
    /// For this node, on the heartbeat's client.
    pub fn new(client: Client, clock: Arc<dyn Clock>, plan: LeasePlan) -> Self {
        Self { client, clock, plan, latest: None }
    }

    /// Beats until it is dropped.
    pub async fn run(mut self) {
        loop {
            let began = Instant::now();
            self.beat().await;
            let interval = self.interval();
            sleep_until(began + interval.mul_f64(1.0 + JITTER * fastrand::f64())).await;
        }
    }

    fn interval(&self) -> Duration {
        self.plan.duration.mul_f64(RENEW_AT)
    }

    /// How long the server asks us to stay away, as far as a heartbeat can wait.
    fn stay_away(&self, error: &ApiError) -> Duration {
        match error.kind {
            ApiErrorKind::TooManyRequests { retry_after } => {
                retry_after.unwrap_or(STAY_AWAY).min(self.interval())
            }
            _ => Duration::ZERO,
        }
    }

    /// One renewal, with all the tries it takes.
    async fn beat(&mut self) {
        if let Some(latest) = self.latest.take()
            && self.renew(latest).await.is_ok()
        {
            return;
        }
        let (lease, is_new) = self.ensure().await;
        if is_new {
            self.latest = Some(lease);
        } else if let Err(error) = self.renew(lease).await {
            tracing::warn!(%error, "lease not renewed; trying again with the next beat");
        }
    }

    /// Replaces the lease from what is in memory.
    async fn renew(&mut self, mut base: Lease) -> Result<(), ApiError> {
        let place = self.plan.place();
        let mut last = None;
        for attempt in 0..TRIES {
            // A node that cannot be read now leaves the lease without its owner until the next
            // beat.
            let owner = self.owner_for(Some(&base)).await.ok().flatten();
            let wanted = self.plan.next(Some(&base), owner, self.clock.now());
            match self.client.replace::<_, Lease>(&place, &wanted).await {
                Ok(stored) => {
                    self.latest = Some(stored);
                    return Ok(());
                }
                Err(error) if error.kind == ApiErrorKind::Conflict => {
                    base = self.ensure().await.0;
                    last = Some(error);
                }
                Err(error) => {
                    if attempt > 0 && is_unanswered(&error) {
                        self.client.reconnect();
                    }
                    sleep(self.stay_away(&error)).await;
                    last = Some(error);
                }
            }
        }
        Err(last.expect("the loop ran, and each round returns or sets it"))
    }

    /// Reads the lease or creates it, however long that takes. True when it was created.
    async fn ensure(&self) -> (Lease, bool) {
        let mut wait = FIRST_WAIT;
        loop {
            match self.read_or_create().await {
                Ok(done) => return done,
                Err(error) => {
                    wait = (wait * 2).min(LAST_WAIT);
                    let wait = wait.max(self.stay_away(&error));
                    tracing::debug!(%error, ?wait, "lease not there yet");
                    sleep(wait).await;
                }
            }
        }
    }

    async fn read_or_create(&self) -> Result<(Lease, bool), ApiError> {
        match self.client.get::<Lease>(&self.plan.place()).await {
            Ok(lease) => Ok((lease, false)),
            Err(error) if error.is_not_found() => {
                // A lease without its owner would outlive the node, so the node comes first.
                let owner = self.owner_for(None).await?;
                let wanted = self.plan.next(None, owner, self.clock.now());
                let place = Place::all::<Lease>(Some(NAMESPACE));
                let created = self.client.create(&place, &wanted).await?;
                Ok((created, true))
            }
            Err(error) => Err(error),
        }
    }

    /// The node's identity, if the lease does not have an owner yet.
    async fn owner_for(&self, base: Option<&Lease>) -> Result<Option<String>, ApiError> {
        let owners = base.and_then(|base| base.metadata.owner_references.as_ref());
        if owners.is_some_and(|owners| !owners.is_empty()) {
            return Ok(None);
        }
        let place = Place::one::<Node>(None, &self.plan.node_name);
        let node: Node = self.client.get(&place).await?;
        Ok(node.metadata.uid)
    }
}

/// True when nobody answered: the connection may be dead. A server that said no heard us well.
fn is_unanswered(error: &ApiError) -> bool {
    error.code.is_none() && matches!(error.kind, ApiErrorKind::Timeout | ApiErrorKind::Unavailable)
}

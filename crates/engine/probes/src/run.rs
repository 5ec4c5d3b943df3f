//! The loop: one task for every probe on the node. Takes orders, launches what is due, hands
//! outcomes to the plan, reports.
//!
//! In: orders of workers, outcomes of probes, the time. Out: reports and events. No decision is
//! made here.

use std::collections::HashMap;
use std::sync::Arc;

use ferrolet_ports::{Clock, Events, Fut, Outbound, Probing, Runtime, Tally};
use ferrolet_types::PodUid;
use ferrolet_types::probe::{PodProbes, ProbeReport};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::plan::{Count, Launch, Now, Plan, Target, Ticket};
use crate::prober::{Outcome, Prober};
use crate::rule::Moment;
use crate::tell;

/// Probes over the network that may be under way at once. A pod has at most a few, so stuck ones
/// cannot use this up.
const MAX_NETWORK: usize = 1024;
/// Commands that may be under way at once: each costs the runtime a process.
const MAX_COMMANDS: usize = 128;

/// The doors of the probes, as the composition root hands them over.
pub struct Doors {
    /// Runs commands in containers.
    pub runtime: Arc<dyn Runtime>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// Wall time, for the age of containers.
    pub clock: Arc<dyn Clock>,
    /// How connections end.
    pub outbound: Arc<dyn Outbound>,
}

/// Gives orders to the loop. Cheap to clone; when the last one is gone the loop ends.
#[derive(Clone, Debug)]
pub struct ProbesHandle {
    orders: mpsc::UnboundedSender<Order>,
}

/// The loop itself, to be run as a task.
pub struct ProbeLoop {
    orders: mpsc::UnboundedReceiver<Order>,
    reports: mpsc::UnboundedSender<ProbeReport>,
    prober: Arc<dyn Probe>,
    events: Arc<dyn Events>,
    clock: Arc<dyn Clock>,
    began: Instant,
    plan: Plan,
    under_way: JoinSet<(Ticket, Target, Outcome)>,
    aborts: HashMap<Ticket, AbortHandle>,
    network: Arc<Semaphore>,
    commands: Arc<Semaphore>,
}

/// Runs one probe to its end. The seam where tests put their own.
pub(crate) trait Probe: Send + Sync {
    fn probe<'a>(&'a self, target: &'a Target) -> Fut<'a, Outcome>;

    /// The pod is gone.
    fn forget(&self, _: &PodUid) {}
}

#[derive(Debug)]
enum Order {
    Watch(Box<PodProbes>),
    Hurry(PodUid),
    Forget(PodUid),
}

/// The probes of a node: who gives orders, the loop to spawn, and the reports. The agent counts as
/// started now.
///
/// Reports are few, since only changes are reported, so their channel has no bound and a slow
/// reader holds up nobody.
pub fn probes(
    doors: Doors,
    tally: Arc<Tally>,
) -> (ProbesHandle, ProbeLoop, mpsc::UnboundedReceiver<ProbeReport>) {
    let prober = Arc::new(Prober::new(doors.runtime, tally, doors.outbound));
    start(prober, doors.events, doors.clock)
}

pub(crate) fn start(
    prober: Arc<dyn Probe>,
    events: Arc<dyn Events>,
    clock: Arc<dyn Clock>,
) -> (ProbesHandle, ProbeLoop, mpsc::UnboundedReceiver<ProbeReport>) {
    let (orders, orders_in) = mpsc::unbounded_channel();
    let (reports, reports_out) = mpsc::unbounded_channel();
    let probe_loop = ProbeLoop {
        orders: orders_in,
        reports,
        prober,
        events,
        clock,
        began: Instant::now(),
        plan: Plan::default(),
        under_way: JoinSet::new(),
        aborts: HashMap::new(),
        network: Arc::new(Semaphore::new(MAX_NETWORK)),
        commands: Arc::new(Semaphore::new(MAX_COMMANDS)),
    };
    (ProbesHandle { orders }, probe_loop, reports_out)
}

impl Probing for ProbesHandle {
    fn watch_pod(&self, pod: PodProbes) {
        self.send(Order::Watch(Box::new(pod)));
    }

    fn hurry(&self, uid: &PodUid) {
        self.send(Order::Hurry(uid.clone()));
    }

    fn forget(&self, uid: &PodUid) {
        self.send(Order::Forget(uid.clone()));
    }
}

impl ProbesHandle {
    fn send(&self, order: Order) {
        if self.orders.send(order).is_err() {
            tracing::debug!("Order to the probes after their end");
        }
    }
}

impl ProbeLoop {
    /// Runs until every handle is gone.
    pub async fn run(mut self) {
        loop {
            let next = self.plan.next_due().map(|at| self.began + at.0);
            tokio::select! {
                // Orders are few, and a run on paused time can be repeated.
                biased;
                // Cancel-safe: an order is taken or stays in the channel.
                order = self.orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                // Cancel-safe: an outcome is taken or stays in the set.
                Some(ended) = self.under_way.join_next() => self.take_in(ended),
                // Cancel-safe: the moment is computed anew each time.
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
            while let Some(launch) = self.plan.launch(self.now()) {
                self.launch(launch);
            }
        }
    }

    fn now(&self) -> Moment {
        Moment(self.began.elapsed())
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Watch(pod) => {
                let now = Now { moment: self.now(), wall: self.clock.now() };
                let changes = self.plan.watch(&pod, now, fastrand::f64);
                changes.reports.into_iter().for_each(|it| self.report(it));
                self.abort(changes.over);
            }
            Order::Hurry(uid) => self.plan.hurry(&uid, self.now()),
            Order::Forget(uid) => {
                self.prober.forget(&uid);
                let over = self.plan.forget(&uid);
                self.abort(over);
            }
        }
    }

    fn launch(&mut self, launch: Launch) {
        let Launch { ticket, target } = launch;
        let prober = self.prober.clone();
        let slots = if target.is_command() { self.commands.clone() } else { self.network.clone() };
        let key = ticket.clone();
        let abort = self.under_way.spawn(async move {
            let _slot = slots.acquire().await;
            let outcome = prober.probe(&target).await;
            (ticket, target, outcome)
        });
        self.aborts.insert(key, abort);
    }

    fn take_in(&mut self, ended: Result<(Ticket, Target, Outcome), JoinError>) {
        match ended {
            Ok((ticket, target, outcome)) => {
                self.aborts.remove(&ticket);
                if !self.plan.is_awaited(&ticket) {
                    return;
                }
                if let Some(event) = tell::of_probe(&target, &outcome) {
                    tracing::debug!(pod = %target.pod_in_words(), container = %target.container, message = event.message, "Probe is not happy");
                    self.events.record(event);
                }
                self.judge(&ticket, outcome.count());
            }
            Err(error) => {
                // Aborted ones have left the table already; what is left panicked, and is tried
                // again at its next tick.
                let ticket = self.aborts.iter().find(|it| it.1.id() == error.id());
                if let Some(ticket) = ticket.map(|it| it.0.clone()) {
                    tracing::error!(error = %error, "Probe panicked");
                    self.aborts.remove(&ticket);
                    self.judge(&ticket, Count::Nothing);
                }
            }
        }
    }

    fn judge(&mut self, ticket: &Ticket, count: Count) {
        let report = self.plan.judge(ticket, count, self.now());
        report.into_iter().for_each(|it| self.report(it));
    }

    fn abort(&mut self, over: Vec<Ticket>) {
        for ticket in over {
            if let Some(abort) = self.aborts.remove(&ticket) {
                abort.abort();
            }
        }
    }

    fn report(&self, report: ProbeReport) {
        tracing::debug!(uid = %report.uid, container = %report.container, kind = ?report.kind, result = ?report.result, "Probe result changed");
        if self.reports.send(report).is_err() {
            tracing::debug!("Nobody reads the reports of probes any more");
        }
    }
}

#[cfg(test)]
mod tests;

//! The loop of the node: register, report, and register again when somebody deletes the node.
//!
//! One request at a time. What the API has is known from the watch and from answers, whichever is
//! newer; only after a failure is the node read before it is written. Every turn begins from the
//! facts as they are, so nothing is lost by waiting.

use std::{sync::Arc, time::Duration};

use ferrolet_node::{
    NodePlan, NodeState, adopt_node, has_changed, is_ready, is_urgent, new_node, update_node,
};
use ferrolet_ports::{ApiError, ApiErrorKind, Clock, ClusterApi, Events, NodeCopies};
use ferrolet_types::is_older;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    cadence::{Cadence, tick},
    patch::plan_node_patch,
    say,
    startup::Startup,
};

/// First and longest pause after a failure, as upstream's for registration.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(7);

/// Whether and how often the API is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportSettings {
    /// True when we create our own node object.
    pub must_register: bool,
    /// Being forbidden to create the node means failure, whether it is there or not (gate
    /// `KubeletRegistrationGetOnExistsOnly`).
    pub gets_existing_only: bool,
    /// How often the status is computed.
    pub update_frequency: Duration,
    /// How often it is sent although nothing changed.
    pub report_frequency: Duration,
}

/// What the loop sees and says.
pub struct NodeDoors {
    /// The cluster.
    pub api: Arc<dyn ClusterApi>,
    /// Where events go.
    pub events: Arc<dyn Events>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Whether and how often the API is told.
    pub report: ReportSettings,
    /// The node as it is now.
    pub node: watch::Receiver<Arc<NodeState>>,
    /// The watch of this node; `None` until it was seen, and when it is gone.
    pub watched: watch::Receiver<Option<Arc<Node>>>,
    /// Where the API's copy is handed in.
    pub copies: Arc<dyn NodeCopies>,
    /// When all this began.
    pub startup: Startup,
}

/// Keeps the node until one of the inputs ends.
pub async fn run(doors: NodeDoors) {
    doors.events.record(say::starting());
    let name = doors.node.borrow().settings.name.clone();
    let mut keeper = Keeper {
        cadence: Cadence::new(doors.report.report_frequency),
        tick_at: Instant::now(),
        retry_at: None,
        n_failures: 0,
        node: None,
        watched_uid: None,
        is_registered: false,
        is_unschedulable: false,
        has_said_rebooted: false,
        name,
        doors,
    };
    // What the watch shows already is news to us.
    keeper.take_watched();
    loop {
        keeper.turn().await;
        let wake_at = keeper.retry_at.unwrap_or(keeper.tick_at);
        // Waiting for a change of a watch is cancel-safe: what is not seen stays changed.
        let goes_on = tokio::select! {
            changed = keeper.doors.node.changed() => changed.is_ok(),
            changed = keeper.doors.watched.changed() => {
                keeper.take_watched();
                changed.is_ok()
            }
            () = sleep_until(wake_at) => true,
        };
        if !goes_on {
            return;
        }
    }
}

struct Keeper {
    doors: NodeDoors,
    name: String,
    /// The newest copy we know.
    node: Option<Arc<Node>>,
    /// The identity that the watch showed last, so that its absence there means something.
    watched_uid: Option<String>,
    is_registered: bool,
    cadence: Cadence,
    tick_at: Instant,
    retry_at: Option<Instant>,
    n_failures: u32,
    is_unschedulable: bool,
    has_said_rebooted: bool,
}

impl Keeper {
    /// Takes what the watch newly shows; a node that vanished is registered again.
    fn take_watched(&mut self) {
        let watched = self.doors.watched.borrow_and_update().clone();
        match watched {
            Some(node) => {
                self.watched_uid.clone_from(&node.metadata.uid);
                self.learn(node);
            }
            None => {
                let gone = self.watched_uid.take();
                let known = self.node.as_ref().map(|node| &node.metadata.uid);
                if gone.is_some() && known == Some(&gone) {
                    self.lose();
                }
            }
        }
    }

    /// One look at the facts and what follows from it.
    async fn turn(&mut self) {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.retry_at = None;
        let outcome = if self.is_registered { self.report().await } else { self.register().await };
        match outcome {
            Ok(()) => self.n_failures = 0,
            Err(error) => {
                tracing::warn!(%error, "Unable to bring the node up to date, will retry");
                self.n_failures += 1;
                if self.n_failures > 1 {
                    // A connection that is half open looks like a server that is away.
                    self.doors.api.reconnect();
                }
                let pause = RETRY_FIRST * 2_u32.saturating_pow(self.n_failures.min(16) - 1);
                self.retry_at = Some(Instant::now() + pause.min(RETRY_LONGEST));
            }
        }
    }

    async fn register(&mut self) -> Result<(), ApiError> {
        if !self.doors.report.must_register {
            if self.node.is_none() {
                // Somebody else makes the node; the watch will show it.
                self.tick_at = Instant::now() + self.doors.report.update_frequency;
                return Ok(());
            }
            self.is_registered = true;
            return self.report().await;
        }
        let state = self.doors.node.borrow_and_update().clone();
        let NodeState { settings, facts, .. } = &*state;
        let now = self.doors.clock.now();
        let plan = new_node(settings, facts, now);
        let name = settings.name.as_str();
        tracing::info!(node = name, "Attempting to register node");
        self.doors.startup.attempted(now);
        match self.doors.api.create_node(&plan.node).await {
            Ok(node) => {
                tracing::info!(node = name, "Successfully registered node");
                self.doors.startup.made(self.doors.clock.now());
                self.registered(node, plan);
                return Ok(());
            }
            Err(error) if error.kind == ApiErrorKind::AlreadyExists => {}
            // A node that we may not create may still be there.
            Err(error)
                if error.kind == ApiErrorKind::Forbidden
                    && !self.doors.report.gets_existing_only => {}
            Err(error) => return Err(error),
        }
        let existing = self.doors.api.get_node().await?;
        tracing::info!(node = name, "Node was previously registered");
        let plan = adopt_node(settings, facts, &existing, now);
        let node = match plan_node_patch(&existing, &plan.node) {
            Some(patch) => self.doors.api.patch_node_status(&patch).await?,
            None => existing,
        };
        self.registered(node, plan);
        Ok(())
    }

    fn registered(&mut self, node: Node, plan: NodePlan) {
        self.is_registered = true;
        self.sent(node, plan, true);
        self.rest();
    }

    /// Sends what has to be sent now.
    async fn report(&mut self) -> Result<(), ApiError> {
        if self.n_failures > 0 {
            match self.doors.api.get_node().await {
                Ok(node) => self.learn(Arc::new(node)),
                Err(error) if error.is_not_found() => return self.register_again(error),
                Err(error) => return Err(error),
            }
        }
        let Some(known) = self.node.clone() else {
            return Ok(());
        };
        let state = self.doors.node.borrow_and_update().clone();
        let now = self.doors.clock.now();
        let plan = update_node(&state.settings, &state.facts, &known, now);
        let empty = NodeStatus::default();
        let old = known.status.as_ref().unwrap_or(&empty);
        let new = plan.node.status.as_ref().unwrap_or(&empty);
        let is_changed = has_changed(old, new) || known.metadata != plan.node.metadata;
        let is_tick = Instant::now() >= self.tick_at;
        let is_retry = self.n_failures > 0;
        let must_send = is_changed && (is_tick || is_retry || is_urgent(old, new))
            || is_tick && self.cadence.is_due(Instant::now());
        if must_send && let Some(patch) = plan_node_patch(&known, &plan.node) {
            match self.doors.api.patch_node_status(&patch).await {
                Ok(node) => self.sent(node, plan, is_changed),
                Err(error) if error.is_not_found() => return self.register_again(error),
                Err(error) => return Err(error),
            }
        }
        if is_tick {
            self.rest();
        }
        Ok(())
    }

    /// The node is not there any more, whatever the watch says.
    fn register_again(&mut self, error: ApiError) -> Result<(), ApiError> {
        self.lose();
        Err(error)
    }

    fn sent(&mut self, node: Node, plan: NodePlan, is_changed: bool) {
        if node.status.as_ref().is_some_and(is_ready) {
            self.doors.startup.ready(self.doors.clock.now());
        }
        self.cadence.sent(Instant::now(), is_changed, fastrand::f64());
        for reason in plan.events {
            self.doors.events.record(say::status_is_now(&self.name, reason));
        }
        if let Some(boot_id) = plan.rebooted.filter(|_| !self.has_said_rebooted) {
            self.has_said_rebooted = true;
            let event = say::rebooted(&self.name, &boot_id);
            self.doors.events.record(event);
        }
        if let Some(error) = plan.address_fault {
            tracing::error!(%error, "Failed to set some node status fields");
        }
        self.learn(Arc::new(node));
    }

    fn learn(&mut self, node: Arc<Node>) {
        let known = self.node.as_ref();
        if known.is_some_and(|known| is_older(&node.metadata, &known.metadata)) {
            return;
        }
        let is_unschedulable =
            node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        if is_unschedulable != self.is_unschedulable {
            self.is_unschedulable = is_unschedulable;
            let event = say::schedulable(&self.name, is_unschedulable);
            self.doors.events.record(event);
        }
        self.node = Some(node.clone());
        self.doors.copies.learn(node);
    }

    fn lose(&mut self) {
        tracing::warn!("Node is gone from the API; it is registered again");
        self.node = None;
        self.is_registered = false;
        self.doors.copies.lose();
    }

    /// The next computation comes a period after this one ended.
    fn rest(&mut self) {
        let pause = tick(self.doors.report.update_frequency, fastrand::f64());
        self.tick_at = Instant::now() + pause;
    }
}

//! One part of the agent as the assembly takes it: loops, health and metrics.
//!
//! A part is built by one function of its crate, which is handed its own settings and the doors
//! that it needs, and answers with what other parts need of it and with a [`Part`]. Nothing runs
//! before the assembly starts the loops; none of them ends while the agent lives.

use std::{fmt, sync::Arc};

use tokio::sync::watch;

use crate::{Fut, HealthCheck, Measured, Tally};

/// What a part has to be run, asked and measured.
pub struct Part {
    /// The crate's name.
    pub name: &'static str,
    /// What it does for as long as the agent lives.
    pub loops: Vec<Fut<'static, ()>>,
    /// How it feels.
    pub checks: Vec<Arc<dyn HealthCheck>>,
    /// What it counts.
    pub metrics: Vec<Arc<dyn Measured>>,
}

impl Part {
    /// A part that does nothing yet.
    pub fn new(name: &'static str) -> Self {
        Self { name, loops: Vec::new(), checks: Vec::new(), metrics: Vec::new() }
    }

    /// Adds a loop.
    #[must_use]
    pub fn with_loop(mut self, run: impl Future<Output = ()> + Send + 'static) -> Self {
        self.add_loop(run);
        self
    }

    /// Adds a loop.
    pub fn add_loop(&mut self, run: impl Future<Output = ()> + Send + 'static) {
        self.loops.push(Box::pin(run));
    }

    /// Adds a health check.
    #[must_use]
    pub fn with_check(mut self, check: Arc<dyn HealthCheck>) -> Self {
        self.checks.push(check);
        self
    }

    /// Adds metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: impl Measured + 'static) -> Self {
        self.metrics.push(Arc::new(metrics));
        self
    }

    /// A tally of its own, which is shown with its metrics.
    pub fn tally(&mut self) -> Arc<Tally> {
        let tally = Arc::new(Tally::new());
        self.metrics.push(tally.clone());
        tally
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n_loops, n_checks) = (self.loops.len(), self.checks.len());
        write!(
            f,
            "{}: {n_loops} loops, {n_checks} checks, {} metrics",
            self.name,
            self.metrics.len()
        )
    }
}

/// Runs a loop once the gate is open. A gate that nobody can open any more stays shut.
pub async fn once_open(mut gate: watch::Receiver<bool>, then: impl Future<Output = ()>) {
    if gate.wait_for(|is_open| *is_open).await.is_err() {
        return std::future::pending().await;
    }
    then.await;
}

//! `/metrics/slis`: the outcomes of health checks, counted whenever somebody asks for them.

use std::sync::Arc;

use ferrolet_ports::{
    HealthCheck, Tally,
    metrics::{KUBERNETES_HEALTHCHECK, KUBERNETES_HEALTHCHECKS_TOTAL},
};

use crate::routes::Views;

/// A check that is counted.
struct Counted {
    check: Arc<dyn HealthCheck>,
    tally: Arc<Tally>,
}

impl HealthCheck for Counted {
    fn name(&self) -> &'static str {
        self.check.name()
    }

    fn check(&self) -> Result<(), String> {
        let outcome = self.check.check();
        note(&self.tally, self.name(), outcome.is_ok());
        outcome
    }
}

/// The same views with checks that are counted.
pub(crate) fn counted(views: &Views, tally: &Arc<Tally>) -> Views {
    let checks = views.checks.iter().map(|check| {
        Arc::new(Counted { check: check.clone(), tally: tally.clone() }) as Arc<dyn HealthCheck>
    });
    Views { checks: checks.collect(), ..views.clone() }
}

/// Asks every check once, so that a scrape tells how things are now.
pub(super) fn ask(views: &Views, tally: &Tally) {
    // Whoever can ask has been answered.
    note(tally, "ping", true);
    for check in views.checks.iter() {
        // The outcome is noted by the check itself.
        let _ = check.check();
    }
}

fn note(tally: &Tally, name: &str, is_well: bool) {
    let status = if is_well { "success" } else { "error" };
    tally.set(KUBERNETES_HEALTHCHECK, [name, "healthz"], f64::from(u8::from(is_well)));
    tally.add(KUBERNETES_HEALTHCHECKS_TOTAL, [name, status, "healthz"], 1.0);
}

//! How long it took to prepare claims and to take them back, and how many are in use.

use std::sync::Arc;

use ferrolet_claims::ClaimBook;
use ferrolet_ports::{
    Measured, Sample,
    metrics::{DRA_OPERATIONS_DURATION_SECONDS, DRA_RESOURCE_CLAIMS_IN_USE, process},
};
use tokio::time::Instant;

use crate::Claims;

/// How upstream names all drivers together.
const ANY: &str = "<any>";

/// Times an operation under its name and whether it failed.
pub(crate) async fn timed<E>(
    operation: &str,
    doing: impl Future<Output = Result<(), E>>,
) -> Result<(), E> {
    let began = Instant::now();
    let outcome = doing.await;
    let labels = [if outcome.is_err() { "true" } else { "false" }, operation];
    let took = began.elapsed().as_secs_f64();
    process().observe(DRA_OPERATIONS_DURATION_SECONDS, labels, took);
    outcome
}

/// Claims in use, by driver.
pub(crate) struct InUse(pub(crate) Arc<Claims>);

impl Measured for InUse {
    fn samples(&self) -> Vec<Sample> {
        let sample = |driver: &str, n: usize| {
            let n = u32::try_from(n).unwrap_or(u32::MAX);
            DRA_RESOURCE_CLAIMS_IN_USE.sample([driver], f64::from(n))
        };
        self.0.look(|book: &ClaimBook| {
            let (n_all, by_driver) = book.in_use();
            let each = by_driver.into_iter().map(|(driver, n)| sample(driver, n));
            each.chain([sample(ANY, n_all)]).collect()
        })
    }
}

//! The HTTP source: one URL that holds a pod or a list of pods.
//!
//! [`plan`](UrlSet) decides what an answer means (pure); [`run`](run()) asks, every period;
//! [`HttpClient`] is the one outbound connection this crate makes. Matches upstream's: ten seconds
//! per request, unchanged bodies skipped, an empty body is an empty set, anything else that goes
//! wrong leaves the last good set in place.

mod client;
mod plan;
mod run;

use ferrolet_ports::Fut;

pub use client::{ClientError, HttpClient};
pub use plan::{Answered, UrlSet};
pub use run::{HttpSource, run};

/// What the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body, at most [`MAX_BYTES`](crate::manifest::MAX_BYTES) and one more.
    pub body: Vec<u8>,
}

/// Asks the URL; behind a trait so that the loop can be tested without a network.
pub trait Fetch: Send + Sync {
    /// One GET request, redirects followed.
    fn get(&self) -> Fut<'_, Result<Answer, String>>;
}

//! Who asks, and may they? Every request of the main listener passes here before any handler sees
//! it.
//!
//! ```text
//!  request ─ caller (certificate, bearer token, nobody) ─ 401
//!              └ attributes (verb, nodes/<subresource>…) ─ access (AlwaysAllow, reviews with memory) ─ 403, 500
//!                                                            └ handler
//! ```
//!
//! In: connections' certificates, headers, method and path. Out: the request, or a refusal in
//! upstream's words. Answers of the API server are kept for the configured times, in tables of
//! bounded size. Refuses: looking at bodies; keeping or logging tokens; handing credentials on to
//! handlers.

mod access;
mod attributes;
mod caller;
mod gate;
mod memory;
mod metrics;
mod retry;
mod turns;

pub use access::Authorization;
pub use caller::Authentication;
pub(crate) use caller::Shown;
pub use gate::Gate;
pub(crate) use gate::{Connection, check};

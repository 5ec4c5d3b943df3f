//! The embedded runtime as a CRI v1 server.
//!
//! ```text
//!  socket ─ serve ─┬─► images: the store and the puller of `runtime/images`
//!                  │   upkeep: brings to disk what was pulled, empties the trash
//!                  └─► runtime: sandboxes and containers, by the monitors of `runtime/monitor`
//! ```
//!
//! In: CRI's requests. Out: CRI's answers; errors as gRPC codes that a kubelet understands, with the whole chain of
//! causes in the message. What an answer says is computed by pure functions (`images::answer`, `runtime::answer`);
//! the rest waits and calls.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod chain;
pub mod check;
mod images;
mod runtime;
mod serve;
pub mod streaming;
mod upkeep;

pub use images::{BuiltIn, ImageServer, WallClock};
pub use runtime::{
    Connection, Connector, HostPort, LoopbackOnly, NetworkCondition, NetworkError, PortProtocol,
    Runtime, RuntimeError, RuntimeSettings, SandboxIdentity, SandboxNetwork,
};
pub use serve::{Dialler, Incoming, ServeError, serve};
pub use upkeep::{Upkeep, UpkeepHandle};

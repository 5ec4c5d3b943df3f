//! D-Bus: the client that a node agent needs, and those it talks to there.
//!
//! ```text
//!  value ─ message ─ connection      bytes of any kind in, messages out; calls with a deadline
//!                       ├─ logind    the machine goes down (port Power)
//!                       └─ systemd   slices (port Slices)
//! ```
//!
//! Made by hand (ADR 0040): one connection serves one caller, who opens another when it broke, so a
//! bus that is away, slow or started anew holds up nobody but those who need it. Refuses: serving
//! objects, introspection, addresses other than unix sockets with a path.
#![forbid(unsafe_code)]

mod connection;
mod logind;
mod message;
mod systemd;
#[cfg(test)]
mod tests;
mod value;

pub use connection::{BusError, Connection, Method};
pub use logind::Logind;
pub use message::{Kind, Message, MessageError};
pub use systemd::Systemd;
pub use value::{Value, ValueError};

//! What the runtime's service and the monitors of its pods say to one another, as values.
//!
//! ```text
//!  service ──Spawn──► spawner ──fork──► monitor, one per pod
//!     └────── Hello, Snapshot, Launch, Exec … ───┘      one packet, one message; descriptors travel beside it
//! ```
//!
//! [`packet`] is the frame of a packet, [`message`] its requests, answers and events, [`sandbox`]
//! and [`launch`] the descriptions of a pod's shell and of a container to start, down to the last
//! flag: whoever executes them decides nothing. [`record`] is what is kept in files.
//!
//! Monitors outlive the service that started them, so a service speaks to monitors of every
//! release. Fields are only added, tags and kinds are never used again, and a kind that a monitor
//! does not know is answered with [`message::Answer::Unknown`].
//!
//! No I/O here: `ferrolet-runtime-sys` moves packets, `ferrolet-runtime-client` calls.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod launch;
pub mod message;
pub mod packet;
pub mod record;
pub mod sandbox;

/// The version of the protocol that this code speaks.
pub const VERSION: u32 = 1;

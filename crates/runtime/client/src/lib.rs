//! The service's side of the channel to spawner and monitors, on tokio.
//!
//! [`Spawner`] starts the spawner and asks it for monitors; [`Monitor`] calls one of them. Both are
//! cheap handles to a [`connection`]. A dropped call abandons its answer, not its effect. There are
//! no deadlines here: how long a launch may take is the caller's to say.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod connection;
mod monitor;
mod run;
mod spawner;

pub use connection::CallError;
pub use monitor::{
    Attachment, Command, CommandExit, ConnectError, Greeting, Monitor, Stdio, own_mounts,
};
pub use spawner::{Program, Spawned, Spawner, StartError};

#[cfg(test)]
mod tests;

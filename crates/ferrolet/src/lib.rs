//! The executable's library: what to run, and how it is wired.
//!
//! `main.rs` only calls [`main`]. The name it was called by says what it is: `kubelet` (a link) is
//! the node agent with upstream's flags, `ferrolet kubelet …` is the same thing, `ferrolet runtime` the
//! embedded runtime by itself, `ferrolet run` one pod in the foreground,
//! `ferrolet config …` looks at a configuration. [`wire`] is the only
//! composition root. May touch: arguments, environment, signals, standard output, the exit
//! code, and the files named on the command line. Refuses: decisions.
#![forbid(unsafe_code)]

mod agent;
mod cli;
mod config_command;
mod files;
pub mod logging;
pub mod own_log;
mod run_command;
mod runtime;
mod say;
pub mod wire;

pub use cli::main;

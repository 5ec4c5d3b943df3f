//! The spawner alone, as this crate's tests start it; in the agent it is a first argument.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ferrolet_runtime_monitor::spawner::main()
}

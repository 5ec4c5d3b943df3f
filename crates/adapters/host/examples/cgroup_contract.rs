//! Holds the machine it runs on to the cgroup contract ([`ferrolet_host::contract`]), needs root, and says how it went.
//!
//! The end-to-end tests run it in a virtual machine with cgroup v2. On any other machine it works in cgroups of its own,
//! removed at the end, and leaves `kubepods` alone.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report of a program goes to its output"
)]

use std::{error::Error, process::ExitCode};

use ferrolet_host::{cgroups::CgroupLayout, contract, mountinfo};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match check().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

async fn check() -> Result<(), Box<dyn Error>> {
    let layout = CgroupLayout::detect(&mountinfo::read()?)?;
    println!("cgroups: {:?}", layout.mode());
    let root = |label: &str| format!("ferrolet-contract-{label}-{}", std::process::id());
    contract::cgroups(layout.clone(), &root("bounds")).await?;
    println!("making, bounding, listing, killing and removing: ok");
    contract::cgroup_removal(layout, &root("removal")).await?;
    println!("killing and removing alone: ok");
    Ok(())
}

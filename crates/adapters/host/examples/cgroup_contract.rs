//! Holds the machine it runs on to the cgroup contract ([`ferrolet_host::contract`]), needs root,
//! and says how it went. An argument says how many times: processes that end while they are looked
//! at meet by chance.
//!
//! The end-to-end tests run it in a virtual machine with cgroup v2. On any other machine it works
//! in cgroups of its own, removed at the end, and leaves `kubepods` alone.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the report of a program goes to its output"
)]

use std::{error::Error, process::ExitCode};

use ferrolet_host::contract;
use ferrolet_linux::{cgroups::CgroupLayout, mountinfo};

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
    let n_rounds: u32 = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    for round in 1..=n_rounds {
        contract::cgroups(layout.clone(), &root("bounds")).await?;
        println!("{round}: making, bounding, listing, killing and removing: ok");
        contract::cgroup_removal(layout.clone(), &root("removal")).await?;
        println!("{round}: killing and removing alone: ok");
    }
    Ok(())
}

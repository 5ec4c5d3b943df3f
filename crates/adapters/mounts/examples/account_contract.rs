//! Holds the machine it runs on to the contract of volumes that the file system keeps account of
//! ([`ferrolet_mounts::contract::accounts`]), and says how it went.
//!
//! `account_contract DIRECTORY`: on ext4 or XFS with project quotas. The end-to-end tests run it in
//! a virtual machine, because not every kernel has them.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the report of a program goes to its output")]

use std::path::Path;

use ferrolet_mounts::contract;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1);
    let directory = directory.ok_or("account_contract DIRECTORY")?;
    contract::accounts(Path::new(&directory))?;
    println!("accounts of volumes: ok");
    Ok(())
}

//! `cargo xtask bench start`: placeholder
use anyhow::Result;
use clap::ArgMatches;
pub(crate) fn command(_args: &ArgMatches) -> Result<u8> {
    Ok(1)
}

//! Gives a directory and everything in it to a group, as the agent does for `fsGroup`, and prints
//! the milliseconds it took.
//!
//! `set_ownership GROUP DIRECTORY`; `cargo xtask bench volumes` times it against what upstream
//! does.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the report of a program goes to its output")]

use std::{path::Path, sync::Arc};

use ferrolet_mounts::NodeVolumes;
use ferrolet_ports::{FsGroupChangePolicy, FsGroupOwner, NodeMounts as _};
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(group), Some(path)) = (words.next(), words.next()) else {
        return Err("set_ownership GROUP DIRECTORY".into());
    };
    let owner = FsGroupOwner { group: group.parse()?, policy: FsGroupChangePolicy::Always };
    let volumes = NodeVolumes::new(Path::new("/nowhere"));
    let began = Instant::now();
    volumes.set_ownership(&path, owner, Arc::default()).await?;
    println!("{:.3}", began.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

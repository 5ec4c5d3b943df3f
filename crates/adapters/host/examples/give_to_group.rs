//! Gives a directory and everything in it to a group, as the agent does for `fsGroup`, and prints the milliseconds it took.
//!
//! `give_to_group GROUP DIRECTORY`; `cargo xtask bench volumes` times it against what upstream does.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the report of a program goes to its output")]

use std::{path::Path, sync::Arc};

use ferrolet_host::volumes::NodeVolumes;
use ferrolet_ports::{GroupChange, GroupGift, ProvidedVolumes as _};
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(group), Some(path)) = (words.next(), words.next()) else {
        return Err("give_to_group GROUP DIRECTORY".into());
    };
    let gift = GroupGift { group: group.parse()?, change: GroupChange::Always };
    let volumes = NodeVolumes::new(Path::new("/nowhere"));
    let began = Instant::now();
    volumes.give_to_group(&path, gift, Arc::default()).await?;
    println!("{:.3}", began.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

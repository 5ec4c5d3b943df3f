//! The run's links and addresses: a node address in its block, and on demand a way to the host.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{Network, RunId};
use crate::process::call;
use crate::wait::wait_until;

const NODE_LINK: &str = "node0";

/// The node's address in the run's network.
pub(super) fn node_ip(run: &RunId) -> String {
    format!("10.{}.255.2", run.block)
}

fn host_ip(run: &RunId) -> String {
    format!("10.{}.255.1", run.block)
}

/// From outside: a veth pair into the run's network, and a route of the host to its block.
pub(super) fn connect(run: &RunId, first_pid: u32) -> Result<()> {
    let (link, pid, node) = (run.host_link(), first_pid.to_string(), node_ip(run));
    let (address, block) = (format!("{}/30", host_ip(run)), format!("10.{}.0.0/16", run.block));
    ip(&["link", "add", &link, "type", "veth", "peer", "name", NODE_LINK, "netns", &pid])?;
    ip(&["address", "add", &address, "dev", &link])?;
    ip(&["link", "set", &link, "up"])?;
    ip(&["route", "add", &block, "via", &node])
}

/// From inside: gives the node its address and a default route.
pub(super) fn prepare(run: &RunId) -> Result<()> {
    let link = Path::new("/sys/class/net").join(NODE_LINK);
    match run.network {
        Network::Uplink => {
            wait_until("the uplink", Duration::from_secs(10), || Ok(link.exists().then_some(())))?
        }
        // A bridge that leads nowhere carries the address.
        Network::Private => ip(&["link", "add", NODE_LINK, "type", "bridge"])?,
    }
    ip(&["address", "add", &format!("{}/30", node_ip(run)), "dev", NODE_LINK])?;
    ip(&["link", "set", NODE_LINK, "up"])?;
    ip(&["route", "add", "default", "via", &host_ip(run)])
}

fn ip(args: &[&str]) -> Result<()> {
    call("ip", args).map(drop)
}

//! Where this machine is: the kernel's addresses, and the name service's.

use std::{net::IpAddr, time::Duration};

use ferrolet_node::HostAddresses;
use ferrolet_ports::{Fut, NodeHost};
use tokio::{net::lookup_host, time::timeout};

use crate::addresses::read_addresses;

/// How long the name service may take; the start of the agent waits for its first answer.
const NAME_SERVICE: Duration = Duration::from_secs(2);

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMachine;

impl NodeHost for ThisMachine {
    fn addresses(&self) -> HostAddresses {
        read_addresses()
    }

    fn look_up<'a>(&'a self, name: &'a str) -> Fut<'a, Option<Vec<IpAddr>>> {
        Box::pin(async move {
            // The port is the interface's price; nobody connects.
            let found = timeout(NAME_SERVICE, lookup_host((name, 0))).await.ok()?.ok()?;
            Some(found.map(|address| address.ip()).collect())
        })
    }
}

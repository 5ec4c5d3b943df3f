//! The kernel's memory of UDP connections.
//!
//! What was sent to a host port before it led to a pod, or while it led to another, is remembered with where it went,
//! and while a client goes on sending it goes there still. So the memories of a UDP port are deleted when the port
//! changes its owner.

use std::collections::BTreeSet;

use super::message::{F_ACK, Heard, Message, find};
use super::socket::{NetlinkError, Socket};

const GET: u16 = (1 << 8) | 1;
const DELETE: u16 = (1 << 8) | 2;
const UDP: u8 = 17;
/// More is forgotten by itself, half a minute after the last packet.
const MOST: usize = 10_000;

/// Forgets connections to these UDP ports of the node.
pub(crate) fn forget(socket: &mut Socket, ports: &BTreeSet<u16>) -> Result<(), NetlinkError> {
    let list = Message::new("list connections", GET, 0, &[0; 4]);
    let mut found = Vec::new();
    socket.dump(&list, |heard| {
        if let Some(deletion) = deletion(heard, ports).filter(|_| found.len() < MOST) {
            found.push(deletion);
        }
    })?;
    for deletion in found {
        // One that ended by itself is as well.
        let _gone = socket.request(&[deletion]);
    }
    Ok(())
}

/// The deletion of a connection that is one to these ports.
fn deletion(heard: Heard<'_>, ports: &BTreeSet<u16>) -> Option<Message> {
    let (family, rest) = (*heard.body.first()?, heard.body.get(4..)?);
    let original = find(rest, 1)?;
    let protocol = find(original, 2)?;
    let port = u16::from_be_bytes(*find(protocol, 3)?.first_chunk()?);
    if find(protocol, 1)?.first() != Some(&UDP) || !ports.contains(&port) {
        return None;
    }
    let part = [family, 0, 0, 0];
    let mut message = Message::new("forget connection", DELETE, F_ACK, &part);
    message.nest(1, |tuple| tuple.raw(original));
    if let Some(id) = find(rest, 12) {
        message.attribute(12, id);
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_memory_is_read_without_harm(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let heard = Heard { kind: 256, flags: 0, sequence: 0, body: &body };
            let _ = deletion(heard, &BTreeSet::from([53]));
        }
    }
}

//! A netlink socket: requests with their acknowledgements, dumps, and transactions of nf_tables.
//!
//! It belongs to the network namespace of the thread that opened it, whoever uses it later. Every wait ends after
//! [`PATIENCE`]; an answer that comes after that is known by its number and passed over.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use thiserror::Error;

use super::message::{F_ACK, F_DUMP, Heard, Message, find, messages, number, text};

/// The kernel answers at once; it may only have to wait for others who change the network.
const PATIENCE: Duration = Duration::from_secs(30);
/// As large as the kernel makes the packets of a dump, and then some.
const BUFFER: usize = 64 * 1024;
/// What fits into one packet to the kernel, with room to spare.
const PACKET: usize = 128 * 1024;
/// So that a thousand acknowledgements find room.
const RECEIVE_ROOM: usize = 4 << 20;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const F_CAPPED: u16 = 0x100;
const F_EXTENDED: u16 = 0x200;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NF_TABLES: u8 = 10;

/// A request that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}: {errno}{}", note.as_ref().map(|it| format!(" ({it})")).unwrap_or_default())]
pub struct NetlinkError {
    /// What was asked for.
    pub what: String,
    /// The kernel's answer.
    pub errno: Errno,
    /// The kernel's own words, where it has any.
    pub note: Option<String>,
}

impl NetlinkError {
    pub(crate) fn new(what: impl Into<String>, errno: Errno) -> Self {
        Self { what: what.into(), errno, note: None }
    }
}

#[derive(Debug)]
pub(crate) struct Socket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// A socket for links, addresses and routes of this thread's network namespace.
    pub(crate) fn route() -> Result<Self, NetlinkError> {
        Self::open(None).map_err(|errno| NetlinkError::new("open rtnetlink socket", errno))
    }

    /// A socket for the packet filter of this thread's network namespace.
    pub(crate) fn netfilter() -> Result<Self, NetlinkError> {
        Self::open(Some(netlink::NETFILTER))
            .map_err(|errno| NetlinkError::new("open netfilter socket", errno))
    }

    fn open(protocol: Option<rustix::net::Protocol>) -> rustix::io::Result<Self> {
        let family = AddressFamily::NETLINK;
        let socket =
            rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        // Both only make things better: words beside numbers, and room for many answers.
        let _words = ferrolet_runtime_sys::network::extended_acknowledgements(&socket);
        let _room = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_ROOM);
        let _room = sockopt::set_socket_send_buffer_size_force(&socket, RECEIVE_ROOM);
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER] })
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence
    }

    /// Sends requests in their order and waits for all answers; the first refusal is the answer.
    pub(crate) fn request(&mut self, requests: &[Message]) -> Result<(), NetlinkError> {
        let mut refused = Ok(());
        for piece in pieces(requests) {
            let (mut bytes, mut waiting) = (Vec::new(), Vec::new());
            for message in piece {
                let sequence = self.next_sequence();
                bytes.extend(message.finished(sequence, F_ACK));
                waiting.push((sequence, message));
            }
            let what = || piece.first().map(|it| it.what.clone()).unwrap_or_default();
            self.send(&bytes).map_err(|errno| NetlinkError::new(what(), errno))?;
            while !waiting.is_empty() {
                let heard = self.receive().map_err(|errno| NetlinkError::new(what(), errno))?;
                for message in messages(&self.buffer[..heard]) {
                    let Some(at) = waiting.iter().position(|it| it.0 == message.sequence) else {
                        continue;
                    };
                    if message.kind != ERROR {
                        continue;
                    }
                    let (_, request) = waiting.remove(at);
                    refused = refused.and(outcome(&request.what, message));
                }
            }
        }
        refused
    }

    /// Everything that the kernel answers to a request for a list, or for one thing.
    pub(crate) fn ask(
        &mut self,
        request: &Message,
        mut each: impl FnMut(Heard<'_>),
    ) -> Result<(), NetlinkError> {
        let sequence = self.next_sequence();
        let failed = |errno| NetlinkError::new(request.what.clone(), errno);
        self.send(&request.finished(sequence, F_ACK)).map_err(failed)?;
        loop {
            let heard = self.receive().map_err(failed)?;
            for message in messages(&self.buffer[..heard]) {
                match message.kind {
                    _ if message.sequence != sequence => {}
                    ERROR => return outcome(&request.what, message),
                    DONE => {
                        return match number(message.body, 0).map(u32::cast_signed) {
                            Some(code) if code < 0 => Err(failed(errno(code))),
                            _ => Ok(()),
                        };
                    }
                    _ => each(message),
                }
            }
        }
    }

    /// The same for a list.
    pub(crate) fn dump(
        &mut self,
        request: &Message,
        each: impl FnMut(Heard<'_>),
    ) -> Result<(), NetlinkError> {
        let mut request = request.clone();
        request.add_flags(F_DUMP);
        self.ask(&request, each)
    }

    /// All of these changes of nf_tables or none. More than fits into one transaction becomes several, in order.
    pub(crate) fn transaction(&mut self, changes: &[Message]) -> Result<(), NetlinkError> {
        let edge = |kind| Message::new("change packet filter", kind, 0, &[0, 0, 0, NF_TABLES]);
        for piece in pieces(changes) {
            let begin = self.next_sequence();
            let mut bytes = edge(BATCH_BEGIN).finished(begin, 0);
            let mut asked = vec![(begin, "change packet filter")];
            for (n, message) in piece.iter().enumerate() {
                let sequence = self.next_sequence();
                let is_last = n + 1 == piece.len();
                bytes.extend(message.finished(sequence, if is_last { F_ACK } else { 0 }));
                asked.push((sequence, &message.what));
            }
            let end = self.next_sequence();
            bytes.extend(edge(BATCH_END).finished(end, 0));
            self.committed(&bytes, &asked)?;
        }
        Ok(())
    }

    /// The last change is acknowledged, and each that fails is told; a transaction that fails as a whole is told by the
    /// number of its beginning.
    fn committed(&mut self, bytes: &[u8], asked: &[(u32, &str)]) -> Result<(), NetlinkError> {
        let (Some((begin, what)), Some((last, _))) = (asked.first(), asked.last()) else {
            return Ok(());
        };
        let failed = |errno| NetlinkError::new(*what, errno);
        self.send(bytes).map_err(failed)?;
        let mut refused = Ok(());
        loop {
            let heard = self.receive().map_err(failed)?;
            for message in messages(&self.buffer[..heard]) {
                let Some((_, what)) = asked.iter().find(|it| it.0 == message.sequence) else {
                    continue;
                };
                if message.kind != ERROR {
                    continue;
                }
                refused = refused.and(outcome(what, message));
                if message.sequence == *last || message.sequence == *begin {
                    return refused;
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> rustix::io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, bytes, SendFlags::empty()))?;
        Ok(())
    }

    fn receive(&mut self) -> rustix::io::Result<usize> {
        let received = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::empty())
        });
        match received {
            Ok((_, length)) => Ok(length.min(self.buffer.len())),
            Err(Errno::AGAIN) => Err(Errno::TIMEDOUT),
            Err(errno) => Err(errno),
        }
    }
}

/// Messages in as few packets as the kernel takes.
fn pieces(mut messages: &[Message]) -> impl Iterator<Item = &[Message]> {
    std::iter::from_fn(move || {
        let mut length = 0;
        let fits = |message: &&Message| {
            length += message.len();
            length <= PACKET
        };
        let n = messages.iter().take_while(fits).count().max(1).min(messages.len());
        let (piece, rest) = messages.split_at(n);
        messages = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The kernel's number for an error, without its sign.
fn errno(code: i32) -> Errno {
    match code.checked_neg() {
        Some(number @ 1..4096) => Errno::from_raw_os_error(number),
        _ => Errno::IO,
    }
}

/// What an acknowledgement says.
fn outcome(what: &str, message: Heard<'_>) -> Result<(), NetlinkError> {
    let code = number(message.body, 0).map_or(0, u32::cast_signed);
    if code == 0 {
        return Ok(());
    }
    let errno = errno(code);
    // The request is repeated, whole or only its head; words come after that.
    let repeated = match message.flags & F_CAPPED {
        0 => number(message.body, 4).map_or(16, |length| length as usize),
        _ => 16,
    };
    let words = message.body.get(4 + repeated.next_multiple_of(4)..).unwrap_or_default();
    let note = match message.flags & F_EXTENDED {
        0 => None,
        _ => find(words, 1).map(text).filter(|it| !it.is_empty()),
    };
    Err(NetlinkError { what: what.to_owned(), errno, note })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_go_in_packets_that_the_kernel_takes() {
        let small = Message::new("", 1, 0, &[0; 48 * 1024]);
        let large = Message::new("", 1, 0, &[0; 200 * 1024]);
        let all = [small.clone(), small.clone(), small.clone(), large, small];
        let n: Vec<usize> = pieces(&all).map(<[Message]>::len).collect();
        assert_eq!(n, [2, 1, 1, 1]);
        assert_eq!(pieces(&[]).count(), 0);
    }

    proptest! {
        #[test]
        fn any_acknowledgement_has_a_meaning(flags in any::<u16>(), body in prop::collection::vec(any::<u8>(), 0..100)) {
            let heard = Heard { kind: ERROR, flags, sequence: 1, body: &body };
            let said = outcome("ask", heard);
            prop_assert_eq!(said.is_ok(), number(&body, 0).is_none_or(|it| it == 0));
        }
    }
}

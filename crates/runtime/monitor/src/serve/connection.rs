//! A service that is connected: what it asks, and what waits to be sent to it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ferrolet_runtime_protocol::message::{Answer, Event};
use ferrolet_runtime_protocol::packet::Header;
use ferrolet_runtime_sys::channel;
use rustix::io::Errno;

/// As many packets wait for a service that does not read. One that leaves more unread is dropped,
/// connects again and asks for a snapshot.
const N_WAITING: usize = 1024;

/// A connection.
pub(super) struct Connection {
    socket: OwnedFd,
    waiting: VecDeque<(Header, Vec<u8>, Vec<OwnedFd>)>,
}

/// How sending went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// Some of it waits until there is room.
    Waiting,
    /// The other side is gone, or reads nothing.
    Lost,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, waiting: VecDeque::new() }
    }

    pub(super) fn answer(&mut self, id: u32, answer: &Answer, descriptors: Vec<OwnedFd>) -> Sent {
        let header = Header { is_in_memfd: false, kind: answer.kind(), id };
        self.push(header, answer.encode(), descriptors)
    }

    pub(super) fn tell(&mut self, event: &Event) -> Sent {
        let header = Header { is_in_memfd: false, kind: event.kind(), id: 0 };
        self.push(header, event.encode(), Vec::new())
    }

    fn push(&mut self, header: Header, body: Vec<u8>, descriptors: Vec<OwnedFd>) -> Sent {
        if self.waiting.len() >= N_WAITING {
            return Sent::Lost;
        }
        self.waiting.push_back((header, body, descriptors));
        self.flush()
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) -> Sent {
        while let Some((header, body, descriptors)) = self.waiting.front() {
            let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            match channel::send(&self.socket, *header, body, &borrowed) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => return Sent::Waiting,
                Err(_) => return Sent::Lost,
            }
        }
        Sent::All
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolet_runtime_protocol::message::Empty;

    #[test]
    fn a_service_that_reads_nothing_is_dropped_and_one_that_reads_again_gets_all() {
        let (near, far) = channel::pair().unwrap();
        let mut connection = Connection::new(near);
        let done = Answer::Done(Empty {});
        let mut n_sent = 0;
        while connection.answer(n_sent + 1, &done, Vec::new()) != Sent::Lost {
            n_sent += 1;
        }
        assert!(n_sent > 1024);
        let mut next = 1;
        while let Ok(packet) = channel::receive(&far, &mut [0; channel::BUFFER]) {
            assert_eq!(packet.header.id, next);
            next += 1;
            connection.flush();
        }
        assert_eq!(next - 1, n_sent);
    }
}

//! Those who are attached to a container: a pipe a stream that output is copied into.
//!
//! Nothing is lost: while a client has not taken what is there, the container's output waits, as on
//! a terminal. A client that takes nothing for ten seconds is dropped.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::log::Stream;

/// How long a client may take nothing, in nanoseconds.
const PATIENCE: i64 = 10_000_000_000;

/// A client's pipe for one stream.
pub(super) struct Client {
    pub(super) pipe: OwnedFd,
    stream: Stream,
    waiting: Vec<u8>,
    /// Since when it has taken nothing.
    since: i64,
}

impl Client {
    pub(super) fn new(pipe: OwnedFd, stream: Stream) -> Self {
        Self { pipe, stream, waiting: Vec::new(), since: 0 }
    }
}

/// All clients of one container.
#[derive(Default)]
pub(super) struct Clients {
    pub(super) all: Vec<Client>,
}

impl Clients {
    /// Copies output to those who want it.
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8], now: i64) {
        for client in self.all.iter_mut().filter(|it| it.stream == stream) {
            if client.waiting.is_empty() {
                client.since = now;
            }
            client.waiting.extend_from_slice(bytes);
        }
        self.flush(now);
    }

    /// Hands over what waits, as far as there is room, and drops those who left or sleep.
    pub(super) fn flush(&mut self, now: i64) {
        self.all.retain_mut(|client| {
            let mut n_taken = 0;
            while n_taken < client.waiting.len() {
                match rustix::io::write(&client.pipe, &client.waiting[n_taken..]) {
                    Ok(n) => n_taken += n,
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(_) => return false,
                }
            }
            if n_taken > 0 {
                client.waiting.drain(..n_taken);
                client.since = now;
            }
            if client.waiting.is_empty() {
                client.waiting = Vec::new();
                return true;
            }
            now - client.since < PATIENCE
        });
    }

    /// Whether a stream's output has to wait.
    pub(super) fn is_behind(&self, stream: Stream) -> bool {
        self.all.iter().any(|it| it.stream == stream && !it.waiting.is_empty())
    }

    /// When the first of those who sleep is dropped.
    pub(super) fn deadline(&self) -> Option<i64> {
        self.all.iter().filter(|it| !it.waiting.is_empty()).map(|it| it.since + PATIENCE).min()
    }

    /// No more output: those who have all of it are let go.
    pub(super) fn finish(&mut self, stream: Stream) {
        self.all.retain(|it| it.stream != stream || !it.waiting.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    fn client(clients: &mut Clients) -> OwnedFd {
        let (near, far) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        clients.all.push(Client::new(far, Stream::Stdout));
        near
    }

    fn read(near: &OwnedFd) -> usize {
        rustix::io::read(near, &mut [0; 1 << 17]).unwrap()
    }

    #[test]
    fn output_waits_for_a_slow_client_and_nothing_is_lost() {
        let mut clients = Clients::default();
        let near = client(&mut clients);
        clients.push(Stream::Stdout, &[b'x'; 70_000], 1);
        assert!(clients.is_behind(Stream::Stdout) && !clients.is_behind(Stream::Stderr));
        assert_eq!(read(&near), 65_536);
        clients.flush(2);
        assert!(!clients.is_behind(Stream::Stdout));
        assert_eq!(read(&near), 70_000 - 65_536);
    }

    #[test]
    fn a_client_that_takes_nothing_for_ten_seconds_is_dropped() {
        let mut clients = Clients::default();
        let _near = client(&mut clients);
        clients.push(Stream::Stdout, &[b'x'; 70_000], 5);
        // What it took counts: the pipe was empty.
        assert_eq!(clients.deadline(), Some(5 + PATIENCE));
        clients.flush(4 + PATIENCE);
        assert_eq!(clients.all.len(), 1);
        clients.flush(5 + PATIENCE);
        assert_eq!(clients.all.len(), 0);
    }

    #[test]
    fn who_left_is_forgotten_and_who_is_behind_keeps_what_waits() {
        let mut clients = Clients::default();
        drop(client(&mut clients));
        clients.push(Stream::Stdout, b"x", 1);
        assert_eq!(clients.all.len(), 0);
        let near = client(&mut clients);
        clients.push(Stream::Stdout, &[b'x'; 65_537], 1);
        clients.finish(Stream::Stdout);
        assert_eq!((clients.all.len(), read(&near)), (1, 65_536));
        clients.flush(2);
        clients.finish(Stream::Stdout);
        assert_eq!((clients.all.len(), read(&near)), (0, 1));
    }
}

//! The end of connections: nothing of one is kept once the other side knows.
//!
//! In: a connected TCP socket. Out: an option on it; the end itself is the owner's `close`. Upstream's dialer sets `SO_LINGER`, which does
//! not shorten the minute (ADR 0016). Refuses: opening and closing.

use std::{io, os::fd::BorrowedFd};

use ferrolet_ports::Farewell;

use crate::sys::keep_no_remains;

/// The kernel's own way: after the end was acknowledged, the connection is reset and forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuickFarewell;

impl Farewell for QuickFarewell {
    fn forget_soon(&self, connection: BorrowedFd<'_>) -> io::Result<()> {
        keep_no_remains(connection)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        net::{TcpListener, TcpStream},
        os::fd::AsFd as _,
        thread,
    };

    use super::*;

    /// What the kernel still has of connections to a port of this machine, on the side of whoever opened them.
    fn remains(port: u16) -> Vec<String> {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let ending = format!(":{port:04X}");
        let to_port = |line: &&str| {
            let remote = line.split_whitespace().nth(2);
            remote.is_some_and(|it| it.ends_with(&ending))
        };
        table.lines().filter(to_port).map(str::to_owned).collect()
    }

    /// The other side closes as quickly as it can, so the two ends meet in every order that there is.
    #[test]
    fn nothing_of_a_connection_is_left_and_its_end_is_no_error() {
        const N_VISITS: usize = 300;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for stream in listener.incoming().take(N_VISITS) {
                assert_eq!(stream.unwrap().read(&mut [0; 1]).unwrap(), 0);
            }
        });
        for _ in 0..N_VISITS {
            let stream = TcpStream::connect(address).unwrap();
            QuickFarewell.forget_soon(stream.as_fd()).unwrap();
        }
        server.join().unwrap();
        for _ in 0..1000 {
            if remains(address.port()).is_empty() {
                return;
            }
            thread::yield_now();
        }
        panic!("connections are left: {:#?}", remains(address.port()));
    }

    #[test]
    fn what_is_no_connection_is_refused() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(QuickFarewell.forget_soon(one.as_fd()).is_err());
    }
}

//! Connections that the agent opens: names are resolved on threads of their own, and nothing of a
//! connection is kept once the other side knows that it has ended.
//!
//! In: a host's name, or a connected TCP socket. Out: addresses, or an option on the socket; the end
//! itself is the owner's `close`. Upstream's dialer sets `SO_LINGER`, which does not shorten the
//! minute (ADR 0016). The C library's resolver cannot be interrupted, so a name that nobody answers
//! for takes one thread, however many ask. Refuses: opening and closing.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    os::fd::BorrowedFd,
    time::Duration,
};

use ferrolet_linux::{
    offload::{Job, Pool, refused},
    sys::skip_time_wait,
};
use ferrolet_ports::{Fut, HostError, Outbound};

/// Longer than the resolver's own patience with two servers.
const RESOLVING: Duration = Duration::from_secs(30);

/// Names and sockets of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeOutbound;

impl Outbound for NodeOutbound {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> Fut<'a, Result<Vec<SocketAddr>, HostError>> {
        let (attempt, host) = (format!("resolve {host}"), host.to_owned());
        let job = Job::on(Pool::Names, &attempt).alone(&*host).within(RESOLVING);
        Box::pin(job.run(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            found.map(Iterator::collect).map_err(|cause| refused(attempt, &cause))
        }))
    }

    fn skip_time_wait(&self, connection: BorrowedFd<'_>) -> io::Result<()> {
        skip_time_wait(connection)
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

    /// What the kernel still has of connections to a port of this machine, on the side of whoever
    /// opened them.
    fn remains(port: u16) -> Vec<String> {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let ending = format!(":{port:04X}");
        let to_port = |line: &&str| {
            let remote = line.split_whitespace().nth(2);
            remote.is_some_and(|it| it.ends_with(&ending))
        };
        table.lines().filter(to_port).map(str::to_owned).collect()
    }

    /// The other side closes as quickly as it can, so the two ends meet in every order that there
    /// is.
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
            NodeOutbound.skip_time_wait(stream.as_fd()).unwrap();
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
        assert!(NodeOutbound.skip_time_wait(one.as_fd()).is_err());
    }

    #[tokio::test]
    async fn names_of_this_machine_are_resolved() {
        let found = NodeOutbound.resolve("localhost", 80).await.unwrap();
        assert!(found.iter().all(|it| it.ip().is_loopback() && it.port() == 80), "{found:?}");
        assert!(!found.is_empty());
        assert!(NodeOutbound.resolve("no such name", 80).await.is_err());
    }
}

//! Opening connections, with errors in the words that Go's dialer uses and that users know from events, and leaving them
//! without a trace.
//!
//! Whoever closes a connection first keeps its remains for a minute (TIME_WAIT). Upstream sets `SO_LINGER` to a second, which
//! does not change that (measured with its own dialer) and would block a thread when the other side is dead. A [`Guest`] lets the
//! other side close first where it is asked to, as `http` does; otherwise it says goodbye (FIN) and then forgets (RST), in this
//! order, so that the other side reads an end and not an error (ADR 0016).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};

/// A connection that leaves nothing behind when it is dropped.
pub(crate) struct Guest {
    stream: TcpStream,
    /// The other side has closed: then the remains are its own.
    is_over: bool,
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.is_over {
            // Either fails only on a connection that is over by itself. The goodbye comes last: an answer to it that arrives
            // before the socket is closed would bring the remains that this is to prevent.
            self.stream.set_zero_linger().ok();
            shutdown(&self.stream, Shutdown::Write).ok();
        }
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, had_room) = (buf.filled().len(), buf.remaining() > 0);
        let answer = Pin::new(&mut self.stream).poll_read(cx, buf);
        if matches!(answer, Poll::Ready(Ok(()))) && had_room && buf.filled().len() == before {
            self.is_over = true;
        }
        answer
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Does nothing yet: goodbye is said when the connection is dropped, and not a moment earlier.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Connects to a host by address or name; tries every address of a name.
pub(crate) async fn dial(host: &str, port: u16) -> Result<Guest, String> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return connect(SocketAddr::new(ip, port)).await;
    }
    let mut answer = Err(format!("dial tcp: lookup {host}: no such host"));
    // Scoped addresses (`fe80::1%eth0`) take this way too.
    for address in lookup_host((host, port)).await.into_iter().flatten() {
        answer = connect(address).await;
        if answer.is_ok() {
            break;
        }
    }
    answer
}

async fn connect(address: SocketAddr) -> Result<Guest, String> {
    let stream = TcpStream::connect(address).await;
    let stream =
        stream.map_err(|error| format!("dial tcp {address}: connect: {}", in_words(&error)))?;
    Ok(Guest {
        stream,
        is_over: false,
    })
}

/// `host:port`, with brackets where the host has colons.
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// An operating system's error as Go prints it: lower case, without its number.
pub(crate) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

/// What the kernel still has of connections to a port of this machine, on the side of whoever opened them.
#[cfg(test)]
pub(crate) fn remains(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ending = format!(":{port:04X}");
    let to_port = |line: &&str| {
        let remote = line.split_whitespace().nth(2);
        remote.is_some_and(|it| it.ends_with(&ending))
    };
    table.lines().filter(to_port).map(str::to_owned).collect()
}

/// Waits until nothing is left of them; a minute is what the kernel keeps remains for, so that is not waited for.
#[cfg(test)]
pub(crate) async fn wait_nothing_remains(port: u16) {
    let waited = tokio::time::timeout(std::time::Duration::from_secs(10), async {
        while !remains(port).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    if waited.await.is_err() {
        panic!("connections are left: {:#?}", remains(port));
    }
}

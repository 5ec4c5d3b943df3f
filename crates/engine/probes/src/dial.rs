//! Opening connections, with errors in the words that Go's dialer uses and that users know from
//! events, and leaving them without a trace.
//!
//! Whoever closes a connection first keeps its remains for a minute (TIME_WAIT). Upstream sets
//! `SO_LINGER` to a second, which does not change that (measured with its own dialer) and would
//! block a thread when the other side is dead. A [`Dialer`] has the kernel told to forget each
//! connection as soon as the other side knows of its end (ADR 0016); and `http` lets the other side
//! close first, as it was asked to.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ferrolet_ports::Outbound;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How long the end of a connection is repeated to somebody who does not answer, in milliseconds.
const LAST_WORDS: u32 = 1000;

/// A connection that leaves nothing behind when it is dropped.
pub(crate) struct Guest(TcpStream);

impl Drop for Guest {
    fn drop(&mut self) {
        // Fails only on a connection that is over by itself. Not earlier: while it is in use, its
        // own timeout counts.
        set_tcp_user_timeout(&self.0, LAST_WORDS).ok();
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    /// Does nothing yet: the end is said when the connection is dropped, which the kernel then need
    /// not remember.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Opens connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Dialer {
    outbound: Arc<dyn Outbound>,
}

impl Dialer {
    pub(crate) fn new(outbound: Arc<dyn Outbound>) -> Self {
        Self { outbound }
    }

    /// Connects to a host by address or name; tries every address of a name.
    pub(crate) async fn dial(&self, host: &str, port: u16) -> Result<Guest, String> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return self.connect(SocketAddr::new(ip, port)).await;
        }
        let mut answer = Err(format!("dial tcp: lookup {host}: no such host"));
        // Scoped addresses (`fe80::1%eth0`) take this way too.
        for address in self.outbound.resolve(host, port).await.into_iter().flatten() {
            answer = self.connect(address).await;
            if answer.is_ok() {
                break;
            }
        }
        answer
    }

    async fn connect(&self, address: SocketAddr) -> Result<Guest, String> {
        let stream = TcpStream::connect(address).await;
        let stream =
            stream.map_err(|error| format!("dial tcp {address}: connect: {}", in_words(&error)))?;
        if let Err(error) = self.outbound.skip_time_wait(stream.as_fd()) {
            tracing::debug!(%address, %error, "The end of a connection will be remembered for a minute");
        }
        Ok(Guest(stream))
    }
}

/// `host:port`, with brackets where the host has colons.
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// An operating system's error as Go prints it: lower case, without its number.
pub(crate) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

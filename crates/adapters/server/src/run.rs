//! Sockets: binding, accepting, bounding, and letting go.
//!
//! One task per connection, never more than [`Limits::connections`] of them; further clients wait in the kernel's queue. A
//! client that is slow to ask or slow to listen loses its connection. On shutdown no new connection is taken, idle ones close,
//! busy ones may finish for [`Limits::drain`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::stall::Impatient;

/// How much a listener bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Time to send a request's head; also how long an idle connection is kept.
    pub head: Duration,
    /// Time without progress while an answer is sent.
    pub write: Duration,
    /// Bytes of a request's head, at least 8192.
    pub head_bytes: usize,
    /// Header lines of a request.
    pub headers: usize,
    /// Time to finish what is under way at shutdown.
    pub drain: Duration,
}

impl Limits {
    /// Limits for listeners that give small answers to trusted neighbours.
    pub const LOCAL: Self = Self {
        connections: 64,
        head: Duration::from_secs(10),
        write: Duration::from_secs(30),
        head_bytes: 64 * 1024,
        headers: 100,
        drain: Duration::from_secs(2),
    };
}

/// A listener that could not be had. The agent ends on it.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address}")]
pub struct BindError {
    /// Where.
    pub address: SocketAddr,
    /// Why not.
    pub source: io::Error,
}

/// A socket that listens and does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Takes the address, so that a port in use is known before anything else starts.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let refused = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address })
    }

    /// Where it listens; tells the port when 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown` completes, then lets go of every connection before it returns.
    pub async fn serve(self, router: Router, limits: Limits, shutdown: impl Future<Output = ()>) {
        let slots = Arc::new(Semaphore::new(limits.connections));
        let (closing, _) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                // Cancel-safe: a connection that was not accepted yet stays in the kernel's queue, an unused slot is given back.
                (stream, slot) = self.next_client(&slots) => {
                    let served = serve_one(stream, router.clone(), limits, closing.subscribe(), slot);
                    connections.spawn(served);
                }
                // Cancel-safe: only ended tasks are taken out. Keeps the set as small as what is open.
                Some(_) = connections.join_next() => {}
            }
        }
        drop(self.listener);
        closing.send_replace(true);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain, drained).await.is_err() {
            connections.shutdown().await;
        }
    }

    async fn next_client(&self, slots: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
        let slot = Arc::clone(slots).acquire_owned().await;
        let slot = slot.expect("the slots are never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return (stream, slot),
                Err(error) => {
                    tracing::warn!(address = %self.address, err = %error, "Failed to accept a connection");
                    // Out of descriptors, most likely: others must end first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve_one(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
    _slot: OwnedSemaphorePermit,
) {
    let io = TokioIo::new(Impatient::new(stream, limits.write));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes)
        .max_headers(limits.headers);
    let connection = builder.serve_connection(io, TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let closed = async {
        // A server that is gone closes its connections too.
        let _ = closing.wait_for(|is_closing| *is_closing).await;
    };
    let result = tokio::select! {
        result = connection.as_mut() => result,
        // Cancel-safe: the value stays true once it is.
        () = closed => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::trace!(err = %error, "Connection ended early");
    }
}

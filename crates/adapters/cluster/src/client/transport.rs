//! The connections of one client: usually one, shared by every request and watch as HTTP/2 streams.
//!
//! A server allows so many streams per connection (kube-apiserver: 100), and a node watches an
//! object for each secret and config map, so another connection is opened when all are full. A dead
//! peer is noticed by pings: silence of [`PING_INTERVAL`] brings a ping, and no answer within
//! [`PING_TIMEOUT`] ends the connection, together ten seconds, which is the heartbeat's own
//! timeout. Refuses: retrying a request that may have reached the server.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

use super::dial::Dial;

const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(4);
/// A peer that takes longer than this to shake hands is as good as away, and others wait behind it.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams per connection, less one in reserve, should the server allow more than that.
const MAX_STREAMS: usize = 99;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("connect to {peer}")]
    Connect { peer: String, source: io::Error },
    #[error("set up HTTP/2")]
    Handshake(#[source] hyper::Error),
    #[error("send request")]
    Send(#[source] hyper::Error),
}

/// An HTTP/2 connection. The token counts its streams: one reference here, one more for each of
/// them.
#[derive(Clone)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    streams: Arc<()>,
    /// How many the server allows, as far as it has said.
    limit: Arc<AtomicUsize>,
    /// Of which generation it is; only those of the current one are used.
    generation: u64,
}

impl Connection {
    fn has_room(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed).clamp(1, MAX_STREAMS);
        Arc::strong_count(&self.streams) <= limit
    }
}

/// An answer together with its place on the connection, which is given back when this is dropped.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) stream: StreamGuard,
}

/// A place on a connection.
pub(crate) struct StreamGuard(Arc<()>);

/// The connections.
pub(crate) struct Transport {
    dial: Arc<dyn Dial>,
    connections: Mutex<Vec<Connection>>,
    epoch: watch::Sender<u64>,
    retired: AtomicU64,
}

impl Transport {
    pub(crate) fn new(dial: Arc<dyn Dial>) -> Self {
        Self {
            dial,
            connections: Mutex::default(),
            epoch: watch::Sender::new(0),
            retired: AtomicU64::new(0),
        }
    }

    /// Sends a request, over a new connection when the old one turns out to be closed.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Answer, TransportError> {
        loop {
            let mut connection = self.acquire().await?;
            let guard = StreamGuard(connection.streams);
            match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(Answer { response, stream: guard });
                }
                // The request comes back only if no byte of it was sent, and then the connection is
                // closed for new ones.
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) => {
                        self.discard(&guard).await;
                        request = unsent;
                    }
                    None => return Err(TransportError::Send(refused.into_error())),
                },
            }
        }
    }

    /// Stops using every connection. Requests under way finish; watches end and come back on a new
    /// one.
    pub(crate) fn reconnect(&self) {
        self.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// Changes whenever [`reconnect`](Self::reconnect) is called.
    pub(crate) fn epoch(&self) -> watch::Receiver<u64> {
        self.epoch.subscribe()
    }

    /// Opens a new connection for the next request, but lets watches go on: a slow answer is no
    /// proof of a dead peer, and if it is dead, the ping will tell.
    pub(crate) fn retire(&self) {
        self.retired.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops using the connection that this stream is on.
    pub(crate) async fn discard(&self, stream: &StreamGuard) {
        let mut connections = self.connections.lock().await;
        connections.retain(|it| !Arc::ptr_eq(&it.streams, &stream.0));
    }

    async fn acquire(&self) -> Result<Connection, TransportError> {
        // Held while dialling on purpose: all who wait want the connection that is being opened.
        let mut connections = self.connections.lock().await;
        let generation = *self.epoch.borrow() + self.retired.load(Ordering::Relaxed);
        connections.retain(|it| !it.sender.is_closed() && it.generation == generation);
        if let Some(found) = connections.iter().find(|it| it.has_room()) {
            return Ok(found.clone());
        }
        let opened = self.open(generation).await?;
        connections.push(opened.clone());
        Ok(opened)
    }

    async fn open(&self, generation: u64) -> Result<Connection, TransportError> {
        let dialled = timeout(DIAL_TIMEOUT, self.dial.dial()).await;
        let dialled = dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream =
            dialled.map_err(|source| TransportError::Connect { peer: self.dial.peer(), source })?;
        let (sender, mut driver) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(TransportError::Handshake)?;
        let limit = Arc::new(AtomicUsize::new(driver.current_max_send_streams()));
        let told = Arc::clone(&limit);
        let driven = poll_fn(move |context| {
            let progress = Pin::new(&mut driver).poll(context);
            told.store(driver.current_max_send_streams(), Ordering::Relaxed);
            progress
        });
        // Ends with the connection, or with the last handle to it.
        tokio::spawn(async move {
            if let Err(error) = driven.await {
                tracing::debug!(%error, "connection to the API server ended");
            }
        });
        Ok(Connection { sender, streams: Arc::default(), limit, generation })
    }
}

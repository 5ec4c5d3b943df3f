//! Sockets: binding, accepting, bounding, and letting go.
//!
//! One task per connection, never more than [`Limits::connections`] of them; further clients wait
//! in the kernel's queue. On the main listener those are the guests, and strangers come and go in
//! seats of their own ([`seats`](crate::seats)). A client that is slow to ask or slow to listen loses its connection. On
//! shutdown no new connection is taken, idle ones close, busy ones may finish for
//! [`Limits::drain`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt as _;

use crate::activity::Activity;
use crate::auth::{Connection, Shown};
use crate::half_closed::HalfClosed;
use crate::seats::{Seat, Seats};
use crate::sessions::{Session, Sessions};
use crate::stall::{Impatient, Patience};

/// Requests under way on one HTTP/2 connection; strangers can have as many as guests, so this
/// bounds what they cost.
const STREAMS: u32 = 100;
/// Streams a client may reset before we have looked at them; more is an attack (CVE-2023-44487).
const RESETS: usize = 20;
/// Bytes of a request's body that are taken before anybody has read them, and bytes of a head, on
/// HTTP/2: what is uploaded to a node is small, commands come by HTTP/1, and strangers send too.
const WINDOW: u32 = 64 * 1024;
const HEAD_BYTES: usize = 32 * 1024;
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(20);

/// How much a listener bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; on the main listener, of callers who were let in.
    pub connections: usize,
    /// Connections at once of those who were not let in yet, on the main listener.
    pub strangers: usize,
    /// Time for them to be let in.
    pub introductions: Duration,
    /// Time for a TLS handshake, which takes three messages; whoever needs longer wants something
    /// else.
    pub handshake: Duration,
    /// Time to send a request's head; also how long an idle connection is kept.
    pub head: Duration,
    /// Time without progress while an answer is sent to somebody who was not let in (or was not
    /// asked who they are).
    pub write: Duration,
    /// The same, to somebody who was let in.
    pub guest_write: Duration,
    /// Time to finish an answer after its client has closed the half it asks with.
    pub half_closed: Duration,
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
        strangers: 64,
        introductions: Duration::from_secs(10),
        handshake: Duration::from_secs(10),
        head: Duration::from_secs(10),
        write: Duration::from_secs(30),
        guest_write: Duration::from_secs(30),
        half_closed: Duration::from_secs(5),
        head_bytes: 64 * 1024,
        headers: 100,
        drain: Duration::from_secs(2),
    };

    /// Limits for the main listener: upstream's idle time and write time, and bounds where upstream
    /// has none.
    pub const MAIN: Self = Self {
        connections: 1024,
        strangers: 256,
        introductions: Duration::from_secs(10),
        handshake: Duration::from_secs(10),
        head: Duration::from_secs(90),
        write: Duration::from_secs(30),
        guest_write: Duration::from_secs(4 * 3600),
        half_closed: Duration::from_secs(5),
        head_bytes: 256 * 1024,
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
        self.answer(router, Transport::Plain, limits, shutdown).await;
    }

    /// The same over TLS, HTTP/1.1 or HTTP/2 as the client chooses, with connections that may
    /// become streams.
    pub async fn serve_tls(
        self,
        router: Router,
        tls: Arc<ServerConfig>,
        limits: Limits,
        shutdown: impl Future<Output = ()>,
    ) {
        let transport = Transport::Tls(TlsAcceptor::from(tls));
        self.answer(router, transport, limits, shutdown).await;
    }

    async fn answer(
        self,
        router: Router,
        transport: Transport,
        limits: Limits,
        shutdown: impl Future<Output = ()>,
    ) {
        let slots = Arc::new(Semaphore::new(limits.connections));
        let seats = Seats::new(limits.strangers, limits.connections, limits.handshake);
        let (closing, _) = watch::channel(false);
        let (sessions, mut begun) = mpsc::unbounded_channel::<Session>();
        let sessions = Sessions::new(sessions);
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                // Cancel-safe: a connection that was not accepted yet stays in the kernel's queue,
                // an unused slot is given back.
                (stream, from, slot) = self.next_client(transport.is_plain().then_some(&slots)) => {
                    let client = |slot| Client {
                        router: router.clone(),
                        limits,
                        closing: closing.subscribe(),
                        sessions: sessions.clone().holding(slot),
                    };
                    match &transport {
                        Transport::Plain => {
                            connections.spawn(client(Arc::new(slot)).serve_plain(stream));
                        }
                        Transport::Tls(tls) => {
                            let seat = seats.take(from.ip());
                            let served = client(seat.clone()).serve_tls(stream, tls.clone(), seat);
                            connections.spawn(served);
                        }
                    };
                }
                // Cancel-safe: what was not received stays in the channel. Bounded by the slots:
                // each session holds one.
                Some(session) = begun.recv() => { connections.spawn(session); }
                // Cancel-safe: only ended tasks are taken out. Keeps the set as small as what is
                // open.
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

    /// The next client, where it comes from, and its slot if it needs one.
    async fn next_client(
        &self,
        slots: Option<&Arc<Semaphore>>,
    ) -> (TcpStream, SocketAddr, Option<OwnedSemaphorePermit>) {
        let slot = match slots {
            Some(slots) => {
                let slot = Arc::clone(slots).acquire_owned().await;
                Some(slot.expect("the slots are never closed"))
            }
            None => None,
        };
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => return (stream, from, slot),
                Err(error) => {
                    tracing::warn!(address = %self.address, err = %error, "Failed to accept a connection");
                    // Out of descriptors, most likely: others must end first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// How bytes travel.
enum Transport {
    Plain,
    Tls(TlsAcceptor),
}

impl Transport {
    fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }
}

/// One connection's share of the server.
struct Client {
    router: Router,
    limits: Limits,
    closing: watch::Receiver<bool>,
    sessions: Sessions,
}

impl Client {
    async fn serve_plain(mut self, stream: TcpStream) {
        let patience = Patience::new(self.limits.write, self.limits.write);
        let (router, answers) = (self.router.clone(), Activity::new());
        let io = HalfClosed::new(
            Impatient::new(stream, patience),
            answers.clone(),
            self.limits.half_closed,
        );
        let service = counted(answers, move |request: Request<Incoming>| {
            router.clone().oneshot(request.map(Body::new))
        });
        let connection =
            http1_builder(&self.limits).serve_connection(TokioIo::new(io), service_fn(service));
        let mut connection = std::pin::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            // Cancel-safe: the value stays true once it is.
            () = closed(&mut self.closing) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        tell(result);
    }

    async fn serve_tls(self, stream: TcpStream, tls: TlsAcceptor, seat: Arc<Seat>) {
        let introductions = self.limits.introductions;
        tokio::select! {
            // Ends with the connection; what it became lives on as a session.
            () = self.converse(stream, tls, seat.clone()) => {}
            // Cancel-safe: it only watches. A stranger's connection is dropped as it is: nobody was
            // promised anything.
            () = seat.must_go(introductions) => {}
        }
    }

    async fn converse(self, stream: TcpStream, tls: TlsAcceptor, seat: Arc<Seat>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::trace!(err = %error, "A connection ended before it began");
            return;
        }
        let patience = Patience::new(self.limits.write, self.limits.guest_write);
        let handshake = tls.accept(Impatient::new(stream, patience.clone()));
        let stream = match tokio::time::timeout(self.limits.handshake, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(err = %error, "TLS handshake failed");
                return;
            }
            Err(_elapsed) => return,
        };
        let (_, tls) = stream.get_ref();
        let shown = tls.peer_certificates().map(|chain| {
            let owned = chain.iter().map(|it| it.clone().into_owned());
            owned.collect()
        });
        let connection = Connection {
            shown: Arc::new(Shown::new(shown.unwrap_or_default())),
            activity: Activity::new(),
            patience,
            seat,
        };
        if tls.alpn_protocol() == Some(b"h2") {
            self.speak_http2(stream, connection).await;
        } else {
            self.speak_http1(stream, connection).await;
        }
    }

    async fn speak_http1(mut self, stream: TlsStream<Impatient>, connection: Connection) {
        let answers = Activity::new();
        let service = counted(answers.clone(), self.service(connection));
        let io = HalfClosed::new(stream, answers, self.limits.half_closed);
        let connection =
            http1_builder(&self.limits).serve_connection(TokioIo::new(io), service_fn(service));
        let mut connection = std::pin::pin!(connection.with_upgrades());
        let result = tokio::select! {
            result = connection.as_mut() => result,
            // Cancel-safe: the value stays true once it is.
            () = closed(&mut self.closing) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        tell(result);
    }

    async fn speak_http2(mut self, stream: TlsStream<Impatient>, connection: Connection) {
        let (limits, activity) = (self.limits, connection.activity.clone());
        let service = service_fn(self.service(connection));
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_pending_accept_reset_streams(RESETS)
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW)
            .max_header_list_size(
                u32::try_from(limits.head_bytes.min(HEAD_BYTES)).unwrap_or(u32::MAX),
            )
            .max_send_buf_size(64 * 1024)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWER);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            // Cancel-safe: the value stays true once it is.
            () = closed(&mut self.closing) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            // Cancel-safe: it only watches. What is left after a polite end is cut off.
            () = activity.idle_for(limits.head) => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(limits.drain, connection).await {
                    Ok(result) => result,
                    Err(_elapsed) => Ok(()),
                }
            }
        };
        tell(result);
    }

    /// Hands a request to the router, with what handlers may want to know of its connection.
    fn service(
        &self,
        connection: Connection,
    ) -> impl Fn(Request<Incoming>) -> Answer + Send + Clone + use<> {
        let (router, sessions) = (self.router.clone(), self.sessions.clone());
        move |mut request| {
            request.extensions_mut().insert(connection.clone());
            request.extensions_mut().insert(sessions.clone());
            Box::pin(router.clone().oneshot(request.map(Body::new)))
        }
    }
}

type Answer =
    std::pin::Pin<Box<dyn Future<Output = Result<Response, std::convert::Infallible>> + Send>>;

/// The same service; each of its answers counts until it is sent.
fn counted<F>(
    answers: Activity,
    service: impl Fn(Request<Incoming>) -> F + Send + Clone,
) -> impl Fn(Request<Incoming>) -> Answer + Send + Clone
where
    F: Future<Output = Result<Response, std::convert::Infallible>> + Send + 'static,
{
    move |request| {
        let (busy, answer) = (answers.begin(), service(request));
        Box::pin(async move {
            let answer = answer.await?;
            Ok(answer.map(|body| Body::new(busy.until_the_end_of(body))))
        })
    }
}

fn http1_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes)
        .max_headers(limits.headers);
    builder
}

async fn closed(closing: &mut watch::Receiver<bool>) {
    // A server that is gone closes its connections too.
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}

fn tell(result: Result<(), hyper::Error>) {
    if let Err(error) = result {
        tracing::trace!(err = %error, "Connection ended early");
    }
}

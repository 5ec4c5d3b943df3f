//! Listens for clients with an address, and lets each into its session.

use std::convert::Infallible;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrolet_streams::tunnel::tunnel;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::negotiate::{self, Agreement, Carrier};
use super::tokens::{Request, Tokens, TooManyRequests};
use super::{AttachRequest, ExecRequest, StreamBackend, Streams, forward, process, transport};

/// A client has so long to say what it wants.
const HEADERS: Duration = Duration::from_secs(10);
/// So many clients at a time.
const CLIENTS: usize = 1024;
/// After an error of `accept` there may be no descriptors for a moment.
const PAUSE: Duration = Duration::from_millis(100);
/// A tunnel over which nobody says anything ends, as upstream's streams do.
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);

/// Gives addresses away; a cheap handle.
#[derive(Clone, Debug)]
pub struct StreamingHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    tokens: Mutex<Tokens>,
    began: Instant,
    /// Ends with the server.
    sessions: Mutex<JoinSet<()>>,
}

/// The server, before it runs.
pub struct StreamingServer {
    listener: TcpListener,
    backend: Arc<dyn StreamBackend>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for StreamingServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamingServer").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl StreamingHandle {
    /// An address for a command.
    ///
    /// # Errors
    ///
    /// When too many addresses wait for their clients.
    pub fn exec(&self, request: ExecRequest) -> Result<String, TooManyRequests> {
        self.give(Request::Exec(request))
    }

    /// An address for a container's streams.
    ///
    /// # Errors
    ///
    /// When too many addresses wait for their clients.
    pub fn attach(&self, request: AttachRequest) -> Result<String, TooManyRequests> {
        self.give(Request::Attach(request))
    }

    /// An address for ports of a sandbox.
    ///
    /// # Errors
    ///
    /// When too many addresses wait for their clients.
    pub fn port_forward(&self, sandbox: String) -> Result<String, TooManyRequests> {
        self.give(Request::PortForward { sandbox })
    }

    fn give(&self, request: Request) -> Result<String, TooManyRequests> {
        // No token that can be guessed: without one there is no address.
        let token = token().map_err(|_| TooManyRequests)?;
        let url = format!("http://{}/{}/{token}", self.shared.address, request.path());
        let now = self.shared.began.elapsed();
        let mut tokens = self.shared.tokens.lock().expect("no panic under this lock");
        tokens.insert(token, request, now)?;
        Ok(url)
    }
}

/// 128 random bits.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|it| format!("{it:02x}")).collect())
}

impl StreamingServer {
    /// Listens on a port of 127.0.0.1 that is free.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub async fn bind(backend: Arc<dyn StreamBackend>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let shared = Arc::new(Shared {
            address: listener.local_addr()?,
            tokens: Mutex::default(),
            began: Instant::now(),
            sessions: Mutex::default(),
        });
        Ok(Self { listener, backend, shared })
    }

    /// What gives addresses away.
    #[must_use]
    pub fn handle(&self) -> StreamingHandle {
        StreamingHandle { shared: Arc::clone(&self.shared) }
    }

    /// Serves for ever; dropped, it ends every session.
    pub async fn run(self) {
        let places = Arc::new(Semaphore::new(CLIENTS));
        let mut clients = JoinSet::new();
        // Sessions go on after their HTTP is over, and not after this.
        let _sessions = EndSessions(Arc::clone(&self.shared));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(err = %error, "No client is accepted");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            while clients.try_join_next().is_some() {}
            let (backend, shared) = (Arc::clone(&self.backend), Arc::clone(&self.shared));
            clients.spawn(async move {
                greet(stream, backend, shared).await;
                drop(place);
            });
        }
    }
}

struct EndSessions(Arc<Shared>);

impl Drop for EndSessions {
    fn drop(&mut self) {
        self.0.sessions.lock().expect("no panic under this lock").abort_all();
    }
}

async fn greet(stream: TcpStream, backend: Arc<dyn StreamBackend>, shared: Arc<Shared>) {
    // Typing is small packets that should not wait.
    let _slower = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let answer = admit(request, &backend, &shared);
        async move { Ok::<_, Infallible>(answer) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = served.await {
        tracing::debug!(err = %error, "A client of the streaming server broke off");
    }
}

/// Answers with an upgrade and starts the session, or says why not.
fn admit(
    mut request: http::Request<Incoming>,
    backend: &Arc<dyn StreamBackend>,
    shared: &Arc<Shared>,
) -> Response<String> {
    let refuse = |status: StatusCode, words: String| {
        let mut answer = Response::new(words + "\n");
        *answer.status_mut() = status;
        answer
    };
    let path = request.uri().path().to_owned();
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let (kind, token) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if !matches!(kind, "exec" | "attach" | "portforward") {
        return refuse(StatusCode::NOT_FOUND, "404 page not found".to_owned());
    }
    let now = shared.began.elapsed();
    let found = shared.tokens.lock().expect("no panic under this lock").take(token, now);
    let Some(wanted) = found.filter(|it| it.path() == kind) else {
        return refuse(StatusCode::NOT_FOUND, "404 page not found".to_owned());
    };
    let agreed = match &wanted {
        Request::PortForward { .. } => negotiate::ports(request.headers()),
        Request::Exec(_) | Request::Attach(_) => negotiate::process(request.headers()),
    };
    let agreement = match agreed {
        Ok(agreement) => agreement,
        Err((status, words)) => return refuse(status, words),
    };
    let mut answer = Response::new(String::new());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in negotiate::answer(&agreement) {
        if let Ok(value) = HeaderValue::from_str(&value) {
            answer.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let backend = Arc::clone(backend);
    let mut sessions = shared.sessions.lock().expect("no panic under this lock");
    while sessions.try_join_next().is_some() {}
    sessions.spawn(async move {
        match upgrade.await {
            Ok(connection) => serve(connection, wanted, &agreement, backend).await,
            Err(error) => tracing::debug!(err = %error, "An upgrade was agreed and not kept"),
        }
    });
    answer
}

async fn serve(
    connection: Upgraded,
    wanted: Request,
    agreement: &Agreement,
    backend: Arc<dyn StreamBackend>,
) {
    let connection = TokioIo::new(connection);
    match wanted {
        Request::PortForward { sandbox } if agreement.carrier == Carrier::WebSocket => {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let (from, to) = tokio::io::split(near);
            let forwarded = forward::run(from, to, backend, sandbox);
            tokio::join!(forwarded, tunnel(connection, far, IDLE));
        }
        Request::PortForward { sandbox } => {
            let (from, to) = tokio::io::split(connection);
            forward::run(from, to, backend, sandbox).await;
        }
        Request::Exec(request) => {
            let start = |backend: Arc<dyn StreamBackend>, request| async move {
                let started = backend.exec(request).await;
                started.map_err(|why| format!("error executing command in container: {why}"))
            };
            let streams = request.streams;
            join(connection, streams, agreement, start(backend, request)).await;
        }
        Request::Attach(request) => {
            let start = |backend: Arc<dyn StreamBackend>, request| async move {
                let attached = backend.attach(request).await;
                attached.map_err(|why| format!("error attaching to container: {why}"))
            };
            let streams = request.streams;
            join(connection, streams, agreement, start(backend, request)).await;
        }
    }
}

/// First the client's streams, then the process: nothing that it says is lost.
async fn join(
    connection: TokioIo<Upgraded>,
    streams: Streams,
    agreement: &Agreement,
    start: impl Future<Output = Result<super::Process, String>>,
) {
    let (from, to) = tokio::io::split(connection);
    let opened = match agreement.carrier {
        Carrier::Spdy => transport::open_spdy(from, to, streams, agreement.sizes()).await,
        Carrier::WebSocket => transport::open_web(from, to, streams).await,
    };
    match opened {
        Ok((reader, writer)) => process::run(start.await, reader, writer, agreement.status).await,
        Err(error) => tracing::debug!(err = %error, "A client did not open its streams"),
    }
}

//! A socket that is listened on, and the connections to it: HTTP/2 without TLS, so many at once.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tonic::body::Body;

use super::authority::AnyAuthority;

/// As many clients as are served at once; the next waits.
const MOST_CLIENTS: usize = 128;
/// Calls that one client may have under way.
const MOST_CALLS: u32 = 100;
/// A pause after an accept that failed, which it does when descriptors run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers the calls of one socket.
pub(crate) trait Answers: Send + Sync + 'static {
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;
}

/// A socket that is listened on.
pub struct LocalSocket {
    listener: UnixListener,
}

impl LocalSocket {
    /// Takes over a listener that does not block. Must be called inside a tokio runtime.
    pub fn new(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        let listener = UnixListener::from_std(listener)?;
        Ok(Self { listener })
    }

    /// Serves connections until it is dropped.
    pub(crate) async fn serve(self, answers: impl Answers) {
        let answers = Arc::new(answers);
        let mut clients: JoinSet<()> = JoinSet::new();
        loop {
            tokio::select! {
                // Cancel-safe: a connection that was not taken is there the next time.
                accepted = self.listener.accept(), if clients.len() < MOST_CLIENTS => match accepted {
                    Ok((stream, _)) => {
                        clients.spawn(connection(stream, answers.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(err = %error, "A client of a local socket cannot be taken");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                // Cancel-safe: a task that ended stays in the set until it is taken.
                Some(_) = clients.join_next() => {}
            }
        }
    }
}

async fn connection(stream: UnixStream, answers: Arc<impl Answers>) {
    let service = service_fn(move |request| {
        let answers = answers.clone();
        async move { Ok::<_, Infallible>(answers.answer(request).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MOST_CALLS)
        .serve_connection(TokioIo::new(AnyAuthority::new(stream)), service);
    if let Err(error) = served.await {
        tracing::debug!(err = %error, "A client of a local socket went away");
    }
}

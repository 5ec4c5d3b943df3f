//! One request and its answer over one connection.

use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use ::http::StatusCode;
use ::http::header::LOCATION;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::client::TlsStream;

use super::client::Fault;
use super::request::{Clear, Request};
use super::tls::{Tls, is_http2};
use super::url::Scheme;
use crate::MAX_OUTPUT;
use crate::dial::{Dialer, Guest, in_words};
use crate::heard::Heard;

/// How long the other side is given to close a connection first.
const PATIENCE: Duration = Duration::from_millis(50);

/// An answer, with as much of its body as matters.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// Sends a request over a new connection and reads the answer.
pub(crate) async fn exchange(
    dialer: &Dialer,
    tls: &Tls,
    request: &Request,
    deadline: Option<Instant>,
) -> Result<Answer, Fault> {
    let url = &request.url;
    let stream = by(deadline, dialer.dial(&url.host, url.port)).await?;
    let stream = stream.map_err(Fault::no_answer)?;
    match (url.scheme, request.in_the_clear) {
        (Scheme::Http, Clear::Http1) => return over_http1(stream, request, deadline).await,
        (Scheme::Http, Clear::Http2) => return over_http2(stream, request, deadline).await,
        (Scheme::Https, _) => {}
    }
    let stream = by(deadline, tls.connect(&url.host, Heard::new(stream))).await?;
    let stream = stream.map_err(Fault::no_answer)?;
    if is_http2(&stream) {
        over_http2(stream, request, deadline).await
    } else {
        over_http1(stream, request, deadline).await
    }
}

/// A connection, and what it is carried by: after the end of TLS comes the end of the connection.
trait Carried: AsyncRead + AsyncWrite + Unpin {
    fn carrier(&mut self) -> &mut (dyn AsyncRead + Unpin + Send);
}

impl Carried for Guest {
    fn carrier(&mut self) -> &mut (dyn AsyncRead + Unpin + Send) {
        self
    }
}

impl Carried for TlsStream<Heard> {
    fn carrier(&mut self) -> &mut (dyn AsyncRead + Unpin + Send) {
        self.get_mut().0
    }
}

async fn over_http1(
    stream: impl Carried,
    request: &Request,
    deadline: Option<Instant>,
) -> Result<Answer, Fault> {
    let request = request.for_http1().map_err(Fault::no_answer)?;
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_buf_size(64 << 10);
    let shaken = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| Fault::no_answer(in_go_words(&error)))?;
    let mut connection = Driven::new(connection.without_shutdown());
    let answered = connection.alongside(by(deadline, sender.send_request(request)));
    let response = answered.await?;
    let response = response.map_err(|error| Fault::no_answer(in_go_words(&error)))?;
    let answer = connection.alongside(read(response, deadline)).await?;
    drop(sender);
    // The other side was asked to close, and is left the time to do it in peace.
    let farewell = async {
        if let Some(parts) = connection.end().await {
            let mut stream = parts.io.into_inner();
            while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {}
            while matches!(stream.carrier().read(&mut [0; 64]).await, Ok(1..)) {}
        }
    };
    // Not closing in time is the other side's right.
    timeout(PATIENCE, farewell).await.ok();
    Ok(answer)
}

async fn over_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: &Request,
    deadline: Option<Instant>,
) -> Result<Answer, Fault> {
    let request = request.for_http2().map_err(Fault::no_answer)?;
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let shaken = by(deadline, shaken).await?;
    let (mut sender, connection) = shaken.map_err(|error| Fault::no_answer(in_go_words(&error)))?;
    let mut connection = Driven::new(connection);
    let answered = connection.alongside(by(deadline, sender.send_request(request)));
    let response = answered.await?;
    let response = response.map_err(|error| Fault::no_answer(in_go_words(&error)))?;
    connection.alongside(read(response, deadline)).await
}

/// Reads the beginning of a body.
async fn read(
    response: ::http::Response<Incoming>,
    deadline: Option<Instant>,
) -> Result<Answer, Fault> {
    let (head, mut incoming) = response.into_parts();
    let mut body = Vec::new();
    while body.len() < MAX_OUTPUT {
        let frame = match deadline {
            Some(deadline) => timeout_at(deadline, incoming.frame()).await,
            None => Ok(incoming.frame().await),
        };
        match frame {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    body.extend_from_slice(data);
                }
            }
            Ok(Some(Err(error))) => {
                let cause = match in_go_words(&error) {
                    cause if cause == "EOF" => "unexpected EOF".to_owned(),
                    cause => cause,
                };
                return Err(Fault::HalfAnswer(cause));
            }
            Err(_) => {
                let cause = "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
                return Err(Fault::HalfAnswer(cause.to_owned()));
            }
        }
    }
    body.truncate(MAX_OUTPUT);
    let location = head.headers.get(LOCATION);
    Ok(Answer {
        status: head.status,
        location: location.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned()),
        body,
    })
}

/// Waits for something until the deadline.
async fn by<T>(deadline: Option<Instant>, what: impl Future<Output = T>) -> Result<T, Fault> {
    let Some(deadline) = deadline else {
        return Ok(what.await);
    };
    let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    let answer = timeout_at(deadline, what).await;
    answer.map_err(|_| Fault::no_answer(late.to_owned()))
}

/// A connection that makes progress only while somebody waits for something over it.
struct Driven<F: Future> {
    connection: Pin<Box<F>>,
    ended: Option<F::Output>,
}

impl<T, E, F: Future<Output = Result<T, E>>> Driven<F> {
    fn new(connection: F) -> Self {
        Self { connection: Box::pin(connection), ended: None }
    }

    async fn alongside<A>(&mut self, what: impl Future<Output = A>) -> A {
        let mut what = pin!(what);
        loop {
            tokio::select! {
                biased;
                answer = &mut what => return answer,
                ended = &mut self.connection, if self.ended.is_none() => self.ended = Some(ended),
            }
        }
    }

    /// What is left of the connection once it has ended well.
    async fn end(mut self) -> Option<T> {
        let ended = match self.ended.take() {
            Some(ended) => ended,
            None => self.connection.await,
        };
        ended.ok()
    }
}

/// A client's error in the words of Go's client.
fn in_go_words(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    if error.is_parse() {
        return "net/http: HTTP/1.x transport connection broken: malformed HTTP response"
            .to_owned();
    }
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |it| (*it).source());
    match causes.last().and_then(|it| it.downcast_ref::<io::Error>()) {
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        Some(error) => format!("read tcp: read: {}", in_words(error)),
        None => error.to_string(),
    }
}

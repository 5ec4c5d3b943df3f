//! A server whose health the test decides, for probes and hooks to ask: HTTP, HTTPS and gRPC on one
//! port.
//!
//! It runs in a thread of the test program, so a pod on the host's network stands in for it. It
//! hears everything and keeps the heads of what it heard; it closes nothing by itself.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::cluster::Authority;

/// Leads to [`Patient`]'s own health.
pub const MOVED: &str = "/moved";
/// Leads to another host.
pub const AWAY: &str = "/away";

/// How a patient is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// HTTP, and gRPC without TLS.
    Plain,
    /// HTTPS, with a certificate that nobody knows.
    Tls,
}

/// A server that is well or not. Ends with the process.
pub struct Patient {
    port: u16,
    ward: Arc<Ward>,
}

#[derive(Default)]
struct Ward {
    is_ill: AtomicBool,
    heard: Mutex<Vec<String>>,
}

impl Patient {
    /// Starts to answer on every address of the run, in good health.
    pub fn start(wire: Wire) -> Result<Patient> {
        let listener = TcpListener::bind("0.0.0.0:0")?;
        let port = listener.local_addr()?.port();
        listener.set_nonblocking(true)?;
        let ward = Arc::new(Ward::default());
        let tls = match wire {
            Wire::Plain => None,
            Wire::Tls => Some(acceptor()?),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let shared = Arc::clone(&ward);
        thread::spawn(move || runtime.block_on(listen(listener, tls, shared)));
        Ok(Patient { port, ward })
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on answers are bad.
    pub fn fall_ill(&self) {
        self.ward.is_ill.store(true, Ordering::Relaxed);
    }

    /// From now on answers are good.
    pub fn recover(&self) {
        self.ward.is_ill.store(false, Ordering::Relaxed);
    }

    /// The heads of all requests: method, path and version, then one header a line with its name in
    /// lower case.
    #[must_use]
    pub fn heard(&self) -> Vec<String> {
        self.ward.heard().clone()
    }
}

impl Ward {
    fn heard(&self) -> MutexGuard<'_, Vec<String>> {
        self.heard.lock().expect("no holder of this lock panics")
    }

    fn hear(&self, request: &Request<Incoming>) {
        let mut head = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
        for (name, value) in request.headers() {
            let value = String::from_utf8_lossy(value.as_bytes());
            writeln!(head, "{name}: {value}").expect("a string takes every text");
        }
        self.heard().push(head);
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<BoxBody<Bytes, Infallible>> {
        self.hear(request);
        let is_ill = self.is_ill.load(Ordering::Relaxed);
        let kind = request.headers().get(CONTENT_TYPE);
        if kind.is_some_and(|it| it.as_bytes().starts_with(b"application/grpc")) {
            return health(is_ill);
        }
        let (status, to) = match request.uri().path() {
            MOVED => (StatusCode::FOUND, Some("/health")),
            AWAY => (StatusCode::FOUND, Some("http://192.0.2.1/")),
            _ if is_ill => (StatusCode::SERVICE_UNAVAILABLE, None),
            _ => (StatusCode::OK, None),
        };
        let mut response = Response::new(Full::new(Bytes::from_static(b"heard\n")).boxed());
        *response.status_mut() = status;
        if let Some(to) = to {
            let to = HeaderValue::from_static(to);
            response.headers_mut().insert(LOCATION, to);
        }
        response
    }
}

/// `grpc.health.v1.HealthCheckResponse`: serving is 1, not serving 2, in field 1 of a message of
/// two bytes.
fn health(is_ill: bool) -> Response<BoxBody<Bytes, Infallible>> {
    let status = if is_ill { 2 } else { 1 };
    let message = Bytes::from(vec![0, 0, 0, 0, 2, 8, status]);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(message).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body.boxed());
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn acceptor() -> Result<TlsAcceptor> {
    let authority = Authority::new("nobody knows this authority")?;
    let identity = authority.server("patient", &["patient.test".to_owned()])?;
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())
        .context("the certificate that was just made")?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
        .context("the key that was just made")?;
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn listen(listener: TcpListener, tls: Option<TlsAcceptor>, ward: Arc<Ward>) {
    let listener = tokio::net::TcpListener::from_std(listener)
        .expect("the listener does not block and the runtime has a driver");
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let (tls, ward) = (tls.clone(), Arc::clone(&ward));
        tokio::spawn(async move {
            match tls {
                None => serve(stream, ward).await,
                // Whoever does not shake hands is not served.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, ward).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, ward: Arc<Ward>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = ward.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // A client that goes away half-way is its own problem.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    #[test]
    fn a_patient_is_as_well_as_the_test_says() {
        let patient = Patient::start(Wire::Plain).unwrap();
        let address = format!("127.0.0.1:{}", patient.port());
        assert_eq!(http::get(&address, "/health").unwrap().status, 200);
        patient.fall_ill();
        assert_eq!(http::get(&address, "/health").unwrap().status, 503);
        patient.recover();
        assert_eq!(http::get(&address, MOVED).unwrap().status, 302);
        let heard = patient.heard();
        assert!(heard[0].starts_with("GET /health HTTP/1.1\n"), "{heard:?}");
        assert!(heard[2].contains("\nhost: 127.0.0.1"), "{heard:?}");
    }
}

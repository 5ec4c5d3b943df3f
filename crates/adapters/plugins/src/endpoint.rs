//! A channel to a plugin's socket.
//!
//! Made for each use: plugins come and go, and a call to a socket that is gone must say so at once
//! instead of waiting for it.

use std::{
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
};

use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
    sync::oneshot,
};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// A lazy channel. Must be called inside a tokio runtime, which drives the connection.
pub(crate) fn channel(path: &Path) -> Channel {
    let path: PathBuf = path.to_owned();
    // The address only fills in HTTP's authority; the connector decides where the bytes go.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    }))
}

/// A channel that is connected. Must be called inside a tokio runtime, which drives it.
pub(crate) async fn connect(path: &Path) -> Result<Channel, tonic::transport::Error> {
    let path: PathBuf = path.to_owned();
    let connector = service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await
}

/// A channel that is connected, and something that ends with its connection, whoever ends it. Must
/// be called inside a tokio runtime, which drives it.
pub(crate) async fn connect_watched(
    path: &Path,
) -> Result<(Channel, oneshot::Receiver<()>), tonic::transport::Error> {
    let path: PathBuf = path.to_owned();
    let (end, ended) = oneshot::channel();
    // A second connection of this channel is nobody's business.
    let end = Mutex::new(Some(end));
    let connector = service_fn(move |_| {
        let path = path.clone();
        let end = end.lock().expect("no panic while the lock is held").take();
        async move {
            let stream = UnixStream::connect(path).await?;
            Ok::<_, io::Error>(TokioIo::new(Watched { stream, _end: end }))
        }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await?;
    Ok((channel, ended))
}

/// A connection that tells of its end by dropping what it holds.
struct Watched {
    stream: UnixStream,
    _end: Option<oneshot::Sender<()>>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The socket in a driver's own words: a path, or one behind `unix://`.
pub(crate) fn socket_path(endpoint: &str) -> PathBuf {
    let path = endpoint
        .strip_prefix("unix://")
        .or_else(|| endpoint.strip_prefix("unix:"))
        .unwrap_or(endpoint);
    PathBuf::from(path)
}

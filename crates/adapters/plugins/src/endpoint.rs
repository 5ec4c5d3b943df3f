//! A channel to a plugin's socket.
//!
//! Made for each use: plugins come and go, and a call to a socket that is gone must say so at once
//! instead of waiting for it.

use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
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

/// The socket in a driver's own words: a path, or one behind `unix://`.
pub(crate) fn socket_path(endpoint: &str) -> PathBuf {
    let path = endpoint
        .strip_prefix("unix://")
        .or_else(|| endpoint.strip_prefix("unix:"))
        .unwrap_or(endpoint);
    PathBuf::from(path)
}

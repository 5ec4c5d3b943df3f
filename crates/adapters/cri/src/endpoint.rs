//! From an endpoint's text to a channel that connects by itself.
//!
//! In: `unix:///run/x.sock` (a bare path counts as one). Out: a lazy channel; each call on a lost
//! connection dials anew, and a socket that cannot be dialled fails the call at once. A service in this
//! process is dialled by a function instead. Refuses: TCP, TLS, waiting for a socket to appear.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Why a text is not an endpoint we can dial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// No endpoint was given.
    #[error("endpoint is required")]
    Missing,
    /// Another protocol than unix sockets.
    #[error("only support unix socket endpoint, got {endpoint:?}")]
    NotUnix {
        /// The text as given.
        endpoint: String,
    },
    /// A socket without an absolute path.
    #[error("endpoint {endpoint:?} has no absolute path")]
    NoPath {
        /// The text as given.
        endpoint: String,
    },
}

/// The socket cannot be dialled. `Display` is worded as upstream words it, so that known searches
/// find it.
#[derive(Debug, thiserror::Error)]
#[error("transport: Error while dialing: dial unix {}: connect: {}", path.display(), errno_text(source))]
pub(crate) struct DialError {
    path: PathBuf,
    source: io::Error,
}

/// The socket's path in an endpoint's text.
pub(crate) fn socket_path(endpoint: &str) -> Result<PathBuf, EndpointError> {
    let path = match endpoint.split_once("://") {
        Some(("unix", path)) => path,
        Some(_) => {
            return Err(EndpointError::NotUnix { endpoint: endpoint.to_owned() });
        }
        None => endpoint.strip_prefix("unix:").unwrap_or(endpoint),
    };
    if endpoint.is_empty() {
        Err(EndpointError::Missing)
    } else if Path::new(path).is_absolute() {
        Ok(PathBuf::from(path))
    } else {
        Err(EndpointError::NoPath { endpoint: endpoint.to_owned() })
    }
}

/// A channel to a socket. Must be called inside a tokio runtime, which drives the connection.
pub(crate) fn channel(path: PathBuf) -> Channel {
    let path: Arc<Path> = path.into();
    // The address only fills in HTTP's authority; the connector decides where the bytes go.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(service_fn(move |_| {
        let path = Arc::clone(&path);
        async move {
            match UnixStream::connect(&path).await {
                Ok(stream) => Ok(TokioIo::new(stream)),
                Err(source) => Err(DialError { path: path.to_path_buf(), source }),
            }
        }
    }))
}

/// A channel whose connections somebody else makes. Must be called inside a tokio runtime.
pub(crate) fn channel_by(
    dial: impl Fn() -> io::Result<UnixStream> + Clone + Send + Sync + 'static,
) -> Channel {
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(service_fn(move |_| {
        let connection = dial().map(TokioIo::new);
        async move { connection }
    }))
}

/// The kernel's words in Go's spelling: lower case, no number.
fn errno_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words);
    text.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_names_an_absolute_socket() {
        let check = |text: &str, path: Option<&str>| {
            assert_eq!(socket_path(text).ok().as_deref(), path.map(Path::new), "{text}");
        };
        check("unix:///run/containerd/containerd.sock", Some("/run/containerd/containerd.sock"));
        check("/run/x.sock", Some("/run/x.sock"));
        check("unix:/run/x.sock", Some("/run/x.sock"));
        check("", None);
        check("unix://run/x.sock", None);
        check("run/x.sock", None);
        check("tcp://127.0.0.1:1", None);
        check("npipe:////./pipe/x", None);
    }

    #[test]
    fn a_failed_dial_reads_as_upstream_says_it() {
        let error = DialError { path: "/x.sock".into(), source: io::Error::from_raw_os_error(2) };
        assert_eq!(
            error.to_string(),
            "transport: Error while dialing: dial unix /x.sock: connect: no such file or directory"
        );
    }
}

//! Callers in the service's own process: each connection is a pair of sockets, one end handed over.
//!
//! Whoever calls this way speaks the same protocol as over a socket with a name, so there is one path.

use std::{
    io,
    os::unix::net::UnixStream as Pair,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::mpsc,
};
use tokio_stream::{Stream, wrappers::UnixListenerStream};

/// The calling side. Clones call the same service.
#[derive(Clone, Debug)]
pub struct Dialler(mpsc::UnboundedSender<Pair>);

impl Dialler {
    /// A connection, which is there at once.
    ///
    /// # Errors
    ///
    /// When the service has ended, or the process has no descriptors left.
    pub fn dial(&self) -> io::Result<UnixStream> {
        let (near, far) = Pair::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        self.0.send(far).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        UnixStream::from_std(near)
    }
}

/// Where connections come from: out of this process, from a socket with a name, or both.
#[derive(Debug)]
pub struct Incoming {
    inside: Option<mpsc::UnboundedReceiver<Pair>>,
    outside: Option<UnixListenerStream>,
}

impl Incoming {
    /// From whoever opens the socket.
    #[must_use]
    pub fn outside(listener: UnixListener) -> Self {
        Self { inside: None, outside: Some(UnixListenerStream::new(listener)) }
    }

    /// From this process, and from whoever opens the socket, if there is one.
    #[must_use]
    pub fn inside(listener: Option<UnixListener>) -> (Dialler, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let outside = listener.map(UnixListenerStream::new);
        (Dialler(sender), Self { inside: Some(receiver), outside })
    }
}

impl Stream for Incoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(inside) = &mut this.inside {
            match inside.poll_recv(context) {
                Poll::Ready(Some(pair)) => return Poll::Ready(Some(UnixStream::from_std(pair))),
                // Nobody here can call any more.
                Poll::Ready(None) => this.inside = None,
                Poll::Pending => {}
            }
        }
        match (&mut this.outside, &this.inside) {
            (Some(outside), _) => Pin::new(outside).poll_next(context),
            (None, Some(_)) => Poll::Pending,
            (None, None) => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_stream::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_call_arrives_at_the_other_side() {
        let (dialler, mut incoming) = Incoming::inside(None);
        let mut caller = dialler.dial().unwrap();
        let mut called = incoming.next().await.unwrap().unwrap();
        caller.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        called.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
    }

    #[tokio::test]
    async fn both_kinds_of_callers_are_heard() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let (dialler, mut incoming) = Incoming::inside(Some(UnixListener::bind(&path).unwrap()));
        let _inside = dialler.dial().unwrap();
        let _outside = UnixStream::connect(&path).await.unwrap();
        assert!(incoming.next().await.unwrap().is_ok());
        assert!(incoming.next().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_service_that_has_ended_refuses() {
        let (dialler, incoming) = Incoming::inside(None);
        drop(incoming);
        let error = dialler.dial().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}

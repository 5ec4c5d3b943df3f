//! One connection: requests out, answers and events in, matched by number.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrolet_runtime_protocol::message::{Answer, Failed, MessageError, Request};
use ferrolet_runtime_protocol::packet::Header;
use ferrolet_runtime_protocol::record::Exit;
use ferrolet_runtime_sys::channel;
use rustix::io::Errno;
use rustix::net::Shutdown;
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::oneshot;

/// A request without the wished answer.
#[derive(Debug, Error)]
pub enum CallError {
    /// The other side has left, or was never reached.
    #[error("the monitor is gone")]
    Gone,
    /// The request could not be sent.
    #[error("send request")]
    Send(#[source] io::Error),
    /// What came back cannot be read.
    #[error("read answer")]
    Answer(#[source] MessageError),
    /// An answer to another question.
    #[error("answer of kind {0} to another question")]
    Mismatch(u16),
    /// An older monitor that does not know the request.
    #[error("the monitor does not know this request")]
    Unknown,
    /// It was tried in vain.
    #[error("{}{}{}", .0.step, if .0.path.is_empty() { "" } else { " " }, .0.path)]
    Failed(Failed, #[source] Option<io::Error>),
}

pub(crate) type Reply = Result<(Answer, Vec<OwnedFd>), CallError>;

/// A cheap handle to one connection.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    _open: Arc<Open>,
}

/// Held by every handle but not by the task that reads: without handles the connection ends.
#[derive(Debug)]
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        let _gone = rustix::net::shutdown(&self.0.socket, Shutdown::Both);
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// A socket of whole packets. tokio's type is named for datagrams, but all that is used of it is
    /// readiness, which is the same for any socket.
    pub(crate) socket: UnixDatagram,
    state: Mutex<State>,
}

/// Who waits for what. Nobody is added after the end.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) is_over: bool,
    last_id: u32,
    pub(crate) calls: BTreeMap<u32, oneshot::Sender<Reply>>,
    pub(crate) commands: BTreeMap<u64, oneshot::Sender<Exit>>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixDatagram::from_std(socket.into())?;
        let shared = Arc::new(Shared { socket, state: Mutex::default() });
        Ok(Self { _open: Arc::new(Open(shared.clone())), shared })
    }

    pub(crate) async fn call(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Reply {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut state = self.shared.state();
            if state.is_over {
                return Err(CallError::Gone);
            }
            // 0 is for events. After four thousand million requests numbers begin anew.
            state.last_id = state.last_id.checked_add(1).unwrap_or(1);
            let id = state.last_id;
            state.calls.insert(id, sender);
            id
        };
        let _waiting = Waiting { shared: &self.shared, id };
        self.send(Header { is_in_memfd: false, kind: request.kind(), id }, request, descriptors)
            .await?;
        match answer.await.map_err(|_| CallError::Gone)?? {
            (Answer::Failed(failed), _) => {
                let source =
                    (failed.errno != 0).then(|| io::Error::from_raw_os_error(failed.errno));
                Err(CallError::Failed(failed, source))
            }
            (Answer::Unknown(_), _) => Err(CallError::Unknown),
            answer => Ok(answer),
        }
    }

    async fn send(
        &self,
        header: Header,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), CallError> {
        let body = request.encode();
        let socket = &self.shared.socket;
        loop {
            socket.writable().await.map_err(CallError::Send)?;
            let sent = socket.try_io(Interest::WRITABLE, || {
                Ok(channel::send(socket, header, &body, descriptors)?)
            });
            match sent {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if is_gone(&error) => return Err(CallError::Gone),
                Err(error) => return Err(CallError::Send(error)),
            }
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
}

/// A call under way; one that is dropped is no longer waited for.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u32,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.state().calls.remove(&self.id);
    }
}

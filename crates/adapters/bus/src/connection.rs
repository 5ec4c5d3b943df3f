//! One connection to a bus: who we are, calls with a deadline, signals.
//!
//! Owned by one task at a time. A call that is not answered in time, or a peer that does not speak
//! the protocol, ends the connection: whoever needs the bus opens another. Signals that come while an
//! answer is waited for are kept, as many as there is room for.

use std::{
    collections::VecDeque,
    env, io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::UnixStream,
    time::timeout,
};

use crate::{
    message::{Kind, Message, MessageError, PREFIX},
    value::Value,
};

/// Where the system's bus listens unless `DBUS_SYSTEM_BUS_ADDRESS` says otherwise.
const SYSTEM_BUS: &str = "/var/run/dbus/system_bus_socket";
const BUS: &str = "org.freedesktop.DBus";
const BUS_PATH: &str = "/org/freedesktop/DBus";
/// Connecting, and each step of saying who we are.
const HELLO: Duration = Duration::from_secs(5);
/// Signals that wait to be looked at.
const MOST_SIGNALS: usize = 256;
/// Descriptors in one message; logind sends one.
const MOST_DESCRIPTORS: usize = 4;
/// A line of the handshake.
const LONGEST_LINE: usize = 512;

/// Why the bus did not do it.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// Nobody listens, or not for us.
    #[error("connect to the bus at {0}")]
    Connect(PathBuf, #[source] io::Error),
    /// An address of a kind that we do not speak.
    #[error("DBUS_SYSTEM_BUS_ADDRESS {0:?} has no unix:path=")]
    Address(String),
    /// It does not let us in.
    #[error("the bus does not let us in: {0}")]
    Refused(String),
    /// The connection broke.
    #[error("the connection to the bus broke")]
    Broken(#[source] io::Error),
    /// It says what makes no sense.
    #[error("the bus says what makes no sense")]
    Nonsense(#[from] MessageError),
    /// No answer in time.
    #[error("no answer to {0} within {1:?}")]
    Silent(String, Duration),
    /// The answer is no.
    #[error("{0}")]
    Error(String),
    /// The answer is something else.
    #[error("{0} answers with something else than expected")]
    Unexpected(String),
}

/// The name of one method: whom, on what, of which interface.
#[derive(Clone, Copy, Debug)]
pub struct Method<'a> {
    /// The name on the bus.
    pub destination: &'a str,
    /// The object.
    pub path: &'a str,
    /// The interface.
    pub interface: &'a str,
    /// The method.
    pub member: &'a str,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    peer: Peer,
    signals: VecDeque<Message>,
}

impl Connection {
    /// Connects to the system's bus.
    pub async fn system() -> Result<Self, BusError> {
        let address = match env::var("DBUS_SYSTEM_BUS_ADDRESS") {
            Ok(address) if !address.is_empty() => socket_of(&address)?,
            _ => PathBuf::from(SYSTEM_BUS),
        };
        Self::open(&address).await
    }

    /// Connects to a bus, says who we are and asks for a name.
    pub async fn open(socket: &Path) -> Result<Self, BusError> {
        let slow = || io::Error::from(io::ErrorKind::TimedOut);
        let refused = |cause| BusError::Connect(socket.to_owned(), cause);
        let connecting = timeout(HELLO, UnixStream::connect(socket)).await;
        let mut stream = connecting.unwrap_or_else(|_| Err(slow())).map_err(refused)?;
        match timeout(HELLO, introduce(&mut stream)).await {
            Ok(introduced) => introduced?,
            Err(_elapsed) => return Err(BusError::Broken(slow())),
        }
        let mut connection = Self { peer: Peer::new(stream), signals: VecDeque::new() };
        let hello = Method { destination: BUS, path: BUS_PATH, interface: BUS, member: "Hello" };
        connection.call(hello, Vec::new(), HELLO).await?;
        Ok(connection)
    }

    /// Asks and waits for the answer.
    pub async fn call(
        &mut self,
        method: Method<'_>,
        body: Vec<Value>,
        within: Duration,
    ) -> Result<Message, BusError> {
        let Method { destination, path, interface, member } = method;
        let call = Message {
            path: Some(path.to_owned()),
            interface: Some(interface.to_owned()),
            member: Some(member.to_owned()),
            destination: Some(destination.to_owned()),
            body,
            ..Message::new(Kind::Call)
        };
        let answered = timeout(within, async {
            let serial = self.peer.send(call).await?;
            loop {
                let message = self.peer.receive().await?;
                match message.kind {
                    Kind::Reply if message.reply_to == Some(serial) => return Ok(message),
                    Kind::Error if message.reply_to == Some(serial) => {
                        return Err(BusError::Error(message.refusal()));
                    }
                    Kind::Signal => self.keep(message),
                    // Answers to calls that were given up, and calls to us, who offer nothing.
                    Kind::Reply | Kind::Error | Kind::Call => {}
                }
            }
        });
        let silent = |_| BusError::Silent(format!("{interface}.{member}"), within);
        answered.await.map_err(silent)?
    }

    /// Reads one property.
    pub async fn property(&mut self, of: Method<'_>, within: Duration) -> Result<Value, BusError> {
        let get = Method { interface: "org.freedesktop.DBus.Properties", member: "Get", ..of };
        let body = vec![Value::text(of.interface), Value::text(of.member)];
        let answer = self.call(get, body, within).await?;
        let value = answer.body.first().map(|value| value.inner().clone());
        value.ok_or_else(|| BusError::Unexpected(of.member.to_owned()))
    }

    /// Asks to be told of signals.
    pub async fn subscribe(&mut self, rule: &str, within: Duration) -> Result<(), BusError> {
        let method =
            Method { destination: BUS, path: BUS_PATH, interface: BUS, member: "AddMatch" };
        self.call(method, vec![Value::text(rule)], within).await.map(drop)
    }

    /// Takes a name on the bus, for whoever is asked under it.
    pub async fn take_name(&mut self, name: &str) -> Result<(), BusError> {
        let method =
            Method { destination: BUS, path: BUS_PATH, interface: BUS, member: "RequestName" };
        let answer = self.call(method, vec![Value::text(name), Value::U32(4)], HELLO).await?;
        match answer.body.first() {
            Some(Value::U32(1)) => Ok(()),
            _ => Err(BusError::Unexpected("RequestName".to_owned())),
        }
    }

    /// Sends a message, and answers with its number.
    pub async fn send(&mut self, message: Message) -> Result<u32, BusError> {
        self.peer.send(message).await
    }

    /// The next message of any kind, for whoever is asked under a name. Cancel-safe: what was
    /// received is kept.
    pub async fn receive(&mut self) -> Result<Message, BusError> {
        match self.signals.pop_front() {
            Some(signal) => Ok(signal),
            None => self.peer.receive().await,
        }
    }

    /// The next signal. Cancel-safe: what was received is kept.
    pub async fn next_signal(&mut self) -> Result<Message, BusError> {
        loop {
            if let Some(signal) = self.signals.pop_front() {
                return Ok(signal);
            }
            let message = self.peer.receive().await?;
            if message.kind == Kind::Signal {
                self.keep(message);
            }
        }
    }

    fn keep(&mut self, signal: Message) {
        if self.signals.len() == MOST_SIGNALS {
            self.signals.pop_front();
        }
        self.signals.push_back(signal);
    }
}

/// Messages on a stream, from either side.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: UnixStream,
    serial: u32,
    received: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl Peer {
    /// A stream after the handshake.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, serial: 0, received: Vec::new(), descriptors: VecDeque::new() }
    }

    /// Sends a message, and answers with its number.
    pub(crate) async fn send(&mut self, mut message: Message) -> Result<u32, BusError> {
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        message.serial = self.serial;
        let bytes = message.encode();
        let mut sent = 0;
        while sent < bytes.len() {
            let rest = &bytes[sent..];
            let lent: Vec<_> = match sent {
                0 => message.descriptors.iter().map(|it| it.as_fd()).collect(),
                _ => Vec::new(),
            };
            let result = self
                .stream
                .async_io(Interest::WRITABLE, || {
                    let mut space = [MaybeUninit::uninit(); 64];
                    let mut beside = SendAncillaryBuffer::new(&mut space);
                    if !lent.is_empty() {
                        beside.push(SendAncillaryMessage::ScmRights(&lent));
                    }
                    let parts = [io::IoSlice::new(rest)];
                    Ok(sendmsg(&self.stream, &parts, &mut beside, SendFlags::NOSIGNAL)?)
                })
                .await;
            sent += result.map_err(BusError::Broken)?;
        }
        Ok(self.serial)
    }

    /// The next message of any kind. Cancel-safe: what was received is kept.
    pub(crate) async fn receive(&mut self) -> Result<Message, BusError> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(message);
            }
            let mut buffer = [0_u8; 8192];
            let (n_bytes, descriptors) = self
                .stream
                .async_io(Interest::READABLE, || read(&self.stream, &mut buffer))
                .await
                .map_err(BusError::Broken)?;
            if n_bytes == 0 {
                return Err(BusError::Broken(io::ErrorKind::UnexpectedEof.into()));
            }
            self.received.extend(&buffer[..n_bytes]);
            self.descriptors.extend(descriptors);
            // Nobody sends descriptors that no message takes.
            while self.descriptors.len() > MOST_DESCRIPTORS {
                self.descriptors.pop_front();
            }
        }
    }

    /// Takes a message out of what was received, once it is whole.
    fn whole(&mut self) -> Result<Option<Message>, BusError> {
        let Some(prefix) = self.received.first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = Message::length(prefix)?;
        if self.received.len() < length {
            return Ok(None);
        }
        let bytes: Vec<u8> = self.received.drain(..length).collect();
        let mut message = Message::decode(&bytes, Vec::new())?;
        let n_named = message.body.iter().filter(|it| matches!(it, Value::Descriptor(_))).count();
        let n_taken = n_named.min(self.descriptors.len());
        message.descriptors = self.descriptors.drain(..n_taken).collect();
        Ok(Some(message))
    }
}

fn read(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); 256];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(buffer)];
    let received = recvmsg(stream, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(given) = message {
            descriptors.extend(given);
        }
    }
    Ok((received.bytes, descriptors))
}

/// The handshake: our user, whom the kernel vouches for, and that we take descriptors.
async fn introduce(stream: &mut UnixStream) -> Result<(), BusError> {
    let user = rustix::process::geteuid().as_raw().to_string();
    let user: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
    stream
        .write_all(format!("\0AUTH EXTERNAL {user}\r\n").as_bytes())
        .await
        .map_err(BusError::Broken)?;
    let answer = line(stream).await?;
    if !answer.starts_with("OK ") {
        return Err(BusError::Refused(answer));
    }
    stream.write_all(b"NEGOTIATE_UNIX_FD\r\n").await.map_err(BusError::Broken)?;
    let answer = line(stream).await?;
    if answer != "AGREE_UNIX_FD" {
        return Err(BusError::Refused(answer));
    }
    stream.write_all(b"BEGIN\r\n").await.map_err(BusError::Broken)
}

async fn line(stream: &mut UnixStream) -> Result<String, BusError> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        if line.len() == LONGEST_LINE {
            return Err(BusError::Refused("its answer has no end".to_owned()));
        }
        // Byte by byte: what follows the handshake is not ours to take here.
        line.push(stream.read_u8().await.map_err(BusError::Broken)?);
    }
    line.truncate(line.len() - 2);
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// The socket in an address such as `unix:path=/run/bus,guid=…`.
fn socket_of(address: &str) -> Result<PathBuf, BusError> {
    let mut addresses = address.split(';').filter_map(|one| one.strip_prefix("unix:"));
    let path = addresses.find_map(|one| {
        let mut pairs = one.split(',').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == "path").map(|(_, path)| PathBuf::from(path))
    });
    path.ok_or_else(|| BusError::Address(address.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_their_socket() {
        let check = |address: &str, expected: Option<&str>| {
            assert_eq!(socket_of(address).ok(), expected.map(PathBuf::from), "{address}");
        };
        check("unix:path=/run/bus", Some("/run/bus"));
        check("unix:path=/run/bus,guid=12", Some("/run/bus"));
        check("tcp:host=a;unix:guid=1,path=/b", Some("/b"));
        check("unix:abstract=/tmp/x", None);
        check("", None);
    }
}

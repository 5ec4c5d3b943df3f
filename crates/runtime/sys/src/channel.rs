//! Packets with descriptors over a Unix socket: the channel between service, spawner and monitors.
//!
//! A packet is sent whole or not at all. Sockets do not block; who waits, waits by `epoll`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ferrolet_runtime_protocol::packet::{
    HEADER, Header, MAX_DESCRIPTORS, MAX_INLINE, MAX_MESSAGE, PacketError,
};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use thiserror::Error;

/// Room for the largest packet.
pub const BUFFER: usize = HEADER + MAX_INLINE;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// A packet that came.
#[derive(Debug)]
pub struct Packet {
    /// Its header.
    pub header: Header,
    /// Its message.
    pub body: Vec<u8>,
    /// Its descriptors, without the one that held the message.
    pub descriptors: Vec<OwnedFd>,
}

/// A packet that did not come.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The socket failed; `EAGAIN` when there is nothing now.
    #[error("socket")]
    Socket(#[source] Errno),
    /// The other side has left.
    #[error("the other side has left")]
    Closed,
    /// The packet, or its descriptors, had no room.
    #[error("packet is too large")]
    Truncated,
    /// No packet of this protocol.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The memfd that should hold the message is missing, can still change, or is too large.
    #[error("message in memory cannot be used")]
    Memfd,
}

/// Two sockets that are connected to one another.
///
/// # Errors
///
/// The kernel's.
pub fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A socket named `name` in `directory`, with nobody connected yet.
///
/// # Errors
///
/// The kernel's.
pub fn listen(directory: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::bind(&socket, &address(directory.as_fd(), name)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A connection to the socket `name` in `directory`.
///
/// # Errors
///
/// The kernel's.
pub fn connect(directory: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::connect(&socket, &address(directory.as_fd(), name)?)?;
    Ok(socket)
}

/// The next connection to a listening socket, if its peer is root.
///
/// # Errors
///
/// The kernel's; `EPERM` when it was somebody else, who is gone then.
pub fn accept(socket: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let connection =
        rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    if rustix::net::sockopt::socket_peercred(&connection)?.uid.is_root() {
        Ok(connection)
    } else {
        Err(Errno::PERM)
    }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Addresses have room for 107 bytes, which a directory's path may exceed; its descriptor does not.
fn address(directory: BorrowedFd<'_>, name: &str) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

/// Sends a message. `header` need not know whether it fits into the packet.
///
/// # Errors
///
/// The kernel's: `EAGAIN` when the other side must read first, `EMSGSIZE` when the message or the
/// number of descriptors is beyond the protocol's limits.
pub fn send(
    socket: impl AsFd,
    header: Header,
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    if body.len() <= MAX_INLINE {
        return send_packet(socket.as_fd(), header, body, descriptors);
    }
    if body.len() > MAX_MESSAGE {
        return Err(Errno::MSGSIZE);
    }
    let memory = sealed(body)?;
    let all: Vec<BorrowedFd<'_>> =
        std::iter::once(memory.as_fd()).chain(descriptors.iter().copied()).collect();
    send_packet(socket.as_fd(), Header { is_in_memfd: true, ..header }, &[], &all)
}

fn send_packet(
    socket: BorrowedFd<'_>,
    header: Header,
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let header = header.encode();
    let parts = [IoSlice::new(&header), IoSlice::new(body)];
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// The next packet. `buffer` has room for [`BUFFER`] bytes.
///
/// # Errors
///
/// When there is none now, when the other side has left, and when it is no packet of this protocol.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Packet, ReceiveError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let socket = socket.as_fd();
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(buffer)];
        rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })
    .map_err(|errno| match errno {
        Errno::CONNRESET => ReceiveError::Closed,
        errno => ReceiveError::Socket(errno),
    })?;
    // Taken before anything is refused, so that nothing that came stays open.
    let mut descriptors: Vec<OwnedFd> = control
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => rights.collect(),
            _ => Vec::new(),
        })
        .collect();
    if received.bytes == 0 {
        return Err(ReceiveError::Closed);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(ReceiveError::Truncated);
    }
    let (header, body) = Header::decode(&buffer[..received.bytes])?;
    let body = if header.is_in_memfd {
        if descriptors.is_empty() {
            return Err(ReceiveError::Memfd);
        }
        let memory = descriptors.remove(0);
        unseal(&memory).ok_or(ReceiveError::Memfd)?
    } else {
        body.to_vec()
    };
    Ok(Packet { header, body, descriptors })
}

/// Nobody can change it any more.
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

fn sealed(bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("ferrolet-message", flags)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = rustix::io::retry_on_intr(|| rustix::io::write(&memory, rest))?;
        rest = &rest[n..];
    }
    rustix::fs::fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

fn unseal(memory: &OwnedFd) -> Option<Vec<u8>> {
    if !rustix::fs::fcntl_get_seals(memory).ok()?.contains(SEALS) {
        return None;
    }
    let size = usize::try_from(rustix::fs::fstat(memory).ok()?.st_size).ok()?;
    if size > MAX_MESSAGE {
        return None;
    }
    let mut bytes = vec![0; size];
    let mut at = 0;
    while at < size {
        let offset = u64::try_from(at).ok()?;
        match rustix::io::retry_on_intr(|| rustix::io::pread(memory, &mut bytes[at..], offset)) {
            Ok(0) | Err(_) => return None,
            Ok(n) => at += n,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Header = Header { is_in_memfd: false, kind: 1, id: 7 };

    #[test]
    fn a_packet_brings_its_descriptors() {
        let (near, far) = pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        send(&near, HELLO, b"hi", &[reader.as_fd(), writer.as_fd()]).unwrap();
        let packet = receive(&far, &mut [0; BUFFER]).unwrap();
        assert_eq!((packet.header, packet.body.as_slice()), (HELLO, &b"hi"[..]));
        assert_eq!(packet.descriptors.len(), 2);
        rustix::io::write(&packet.descriptors[1], b"x").unwrap();
        drop((writer, packet));
        assert_eq!(std::io::read_to_string(reader).unwrap(), "x");
    }

    #[test]
    fn a_large_message_comes_in_memory() {
        let (near, far) = pair().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let body = vec![3; MAX_INLINE + 1];
        send(&near, HELLO, &body, &[reader.as_fd()]).unwrap();
        let packet = receive(&far, &mut [0; BUFFER]).unwrap();
        assert!(packet.header.is_in_memfd && packet.body == body);
        assert_eq!(packet.descriptors.len(), 1);
        let too_large = vec![0; MAX_MESSAGE + 1];
        assert_eq!(send(&near, HELLO, &too_large, &[]), Err(Errno::MSGSIZE));
    }

    #[test]
    fn memory_that_can_still_change_is_refused() {
        let (near, far) = pair().unwrap();
        let memory = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        let header = Header { is_in_memfd: true, ..HELLO };
        send_packet(near.as_fd(), header, &[], &[memory.as_fd()]).unwrap();
        assert!(matches!(receive(&far, &mut [0; BUFFER]), Err(ReceiveError::Memfd)));
        send_packet(near.as_fd(), header, &[], &[]).unwrap();
        assert!(matches!(receive(&far, &mut [0; BUFFER]), Err(ReceiveError::Memfd)));
    }

    #[test]
    fn nothing_now_and_nobody_there_are_told_apart() {
        let (near, far) = pair().unwrap();
        let nothing = receive(&far, &mut [0; BUFFER]).unwrap_err();
        assert!(matches!(nothing, ReceiveError::Socket(Errno::AGAIN)), "{nothing}");
        drop(near);
        assert!(matches!(receive(&far, &mut [0; BUFFER]), Err(ReceiveError::Closed)));
    }

    #[test]
    fn a_socket_may_be_in_a_directory_with_a_long_path() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let directory = std::fs::File::open(&deep).unwrap();
        let listener = listen(&directory, "monitor.sock").unwrap();
        let near = connect(&directory, "monitor.sock").unwrap();
        let far = accept(&listener).unwrap();
        send(&near, HELLO, &[], &[]).unwrap();
        assert_eq!(receive(&far, &mut [0; BUFFER]).unwrap().header, HELLO);
    }
}

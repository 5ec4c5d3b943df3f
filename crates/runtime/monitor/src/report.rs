//! What a child tells the monitor on its way into a container: packets until it executes its
//! program, and then silence.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ferrolet_runtime_protocol::message::Failed;
use ferrolet_runtime_protocol::packet::Header;
use ferrolet_runtime_sys::channel::{self, Packet, ReceiveError};
use prost::Message;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::failure::{Failure, Step};

/// A step failed.
pub(crate) const FAILED: u16 = 1;
/// Descriptors that the monitor keeps.
pub(crate) const DESCRIPTORS: u16 = 2;
/// Another process takes over: its number, and its descriptor.
pub(crate) const REBORN: u16 = 3;

/// One end. It is closed when the child executes its program, which the other end sees.
#[derive(Debug)]
pub(crate) struct Report(OwnedFd);

/// What came: kind, bytes, descriptors.
pub(crate) type Told = (u16, Vec<u8>, Vec<OwnedFd>);

pub(crate) fn pair() -> Result<(Report, Report), Failure> {
    let (near, far) = channel::pair().step("socket")?;
    Ok((Report(near), Report(far)))
}

impl Report {
    pub(crate) fn send(
        &self,
        kind: u16,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> rustix::io::Result<()> {
        let header = Header { is_in_memfd: false, kind, id: 0 };
        channel::send(&self.0, header, body, descriptors)
    }

    /// What cannot be sent is not missed: the child ends, and that is seen too.
    pub(crate) fn failed(&self, failure: &Failure) {
        let _unheard = self.send(FAILED, &failure.message().encode_to_vec(), &[]);
    }

    /// What is there; `EAGAIN`: nothing yet, `EPIPE`: nothing more.
    pub(crate) fn next(&self) -> rustix::io::Result<Told> {
        match channel::receive(&self.0, &mut [0; 4096]) {
            Ok(Packet { header, body, descriptors }) => Ok((header.kind, body, descriptors)),
            Err(ReceiveError::Closed) => Err(Errno::PIPE),
            Err(ReceiveError::Socket(errno)) => Err(errno),
            Err(_) => Err(Errno::BADMSG),
        }
    }

    /// Waits for it: only where the child does nothing that could hang.
    pub(crate) fn wait(&self) -> rustix::io::Result<Told> {
        loop {
            match self.next() {
                Err(Errno::AGAIN) => {
                    let mut ready = [PollFd::new(&self.0, PollFlags::IN)];
                    let _woken = rustix::event::poll(&mut ready, None);
                }
                message => return message,
            }
        }
    }
}

impl AsFd for Report {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A failure that a child told.
pub(crate) fn failure(body: &[u8]) -> Failure {
    Failed::decode(body)
        .map_or_else(|_| Failure::refused("child of monitor ended", ""), Failure::told)
}

pub(crate) fn pid(body: &[u8]) -> rustix::io::Result<Pid> {
    let pid = body.try_into().map(i32::from_le_bytes).ok();
    pid.and_then(Pid::from_raw).ok_or(Errno::BADMSG)
}

//! From what containers write to their logs and to those who are attached.

use std::os::fd::AsFd;

use ferrolet_runtime_protocol::message::{Event, LogTrouble};
use rustix::event::epoll;
use rustix::io::Errno;

use super::container::Container;
use super::token::Token;
use super::{BUFFER, Monitor, monotonic, wall_clock};
use crate::log::{Stamp, Stream};

/// As much as a pipe can hold, and so as much as is read after a container's end.
const MAX_PIPE: usize = 1024 * 1024;

/// How reading went.
enum Copied {
    Bytes(usize),
    Nothing,
    End,
}

impl Monitor {
    /// A container has written.
    pub(super) fn copy_output(&mut self, key: u32, stream: Stream) {
        let Some(container) = self.containers.get_mut(&key) else { return };
        let trouble = trouble(container);
        match copy(container, stream, &mut self.buffer[..BUFFER], &mut self.batch) {
            Copied::Bytes(_) | Copied::Nothing => {}
            Copied::End => close(container, stream, &mut self.batch),
        }
        if trouble != self::trouble(container) {
            self.tell_trouble(key);
        }
        self.watch_output(key, stream);
    }

    /// Everything that is still in a container's pipes. Whoever wrote it is gone.
    pub(super) fn drain_output(&mut self, key: u32) {
        let Some(container) = self.containers.get_mut(&key) else { return };
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut n_read = 0;
            while n_read < MAX_PIPE {
                match copy(container, stream, &mut self.buffer[..BUFFER], &mut self.batch) {
                    Copied::Bytes(n) => n_read += n,
                    Copied::Nothing | Copied::End => break,
                }
            }
            close(container, stream, &mut self.batch);
        }
        if container.log.as_ref().is_some_and(|it| it.lost().trouble.is_some()) {
            self.tell_trouble(key);
        }
    }

    /// A client has taken something, or has left.
    pub(super) fn serve_clients(&mut self, key: u32) {
        let Some(container) = self.containers.get_mut(&key) else { return };
        container.clients.flush(monotonic());
        if container.clients.all.iter().any(|it| has_left(&it.pipe)) {
            container.clients.all.retain(|it| !has_left(&it.pipe));
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            if container.output(stream).is_none() {
                container.clients.finish(stream);
            }
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.watch_output(key, stream);
        }
    }

    /// Reads on unless a client is behind, and waits for room with those who are.
    pub(super) fn watch_output(&mut self, key: u32, stream: Stream) {
        let Some(container) = self.containers.get_mut(&key) else { return };
        let is_behind = container.clients.is_behind(stream);
        let wanted = if is_behind { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        if let Some(output) = container.output(stream) {
            let data = epoll::EventData::new_u64(Token::Output(key, stream).encode());
            let _watched = epoll::modify(&self.epoll, &output.source, data, wanted);
        }
        let wanted = if is_behind { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(Token::Client(key).encode());
        for client in &container.clients.all {
            let _watched = epoll::modify(&self.epoll, &client.pipe, data, wanted);
        }
    }

    fn tell_trouble(&mut self, key: u32) {
        let Some(container) = self.containers.get(&key) else { return };
        let Some(lost) = container.log.as_ref().map(|it| it.lost()) else { return };
        let trouble = LogTrouble {
            container: container.id.clone(),
            lost_lines: lost.n_lines,
            errno: lost.trouble.map_or(0, Errno::raw_os_error),
        };
        self.tell(&Event::LogTrouble(trouble));
    }
}

fn trouble(container: &Container) -> Option<Errno> {
    container.log.as_ref().and_then(|it| it.lost().trouble)
}

/// Copies as much as one read gives.
fn copy(
    container: &mut Container,
    stream: Stream,
    buffer: &mut [u8],
    batch: &mut Vec<u8>,
) -> Copied {
    let [stdout, stderr] = &mut container.outputs;
    let output = match stream {
        Stream::Stdout => stdout,
        Stream::Stderr => stderr,
    };
    let Some(output) = output else { return Copied::End };
    let n = match rustix::io::read(&output.source, &mut *buffer) {
        Ok(0) => return Copied::End,
        Ok(n) => n,
        Err(Errno::AGAIN | Errno::INTR) => return Copied::Nothing,
        // A terminal whose other end is closed.
        Err(_) => return Copied::End,
    };
    let bytes = &buffer[..n];
    if let Some(log) = &mut container.log {
        let stamp = now();
        output.splitter.push(bytes, &stamp, &mut log.batch(&stamp, batch));
    }
    container.clients.push(stream, bytes, monotonic());
    Copied::Bytes(n)
}

/// The stream has ended: its unfinished line is written.
fn close(container: &mut Container, stream: Stream, batch: &mut Vec<u8>) {
    let Some(mut output) = container.output(stream).take() else { return };
    if let Some(log) = &mut container.log {
        let stamp = now();
        output.splitter.finish(&stamp, &mut log.batch(&stamp, batch));
    }
    container.clients.finish(stream);
}

fn now() -> Stamp {
    let now = wall_clock();
    let nanoseconds = u32::try_from(now.rem_euclid(1_000_000_000)).unwrap_or(0);
    Stamp::new(now.div_euclid(1_000_000_000), nanoseconds)
}

/// A pipe whose reader is gone.
fn has_left(pipe: &impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags};
    let mut state = [PollFd::new(pipe, PollFlags::empty())];
    let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut state, Some(&at_once)).is_ok_and(|n| n > 0)
        && state[0].revents().intersects(PollFlags::ERR)
}

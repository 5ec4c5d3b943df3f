//! A pod's monitor: the parent of everything in the pod.
//!
//! ```text
//!  epoll ─► a connection asks ─► launch, exec, attach, signal …   (requests)
//!        ─► a container writes ─► log, clients                    (output)
//!        ─► a child reports or ends ─► answer; record, event      (processes)
//! ```
//!
//! One loop that waits for nothing but epoll. Whatever could hang is done by children.

mod clients;
mod connection;
mod container;
mod output;
mod processes;
mod records;
mod requests;
mod token;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use ferrolet_runtime_protocol::launch::Cgroups;
use ferrolet_runtime_protocol::message::{Answer, Empty, Event, Request};
use ferrolet_runtime_protocol::sandbox::IdMaps;
use ferrolet_runtime_sys::channel::{self, ReceiveError};
use ferrolet_runtime_sys::signals;
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec};

use crate::cgroups;
use crate::failure::{Failure, Step};
use crate::launch::House;
use crate::spawner::{Birth, SOCKET};
use connection::{Connection, Sent};
use container::{Command, Container};
use token::Token;

/// One for everything that the pod's containers write.
const BUFFER: usize = 64 * 1024;
const _: () = assert!(BUFFER <= channel::BUFFER);
/// Things that can be ready at once.
const N_READY: usize = 32;
/// How long the monitor tries to remove what is left of the pod before it leaves, in nanoseconds.
const FAREWELL: i64 = 10_000_000_000;
/// How often it tries what could not be removed at once.
const RETRY: i64 = 20_000_000;

/// A monitor.
struct Monitor {
    house: House,
    sandbox_id: String,
    directory: OwnedFd,
    epoll: OwnedFd,
    listener: OwnedFd,
    children: OwnedFd,
    connections: BTreeMap<u32, Connection>,
    containers: BTreeMap<u32, Container>,
    commands: BTreeMap<u32, Command>,
    last_key: u32,
    buffer: Vec<u8>,
    batch: Vec<u8>,
    /// Groups of containers that ended, until the kernel lets them go.
    leftovers: Vec<Cgroups>,
    init_cgroups: Option<Cgroups>,
    /// Where the pod's root is on the node, if it is not the node's.
    root: Option<(u32, u32)>,
    /// Who is told that everything has ended, and by when it has to have.
    ending: Option<(u32, u32, i64)>,
}

/// Runs until it is told to end.
pub(crate) fn run(birth: Birth) -> ExitCode {
    match Monitor::new(birth) {
        Ok(monitor) => monitor.serve(),
        Err((failure, listener)) => refuse(&failure, &listener),
    }
}

/// A sandbox that could not be made has a monitor that says so, once.
fn refuse(failure: &Failure, listener: &OwnedFd) -> ExitCode {
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    let wait = |descriptor: BorrowedFd<'_>| {
        let mut ready = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        rustix::event::poll(&mut ready, Some(&patience)).is_ok_and(|n| n > 0)
    };
    if wait(listener.as_fd())
        && let Ok(socket) = channel::accept(listener)
    {
        let mut connection = Connection::new(socket);
        while wait(connection.as_fd()) {
            let Ok(packet) = channel::receive(&connection, &mut vec![0; channel::BUFFER]) else {
                break;
            };
            let failed = Answer::Failed(failure.message());
            if connection.answer(packet.header.id, &failed, Vec::new()) == Sent::Lost {
                break;
            }
        }
    }
    ExitCode::FAILURE
}

impl Monitor {
    fn new(birth: Birth) -> Result<Self, (Failure, OwnedFd)> {
        let Birth { alone, seed, directory, listener, spec } = birth;
        let prepare = || -> Result<_, Failure> {
            signals::reset();
            signals::ignore_session();
            let children = signals::child_descriptor().step("watch children")?;
            let own = rustix::process::getpid();
            rustix::process::set_child_subreaper(Some(own)).step("become subreaper")?;
            rustix::process::setsid().step("begin session")?;
            let _not_allowed = records::set_oom_score(spec.oom_score_adj);
            let _only_for_people = rustix::thread::set_name(c"ferrolet-pod");
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let pids = rustix::fs::open("/proc/self/ns/pid", flags, Mode::empty())
                .step("open process namespace")?;
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).step("epoll")?;
            let sandbox = crate::sandbox::make(&alone, &spec)?;
            Ok((children, pids, epoll, sandbox))
        };
        let (children, pids, epoll, sandbox) = match prepare() {
            Ok(prepared) => prepared,
            Err(failure) => return Err((failure, listener)),
        };
        let monitor = Self {
            house: House { alone, seed, pids, sandbox },
            sandbox_id: spec.id,
            directory,
            epoll,
            listener,
            children,
            connections: BTreeMap::new(),
            containers: BTreeMap::new(),
            commands: BTreeMap::new(),
            last_key: 0,
            buffer: vec![0; channel::BUFFER],
            batch: Vec::with_capacity(BUFFER),
            leftovers: Vec::new(),
            root: spec.user.as_ref().and_then(IdMaps::root),
            init_cgroups: spec.init_cgroups,
            ending: None,
        };
        let started = monitor
            .watch(&monitor.listener, Token::Listener, epoll::EventFlags::IN)
            .and_then(|()| monitor.watch(&monitor.children, Token::Children, epoll::EventFlags::IN))
            .step("watch socket")
            .and_then(|()| records::write_monitor(&monitor.directory));
        match started {
            Ok(()) => Ok(monitor),
            Err(failure) => Err((failure, monitor.listener)),
        }
    }

    fn serve(mut self) -> ExitCode {
        loop {
            let mut ready = Vec::with_capacity(N_READY);
            let timeout = self.timeout();
            let spare = rustix::buffer::spare_capacity(&mut ready);
            let _interrupted = epoll::wait(&self.epoll, spare, timeout.as_ref());
            for event in &ready {
                if let Some(token) = Token::decode(event.data.u64()) {
                    self.handle(token);
                }
            }
            self.tidy_up();
            if self.has_ended() {
                return ExitCode::SUCCESS;
            }
        }
    }

    fn handle(&mut self, token: Token) {
        match token {
            Token::Listener => self.accept(),
            Token::Children => self.reap(),
            Token::Connection(key) => self.hear(key),
            Token::Launch(key) => self.take_launch_report(key),
            Token::Command(key) => self.take_command_report(key),
            Token::Output(key, stream) => self.copy_output(key, stream),
            Token::Client(key) => self.serve_clients(key),
        }
    }

    fn watch(
        &self,
        source: &impl AsFd,
        token: Token,
        flags: epoll::EventFlags,
    ) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(token.encode()), flags)
    }

    fn next_key(&mut self) -> u32 {
        self.last_key = self.last_key.wrapping_add(1);
        self.last_key
    }

    fn accept(&mut self) {
        let Ok(socket) = channel::accept(&self.listener) else { return };
        let key = self.next_key();
        let connection = Connection::new(socket);
        if self.watch(&connection, Token::Connection(key), epoll::EventFlags::IN).is_ok() {
            self.connections.insert(key, connection);
        }
    }

    /// Takes one packet; where there are more, epoll says so again.
    fn hear(&mut self, key: u32) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let sent = connection.flush();
        self.settle(key, &sent);
        let Some(connection) = self.connections.get_mut(&key) else { return };
        match channel::receive(&*connection, &mut self.buffer) {
            Ok(packet) => {
                let id = packet.header.id;
                match Request::decode(packet.header.kind, &packet.body) {
                    Ok(request) => self.obey((key, id), request, packet.descriptors),
                    Err(_) => self.answer((key, id), &Answer::Unknown(Empty {}), Vec::new()),
                }
            }
            Err(ReceiveError::Socket(Errno::AGAIN)) => {}
            Err(_) => self.hang_up(key),
        }
    }

    fn answer(&mut self, (key, id): (u32, u32), answer: &Answer, descriptors: Vec<OwnedFd>) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let sent = connection.answer(id, answer, descriptors);
        self.settle(key, &sent);
    }

    fn tell(&mut self, event: &Event) {
        let keys: Vec<u32> = self.connections.keys().copied().collect();
        for key in keys {
            let Some(connection) = self.connections.get_mut(&key) else { continue };
            let sent = connection.tell(event);
            self.settle(key, &sent);
        }
    }

    /// Waits for room where it is needed; drops whoever is lost.
    fn settle(&mut self, key: u32, sent: &Sent) {
        let Some(connection) = self.connections.get(&key) else { return };
        let data = epoll::EventData::new_u64(Token::Connection(key).encode());
        let flags = match sent {
            Sent::All => epoll::EventFlags::IN,
            Sent::Waiting => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            Sent::Lost => return self.hang_up(key),
        };
        if epoll::modify(&self.epoll, connection, data, flags).is_err() {
            self.hang_up(key);
        }
    }

    /// The pod goes on; closing the socket ends its watch too.
    fn hang_up(&mut self, key: u32) {
        self.connections.remove(&key);
    }

    /// What could not be done at once.
    fn tidy_up(&mut self) {
        self.leftovers.retain(|it| !cgroups::remove(it));
        let now = monotonic();
        let late: Vec<u32> = self
            .containers
            .iter()
            .filter(|(_, it)| it.clients.deadline().is_some_and(|at| at <= now))
            .map(|(key, _)| *key)
            .collect();
        for key in late {
            self.serve_clients(key);
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let now = monotonic();
        let clients = self.containers.values().filter_map(|it| it.clients.deadline());
        let retry = (!self.leftovers.is_empty() || self.ending.is_some()).then_some(now + RETRY);
        let next = clients.chain(retry).min()?;
        let left = (next - now).max(0);
        Some(Timespec { tv_sec: left / 1_000_000_000, tv_nsec: left % 1_000_000_000 })
    }

    /// Whether it was told to end and nothing is left, or what is left does not go.
    fn has_ended(&mut self) -> bool {
        let Some((key, id, deadline)) = self.ending else { return false };
        let is_over = self.leftovers.is_empty()
            && self.commands.is_empty()
            && self.containers.values().all(|it| it.exit.is_some())
            && self.house.sandbox.init.is_none();
        if !is_over && monotonic() < deadline {
            return false;
        }
        let _stays = rustix::fs::unlinkat(&self.directory, SOCKET, rustix::fs::AtFlags::empty());
        self.answer((key, id), &Answer::Done(Empty {}), Vec::new());
        true
    }
}

/// Nanoseconds since 1970.
pub(crate) fn wall_clock() -> i64 {
    nanoseconds(rustix::time::clock_gettime(ClockId::Realtime))
}

/// Nanoseconds since the machine started.
fn monotonic() -> i64 {
    nanoseconds(rustix::time::clock_gettime(ClockId::Monotonic))
}

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

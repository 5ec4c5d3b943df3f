//! What a service asks.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ferrolet_runtime_protocol::VERSION;
use ferrolet_runtime_protocol::launch::{Cgroup, Cgroups, LaunchSpec, Stdin};
use ferrolet_runtime_protocol::message::{
    Answer, Attach, Attached, CommandRecord, Empty, Exec, Failed, HelloAnswer, Namespace, Request,
    Signal, SnapshotAnswer,
};
use ferrolet_runtime_protocol::sandbox::PidShare;
use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::termios::Winsize;

use super::clients::{Client, Clients};
use super::container::{Caller, Command, Container, Output, Pending};
use super::token::Token;
use super::{FAREWELL, Monitor, monotonic, records, wall_clock};
use crate::cgroups;
use crate::failure::{Failure, Step};
use crate::launch::{self, ChildStdio, Launch, Processes};
use crate::log::{LogFile, Splitter, Stream};

/// The near end of a pipe, which does not block, and the far end, which does.
type Pipe = (OwnedFd, OwnedFd);

impl Monitor {
    pub(super) fn obey(&mut self, caller: Caller, request: Request, descriptors: Vec<OwnedFd>) {
        let done = match request {
            Request::Hello(hello) => return self.greet(caller, hello.protocol),
            Request::Snapshot(_) => return self.snapshot(caller),
            Request::Launch(spec) => match self.launch(caller, &spec, descriptors) {
                Ok(()) => return,
                Err(failure) => Err(failure.message()),
            },
            Request::Exec(exec) => match self.exec(caller, &exec) {
                Ok(()) => return,
                Err(failed) => Err(failed),
            },
            Request::Attach(attach) => match self.attach(caller, &attach) {
                Ok(()) => return,
                Err(failed) => Err(failed),
            },
            Request::Signal(signal) => self.signal(&signal),
            Request::CloseStdin(it) => self.change(&it.container, |it| {
                it.stdin = None;
                Ok(())
            }),
            Request::ReopenLog(it) => self.change(&it.container, |it| match &mut it.log {
                Some(log) => log.reopen().step("reopen log"),
                None => Ok(()),
            }),
            Request::LogLimit(limit) => self.change(&limit.container, |it| {
                if let Some(log) = &mut it.log {
                    log.set_limit(limit.max_size);
                }
                Ok(())
            }),
            Request::Forget(it) => self.forget(&it.container),
            Request::End(_) => return self.end(caller),
            Request::Spawn(_) => {
                return self.answer(caller, &Answer::Unknown(Empty {}), Vec::new());
            }
        };
        match done {
            Ok(()) => self.answer(caller, &Answer::Done(Empty {}), Vec::new()),
            Err(failed) => self.answer(caller, &Answer::Failed(failed), Vec::new()),
        }
    }

    fn greet(&mut self, caller: Caller, protocol: u32) {
        let sandbox = &self.house.sandbox;
        let own = [
            (Namespace::Network, &sandbox.network),
            (Namespace::Ipc, &sandbox.ipc),
            (Namespace::Uts, &sandbox.uts),
            (Namespace::User, &sandbox.user),
        ];
        let own = own.into_iter().filter_map(|(kind, it)| Some((kind, it.as_ref()?)));
        let copies = own.filter_map(|(kind, it)| Some((i32::from(kind), it.try_clone().ok()?)));
        let (namespaces, descriptors) = copies.unzip();
        let hello = HelloAnswer {
            protocol: protocol.min(VERSION),
            sandbox: self.sandbox_id.clone(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            namespaces,
        };
        self.answer(caller, &Answer::Hello(hello), descriptors);
    }

    fn snapshot(&mut self, caller: Caller) {
        let containers = self.containers.values().map(Container::record).collect();
        let alive = self.containers.values().filter(|it| it.exit.is_none());
        let pidfds = alive.filter_map(|it| it.pidfd.try_clone().ok()).collect();
        let commands = self.commands.values().map(|it| CommandRecord {
            command: it.number,
            container: it.container.clone(),
            pid: it.pid.as_raw_nonzero().get(),
        });
        let snapshot = SnapshotAnswer { containers, commands: commands.collect() };
        self.answer(caller, &Answer::Snapshot(snapshot), pidfds);
    }

    fn launch(
        &mut self,
        caller: Caller,
        spec: &LaunchSpec,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Failure> {
        let id = spec.container.as_str();
        if !records::is_name(id) {
            return Err(Failure::refused("not a container's id:", id));
        }
        if self.ending.is_some() {
            return Err(Failure::refused("the pod ends", ""));
        }
        if self.key(id).is_some() {
            return Err(Failure::refused("container exists:", id));
        }
        let mounts = descriptors.into_iter().next();
        let mounts =
            mounts.ok_or_else(|| Failure::refused("launch without mount namespace", ""))?;
        let log = spec.log.as_ref().map(|log| {
            LogFile::open(Path::new(&log.path), log.max_size).step_on("open log", &log.path)
        });
        let log = log.transpose()?;
        let groups = spec.cgroups.clone().unwrap_or_default();
        let launched = cgroups::make(&groups)
            .and_then(|()| self.fork_container(caller, spec, &mounts, log, groups.clone()));
        launched.inspect_err(|_| self.leftovers.push(groups))
    }

    fn fork_container(
        &mut self,
        caller: Caller,
        spec: &LaunchSpec,
        mounts: &OwnedFd,
        log: Option<LogFile>,
        groups: Cgroups,
    ) -> Result<(), Failure> {
        let mut outputs = [None, None];
        let mut stdin = None;
        let stdio = if spec.tty {
            None
        } else {
            let (out_near, out_far) = self.pipe()?;
            let (err_near, err_far) = self.pipe()?;
            let input = if spec.stdin() == Stdin::None {
                null()?
            } else {
                // The container reads, so the ends are the other way round.
                let (reads, writes) = self.pipe_to()?;
                stdin = Some(writes);
                reads
            };
            outputs = [(out_near, Stream::Stdout), (err_near, Stream::Stderr)]
                .map(|(source, it)| Some(Output { source, splitter: Splitter::new(it) }));
            Some(ChildStdio::Pipes([input, out_far, err_far]))
        };
        let oom_kills_before = cgroups::oom_kills(&groups);
        let processes = match spec.pid() {
            PidShare::Container => Processes::Own,
            PidShare::Node => Processes::Node,
            PidShare::Pod => {
                let init = self.house.sandbox.init.as_ref();
                let init = init.ok_or_else(|| Failure::refused("the pod has no init", ""))?;
                Processes::Join(init.pidfd.as_fd())
            }
            PidShare::Target => {
                let target = self.running(&spec.pid_target);
                let target = target
                    .ok_or_else(|| Failure::refused("no such container:", &*spec.pid_target))?;
                Processes::Join(self.containers[&target].pidfd.as_fd())
            }
        };
        let (child, report) = self.house.launch(Launch { spec, mounts, processes, stdio })?;
        let key = self.next_key();
        self.watch(&report, Token::Launch(key), epoll::EventFlags::IN).step("watch launch")?;
        for (output, stream) in outputs.iter().zip([Stream::Stdout, Stream::Stderr]) {
            if let Some(output) = output {
                self.watch(&output.source, Token::Output(key, stream), epoll::EventFlags::IN)
                    .step("watch output")?;
            }
        }
        let container = Container {
            id: spec.container.clone(),
            pid: child.pid,
            pidfd: child.pidfd,
            launch: Some(Pending { report, caller }),
            started_at: 0,
            exit: None,
            cgroups: groups,
            oom_kills_before,
            log,
            outputs,
            stdin,
            stdin_mode: spec.stdin(),
            tty: spec.tty,
            terminal: None,
            devpts: None,
            clients: Clients::default(),
        };
        self.containers.insert(key, container);
        Ok(())
    }

    fn exec(&mut self, caller: Caller, exec: &Exec) -> Result<(), Failed> {
        let key = self.running(&exec.container).ok_or_else(|| not_found(&exec.container))?;
        let is_taken =
            exec.command == 0 || self.commands.values().any(|it| it.number == exec.command);
        if is_taken {
            return Err(Failure::refused("number of command is in use", "").message());
        }
        self.start_command(caller, key, exec).map_err(|it| it.message())
    }

    fn start_command(&mut self, caller: Caller, key: u32, exec: &Exec) -> Result<(), Failure> {
        let process = exec.process.as_ref();
        let process = process.ok_or_else(|| Failure::refused("command without process", ""))?;
        let mut near = Vec::new();
        let stdio = if let Some(size) = exec.tty {
            let (master, far) = self.new_terminal(key)?;
            let size = Winsize {
                ws_col: u16::try_from(size.width).unwrap_or(u16::MAX),
                ws_row: u16::try_from(size.height).unwrap_or(u16::MAX),
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            if size.ws_col > 0 && size.ws_row > 0 {
                rustix::termios::tcsetwinsize(&master, size).step("set size of terminal")?;
            }
            near.push(master);
            ChildStdio::Terminal(far)
        } else {
            let stdin = if exec.stdin {
                let (reads, writes) = self.pipe_to()?;
                near.push(writes);
                reads
            } else {
                null()?
            };
            let mut output = |is_wanted: bool| -> Result<OwnedFd, Failure> {
                if !is_wanted {
                    return null();
                }
                let (reads, writes) = self.pipe()?;
                near.push(reads);
                Ok(writes)
            };
            let (stdout, stderr) = (output(exec.stdout)?, output(exec.stderr)?);
            ChildStdio::Pipes([stdin, stdout, stderr])
        };
        let container = &self.containers[&key];
        let (joined, own) = command_groups(&container.cgroups, exec.command);
        cgroups::make(&own)?;
        let command = launch::Command {
            process,
            cgroups: &joined,
            container: container.pidfd.as_fd(),
            stdio,
        };
        let started = self.house.execute(&command);
        drop(command);
        let (child, report) = match started {
            Ok(started) => started,
            Err(failure) => {
                self.leftovers.push(own);
                return Err(failure);
            }
        };
        let number = self.next_key();
        self.watch(&report, Token::Command(number), epoll::EventFlags::IN).step("watch command")?;
        let command = Command {
            container: exec.container.clone(),
            number: exec.command,
            pid: child.pid,
            pidfd: child.pidfd,
            started_at: wall_clock(),
            launch: Some(Pending { report, caller }),
            stdio: near,
            cgroups: own,
            connection: caller.0,
        };
        self.commands.insert(number, command);
        Ok(())
    }

    fn attach(&mut self, caller: Caller, attach: &Attach) -> Result<(), Failed> {
        let key = self.running(&attach.container).ok_or_else(|| not_found(&attach.container))?;
        let (attached, descriptors) = self.connect(key, attach).map_err(|it| it.message())?;
        self.answer(caller, &Answer::Attached(attached), descriptors);
        Ok(())
    }

    fn connect(&mut self, key: u32, attach: &Attach) -> Result<(Attached, Vec<OwnedFd>), Failure> {
        let mut descriptors = Vec::new();
        let mut pipes = Vec::new();
        let tty = self.containers[&key].tty;
        let wanted = [(attach.stdout, Stream::Stdout), (attach.stderr && !tty, Stream::Stderr)];
        for (_, stream) in wanted.into_iter().filter(|(is_wanted, _)| *is_wanted) {
            let flags = PipeFlags::CLOEXEC;
            let (reads, writes) = rustix::pipe::pipe_with(flags).step("pipe")?;
            rustix::io::ioctl_fionbio(&writes, true).step("pipe")?;
            let nothing = epoll::EventFlags::empty();
            self.watch(&writes, Token::Client(key), nothing).step("watch client")?;
            pipes.push(Client::new(writes, stream));
            descriptors.push(reads);
        }
        let Some(container) = self.containers.get_mut(&key) else {
            return Err(Failure::refused("no such container", ""));
        };
        let stdin = if !attach.stdin {
            None
        } else if tty {
            container.terminal.as_ref().and_then(|it| it.try_clone().ok())
        } else if container.stdin_mode == Stdin::Once {
            // The only end goes to the first client, and closes with it.
            container.stdin.take()
        } else {
            container.stdin.as_ref().and_then(|it| it.try_clone().ok())
        };
        let attached = Attached {
            tty,
            stdin: stdin.is_some(),
            stdout: attach.stdout,
            stderr: attach.stderr && !tty,
        };
        container.clients.all.append(&mut pipes);
        let descriptors = stdin.into_iter().chain(descriptors).collect();
        Ok((attached, descriptors))
    }

    fn signal(&mut self, signal: &Signal) -> Result<(), Failed> {
        let send = |pidfd: &OwnedFd| {
            let number = ferrolet_runtime_sys::signals::signal(signal.signal);
            let number = number.ok_or(Errno::INVAL).step("send signal")?;
            match rustix::process::pidfd_send_signal(pidfd, number) {
                // It ended, which the caller learns by itself.
                Ok(()) | Err(Errno::SRCH) => Ok(()),
                Err(errno) => Err(errno).step("send signal"),
            }
        };
        let sent = if signal.command == 0 {
            let key = self.key(&signal.container).ok_or_else(|| not_found(&signal.container))?;
            let container = &self.containers[&key];
            if container.exit.is_some() {
                return Ok(());
            }
            if signal.everything {
                cgroups::kill(&container.cgroups);
            }
            send(&container.pidfd)
        } else {
            let command = self.commands.values().find(|it| it.number == signal.command);
            let command = command.ok_or_else(|| not_found(&signal.container))?;
            if signal.everything {
                cgroups::kill(&command.cgroups);
                // Without a group of its own: its process group, which is what most start.
                let _gone =
                    rustix::process::kill_process_group(command.pid, rustix::process::Signal::KILL);
            }
            send(&command.pidfd)
        };
        sent.map_err(|it| it.message())
    }

    fn change(
        &mut self,
        id: &str,
        change: impl FnOnce(&mut Container) -> Result<(), Failure>,
    ) -> Result<(), Failed> {
        let container = self.containers.values_mut().find(|it| it.id == id);
        change(container.ok_or_else(|| not_found(id))?).map_err(|it| it.message())
    }

    /// Forgetting what is not known is done already.
    fn forget(&mut self, id: &str) -> Result<(), Failed> {
        let Some(key) = self.key(id) else { return Ok(()) };
        if self.containers[&key].exit.is_none() {
            return Err(Failure::refused("container runs:", id).message());
        }
        self.containers.remove(&key);
        Ok(())
    }

    fn end(&mut self, (key, id): Caller) {
        for container in self.containers.values().filter(|it| it.exit.is_none()) {
            cgroups::kill(&container.cgroups);
            let kill = rustix::process::Signal::KILL;
            let _gone = rustix::process::pidfd_send_signal(&container.pidfd, kill);
        }
        for command in self.commands.values() {
            let kill = rustix::process::Signal::KILL;
            let _gone = rustix::process::pidfd_send_signal(&command.pidfd, kill);
        }
        if let Some(init) = &self.house.sandbox.init {
            let kill = rustix::process::Signal::KILL;
            let _gone = rustix::process::pidfd_send_signal(&init.pidfd, kill);
        }
        self.ending = Some((key, id, monotonic() + FAREWELL));
    }

    fn key(&self, id: &str) -> Option<u32> {
        self.containers.iter().find(|(_, it)| it.id == id).map(|(key, _)| *key)
    }

    /// One whose first process executes its program.
    fn running(&self, id: &str) -> Option<u32> {
        let is_running = |it: &Container| it.exit.is_none() && it.launch.is_none();
        self.key(id).filter(|key| is_running(&self.containers[key]))
    }

    /// For output: the near end reads.
    fn pipe(&self) -> Result<Pipe, Failure> {
        let (reads, writes) = self.new_pipe()?;
        rustix::io::ioctl_fionbio(&reads, true).step("pipe")?;
        Ok((reads, writes))
    }

    /// For input: the near end writes, and comes second.
    fn pipe_to(&self) -> Result<Pipe, Failure> {
        self.new_pipe()
    }

    /// The pod's root owns it, so that the pod's root can give it to a user.
    fn new_pipe(&self) -> Result<Pipe, Failure> {
        let (reads, writes) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("pipe")?;
        if let Some((uid, gid)) = self.root {
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            rustix::fs::fchown(&reads, Some(uid), Some(gid)).step("give pipe to pod")?;
        }
        Ok((reads, writes))
    }
}

/// The groups that a command joins, and the one of its own among them: below the container's in a v2
/// tree, so that everything it starts can be killed at once.
fn command_groups(container: &Cgroups, number: u64) -> (Cgroups, Cgroups) {
    let mut joined = container.clone();
    joined.device_filter.clear();
    let Some(group) = joined.groups.iter_mut().find(|it| it.is_own && it.is_unified) else {
        return (joined, Cgroups::default());
    };
    group.directory = format!("{}/command-{number}", group.directory);
    let own = Cgroup { settings: Vec::new(), ..group.clone() };
    let kill = own.directory.clone();
    (joined, Cgroups { groups: vec![own], kill, ..Cgroups::default() })
}

fn null() -> Result<OwnedFd, Failure> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .step("open /dev/null")
}

fn not_found(container: &str) -> Failed {
    let failed = Failure::refused("no such container or command that runs:", container).message();
    Failed { not_found: true, ..failed }
}

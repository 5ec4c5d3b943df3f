//! Children: how they get on, and how they end.

use ferrolet_runtime_protocol::message::{Answer, Event, Exited, Started};
use ferrolet_runtime_protocol::record::Exit;
use ferrolet_runtime_sys::signals;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::container::{Caller, Pending};
use super::{Monitor, records, wall_clock};
use crate::cgroups;
use crate::failure::Failure;
use crate::launch::open_terminal;
use crate::log::{Splitter, Stream};
use crate::report;
use crate::serve::container::Output;
use crate::serve::token::Token;
use rustix::event::epoll;

impl Monitor {
    /// Takes what a container's first process tells on its way.
    pub(super) fn take_launch_report(&mut self, key: u32) {
        loop {
            let Some(container) = self.containers.get_mut(&key) else { return };
            let Some(Pending { report, caller }) = &container.launch else { return };
            let caller = *caller;
            match report.next() {
                Err(Errno::AGAIN) => return,
                Ok((report::DESCRIPTORS, _, descriptors)) => {
                    let mut descriptors = descriptors.into_iter();
                    container.devpts = descriptors.next();
                    container.terminal = descriptors.next();
                    self.read_terminal(key);
                }
                Ok((report::REBORN, body, mut descriptors)) => {
                    if let (Ok(pid), Some(pidfd)) = (report::pid(&body), descriptors.pop()) {
                        (container.pid, container.pidfd) = (pid, pidfd);
                    }
                }
                Ok((_, body, _)) => {
                    return self.launch_failed(key, caller, &report::failure(&body));
                }
                // Its end was closed by execution.
                Err(_) => return self.launch_succeeded(key, caller),
            }
        }
    }

    fn launch_succeeded(&mut self, key: u32, caller: Caller) {
        let Some(container) = self.containers.get_mut(&key) else { return };
        container.launch = None;
        container.started_at = wall_clock();
        let record = container.record();
        let started = Started { pid: record.pid, started_at: record.started_at };
        let pidfd = container.pidfd.try_clone();
        let _said_by_snapshot = records::write_container(&self.directory, "launched", &record);
        let descriptors = pidfd.into_iter().collect();
        self.answer(caller, &Answer::Started(started), descriptors);
    }

    /// It was never there: what it left is removed, and its end is nobody's.
    fn launch_failed(&mut self, key: u32, caller: Caller, failure: &Failure) {
        if let Some(container) = self.containers.remove(&key) {
            let _gone = rustix::process::pidfd_send_signal(&container.pidfd, Signal::KILL);
            cgroups::kill(&container.cgroups);
            self.leftovers.push(container.cgroups);
        }
        self.answer(caller, &Answer::Failed(failure.message()), Vec::new());
    }

    /// A terminal's output is read from its near end.
    fn read_terminal(&mut self, key: u32) {
        let Some(container) = self.containers.get_mut(&key) else { return };
        let Some(terminal) = &container.terminal else { return };
        let Ok(source) = terminal.try_clone() else { return };
        let _blocks = rustix::io::ioctl_fionbio(&source, true);
        let data = epoll::EventData::new_u64(Token::Output(key, Stream::Stdout).encode());
        if epoll::add(&self.epoll, &source, data, epoll::EventFlags::IN).is_ok() {
            let splitter = Splitter::new(Stream::Stdout);
            container.outputs[0] = Some(Output { source, splitter });
        }
    }

    /// Takes what a command tells on its way.
    pub(super) fn take_command_report(&mut self, key: u32) {
        let Some(command) = self.commands.get_mut(&key) else { return };
        let Some(Pending { report, caller }) = &command.launch else { return };
        let caller = *caller;
        match report.next() {
            Err(Errno::AGAIN) => {}
            Ok((_, body, _)) => {
                let failed = Answer::Failed(report::failure(&body).message());
                if let Some(command) = self.commands.remove(&key) {
                    self.leftovers.push(command.cgroups);
                }
                self.answer(caller, &failed, Vec::new());
            }
            Err(_) => {
                command.launch = None;
                let pid = command.pid.as_raw_nonzero().get();
                let started = Started { pid, started_at: command.started_at };
                let mut descriptors: Vec<_> = command.pidfd.try_clone().into_iter().collect();
                descriptors.append(&mut command.stdio);
                self.answer(caller, &Answer::Started(started), descriptors);
            }
        }
    }

    /// Children have ended, and orphans of the pod, whose parent the monitor became.
    pub(super) fn reap(&mut self) {
        signals::drain(&self.children);
        // First what they said: an end without a beginning would be nobody's.
        let launches: Vec<u32> = self.containers.keys().copied().collect();
        for key in launches {
            self.take_launch_report(key);
        }
        let commands: Vec<u32> = self.commands.keys().copied().collect();
        for key in commands {
            self.take_command_report(key);
        }
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.ended(pid, status);
        }
    }

    fn ended(&mut self, pid: Pid, status: WaitStatus) {
        let container = self.containers.iter().find(|(_, it)| it.pid == pid && it.exit.is_none());
        if let Some((key, _)) = container {
            return self.container_ended(*key, status);
        }
        if let Some((key, _)) = self.commands.iter().find(|(_, it)| it.pid == pid) {
            let key = *key;
            return self.command_ended(key, status);
        }
        if self.house.sandbox.init.as_ref().is_some_and(|it| it.pid == pid) {
            self.house.sandbox.init = None;
            if let Some(groups) = self.init_cgroups.take() {
                self.leftovers.push(groups);
            }
        }
    }

    fn container_ended(&mut self, key: u32, status: WaitStatus) {
        let Some(container) = self.containers.get(&key) else { return };
        // With a process namespace of its own nothing can be left; otherwise whatever is, goes.
        cgroups::kill(&container.cgroups);
        self.drain_output(key);
        let Some(container) = self.containers.get_mut(&key) else { return };
        let oom_kills = cgroups::oom_kills(&container.cgroups);
        let exit = Exit {
            code: code(status),
            oom_killed: oom_kills > container.oom_kills_before,
            finished_at: wall_clock(),
            ..Exit::default()
        };
        container.exit = Some(exit.clone());
        (container.stdin, container.terminal, container.devpts) = (None, None, None);
        container.log = None;
        let record = container.record();
        self.leftovers.push(container.cgroups.clone());
        // Before anybody is told: who hears of it finds the record.
        let _said_by_snapshot = records::write_container(&self.directory, "exit", &record);
        let exited = Exited { container: record.container, command: 0, exit: Some(exit) };
        self.tell(&Event::Exited(exited));
    }

    fn command_ended(&mut self, key: u32, status: WaitStatus) {
        let Some(command) = self.commands.remove(&key) else { return };
        self.leftovers.push(command.cgroups);
        let exit = Exit { code: code(status), finished_at: wall_clock(), ..Exit::default() };
        let exited =
            Exited { container: command.container, command: command.number, exit: Some(exit) };
        if let Some(connection) = self.connections.get_mut(&command.connection) {
            let sent = connection.tell(&Event::Exited(exited));
            self.settle(command.connection, &sent);
        }
    }

    /// A terminal of a container for a command.
    pub(super) fn new_terminal(
        &self,
        key: u32,
    ) -> Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd), Failure> {
        let devpts = self.containers.get(&key).and_then(|it| it.devpts.as_ref());
        let devpts =
            devpts.ok_or_else(|| Failure::refused("the container has no terminals", ""))?;
        open_terminal(devpts)
    }
}

/// As a shell counts: 128 and the signal.
fn code(status: WaitStatus) -> i32 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 255,
    }
}

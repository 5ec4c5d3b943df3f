//! Processes on their way into a container: its first, and commands in it.
//!
//! ```text
//!  monitor ──clone──► child: cgroups ─ sources ─ namespaces ─ root ─ pivot ─ become ─ execute
//!     └── reads the report: descriptors, a failure, or its end, which is success ─┘
//! ```
//!
//! The child does everything itself, so that whatever hangs holds up this container only.

mod identity;
mod root;
mod sources;
pub(crate) mod users;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ferrolet_runtime_protocol::launch::{Cgroups, LaunchSpec, Process};
use ferrolet_runtime_sys::fork::{Child, Forked, Namespaces, SingleThread};
use ferrolet_runtime_sys::process;
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, ThreadNameSpaceType, UnshareFlags};

pub(crate) use identity::ChildStdio;
pub(crate) use root::open_terminal;

use crate::cgroups;
use crate::failure::{Failure, Step};
use crate::report::{self, Report};
use crate::sandbox::{self, Sandbox};

/// Whose processes a container sees.
pub(crate) enum Processes<'a> {
    Own,
    Node,
    /// Those of the namespace that this process is in.
    Join(BorrowedFd<'a>),
}

/// What never changes while a monitor lives.
pub(crate) struct House {
    pub(crate) alone: SingleThread,
    /// The mount namespace that containers' own begin as a copy of.
    pub(crate) seed: OwnedFd,
    /// The monitor's own process namespace, to come back to.
    pub(crate) pids: OwnedFd,
    pub(crate) sandbox: Sandbox,
}

/// A container to start.
pub(crate) struct Launch<'a> {
    pub(crate) spec: &'a LaunchSpec,
    /// The mount namespace in which sources are found.
    pub(crate) mounts: &'a OwnedFd,
    pub(crate) processes: Processes<'a>,
    /// None: a terminal that the child makes.
    pub(crate) stdio: Option<ChildStdio>,
}

/// A command to run in a container.
pub(crate) struct Command<'a> {
    pub(crate) process: &'a Process,
    pub(crate) cgroups: &'a Cgroups,
    /// The container's first process.
    pub(crate) container: BorrowedFd<'a>,
    pub(crate) stdio: ChildStdio,
}

impl House {
    /// Starts a container's first process.
    pub(crate) fn launch(&self, launch: Launch<'_>) -> Result<(Child, Report), Failure> {
        let groups = launch.spec.cgroups.clone().unwrap_or_default();
        let own = matches!(launch.processes, Processes::Own) && self.sandbox.user.is_none();
        let namespaces = Namespaces(if own { libc::CLONE_NEWPID } else { 0 });
        let join = match launch.processes {
            Processes::Join(pidfd) => Some(pidfd),
            Processes::Own | Processes::Node => None,
        };
        self.fork(namespaces, join, &groups, |report| self.enter(&launch, &groups, report))
    }

    /// Starts a command.
    pub(crate) fn execute(&self, command: &Command<'_>) -> Result<(Child, Report), Failure> {
        let join = Some(command.container);
        self.fork(Namespaces::default(), join, command.cgroups, |_| self.join(command))
    }

    fn fork(
        &self,
        namespaces: Namespaces,
        join: Option<BorrowedFd<'_>>,
        groups: &Cgroups,
        child: impl FnOnce(&Report) -> Failure,
    ) -> Result<(Child, Report), Failure> {
        let birthplace = cgroups::birthplace(groups)?;
        let (near, far) = report::pair()?;
        if let Some(pidfd) = join {
            rustix::thread::move_into_thread_name_spaces(pidfd, ThreadNameSpaceType::PROCESS_ID)
                .step("join process namespace")?;
        }
        let forked = self.alone.fork(namespaces, birthplace.as_ref().map(AsFd::as_fd));
        if let Ok(Forked::Child) = forked {
            drop(near);
            let failure = child(&far);
            far.failed(&failure);
            process::leave(1);
        }
        if join.is_some() {
            // Only children were meant; without this the next container would be in there too.
            let back = Some(LinkNameSpaceType::ProcessID);
            rustix::thread::move_into_link_name_space(self.pids.as_fd(), back)
                .step("return from process namespace")?;
        }
        match forked.step("clone")? {
            Forked::Parent(child) => Ok((child, near)),
            Forked::Child => Err(Failure::refused("clone", "")),
        }
    }

    /// In the child. Comes back only with why not.
    fn enter(&self, launch: &Launch<'_>, groups: &Cgroups, report: &Report) -> Failure {
        match self.prepare(launch, groups, report) {
            Ok((stdio, own_proc)) => {
                let stdio = stdio.as_ref().or(launch.stdio.as_ref());
                match (stdio, &launch.spec.process) {
                    (Some(stdio), Some(process)) => identity::execute(process, stdio, &own_proc),
                    _ => Failure::refused("container without process", ""),
                }
            }
            Err(failure) => failure,
        }
    }

    fn prepare(
        &self,
        launch: &Launch<'_>,
        groups: &Cgroups,
        report: &Report,
    ) -> Result<(Option<ChildStdio>, OwnedFd), Failure> {
        let spec = launch.spec;
        cgroups::join(groups)?;
        let score = spec.process.as_ref().and_then(|it| it.oom_score_adj);
        identity::set_oom_score(score, &identity::own_proc()?)?;

        move_into(launch.mounts, LinkNameSpaceType::Mount, "join the service's mounts")?;
        let user = self.sandbox.user.as_ref();
        let sources = sources::open(spec, user)?;

        let shared = [
            (&self.sandbox.ipc, LinkNameSpaceType::InterProcessCommunication),
            (&self.sandbox.uts, LinkNameSpaceType::HostNameAndNISDomainName),
            (&self.sandbox.network, LinkNameSpaceType::Network),
        ];
        for (namespace, kind) in shared {
            if let Some(namespace) = namespace {
                move_into(namespace, kind, "join the pod's namespaces")?;
            }
        }
        move_into(&self.seed, LinkNameSpaceType::Mount, "join seed")?;
        if let Some(user) = user {
            if matches!(launch.processes, Processes::Own) {
                reborn(&self.alone, user, report)?;
            } else {
                move_into(user, LinkNameSpaceType::User, "join the pod's users")?;
                sandbox::become_root()?;
            }
        }
        let mut own = UnshareFlags::NEWNS;
        own.set(UnshareFlags::NEWCGROUP, spec.cgroup_namespace);
        process::unshare(&self.alone, own).step("unshare mount namespace")?;
        let own_proc = identity::own_proc()?;

        let built = root::enter(spec, &self.sandbox, &sources)?;
        let kept: Vec<BorrowedFd<'_>> = built
            .devpts
            .iter()
            .chain(built.terminal.iter().map(|(near, _)| near))
            .map(AsFd::as_fd)
            .collect();
        report.send(report::DESCRIPTORS, &[], &kept).step("hand over terminal")?;
        let stdio = built.terminal.map(|(_, far)| ChildStdio::Terminal(far));
        Ok((stdio, own_proc))
    }

    /// In the child. Comes back only with why not.
    fn join(&self, command: &Command<'_>) -> Failure {
        let joined = || -> Result<OwnedFd, Failure> {
            cgroups::join(command.cgroups)?;
            let own_proc = identity::own_proc()?;
            identity::set_oom_score(command.process.oom_score_adj, &own_proc)?;
            let mut kinds = ThreadNameSpaceType::MOUNT
                | ThreadNameSpaceType::CONTROL_GROUP
                | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
                | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
                | ThreadNameSpaceType::NETWORK;
            // One's own user namespace cannot be joined.
            kinds.set(ThreadNameSpaceType::USER, self.sandbox.user.is_some());
            rustix::thread::move_into_thread_name_spaces(command.container, kinds)
                .step("join container")?;
            if self.sandbox.user.is_some() {
                sandbox::become_root()?;
            }
            Ok(own_proc)
        };
        match joined() {
            Ok(own_proc) => identity::execute(command.process, &command.stdio, &own_proc),
            Err(failure) => failure,
        }
    }
}

fn move_into(
    namespace: &OwnedFd,
    kind: LinkNameSpaceType,
    step: &'static str,
) -> Result<(), Failure> {
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind)).step(step)
}

/// Enters a user namespace and goes on as the first process of a process namespace of it: a sibling,
/// so that the monitor is its parent. Whoever called this process ends here.
pub(crate) fn reborn(alone: &SingleThread, user: &OwnedFd, report: &Report) -> Result<(), Failure> {
    move_into(user, LinkNameSpaceType::User, "join the pod's users")?;
    sandbox::become_root()?;
    process::unshare(alone, UnshareFlags::NEWPID).step("unshare process namespace")?;
    let (gate, opener) = std::io::pipe().map_err(|it| sandbox::errno(&it)).step("pipe")?;
    match alone.fork_sibling().step("clone into process namespace")? {
        Forked::Parent(child) => {
            let pid = child.pid.as_raw_nonzero().get().to_le_bytes();
            let told = report.send(report::REBORN, &pid, &[child.pidfd.as_fd()]);
            process::leave(i32::from(told.is_err()));
        }
        Forked::Child => {
            drop(opener);
            // Not before the monitor can know whose end it sees.
            match rustix::io::retry_on_intr(|| rustix::io::read(&gate, &mut [0; 1])) {
                Ok(_) => Ok(()),
                Err(errno) => Err::<(), Errno>(errno).step("wait for report"),
            }
        }
    }
}

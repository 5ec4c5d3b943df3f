//! The pod's own namespaces, made by a child that leaves them behind as descriptors.
//!
//! ```text
//!  monitor ──fork──► child: user namespace ──► waits ──► net, ipc, uts, /dev/shm, settings ──► leaves
//!     └── writes the child's id maps ──────────┘               └── descriptors ──► monitor
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ferrolet_runtime_protocol::sandbox::{IdMap, IdMaps, PidShare, SandboxSpec, Share};
use ferrolet_runtime_sys::fork::{Child, Forked, Namespaces, SingleThread};
use ferrolet_runtime_sys::{process, signals};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::{WaitId, WaitIdOptions};
use rustix::thread::UnshareFlags;

use crate::cgroups;
use crate::failure::{Failure, Step};
use crate::report::{self, Report};
use crate::seed;

/// What a pod's containers share.
#[derive(Debug, Default)]
pub(crate) struct Sandbox {
    pub(crate) network: Option<OwnedFd>,
    pub(crate) ipc: Option<OwnedFd>,
    pub(crate) uts: Option<OwnedFd>,
    pub(crate) user: Option<OwnedFd>,
    /// The pod's `/dev/shm`, a mount that is nowhere.
    pub(crate) shm: Option<OwnedFd>,
    /// The first process of a process namespace that the pod shares.
    pub(crate) init: Option<Child>,
}

/// Makes the namespaces that the pod does not share with the node.
pub(crate) fn make(alone: &SingleThread, spec: &SandboxSpec) -> Result<Sandbox, Failure> {
    let (near, far) = report::pair()?;
    let (gate, opener) = std::io::pipe().map_err(|it| errno(&it)).step("pipe")?;
    let user = if spec.user.is_some() { libc::CLONE_NEWUSER } else { 0 };
    match alone.fork(Namespaces(user), None).step("fork for namespaces")? {
        Forked::Child => {
            drop((near, opener));
            let made = child(alone, spec, &gate.into(), &far);
            let code = i32::from(made.is_err());
            if let Err(failure) = made {
                far.failed(&failure);
            }
            process::leave(code);
        }
        Forked::Parent(helper) => {
            drop((far, gate));
            if let Some(maps) = &spec.user {
                write_maps(&helper, maps)?;
            }
            drop(opener);
            let sandbox = collect(spec, &near);
            let _reaped =
                rustix::process::waitid(WaitId::PidFd(helper.pidfd.as_fd()), WaitIdOptions::EXITED);
            let mut sandbox = sandbox?;
            if spec.pid() == PidShare::Pod {
                sandbox.init = Some(start_init(alone, spec, sandbox.user.as_ref())?);
            }
            Ok(sandbox)
        }
    }
}

fn child(
    alone: &SingleThread,
    spec: &SandboxSpec,
    gate: &OwnedFd,
    far: &Report,
) -> Result<(), Failure> {
    // Until the maps are written this process is nobody.
    let _opened = rustix::io::retry_on_intr(|| rustix::io::read(gate, &mut [0; 1]));
    if spec.user.is_some() {
        become_root()?;
    }
    let (network, ipc) = (spec.network() == Share::Pod, spec.ipc() == Share::Pod);
    let mut flags = UnshareFlags::empty();
    flags.set(UnshareFlags::NEWNET | UnshareFlags::NEWUTS, network);
    flags.set(UnshareFlags::NEWIPC, ipc);
    process::unshare(alone, flags).step("unshare namespaces")?;
    if network {
        if !spec.hostname.is_empty() {
            rustix::system::sethostname(spec.hostname.as_bytes())
                .step_on("set hostname", &spec.hostname)?;
        }
        loopback_up()?;
    }
    for sysctl in &spec.sysctls {
        set_sysctl(&sysctl.name, &sysctl.value)?;
    }
    let open = |name: &str| {
        let path = format!("/proc/self/ns/{name}");
        rustix::fs::open(&*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .step_on("open namespace", &path)
    };
    let mut made = Vec::new();
    if network {
        made.push(open("net")?);
        made.push(open("uts")?);
    }
    if ipc {
        made.push(open("ipc")?);
        made.push(new_shm(alone, spec)?);
    }
    if spec.user.is_some() {
        made.push(open("user")?);
    }
    let descriptors: Vec<BorrowedFd<'_>> = made.iter().map(AsFd::as_fd).collect();
    far.send(report::DESCRIPTORS, &[], &descriptors).step("hand over namespaces")
}

/// In the order in which the child sent them.
fn collect(spec: &SandboxSpec, near: &Report) -> Result<Sandbox, Failure> {
    let (kind, body, descriptors) = near.wait().step("wait for namespaces")?;
    if kind != report::DESCRIPTORS {
        return Err(report::failure(&body));
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = |is_own: bool| if is_own { descriptors.next() } else { None };
    let (network, ipc) = (spec.network() == Share::Pod, spec.ipc() == Share::Pod);
    Ok(Sandbox {
        network: next(network),
        uts: next(network),
        ipc: next(ipc),
        shm: next(ipc),
        user: next(spec.user.is_some()),
        init: None,
    })
}

/// A tmpfs of the pod's users, so it is made in the pod's user namespace, which may mount only in a
/// mount namespace of its own.
fn new_shm(alone: &SingleThread, spec: &SandboxSpec) -> Result<OwnedFd, Failure> {
    if spec.user.is_some() {
        process::unshare(alone, UnshareFlags::NEWNS).step("unshare mount namespace")?;
    }
    let size = spec.shm_size.to_string();
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    seed::new_mount("tmpfs", &[("mode", "1777"), ("size", &size)], quiet).step("mount /dev/shm")
}

/// A pod's processes have a first one that reaps and waits: a child of the monitor, like everything
/// else in the pod.
fn start_init(
    alone: &SingleThread,
    spec: &SandboxSpec,
    user: Option<&OwnedFd>,
) -> Result<Child, Failure> {
    let groups = spec.init_cgroups.clone().unwrap_or_default();
    cgroups::make(&groups)?;
    let birthplace = cgroups::birthplace(&groups)?;
    let (near, far) = report::pair()?;
    // A process namespace belongs to the user namespace of whoever makes it, so with one the child
    // goes there first, and its sibling is the init.
    let own = if user.is_some() { 0 } else { libc::CLONE_NEWPID };
    let forked = alone
        .fork(Namespaces(own), birthplace.as_ref().map(AsFd::as_fd))
        .step("fork init of pod")?;
    match forked {
        Forked::Child => {
            drop(near);
            let ready = cgroups::join(&groups).and_then(|()| match user {
                Some(user) => crate::launch::reborn(alone, user, &far),
                None => Ok(()),
            });
            if let Err(failure) = ready {
                far.failed(&failure);
                process::leave(1);
            }
            drop(far);
            be_init()
        }
        Forked::Parent(child) => {
            drop(far);
            match near.wait() {
                // Its end of the report is closed: it waits.
                Err(Errno::PIPE) => Ok(child),
                Err(errno) => Err(errno).step("wait for init of pod"),
                Ok((report::REBORN, body, mut descriptors)) => {
                    let pid = report::pid(&body).step("init of pod")?;
                    let pidfd = descriptors.pop().ok_or(Errno::BADMSG).step("init of pod")?;
                    Ok(Child { pid, pidfd })
                }
                Ok((_, body, _)) => Err(report::failure(&body)),
            }
        }
    }
}

/// Reaps whatever ends in the pod, until the kernel kills it.
fn be_init() -> ! {
    let Ok(ended) = signals::child_descriptor() else { process::leave(1) };
    let _inherited = rustix::thread::set_name(c"pod-init");
    loop {
        let mut ready = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
        let _woken = rustix::event::poll(&mut ready, None);
        signals::drain(&ended);
        while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
    }
}

fn write_maps(child: &Child, maps: &IdMaps) -> Result<(), Failure> {
    let lines = |maps: &[IdMap]| -> String {
        maps.iter().map(|it| format!("{} {} {}\n", it.inside, it.outside, it.length)).collect()
    };
    for (file, content) in [("uid_map", lines(&maps.uids)), ("gid_map", lines(&maps.gids))] {
        let path = format!("/proc/{}/{file}", child.pid.as_raw_nonzero());
        write(&path, &content).step_on("map ids", &path)?;
    }
    Ok(())
}

/// After entering a user namespace: its root, not the node's.
pub(crate) fn become_root() -> Result<(), Failure> {
    rustix::thread::set_thread_groups(&[]).step("drop groups")?;
    let (uid, gid) = (rustix::process::Uid::ROOT, rustix::process::Gid::ROOT);
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("become root of pod")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("become root of pod")
}

/// Names have dots; a path has none that go up, and one that would be is refused.
fn set_sysctl(name: &str, value: &str) -> Result<(), Failure> {
    if name.split(['.', '/']).any(str::is_empty) {
        return Err(Failure::refused("set sysctl", name));
    }
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    write(&path, value).step_on("set sysctl", name)
}

fn write(path: &str, value: &str) -> rustix::io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, value.as_bytes())?;
    Ok(())
}

fn loopback_up() -> Result<(), Failure> {
    ferrolet_runtime_sys::network::loopback_up().step("bring up loopback")
}

pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_named_below_proc_sys() {
        let refused = |name: &str| set_sysctl(name, "1").unwrap_err().message();
        for name in ["", "..", "kernel..core_pattern", "kernel/../../self", ".a"] {
            assert_eq!((refused(name).step.as_str(), refused(name).errno), ("set sysctl", 0));
        }
    }
}

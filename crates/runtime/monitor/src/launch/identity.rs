//! The last step: a process that is in its container becomes what was asked for.
//!
//! The order matters. Files of the image are read while there are rights to read them; a filter that
//! needs privilege is put on before it is gone, any other at the very end; what is looked up for
//! execution is looked up as the user.

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use ferrolet_runtime_protocol::launch::{Process, User};
use ferrolet_runtime_sys::{bpf, process, signals};
use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::users::{self, Identity};
use crate::failure::{Failure, Step};

/// As much of `passwd` and `group` as is read.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Where programs are looked for when nobody says.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The far ends of a process's stdio.
pub(crate) enum ChildStdio {
    /// Stdin, stdout and stderr.
    Pipes([OwnedFd; 3]),
    /// All three, and the process's controlling terminal.
    Terminal(OwnedFd),
}

/// Comes back only with why not. `own_proc` is this process's directory in a procfs of ours.
pub(super) fn execute(process: &Process, stdio: &ChildStdio, own_proc: &OwnedFd) -> Failure {
    match become_it(process, stdio, own_proc) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

/// Success is another program.
enum Never {}

fn become_it(wanted: &Process, stdio: &ChildStdio, own_proc: &OwnedFd) -> Result<Never, Failure> {
    rustix::process::setsid().step("begin session")?;
    let user = wanted.user.clone().unwrap_or_default();
    let identity = identify(&user)?;
    connect(stdio, identity.uid)?;
    for limit in &wanted.rlimits {
        process::set_limit(limit.resource, limit.soft, limit.hard).step("set resource limit")?;
    }
    match process::join_new_keyring() {
        Ok(()) | Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::DQUOT) => {}
        Err(errno) => return Err(errno).step("make keyring"),
    }
    label(wanted, own_proc)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    make_working_dir(wanted);
    let entered = enter_working_dir(wanted);

    let without_privilege = wanted.no_new_privs;
    if without_privilege {
        rustix::thread::set_no_new_privs(true).step("give up new privileges")?;
    } else {
        filter(wanted)?;
    }
    take_identity(&identity, wanted.capabilities)?;
    // Some directories are open to the user but not to root: those of a file server.
    if entered.is_err() {
        enter_working_dir(wanted)?;
    }
    is_inside()?;
    let (args, env) = program(wanted, &identity)?;
    let path = find_program(wanted, &args, &env)?;
    process::close_on_exec_from_3().step("close descriptors")?;
    if without_privilege {
        filter(wanted)?;
    }
    signals::reset();
    let errno = process::execute(&path, &args, &env);
    Err(errno).step_on("execute", &path.to_string_lossy())
}

fn identify(user: &User) -> Result<Identity, Failure> {
    let passwd = read_file("/etc/passwd")?;
    let group = read_file("/etc/group")?;
    users::resolve(user, &passwd, &group)
}

/// A plain file of the image, which may be missing.
fn read_file(path: &str) -> Result<Vec<u8>, Failure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let file = match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::NXIO) => return Ok(Vec::new()),
        Err(errno) => return Err(errno).step_on("read", path),
    };
    let stat = rustix::fs::fstat(&file).step_on("read", path)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(Vec::new());
    }
    let mut content = Vec::new();
    let read = fs::File::from(file).take(MAX_FILE + 1).read_to_end(&mut content);
    match read {
        Ok(n) if n as u64 <= MAX_FILE => Ok(content),
        Ok(_) => Err(Failure::refused("too large:", path)),
        Err(error) => Err(crate::sandbox::errno(&error)).step_on("read", path),
    }
}

fn connect(stdio: &ChildStdio, uid: u32) -> Result<(), Failure> {
    let ends: [&OwnedFd; 3] = match stdio {
        ChildStdio::Pipes([stdin, stdout, stderr]) => [stdin, stdout, stderr],
        ChildStdio::Terminal(terminal) => {
            rustix::process::ioctl_tiocsctty(terminal).step("take terminal")?;
            [terminal; 3]
        }
    };
    for (end, number) in ends.into_iter().zip(0..) {
        // Otherwise the user cannot open `/dev/stdout`. Files of the node, such as its null device,
        // stay whose they are.
        let kind = rustix::fs::fstat(end).map(|it| FileType::from_raw_mode(it.st_mode));
        if kind.is_ok_and(|it| it == FileType::Fifo) || matches!(stdio, ChildStdio::Terminal(_)) {
            let _stays_roots = rustix::fs::fchown(end, Some(Uid::from_raw(uid)), None);
        }
        process::become_stdio(end, number).step("connect stdio")?;
    }
    Ok(())
}

/// For the next execution. The file is one of a procfs that no container can reach or cover.
fn label(wanted: &Process, own_proc: &OwnedFd) -> Result<(), Failure> {
    let labels =
        [("attr/apparmor/exec", &wanted.apparmor, "exec "), ("attr/exec", &wanted.selinux, "")];
    for (file, label, verb) in labels.into_iter().filter(|(_, label, _)| !label.is_empty()) {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = rustix::fs::openat2(own_proc, file, flags, Mode::empty(), resolve)
            .step_on("open label", label)?;
        rustix::io::write(&opened, format!("{verb}{label}").as_bytes())
            .step_on("set label", label)?;
    }
    Ok(())
}

fn working_dir(wanted: &Process) -> &str {
    if wanted.working_dir.is_empty() { "/" } else { &wanted.working_dir }
}

/// In this root, so that the plain call goes nowhere else.
fn make_working_dir(wanted: &Process) {
    let _seen_when_entered = fs::create_dir_all(working_dir(wanted));
}

fn enter_working_dir(wanted: &Process) -> Result<(), Failure> {
    let path = working_dir(wanted);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Through `/proc/self/fd` there would be a way out, by a descriptor that is still open.
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let root = rustix::fs::open("/", flags, Mode::empty()).step("open root")?;
    rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve)
        .and_then(rustix::process::fchdir)
        .step_on("enter working directory", path)
}

/// The kernel names a directory outside the root `(unreachable)`.
fn is_inside() -> Result<(), Failure> {
    let here = rustix::process::getcwd(Vec::new()).step("find working directory")?;
    if here.to_bytes().starts_with(b"/") {
        Ok(())
    } else {
        Err(Failure::refused("working directory is outside the container", ""))
    }
}

fn filter(wanted: &Process) -> Result<(), Failure> {
    if wanted.seccomp.is_empty() {
        return Ok(());
    }
    bpf::install_seccomp(&wanted.seccomp, wanted.seccomp_flags).step("install seccomp filter")
}

fn take_identity(identity: &Identity, capabilities: u64) -> Result<(), Failure> {
    // What this kernel, or this user namespace's maker, does not have cannot be given.
    let had = rustix::thread::capabilities(None).step("read capabilities")?.permitted.bits();
    let kept = capabilities & had;
    process::bound_capabilities(kept).step("bound capabilities")?;
    rustix::thread::set_keep_capabilities(true).step("keep capabilities")?;
    let groups: Vec<Gid> = identity.groups.iter().map(|it| Gid::from_raw(*it)).collect();
    rustix::thread::set_thread_groups(&groups).step("set groups")?;
    let gid = Gid::from_raw(identity.gid);
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("set group")?;
    let uid = Uid::from_raw(identity.uid);
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("set user")?;
    rustix::thread::set_keep_capabilities(false).step("keep capabilities")?;
    // Only root keeps them when it executes; ambient and inheritable stay empty.
    let kept = CapabilitySet::from_bits_retain(kept);
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).step("set capabilities")?;
    // Changing the user made this process readable by the user again, which it must not be before
    // it is another program.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide process")
}

fn program(wanted: &Process, identity: &Identity) -> Result<(Vec<CString>, Vec<CString>), Failure> {
    let string = |text: &[u8]| {
        CString::new(text).map_err(|_| Failure::refused("argument with a null byte", ""))
    };
    let args = wanted.args.iter().map(|it| string(it.as_bytes())).collect::<Result<_, _>>()?;
    let mut env = wanted.env.iter().map(|it| string(it)).collect::<Result<Vec<_>, _>>()?;
    if !wanted.env.iter().any(|it| it.starts_with(b"HOME=")) {
        env.push(string(format!("HOME={}", identity.home).as_bytes())?);
    }
    Ok((args, env))
}

/// As a shell would: a name with a slash is a path, any other is looked for.
fn find_program(wanted: &Process, args: &[CString], env: &[CString]) -> Result<CString, Failure> {
    let name = args.first().ok_or_else(|| Failure::refused("no command", ""))?;
    if name.as_bytes().contains(&b'/') {
        return Ok(name.clone());
    }
    let path = env.iter().find_map(|it| it.as_bytes().strip_prefix(b"PATH="));
    let path = path.unwrap_or(PATH.as_bytes());
    let mut found = Errno::NOENT;
    for directory in path.split(|it| *it == b':').filter(|it| it.starts_with(b"/")) {
        let Ok(candidate) = CString::new([directory, b"/", name.as_bytes()].concat()) else {
            continue;
        };
        let is_file = rustix::fs::stat(&*candidate)
            .is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::RegularFile);
        if !is_file {
            continue;
        }
        match rustix::fs::access(&*candidate, rustix::fs::Access::EXEC_OK) {
            Ok(()) => return Ok(candidate),
            Err(errno) => found = errno,
        }
    }
    Err(found).step_on("find executable", &wanted.args[0])
}

/// This process's own directory in the procfs that is at `/proc` now.
pub(super) fn own_proc() -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/self", flags, Mode::empty()).step("open /proc/self")
}

/// As gladly killed as was asked; where the score may not be lowered, as it is.
pub(super) fn set_oom_score(score: Option<i32>, own_proc: &OwnedFd) -> Result<(), Failure> {
    let Some(score) = score else { return Ok(()) };
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(own_proc.as_fd(), "oom_score_adj", flags, Mode::empty())
        .step("open OOM score")?;
    match rustix::io::write(&file, score.to_string().as_bytes()) {
        Ok(_) | Err(Errno::ACCESS | Errno::PERM) => Ok(()),
        Err(errno) => Err(errno).step("set OOM score"),
    }
}

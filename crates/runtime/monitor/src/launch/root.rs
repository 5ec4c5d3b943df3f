//! A container's file system, put together in a mount namespace that nobody else is in.
//!
//! Everything is reached by descriptors. `/proc`, `/sys` and `/dev` must be real directories of the
//! root; other targets are resolved inside the root, links included, and made if missing.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ferrolet_runtime_protocol::launch::{Device, Kernel, LaunchSpec, Mount, Source};
use ferrolet_runtime_sys::mounts::{self, Attributes, Depth};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::pty::OpenptFlags;

use super::sources::{self, Sources};
use crate::failure::{Failure, Step};
use crate::sandbox::Sandbox;
use crate::seed;

/// What of it the monitor keeps.
#[derive(Default)]
pub(super) struct Built {
    /// The container's terminals.
    pub(super) devpts: Option<OwnedFd>,
    /// The near and the far end of its own.
    pub(super) terminal: Option<(OwnedFd, OwnedFd)>,
}

/// Files of procfs that tools such as lxcfs replace. Anything else mounted over procfs would
/// redirect what we, or the kernel's own rules, rely on.
const REPLACEABLE: [&str; 9] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/uptime",
    "/proc/sys/crypto/fips_enabled",
];

/// Builds the file system and enters it.
pub(super) fn enter(
    spec: &LaunchSpec,
    sandbox: &Sandbox,
    sources: &Sources,
) -> Result<Built, Failure> {
    let root = &sources.root;
    seed::put(root, rustix::fs::CWD, seed::ROOT).step("place root")?;
    let mut built = Built::default();
    let mut dev = None;
    for (mount, source) in spec.mounts.iter().zip(&sources.mounts) {
        match (&mount.source, source) {
            (Some(Source::Kernel(_)), _) => {
                kernel_mount(spec, sandbox, sources, mount, &mut built, &mut dev)?;
            }
            (Some(Source::Tmpfs(tmpfs)), _) => {
                let mode = format!("{:o}", tmpfs.mode);
                let size = tmpfs.size.to_string();
                let mut options = vec![("mode", mode.as_str())];
                if tmpfs.size > 0 {
                    options.push(("size", &size));
                }
                let tree = seed::new_mount("tmpfs", &options, sources::attributes(mount))
                    .step_on("mount tmpfs at", &mount.target)?;
                place(root, &tree, mount)?;
            }
            (_, Some(tree)) => place(root, tree, mount)?,
            (_, None) => return Err(Failure::refused("mount without source", &*mount.target)),
        }
    }
    mask(spec, root, dev.as_ref())?;
    for path in &spec.readonly_paths {
        if let Some(target) = existing(root, path)? {
            let tree = sources::readonly_over(&target).step_on("make read-only", path)?;
            seed::put(&tree, &target, "").step_on("make read-only", path)?;
        }
    }
    if spec.root.as_ref().is_some_and(|it| it.readonly) {
        let readonly = Attributes { set: libc::MOUNT_ATTR_RDONLY, ..Attributes::default() };
        mounts::set_attributes(root, readonly, Depth::Top).step("make root read-only")?;
    }
    rustix::process::fchdir(root).step("enter root")?;
    seed::enter_root().step("pivot to root")?;
    Ok(built)
}

fn kernel_mount(
    spec: &LaunchSpec,
    sandbox: &Sandbox,
    sources: &Sources,
    mount: &Mount,
    built: &mut Built,
    dev: &mut Option<OwnedFd>,
) -> Result<(), Failure> {
    let root = &sources.root;
    let Some(Source::Kernel(kind)) = mount.source else { return Ok(()) };
    let kind = Kernel::try_from(kind)
        .map_err(|_| Failure::refused("unknown file system at", &*mount.target))?;
    let attributes = sources::attributes(mount);
    let new = |name: &str, options: &[(&str, &str)]| {
        seed::new_mount(name, options, attributes).step_on("mount at", &mount.target)
    };
    match kind {
        Kernel::Proc => place_in_directory(root, &new("proc", &[])?, mount)?,
        Kernel::Sysfs => place_in_directory(root, &new("sysfs", &[])?, mount)?,
        Kernel::Dev => {
            let tree = new("tmpfs", &[("mode", "755"), ("size", "65536k")])?;
            place_in_directory(root, &tree, mount)?;
            furnish_dev(&tree, &spec.devices, &sources.devices)?;
            *dev = Some(tree);
        }
        Kernel::Devpts => {
            let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")];
            // The group of terminals, where the pod has one of that number.
            let with_group: Vec<_> = options.iter().copied().chain([("gid", "5")]).collect();
            let tree = seed::new_mount("devpts", &with_group, attributes)
                .or_else(|_| seed::new_mount("devpts", &options, attributes))
                .step_on("mount at", &mount.target)?;
            place(root, &tree, mount)?;
            if spec.tty {
                let terminal = open_terminal(&tree)?;
                if let Some(dev) = dev {
                    let file = touch(dev, "console").step("make /dev/console")?;
                    let console = mounts::detached_top(&terminal.1, "").step("clone terminal")?;
                    seed::put(&console, &file, "").step("mount /dev/console")?;
                }
                built.terminal = Some(terminal);
            }
            built.devpts = Some(tree);
        }
        Kernel::Mqueue => place(root, &new("mqueue", &[])?, mount)?,
        Kernel::Cgroup => place(root, &new("cgroup2", &[])?, mount)?,
        Kernel::Shm => {
            let shm = sandbox.shm.as_ref();
            let shm = shm.ok_or_else(|| Failure::refused("the pod has no /dev/shm", ""))?;
            let tree = mounts::detached_top(shm, "").step("clone /dev/shm")?;
            place(root, &tree, mount)?;
        }
    }
    Ok(())
}

/// The near and the far end of a new terminal. No name is resolved for the far end.
pub(crate) fn open_terminal(devpts: &OwnedFd) -> Result<(OwnedFd, OwnedFd), Failure> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let near = rustix::fs::openat(devpts, "ptmx", flags, Mode::empty()).step("open terminal")?;
    rustix::pty::unlockpt(&near).step("unlock terminal")?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let far = rustix::pty::ioctl_tiocgptpeer(&near, flags).step("open terminal's other end")?;
    Ok((near, far))
}

/// Links that programs expect, and the container's devices.
fn furnish_dev(
    dev: &OwnedFd,
    devices: &[Device],
    sources: &[Option<OwnedFd>],
) -> Result<(), Failure> {
    let links = [
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
        ("pts/ptmx", "ptmx"),
    ];
    for (to, name) in links {
        rustix::fs::symlinkat(to, dev, name).step_on("link in /dev", name)?;
    }
    for (device, source) in devices.iter().zip(sources) {
        let path = device.path.strip_prefix("/dev/");
        let path = path.ok_or_else(|| Failure::refused("device outside /dev", &*device.path))?;
        let (parent, name) = match path.rsplit_once('/') {
            Some((parent, name)) => (Some(make_directories(dev, parent)?), name),
            None => (None, path),
        };
        let parent = parent.as_ref().unwrap_or(dev);
        match source {
            Some(tree) => {
                let file = touch(parent, name).step_on("make device", &device.path)?;
                seed::put(tree, &file, "").step_on("mount device", &device.path)?;
            }
            None => make_device(parent, name, device).step_on("make device", &device.path)?,
        }
    }
    Ok(())
}

fn make_device(parent: &OwnedFd, name: &str, device: &Device) -> rustix::io::Result<()> {
    let kind = if device.is_block { FileType::BlockDevice } else { FileType::CharacterDevice };
    let number = rustix::fs::makedev(device.major, device.minor);
    let mode = Mode::from_raw_mode(device.mode & 0o7777);
    rustix::fs::mknodat(parent, name, kind, mode, number)?;
    let (uid, gid) = (Uid::from_raw(device.uid), Gid::from_raw(device.gid));
    rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    rustix::fs::chmodat(parent, name, mode, AtFlags::empty())
}

/// A file to mount something on.
fn touch(parent: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?);
    rustix::fs::openat(
        parent,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Hides paths. A file disappears behind our own `/dev/null`, which is looked at again.
fn mask(spec: &LaunchSpec, root: &OwnedFd, dev: Option<&OwnedFd>) -> Result<(), Failure> {
    for path in &spec.masked_paths {
        let Some(target) = existing(root, path)? else { continue };
        let stat = rustix::fs::fstat(&target).step_on("mask", path)?;
        let cover = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let quiet = MountAttrFlags::MOUNT_ATTR_RDONLY
                | MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            seed::new_mount("tmpfs", &[("mode", "0555"), ("size", "4k")], quiet)
                .step_on("mask", path)?
        } else {
            let dev = dev.ok_or_else(|| Failure::refused("mask without /dev", path))?;
            null(dev)?
        };
        seed::put(&cover, &target, "").step_on("mask", path)?;
    }
    Ok(())
}

fn null(dev: &OwnedFd) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let null = rustix::fs::openat(dev, "null", flags, Mode::empty()).step("open /dev/null")?;
    let stat = rustix::fs::fstat(&null).step("open /dev/null")?;
    let is_null = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && stat.st_rdev == rustix::fs::makedev(1, 3);
    if !is_null {
        return Err(Failure::refused("/dev/null is something else", ""));
    }
    mounts::detached_top(&null, "").step("clone /dev/null")
}

/// A directory of the root itself, made if missing; a link there is refused.
fn place_in_directory(root: &OwnedFd, tree: &OwnedFd, mount: &Mount) -> Result<(), Failure> {
    let name = mount.target.trim_start_matches('/');
    match rustix::fs::mkdirat(root, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST | Errno::ROFS) => {}
        Err(errno) => return Err(errno).step_on("make directory", &mount.target),
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let target = rustix::fs::openat2(root, name, flags, Mode::empty(), resolve)
        .step_on("mount at", &mount.target)?;
    seed::put(tree, &target, "").step_on("mount at", &mount.target)
}

/// Any other place in the container.
fn place(root: &OwnedFd, tree: &OwnedFd, mount: &Mount) -> Result<(), Failure> {
    let source = rustix::fs::fstat(tree).step_on("mount at", &mount.target)?;
    let is_directory = FileType::from_raw_mode(source.st_mode) == FileType::Directory;
    let target = match existing(root, &mount.target)? {
        Some(target) => target,
        None => make_target(root, &mount.target, is_directory)?,
    };
    let is_proc = |file: &OwnedFd| {
        rustix::fs::fstatfs(file).is_ok_and(|it| it.f_type == rustix::fs::PROC_SUPER_MAGIC)
    };
    let may_cover = !is_proc(&target)
        || REPLACEABLE.contains(&mount.target.as_str())
        || (mount.target == "/proc" && is_proc(tree));
    if !may_cover {
        return Err(Failure::refused("refused to mount over procfs at", &*mount.target));
    }
    seed::put(tree, &target, "").step_on("mount at", &mount.target)
}

/// What a path leads to inside the root, if anything.
fn existing(root: &OwnedFd, path: &str) -> Result<Option<OwnedFd>, Failure> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let opened = loop {
        match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
            // Something was renamed meanwhile.
            Err(Errno::AGAIN) => {}
            opened => break opened,
        }
    };
    match opened {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno).step_on("find", path),
    }
}

fn make_target(root: &OwnedFd, path: &str, is_directory: bool) -> Result<OwnedFd, Failure> {
    let path = path.trim_matches('/');
    if is_directory {
        return make_directories(root, path);
    }
    let (parent, name) = match path.rsplit_once('/') {
        Some((parent, name)) => (Some(make_directories(root, parent)?), name),
        None => (None, path),
    };
    touch(parent.as_ref().unwrap_or(root), name).step_on("make file", path)
}

/// Directories down to `path`: those that are there are followed inside the root, those that are
/// missing are made beneath the descriptor of their parent.
fn make_directories(root: &OwnedFd, path: &str) -> Result<OwnedFd, Failure> {
    let mut walked = String::new();
    let mut parent: Option<OwnedFd> = None;
    for name in path.split('/').filter(|it| !it.is_empty() && *it != ".") {
        if name == ".." {
            return Err(Failure::refused("path goes up:", path));
        }
        walked.push('/');
        walked.push_str(name);
        let next = match existing(root, &walked)? {
            Some(next) => next,
            None => {
                let parent = parent.as_ref().unwrap_or(root);
                rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))
                    .step_on("make directory", &walked)?;
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(parent, name, flags, Mode::empty())
                    .step_on("make directory", &walked)?
            }
        };
        parent = Some(next);
    }
    match parent {
        Some(parent) => Ok(parent),
        None => rustix::io::fcntl_dupfd_cloexec(root.as_fd(), root.as_raw_fd()).step("root"),
    }
}

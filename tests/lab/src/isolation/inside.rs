//! The stages inside the namespaces: the first process, which makes the place private and cleans
//! up, and the inner one, which does the work.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_move, unmount,
};
use rustix::process::{Signal, WaitOptions, wait};

use super::{Bench, CgroupView, STAGE, arguments, clean, network, own_run};
use crate::cgroups;
use crate::process::{call, send_signal};
use crate::wait::wait_until;

/// The namespace's first process: makes the place private, starts the inner process and reaps until
/// that ends.
pub(super) fn init(view: CgroupView) -> Result<u8> {
    let run = own_run()?;
    cover_shared_paths(&run.directory())?;
    show_own_links(&run.directory())?;
    cover_kernel_settings(&run.directory())?;
    // Last, because a mount below a shared one cannot be moved.
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)
        .context("share mounts")?;
    call("ip", &["link", "set", "lo", "up"])?;
    let mut inner = match view {
        CgroupView::Machine => Command::new(std::env::current_exe()?),
        CgroupView::Corner => into_corner(&run.cgroup())?,
    };
    let inner = inner
        .args(arguments())
        .env(STAGE, "inner")
        // Temporary files of Go programs and of ours end with the run.
        .env("TMPDIR", run.directory().join("tmp"))
        .spawn()
        .context("start the inner process")?;
    let pid = i32::try_from(inner.id()).context("process id out of range")?;
    loop {
        let Some((gone, status)) = wait(WaitOptions::empty()).context("reap")? else {
            continue;
        };
        if gone.as_raw_nonzero().get() == pid {
            end_everybody()?;
            if view == CgroupView::Corner {
                leave_corner()?;
            }
            detach_cover(&run.directory())?;
            clean(&run)?;
            return Ok(status.exit_status().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
    }
}

/// Enters the cgroup that it starts in, and makes that the top of what its children see.
const ENTER: &str = r#"for tasks in /sys/fs/cgroup/*/cgroup.procs; do echo $$ > "$tasks" || exit 1; done
exec unshare --cgroup -- "$@""#;

/// Lets the corner take the place of every hierarchy; gives this program as it is started in there.
fn into_corner(group: &str) -> Result<Command> {
    ensure!(!cgroups::is_v2(), "one's own corner for a machine is for cgroup v1");
    let world = format!("{group}/world");
    cgroups::create(&world)?;
    for hierarchy in cgroups::hierarchies()? {
        let corner = hierarchy.join(world.trim_start_matches('/'));
        mount_bind(&corner, &hierarchy)
            .with_context(|| format!("put {} in its place", corner.display()))?;
    }
    let mut command = Command::new("sh");
    command.args(["-c", ENTER, "sh"]).arg(std::env::current_exe()?);
    Ok(command)
}

fn leave_corner() -> Result<()> {
    for hierarchy in cgroups::hierarchies()? {
        unmount(&hierarchy, UnmountFlags::DETACH)
            .with_context(|| format!("uncover {}", hierarchy.display()))?;
    }
    Ok(())
}

/// Kills and reaps every other process of the namespace, so that nobody writes while files are
/// removed.
fn end_everybody() -> Result<()> {
    wait_until("the run's processes to end", Duration::from_secs(10), || {
        let others: Vec<u32> = fs::read_dir("/proc")?
            .flatten()
            .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
            .filter(|pid| *pid != 1)
            .collect();
        for pid in &others {
            // It may have ended since the list was read.
            let _ = send_signal(*pid, Signal::KILL);
        }
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        Ok(others.is_empty().then_some(()))
    })
}

/// Takes the private `/var` away again; its layers lie in the run's directory.
fn detach_cover(directory: &Path) -> Result<()> {
    unmount("/var", UnmountFlags::DETACH).context("uncover /var")?;
    crate::mounts::detach_below(directory)
}

fn cover_shared_paths(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory.join("tmp"))?;
    let layers = directory.join("var");
    fs::create_dir_all(&layers)?;
    // The overlay's upper side is on a tmpfs of ours, because /tmp may be an overlay itself.
    mount("tmpfs", &layers, "tmpfs", MountFlags::empty(), None).context("mount a tmpfs")?;
    let (upper, work) = (layers.join("upper"), layers.join("work"));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let options = format!("lowerdir=/var,upperdir={},workdir={}", upper.display(), work.display());
    let options = std::ffi::CString::new(options)?;
    mount("overlay", "/var", "overlay", MountFlags::empty(), Some(options.as_c_str()))
        .context("cover /var")?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).context("cover /run")?;
    Ok(())
}

/// `/sys` shows the links of the network it was mounted in, so this world needs its own, with the
/// same cgroups in it.
fn show_own_links(directory: &Path) -> Result<()> {
    let aside = directory.join("cgroup");
    fs::create_dir(&aside)?;
    mount_bind_recursive("/sys/fs/cgroup", &aside).context("set cgroups aside")?;
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).context("mount /sys")?;
    mount_move(&aside, "/sys/fs/cgroup").context("bring cgroups back")?;
    fs::remove_dir(&aside)?;
    Ok(())
}

/// Settings of the kernel that agents change belong to the whole machine; this world gets copies of
/// its own to write to.
fn cover_kernel_settings(directory: &Path) -> Result<()> {
    let copies = directory.join("sysctl");
    fs::create_dir(&copies)?;
    for name in [
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
        "kernel/keys/root_maxbytes",
    ] {
        let (real, copy) = (Path::new("/proc/sys").join(name), copies.join(name.replace('/', ".")));
        fs::write(&copy, fs::read(&real)?)?;
        mount_bind_recursive(&copy, &real).with_context(|| format!("cover {name}"))?;
    }
    // A user namespace may mount a procfs of its own only where one is seen whole.
    let whole = directory.join("proc");
    fs::create_dir(&whole)?;
    mount("proc", &whole, "proc", MountFlags::empty(), None).context("mount a whole /proc")
}

/// The caller's closure, with a network and a cgroup to work in; told to stop by the end of
/// standard input.
pub(super) fn inner(body: impl FnOnce(&Bench) -> Result<u8>) -> Result<u8> {
    let run = own_run()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    thread::spawn(move || {
        // The outer process writes nothing: the pipe's end is the message.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Relaxed);
    });
    network::prepare(&run)?;
    cgroups::create(&run.cgroup())?;
    let bench = Bench { run, interrupted, next_subnet: AtomicU32::new(0) };
    body(&bench)
}

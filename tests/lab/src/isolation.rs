//! A world of its own for a run, so that two runs never meet and nothing outlives one.
//!
//! ```text
//! outer ──► unshare --mount --pid --net ──► init ──► inner: the caller's closure
//!   │ stdin pipe: its end tells the inner to stop     │ process 1 of the namespace: reaps, and takes everybody along
//!   └ afterwards: removes and counts what is left
//! ```
//!
//! * **Processes**: a pid namespace. When its first process ends, the kernel ends containerd, shims, containers, agents.
//! * **Mounts**: a mount namespace with shared propagation, first cut off from the host. `/run` is an empty tmpfs
//!   and `/var` an overlay, so fixed paths such as `/var/log/containers`, `/run/containerd`, `/run/netns` and `/var/lib/cni`
//!   are private and vanish with the namespace.
//! * **Network**: a network namespace with a node address in a `10.X.0.0/16` block that no route of the host uses;
//!   bridges, ports and iptables rules vanish with it. With [`Network::Uplink`] a veth pair leads to the host,
//!   so that a person can reach pods and ports; both ends vanish too.
//! * **Left on the host**: cgroups named after the run and one directory in `/tmp`. The first process removes both
//!   when the inner process ends, also when the outer one was killed. The outer one [counts](crate::census) what is left,
//!   and removes it in case the first process was killed.
//!
//! The same executable is started again for each stage, so the caller's `main` runs three times up to [`run`].
//! No stage touches a process, mount, cgroup or link without the run's id in its name.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    mount_move, unmount,
};
use rustix::process::{Signal, WaitOptions, wait};

use crate::census::{self, Namespaces};
use crate::cgroups;
use crate::process::{call, say, send_signal};
use crate::wait::wait_until;

const STAGE: &str = "FERROLET_LAB_STAGE";
const RUN: &str = "FERROLET_LAB_RUN";
const NODE_LINK: &str = "node0";

/// How the run's network meets the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Not at all.
    Private,
    /// Through a veth pair, with a route of the host to the run's block.
    Uplink,
}

impl Network {
    fn word(self) -> &'static str {
        match self {
            Network::Private => "private",
            Network::Uplink => "uplink",
        }
    }
}

/// Names and numbers that belong to one run.
#[derive(Debug, Clone)]
pub struct RunId {
    /// Six hexadecimal digits; part of every name on the host.
    pub id: String,
    /// The second octet of the run's `10.X.0.0/16`.
    pub block: u8,
    pub network: Network,
}

impl RunId {
    /// The run's only directory on the host.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        Path::new("/tmp").join(format!("ferrolet-{}", self.id))
    }

    /// The cgroup above everything of the run.
    #[must_use]
    pub fn cgroup(&self) -> String {
        format!("/ferrolet-{}", self.id)
    }

    /// The host's end of the uplink.
    #[must_use]
    pub fn host_link(&self) -> String {
        format!("fl-{}", self.id)
    }

    fn parse(text: &str) -> Result<RunId> {
        let words: Vec<&str> = text.split(' ').collect();
        let &[id, block, network] = words.as_slice() else {
            bail!("{RUN} is {text:?}")
        };
        let network = if network == Network::Uplink.word() {
            Network::Uplink
        } else {
            Network::Private
        };
        Ok(RunId {
            id: id.to_owned(),
            block: block.parse()?,
            network,
        })
    }
}

/// What the inner process works with.
pub struct Bench {
    run: RunId,
    interrupted: Arc<AtomicBool>,
    next_subnet: AtomicU32,
}

impl Bench {
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.run
    }

    /// A fresh directory of that name inside the run's directory.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let dir = self.run.directory().join(name);
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(dir)
    }

    /// The address of the node in the run's network.
    #[must_use]
    pub fn node_ip(&self) -> String {
        node_ip(&self.run)
    }

    /// The next unused number for a pod subnet `10.X.N.0/24`, and the subnet's first three octets.
    pub fn next_subnet(&self) -> (u32, String) {
        let n = self.next_subnet.fetch_add(1, Ordering::Relaxed) % 250;
        (n, format!("10.{}.{n}", self.run.block))
    }

    /// Whether the person or the outer process wants the run to end.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Runs `body` in a world of its own and gives its exit code; a leftover turns success into failure.
pub fn run(network: Network, body: impl FnOnce(&Bench) -> Result<u8>) -> Result<u8> {
    match std::env::var(STAGE).as_deref() {
        Ok("init") => init(),
        Ok("inner") => inner(body),
        Ok(other) => bail!("{STAGE} is {other:?}"),
        Err(_) => outer(network),
    }
}

/// Whether this process is the outer one, which prepares and cleans but does not run the body.
#[must_use]
pub fn is_outer() -> bool {
    std::env::var_os(STAGE).is_none()
}

/// Lets a child of the inner process begin a run of its own, for tests of the bench itself.
pub fn forget_stage(command: &mut Command) -> &mut Command {
    command.env_remove(STAGE).env_remove(RUN)
}

fn outer(network: Network) -> Result<u8> {
    let run = choose_run(network)?;
    fs::create_dir_all(run.directory())?;
    let mut child = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
        ])
        .arg(std::env::current_exe().context("own executable")?)
        .args(arguments())
        .env(STAGE, "init")
        .env(RUN, format!("{} {} {}", run.id, run.block, network.word()))
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .context("start unshare")?;
    let ended = supervise(&mut child, &run);
    let namespaces = match &ended {
        Ok((_, namespaces)) => namespaces.clone(),
        Err(_) => None,
    };
    // Whatever went wrong: nobody of ours may live on.
    let _ = child.kill();
    let _ = child.wait();

    // The kernel takes a network apart a moment after its last process ended.
    let mut left = Vec::new();
    let emptied = wait_until("nothing to be left", Duration::from_secs(5), || {
        left = census::leftovers(&run, namespaces.as_ref())?;
        Ok(left.is_empty().then_some(()))
    });
    clean(&run)?;
    let (code, _) = ended?;
    if emptied.is_err() {
        say(&format!(
            "the run left behind (removed now):\n  {}",
            left.join("\n  ")
        ));
        return Ok(if code == 0 { 1 } else { code });
    }
    Ok(code)
}

/// Waits for the namespace's end; the first Ctrl-C or SIGTERM asks it to stop, the second kills it.
fn supervise(child: &mut Child, run: &RunId) -> Result<(u8, Option<Namespaces>)> {
    let mut pipe = child.stdin.take();
    let n_signals = watch_signals()?;
    let namespaces = wait_until("the run's namespaces", Duration::from_secs(10), || {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(Err(status)));
        }
        Ok(first_child(child.id())
            .and_then(Namespaces::of_another_world)
            .map(Ok))
    })?;
    let namespaces = match namespaces {
        Ok(namespaces) => namespaces,
        Err(status) => return Ok((exit_code(status), None)),
    };
    if run.network == Network::Uplink {
        connect(run, namespaces.first_pid)?;
    }
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((exit_code(status), Some(namespaces)));
        }
        match n_signals.load(Ordering::Relaxed) {
            0 => {}
            1 => drop(pipe.take()),
            _ => child.kill()?,
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn exit_code(status: std::process::ExitStatus) -> u8 {
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1)
}

fn watch_signals() -> Result<Arc<AtomicU32>> {
    use tokio::signal::unix::{SignalKind, signal};
    let count = Arc::new(AtomicU32::new(0));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let (mut interrupts, mut terminations) = {
        let _guard = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    let shared = Arc::clone(&count);
    thread::spawn(move || {
        runtime.block_on(async move {
            loop {
                // Both sides only wait for a notification, so a lost race loses nothing.
                let came = std::future::poll_fn(|context| {
                    let interrupted = interrupts.poll_recv(context);
                    if interrupted.is_ready() {
                        interrupted
                    } else {
                        terminations.poll_recv(context)
                    }
                });
                if came.await.is_none() {
                    return;
                }
                shared.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    Ok(count)
}

/// `unshare` has one child, the namespace's first process.
fn first_child(parent: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn connect(run: &RunId, first_pid: u32) -> Result<()> {
    let (link, pid, block) = (run.host_link(), first_pid.to_string(), run.block);
    call(
        "ip",
        &[
            "link", "add", &link, "type", "veth", "peer", "name", NODE_LINK, "netns", &pid,
        ],
    )?;
    call(
        "ip",
        &[
            "address",
            "add",
            &format!("10.{block}.255.1/30"),
            "dev",
            &link,
        ],
    )?;
    call("ip", &["link", "set", &link, "up"])?;
    call(
        "ip",
        &[
            "route",
            "add",
            &format!("10.{block}.0.0/16"),
            "via",
            &node_ip(run),
        ],
    )?;
    Ok(())
}

fn clean(run: &RunId) -> Result<()> {
    cgroups::remove(&run.cgroup())?;
    if Path::new("/sys/class/net").join(run.host_link()).exists() {
        call("ip", &["link", "delete", &run.host_link()])?;
    }
    let dir = run.directory();
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    }
    Ok(())
}

fn choose_run(network: Network) -> Result<RunId> {
    let mut bytes = [0_u8; 4];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let taken = format!(
        "{}{}",
        call("ip", &["-4", "address"])?,
        call("ip", &["-4", "route"])?
    );
    let start = u16::from(bytes[3]);
    let block = (0..180_u16)
        .map(|step| u8::try_from(70 + (start + step) % 180).expect("70 + 179 fits"))
        .find(|block| !taken.contains(&format!("10.{block}.")))
        .context("every 10.X.0.0/16 is in use")?;
    Ok(RunId {
        id: format!("{:02x}{:02x}{:02x}", bytes[0], bytes[1], bytes[2]),
        block,
        network,
    })
}

fn arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

fn own_run() -> Result<RunId> {
    RunId::parse(&std::env::var(RUN).with_context(|| format!("{RUN} is not set"))?)
}

/// The namespace's first process: makes the place private, starts the inner process and reaps until that ends.
fn init() -> Result<u8> {
    let run = own_run()?;
    cover_shared_paths(&run.directory())?;
    show_own_links(&run.directory())?;
    // Last, because a mount below a shared one cannot be moved.
    mount_change(
        "/",
        MountPropagationFlags::SHARED | MountPropagationFlags::REC,
    )
    .context("share mounts")?;
    call("ip", &["link", "set", "lo", "up"])?;
    let inner = Command::new(std::env::current_exe()?)
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
            detach_cover(&run.directory())?;
            clean(&run)?;
            return Ok(status
                .exit_status()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1));
        }
    }
}

/// Kills and reaps every other process of the namespace, so that nobody writes while files are removed.
fn end_everybody() -> Result<()> {
    wait_until(
        "the run's processes to end",
        Duration::from_secs(10),
        || {
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
        },
    )
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
    let options = format!(
        "lowerdir=/var,upperdir={},workdir={}",
        upper.display(),
        work.display()
    );
    let options = std::ffi::CString::new(options)?;
    mount(
        "overlay",
        "/var",
        "overlay",
        MountFlags::empty(),
        Some(options.as_c_str()),
    )
    .context("cover /var")?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).context("cover /run")?;
    Ok(())
}

/// `/sys` shows the links of the network it was mounted in, so this world needs its own, with the same cgroups in it.
fn show_own_links(directory: &Path) -> Result<()> {
    let aside = directory.join("cgroup");
    fs::create_dir(&aside)?;
    mount_bind_recursive("/sys/fs/cgroup", &aside).context("set cgroups aside")?;
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).context("mount /sys")?;
    mount_move(&aside, "/sys/fs/cgroup").context("bring cgroups back")?;
    fs::remove_dir(&aside)?;
    Ok(())
}

fn inner(body: impl FnOnce(&Bench) -> Result<u8>) -> Result<u8> {
    let run = own_run()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    thread::spawn(move || {
        // The outer process writes nothing: the pipe's end is the message.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Relaxed);
    });
    prepare_network(&run)?;
    cgroups::create(&run.cgroup())?;
    let bench = Bench {
        run,
        interrupted,
        next_subnet: AtomicU32::new(0),
    };
    body(&bench)
}

fn prepare_network(run: &RunId) -> Result<()> {
    let link = Path::new("/sys/class/net").join(NODE_LINK);
    // An uplink is put here by the outer process; without one a bridge that leads nowhere carries the address.
    match run.network {
        Network::Uplink => wait_until("the uplink", Duration::from_secs(10), || {
            Ok(link.exists().then_some(()))
        })?,
        Network::Private => drop(call("ip", &["link", "add", NODE_LINK, "type", "bridge"])?),
    }
    call(
        "ip",
        &[
            "address",
            "add",
            &format!("{}/30", node_ip(run)),
            "dev",
            NODE_LINK,
        ],
    )?;
    call("ip", &["link", "set", NODE_LINK, "up"])?;
    call(
        "ip",
        &[
            "route",
            "add",
            "default",
            "via",
            &format!("10.{}.255.1", run.block),
        ],
    )?;
    Ok(())
}

fn node_ip(run: &RunId) -> String {
    format!("10.{}.255.2", run.block)
}

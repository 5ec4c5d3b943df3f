//! A world of its own for a run, so that two runs never meet and nothing outlives one.
//!
//! ```text
//! outer ──► unshare --mount --pid --net ──► init ──► inner: the caller's closure
//!   │ stdin pipe: its end tells the inner to stop     │ process 1 of the namespace: reaps, and takes everybody along
//!   └ afterwards: removes and counts what is left
//! ```
//!
//! * **Processes**: a pid namespace. When its first process ends, the kernel ends containerd,
//!   shims, containers, agents.
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
//! The same executable is started again for each stage, so the caller's `main` runs three times up
//! to [`run`]. No stage touches a process, mount, cgroup or link without the run's id in its name.

mod inside;
mod network;

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

use crate::census::{self, Namespaces};
use crate::cgroups;
use crate::process::{call, say};
use crate::wait::wait_until;

const STAGE: &str = "FERROLET_LAB_STAGE";
const RUN: &str = "FERROLET_LAB_RUN";

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

/// What of the machine's cgroups a run sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupView {
    /// All of them; it has a corner for itself.
    Machine,
    /// Its corner, as if that were all: for programs that look where a machine's own node has its
    /// cgroups, and that take the top for the whole machine. Cgroup v1 only.
    Corner,
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
        let &[id, block, network] = words.as_slice() else { bail!("{RUN} is {text:?}") };
        let network =
            if network == Network::Uplink.word() { Network::Uplink } else { Network::Private };
        Ok(RunId { id: id.to_owned(), block: block.parse()?, network })
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
        network::node_ip(&self.run)
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

/// Runs `body` in a world of its own and gives its exit code; a leftover turns success into
/// failure.
pub fn run(network: Network, body: impl FnOnce(&Bench) -> Result<u8>) -> Result<u8> {
    run_seeing(CgroupView::Machine, network, body)
}

/// The same with a choice of what it sees.
pub fn run_seeing(
    view: CgroupView,
    network: Network,
    body: impl FnOnce(&Bench) -> Result<u8>,
) -> Result<u8> {
    match std::env::var(STAGE).as_deref() {
        Ok("init") => inside::init(view),
        Ok("inner") => inside::inner(body),
        Ok(other) => bail!("{STAGE} is {other:?}"),
        Err(_) => outer(network),
    }
}

/// Whether this process is the outer one, which prepares and cleans but does not run the body.
#[must_use]
pub fn is_outer() -> bool {
    std::env::var_os(STAGE).is_none()
}

/// The environment in which the same program takes a virtual machine for the inside of a run:
/// nothing in there needs hiding.
#[must_use]
pub fn environment_of_guest(bench: &Bench) -> Vec<(String, String)> {
    let run = bench.run_id();
    let run = format!("{} {} {}", run.id, run.block, Network::Private.word());
    vec![(STAGE.to_owned(), "inner".to_owned()), (RUN.to_owned(), run)]
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
    let mut namespaces = match &ended {
        Ok((_, namespaces)) => namespaces.clone(),
        Err(_) => None,
    };
    // Whatever went wrong: nobody of ours may live on.
    let _ = child.kill();
    let _ = child.wait();
    if let Some(namespaces) = &mut namespaces {
        namespaces.have_ended();
    }

    // The kernel takes a network apart a moment after its last process ended.
    let mut left = Vec::new();
    let emptied = wait_until("nothing to be left", Duration::from_secs(5), || {
        left = census::leftovers(&run, namespaces.as_ref())?;
        Ok(left.is_empty().then_some(()))
    });
    clean(&run)?;
    let (code, _) = ended?;
    if emptied.is_err() {
        say(&format!("the run left behind (removed now):\n  {}", left.join("\n  ")));
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
        Ok(first_child(child.id()).and_then(Namespaces::of_another_world).map(Ok))
    })?;
    let namespaces = match namespaces {
        Ok(namespaces) => namespaces,
        Err(status) => return Ok((exit_code(status), None)),
    };
    if run.network == Network::Uplink {
        network::connect(run, namespaces.first_pid)?;
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
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn watch_signals() -> Result<Arc<AtomicU32>> {
    use tokio::signal::unix::{SignalKind, signal};
    let count = Arc::new(AtomicU32::new(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupts, mut terminations) = {
        let _guard = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
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
    let taken = format!("{}{}", call("ip", &["-4", "address"])?, call("ip", &["-4", "route"])?);
    let start = u16::from(bytes[3]);
    let block = (0..180_u16)
        .map(|step| u8::try_from(70 + (start + step) % 180).expect("70 + 179 fits"))
        .find(|block| !taken.contains(&format!("10.{block}.")))
        .context("every 10.X.0.0/16 is in use")?;
    Ok(RunId { id: format!("{:02x}{:02x}{:02x}", bytes[0], bytes[1], bytes[2]), block, network })
}

fn arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

fn own_run() -> Result<RunId> {
    RunId::parse(&std::env::var(RUN).with_context(|| format!("{RUN} is not set"))?)
}

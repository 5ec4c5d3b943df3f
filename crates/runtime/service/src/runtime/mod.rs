//! Sandboxes and containers: what CRI's runtime service does.
//!
//! ```text
//!  serve ─► Runtime ─┬─ sandboxes, containers, exec ─► client ─► monitors
//!                    ├─ table: what there is   ◄─ watch: one task a monitor, told of ends
//!                    ├─ files, record: what outlives the service
//!                    └─ network: the door to whoever connects pods
//! ```
//!
//! Owned by whoever serves CRI. In: CRI's messages. Out: CRI's messages, or a [`RuntimeError`]. What the kernel is
//! asked for is decided by `runtime/plan` and done by monitors; what is told is computed by [`answer`].
//!
//! The service may die at any moment: monitors go on, and [`Runtime::open`] finds everything again. Changes are
//! made to the end even when their caller leaves.

mod about;
pub(crate) mod answer;
mod cdi;
mod connector;
mod containers;
mod create;
mod devices;
mod error;
mod events;
mod exec;
mod files;
mod metrics;
mod network;
mod phase;
mod pod_files;
mod record;
mod recover;
mod sandboxes;
mod seccomp;
mod spawners;
mod stats;
mod stdio;
mod table;
mod update;
mod usage;
mod watch;

use std::{
    fmt::Write as _,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_client::{Monitor, Program, own_mounts};
use ferrolet_runtime_images::Store;
use ferrolet_runtime_plan::cgroups::Hierarchies;
use ferrolet_runtime_protocol::launch::Process;
use tokio::sync::broadcast;

pub use connector::Connector;
pub use error::RuntimeError;
pub use network::{
    Connection, HostPort, LoopbackOnly, NetworkCondition, NetworkError, PortProtocol,
    SandboxIdentity, SandboxNetwork,
};

pub(crate) use metrics::descriptors as metric_descriptors;

use crate::images::WallClock;
use files::Places;
use spawners::Spawners;
use table::{Container, Sandbox, Table};

/// Events that wait for a slow reader; a reader that is further behind is told so.
const N_EVENTS: usize = 4096;

/// How the runtime is set up.
#[derive(Clone, Debug)]
pub struct RuntimeSettings {
    /// What outlives a reboot: records and writable layers. It may be the image store's directory.
    pub root: PathBuf,
    /// What goes with the kernel: sockets of monitors, and records of what runs.
    pub run: PathBuf,
    /// The node's control groups.
    pub hierarchies: Hierarchies,
    /// The group above the containers of pods that name none.
    pub cgroup_parent: String,
    /// What to execute as the spawner.
    pub spawner: Program,
    /// This program's version, for people.
    pub version: String,
}

/// The runtime; clones are the same.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    settings: RuntimeSettings,
    places: Places,
    store: Store,
    network: Arc<dyn SandboxNetwork>,
    clock: WallClock,
    spawners: Spawners,
    /// Where the sources of containers are found.
    mounts: OwnedFd,
    table: Mutex<Table>,
    events: broadcast::Sender<cri::ContainerEventResponse>,
    last_command: AtomicU64,
    filters: seccomp::Filters,
}

impl Runtime {
    /// Finds what an earlier start left, and goes on with it.
    ///
    /// # Errors
    ///
    /// When the directories cannot be used, or there can be no spawner.
    pub async fn open(
        settings: RuntimeSettings,
        store: Store,
        network: Arc<dyn SandboxNetwork>,
        clock: WallClock,
    ) -> Result<Self, RuntimeError> {
        let places = Places { root: settings.root.clone(), run: settings.run.clone() };
        let mounts =
            own_mounts().map_err(files::disk("open", std::path::Path::new("/proc/self/ns/mnt")))?;
        // Numbers of commands that an earlier start gave may still be in use.
        let first_command = u64::try_from((clock.0)()).unwrap_or(1).max(1);
        let inner = Inner {
            spawners: Spawners::start(settings.spawner.clone())?,
            places,
            settings,
            store,
            network,
            clock,
            mounts,
            table: Mutex::default(),
            events: broadcast::Sender::new(N_EVENTS),
            last_command: AtomicU64::new(first_command),
            filters: seccomp::Filters::default(),
        };
        let runtime = Self(Arc::new(inner));
        runtime.recover().await?;
        Ok(runtime)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> i64 {
        (self.0.clock.0)()
    }

    /// A number for a command that no other has.
    pub(crate) fn next_command(&self) -> u64 {
        self.0.last_command.fetch_add(1, Ordering::Relaxed)
    }

    fn sandbox(&self, id: &str) -> Result<Sandbox, RuntimeError> {
        self.table().sandbox(id).cloned()
    }

    fn containers_of(&self, sandbox: &str) -> Vec<Container> {
        self.table().containers_of(sandbox)
    }

    fn container(&self, id: &str) -> Result<Container, RuntimeError> {
        self.table().container(id).cloned()
    }

    /// What a command in a container, or a client of it, is started with: the pod's monitor, the container's whole
    /// id, and its first process as it was launched.
    ///
    /// # Errors
    ///
    /// When there is no such container, or it does not run.
    pub fn running(&self, container: &str) -> Result<(Monitor, String, Process), RuntimeError> {
        let container = self.container(container)?;
        let phase = container.phase();
        if phase.pid().is_none() {
            let (id, state) = (container.spec.id.clone(), phase.name());
            return Err(RuntimeError::WrongState { id, state, needed: "running" });
        }
        let sandbox = self.sandbox(&container.spec.sandbox)?;
        let not_ready = || RuntimeError::NotReady(container.spec.sandbox.clone());
        let monitor = sandbox.link().ok_or_else(not_ready)?.monitor.clone();
        let launch = container.spec.launch.as_ref();
        let process = launch.and_then(|it| it.process.clone()).unwrap_or_default();
        Ok((monitor, container.spec.id.clone(), process))
    }

    /// A pod's own network namespace; `None`: it is on the node's network.
    ///
    /// # Errors
    ///
    /// When there is no such sandbox, or it is not ready.
    pub fn network_namespace(&self, sandbox: &str) -> Result<Option<OwnedFd>, RuntimeError> {
        let sandbox = self.sandbox(sandbox)?;
        let not_ready = || RuntimeError::NotReady(sandbox.record.id.clone());
        let link = sandbox.link().ok_or_else(not_ready)?;
        let copy = link.network.as_ref().map(OwnedFd::try_clone).transpose();
        copy.map_err(files::disk("copy", std::path::Path::new("network namespace")))
    }
}

/// 64 hexadecimal digits that nobody guesses.
fn new_id() -> Result<String, RuntimeError> {
    let source = std::path::Path::new("/dev/urandom");
    let mut bytes = [0_u8; 32];
    std::fs::File::open(source)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(files::disk("read", source))?;
    Ok(bytes.iter().fold(String::with_capacity(64), |mut id, byte| {
        // Writing to a string cannot fail.
        let _written = write!(id, "{byte:02x}");
        id
    }))
}

//! The embedded runtime put together: store, puller, network, monitors, upkeep.
//!
//! In: [`EngineSettings`], from flags or from `runtime.yaml`. Out: an [`Engine`] that has found what an earlier one left
//! and serves CRI to whoever comes in. `ferrolet runtime` serves a socket by it, the agent serves itself. Refuses:
//! decisions about pods.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use ferrolet_linux::{
    SystemClock,
    cgroups::{CgroupLayout, Hierarchy},
    mountinfo,
};
use ferrolet_ports::Clock as _;
use ferrolet_runtime_client::Program;
use ferrolet_runtime_images::{BootId, Limits, Puller, Registry, RegistrySettings, Store};
use ferrolet_runtime_network::{CniSettings, Network, PodNetwork as _, Range, Status};
use ferrolet_runtime_plan::cgroups::Hierarchies;
use ferrolet_runtime_service::{
    BuiltIn, Connector, ImageServer, Incoming, Runtime, RuntimeSettings, Upkeep, WallClock, check,
    serve,
};
use tokio::net::UnixListener;

use super::{
    SPAWNER,
    archives::{self, Archives},
};

/// Certificates that registries are trusted by, where distributions have them.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];
/// Where CNI plugins look for a pod's network namespace.
const NAMED_NAMESPACES: &str = "/run/netns";
/// How long one CNI plugin may take.
const PLUGIN_PATIENCE: Duration = Duration::from_secs(120);
/// How long a registry's answer may take to begin, and a blob make no progress.
const PATIENCE: Duration = Duration::from_secs(60);
const STALL: Duration = Duration::from_secs(300);

/// What the runtime is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineSettings {
    pub(crate) root: PathBuf,
    pub(crate) run: PathBuf,
    pub(crate) cgroup_parent: String,
    /// What tells this runtime's links and rules from those of another on the machine.
    pub(crate) network_name: String,
    pub(crate) pod_ranges: Vec<Range>,
    pub(crate) unmasked: Vec<Range>,
    pub(crate) cni_configurations: PathBuf,
    pub(crate) cni_plugins: Vec<PathBuf>,
    pub(crate) registry_hosts: Option<PathBuf>,
    /// In place of the machine's certificates.
    pub(crate) registry_certificates: Option<PathBuf>,
    /// Archives that are loaded before anybody is served.
    pub(crate) load: Vec<PathBuf>,
    /// Archives that appear in this directory are loaded too.
    pub(crate) archives: Option<PathBuf>,
    /// Whether the demonstration image can be pulled out of this program.
    pub(crate) has_demonstration: bool,
}

/// The runtime, ready to serve.
pub(crate) struct Engine {
    images: ImageServer,
    runtime: Runtime,
    upkeep: Upkeep,
    store: Store,
    archives: Option<Archives>,
}

impl Engine {
    /// Opens everything, and finds what an earlier start left.
    pub(crate) async fn open(settings: EngineSettings) -> anyhow::Result<Self> {
        let hierarchies = hierarchies()?;
        let boot =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the boot's id")?;
        let limits = Limits::USUAL;
        let store = Store::open(&settings.root, BootId(boot.trim().to_owned()), &limits)
            .context("open the image store")?;
        let archives = load(&store, &settings).await?;
        let clock =
            WallClock(Arc::new(|| i64::try_from(SystemClock.now().0.as_nanosecond()).unwrap_or(0)));
        let registry = Registry::new(registries(&settings)?, &limits);
        let (upkeep, wake) = Upkeep::new(store.clone());
        let puller = Arc::new(Puller::new(store.clone(), registry, &limits));
        let mut images = ImageServer::new(store.clone(), puller, wake, clock.clone());
        if settings.has_demonstration {
            images = images.with_built_in(BuiltIn {
                is_meant: ferrolet_runtime_demo::is_meant,
                archive: ferrolet_runtime_demo::ARCHIVE,
            });
        }
        let network = Network::start(network(&settings)).context("start the network of pods")?;
        let network = Arc::new(network);
        let connector = Arc::new(Connector(network.clone()));
        let told = RuntimeSettings {
            root: settings.root,
            run: settings.run,
            hierarchies,
            cgroup_parent: settings.cgroup_parent,
            spawner: Program { path: "/proc/self/exe".into(), args: vec![OsString::from(SPAWNER)] },
            version: ferrolet_config::FERROLET_VERSION.to_owned(),
        };
        let runtime = Runtime::open(told, store.clone(), connector, clock)
            .await
            .context("find what an earlier start left")?;
        if let Status::NotReady(why) = network.status().await {
            tracing::warn!(why, "Pods cannot be connected; those on the node's network run");
        }
        Ok(Self { images, runtime, upkeep, store, archives })
    }

    /// Serves whoever comes in until `stop` is there.
    pub(crate) async fn run(
        self,
        incoming: Incoming,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        tokio::select! {
            // Every arm ends the runtime: what is cancelled with the others was to end too.
            ended = serve(incoming, self.images, Some(self.runtime), stop) => Ok(ended?),
            () = self.upkeep.run() => Ok(()),
            () = follow(self.archives, self.store) => Ok(()),
        }
    }
}

/// Loads what is there at the start.
async fn load(store: &Store, settings: &EngineSettings) -> anyhow::Result<Option<Archives>> {
    let (store, files) = (store.clone(), settings.load.clone());
    let mut archives = settings.archives.clone().map(Archives::new);
    let loading = move || -> anyhow::Result<_> {
        archives::load_all(&store, &files)?;
        if let Some(archives) = &mut archives {
            archives.load_new(&store);
        }
        Ok(archives)
    };
    tokio::task::spawn_blocking(loading).await?
}

async fn follow(archives: Option<Archives>, store: Store) {
    match archives {
        Some(archives) => archives.follow(store).await,
        None => std::future::pending().await,
    }
}

/// Asks the kernel for what the runtime needs. The refusal says in words what is missing and what follows; what is only
/// useful is logged.
pub(crate) fn ensure_able() -> anyhow::Result<()> {
    let hierarchies = hierarchies();
    let (needed, useful): (Vec<_>, Vec<_>) = check::features(hierarchies.ok().as_ref())
        .into_iter()
        .filter(|it| !it.is_there)
        .partition(|it| it.importance == check::Importance::Needed);
    for feature in useful {
        tracing::info!(feature = feature.name, "Not on this machine: {}", feature.without);
    }
    if needed.is_empty() {
        return Ok(());
    }
    let lines = needed.iter().map(|it| format!("{} is missing: {}", it.name, it.without));
    bail!(
        "this machine cannot run the embedded runtime: {}. `ferrolet runtime check` says more; another runtime is used \
         by its socket in containerRuntimeEndpoint",
        lines.collect::<Vec<_>>().join("; ")
    )
}

/// At most one range of each family; `what` names where they were given.
pub(crate) fn ranges(what: &str, values: &[String]) -> anyhow::Result<Vec<Range>> {
    let ranges: Result<Vec<Range>, _> = values.iter().map(|it| it.parse()).collect();
    let ranges = ranges.with_context(|| what.to_owned())?;
    let n_ipv6 = ranges.iter().filter(|it| it.is_ipv6()).count();
    if n_ipv6 > 1 || ranges.len() - n_ipv6 > 1 {
        bail!("{what}: {:?} has two ranges of one family", values.join(","));
    }
    Ok(ranges)
}

fn network(settings: &EngineSettings) -> ferrolet_runtime_network::Settings {
    ferrolet_runtime_network::Settings {
        name: settings.network_name.clone(),
        pod_ranges: settings.pod_ranges.clone(),
        unmasked: settings.unmasked.clone(),
        cni: CniSettings {
            config_dir: settings.cni_configurations.clone(),
            plugin_dirs: settings.cni_plugins.clone(),
            cache_dir: settings.root.join("cni"),
            namespace_dir: NAMED_NAMESPACES.into(),
            patience: PLUGIN_PATIENCE,
        },
    }
}

fn registries(settings: &EngineSettings) -> anyhow::Result<RegistrySettings> {
    let roots_pem = match &settings.registry_certificates {
        Some(path) => fs::read(path)
            .with_context(|| format!("read certificates of registries {}", path.display()))?,
        None => BUNDLES.iter().find_map(|it| fs::read(it).ok()).unwrap_or_default(),
    };
    Ok(RegistrySettings {
        hosts: settings.registry_hosts.clone(),
        roots_pem,
        patience: PATIENCE,
        stall: STALL,
    })
}

/// The node's control groups, as the runtime's plans take them.
pub(crate) fn hierarchies() -> anyhow::Result<Hierarchies> {
    let mounts = mountinfo::read().context("read the table of mounts")?;
    let layout = CgroupLayout::detect(&mounts)?;
    Ok(planned(&layout))
}

fn planned(layout: &CgroupLayout) -> Hierarchies {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    match layout {
        CgroupLayout::V2 { mount } => Hierarchies::V2 { root: text(mount) },
        CgroupLayout::V1 { hierarchies, unified } => {
            let each = |it: &Hierarchy| {
                let mount = text(&it.mount);
                it.controllers.iter().map(|name| (name.clone(), mount.clone())).collect::<Vec<_>>()
            };
            Hierarchies::V1 {
                controllers: hierarchies.iter().flat_map(each).collect(),
                unified: unified.as_deref().map(text),
            }
        }
    }
}

/// A socket that only root opens. One that nobody listens on any more is replaced.
pub(crate) fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    let at = || format!("listen on {}", path.display());
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(at)?;
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => bail!("another process listens on {}", path.display()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(at)?;
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).with_context(at)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).with_context(at)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_that_share_a_tree_are_each_found_there() {
        let hierarchy = Hierarchy {
            controllers: ["cpu", "cpuacct"].map(str::to_owned).to_vec(),
            mount: "/cg/cpu,cpuacct".into(),
        };
        let layout = CgroupLayout::V1 { hierarchies: vec![hierarchy], unified: None };
        let controllers =
            ["cpu", "cpuacct"].map(|it| (it.to_owned(), "/cg/cpu,cpuacct".to_owned())).to_vec();
        assert_eq!(planned(&layout), Hierarchies::V1 { controllers, unified: None });
    }
}

//! `ferrolet runtime`: the embedded runtime by itself, behind a socket.
//!
//! In: a few flags. Out: a CRI v1 server until SIGTERM or SIGINT; pods go on running. `ferrolet runtime check` says what
//! this kernel can do for it. The spawner is this executable with another first word ([`SPAWNER`]). Refuses: decisions
//! about pods, which are the kubelet's, and configuration files.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
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
use ferrolet_runtime_images::{
    BootId, Limits, Puller, Registry, RegistrySettings, Store, load, manifest::Platform,
};
use ferrolet_runtime_network::{CniSettings, Network, Range};
use ferrolet_runtime_plan::cgroups::Hierarchies;
use ferrolet_runtime_service::{
    Connector, ImageServer, Runtime, RuntimeSettings, Upkeep, WallClock, check, serve,
};
use tokio::net::UnixListener;

use crate::{agent::told_to_stop, logging};

/// The first word by which this executable knows that it is the spawner.
pub(crate) const SPAWNER: &str = "runtime-spawner";

pub(crate) const HELP: &str = "\
Usage:
  ferrolet runtime [flags]     serve CRI v1 on a socket; pods outlive it
  ferrolet runtime check       say what this kernel can do for pods, and what follows

Flags:
  --root DIR            images, records and writable layers (default /var/lib/ferrolet-runtime)
  --run DIR             what goes with the kernel (default /run/ferrolet-runtime)
  --listen unix://PATH  the socket (default unix:///run/ferrolet-runtime/runtime.sock)
  --cgroup-parent NAME  the control group above pods that name none (default /ferrolet)
  --pod-cidr LIST       the range of pods' addresses, or one of each family, with a comma, until a kubelet says
                        (default 10.88.0.0/16)
  --cni-conf-dir DIR    CNI configurations; while there is one, plugins connect pods (default /etc/cni/net.d)
  --cni-bin-dir LIST    directories of CNI plugins, with commas (default /opt/cni/bin)
  --registry-hosts DIR  <registry>/hosts.toml files: mirrors, plain HTTP, certificates
  --load FILE           an image archive (OCI or Docker) to load at the start; may be given again
  -v N                  how much is logged (default 0)
";

/// Certificates that registries are trusted by, where distributions have them.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];
/// What pods' addresses are from on a node that nobody tells.
const POD_CIDR: &str = "10.88.0.0/16";
/// Where CNI plugins look for a pod's network namespace.
const NAMED_NAMESPACES: &str = "/run/netns";
/// How long one CNI plugin may take.
const PLUGIN_PATIENCE: Duration = Duration::from_secs(120);
const WORKER_THREADS: usize = 2;
/// Threads for calls that block, which can hang on a disk; there are as many as need be, and no more.
const MOST_BLOCKING_THREADS: usize = 128;
/// How long a registry's answer may take to begin, and a blob make no progress.
const PATIENCE: Duration = Duration::from_secs(60);
const STALL: Duration = Duration::from_secs(300);
/// How long calls under way are waited for at the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// What the flags say.
#[derive(Debug, PartialEq, Eq)]
struct Flags {
    root: PathBuf,
    run: PathBuf,
    socket: PathBuf,
    cgroup_parent: String,
    pod_ranges: Vec<Range>,
    cni_configurations: PathBuf,
    cni_plugins: Vec<PathBuf>,
    registry_hosts: Option<PathBuf>,
    load: Vec<PathBuf>,
    verbosity: u32,
}

/// Runs the runtime, or the check.
pub(crate) fn main(words: &[String]) -> anyhow::Result<ExitCode> {
    if words.first().map(String::as_str) == Some("check") {
        if let Some(word) = words.get(1) {
            bail!("unknown argument {word:?} of `ferrolet runtime check`");
        }
        return Ok(report());
    }
    let flags = parse(words)?;
    logging::init(logging::Format::Text, flags.verbosity, None).context("start logging")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(MOST_BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let ended = runtime.block_on(run(flags));
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

fn report() -> ExitCode {
    let hierarchies = hierarchies();
    if let Err(error) = &hierarchies {
        crate::cli::print(&format!("{error:#}"));
    }
    let (text, is_fine) = check::report(&check::features(hierarchies.ok().as_ref()));
    crate::cli::print(text.trim_end());
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(words: &[String]) -> anyhow::Result<Flags> {
    let mut flags = Flags {
        root: "/var/lib/ferrolet-runtime".into(),
        run: "/run/ferrolet-runtime".into(),
        socket: "/run/ferrolet-runtime/runtime.sock".into(),
        cgroup_parent: "/ferrolet".to_owned(),
        pod_ranges: ranges(POD_CIDR)?,
        cni_configurations: "/etc/cni/net.d".into(),
        cni_plugins: vec!["/opt/cni/bin".into()],
        registry_hosts: None,
        load: Vec::new(),
        verbosity: 0,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || {
            let value = value.clone().or_else(|| words.next().cloned());
            value.filter(|it| !it.is_empty()).with_context(|| format!("flag {name} needs a value"))
        };
        match name {
            "--root" => flags.root = absolute(name, value()?)?,
            "--run" => flags.run = absolute(name, value()?)?,
            "--listen" => flags.socket = socket(&value()?)?,
            "--cgroup-parent" => flags.cgroup_parent = group(value()?)?,
            "--pod-cidr" => flags.pod_ranges = ranges(&value()?)?,
            "--cni-conf-dir" => flags.cni_configurations = absolute(name, value()?)?,
            "--cni-bin-dir" => {
                let list = value()?;
                let all = list.split(',').map(|it| absolute(name, it.to_owned()));
                flags.cni_plugins = all.collect::<anyhow::Result<_>>()?;
            }
            "--registry-hosts" => flags.registry_hosts = Some(absolute(name, value()?)?),
            "--load" => flags.load.push(value()?.into()),
            "-v" | "--v" => {
                let value = value()?;
                flags.verbosity =
                    value.parse().with_context(|| format!("flag -v: {value:?} is no number"))?;
            }
            _ => bail!("unknown flag {word:?}; `ferrolet runtime --help` lists what there is"),
        }
    }
    Ok(flags)
}

fn absolute(name: &str, value: String) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(&value);
    if !path.is_absolute() {
        bail!("flag {name}: {value:?} is not an absolute path");
    }
    Ok(path)
}

fn socket(value: &str) -> anyhow::Result<PathBuf> {
    let path = value.strip_prefix("unix://");
    let path =
        path.with_context(|| format!("flag --listen: {value:?} does not begin with unix://"))?;
    absolute("--listen", path.to_owned())
}

/// At most one range of each family.
fn ranges(value: &str) -> anyhow::Result<Vec<Range>> {
    let ranges: Result<Vec<Range>, _> = value.split(',').map(str::parse).collect();
    let ranges = ranges.context("flag --pod-cidr")?;
    let n_ipv6 = ranges.iter().filter(|it| it.is_ipv6()).count();
    if n_ipv6 > 1 || ranges.len() - n_ipv6 > 1 {
        bail!("flag --pod-cidr: {value:?} has two ranges of one family");
    }
    Ok(ranges)
}

fn group(value: String) -> anyhow::Result<String> {
    let is_plain = value.split('/').all(|it| it != ".." && it != ".");
    if !is_plain || value.trim_matches('/').is_empty() {
        bail!("flag --cgroup-parent: {value:?} is no control group below the root");
    }
    Ok(value)
}

async fn run(flags: Flags) -> anyhow::Result<()> {
    let hierarchies = hierarchies()?;
    let boot =
        fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the boot's id")?;
    let limits = Limits::USUAL;
    let store = Store::open(&flags.root, BootId(boot.trim().to_owned()), &limits)
        .context("open the image store")?;
    let (loading, archives) = (store.clone(), flags.load.clone());
    tokio::task::spawn_blocking(move || load_all(&loading, &archives)).await??;
    let clock =
        WallClock(Arc::new(|| i64::try_from(SystemClock.now().0.as_nanosecond()).unwrap_or(0)));
    let settings = RuntimeSettings {
        root: flags.root.clone(),
        run: flags.run.clone(),
        hierarchies,
        cgroup_parent: flags.cgroup_parent.clone(),
        spawner: Program { path: "/proc/self/exe".into(), args: vec![OsString::from(SPAWNER)] },
        version: ferrolet_config::FERROLET_VERSION.to_owned(),
    };
    let registry = Registry::new(registries(&flags), &limits);
    let (upkeep, wake) = Upkeep::new(store.clone());
    let puller = Arc::new(Puller::new(store.clone(), registry, &limits));
    let images = ImageServer::new(store.clone(), puller, wake, clock.clone());
    let network = Network::start(network(&flags)).context("start the network of pods")?;
    let network = Arc::new(Connector(Arc::new(network)));
    let runtime = Runtime::open(settings, store, network, clock)
        .await
        .context("find what an earlier start left")?;
    let listener = listen(&flags.socket)?;
    tracing::info!(
        version = ferrolet_config::FERROLET_VERSION,
        socket = %flags.socket.display(),
        "Serving CRI"
    );
    let (told, is_told) = tokio::sync::watch::channel(false);
    let mut heard = is_told.clone();
    let stop = async move {
        // Without the sender there is nothing more to wait for.
        let _closed = heard.wait_for(|it| *it).await;
    };
    tokio::select! {
        // Every arm ends the program: what is cancelled with the others was to end too.
        ended = serve(listener, images, Some(runtime), stop) => Ok(ended?),
        () = upkeep.run() => Ok(()),
        stopped = async {
            let stopped = told_to_stop().await;
            let _nobody_waits = told.send(true);
            // A stream of events would be waited for until its reader leaves.
            tokio::time::sleep(FAREWELL).await;
            stopped
        } => stopped,
    }
}

fn load_all(store: &Store, archives: &[PathBuf]) -> anyhow::Result<()> {
    for path in archives {
        let archive = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let images = load(store, archive, &Platform::own(), &Limits::USUAL)
            .with_context(|| format!("load {}", path.display()))?;
        for image in images {
            tracing::info!(image = %image.id, tags = ?image.tags, "Loaded an image");
        }
    }
    Ok(())
}

fn network(flags: &Flags) -> ferrolet_runtime_network::Settings {
    ferrolet_runtime_network::Settings {
        pod_ranges: flags.pod_ranges.clone(),
        unmasked: Vec::new(),
        cni: CniSettings {
            config_dir: flags.cni_configurations.clone(),
            plugin_dirs: flags.cni_plugins.clone(),
            cache_dir: flags.root.join("cni"),
            namespace_dir: NAMED_NAMESPACES.into(),
            patience: PLUGIN_PATIENCE,
        },
    }
}

fn registries(flags: &Flags) -> RegistrySettings {
    let roots_pem = BUNDLES.iter().find_map(|it| fs::read(it).ok()).unwrap_or_default();
    RegistrySettings {
        hosts: flags.registry_hosts.clone(),
        roots_pem,
        patience: PATIENCE,
        stall: STALL,
    }
}

/// The node's control groups, as the runtime's plans take them.
fn hierarchies() -> anyhow::Result<Hierarchies> {
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
fn listen(path: &Path) -> anyhow::Result<UnixListener> {
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

    fn parsed(words: &[&str]) -> Result<Flags, String> {
        let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
        parse(&words).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn flags_are_taken_in_both_forms() {
        let flags =
            parsed(&["--root=/r", "--listen", "unix:///s", "--load", "a.tar", "--load=b.tar"]);
        let flags = flags.unwrap();
        assert_eq!((flags.root, flags.socket), ("/r".into(), "/s".into()));
        assert_eq!(flags.load, [Path::new("a.tar"), Path::new("b.tar")]);
        assert_eq!(flags.run, Path::new("/run/ferrolet-runtime"));
    }

    #[test]
    fn bad_flags_are_named() {
        let cases = [
            (&["--root", "relative"][..], "flag --root: \"relative\" is not an absolute path"),
            (&["--listen", "/s"], "flag --listen: \"/s\" does not begin with unix://"),
            (&["--run"], "flag --run needs a value"),
            (&["--run="], "flag --run needs a value"),
            (
                &["--cgroup-parent", "/a/../b"],
                "flag --cgroup-parent: \"/a/../b\" is no control group below the root",
            ),
            (
                &["--pod-cidr", "10.0.0.0/40"],
                "flag --pod-cidr: \"10.0.0.0/40\" is not a range of addresses such as 10.88.0.0/16",
            ),
            (
                &["--pod-cidr=10.1.0.0/16,fd00::/64,10.2.0.0/16"],
                "flag --pod-cidr: \"10.1.0.0/16,fd00::/64,10.2.0.0/16\" has two ranges of one family",
            ),
            (&["--cni-bin-dir", "/a,b"], "flag --cni-bin-dir: \"b\" is not an absolute path"),
            (
                &["--nonsense"],
                "unknown flag \"--nonsense\"; `ferrolet runtime --help` lists what there is",
            ),
        ];
        for (words, expected) in cases {
            assert_eq!(parsed(words), Err(expected.to_owned()));
        }
    }

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

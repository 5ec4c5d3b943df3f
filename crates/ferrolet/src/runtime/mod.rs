//! `ferrolet runtime`: the embedded runtime by itself, behind a socket.
//!
//! In: a few flags. Out: a CRI v1 server until SIGTERM or SIGINT; pods go on running. `ferrolet runtime check` says what
//! this kernel can do for it, `ferrolet runtime demo` writes the demonstration image. The spawner is this executable with another first word ([`SPAWNER`]). Refuses: decisions
//! about pods, which are the kubelet's, and configuration files.

pub(crate) mod engine;

mod archives;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use ferrolet_runtime_service::{Incoming, check};

use self::engine::{Engine, EngineSettings, hierarchies, listen, ranges};
use crate::{agent::told_to_stop, own_log};

/// The first word by which this executable knows that it is the spawner.
pub(crate) const SPAWNER: &str = "runtime-spawner";

pub(crate) const HELP: &str = "\
Usage:
  ferrolet runtime [flags]     serve CRI v1 on a socket; pods outlive it
  ferrolet runtime demo FILE   write the demonstration image as an archive, for other runtimes
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

/// What pods' addresses are from on a node that nobody tells.
const POD_CIDR: &str = "10.88.0.0/16";
const WORKER_THREADS: usize = 2;
/// Threads for calls that block, which can hang on a disk; there are as many as need be, and no more.
pub(crate) const MOST_BLOCKING_THREADS: usize = 128;
/// How long calls under way are waited for at the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// What the flags say.
#[derive(Debug, PartialEq, Eq)]
struct Flags {
    engine: EngineSettings,
    socket: PathBuf,
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
    if words.first().map(String::as_str) == Some("demo") {
        return write_demonstration(&words[1..]);
    }
    let flags = parse(words)?;
    own_log::start_plain(flags.verbosity)?;
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

fn write_demonstration(words: &[String]) -> anyhow::Result<ExitCode> {
    let [path] = words else { bail!("give one file: `ferrolet runtime demo FILE`") };
    std::fs::write(path, ferrolet_runtime_demo::ARCHIVE)
        .with_context(|| format!("write {path}"))?;
    Ok(ExitCode::SUCCESS)
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
    let mut socket_path = PathBuf::from("/run/ferrolet-runtime/runtime.sock");
    let mut verbosity = 0;
    let mut engine = EngineSettings {
        root: "/var/lib/ferrolet-runtime".into(),
        run: "/run/ferrolet-runtime".into(),
        cgroup_parent: "/ferrolet".to_owned(),
        network_name: "ferrolet".to_owned(),
        pod_ranges: given_ranges(POD_CIDR)?,
        unmasked: Vec::new(),
        cni_configurations: "/etc/cni/net.d".into(),
        cni_plugins: vec!["/opt/cni/bin".into()],
        registry_hosts: None,
        registry_certificates: None,
        load: Vec::new(),
        archives: None,
        has_demonstration: true,
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
            "--root" => engine.root = absolute(name, value()?)?,
            "--run" => engine.run = absolute(name, value()?)?,
            "--listen" => socket_path = socket(&value()?)?,
            "--cgroup-parent" => engine.cgroup_parent = group(value()?)?,
            "--pod-cidr" => engine.pod_ranges = given_ranges(&value()?)?,
            "--cni-conf-dir" => engine.cni_configurations = absolute(name, value()?)?,
            "--cni-bin-dir" => {
                let list = value()?;
                let all = list.split(',').map(|it| absolute(name, it.to_owned()));
                engine.cni_plugins = all.collect::<anyhow::Result<_>>()?;
            }
            "--registry-hosts" => engine.registry_hosts = Some(absolute(name, value()?)?),
            "--load" => engine.load.push(value()?.into()),
            "-v" | "--v" => {
                let value = value()?;
                verbosity =
                    value.parse().with_context(|| format!("flag -v: {value:?} is no number"))?;
            }
            _ => bail!("unknown flag {word:?}; `ferrolet runtime --help` lists what there is"),
        }
    }
    Ok(Flags { engine, socket: socket_path, verbosity })
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

fn given_ranges(value: &str) -> anyhow::Result<Vec<ferrolet_runtime_network::Range>> {
    let values: Vec<String> = value.split(',').map(str::to_owned).collect();
    ranges("flag --pod-cidr", &values)
}

fn group(value: String) -> anyhow::Result<String> {
    let is_plain = value.split('/').all(|it| it != ".." && it != ".");
    if !is_plain || value.trim_matches('/').is_empty() {
        bail!("flag --cgroup-parent: {value:?} is no control group below the root");
    }
    Ok(value)
}

async fn run(flags: Flags) -> anyhow::Result<()> {
    let engine = Engine::open(flags.engine).await?;
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
        ended = engine.run(Incoming::outside(listener), stop) => ended,
        stopped = async {
            let stopped = told_to_stop().await;
            let _nobody_waits = told.send(true);
            // A stream of events would be waited for until its reader leaves.
            tokio::time::sleep(FAREWELL).await;
            stopped
        } => stopped,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        assert_eq!((flags.engine.root, flags.socket), ("/r".into(), "/s".into()));
        assert_eq!(flags.engine.load, [Path::new("a.tar"), Path::new("b.tar")]);
        assert_eq!(flags.engine.run, Path::new("/run/ferrolet-runtime"));
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
}

//! `ferrolet run POD.yaml`: one pod in the foreground, on an agent and a runtime of its own.
//!
//! ```text
//!  manifest ─► Place: directory, cgroup, configuration ─► wire::run ─ status ─► verdict ─► exit code
//!                                                            └ log files ─► LogFollower ─► stdout, stderr
//! ```
//!
//! In: a manifest, strictly read, and signals: the first asks the pod to end, the second ends everything at once. Out: what
//! the pod writes, and its exit code. Everything is in a place of its own and goes with it; an agent that runs on the same
//! machine is not touched. Refuses: more than one pod, a cluster, configuration.

mod logs;
mod place;
mod verdict;

use std::{
    fs,
    io::{self, Read as _, Write as _},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use ferrolet_config::{CommandLine, Invocation, load};
use ferrolet_cri::{CriClient, Timeouts};
use ferrolet_linux::SystemClock;
use ferrolet_ports::{
    Event, EventKind, EventObject, Events, Remains, Runtime as _, StatusSink, StatusUpdate,
};
use ferrolet_sources::{Origin, manifest::MAX_BYTES};
use ferrolet_types::{Pod, PodUid};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{sleep, timeout},
};

use self::{logs::LogFollower, place::Place};
use crate::{
    files::read_configuration,
    own_log::{self, OwnLog},
    wire::{self, Beside, Visit},
};

pub(crate) const HELP: &str = "\
ferrolet run: one pod in the foreground

Usage:
  ferrolet run [-v N] POD.yaml    run the pod of a manifest, `-` for standard input, with the embedded runtime

What its containers write goes to standard output and standard error, with the container's name in front where there
are several. Ends when the pod does, with the code of the first container that failed, or 0. A pod whose containers
are always started again ends with Ctrl-C: the first ends the pod gracefully, the second at once. Nothing is left
behind, and nothing is configured: the image ferrolet.dev/demo:1 needs no network.

  -v N    also say what the agent does (0 to 10)
";

/// What the node of such a pod is called; static pods are named after it.
const NODE: &str = "run";
/// How often log files are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long cleaning up may take.
const FAREWELL: Duration = Duration::from_secs(20);
const WORKER_THREADS: usize = 2;
/// As a shell tells that a signal ended a program: 128 and SIGINT's or SIGTERM's number.
const INTERRUPTED: u8 = 130;

/// Runs the command that the words ask for.
pub(crate) fn run(words: &[String]) -> anyhow::Result<ExitCode> {
    let (manifest, verbosity) = parse(words)?;
    if ferrolet_linux::process::user_id() != 0 {
        bail!("running pods needs root");
    }
    let manifest = read_manifest(&manifest)?;
    if let Some(verbosity) = verbosity {
        own_log::start_plain(verbosity)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(crate::agent::MOST_BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let place = Place::make(&manifest)?;
    let ended = runtime.block_on(supervise(&place));
    // The spawner and the network's thread end with what they belong to.
    runtime.shutdown_timeout(Duration::from_secs(1));
    let cleaned = place.remove();
    let code = ended?;
    cleaned?;
    Ok(ExitCode::from(code))
}

fn parse(words: &[String]) -> anyhow::Result<(String, Option<u32>)> {
    let (mut manifest, mut verbosity) = (None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-v" => {
                let value = words.next().context("flag -v needs a value")?;
                let number = value.parse();
                verbosity =
                    Some(number.with_context(|| format!("flag -v: {value:?} is no number"))?);
            }
            "-" => manifest = Some(word.clone()),
            flag if flag.starts_with('-') => {
                bail!("unknown flag {flag:?}; `ferrolet run --help` lists what there is")
            }
            _ if manifest.is_some() => bail!("one manifest at a time: {word:?} is another"),
            _ => manifest = Some(word.clone()),
        }
    }
    let manifest = manifest.context("give a manifest: `ferrolet run POD.yaml`")?;
    Ok((manifest, verbosity))
}

/// The manifest's bytes, found to be one pod's before anything is started.
fn read_manifest(name: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BYTES)? + 1;
    if name == "-" {
        io::stdin().take(limit).read_to_end(&mut bytes).context("read standard input")?;
    } else {
        let file = fs::File::open(name).with_context(|| format!("open {name}"))?;
        file.take(limit).read_to_end(&mut bytes).with_context(|| format!("read {name}"))?;
    }
    let reading = ferrolet_sources::read(&bytes, Origin::File(name), NODE);
    let reading = reading.with_context(|| name.to_owned())?;
    for warning in reading.warnings {
        writeln!(io::stderr(), "{name}: {warning}").ok();
    }
    Ok(bytes)
}

/// What is seen of the pod.
#[derive(Clone, Default)]
struct Seen {
    pod: Option<Pod>,
    /// Nothing of it runs, and nothing will.
    is_over: bool,
}

/// Hears of the pod's status.
struct Watcher(watch::Sender<Seen>);

impl StatusSink for Watcher {
    fn publish(&self, update: StatusUpdate) {
        self.0.send_modify(|seen| {
            seen.is_over |= update.remains != Remains::Active;
            seen.pod = Some(update.pod);
        });
    }

    fn forget(&self, _: &PodUid) {
        self.0.send_modify(|seen| seen.is_over = true);
    }
}

/// What is no news of a pod without a cluster, or in the first moment of a runtime.
const NO_NEWS: [&str; 2] = ["MissingClusterDNS", "NetworkNotReady"];

/// Tells what goes wrong with the pod, beside its output.
struct Told;

impl Events for Told {
    fn record(&self, event: Event) {
        let is_pods = matches!(event.object, EventObject::Pod { .. });
        let is_news = !NO_NEWS.contains(&event.reason.as_str());
        if is_pods && event.kind == EventKind::Warning && is_news {
            writeln!(io::stderr(), "{}: {}", event.reason, event.message).ok();
        }
    }
}

async fn supervise(place: &Place) -> anyhow::Result<u8> {
    let words = place.command_line(NODE);
    let Invocation::Run(command_line) = CommandLine::parse(words)? else {
        bail!("the agent's own command line asks for help");
    };
    let texts = read_configuration(&command_line)?;
    let loaded = load(&command_line, texts.0.clone(), &texts.1)?;
    let (sender, seen) = watch::channel(Seen::default());
    let visit = Visit { sink: Arc::new(Watcher(sender)), events: Arc::new(Told) };
    let beside = Beside { exporter: None, termination: None, visit: Some(visit) };
    let log = OwnLog::quiet(&loaded.config.logging);
    let agent = wire::run(&command_line, (&loaded, texts), log, beside);
    let followed = tokio::select! {
        // Either ends the command: what is cancelled with the other was to end too.
        ended = agent => match ended {
            Ok(()) => bail!("the agent ended"),
            Err(error) => Err(error),
        },
        code = accompany(place, seen) => Ok(code?),
    };
    place.forget_network().await;
    followed
}

/// Goes with the pod to its end, then takes away what is left of it.
async fn accompany(place: &Place, mut seen: watch::Receiver<Seen>) -> anyhow::Result<u8> {
    let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let mut logs = LogFollower::new(&place.logs());
    let mut is_ending = false;
    let code = loop {
        tokio::select! {
            // Cancel-safe: signals and changes are remembered.
            () = any(&mut signals) => {
                if is_ending {
                    break INTERRUPTED;
                }
                is_ending = true;
                writeln!(io::stderr(), "ending the pod; once more ends it at once").ok();
                place.withdraw()?;
            }
            changed = seen.changed() => changed.context("nobody tells of the pod any more")?,
            () = sleep(LOOK) => {}
        }
        let now = seen.borrow().clone();
        logs.set_prefixed(now.pod.as_deref().is_some_and(verdict::has_several_containers));
        logs.look(&mut io::stdout(), &mut io::stderr())?;
        let verdict = now.pod.as_deref().and_then(verdict::of);
        match verdict {
            Some(verdict) => {
                // What it wrote last is in the files by now: ends are told after them.
                logs.look(&mut io::stdout(), &mut io::stderr())?;
                if let Some(why) = verdict.why {
                    writeln!(io::stderr(), "{why}").ok();
                }
                break verdict.code;
            }
            None if now.is_over => break INTERRUPTED,
            None => {}
        }
    };
    place.withdraw()?;
    let removed = timeout(FAREWELL, remove_sandboxes(place)).await;
    removed.context("the pod's sandbox is not removed")??;
    logs.look(&mut io::stdout(), &mut io::stderr())?;
    Ok(code)
}

async fn any(signals: &mut [Signal; 2]) {
    let [interrupt, terminate] = signals;
    tokio::select! {
        // A signal that both arms would hear of is kept for the next call.
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Stops and removes every sandbox; what runs in it is killed.
async fn remove_sandboxes(place: &Place) -> anyhow::Result<()> {
    let socket = format!("unix://{}", place.socket().display());
    let timeouts = Timeouts { request: FAREWELL };
    let client = CriClient::connect_lazy(&socket, "", timeouts, Arc::new(SystemClock))?;
    for sandbox in client.list().await.context("list sandboxes")?.sandboxes {
        client.stop_sandbox(&sandbox.id).await.context("stop the sandbox")?;
        client.remove_sandbox(&sandbox.id).await.context("remove the sandbox")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_manifest_and_how_much_is_said() {
        let check = |words: &[&str], expected: Result<(&str, Option<u32>), &str>| {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            let found = parse(&words).map_err(|error| format!("{error:#}"));
            let expected = expected.map(|(name, n)| (name.to_owned(), n)).map_err(str::to_owned);
            assert_eq!(found, expected, "{words:?}");
        };
        check(&["pod.yaml"], Ok(("pod.yaml", None)));
        check(&["-v", "4", "-"], Ok(("-", Some(4))));
        check(&[], Err("give a manifest: `ferrolet run POD.yaml`"));
        check(&["a", "b"], Err("one manifest at a time: \"b\" is another"));
        check(&["-v"], Err("flag -v needs a value"));
        check(&["--rm"], Err("unknown flag \"--rm\"; `ferrolet run --help` lists what there is"));
    }

    #[test]
    fn a_bad_manifest_is_told_before_anything_starts() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("pod.yaml");
        fs::write(&file, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containrs: []}\n")
            .unwrap();
        let error = read_manifest(file.to_str().unwrap()).unwrap_err();
        assert!(format!("{error:#}").contains("containrs"), "{error:#}");
        assert!(format!("{error:#}").contains("pod.yaml"), "{error:#}");
    }
}

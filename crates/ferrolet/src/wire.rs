//! The composition root: a machine and its configuration in, a running agent out.
//!
//! ```text
//!  Loaded, machine ─┬─► settings ─┐
//!                   └─► platform ─┴─► ferrolet_agent::assemble ─► Agent ─► servers look at it ─► run
//! ```
//!
//! What the agent is made of is in `ferrolet_agent::assemble`; which doors it gets, in
//! [`platform`]; what its parts are told, in [`settings`].

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use ferrolet_agent::{Agent, Platform, Settings, assemble};
use ferrolet_config::{CgroupVersion, CommandLine, Loaded, NamedText};
use ferrolet_host::{
    Termination,
    machine::{MachineFacts, read_machine},
    notify::Notifier,
    watchdog::{self, watchdog_pace},
};
use ferrolet_linux::{SystemClock, cgroups::CgroupLayout, mountinfo};
use ferrolet_ports::{Events, Part, StatusSink};
use ferrolet_resources::{NodeCgroupPlace, node_cgroups};
use ferrolet_traces::{Exporter, TraceLayer, TraceSettings};
use tokio::sync::watch;

mod embedded;
mod listeners;
mod live;
mod local;
mod machine;
mod main_server;
mod node_facts;
mod placement;
mod platform;
mod pod_facts;
mod process;
mod pulls;
mod reload;
mod servers;
mod serving;
mod settings;

use self::{listeners::Listeners, live::Live, platform::Adapters, reload::Reload};
use crate::own_log::OwnLog;

/// What only the start needed is given back to the kernel after this long.
const FIRST_TRIM: Duration = Duration::from_secs(5);
/// Memory that is not in use is given back to the kernel this often.
const TRIM_PERIOD: Duration = Duration::from_secs(60);

/// What notes traces and what sends them, where they are configured. Both are made before anything
/// is logged.
pub fn traces(loaded: &Loaded) -> anyhow::Result<Option<(TraceLayer, Exporter)>> {
    let Some(tracing) = &loaded.config.tracing else {
        return Ok(None);
    };
    let machine = read_machine().context("read the machine's facts")?;
    let settings = TraceSettings {
        endpoint: tracing.endpoint.clone(),
        per_million: tracing.sampling_rate_per_million,
        node_name: node_name(loaded, &machine),
    };
    let made = ferrolet_traces::traces(settings, Arc::new(SystemClock));
    Ok(Some(made.context("use tracing.endpoint")?))
}

/// The machine under the agent.
struct Machine {
    facts: MachineFacts,
    layout: CgroupLayout,
    node_name: String,
}

/// What is different where the agent is not the machine's, but somebody's who runs one pod for a while: it leaves the
/// machine's own settings alone, and tells whoever started it.
pub struct Visit {
    /// Hears of pods' statuses.
    pub sink: Arc<dyn StatusSink>,
    /// Hears of events.
    pub events: Arc<dyn Events>,
}

/// What an agent is run with beside its configuration.
pub struct Beside<'a> {
    /// What sends its traces.
    pub exporter: Option<Exporter>,
    /// How it hears that its own end is the machine's.
    pub termination: Option<&'a Termination>,
    /// For whom it runs, if not for the machine.
    pub visit: Option<Visit>,
}

/// Runs the agent until something it cannot do without fails, or until pods that run once have come
/// up.
pub async fn run(
    command_line: &CommandLine,
    (loaded, texts): (&Loaded, ConfigurationTexts),
    log: OwnLog,
    beside: Beside<'_>,
) -> anyhow::Result<()> {
    let Beside { exporter, termination, visit } = beside;
    let machine = Machine::read(loaded)?;
    // Before anything is touched, so that a second agent on one machine fails at once.
    let listeners = Listeners::bind(loaded).await?;
    if visit.is_none() {
        process::share_root(loaded);
    }
    let (adapters, platform) =
        platform::open(loaded, &machine, (termination, visit.as_ref())).await?;
    if visit.is_none() {
        process::tell_of_machine(&machine, platform.events.as_ref());
    }
    let live = Live::new(loaded);
    let set_up = match visit {
        None => process::set_up(loaded),
        Some(_) => Ok(()),
    };
    let ready = match set_up {
        Ok(()) => ready(loaded, &machine, &adapters, &platform, &live).await,
        Err(error) => Err(error),
    };
    let settings = match ready {
        Ok(settings) => settings,
        Err(error) => return Err(process::give_up(platform, error).await),
    };
    let mut agent = assemble(settings, platform).await.context("use staticPodURL")?;
    let (shown, configz) = watch::channel(reload::configz(&loaded.raw, &[]));
    let told = (loaded, command_line, log.control.clone(), configz);
    servers::add(&mut agent, listeners, told, &machine, &adapters)?;
    let listeners = live::Listeners {
        live,
        log: log.clone(),
        node: agent.views.presented.clone(),
        cluster: adapters.cluster.clone(),
    };
    let reload = Reload::new(
        command_line,
        (loaded, texts),
        machine.cgroup_version(),
        Box::new(move |next| listeners.apply(next)),
        (adapters.recent_events.clone(), shown),
    );
    agent.add(Part::new("configuration").with_loop(reload.run()));
    let notifier = Notifier::new(std::env::var_os("NOTIFY_SOCKET"));
    agent.add(process(&agent, &notifier, exporter));
    agent.add(Part::new("log").with_loop(log.run()));
    agent.add(process::place(loaded, &machine)?);
    let running = agent.run();
    if let Err(error) = notifier.ready() {
        tracing::warn!(%error, "The service manager cannot be told that the agent is ready");
    }
    Ok(running.await?)
}

/// Settings that fit the machine, which has what they ask of it.
async fn ready(
    loaded: &Loaded,
    machine: &Machine,
    adapters: &Adapters,
    platform: &Platform,
    live: &Live,
) -> anyhow::Result<Settings> {
    let settings = settings::of(loaded, machine, adapters, live)?;
    bound_daemons(&settings, platform).await?;
    Ok(settings)
}

/// Bounds the cgroups of daemons once, so that a name that is wrong is told at the start.
async fn bound_daemons(settings: &Settings, platform: &Platform) -> anyhow::Result<()> {
    let (node, facts) = (&settings.node.state.settings, &settings.node.state.facts);
    let Some((enforced, machine)) = settings.node.allocatable.as_ref().zip(facts.machine.as_ref())
    else {
        return Ok(());
    };
    for cgroup in node_cgroups(&enforced.policy, node, machine) {
        let field = match cgroup.place {
            NodeCgroupPlace::Pods => continue,
            NodeCgroupPlace::System(_) => "systemReservedCgroup",
            NodeCgroupPlace::Kube(_) => "kubeReservedCgroup",
        };
        platform.node_cgroups.bound(&cgroup).await.with_context(|| format!("use {field}"))?;
    }
    Ok(())
}

/// The texts that a configuration was made of.
pub type ConfigurationTexts = (Option<NamedText>, Vec<NamedText>);

/// What serves the process itself: traces, memory, the service manager.
fn process(agent: &Agent, notifier: &Notifier, exporter: Option<Exporter>) -> Part {
    let mut part = Part::new("process").with_loop(stay_small());
    if let Some(exporter) = exporter {
        part.add_loop(exporter.run());
    }
    let said = |name: &str| std::env::var(name).ok();
    let (interval, pid) = (said("WATCHDOG_USEC"), said("WATCHDOG_PID"));
    if let Some(pace) = watchdog_pace(interval.as_deref(), pid.as_deref(), std::process::id()) {
        part.add_loop(watchdog::run(notifier.clone(), pace, agent.views.pulse.clone()));
    }
    part
}

/// Gives back what only the start needed, then what is not in use.
async fn stay_small() {
    tokio::time::sleep(FIRST_TRIM).await;
    loop {
        ferrolet_linux::process::trim_memory();
        tokio::time::sleep(TRIM_PERIOD).await;
    }
}

/// The host's name, or what was given instead, as upstream writes it: in the node's name, its label
/// and its address.
fn node_name(loaded: &Loaded, machine: &MachineFacts) -> String {
    let given = loaded.flags.hostname_override.as_ref();
    given.unwrap_or(&machine.hostname).trim().to_lowercase()
}

fn cgroup_version(layout: &CgroupLayout) -> CgroupVersion {
    match layout {
        CgroupLayout::V1 { .. } => CgroupVersion::V1,
        CgroupLayout::V2 { .. } => CgroupVersion::V2,
    }
}

impl Machine {
    fn cgroup_version(&self) -> CgroupVersion {
        cgroup_version(&self.layout)
    }

    /// Looks at the machine, and refuses one that the configuration does not fit.
    fn read(loaded: &Loaded) -> anyhow::Result<Self> {
        let facts = read_machine().context("read the machine's facts")?;
        let layout = CgroupLayout::detect(&mountinfo::read().context("read mountinfo")?)?;
        loaded.config.check_host(cgroup_version(&layout)).map_err(|faults| {
            let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{}", lines.join("; "))
        })?;
        if facts.swap_is_on && loaded.config.kernel.refuse_swap {
            bail!(
                "running with swap on is not supported: turn swap off, or set failSwapOn to false"
            );
        }
        let sources = &loaded.config.sources;
        let has_static_pods = sources.static_pod_path.is_some() || sources.static_pod_url.is_some();
        let has_pods = has_static_pods || loaded.flags.kubeconfig.is_some();
        if loaded.flags.run_once_within.is_some() && !has_pods {
            bail!(
                "--run-once-within: there are no pods to start without staticPodPath or staticPodURL"
            );
        }
        let node_name = node_name(loaded, &facts);
        if node_name.is_empty() {
            bail!("--hostname-override: empty hostname is invalid");
        }
        Ok(Self { node_name, facts, layout })
    }
}

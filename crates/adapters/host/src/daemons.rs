//! The daemons that the node cannot do without, the agent and the runtime: where they are, and that the
//! kernel does not choose them when memory runs out.
//!
//! ```text
//!  configured cgroups ──────────────────────────┐
//!  /proc/self ─┬─► cgroup ──────────────────────┼─► names and cgroups, for summaries (watch)
//!  the runtime's socket ─► process ─┬─► cgroup ─┘
//!              └────────────────────┴─► oom_score_adj
//! ```
//!
//! Owned by the process part of the agent, which looks again every minute: a runtime starts again, and
//! somebody may have changed a score. Refuses: moving processes ([`DaemonCgroups`] does), raising
//! anybody's score, and taking process 1 for a runtime because it opened the socket.
//!
//! [`DaemonCgroups`]: crate::cgroups::DaemonCgroups

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use ferrolet_linux::{
    cgroups::{CgroupLayout, process_cgroup},
    process::{lower_oom_score_adj, set_oom_score_adj},
};
use tokio::{
    net::UnixStream,
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};

/// Daemons are looked at this often.
const AGAIN: Duration = Duration::from_secs(60);
/// A runtime that does not take a connection is busy or gone.
const ANSWER: Duration = Duration::from_secs(2);
/// Like the agent's own by default.
const RUNTIME_SCORE: i16 = -999;
/// Where systemd has what is neither a pod nor a user's.
const SYSTEM_SLICE: &str = "system.slice";

/// What is known from the start.
#[derive(Clone, Debug)]
pub struct DaemonSettings {
    /// The agent's own place in the kernel's choice.
    pub oom_score_adj: i16,
    /// Where the runtime listens; none: it is in the agent's own process.
    pub runtime_socket: Option<PathBuf>,
    /// What is mounted.
    pub layout: CgroupLayout,
    /// Cgroups that the configuration names.
    pub configured: Vec<SystemCgroup>,
}

/// A part of the system with a cgroup of its own: its name in summaries, and the path.
pub type SystemCgroup = (String, String);

/// The daemons.
#[derive(Debug)]
pub struct Daemons {
    settings: DaemonSettings,
    shown: watch::Sender<Vec<SystemCgroup>>,
}

impl Daemons {
    /// Nobody has been looked for yet: only what is configured is known.
    pub fn new(settings: DaemonSettings) -> (Self, watch::Receiver<Vec<SystemCgroup>>) {
        let (shown, systems) = watch::channel(settings.configured.clone());
        (Self { settings, shown }, systems)
    }

    /// Looks for them for ever. What the machine refuses is told when it changes.
    pub async fn keep(self) {
        let mut tick = interval(AGAIN);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = None;
        loop {
            tick.tick().await;
            let runtime = match &self.settings.runtime_socket {
                Some(socket) => runtime_process(socket).await,
                None => None,
            };
            self.show(runtime);
            let refused = self.protect(runtime).err().map(|error| error.to_string());
            if let Some(error) = refused.as_ref().filter(|_| refused != told) {
                tracing::warn!(
                    error,
                    "When memory runs out the kernel may choose the agent or the runtime: their OOM scores cannot be set"
                );
            }
            told = refused;
        }
    }

    fn protect(&self, runtime: Option<u32>) -> io::Result<()> {
        let own = set_oom_score_adj(self.settings.oom_score_adj);
        let theirs = runtime.map_or(Ok(()), |it| lower_oom_score_adj(it, RUNTIME_SCORE));
        // One that ended meanwhile needs no protection.
        let theirs = theirs.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        own.and(theirs)
    }

    fn show(&self, runtime: Option<u32>) {
        let layout = &self.settings.layout;
        let of = |process: &str| {
            let text = std::fs::read_to_string(Path::new("/proc").join(process).join("cgroup"));
            process_cgroup(layout, &text.ok()?)
        };
        let found = [
            ("kubelet", of("self")),
            ("runtime", runtime.and_then(|it| of(&it.to_string()))),
            ("misc", has_system_slice(layout).then(|| PathBuf::from(SYSTEM_SLICE))),
        ];
        let mut all = self.settings.configured.clone();
        for (name, path) in found {
            let is_configured = all.iter().any(|(known, _)| known == name);
            if let Some(path) = path.filter(|_| !is_configured) {
                all.push((name.to_owned(), path.display().to_string()));
            }
        }
        self.shown.send_if_modified(|shown| {
            let is_news = *shown != all;
            *shown = all;
            is_news
        });
    }
}

/// Who listens there, if it is a process that we can see and not the service manager.
async fn runtime_process(socket: &Path) -> Option<u32> {
    let stream = timeout(ANSWER, UnixStream::connect(socket)).await.ok()?.ok()?;
    let process = u32::try_from(stream.peer_cred().ok()?.pid()?).ok()?;
    (process > 1).then_some(process)
}

fn has_system_slice(layout: &CgroupLayout) -> bool {
    let mount = match layout {
        CgroupLayout::V2 { mount } => Some(mount),
        CgroupLayout::V1 { hierarchies, .. } => {
            let mut all = hierarchies.iter();
            let memory = all.find(|it| it.controllers.iter().any(|name| name == "memory"));
            memory.map(|it| &it.mount)
        }
    };
    mount.is_some_and(|mount| mount.join(SYSTEM_SLICE).is_dir())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn daemons(mount: &Path, configured: &[(&str, &str)]) -> Daemons {
        let configured = configured.iter().map(|(name, path)| ((*name).into(), (*path).into()));
        Daemons::new(DaemonSettings {
            // What it is already: anybody may write that.
            oom_score_adj: own_score(),
            runtime_socket: Some(mount.join("socket")),
            layout: CgroupLayout::V2 { mount: mount.to_owned() },
            configured: configured.collect(),
        })
        .0
    }

    fn own_score() -> i16 {
        let text = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        text.trim().parse().unwrap()
    }

    #[tokio::test]
    async fn a_runtime_is_found_by_its_socket() {
        let held = tempfile::tempdir().unwrap();
        let socket = held.path().join("socket");
        assert_eq!(runtime_process(&socket).await, None, "nobody listens");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(runtime_process(&socket).await, Some(std::process::id()));
    }

    #[test]
    fn the_systems_slice_is_shown_where_there_is_one_and_nothing_is_configured() {
        let held = tempfile::tempdir().unwrap();
        let shown = |daemons: &Daemons| {
            daemons.show(None);
            let shown = daemons.shown.borrow().clone();
            shown.into_iter().find(|(name, _)| name == "misc").map(|(_, path)| path)
        };
        assert_eq!(shown(&daemons(held.path(), &[])), None);
        std::fs::create_dir(held.path().join(SYSTEM_SLICE)).unwrap();
        assert_eq!(shown(&daemons(held.path(), &[])).as_deref(), Some(SYSTEM_SLICE));
        let configured = daemons(held.path(), &[("misc", "/others")]);
        assert_eq!(shown(&configured).as_deref(), Some("/others"));
    }

    #[test]
    fn a_process_that_is_gone_is_no_trouble_and_one_that_is_safe_is_left_alone() {
        let held = tempfile::tempdir().unwrap();
        let daemons = daemons(held.path(), &[]);
        daemons.protect(None).unwrap();
        daemons.protect(Some(u32::MAX)).unwrap();
        lower_oom_score_adj(std::process::id(), 1000).unwrap();
        assert_eq!(daemons.settings.oom_score_adj, own_score());
    }
}

//! One task a monitor: ends of containers, and the monitor's own.
//!
//! ```text
//!  event Exited ─► phase Exited
//!  connection lost ─► connect again ─► Snapshot ─► as it was
//!                         │ nobody listens: the monitor is dead
//!                         └─► everything in the pod is killed; its containers ended with 137, the sandbox is not ready
//! ```

use std::{path::Path, sync::Arc, time::Duration};

use ferrolet_runtime_client::ConnectError;
use ferrolet_runtime_monitor::cgroups;
use ferrolet_runtime_protocol::{
    launch::Cgroups,
    message::{Event, SnapshotAnswer},
    record::{ContainerRecord, Exit, MonitorRecord, State},
};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tracing::{info, warn};

use super::{
    Runtime,
    error::RuntimeError,
    events::EventKind,
    files::{off_thread, read, read_record, write_record},
    phase::{Phase, Process},
    table::{Container, Link, SandboxState},
};

/// How long a monitor may take to answer. One that does not is shown as not ready, and a kubelet then ends its pod: a busy
/// machine must not look like that. One that is dead is known at once.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// Between two attempts to reach a monitor that lives and does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// How long groups are tried to be removed, and how often.
const N_REMOVALS: usize = 100;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);
/// As much of a process's line in `/proc` as is read.
const STAT_BYTES: u64 = 4096;
/// A container that went down with its monitor.
const KILLED: i32 = 137;
const MONITOR_LOST: &str = "MonitorLost";

impl Runtime {
    /// Follows a monitor for as long as its sandbox is ready.
    pub(super) fn watch(&self, sandbox: String, link: Arc<Link>, events: mpsc::Receiver<Event>) {
        let runtime = self.clone();
        tokio::spawn(async move { runtime.follow(sandbox, link, events).await });
    }

    async fn follow(self, sandbox: String, mut link: Arc<Link>, mut events: mpsc::Receiver<Event>) {
        loop {
            while let Some(event) = events.recv().await {
                self.take_event(&sandbox, event);
            }
            if !self.is_current(&sandbox, &link) {
                return;
            }
            match self.connect_again(&sandbox).await {
                Some((again, more)) => {
                    info!(sandbox, "connected to the monitor again");
                    (link, events) = (again, more);
                }
                None => return,
            }
        }
    }

    /// Whether the sandbox is ready by this link: it was not stopped on purpose.
    fn is_current(&self, sandbox: &str, link: &Arc<Link>) -> bool {
        let table = self.table();
        let current = table.sandboxes.get(sandbox).and_then(|it| it.link());
        current.is_some_and(|it| Arc::ptr_eq(it, link))
    }

    fn take_event(&self, sandbox: &str, event: Event) {
        match event {
            Event::Exited(exited) => {
                if let Some(exit) = exited.exit {
                    self.container_ended(&exited.container, exit);
                }
            }
            Event::LogTrouble(trouble) => {
                let errno = std::io::Error::from_raw_os_error(trouble.errno);
                warn!(sandbox, container = trouble.container, lost_lines = trouble.lost_lines, %errno, "output of a container could not be written");
            }
        }
    }

    /// Notes an end, and tells of it once.
    pub(super) fn container_ended(&self, id: &str, exit: Exit) {
        let Ok(container) = self.container(id) else { return };
        let mut was = Phase::Created;
        container.phase.send_modify(|phase| {
            was = phase.clone();
            *phase = phase.clone().ended(exit);
        });
        let sandbox = &container.spec.sandbox;
        match was {
            Phase::Exited { .. } => return,
            // It began before it ended, whoever is first to tell.
            Phase::Starting => self.tell(id, sandbox, EventKind::ContainerStartedEvent),
            Phase::Created | Phase::Running(_) | Phase::Unknown => {}
        }
        self.tell(id, sandbox, EventKind::ContainerStoppedEvent);
    }

    /// Reaches a monitor whose connection was lost, however long it does not answer; none: it is dead.
    pub(super) async fn connect_again(
        &self,
        sandbox: &str,
    ) -> Option<(Arc<Link>, mpsc::Receiver<Event>)> {
        let mut is_first = true;
        loop {
            match self.reach(sandbox).await {
                Ok((link, events)) => {
                    let mut table = self.table();
                    let entry = table.sandboxes.get_mut(sandbox)?;
                    entry.state = SandboxState::Ready(Arc::clone(&link));
                    return Some((link, events));
                }
                Err(error) if self.is_dead(sandbox, &error).await => {
                    warn!(sandbox, "the monitor has ended, and its pod with it");
                    self.set_not_ready(sandbox);
                    self.take_ends(sandbox, true).await;
                    self.tell(sandbox, sandbox, EventKind::ContainerStoppedEvent);
                    return None;
                }
                Err(error) if is_first => {
                    warn!(
                        sandbox,
                        error = &error as &dyn std::error::Error,
                        "the monitor lives and does not answer"
                    );
                    is_first = false;
                    self.set_not_ready(sandbox);
                    for container in self.containers_of(sandbox) {
                        container.phase.send_if_modified(|phase| {
                            let is_unknown = phase.is_alive();
                            if is_unknown {
                                *phase = Phase::Unknown;
                            }
                            is_unknown
                        });
                    }
                }
                Err(_) => {}
            }
            sleep(PAUSE).await;
            // Whoever removed the sandbox has killed its monitor.
            self.sandbox(sandbox).ok()?;
        }
    }

    /// Connects, and takes over what the monitor knows.
    pub(super) async fn reach(
        &self,
        sandbox: &str,
    ) -> Result<(Arc<Link>, mpsc::Receiver<Event>), RuntimeError> {
        let (link, events) = self.connect(sandbox, ANSWER).await?;
        let overdue =
            |_| RuntimeError::Overdue { attempt: "ask monitor", seconds: ANSWER.as_secs() };
        let (snapshot, _pidfds) = timeout(ANSWER, link.monitor.snapshot())
            .await
            .map_err(overdue)?
            .map_err(|error| RuntimeError::Monitor("ask monitor", error))?;
        self.take_snapshot(&snapshot);
        Ok((link, events))
    }

    fn take_snapshot(&self, snapshot: &SnapshotAnswer) {
        for record in &snapshot.containers {
            let Ok(container) = self.container(&record.container) else { continue };
            match (record.state(), &record.exit) {
                // Somebody may listen who has not heard of it.
                (State::Exited, Some(exit)) if container.phase().is_alive() => {
                    take_record(&container, &ContainerRecord { exit: None, ..record.clone() });
                    self.container_ended(&record.container, exit.clone());
                }
                _ => take_record(&container, record),
            }
        }
    }

    /// Whether nobody can ever answer: nobody listens, or the process is gone.
    async fn is_dead(&self, sandbox: &str, error: &RuntimeError) -> bool {
        if matches!(error, RuntimeError::Connect(ConnectError::Connect { .. })) {
            return true;
        }
        let path = self.0.places.pod(sandbox).join("monitor");
        off_thread(move || Ok(living_monitor(&path).is_none())).await.unwrap_or(false)
    }

    /// Kills a sandbox's monitor, if there still is one.
    pub(super) async fn kill_monitor(&self, sandbox: &str) {
        let path = self.0.places.pod(sandbox).join("monitor");
        let killed = off_thread(move || {
            if let Some(monitor) = living_monitor(&path) {
                let _gone = rustix::process::pidfd_send_signal(&monitor, Signal::KILL);
                let mut ready =
                    [rustix::event::PollFd::new(&monitor, rustix::event::PollFlags::IN)];
                let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
                let _late = rustix::event::poll(&mut ready, Some(&second));
            }
            Ok(())
        });
        let _done = killed.await;
    }

    /// After a monitor's end: what it wrote down counts, and everything else was killed. `is_unexpected`: whatever
    /// may still run is killed here.
    pub(super) async fn take_ends(&self, sandbox: &str, is_unexpected: bool) {
        let init = {
            let table = self.table();
            let spec = table.sandboxes.get(sandbox).and_then(|it| it.record.spec.clone());
            spec.and_then(|it| it.init_cgroups)
        };
        for container in self.containers_of(sandbox) {
            let (places, now) = (self.0.places.clone(), self.now());
            let is_alive = container.phase().is_alive();
            let spec = Arc::clone(&container.spec);
            let found = off_thread(move || {
                let directory = places.launched(&spec.sandbox, &spec.id);
                if let Some(record) = read_record::<ContainerRecord>(&directory.join("exit")) {
                    return Ok(Some(record));
                }
                let launched = read_record::<ContainerRecord>(&directory.join("launched"));
                if launched.is_none() && !is_alive {
                    return Ok(None);
                }
                let exit = Exit {
                    code: KILLED,
                    finished_at: now,
                    reason: MONITOR_LOST.to_owned(),
                    message:
                        "the pod's monitor ended, and everything in the pod was killed with it"
                            .to_owned(),
                    ..Exit::default()
                };
                let record = ContainerRecord {
                    container: spec.id.clone(),
                    state: State::Exited.into(),
                    exit: Some(exit),
                    ..launched.unwrap_or_default()
                };
                super::files::make_directory(&directory)?;
                write_record(&directory.join("exit"), &record)?;
                Ok(Some(record))
            });
            if is_unexpected && let Some(groups) = groups_of(&container) {
                self.kill_groups(groups).await;
            }
            match found.await {
                Ok(Some(record)) => {
                    if let Some(exit) = record.exit {
                        self.container_ended(&container.spec.id, exit);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    warn!(
                        sandbox,
                        error = &error as &dyn std::error::Error,
                        "could not write down the end of a container"
                    );
                }
            }
        }
        if is_unexpected && let Some(groups) = init {
            self.kill_groups(groups).await;
        }
    }

    /// Kills everything in some groups, and removes them as soon as the kernel lets them go.
    pub(super) async fn kill_groups(&self, groups: Cgroups) {
        for _ in 0..N_REMOVALS {
            let groups = groups.clone();
            let removed = off_thread(move || {
                if groups
                    .groups
                    .iter()
                    .filter(|it| it.is_own)
                    .any(|it| Path::new(&it.directory).exists())
                {
                    cgroups::kill(&groups);
                    return Ok(cgroups::remove(&groups));
                }
                Ok(true)
            });
            if removed.await.unwrap_or(true) {
                return;
            }
            sleep(REMOVAL_PAUSE).await;
        }
        let group = groups.groups.iter().find(|it| it.is_own).map(|it| it.directory.clone());
        warn!(group, "control groups could not be removed");
    }
}

/// A container's control groups.
pub(super) fn groups_of(container: &Container) -> Option<Cgroups> {
    container.spec.launch.as_ref().and_then(|it| it.cgroups.clone())
}

/// Takes over what a monitor knows of a container.
pub(super) fn take_record(container: &Container, record: &ContainerRecord) {
    let process = Process { pid: record.pid, started_at: record.started_at };
    container.phase.send_modify(|phase| {
        *phase = match (record.state(), &record.exit) {
            (State::Starting, _) => Phase::Starting,
            (State::Running, _) => phase.clone().started(process),
            (State::Exited, Some(exit)) => phase.clone().started(process).ended(exit.clone()),
            (State::Exited, None) => phase.clone().started(process),
        };
    });
}

/// A descriptor of the process that a record names, if that very process still lives.
fn living_monitor(path: &Path) -> Option<std::os::fd::OwnedFd> {
    let record: MonitorRecord = read_record(path)?;
    let pid = Pid::from_raw(record.pid)?;
    let descriptor = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Between its name and its descriptor the number may have become another's.
    let stat = read(Path::new(&format!("/proc/{}/stat", record.pid)), STAT_BYTES).ok()?;
    (start_ticks(&stat) == Some(record.start_ticks)).then_some(descriptor)
}

/// When a process began, in the kernel's ticks; none for one that is dead and not reaped.
fn start_ticks(stat: &[u8]) -> Option<u64> {
    let stat = String::from_utf8_lossy(stat);
    // After the name, which may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let ticks = fields.nth(18)?.parse().ok();
    ticks.filter(|_| state != "Z" && state != "X")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::record::ContainerSpec;

    #[test]
    fn a_process_is_known_by_its_beginning_and_the_dead_are_nobody() {
        let line = |state: &str| {
            let zeros = "0 ".repeat(18);
            format!("7 (a ) b) {state} {zeros}4242 0 0\n")
        };
        assert_eq!(start_ticks(line("S").as_bytes()), Some(4242));
        assert_eq!(start_ticks(line("Z").as_bytes()), None);
        assert_eq!(start_ticks(b"7 (short) S 0"), None);
    }

    #[test]
    fn a_snapshot_says_what_runs_and_what_ended() {
        let container = Container::new(ContainerSpec::default(), Phase::Unknown, None);
        let running = ContainerRecord {
            state: State::Running.into(),
            pid: 7,
            started_at: 5,
            ..ContainerRecord::default()
        };
        take_record(&container, &running);
        assert_eq!(container.phase(), Phase::Running(Process { pid: 7, started_at: 5 }));
        let exit = Exit { code: 3, finished_at: 9, ..Exit::default() };
        let ended =
            ContainerRecord { state: State::Exited.into(), exit: Some(exit.clone()), ..running };
        take_record(&container, &ended);
        assert_eq!(container.phase(), Phase::Exited { started_at: 5, exit });
    }
}

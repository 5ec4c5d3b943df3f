//! Containers started, stopped and removed. Stopping and removing what is not there is done already.

use std::{os::fd::AsFd as _, path::Path, sync::Arc, time::Duration};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_client::CallError;
use ferrolet_runtime_protocol::{
    message::Signal,
    record::{ContainerRecord, Exit, State},
    sandbox::{IdMap, IdMaps, PidShare},
};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::{
    Runtime, answer,
    error::RuntimeError,
    events::EventKind,
    files::{make_directory, off_thread, read, write_record},
    phase::{Phase, Process},
    record::UserRecord,
    table::{Container, Link},
    watch::groups_of,
};
use crate::chain::chain;

/// How long a launch may take: its sources may be another machine's.
const LAUNCHING: Duration = Duration::from_secs(240);
/// How long a container may take to be gone after SIGKILL.
const DYING: Duration = Duration::from_secs(30);
const SIGKILL: i32 = 9;
/// The code of a container that never began, and its reason, as containerd has them.
const START_ERROR_CODE: i32 = 128;
const START_ERROR: &str = "StartError";
/// How long after its beginning a first process is given time to say what it does about the signal that ends it, and how
/// often it is looked at.
const YOUTH: Duration = Duration::from_secs(2);
const GLANCE: Duration = Duration::from_millis(10);
/// As much of a process's status as is read.
const STATUS_BYTES: u64 = 64 * 1024;

impl Runtime {
    /// Launches a container that was created.
    pub(crate) async fn start_container(&self, id: &str) -> Result<(), RuntimeError> {
        let container = self.container(id)?;
        let _turn = container.turn.lock().await;
        let id = container.spec.id.as_str();
        let phase = container.phase();
        if phase != Phase::Created {
            let state = phase.name();
            return Err(RuntimeError::WrongState { id: id.to_owned(), state, needed: "created" });
        }
        let sandbox = self.sandbox(&container.spec.sandbox)?;
        let not_ready = || RuntimeError::NotReady(sandbox.record.id.clone());
        let link = sandbox.link().cloned().ok_or_else(not_ready)?;
        container.phase.send_replace(Phase::Starting);
        match self.launch(&container, &link).await {
            Ok(process) => {
                let users = sandbox.record.spec.as_ref().and_then(|it| it.user.clone());
                self.note_user(&container, process, users).await;
                let mut is_news = false;
                container.phase.send_modify(|phase| {
                    is_news = *phase == Phase::Starting;
                    *phase = phase.clone().started(process);
                });
                if is_news {
                    self.tell(id, &container.spec.sandbox, EventKind::ContainerStartedEvent);
                }
                Ok(())
            }
            Err(error) => {
                self.note_failure(&container, &error).await;
                Err(error)
            }
        }
    }

    async fn launch(&self, container: &Container, link: &Link) -> Result<Process, RuntimeError> {
        let spec = container.spec.launch.clone().unwrap_or_default();
        let launched = timeout(LAUNCHING, link.monitor.launch(spec, self.0.mounts.as_fd())).await;
        match launched {
            Ok(Ok((started, _pidfd))) => {
                Ok(Process { pid: started.pid, started_at: started.started_at })
            }
            Ok(Err(error)) => Err(RuntimeError::Monitor("start container", error)),
            Err(_) => {
                let kill = signal(&container.spec.id, SIGKILL, true);
                let _gone = link.monitor.signal(kill).await;
                let seconds = LAUNCHING.as_secs();
                Err(RuntimeError::Overdue { attempt: "start container", seconds })
            }
        }
    }

    /// Who the first process is, before it can have become another.
    async fn note_user(&self, container: &Container, process: Process, users: Option<IdMaps>) {
        let id = container.spec.id.clone();
        let directory = self.0.places.launched(&container.spec.sandbox, &id);
        let found = off_thread(move || {
            let path = format!("/proc/{}/status", process.pid);
            let Ok(status) = read(Path::new(&path), STATUS_BYTES) else { return Ok(None) };
            let user = user_of(&String::from_utf8_lossy(&status), users.as_ref());
            if let Some(user) = &user {
                make_directory(&directory)?;
                write_record(&directory.join("user"), user)?;
            }
            Ok(user)
        });
        match found.await {
            Ok(user) => {
                if let Some(container) = self.table().containers.get_mut(&id) {
                    container.user = user;
                }
            }
            Err(error) => warn!(
                container = id,
                error = &error as &dyn std::error::Error,
                "could not write down the user of a container"
            ),
        }
    }

    /// A container that never began has ended, and says why.
    async fn note_failure(&self, container: &Container, error: &RuntimeError) {
        let exit = Exit {
            code: START_ERROR_CODE,
            finished_at: self.now(),
            reason: START_ERROR.to_owned(),
            message: chain(error),
            ..Exit::default()
        };
        let record = ContainerRecord {
            container: container.spec.id.clone(),
            state: State::Exited.into(),
            exit: Some(exit.clone()),
            ..ContainerRecord::default()
        };
        let directory = self.0.places.launched(&container.spec.sandbox, &container.spec.id);
        let written = off_thread(move || {
            make_directory(&directory)?;
            write_record(&directory.join("exit"), &record)
        });
        if let Err(error) = written.await {
            warn!(
                container = container.spec.id,
                error = &error as &dyn std::error::Error,
                "could not write down why a container did not start"
            );
        }
        container.phase.send_modify(|phase| *phase = phase.clone().ended(exit));
        let (id, sandbox) = (&container.spec.id, &container.spec.sandbox);
        self.tell(id, sandbox, EventKind::ContainerStoppedEvent);
    }

    /// Asks a container to end, and kills it when it has not after so many seconds.
    pub(crate) async fn stop_container(&self, id: &str, seconds: i64) -> Result<(), RuntimeError> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        // A launch under way is waited for. Stops are not: a later one may be more impatient.
        drop(container.turn.lock().await);
        if !container.phase().is_alive() {
            return Ok(());
        }
        let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        if !grace.is_zero() {
            wait_until_heard(&container, grace).await;
            self.signal_container(&container, container.spec.stop_signal, false).await?;
            if ended_within(&container, grace).await {
                return Ok(());
            }
        }
        self.kill_container(&container).await
    }

    async fn kill_container(&self, container: &Container) -> Result<(), RuntimeError> {
        self.signal_container(container, SIGKILL, true).await?;
        if ended_within(container, DYING).await {
            return Ok(());
        }
        Err(RuntimeError::Overdue { attempt: "kill container", seconds: DYING.as_secs() })
    }

    async fn signal_container(
        &self,
        container: &Container,
        number: i32,
        everything: bool,
    ) -> Result<(), RuntimeError> {
        let sandbox = self.sandbox(&container.spec.sandbox)?;
        let Some(link) = sandbox.link() else {
            // Its monitor does not answer: what can be done without it is killing.
            if everything && let Some(groups) = groups_of(container) {
                self.kill_groups(groups).await;
                self.take_ends(&container.spec.sandbox, false).await;
            }
            return Ok(());
        };
        match link.monitor.signal(signal(&container.spec.id, number, everything)).await {
            Err(CallError::Failed(failed, _)) if failed.not_found => Ok(()),
            sent => sent.map_err(|error| RuntimeError::Monitor("signal container", error)),
        }
    }

    /// Removes a container, whatever it does.
    pub(crate) async fn remove_container(&self, id: &str) -> Result<(), RuntimeError> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        let _turn = container.turn.lock().await;
        let id = container.spec.id.as_str();
        if self.container(id).is_err() {
            return Ok(());
        }
        if container.phase().is_alive() {
            self.kill_container(&container).await?;
        }
        let sandbox = container.spec.sandbox.clone();
        let link = self.sandbox(&sandbox).ok().and_then(|it| it.link().cloned());
        match link {
            Some(link) => match link.monitor.forget(id).await {
                Ok(()) | Err(CallError::Gone | CallError::Unknown) => {}
                Err(error) => return Err(RuntimeError::Monitor("forget container", error)),
            },
            None => {
                if let Some(groups) = groups_of(&container) {
                    self.kill_groups(groups).await;
                }
            }
        }
        let (places, spec) = (self.0.places.clone(), Arc::clone(&container.spec));
        off_thread(move || {
            // The record goes last: as long as it is there, all of this is found again.
            places.remove(&places.launched(&spec.sandbox, &spec.id))?;
            places.remove(&places.container(&spec.id))
        })
        .await?;
        self.table().forget_container(id);
        self.tell(id, &sandbox, EventKind::ContainerDeletedEvent);
        Ok(())
    }

    /// Has a container's log opened anew, after somebody renamed it.
    pub(crate) async fn reopen_log(&self, id: &str) -> Result<(), RuntimeError> {
        let (monitor, id, _) = self.running(id)?;
        let reopened = monitor.reopen_log(&id).await;
        reopened.map_err(|error| RuntimeError::Monitor("reopen log", error))
    }

    /// What there is of a container, for whoever asks.
    pub(crate) fn container_status(
        &self,
        request: &cri::ContainerStatusRequest,
    ) -> Result<cri::ContainerStatusResponse, RuntimeError> {
        let container = self.container(&request.container_id)?;
        let info =
            if request.verbose { answer::container_info(&container) } else { Default::default() };
        let status = answer::container_status(&container);
        Ok(cri::ContainerStatusResponse { status: Some(status), info })
    }

    /// All containers that a filter lets through.
    pub(crate) fn list_containers(
        &self,
        filter: Option<&cri::ContainerFilter>,
    ) -> Vec<cri::Container> {
        let table = self.table();
        let listed = table.containers.values().map(answer::listed_container);
        listed.filter(|it| answer::is_wanted_container(it, filter)).collect()
    }
}

fn signal(container: &str, signal: i32, everything: bool) -> Signal {
    Signal { container: container.to_owned(), command: 0, signal, everything }
}

async fn ended_within(container: &Container, patience: Duration) -> bool {
    let mut phases = container.phase.subscribe();
    let ended = phases.wait_for(|phase| matches!(phase, Phase::Exited { .. }));
    matches!(timeout(patience, ended).await, Ok(Ok(_)))
}

/// The kernel throws away a signal to the first process of a process namespace that has no handler for it. One that has
/// only just begun may have none yet, and would then run until its grace is over: it is waited for, for a moment.
async fn wait_until_heard(container: &Container, grace: Duration) {
    let launch = container.spec.launch.as_ref();
    if launch.is_none_or(|it| it.pid() != PidShare::Container) {
        return;
    }
    let (signal, id) = (container.spec.stop_signal, container.spec.id.clone());
    let hears = async {
        while let Phase::Running(process) = container.phase() {
            let is_deaf = off_thread(move || {
                let read = |name: &str| {
                    let path = format!("/proc/{}/{name}", process.pid);
                    let text = read(Path::new(&path), STATUS_BYTES).unwrap_or_default();
                    String::from_utf8_lossy(&text).into_owned()
                };
                let uptime = read_uptime().unwrap_or(Duration::MAX);
                Ok(is_young(&read("stat"), uptime) && !is_heard(&read("status"), signal))
            });
            if !is_deaf.await.unwrap_or(false) {
                return;
            }
            sleep(GLANCE).await;
        }
    };
    if timeout(YOUTH.min(grace), hears).await.is_err() {
        debug!(container = id, signal, "the first process has no handler for its signal");
    }
}

/// Since when the machine runs.
fn read_uptime() -> Option<Duration> {
    let text = read(Path::new("/proc/uptime"), STATUS_BYTES).ok()?;
    let text = String::from_utf8(text).ok()?;
    Duration::try_from_secs_f64(text.split_whitespace().next()?.parse().ok()?).ok()
}

/// Whether a process began a moment ago, by its line in `/proc`; one that is gone is not young.
fn is_young(stat: &str, uptime: Duration) -> bool {
    // After the name, which may contain anything; in hundredths of a second since the machine runs.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let began = after.split_whitespace().nth(19).and_then(|it| it.parse().ok());
    began.is_some_and(|it: u64| uptime.saturating_sub(Duration::from_millis(it * 10)) < YOUTH)
}

/// Whether a process has a handler for a signal, or has put it off.
fn is_heard(status: &str, signal: i32) -> bool {
    let bit = u32::try_from(signal - 1).unwrap_or(0);
    ["SigCgt:", "SigBlk:"].into_iter().any(|key| {
        let mask = status.lines().find_map(|it| it.strip_prefix(key));
        let mask = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0);
        mask.checked_shr(bit).unwrap_or(0) & 1 == 1
    })
}

/// Who a process is, as its own user namespace counts.
fn user_of(status: &str, users: Option<&IdMaps>) -> Option<UserRecord> {
    let numbers = |key: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|it| it.strip_prefix(key))?;
        line.split_whitespace().map(|it| it.parse().ok()).collect()
    };
    let inside = |id: u32, maps: fn(&IdMaps) -> &Vec<IdMap>| match users {
        None => Some(id),
        Some(users) => maps(users).iter().find_map(|map| {
            let n = id.checked_sub(map.outside).filter(|n| *n < map.length)?;
            map.inside.checked_add(n)
        }),
    };
    Some(UserRecord {
        uid: inside(*numbers("Uid:")?.first()?, |it| &it.uids)?,
        gid: inside(*numbers("Gid:")?.first()?, |it| &it.gids)?,
        groups: numbers("Groups:")?
            .into_iter()
            .filter_map(|it| inside(it, |it| &it.gids))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tsh\nUid:\t1000\t1000\t1000\t1000\nGid:\t50\t50\t50\t50\nGroups:\t50 60 \n";

    #[test]
    fn a_signal_is_heard_by_a_handler_or_later_and_the_young_are_known() {
        let status =
            |caught: &str, blocked: &str| format!("SigBlk:\t{blocked}\nSigCgt:\t{caught}\n");
        let none = "0000000000000000";
        // Bit 14 is signal 15.
        assert!(is_heard(&status("0000000000004000", none), 15));
        assert!(is_heard(&status(none, "0000000000004000"), 15));
        assert!(!is_heard(&status("0000000000004000", none), 14));
        assert!(!is_heard("", 15));
        let stat = |ticks: u64| format!("7 (a ) b) S {}{ticks} 0 0\n", "0 ".repeat(18));
        let uptime = Duration::from_secs(100);
        assert!(is_young(&stat(9_900), uptime));
        assert!(!is_young(&stat(9_700), uptime));
        assert!(!is_young("", uptime));
    }

    #[test]
    fn a_user_is_told_as_the_container_counts() {
        let plain = UserRecord { uid: 1000, gid: 50, groups: vec![50, 60] };
        assert_eq!(user_of(STATUS, None), Some(plain));
        let map = |outside| IdMap { inside: 0, outside, length: 1000 };
        let users = IdMaps { uids: vec![map(900)], gids: vec![map(50)] };
        let mapped = UserRecord { uid: 100, gid: 0, groups: vec![0, 10] };
        assert_eq!(user_of(STATUS, Some(&users)), Some(mapped));
        assert_eq!(user_of("Name:\tsh\n", None), None);
    }
}

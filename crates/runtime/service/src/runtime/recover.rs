//! After a start: everything that an earlier one left is found again.
//!
//! ```text
//!  records of sandboxes and containers ─► table
//!  every monitor, in parallel ─► Snapshot ─► what runs
//!                                 └ nobody answers ─► files `launched` and `exit` ─► what ran
//!  what no record names ─► removed
//! ```
//!
//! A start after a reboot finds an empty run directory, or one of another boot, which it empties: all containers
//! have ended then, nobody knows how. A record that cannot be read is half made, and goes with what it names.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use ferrolet_runtime_images::LayerKey;
use ferrolet_runtime_protocol::record::{ContainerRecord, Exit};
use futures::future::join_all;
use tracing::{info, warn};

use super::{
    Runtime,
    error::RuntimeError,
    files::{Places, names, off_thread, read_node_file, read_record, write},
    phase::Phase,
    record::{ContainerSpec, SandboxRecord, SandboxRun},
    sandboxes::has_own_network,
    table::{Container, Sandbox, SandboxState},
    watch::take_record,
};

/// The code and reason of a container whose end nobody saw, as containerd has them.
const UNKNOWN_CODE: i32 = 255;
const UNKNOWN: &str = "Unknown";
/// The boot that this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What is on disk.
struct Found {
    sandboxes: Vec<(SandboxRecord, Option<SandboxRun>)>,
    containers: Vec<ContainerSpec>,
    /// Pods in the run directory that no record names.
    strays: Vec<String>,
}

impl Runtime {
    pub(super) async fn recover(&self) -> Result<(), RuntimeError> {
        let places = self.0.places.clone();
        let found = off_thread(move || find(&places)).await?;
        for stray in &found.strays {
            info!(sandbox = stray, "a pod that no record names is removed");
            self.kill_monitor(stray).await;
            let (places, stray) = (self.0.places.clone(), stray.clone());
            off_thread(move || places.remove(&places.pod(&stray))).await?;
        }
        let to_reach = self.fill(found).await;
        let reached = to_reach.iter().map(|id| self.reach_again(id.clone()));
        join_all(reached).await;
        self.settle_containers().await;
        if let Err(error) = self.restore_network(&to_reach).await {
            // Its condition says so; pods on the node's network need none, and it is tried again with the next pod.
            warn!(error = &error as &dyn std::error::Error, "pods' network is not restored");
        }
        let table = self.table();
        if !table.sandboxes.is_empty() {
            let (n_sandboxes, n_containers) = (table.sandboxes.len(), table.containers.len());
            info!(n_sandboxes, n_containers, "found what an earlier start left");
        }
        Ok(())
    }

    /// Puts the records into the table; the sandboxes whose monitors should be there.
    async fn fill(&self, found: Found) -> Vec<String> {
        let mut to_reach = Vec::new();
        {
            let mut table = self.table();
            for (record, run) in found.sandboxes {
                let id = record.id.clone();
                if let Err(error) = table.reserve_sandbox(&record.name(), &id) {
                    warn!(
                        sandbox = id,
                        error = &error as &dyn std::error::Error,
                        "two sandboxes have one name"
                    );
                }
                // Without this file it was never whole, or is of another boot.
                if run.as_ref().is_some_and(|it| !it.is_stopped) {
                    to_reach.push(id.clone());
                }
                let connection = run.unwrap_or_default().connection();
                let sandbox = Sandbox {
                    record: Arc::new(record),
                    state: SandboxState::NotReady,
                    connection,
                    turn: Arc::default(),
                };
                table.sandboxes.insert(id, sandbox);
            }
            for spec in found.containers {
                let id = spec.id.clone();
                if let Err(error) = table.reserve_container(&spec.name(), &id) {
                    warn!(
                        container = id,
                        error = &error as &dyn std::error::Error,
                        "two containers have one name"
                    );
                }
                let keys: Vec<LayerKey> =
                    spec.layers.iter().filter_map(|it| LayerKey::from_name(it)).collect();
                let hold = self.0.store.hold(&keys);
                if let Err(error) = &hold {
                    warn!(
                        container = id,
                        error = error as &dyn std::error::Error,
                        "layers of a container are gone"
                    );
                }
                table.containers.insert(id, Container::new(spec, Phase::Unknown, hold.ok()));
            }
        }
        to_reach
    }

    /// Connects to a monitor that should be there. One that lives and does not answer is asked again for as long.
    async fn reach_again(&self, sandbox: String) {
        match self.reach(&sandbox).await {
            Ok((link, events)) => {
                if let Some(entry) = self.table().sandboxes.get_mut(&sandbox) {
                    entry.state = SandboxState::Ready(Arc::clone(&link));
                }
                self.watch(sandbox, link, events);
            }
            Err(_) => {
                let runtime = self.clone();
                // Its end is noted by then, if that is what it is.
                let again = async move {
                    if let Some((link, events)) = runtime.connect_again(&sandbox).await {
                        runtime.watch(sandbox, link, events);
                    }
                };
                let task = tokio::spawn(again);
                // A monitor that is dead is known to be before anybody can ask.
                let _lives = tokio::time::timeout(super::watch::ANSWER, task).await;
            }
        }
    }

    /// Containers that no monitor told of are what the files say.
    async fn settle_containers(&self) {
        let all: Vec<Container> = self.table().containers.values().cloned().collect();
        for container in all {
            let (places, spec) = (self.0.places.clone(), Arc::clone(&container.spec));
            let (exit, launched, user, has_pod) = off_thread(move || {
                let directory = places.launched(&spec.sandbox, &spec.id);
                let record = |name: &str| read_record::<ContainerRecord>(&directory.join(name));
                let user = read_record(&directory.join("user"));
                let has_pod = places.pod(&spec.sandbox).join("sandbox").exists();
                Ok((record("exit"), record("launched"), user, has_pod))
            })
            .await
            .unwrap_or((None, None, None, false));
            if let Some(entry) = self.table().containers.get_mut(&container.spec.id) {
                entry.user = user;
            }
            if container.phase() != Phase::Unknown {
                continue;
            }
            let is_ready =
                self.sandbox(&container.spec.sandbox).is_ok_and(|it| it.link().is_some());
            match (exit.or(launched), has_pod) {
                (Some(record), _) if record.exit.is_some() => take_record(&container, &record),
                // Its monitor may still answer.
                (Some(_), _) => {}
                (None, true) if is_ready => {
                    container.phase.send_replace(Phase::Created);
                }
                (None, _) => {
                    let exit = Exit {
                        code: UNKNOWN_CODE,
                        finished_at: self.now(),
                        reason: UNKNOWN.to_owned(),
                        ..Exit::default()
                    };
                    container.phase.send_modify(|phase| *phase = phase.clone().ended(exit));
                }
            }
        }
    }

    /// Sandboxes that somebody has begun to stop have no network any more. Those whose monitor is dead, or does not
    /// answer at the moment, keep theirs until they are stopped.
    async fn restore_network(&self, not_stopped: &[String]) -> Result<(), RuntimeError> {
        let connections = {
            let table = self.table();
            let mut own: Vec<&Sandbox> = not_stopped
                .iter()
                .filter_map(|id| table.sandboxes.get(id))
                .filter(|it| has_own_network(&it.record))
                .collect();
            // Addresses are given away after the last one that was.
            own.sort_by_key(|it| it.record.created_at);
            own.into_iter().map(|it| it.connection.clone()).collect()
        };
        Ok(self.0.network.restore(connections).await?)
    }
}

/// Reads everything, and removes what is half made.
fn find(places: &Places) -> Result<Found, RuntimeError> {
    places.make()?;
    begin_boot(places)?;
    for name in names(&places.removed())? {
        places.remove(&places.removed().join(name))?;
    }
    let mut sandboxes = Vec::new();
    for id in names(&places.sandboxes())? {
        match read_record::<SandboxRecord>(&places.sandbox(&id).join("spec")) {
            Some(record) if record.id == id => {
                sandboxes.push((record, read_record(&places.pod(&id).join("sandbox"))));
            }
            _ => places.remove(&places.sandbox(&id))?,
        }
    }
    let known: BTreeSet<String> = sandboxes.iter().map(|(it, _)| it.id.clone()).collect();
    let mut containers = Vec::new();
    for id in names(&places.containers())? {
        match read_record::<ContainerSpec>(&places.container(&id).join("spec")) {
            Some(spec) if spec.id == id && known.contains(&spec.sandbox) => containers.push(spec),
            _ => places.remove(&places.container(&id))?,
        }
    }
    let pods = names(&places.pods())?;
    let strays = pods.into_iter().filter(|it| !known.contains(it)).collect();
    Ok(Found { sandboxes, containers, strays })
}

/// A run directory that survived a reboot describes nothing that runs.
fn begin_boot(places: &Places) -> Result<(), RuntimeError> {
    let boot = read_node_file(Path::new(BOOT_ID))?;
    let noted = places.run.join("boot-id");
    if read_node_file(&noted)? != boot {
        for pod in names(&places.pods())? {
            places.remove(&places.pod(&pod))?;
        }
        write(&noted, &boot, 0o600)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::files::{make_directory, write_record};

    fn places(place: &tempfile::TempDir) -> Places {
        let places = Places { root: place.path().join("root"), run: place.path().join("run") };
        places.make().unwrap();
        places
    }

    #[test]
    fn what_is_half_made_goes_and_what_is_whole_is_found() {
        let place = tempfile::tempdir().unwrap();
        let places = places(&place);
        begin_boot(&places).unwrap();
        let sandbox = SandboxRecord { id: "s1".to_owned(), ..Default::default() };
        make_directory(&places.sandbox("s1")).unwrap();
        write_record(&places.sandbox("s1").join("spec"), &sandbox).unwrap();
        make_directory(&places.sandbox("half")).unwrap();
        let container = |id: &str, sandbox: &str| ContainerSpec {
            id: id.to_owned(),
            sandbox: sandbox.to_owned(),
            ..Default::default()
        };
        for spec in [container("c1", "s1"), container("c2", "gone")] {
            make_directory(&places.container(&spec.id)).unwrap();
            write_record(&places.container(&spec.id).join("spec"), &spec).unwrap();
        }
        make_directory(&places.container("half/upper")).unwrap();
        make_directory(&places.pod("stray")).unwrap();
        make_directory(&places.pod("s1")).unwrap();
        let found = find(&places).unwrap();
        assert_eq!(found.sandboxes, [(sandbox, None)]);
        assert_eq!(found.containers, [container("c1", "s1")]);
        assert_eq!(found.strays, ["stray"]);
        assert_eq!(names(&places.sandboxes()).unwrap(), ["s1"]);
        assert_eq!(names(&places.containers()).unwrap(), ["c1"]);
    }

    #[test]
    fn another_boot_empties_the_run_directory() {
        let place = tempfile::tempdir().unwrap();
        let places = places(&place);
        begin_boot(&places).unwrap();
        make_directory(&places.pod("s1")).unwrap();
        begin_boot(&places).unwrap();
        assert_eq!(names(&places.pods()).unwrap(), ["s1"]);
        write(&places.run.join("boot-id"), b"another", 0o600).unwrap();
        begin_boot(&places).unwrap();
        assert!(names(&places.pods()).unwrap().is_empty());
    }
}

//! Sandboxes made, stopped and removed. Stopping and removing what is not there is done already.

use std::{path::Path, sync::Arc, time::Duration};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_client::Monitor;
use ferrolet_runtime_monitor::cgroups;
use ferrolet_runtime_plan::{
    Refusal,
    sandbox::{SandboxPlace, sandbox as plan_sandbox},
};
use ferrolet_runtime_protocol::message::Namespace;
use tokio::{sync::mpsc, time::timeout};
use tracing::warn;

use super::{
    Runtime, answer,
    error::RuntimeError,
    events::EventKind,
    files::{disk, make_directory, off_thread, write_record},
    network::{Connection, HostPort, PortProtocol, SandboxIdentity},
    new_id, pod_files,
    record::{SandboxRecord, SandboxRun, sandbox_name},
    table::{Link, Sandbox, SandboxState},
};

/// How long a monitor may take to make its namespaces.
const MAKING: Duration = Duration::from_secs(30);
/// How long a monitor may take to kill everything and leave: a little longer than it tries itself.
const ENDING: Duration = Duration::from_secs(15);
/// Names of handlers that mean this runtime.
const HANDLERS: [&str; 2] = ["", "ferrolet"];

/// What a monitor tells unasked.
type MonitorEvents = mpsc::Receiver<ferrolet_runtime_protocol::message::Event>;

impl Runtime {
    /// Makes a sandbox; its id.
    pub(crate) async fn run_sandbox(
        &self,
        request: cri::RunPodSandboxRequest,
    ) -> Result<String, RuntimeError> {
        let config = request.config.ok_or(Refusal::Missing("the sandbox's configuration"))?;
        let metadata = config.metadata.clone().unwrap_or_default();
        if metadata.name.is_empty() || metadata.namespace.is_empty() {
            return Err(Refusal::Missing("the sandbox's metadata (name and namespace)").into());
        }
        if !HANDLERS.contains(&request.runtime_handler.as_str()) {
            return Err(RuntimeError::NoHandler(request.runtime_handler));
        }
        let id = new_id()?;
        let directory = self.0.places.pod(&id);
        let place = SandboxPlace {
            id: &id,
            directory: directory
                .to_str()
                .ok_or(Refusal::Unsupported("a run directory that is not UTF-8"))?,
            hierarchies: &self.0.settings.hierarchies,
            cgroup_parent: &self.0.settings.cgroup_parent,
        };
        let record = SandboxRecord {
            spec: Some(plan_sandbox(&config, place)?),
            hostname: pod_files::hostname(&config),
            created_at: self.now(),
            runtime_handler: request.runtime_handler,
            config: Some(config),
            id: id.clone(),
        };
        self.table().reserve_sandbox(&sandbox_name(&metadata), &id)?;
        match self.make_sandbox(record).await {
            Ok(()) => Ok(id),
            Err(error) => {
                // Whatever was made goes, and the name is free again.
                if let Err(left) = self.clear_unmade(&id).await {
                    warn!(
                        sandbox = id,
                        error = &left as &dyn std::error::Error,
                        "something is left of a sandbox that could not be made"
                    );
                }
                self.table().forget_sandbox(&id);
                Err(error)
            }
        }
    }

    async fn clear_unmade(&self, id: &str) -> Result<(), RuntimeError> {
        if let Ok(sandbox) = self.sandbox(id) {
            self.0.network.tear_down(sandbox.connection).await?;
        }
        self.clear_sandbox(id).await
    }

    async fn make_sandbox(&self, record: SandboxRecord) -> Result<(), RuntimeError> {
        let id = record.id.clone();
        let record = Arc::new(record);
        let sandbox = Sandbox {
            record: Arc::clone(&record),
            state: SandboxState::Starting,
            connection: Connection::default(),
            turn: Arc::default(),
        };
        // Whoever stops or removes it meanwhile waits for its turn.
        let _turn = Arc::clone(&sandbox.turn).lock_owned().await;
        self.table().sandboxes.insert(id.clone(), sandbox);
        self.tell(&id, &id, EventKind::ContainerCreatedEvent);
        let (places, written) = (self.0.places.clone(), Arc::clone(&record));
        off_thread(move || {
            let (own, pod) = (places.sandbox(&written.id), places.pod(&written.id));
            let config = written.config();
            make_directory(&own)?;
            make_directory(&pod)?;
            pod_files::write_all(&pod, &config, &written.hostname)?;
            make_log_directory(&config)?;
            write_record(&own.join("spec"), &*written)
        })
        .await?;
        let spec = record.spec.clone().unwrap_or_default();
        self.0.spawners.spawn(spec).await?;
        let (link, events) = self.connect(&id, MAKING).await?;
        let connection = match &link.network {
            Some(namespace) => {
                let namespace = namespace.try_clone();
                let namespace = namespace.map_err(disk("copy", Path::new("network namespace")))?;
                self.0.network.set_up(identity(&record), namespace).await?
            }
            None => Connection::default(),
        };
        // From here on it is found by whoever takes this down.
        if let Some(sandbox) = self.table().sandboxes.get_mut(&id) {
            sandbox.connection = connection.clone();
        }
        self.write_run(&id, &connection, false).await?;
        if let Some(sandbox) = self.table().sandboxes.get_mut(&id) {
            sandbox.state = SandboxState::Ready(Arc::clone(&link));
        }
        self.watch(id.clone(), link, events);
        self.tell(&id, &id, EventKind::ContainerStartedEvent);
        Ok(())
    }

    /// Connects to a sandbox's monitor, once its namespaces are there.
    pub(super) async fn connect(
        &self,
        sandbox: &str,
        patience: Duration,
    ) -> Result<(Arc<Link>, MonitorEvents), RuntimeError> {
        let directory = self.0.places.pod(sandbox);
        let overdue = |_| RuntimeError::Overdue {
            attempt: "connect to monitor",
            seconds: patience.as_secs(),
        };
        let (monitor, greeting) =
            timeout(patience, Monitor::connect(&directory)).await.map_err(overdue)??;
        let mut namespaces = greeting.namespaces.into_iter();
        let network = namespaces.find(|(kind, _)| *kind == Namespace::Network).map(|(_, it)| it);
        let link = Link { monitor, pid: greeting.hello.pid, network };
        Ok((Arc::new(link), greeting.events))
    }

    /// Writes down what goes with the kernel.
    async fn write_run(
        &self,
        sandbox: &str,
        connection: &Connection,
        is_stopped: bool,
    ) -> Result<(), RuntimeError> {
        let path = self.0.places.pod(sandbox).join("sandbox");
        let run = SandboxRun::new(connection, is_stopped);
        off_thread(move || write_record(&path, &run)).await
    }

    /// Ends everything in a sandbox and takes its network back.
    pub(crate) async fn stop_sandbox(&self, id: &str) -> Result<(), RuntimeError> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let _turn = sandbox.turn.lock().await;
        let id = sandbox.record.id.as_str();
        // It may have been stopped or removed while this waited.
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let link = sandbox.link().cloned();
        let was_ready = link.is_some();
        if was_ready {
            // From here on it is not ready, also for a service that is started in the middle of this.
            self.write_run(id, &sandbox.connection, true).await?;
            self.set_not_ready(id);
        }
        self.end_monitor(id, link.as_deref()).await;
        // The link's descriptor keeps the namespace until here, without anybody in it.
        self.0.network.tear_down(sandbox.connection.clone()).await?;
        if was_ready {
            self.tell(id, id, EventKind::ContainerStoppedEvent);
        }
        Ok(())
    }

    pub(super) fn set_not_ready(&self, id: &str) {
        if let Some(sandbox) = self.table().sandboxes.get_mut(id) {
            sandbox.state = SandboxState::NotReady;
        }
    }

    /// Has a monitor kill everything and leave; one that does not is killed, with everything in its pod.
    async fn end_monitor(&self, id: &str, link: Option<&Link>) {
        if let Some(link) = link {
            match timeout(ENDING, link.monitor.end()).await {
                Ok(Ok(())) => {
                    // What it wrote down counts, whether or not its events were read by now.
                    return self.take_ends(id, false).await;
                }
                Ok(Err(error)) => {
                    warn!(
                        sandbox = id,
                        error = &error as &dyn std::error::Error,
                        "could not tell the monitor to end"
                    );
                }
                Err(_) => warn!(sandbox = id, "the monitor did not end in time and is killed"),
            }
        }
        self.kill_monitor(id).await;
        self.take_ends(id, true).await;
    }

    /// Removes a sandbox with its containers.
    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<(), RuntimeError> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let id = sandbox.record.id.clone();
        self.stop_sandbox(&id).await?;
        for container in self.containers_of(&id) {
            self.remove_container(&container.spec.id).await?;
        }
        let _turn = sandbox.turn.lock().await;
        self.clear_sandbox(&id).await?;
        self.table().forget_sandbox(&id);
        self.tell(&id, &id, EventKind::ContainerDeletedEvent);
        Ok(())
    }

    /// Removes what is on disk of a sandbox, and its monitor if there still is one.
    pub(super) async fn clear_sandbox(&self, id: &str) -> Result<(), RuntimeError> {
        self.kill_monitor(id).await;
        let (places, record) = (self.0.places.clone(), self.sandbox(id).ok());
        let id = id.to_owned();
        off_thread(move || {
            let spec = record.and_then(|it| it.record.spec.clone());
            if let Some(groups) = spec.and_then(|it| it.init_cgroups) {
                cgroups::kill(&groups);
                let _stays = cgroups::remove(&groups);
            }
            // The record goes last: as long as it is there, all of this is found again.
            places.remove(&places.pod(&id))?;
            places.remove(&places.sandbox(&id))
        })
        .await
    }

    /// What there is of a sandbox, for whoever asks.
    pub(crate) fn sandbox_status(
        &self,
        request: &cri::PodSandboxStatusRequest,
    ) -> Result<cri::PodSandboxStatusResponse, RuntimeError> {
        let table = self.table();
        let sandbox = table.sandbox(&request.pod_sandbox_id)?;
        let containers = table.containers_of(&sandbox.record.id);
        let info = if request.verbose { answer::sandbox_info(sandbox) } else { Default::default() };
        Ok(cri::PodSandboxStatusResponse {
            status: Some(answer::sandbox_status(sandbox)),
            info,
            containers_statuses: containers.iter().map(answer::container_status).collect(),
            timestamp: self.now(),
        })
    }

    /// All sandboxes that a filter lets through.
    pub(crate) fn list_sandboxes(
        &self,
        filter: Option<&cri::PodSandboxFilter>,
    ) -> Vec<cri::PodSandbox> {
        let table = self.table();
        let listed = table.sandboxes.values().map(answer::listed_sandbox);
        listed.filter(|it| answer::is_wanted_sandbox(it, filter)).collect()
    }
}

/// Whether a pod has a network namespace of its own.
pub(super) fn has_own_network(record: &SandboxRecord) -> bool {
    let share = record.spec.as_ref().map(ferrolet_runtime_protocol::sandbox::SandboxSpec::network);
    share == Some(ferrolet_runtime_protocol::sandbox::Share::Pod)
}

/// A sandbox as its network knows it.
pub(super) fn identity(record: &SandboxRecord) -> SandboxIdentity {
    let config = record.config();
    let metadata = config.metadata.unwrap_or_default();
    let host_port = |it: &cri::PortMapping| {
        Some(HostPort {
            protocol: match it.protocol() {
                cri::Protocol::Tcp => PortProtocol::Tcp,
                cri::Protocol::Udp => PortProtocol::Udp,
                cri::Protocol::Sctp => PortProtocol::Sctp,
            },
            host_ip: it.host_ip.parse().ok(),
            host_port: u16::try_from(it.host_port).ok().filter(|it| *it > 0)?,
            container_port: u16::try_from(it.container_port).ok().filter(|it| *it > 0)?,
        })
    };
    SandboxIdentity {
        id: record.id.clone(),
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        host_ports: config.port_mappings.iter().filter_map(host_port).collect(),
        annotations: config.annotations,
    }
}

/// A kubelet has made it; `crictl` has not.
fn make_log_directory(config: &cri::PodSandboxConfig) -> Result<(), RuntimeError> {
    if config.log_directory.is_empty() {
        return Ok(());
    }
    let path = Path::new(&config.log_directory);
    std::fs::create_dir_all(path).map_err(disk("make log directory", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_the_node_are_those_that_are_given() {
        let port = |container_port, host_port, host_ip: &str| cri::PortMapping {
            protocol: cri::Protocol::Udp.into(),
            container_port,
            host_port,
            host_ip: host_ip.to_owned(),
        };
        let config = cri::PodSandboxConfig {
            port_mappings: vec![port(53, 5353, "127.0.0.1"), port(80, 0, ""), port(70_000, 1, "")],
            ..Default::default()
        };
        let record = SandboxRecord { config: Some(config), ..Default::default() };
        let expected = HostPort {
            protocol: PortProtocol::Udp,
            host_ip: Some("127.0.0.1".parse().unwrap()),
            host_port: 5353,
            container_port: 53,
        };
        assert_eq!(identity(&record).host_ports, [expected]);
    }
}

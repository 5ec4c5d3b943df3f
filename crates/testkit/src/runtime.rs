//! The fake container runtime: containerd's manners without containerd.
//!
//! It keeps what it is told, as the real one does: a name (pod, container, attempt) stays taken
//! until it is removed, a container needs a ready sandbox and a present image, a start that fails
//! leaves a dead container behind, stopping and removing what is not there succeeds. It refuses
//! specifications without the kubelet's labels, because a real listing would never show them again.

use std::time::Duration;

use ferrolet_ports::{
    CgroupDriver, ExecOutput, Fut, PodBounds, Runtime, RuntimeCondition, RuntimeError,
    RuntimeErrorKind, RuntimeEventKind, RuntimeEvents, RuntimeHandler, RuntimeListing,
    RuntimeStatus, RuntimeVersion,
};
use ferrolet_spec::{ContainerSpec, LinuxResources, NamespaceMode, SandboxSpec};
use ferrolet_types::observed::{ContainerState, Exit, PodObservation};
use ferrolet_types::{ContainerId, GracePeriod, PodUid, SandboxId};
use tokio::time::Instant;

use crate::faults::Fault;
use crate::observe::{self, CONTAINER_NAME_LABEL, POD_UID_LABEL};
use crate::state::State;
use crate::{Act, Call, FakeContainer, FakeEventStream, FakeSandbox, Script, World};

/// The runtime port on a [`World`].
pub struct FakeRuntime {
    world: World,
}

impl FakeRuntime {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }

    fn owner_of_sandbox(&self, id: &SandboxId) -> Option<PodUid> {
        self.world.look(|state| state.sandbox(id).map(|it| it.spec.uid.clone()))
    }

    fn owner_of(&self, id: &ContainerId) -> Option<PodUid> {
        self.world.look(|state| state.container(id).map(|it| it.uid.clone()))
    }

    /// One whole call: through the gate, the deed, the way back.
    async fn call<T>(
        &self,
        call: Call,
        uid: Option<PodUid>,
        deed: impl FnOnce(&mut State) -> Result<T, Fault>,
    ) -> Result<T, RuntimeError> {
        let guard = self.world.enter(call, uid).await;
        let guard = guard.map_err(|fault| fault.of_runtime(call))?;
        // Only a changing call wakes those who wait for a change, or two readers would keep each
        // other awake.
        let answer =
            if call.is_change() { self.world.change(deed) } else { self.world.quietly(deed) };
        self.world.leave(guard).await;
        answer.map_err(|fault| fault.of_runtime(call))
    }
}

impl Runtime for FakeRuntime {
    fn version(&self) -> Fut<'_, Result<RuntimeVersion, RuntimeError>> {
        Box::pin(self.call(Call::Version, None, |_| {
            Ok(RuntimeVersion {
                name: "containerd".to_owned(),
                version: "v2.0.0-fake".to_owned(),
                api_version: "v1".to_owned(),
            })
        }))
    }

    fn status(&self) -> Fut<'_, Result<RuntimeStatus, RuntimeError>> {
        Box::pin(self.call(Call::Status, None, |state| {
            let well =
                RuntimeCondition { is_ok: true, reason: String::new(), message: String::new() };
            let network = state.network_trouble.clone();
            Ok(RuntimeStatus {
                runtime: well.clone(),
                network: network.unwrap_or(well),
                handlers: vec![RuntimeHandler {
                    name: String::new(),
                    recursive_read_only_mounts: true,
                    user_namespaces: true,
                }],
                has_supplemental_groups_policy: true,
                cgroup_driver: Some(CgroupDriver::Cgroupfs),
            })
        }))
    }

    fn list(&self) -> Fut<'_, Result<RuntimeListing, RuntimeError>> {
        Box::pin(self.call(Call::List, None, |state| Ok(observe::list(state))))
    }

    fn observe_pod<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<PodObservation, RuntimeError>> {
        Box::pin(async move {
            // The question's time, not the answer's: what happens in between may be missing.
            let asked_at = self.world.now();
            let observe = |state: &mut State| Ok(observe::observe(state, uid, asked_at));
            self.call(Call::ObservePod, Some(uid.clone()), observe).await
        })
    }

    fn events(&self) -> Fut<'_, Result<Box<dyn RuntimeEvents>, RuntimeError>> {
        Box::pin(async move {
            let open = |state: &mut State| {
                if state.faults.has_no_events {
                    let message = "unknown method GetContainerEvents for service \
                                   runtime.v1.RuntimeService";
                    return Err(Fault::new(RuntimeErrorKind::Unimplemented, message));
                }
                Ok(FakeEventStream::open(self.world.clone(), state))
            };
            let stream = self.call(Call::Events, None, open).await?;
            Ok(Box::new(stream) as Box<dyn RuntimeEvents>)
        })
    }

    fn run_sandbox<'a>(
        &'a self,
        spec: &'a SandboxSpec,
    ) -> Fut<'a, Result<SandboxId, RuntimeError>> {
        let uid = Some(spec.uid.clone());
        Box::pin(self.call(Call::RunSandbox, uid, |state| run_sandbox(state, spec)))
    }

    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let uid = self.owner_of_sandbox(id);
            let stop = |state: &mut State| {
                state.stop_sandbox(id);
                Ok(())
            };
            self.call(Call::StopSandbox, uid, stop).await
        })
    }

    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let uid = self.owner_of_sandbox(id);
            let remove = |state: &mut State| {
                state.remove_sandbox(id);
                Ok(())
            };
            self.call(Call::RemoveSandbox, uid, remove).await
        })
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        sandbox_spec: &'a SandboxSpec,
        spec: &'a ContainerSpec,
    ) -> Fut<'a, Result<ContainerId, RuntimeError>> {
        let uid = Some(sandbox_spec.uid.clone());
        Box::pin(self.call(Call::CreateContainer, uid, |state| {
            create_container(state, sandbox, sandbox_spec, spec)
        }))
    }

    fn start_container<'a>(&'a self, id: &'a ContainerId) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let uid = self.owner_of(id);
            let start = |state: &mut State| start_container(state, id);
            self.call(Call::StartContainer, uid, start).await
        })
    }

    fn stop_container<'a>(
        &'a self,
        id: &'a ContainerId,
        grace: GracePeriod,
    ) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let call = Call::StopContainer;
            let guard = self.world.enter(call, self.owner_of(id)).await;
            let guard = guard.map_err(|fault| fault.of_runtime(call))?;
            self.world.change(|state| state.signal(id, grace));
            // Whoever is dropped during this wait has signalled, but the kill never comes.
            let has_ended = |state: &State| {
                let container = state.container(id);
                container.is_none_or(|it| !it.state.is_running())
            };
            let deadline = Instant::now() + grace.0;
            if !self.world.wait(deadline, has_ended).await {
                self.world.change(|state| state.kill(id, 137, "Error"));
            }
            self.world.leave(guard).await;
            Ok(())
        })
    }

    fn remove_container<'a>(&'a self, id: &'a ContainerId) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let uid = self.owner_of(id);
            let remove = |state: &mut State| {
                state.remove_container(id);
                Ok(())
            };
            self.call(Call::RemoveContainer, uid, remove).await
        })
    }

    fn update_container<'a>(
        &'a self,
        id: &'a ContainerId,
        resources: &'a LinuxResources,
    ) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let uid = self.owner_of(id);
            let update = |state: &mut State| update_container(state, id, resources);
            self.call(Call::UpdateContainer, uid, update).await
        })
    }

    fn announce_resources<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        _bounds: PodBounds<'a>,
    ) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(async move {
            let uid = self.owner_of_sandbox(sandbox);
            self.call(Call::AnnounceResources, uid, |_| Ok(())).await
        })
    }

    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        timeout: Duration,
    ) -> Fut<'a, Result<ExecOutput, RuntimeError>> {
        Box::pin(async move {
            let uid = self.owner_of(id);
            let begin = |state: &mut State| exec(state, id, command);
            let (takes, output) = self.call(Call::Exec, uid, begin).await?;
            if takes > timeout && !timeout.is_zero() {
                tokio::time::sleep(timeout).await;
                let message = format!("command {command:?} timed out");
                return Err(
                    Fault::new(RuntimeErrorKind::DeadlineExceeded, message).of_runtime(Call::Exec)
                );
            }
            tokio::time::sleep(takes).await;
            Ok(output)
        })
    }

    fn set_pod_cidr<'a>(&'a self, cidr: &'a str) -> Fut<'a, Result<(), RuntimeError>> {
        Box::pin(self.call(Call::SetPodCidr, None, |state| {
            state.pod_cidr = Some(cidr.to_owned());
            Ok(())
        }))
    }
}

/// As the real one: only a running container can be bounded anew.
fn update_container(
    state: &mut State,
    id: &ContainerId,
    resources: &LinuxResources,
) -> Result<(), Fault> {
    let found = state.containers.iter_mut().find(|it| it.id == *id);
    let container = found.ok_or_else(|| not_found("container", id.as_str()))?;
    if !container.state.is_running() {
        let message = format!("failed to update resources: container {id} is not running");
        return Err(Fault::new(RuntimeErrorKind::Unknown, message));
    }
    container.spec.resources = resources.clone();
    let (uid, name) = (container.uid.clone(), container.spec.name.clone());
    let act = Act::ContainerBounded {
        name,
        memory: resources.memory_limit,
        cpu_quota: resources.cpu_quota,
    };
    state.write(Some(&uid), act);
    Ok(())
}

fn not_found(what: &str, id: &str) -> Fault {
    let message = format!("an error occurred when try to find {what} {id:?}: not found");
    Fault::new(RuntimeErrorKind::NotFound, message)
}

fn reserved(what: &str, name: &str, id: &str) -> Fault {
    let message =
        format!("failed to reserve {what} name {name:?}: name {name:?} is reserved for {id:?}");
    Fault::new(RuntimeErrorKind::Unknown, message)
}

fn run_sandbox(state: &mut State, spec: &SandboxSpec) -> Result<SandboxId, Fault> {
    if spec.labels.get(POD_UID_LABEL).map(String::as_str) != Some(spec.uid.as_str()) {
        let message = format!("sandbox of {} has no label {POD_UID_LABEL}", spec.key);
        return Err(Fault::new(RuntimeErrorKind::InvalidArgument, message));
    }
    let taken = state
        .sandboxes
        .iter()
        .find(|it| it.spec.uid == spec.uid && it.spec.attempt == spec.attempt);
    if let Some(taken) = taken {
        let name = format!("{}_{}_{}", spec.key, spec.uid, spec.attempt);
        return Err(reserved("sandbox", &name, taken.id.as_str()));
    }
    let number = state.next_id();
    let id = SandboxId::new(format!("sandbox-{number}"));
    let ips = match spec.security.namespaces.network {
        NamespaceMode::Node => Vec::new(),
        NamespaceMode::Pod | NamespaceMode::Container | NamespaceMode::Target => {
            vec![format!("10.88.{}.{}", number / 250, number % 250 + 2)]
        }
    };
    state.sandboxes.push(FakeSandbox {
        id: id.clone(),
        spec: spec.clone(),
        is_ready: true,
        created_at: state.now(),
        ips,
    });
    let attempt = spec.attempt;
    let act = Act::SandboxRan { id: id.clone(), attempt };
    state.write(Some(&spec.uid), act);
    state.emit(&spec.uid, id.as_str(), RuntimeEventKind::Created);
    state.emit(&spec.uid, id.as_str(), RuntimeEventKind::Started);
    Ok(id)
}

fn create_container(
    state: &mut State,
    sandbox_id: &SandboxId,
    sandbox_spec: &SandboxSpec,
    spec: &ContainerSpec,
) -> Result<ContainerId, Fault> {
    let sandbox = state.sandbox(sandbox_id).cloned();
    let sandbox = sandbox.ok_or_else(|| not_found("sandbox", sandbox_id.as_str()))?;
    let uid = sandbox_spec.uid.clone();
    let label = |name: &str| spec.labels.get(name).map(String::as_str);
    if label(POD_UID_LABEL) != Some(uid.as_str())
        || label(CONTAINER_NAME_LABEL) != Some(spec.name.as_str())
        || sandbox.spec.uid != uid
    {
        let message = format!("container {} lacks its pod's labels or sandbox", spec.name);
        return Err(Fault::new(RuntimeErrorKind::InvalidArgument, message));
    }
    if !sandbox.is_ready {
        let message = format!("sandbox container {:?} is not running", sandbox_id.as_str());
        return Err(Fault::new(RuntimeErrorKind::Unknown, message));
    }
    if state.images.find(&spec.image_ref).is_none() {
        let message = format!("failed to resolve image {:?}: not found", spec.image_ref);
        return Err(Fault::new(RuntimeErrorKind::NotFound, message));
    }
    let taken = state
        .containers
        .iter()
        .find(|it| it.uid == uid && it.spec.name == spec.name && it.spec.attempt == spec.attempt);
    if let Some(taken) = taken {
        let name = format!("{}_{}_{uid}_{}", spec.name, sandbox_spec.key, spec.attempt);
        return Err(reserved("container", &name, taken.id.as_str()));
    }
    let script = state.scripts.take(&sandbox.spec.key, spec);
    if let Script::FailsToCreate(message) = script {
        return Err(Fault::new(RuntimeErrorKind::Unknown, message));
    }
    let id = ContainerId::new(format!("container-{}", state.next_id()));
    let log_path = sandbox.spec.log_directory.join(&spec.log_path);
    state.containers.push(FakeContainer {
        id: id.clone(),
        sandbox: sandbox_id.clone(),
        uid: uid.clone(),
        key: sandbox.spec.key,
        spec: spec.clone(),
        state: ContainerState::Created,
        created_at: state.now(),
        log_path: log_path.to_string_lossy().into_owned(),
        script,
        doom: None,
    });
    let act = Act::ContainerCreated {
        id: id.clone(),
        name: spec.name.clone(),
        attempt: spec.attempt,
        sandbox: sandbox_id.clone(),
    };
    state.write(Some(&uid), act);
    state.emit(&uid, id.as_str(), RuntimeEventKind::Created);
    Ok(id)
}

fn start_container(state: &mut State, id: &ContainerId) -> Result<(), Fault> {
    let container = state.container(id).cloned();
    let container = container.ok_or_else(|| not_found("container", id.as_str()))?;
    let sandbox = state.sandbox(&container.sandbox);
    let trouble = match &container.state {
        ContainerState::Created if sandbox.is_some_and(|it| it.is_ready) => None,
        ContainerState::Created => Some("its sandbox is not running".to_owned()),
        other => Some(format!("container is in state {other:?}")),
    };
    if let Some(trouble) = trouble {
        let message = format!("failed to start container {:?}: {trouble}", id.as_str());
        return Err(Fault::new(RuntimeErrorKind::Unknown, message));
    }
    let (now, uid, name) = (state.now(), container.uid, container.spec.name);
    // The log is opened before the process is, so a start that fails leaves one too.
    state.files.touch_log(container.log_path);
    if let Script::FailsToStart(message) = container.script {
        state.container_mut(id).expect("looked up above").state = ContainerState::Exited(Exit {
            started_at: None,
            finished_at: now,
            code: 128,
            reason: "StartError".to_owned(),
            message: message.clone(),
        });
        let id = id.clone();
        state.write(Some(&uid), Act::ContainerFailedToStart { id, name });
        return Err(Fault::new(RuntimeErrorKind::Unknown, message));
    }
    state.container_mut(id).expect("looked up above").state =
        ContainerState::Running { started_at: now };
    let act = Act::ContainerStarted { id: id.clone(), name };
    state.write(Some(&uid), act);
    state.emit(&uid, id.as_str(), RuntimeEventKind::Started);
    if let Some(fate) = container.script.fate() {
        state.doom(id, fate);
        state.settle();
    }
    Ok(())
}

fn exec(
    state: &State,
    id: &ContainerId,
    command: &[String],
) -> Result<(Duration, ExecOutput), Fault> {
    let container = state.container(id);
    let container = container.ok_or_else(|| not_found("container", id.as_str()))?;
    if !container.state.is_running() {
        let message = format!("container is in state {:?}", container.state);
        return Err(Fault::new(RuntimeErrorKind::Unknown, message));
    }
    let answer = state.exec_answers.get(&container.spec.name).cloned();
    Ok(answer.unwrap_or_else(|| {
        let is_false = command.first().is_some_and(|word| word == "false");
        let output =
            ExecOutput { code: i32::from(is_false), stdout: Vec::new(), stderr: Vec::new() };
        (Duration::ZERO, output)
    }))
}

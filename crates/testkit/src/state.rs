//! What is in the world, and the few transitions that keep it consistent. Always behind
//! [`World`](crate::World)'s lock.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ferrolet_ports::{
    Event, ExecOutput, RuntimeCondition, RuntimeError, RuntimeEvent, RuntimeEventKind,
};
use ferrolet_resources::{ClassBounds, PodCgroup};
use ferrolet_spec::{ContainerSpec, SandboxSpec};
use ferrolet_types::observed::{ContainerState, Exit};
use ferrolet_types::{
    ContainerId, ContainerName, GracePeriod, PodKey, PodUid, SandboxId, Timestamp,
};

use crate::faults::Faults;
use crate::files::Files;
use crate::images::Store;
use crate::script::{Fate, Scripts};
use crate::{Act, Call, Entry, Script};

/// A sandbox of the fake runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeSandbox {
    /// Its handle.
    pub id: SandboxId,
    /// What was asked for.
    pub spec: SandboxSpec,
    /// True until it is stopped.
    pub is_ready: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its addresses; gone once it is stopped.
    pub ips: Vec<String>,
}

/// A container of the fake runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeContainer {
    /// Its handle.
    pub id: ContainerId,
    /// Its sandbox.
    pub sandbox: SandboxId,
    /// Its pod.
    pub uid: PodUid,
    /// Its pod's namespace and name.
    pub key: PodKey,
    /// What was asked for.
    pub spec: ContainerSpec,
    /// What it is doing.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: Timestamp,
    /// Full path of its log file.
    pub log_path: String,
    /// What its process does.
    pub script: Script,
    /// When and how its process will end, once that is certain.
    pub(crate) doom: Option<(Timestamp, Fate)>,
}

/// One open event stream.
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) queue: VecDeque<RuntimeEvent>,
    pub(crate) end: Option<Option<RuntimeError>>,
}

/// Everything there is.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) now: Option<Timestamp>,
    pub(crate) n_made: u64,
    /// In order of making.
    pub(crate) sandboxes: Vec<FakeSandbox>,
    /// In order of making.
    pub(crate) containers: Vec<FakeContainer>,
    pub(crate) images: Store,
    pub(crate) cgroups: BTreeMap<PodUid, PodCgroup>,
    pub(crate) class_bounds: ClassBounds,
    pub(crate) files: Files,
    /// Pods whose volumes are set up.
    pub(crate) volumes: BTreeMap<PodUid, Vec<String>>,
    pub(crate) bad_volumes: BTreeMap<String, (&'static str, String)>,
    pub(crate) scripts: Scripts,
    pub(crate) exec_answers: HashMap<ContainerName, (std::time::Duration, ExecOutput)>,
    pub(crate) faults: Faults,
    pub(crate) network_trouble: Option<RuntimeCondition>,
    pub(crate) pod_cidr: Option<String>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) journal: Vec<Entry>,
    pub(crate) events: Vec<(Timestamp, Event)>,
    /// Of each event, by its reason.
    pub(crate) annotations: Vec<(String, BTreeMap<String, String>)>,
    /// Calls under way by name, and the most there ever were.
    pub(crate) in_flight: HashMap<Call, (usize, usize)>,
    /// Calls of every kind that were ever made.
    pub(crate) n_calls: usize,
}

impl State {
    /// The moment of this access, set by the world before anybody looks.
    pub(crate) fn now(&self) -> Timestamp {
        self.now.expect("the world sets the time before each access")
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.n_made += 1;
        self.n_made
    }

    pub(crate) fn sandbox(&self, id: &SandboxId) -> Option<&FakeSandbox> {
        self.sandboxes.iter().find(|it| it.id == *id)
    }

    pub(crate) fn container(&self, id: &ContainerId) -> Option<&FakeContainer> {
        self.containers.iter().find(|it| it.id == *id)
    }

    pub(crate) fn container_mut(&mut self, id: &ContainerId) -> Option<&mut FakeContainer> {
        self.containers.iter_mut().find(|it| it.id == *id)
    }

    pub(crate) fn write(&mut self, uid: Option<&PodUid>, act: Act) {
        let at = self.now();
        self.write_at(at, uid, act);
    }

    fn write_at(&mut self, at: Timestamp, uid: Option<&PodUid>, act: Act) {
        let uid = uid.cloned();
        self.journal.push(Entry { at, uid, act });
    }

    /// Tells every open stream, unless this event is to be lost.
    pub(crate) fn emit(&mut self, uid: &PodUid, id: &str, kind: RuntimeEventKind) {
        if self.faults.n_lost_events > 0 {
            self.faults.n_lost_events -= 1;
            return;
        }
        // A runtime that is down tells nobody, and does not catch up later.
        if self.faults.is_down {
            return;
        }
        for stream in &mut self.streams {
            stream.queue.push_back(RuntimeEvent { uid: uid.clone(), id: id.to_owned(), kind });
        }
    }

    /// The next moment at which a process ends by itself.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        let ends = self.containers.iter().filter_map(|it| it.doom.as_ref());
        ends.map(|(at, _)| *at).min()
    }

    /// Ends every process whose time has come, in the order of their ends. True when there was one.
    pub(crate) fn settle(&mut self) -> bool {
        let now = self.now();
        let mut has_settled = false;
        while let Some(due) = self.next_end().filter(|due| *due <= now) {
            let doomed = self.containers.iter().find_map(|container| {
                let (at, fate) = container.doom.as_ref().filter(|(at, _)| *at == due)?;
                Some((container.id.clone(), *at, fate.clone()))
            });
            let (id, at, fate) = doomed.expect("somebody has the earliest end");
            self.finish(&id, at, &fate);
            has_settled = true;
        }
        has_settled
    }

    /// Kills a container now, if it runs.
    pub(crate) fn kill(&mut self, id: &ContainerId, code: i32, reason: &'static str) {
        let fate = Fate { after: std::time::Duration::ZERO, code, reason, message: String::new() };
        self.finish(id, self.now(), &fate);
    }

    /// Seals the end of a container's process; an earlier end that is already certain stays.
    pub(crate) fn doom(&mut self, id: &ContainerId, fate: Fate) {
        let at = self.now().after(fate.after);
        if let Some(container) = self.container_mut(id)
            && container.doom.as_ref().is_none_or(|(due, _)| at < *due)
        {
            container.doom = Some((at, fate));
        }
    }

    /// The process ends: state, last words, journal, event.
    fn finish(&mut self, id: &ContainerId, at: Timestamp, fate: &Fate) {
        let Some(container) = self.container_mut(id) else {
            return;
        };
        container.doom = None;
        let ContainerState::Running { started_at } = container.state else {
            return;
        };
        container.state = ContainerState::Exited(Exit {
            started_at: Some(started_at),
            finished_at: at,
            code: fate.code,
            reason: fate.reason.to_owned(),
            message: String::new(),
        });
        let container = container.clone();
        let words_path = container.spec.annotations.get(crate::observe::TERMINATION_PATH);
        let words_file = container
            .spec
            .mounts
            .iter()
            .find(|mount| words_path.is_some_and(|path| *path == mount.container_path));
        if let Some(mount) = words_file
            && !fate.message.is_empty()
        {
            self.files.put(mount.host_path.clone(), fate.message.clone());
        }
        let (name, code) = (container.spec.name.clone(), fate.code);
        let id = container.id.clone();
        self.write_at(at, Some(&container.uid), Act::ContainerExited { id, name, code });
        self.emit(&container.uid, container.id.as_str(), RuntimeEventKind::Stopped);
    }

    /// Stops a sandbox and kills what runs in it. Nothing to do is fine.
    pub(crate) fn stop_sandbox(&mut self, id: &SandboxId) {
        let members = self.containers.iter().filter(|it| it.sandbox == *id);
        let members: Vec<ContainerId> = members.map(|it| it.id.clone()).collect();
        for member in members {
            self.kill(&member, 137, "Error");
        }
        let Some(sandbox) = self.sandboxes.iter_mut().find(|it| it.id == *id) else {
            return;
        };
        if !sandbox.is_ready {
            return;
        }
        sandbox.is_ready = false;
        sandbox.ips.clear();
        let uid = sandbox.spec.uid.clone();
        self.write(Some(&uid), Act::SandboxStopped { id: id.clone() });
        self.emit(&uid, id.as_str(), RuntimeEventKind::Stopped);
    }

    /// Removes a sandbox with everything in it. Nothing to do is fine.
    pub(crate) fn remove_sandbox(&mut self, id: &SandboxId) {
        self.stop_sandbox(id);
        let members = self.containers.iter().filter(|it| it.sandbox == *id);
        let members: Vec<ContainerId> = members.map(|it| it.id.clone()).collect();
        for member in members {
            self.remove_container(&member);
        }
        let Some(index) = self.sandboxes.iter().position(|it| it.id == *id) else {
            return;
        };
        let sandbox = self.sandboxes.remove(index);
        let uid = sandbox.spec.uid;
        self.write(Some(&uid), Act::SandboxRemoved { id: id.clone() });
        self.emit(&uid, id.as_str(), RuntimeEventKind::Deleted);
    }

    /// Removes a container, killing it first if it runs. Nothing to do is fine.
    pub(crate) fn remove_container(&mut self, id: &ContainerId) {
        self.kill(id, 137, "Error");
        let Some(index) = self.containers.iter().position(|it| it.id == *id) else {
            return;
        };
        let container = self.containers.remove(index);
        let act = Act::ContainerRemoved { id: id.clone(), name: container.spec.name };
        self.write(Some(&container.uid), act);
        self.emit(&container.uid, id.as_str(), RuntimeEventKind::Deleted);
    }

    /// Sends the polite signal; with no grace, the kill.
    pub(crate) fn signal(&mut self, id: &ContainerId, grace: GracePeriod) {
        let Some(container) = self.container(id).filter(|it| it.state.is_running()) else {
            return;
        };
        let (uid, name) = (container.uid.clone(), container.spec.name.clone());
        let fate = container.script.fate_on_signal();
        let id_of = id.clone();
        self.write(Some(&uid), Act::ContainerSignalled { id: id_of, name, grace });
        if grace.0.is_zero() {
            self.kill(id, 137, "Error");
        } else if let Some(fate) = fate {
            self.doom(id, fate);
            self.settle();
        }
    }
}

//! The test's hand on the world: what is set up, what goes wrong, and what can be asked afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolet_ports::{Event, ExecOutput, RuntimeCondition, RuntimeErrorKind};
use ferrolet_types::observed::ContainerState;
use ferrolet_types::{ContainerId, ContainerName, PodKey, PodUid, SandboxId, Timestamp};

use crate::faults::{Fault, Faults, Pattern};
use crate::script::{Scope, reason_of};
use crate::{Call, Entry, FakeContainer, FakeSandbox, Script, World};

/// What processes do.
impl World {
    /// Every container made from this image.
    pub fn script_image(&self, image: &str, script: Script) {
        self.script(Scope::Image(crate::images::normal(image)), vec![script]);
    }

    /// Every container of this name, in any pod.
    pub fn script_name(&self, container: &str, script: Script) {
        self.script(Scope::Name(ContainerName::new(container)), vec![script]);
    }

    /// The containers of this name in this pod, one script per container made; the last one
    /// repeats.
    pub fn script_series(&self, key: &PodKey, container: &str, series: Vec<Script>) {
        let scope = Scope::Container(key.clone(), ContainerName::new(container));
        self.script(scope, series);
    }

    fn script(&self, scope: Scope, series: Vec<Script>) {
        self.change(|state| state.scripts.set(scope, series));
    }

    /// How long a command in containers of this name takes, and what it answers.
    pub fn exec_answers(&self, container: &str, takes: Duration, output: ExecOutput) {
        let name = ContainerName::new(container);
        self.change(|state| state.exec_answers.insert(name, (takes, output)));
    }

    /// Ends a running container's process from outside, as its own bug or somebody's `kill` would.
    pub fn crash_container(&self, id: &ContainerId, code: i32) {
        self.change(|state| state.kill(id, code, reason_of(code)));
    }

    /// Kills a sandbox and all in it from outside.
    pub fn crash_sandbox(&self, id: &SandboxId) {
        self.change(|state| state.stop_sandbox(id));
    }

    /// The runtime loses sight of a container.
    pub fn lose_container(&self, id: &ContainerId) {
        self.change(|state| {
            if let Some(container) = state.container_mut(id) {
                container.state = ContainerState::Unknown;
                container.doom = None;
            }
        });
    }

    /// Everything that runs dies, cgroups vanish, nobody is told; files and dead containers stay.
    pub fn reboot(&self) {
        self.change(|state| {
            let is_down = std::mem::replace(&mut state.faults.is_down, true);
            let ids = state.sandboxes.iter().map(|it| it.id.clone());
            let ids: Vec<SandboxId> = ids.collect();
            for container in &mut state.containers {
                container.doom = None;
            }
            let running = state.containers.iter().map(|it| it.id.clone());
            let running: Vec<ContainerId> = running.collect();
            for id in running {
                state.kill(&id, 255, "Unknown");
            }
            for id in ids {
                state.stop_sandbox(&id);
            }
            state.cgroups.clear();
            state.volumes.clear();
            state.faults.is_down = is_down;
        });
    }
}

/// What goes wrong.
impl World {
    /// The next `n` calls of that kind fail; before their effect, after their latency.
    pub fn fail_next(&self, call: Call, n: usize, kind: RuntimeErrorKind, message: &str) {
        self.fail(None, call, n, Fault::new(kind, message));
    }

    /// The next `n` calls of that kind for that pod fail.
    pub fn fail_next_for(
        &self,
        uid: &PodUid,
        call: Call,
        n: usize,
        kind: RuntimeErrorKind,
        message: &str,
    ) {
        self.fail(Some(uid.clone()), call, n, Fault::new(kind, message));
    }

    fn fail(&self, uid: Option<PodUid>, call: Call, n: usize, fault: Fault) {
        let call = Some(call);
        if n > 0 {
            self.change(|state| state.faults.failing.push((Pattern { uid, call }, n, fault)));
        }
    }

    /// Every call for that pod hangs: until it is freed, or to the call's deadline.
    pub fn hang_pod(&self, uid: &PodUid) {
        self.hang(Some(uid.clone()), None);
    }

    /// Every call of that kind hangs.
    pub fn hang_call(&self, call: Call) {
        self.hang(None, Some(call));
    }

    /// Every call of that kind for that pod hangs.
    pub fn hang_pod_call(&self, uid: &PodUid, call: Call) {
        self.hang(Some(uid.clone()), Some(call));
    }

    fn hang(&self, uid: Option<PodUid>, call: Option<Call>) {
        self.change(|state| state.faults.hanging.push(Pattern { uid, call }));
    }

    /// Nothing hangs any more; calls that hung go on.
    pub fn free_hung(&self) {
        self.change(|state| state.faults.hanging.clear());
    }

    /// Nothing hangs or fails any more, the runtime is up, no event gets lost. Latencies stay.
    pub fn heal(&self) {
        self.runtime_up();
        self.change(|state| {
            state.faults.hanging.clear();
            state.faults.failing.clear();
            state.faults.n_lost_events = 0;
            state.network_trouble = None;
        });
    }

    /// The runtime goes away: every call is `Unavailable`, open streams end. Containers run on.
    pub fn runtime_down(&self) {
        self.change(|state| {
            state.faults.is_down = true;
            let error = Faults::unavailable().of_runtime(Call::Events);
            for stream in &mut state.streams {
                stream.end.get_or_insert(Some(error.clone()));
            }
        });
    }

    /// The runtime is back.
    pub fn runtime_up(&self) {
        self.change(|state| state.faults.is_down = false);
    }

    /// The runtime has no event stream at all.
    pub fn disable_events(&self) {
        self.change(|state| {
            state.faults.has_no_events = true;
            for stream in &mut state.streams {
                stream.end.get_or_insert(None);
            }
        });
    }

    /// The next `n` events reach nobody; `usize::MAX` for a stream that stays open and mute.
    pub fn lose_events(&self, n: usize) {
        self.change(|state| state.faults.n_lost_events = n);
    }

    /// How long calls of that kind take before they have their effect.
    pub fn set_latency(&self, call: Call, latency: Duration) {
        self.change(|state| state.faults.latency.insert(call, latency));
    }

    /// How long calls take before their effect, and changing ones after it, unless set one by one.
    /// 1 ms each at first.
    pub fn set_default_latency(&self, before: Duration, after: Duration) {
        self.change(|state| {
            state.faults.default_latency = before;
            state.faults.answer_latency = after;
        });
    }

    /// How long a hung call is waited for. Two minutes at first.
    pub fn set_call_deadline(&self, deadline: Duration) {
        self.change(|state| state.faults.deadline = deadline);
    }

    /// The runtime's network is not ready, for that reason; `None` mends it.
    pub fn set_network_trouble(&self, trouble: Option<(&str, &str)>) {
        let condition = trouble.map(|(reason, message)| RuntimeCondition {
            is_ok: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
        self.change(|state| state.network_trouble = condition);
    }
}

/// What is true, and what happened.
impl World {
    /// Every sandbox, the oldest first.
    pub fn sandboxes(&self) -> Vec<FakeSandbox> {
        self.look(|state| state.sandboxes.clone())
    }

    /// Every container, the oldest first.
    pub fn containers(&self) -> Vec<FakeContainer> {
        self.look(|state| state.containers.clone())
    }

    /// Every container of a pod, the oldest first.
    pub fn containers_of(&self, uid: &PodUid) -> Vec<FakeContainer> {
        let containers = self.containers().into_iter();
        containers.filter(|it| it.uid == *uid).collect()
    }

    /// The newest container of that name in that pod.
    pub fn newest_container(&self, uid: &PodUid, name: &str) -> Option<FakeContainer> {
        let mut containers = self.containers_of(uid).into_iter().rev();
        containers.find(|it| it.spec.name.as_str() == name)
    }

    /// True while the newest container of that name in that pod runs.
    pub fn is_running(&self, uid: &PodUid, name: &str) -> bool {
        let newest = self.newest_container(uid, name);
        newest.is_some_and(|it| it.state.is_running())
    }

    /// True when neither runtime nor cgroups, directories, logs or volumes hold anything of the
    /// pod.
    pub fn is_gone(&self, uid: &PodUid) -> bool {
        self.look(|state| {
            !state.sandboxes.iter().any(|it| it.spec.uid == *uid)
                && !state.containers.iter().any(|it| it.uid == *uid)
                && !state.cgroups.contains_key(uid)
                && !state.volumes.contains_key(uid)
                && !state.files.holds(uid)
        })
    }

    /// Everything that happened, in order.
    pub fn journal(&self) -> Vec<Entry> {
        self.look(|state| state.journal.clone())
    }

    /// Everything that happened to one pod, in order.
    pub fn journal_of(&self, uid: &PodUid) -> Vec<Entry> {
        let journal = self.journal().into_iter();
        journal.filter(|entry| entry.uid.as_ref() == Some(uid)).collect()
    }

    /// Events for people, in order.
    pub fn recorded_events(&self) -> Vec<(Timestamp, Event)> {
        self.look(|state| state.events.clone())
    }

    /// Annotations of the events with that reason, in order.
    pub fn event_annotations(&self, reason: &str) -> Vec<BTreeMap<String, String>> {
        self.look(|state| {
            let those = state.annotations.iter().filter(|(of, _)| of == reason);
            those.map(|(_, annotations)| annotations.clone()).collect()
        })
    }

    /// The most calls of that kind that were ever under way at once.
    pub fn peak(&self, call: Call) -> usize {
        self.look(|state| state.in_flight.get(&call).map_or(0, |(_, peak)| *peak))
    }

    /// Calls of that kind under way.
    pub fn in_flight(&self, call: Call) -> usize {
        self.look(|state| state.in_flight.get(&call).map_or(0, |(now, _)| *now))
    }

    /// Calls of every kind that were ever made: how busy the agent was.
    pub fn n_calls(&self) -> usize {
        self.look(|state| state.n_calls)
    }

    /// Event streams that are open.
    pub fn open_streams(&self) -> usize {
        self.look(|state| state.streams.len())
    }

    /// The pod network range the runtime was told.
    pub fn pod_cidr(&self) -> Option<String> {
        self.look(|state| state.pod_cidr.clone())
    }
}

//! The fake node: pod cgroups, pod directories and logs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use ferrolet_ports::{
    Fut, HostError, NodeNames, PodCgroups, PodFiles, Retry, StateFiles, StoredPod,
};
use ferrolet_resources::{CgroupLimits, ClassBounds, PodCgroup};
use ferrolet_types::{ContainerId, PodKey, PodUid, Qos};

use crate::files::{ROOT_DIRECTORY, log_directory, pod_directory};
use crate::state::State;
use crate::{Act, Call, World};

/// Looking at and writing to the node's files.
impl World {
    /// What a file holds; `None` when it is not there.
    pub fn file(&self, path: &str) -> Option<String> {
        self.look(|state| state.files.read(path).map(str::to_owned))
    }

    /// Appends to a file, as a container writing its log would. Text without the runtime's
    /// prefixes.
    pub fn append_file(&self, path: &str, text: &str) {
        self.change(|state| state.files.append(path, text));
    }

    /// The links under `/var/log/containers`: name to target.
    pub fn log_links(&self) -> BTreeMap<String, String> {
        self.look(|state| state.files.links.clone())
    }

    /// The pods that have a cgroup, with its bounds.
    pub fn pod_cgroups(&self) -> BTreeMap<PodUid, PodCgroup> {
        self.look(|state| state.cgroups.clone())
    }

    /// Takes a pod's cgroup away and leaves what runs in it running, as when the node's cgroups
    /// begin elsewhere from now on.
    pub fn lose_cgroup(&self, uid: &PodUid) {
        self.change(|state| state.cgroups.remove(uid));
    }

    /// What all pods have together, and the burstable ones among them; nothing before anybody set
    /// it.
    pub fn class_bounds(&self) -> ClassBounds {
        self.look(|state| state.class_bounds)
    }

    /// Somebody else writes other bounds there.
    pub fn overwrite_class_bounds(&self, bounds: ClassBounds) {
        self.quietly(|state| state.class_bounds = bounds);
    }

    /// A call on the node: through the gate, then the deed.
    async fn host<T>(
        &self,
        call: Call,
        uid: Option<&PodUid>,
        deed: impl FnOnce(&mut State) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let guard = self.enter(call, uid.cloned()).await;
        let _guard = guard.map_err(|fault| fault.of_host(call))?;
        self.change(deed)
    }
}

fn refusal(call: Call, path: &str, cause: &str) -> HostError {
    HostError {
        attempt: format!("{} {path}", call.name()),
        cause: cause.to_owned(),
        retry: Retry::Later,
    }
}

/// The port of pod cgroups on a [`World`].
pub struct FakeCgroups {
    world: World,
}

impl FakeCgroups {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }
}

impl PodCgroups for FakeCgroups {
    fn parent_of(&self, pod: &PodCgroup) -> String {
        match pod.qos {
            Qos::Guaranteed => format!("/kubepods/pod{}", pod.uid),
            Qos::Burstable => format!("/kubepods/burstable/pod{}", pod.uid),
            Qos::BestEffort => format!("/kubepods/besteffort/pod{}", pod.uid),
        }
    }

    fn exists<'a>(&'a self, pod: &'a PodCgroup) -> Fut<'a, Result<bool, HostError>> {
        let uid = &pod.uid;
        Box::pin(self.world.host(Call::CgroupExists, Some(uid), |state| {
            let found = state.cgroups.get(uid);
            Ok(found.is_some_and(|it| it.qos == pod.qos))
        }))
    }

    fn ensure<'a>(&'a self, pod: &'a PodCgroup) -> Fut<'a, Result<(), HostError>> {
        let uid = &pod.uid;
        Box::pin(self.world.host(Call::EnsureCgroup, Some(uid), |state| {
            let Some(held) = state.cgroups.get_mut(uid) else {
                state.cgroups.insert(uid.clone(), pod.clone());
                state.write(Some(uid), Act::CgroupMade);
                return Ok(());
            };
            // As the kernel: what is not written stays.
            let (was, new) = (held.limits, pod.limits);
            held.qos = pod.qos;
            held.limits = CgroupLimits {
                cpu_shares: new.cpu_shares.or(was.cpu_shares),
                cpu_quota: new.cpu_quota.or(was.cpu_quota),
                cpu_period: new.cpu_period.or(was.cpu_period),
                memory: new.memory.or(was.memory),
                pids: new.pids.or(was.pids),
                memory_min: new.memory_min.or(was.memory_min),
                memory_low: new.memory_low.or(was.memory_low),
                memory_high: new.memory_high.or(was.memory_high),
            };
            if held.limits != was {
                let act = Act::CgroupBounded {
                    memory: new.memory,
                    cpu_quota: new.cpu_quota,
                    cpu_shares: new.cpu_shares,
                };
                state.write(Some(uid), act);
            }
            Ok(())
        }))
    }

    fn bound_classes(&self, bounds: ClassBounds) -> Fut<'_, Result<(), HostError>> {
        self.world.quietly(|state| state.class_bounds = bounds);
        Box::pin(std::future::ready(Ok(())))
    }

    fn lower_cpu<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>> {
        Box::pin(self.world.host(Call::LowerCpu, Some(uid), |state| {
            let Some(held) = state.cgroups.get_mut(uid) else {
                return Ok(());
            };
            let least = Some(2);
            if held.limits.cpu_shares != least {
                held.limits.cpu_shares = least;
                let act = Act::CgroupBounded { memory: None, cpu_quota: None, cpu_shares: least };
                state.write(Some(uid), act);
            }
            Ok(())
        }))
    }

    fn remove<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>> {
        Box::pin(self.world.host(Call::RemoveCgroup, Some(uid), |state| {
            if state.cgroups.remove(uid).is_none() {
                return Ok(());
            }
            let inside = state.containers.iter().filter(|it| it.uid == *uid);
            let inside: Vec<ContainerId> = inside.map(|it| it.id.clone()).collect();
            for id in inside {
                state.kill(&id, 137, "Error");
            }
            state.write(Some(uid), Act::CgroupRemoved);
            Ok(())
        }))
    }

    fn list(&self) -> Fut<'_, Result<Vec<PodUid>, HostError>> {
        Box::pin(
            self.world
                .host(Call::ListCgroups, None, |state| Ok(state.cgroups.keys().cloned().collect())),
        )
    }
}

/// The port of pod directories and logs on a [`World`].
pub struct FakeFiles {
    world: World,
}

impl FakeFiles {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }
}

impl PodFiles for FakeFiles {
    fn log_directory(&self, key: &PodKey, uid: &PodUid) -> PathBuf {
        log_directory(key, uid)
    }

    fn ensure_pod<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
    ) -> Fut<'a, Result<(), HostError>> {
        Box::pin(self.world.host(Call::EnsurePodFiles, Some(uid), |state| {
            let is_new = state.files.pods.insert(uid.clone());
            let has_no_logs = state.files.logs.insert(uid.clone(), key.clone()).is_none();
            if is_new || has_no_logs {
                state.write(Some(uid), Act::DirectoriesMade);
            }
            Ok(())
        }))
    }

    fn remove_pod<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>> {
        let call = Call::RemovePodFiles;
        Box::pin(self.world.host(call, Some(uid), move |state| {
            let directory = pod_directory(uid);
            if state.volumes.contains_key(uid) {
                return Err(refusal(call, &directory, "something is mounted there"));
            }
            if state.files.pods.remove(uid) {
                state.files.remove(&directory);
                state.write(Some(uid), Act::DirectoriesRemoved);
            }
            Ok(())
        }))
    }

    fn remove_logs<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
    ) -> Fut<'a, Result<(), HostError>> {
        Box::pin(self.world.host(Call::RemoveLogs, Some(uid), |state| {
            let directory = log_directory(key, uid).to_string_lossy().into_owned();
            let prefix = format!("{directory}/");
            state.files.remove(&directory);
            state.files.links.retain(|_, target| !target.starts_with(&prefix));
            if state.files.logs.remove(uid).is_some() {
                state.write(Some(uid), Act::LogsRemoved);
            }
            Ok(())
        }))
    }

    fn list(&self) -> Fut<'_, Result<Vec<StoredPod>, HostError>> {
        Box::pin(self.world.host(Call::ListPodFiles, None, |state| {
            let files = &state.files;
            let mut stored: BTreeMap<PodUid, Option<PodKey>> =
                files.pods.iter().map(|uid| (uid.clone(), None)).collect();
            let logs = files.logs.iter();
            stored.extend(logs.map(|(uid, key)| (uid.clone(), Some(key.clone()))));
            let stored = stored.into_iter();
            Ok(stored.map(|(uid, key)| StoredPod { uid, key }).collect())
        }))
    }

    fn read_pod_file<'a>(
        &'a self,
        uid: &'a PodUid,
        name: &'a str,
        _limit: usize,
    ) -> Fut<'a, Result<Option<Vec<u8>>, HostError>> {
        let path = format!("{}/{name}", pod_directory(uid));
        let content = self.world.file(&path).map(String::into_bytes);
        Box::pin(std::future::ready(Ok(content)))
    }

    fn write_pod_file<'a>(
        &'a self,
        uid: &'a PodUid,
        name: &'a str,
        content: Vec<u8>,
    ) -> Fut<'a, Result<(), HostError>> {
        let path = format!("{}/{name}", pod_directory(uid));
        let text = String::from_utf8_lossy(&content).into_owned();
        self.world.quietly(|state| state.files.put(path, text));
        Box::pin(std::future::ready(Ok(())))
    }

    fn remove_pod_file<'a>(
        &'a self,
        uid: &'a PodUid,
        name: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        let path = format!("{}/{name}", pod_directory(uid));
        self.world.quietly(|state| state.files.take(&path));
        Box::pin(std::future::ready(Ok(())))
    }

    fn read_in_volume<'a>(
        &'a self,
        volume: &'a str,
        path: &'a str,
        _limit: usize,
    ) -> Fut<'a, Result<String, HostError>> {
        let path = format!("{volume}/{path}");
        let found = self.world.file(&path);
        let absent = || refusal(Call::EnsureVolumes, &path, "no such file or directory");
        Box::pin(std::future::ready(found.ok_or_else(absent)))
    }

    fn write_hosts<'a>(
        &'a self,
        uid: &'a PodUid,
        content: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>> {
        let call = Call::WriteHosts;
        Box::pin(self.world.host(call, Some(uid), move |state| {
            let path = format!("{}/etc-hosts", pod_directory(uid));
            if !state.files.pods.contains(uid) {
                return Err(refusal(call, &path, "No such file or directory"));
            }
            state.files.put(path.clone(), content.to_owned());
            Ok(PathBuf::from(path))
        }))
    }

    fn ensure_container_logs<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
        container: &'a str,
    ) -> Fut<'a, Result<Option<u32>, HostError>> {
        let call = Call::EnsureContainerLogs;
        Box::pin(self.world.host(call, Some(uid), move |state| {
            state.files.logs.insert(uid.clone(), key.clone());
            let directory = log_directory(key, uid).join(container);
            let directory = directory.to_string_lossy().into_owned();
            let names = state.files.below(&directory);
            let counts = names.filter_map(|path| {
                let name = path.rsplit('/').next()?;
                name.split_once(".log")?.0.parse().ok()
            });
            Ok(counts.max())
        }))
    }

    fn new_termination_log<'a>(
        &'a self,
        uid: &'a PodUid,
        container: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>> {
        let call = Call::NewTerminationLog;
        Box::pin(self.world.host(call, Some(uid), move |state| {
            let number = state.next_id();
            let path = format!("{}/containers/{container}/{number:08x}", pod_directory(uid));
            if !state.files.pods.contains(uid) {
                return Err(refusal(call, &path, "No such file or directory"));
            }
            state.files.put(path.clone(), String::new());
            Ok(PathBuf::from(path))
        }))
    }

    fn read_termination_log<'a>(
        &'a self,
        path: &'a str,
        limit: usize,
    ) -> Fut<'a, Result<String, HostError>> {
        let call = Call::ReadTerminationLog;
        Box::pin(self.world.host(call, None, move |state| {
            let text = state.files.read(path);
            let text = text.ok_or_else(|| refusal(call, path, "No such file or directory"))?;
            let head = &text.as_bytes()[..text.len().min(limit)];
            Ok(String::from_utf8_lossy(head).into_owned())
        }))
    }

    fn read_log_tail<'a>(
        &'a self,
        path: &'a str,
        lines: usize,
        limit: usize,
    ) -> Fut<'a, Result<String, HostError>> {
        let call = Call::ReadLogTail;
        Box::pin(self.world.host(call, None, move |state| {
            let text = state.files.read(path);
            let text = text.ok_or_else(|| refusal(call, path, "No such file or directory"))?;
            let all: Vec<&str> = text.split_inclusive('\n').collect();
            let tail = all[all.len().saturating_sub(lines)..].concat();
            let from = tail.len().saturating_sub(limit);
            Ok(String::from_utf8_lossy(&tail.as_bytes()[from..]).into_owned())
        }))
    }

    fn link_container_log<'a>(
        &'a self,
        key: &'a PodKey,
        container: &'a str,
        id: &'a ContainerId,
        log_path: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        Box::pin(self.world.host(Call::LinkContainerLog, None, move |state| {
            let name = link_name(key, container, id);
            state.files.links.insert(name, log_path.to_owned());
            Ok(())
        }))
    }

    fn remove_container_log<'a>(
        &'a self,
        log_path: &'a str,
        (key, container, id): (&'a PodKey, &'a str, &'a ContainerId),
    ) -> Fut<'a, Result<(), HostError>> {
        let call = Call::RemoveContainerLog;
        Box::pin(self.world.host(call, None, move |state| {
            state.files.remove(log_path);
            state.files.links.remove(&link_name(key, container, id));
            Ok(())
        }))
    }
}

fn link_name(key: &PodKey, container: &str, id: &ContainerId) -> String {
    format!("{}_{}_{container}-{id}.log", key.name, key.namespace)
}

/// The port of state files on a [`World`]; `World::file` shows them below the root directory.
pub struct FakeStateFiles {
    world: World,
}

impl FakeStateFiles {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }
}

impl StateFiles for FakeStateFiles {
    fn read<'a>(&'a self, name: &'a str) -> Fut<'a, Result<Option<Vec<u8>>, HostError>> {
        let content = self.world.file(&format!("{ROOT_DIRECTORY}/{name}"));
        Box::pin(std::future::ready(Ok(content.map(String::into_bytes))))
    }

    fn write<'a>(&'a self, name: &'a str, content: Vec<u8>) -> Fut<'a, Result<(), HostError>> {
        let path = format!("{ROOT_DIRECTORY}/{name}");
        let text = String::from_utf8_lossy(&content).into_owned();
        // Nobody waits for a file of state, so nobody is woken.
        self.world.quietly(|state| state.files.put(path, text));
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The node's own files of name resolution: a short hosts file, and a resolver that a test may
/// change.
#[derive(Debug, Default)]
pub struct FakeNames {
    resolver: Mutex<Option<Result<String, HostError>>>,
}

impl FakeNames {
    /// What the resolver's file says from now on, or why it cannot be read.
    pub fn set_resolver(&self, content: Result<&str, HostError>) {
        let content = content.map(str::to_owned);
        *self.resolver.lock().expect("no holder panics") = Some(content);
    }
}

impl NodeNames for FakeNames {
    fn hosts(&self) -> Fut<'_, String> {
        Box::pin(std::future::ready("127.0.0.1 localhost\n".to_owned()))
    }

    fn resolver(&self) -> Fut<'_, Result<Option<String>, HostError>> {
        let content = self.resolver.lock().expect("no holder panics").clone();
        Box::pin(std::future::ready(content.transpose()))
    }
}

//! The fake of the port `VolumeFiles`: volumes as values. It outlives the engine under test, as a
//! disk would.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

use ferrolet_ports::{
    EmptyDir, FlexPlace, Fut, HostError, PathKind, Payload, RecordPlace, Retry, StoredVolumes,
    SubPathBind, VolumeFiles, VolumePlace, Written,
};
use ferrolet_types::PodUid;
use tokio::sync::watch;

use crate::{Act, Call, FakeMounts, World, files::pod_directory};

/// Volumes in memory.
#[derive(Clone)]
pub struct FakeVolumeFiles {
    state: Arc<Mutex<VolumesOnDisk>>,
    mounts: Arc<Mutex<Option<FakeMounts>>>,
    world: Option<World>,
    version: watch::Sender<u64>,
}

/// What the fake holds.
#[derive(Clone, Debug, Default)]
pub struct VolumesOnDisk {
    /// Volumes that have a directory.
    pub empty_dirs: BTreeMap<VolumePlace, EmptyDir>,
    /// What is written in them.
    pub payloads: BTreeMap<VolumePlace, Payload>,
    /// How often something was written that was not there before.
    pub n_writes: usize,
    /// What stands on the node.
    pub paths: BTreeMap<String, PathKind>,
    /// Parts that are mounted, by pod and volume.
    pub sub_paths: BTreeSet<(PodUid, String)>,
    /// Volumes that refuse everything, with the kernel's word.
    pub broken: BTreeMap<String, String>,
}

impl Default for FakeVolumeFiles {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            mounts: Arc::default(),
            world: None,
            version: watch::channel(0).0,
        }
    }
}

impl FakeVolumeFiles {
    /// Shows what these mounts put into pods' directories, too.
    pub fn beside(&self, mounts: &FakeMounts) {
        *self.mounts.lock().expect("no test panics in a change") = Some(mounts.clone());
    }

    /// Volumes of a world: its faults reach them, and its journal tells of them.
    pub fn on(world: &World) -> Self {
        Self { world: Some(world.clone()), ..Self::default() }
    }

    /// True when something of this pod is there.
    pub fn holds(&self, uid: &PodUid) -> bool {
        let state = self.lock();
        state.empty_dirs.keys().any(|it| it.uid == *uid)
            || state.sub_paths.iter().any(|(it, _)| it == uid)
    }

    /// What is there now.
    pub fn look(&self) -> VolumesOnDisk {
        self.lock().clone()
    }

    /// Changes what is there.
    pub fn change(&self, change: impl FnOnce(&mut VolumesOnDisk)) {
        change(&mut self.lock());
        self.version.send_modify(|version| *version += 1);
    }

    /// Waits until something is true of it.
    pub async fn until(&self, is_true: impl Fn(&VolumesOnDisk) -> bool) {
        let mut version = self.version.subscribe();
        while !is_true(&self.lock()) {
            version.changed().await.expect("the fake holds the sender");
        }
    }

    /// The text of a file in the volume of that name.
    pub fn text(&self, volume: &str, path: &str) -> Option<String> {
        let state = self.lock();
        let (_, payload) = state.payloads.iter().find(|(it, _)| it.name == volume)?;
        let file = payload.files.get(path)?;
        Some(String::from_utf8_lossy(&file.content).into_owned())
    }

    fn lock(&self) -> MutexGuard<'_, VolumesOnDisk> {
        self.state.lock().expect("no test panics in a change")
    }

    /// The world's word on a call about one volume.
    async fn enter(&self, call: Call, place: &VolumePlace) -> Result<(), HostError> {
        let Some(world) = &self.world else { return Ok(()) };
        let entered = world.enter(call, Some(place.uid.clone())).await;
        entered.map_err(|fault| fault.of_host(call))?;
        let broken = world.look(|state| state.bad_volumes.get(&place.name).cloned());
        match broken.filter(|_| call == Call::EnsureVolumes) {
            Some((_, cause)) => {
                let attempt = format!("touch {}", place.name);
                Err(HostError { attempt, cause, retry: Retry::Later })
            }
            None => Ok(()),
        }
    }

    /// Tells the world what there is of a pod.
    fn show(&self, uid: &PodUid) {
        let Some(world) = &self.world else { return };
        let state = self.lock();
        let own = state.empty_dirs.keys().filter(|it| it.uid == *uid);
        let names: Vec<String> = own.map(|it| it.name.clone()).collect();
        drop(state);
        world.change(|state| {
            let was = state.volumes.remove(uid).is_some();
            let is = !names.is_empty();
            if is {
                state.volumes.insert(uid.clone(), names);
            }
            match (was, is) {
                (false, true) => state.write(Some(uid), Act::VolumesReady),
                (true, false) => state.write(Some(uid), Act::VolumesReleased),
                _ => {}
            }
        });
    }

    fn attempt<T: Send + 'static>(
        &self,
        volume: &str,
        work: impl FnOnce(&mut VolumesOnDisk) -> T,
    ) -> Fut<'static, Result<T, HostError>> {
        let cause = self.lock().broken.get(volume).cloned();
        let answer = match cause {
            Some(cause) => {
                Err(HostError { attempt: format!("touch {volume}"), cause, retry: Retry::Later })
            }
            None => Ok(work(&mut self.lock())),
        };
        self.version.send_modify(|version| *version += 1);
        Box::pin(std::future::ready(answer))
    }
}

impl VolumeFiles for FakeVolumeFiles {
    fn volume_path(&self, place: &VolumePlace) -> PathBuf {
        let pod = pod_directory(&place.uid);
        PathBuf::from(format!("{pod}/volumes/{}/{}", place.plugin, place.name))
    }

    fn ensure_empty_dir<'a>(
        &'a self,
        place: &'a VolumePlace,
        directory: &'a EmptyDir,
    ) -> Fut<'a, Result<(), HostError>> {
        Box::pin(async move {
            self.enter(Call::EnsureVolumes, place).await?;
            let made = self.attempt(&place.name, |state| {
                let made = state.empty_dirs.entry(place.clone());
                made.or_insert_with(|| directory.clone());
            });
            made.await?;
            self.show(&place.uid);
            Ok(())
        })
    }

    fn write_payload<'a>(
        &'a self,
        place: &'a VolumePlace,
        payload: &'a Payload,
    ) -> Fut<'a, Result<Written, HostError>> {
        self.attempt(&place.name, |state| {
            if state.payloads.get(place) == Some(payload) {
                return Written::Unchanged;
            }
            state.payloads.insert(place.clone(), payload.clone());
            state.n_writes += 1;
            Written::Replaced
        })
    }

    fn path_kind<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Option<PathKind>, HostError>> {
        self.attempt(path, |state| state.paths.get(path).copied())
    }

    fn make_directory<'a>(&'a self, path: &'a str) -> Fut<'a, Result<(), HostError>> {
        self.attempt(path, |state| {
            state.paths.insert(path.to_owned(), PathKind::Directory);
        })
    }

    fn make_file<'a>(&'a self, path: &'a str) -> Fut<'a, Result<(), HostError>> {
        self.attempt(path, |state| {
            state.paths.insert(path.to_owned(), PathKind::File);
        })
    }

    fn bind_sub_path<'a>(&'a self, part: &'a SubPathBind) -> Fut<'a, Result<PathBuf, HostError>> {
        self.attempt(&part.volume, |state| {
            state.sub_paths.insert((part.uid.clone(), part.volume.clone()));
            let pod = pod_directory(&part.uid);
            let (volume, container) = (&part.volume, &part.container);
            PathBuf::from(format!("{pod}/volume-subpaths/{volume}/{container}/{}", part.index))
        })
    }

    fn stored<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<StoredVolumes, HostError>> {
        let mounts = self.mounts.lock().expect("no test panics in a change").clone();
        let table = mounts.map(|mounts| mounts.look()).unwrap_or_default();
        self.attempt("", |state| {
            let records = table.records.keys().filter_map(|place| match place {
                RecordPlace::Pod(place) => Some(place),
                RecordPlace::Node { .. } | RecordPlace::Device { .. } => None,
            });
            let flex = table.flex.keys().filter_map(|place| match place {
                FlexPlace::Pod(place) => Some(place),
                FlexPlace::Node { .. } => None,
            });
            let provided =
                records.chain(table.bound.keys()).chain(table.by_program.keys()).chain(flex);
            let empty_dirs = state.empty_dirs.keys().chain(provided);
            let empty_dirs: BTreeSet<&VolumePlace> =
                empty_dirs.filter(|place| place.uid == *uid).collect();
            let devices = table.mapped.keys().filter(|place| place.uid == *uid);
            let parts = state.sub_paths.iter().filter(|(owner, _)| owner == uid);
            StoredVolumes {
                volumes: empty_dirs.into_iter().cloned().collect(),
                devices: devices.cloned().collect(),
                sub_paths: parts.map(|(_, volume)| volume.clone()).collect(),
            }
        })
    }

    fn remove_volume<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        Box::pin(async move {
            self.enter(Call::ReleaseVolumes, place).await?;
            let removed = self.attempt(&place.name, |state| {
                state.empty_dirs.remove(place);
                state.payloads.remove(place);
            });
            removed.await?;
            self.show(&place.uid);
            Ok(())
        })
    }

    fn remove_sub_paths<'a>(
        &'a self,
        uid: &'a PodUid,
        volume: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        self.attempt(volume, |state| {
            state.sub_paths.remove(&(uid.clone(), volume.to_owned()));
        })
    }
}

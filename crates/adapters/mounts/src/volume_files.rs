//! The port `VolumeFiles`: each call is one touch of the disk or of the table of mounts, off the async
//! threads.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use ferrolet_linux::{
    SystemClock,
    offload::{Job, Pool, refused},
    rooted::{Removed, Rooted},
};
use ferrolet_ports::{
    Clock, EmptyDir, Fut, HostError, PathKind, Payload, StoredVolumes, SubPathBind, VolumeFiles,
    VolumePlace, Written,
};
use ferrolet_types::PodUid;
use rustix::fs::{Mode, OFlags};

use crate::{
    device_writers::DeviceWriters,
    empty_dir,
    layout::{VOLUMES, relative},
    mounts, payload, sub_path, take_away,
};

/// The volumes of pods below one root directory.
#[derive(Clone, Debug)]
pub struct NodeVolumes {
    pub(crate) root: Arc<Path>,
    pub(crate) writers: DeviceWriters,
}

impl NodeVolumes {
    /// Takes the agent's root directory, `/var/lib/kubelet`; touches nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), writers: DeviceWriters::default() }
    }

    pub(crate) fn run<'a, T: Send + 'static>(
        &self,
        job: Job,
        attempt: String,
        work: impl FnOnce(&Rooted) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        let pods = self.root.join("pods");
        Box::pin(job.run(move || {
            Rooted::open(&pods)
                .and_then(|pods| work(&pods))
                .map_err(|cause| refused(attempt, &cause))
        }))
    }

    /// Work on one volume of one pod: one piece at a time, because what it stands on may be another
    /// machine's and hang.
    fn at_volume<'a, T: Send + 'static>(
        &self,
        (uid, name): (&PodUid, &str),
        attempt: String,
        work: impl FnOnce(&Rooted) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        self.run(Job::on(Pool::Mounts, &attempt).alone(format!("{uid}/{name}")), attempt, work)
    }

    pub(crate) fn run_anywhere<'a, T: Send + 'static>(
        attempt: String,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        let job = Job::on(Pool::Mounts, &attempt).alone(&*attempt);
        Box::pin(job.run(move || work().map_err(|cause| refused(attempt, &cause))))
    }
}

impl VolumeFiles for NodeVolumes {
    fn volume_path(&self, place: &VolumePlace) -> PathBuf {
        self.root
            .join("pods")
            .join(place.uid.as_str())
            .join(VOLUMES)
            .join(&place.plugin)
            .join(&place.name)
    }

    fn ensure_empty_dir<'a>(
        &'a self,
        place: &'a VolumePlace,
        directory: &'a EmptyDir,
    ) -> Fut<'a, Result<(), HostError>> {
        let (place, directory) = (place.clone(), directory.clone());
        let (whose, attempt) = (place.clone(), format!("make directory of volume {}", place.name));
        self.at_volume((&whose.uid, &whose.name), attempt, move |pods| {
            empty_dir::ensure(pods, &place, &directory)
        })
    }

    fn write_payload<'a>(
        &'a self,
        place: &'a VolumePlace,
        payload: &'a Payload,
    ) -> Fut<'a, Result<Written, HostError>> {
        let (place, payload) = (place.clone(), payload.clone());
        let (whose, attempt) = (place.clone(), format!("write volume {}", place.name));
        self.at_volume((&whose.uid, &whose.name), attempt, move |pods| {
            let volume = mounts::open_volume(pods, &relative(&place)?)?;
            payload::write(&volume, &payload, SystemClock.now())
        })
    }

    fn path_kind<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Option<PathKind>, HostError>> {
        let path = PathBuf::from(path);
        Self::run_anywhere(format!("stat {}", path.display()), move || {
            match std::fs::metadata(&path) {
                Ok(found) => Ok(Some(kind_of(found.file_type()))),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(cause) => Err(cause),
            }
        })
    }

    fn make_directory<'a>(&'a self, path: &'a str) -> Fut<'a, Result<(), HostError>> {
        let path = PathBuf::from(path);
        Self::run_anywhere(format!("mkdir {}", path.display()), move || {
            DirBuilder::new().recursive(true).mode(0o755).create(&path)
        })
    }

    fn make_file<'a>(&'a self, path: &'a str) -> Fut<'a, Result<(), HostError>> {
        let path = PathBuf::from(path);
        Self::run_anywhere(format!("open {}", path.display()), move || {
            // Opened for reading and without waiting, so that something else appearing there
            // meanwhile cannot hold us.
            let flags = OFlags::RDONLY
                | OFlags::CREATE
                | OFlags::CLOEXEC
                | OFlags::NONBLOCK
                | OFlags::NOCTTY;
            rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644))?;
            Ok(())
        })
    }

    fn bind_sub_path<'a>(&'a self, part: &'a SubPathBind) -> Fut<'a, Result<PathBuf, HostError>> {
        let (part, root) = (part.clone(), Arc::clone(&self.root));
        let attempt = format!("mount sub path {} of volume {}", part.path, part.volume);
        let (uid, volume) = (part.uid.clone(), part.volume.clone());
        self.at_volume((&uid, &volume), attempt, move |pods| {
            let place = sub_path::bind(pods, &part)?;
            Ok(root.join("pods").join(place))
        })
    }

    fn stored<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<StoredVolumes, HostError>> {
        let uid = uid.clone();
        let attempt = format!("list the volumes of pod {uid}");
        self.run(Job::on(Pool::PodFiles, &attempt), attempt, move |pods| {
            take_away::stored(pods, &uid)
        })
    }

    fn remove_volume<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        Box::pin(async move {
            let attempt = format!("remove volume {}", place.name);
            let own = place.clone();
            let unmounted =
                self.at_volume((&place.uid, &place.name), attempt.clone(), move |pods| {
                    take_away::unmount(pods, &own)
                });
            unmounted.await?;
            // Slice by slice: other pods have their turn in between, and no slice is late.
            loop {
                let own = place.clone();
                let job = Job::on(Pool::Removals, &attempt)
                    .alone(format!("{}/{}", place.uid, place.name));
                let slice =
                    self.run(job, attempt.clone(), move |pods| take_away::slice(pods, &own));
                if slice.await? == Removed::All {
                    return Ok(());
                }
            }
        })
    }

    fn remove_sub_paths<'a>(
        &'a self,
        uid: &'a PodUid,
        volume: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        let (uid, volume) = (uid.clone(), volume.to_owned());
        let attempt = format!("remove the sub paths of volume {volume}");
        self.at_volume((&uid.clone(), &volume.clone()), attempt, move |pods| {
            take_away::sub_paths(pods, &uid, &volume)
        })
    }
}

fn kind_of(kind: std::fs::FileType) -> PathKind {
    if kind.is_dir() {
        PathKind::Directory
    } else if kind.is_file() {
        PathKind::File
    } else if kind.is_socket() {
        PathKind::Socket
    } else if kind.is_char_device() {
        PathKind::CharDevice
    } else if kind.is_block_device() {
        PathKind::BlockDevice
    } else {
        PathKind::Other
    }
}

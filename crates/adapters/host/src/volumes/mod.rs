//! Volumes on disk and in the mount table: the port `VolumeFiles` on a real node.
//!
//! Owned by the volumes engine, which decides; this module does. Layout, names and modes are upstream's, so that a node can be
//! switched over and back:
//!
//! ```text
//! pods/<uid>/volumes/<plugin>/<name>                        the volume; tmpfs for what must not touch the disk
//! pods/<uid>/plugins/kubernetes.io~empty-dir/<marker>/ready it has been set up once
//! pods/<uid>/volume-subpaths/<name>/<container>/<index>     a part of it, mounted on its own
//! ```
//!
//! Must never happen: following a link that a container made, deleting across a mount point, or mounting twice. Directories
//! down to the volume are reached through [`crate::rooted`]; only the step into the volume itself may cross a mount. The
//! truth after a restart is the disk and the kernel's table; nothing is remembered here.

mod devices;
mod disks;
mod fc;
mod flex;
mod group;
mod iscsi;
mod kernel;
pub(crate) mod meter;
mod mounts;
mod payload;
mod programs;
mod provided;
mod records;
mod room;
mod sub_path;
mod take_away;
#[cfg(test)]
mod tests;

pub use flex::NodeFlexDrivers;

use std::{
    collections::BTreeMap,
    fs::DirBuilder,
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use ferrolet_ports::{
    Clock, Fut, HostError, PathKind, Payload, Room, StoredVolumes, SubPathBind, VolumeFiles,
    VolumePlace, Written,
};
use ferrolet_types::PodUid;
use rustix::fs::{Mode, OFlags};

use crate::{
    SystemClock,
    offload::{off_thread, refused},
    rooted::{Rooted, is_plain_name},
};

const PRIVATE: u32 = 0o750;
const VOLUMES: &str = "volumes";
const PLUGINS: &str = "plugins";
const SUB_PATHS: &str = "volume-subpaths";
/// Links to raw devices.
const DEVICES: &str = "volumeDevices";
/// The plugin whose directories every other local volume is made of.
const EMPTY_DIR: &str = "kubernetes.io~empty-dir";

/// The volumes of pods below one root directory.
#[derive(Clone, Debug)]
pub struct NodeVolumes {
    root: Arc<Path>,
    walks: Arc<Mutex<BTreeMap<PathBuf, Weak<Mutex<()>>>>>,
}

impl NodeVolumes {
    /// Takes the agent's root directory, `/var/lib/kubelet`; touches nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), walks: Arc::default() }
    }

    /// The turn to walk through a volume: whoever holds it is the only one.
    fn walk_of(&self, path: &Path) -> Arc<Mutex<()>> {
        let mut walks = self.walks.lock().unwrap_or_else(PoisonError::into_inner);
        walks.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = walks.get(path).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(Mutex::new(()));
        walks.insert(path.to_owned(), Arc::downgrade(&turn));
        turn
    }

    fn run<'a, T: Send + 'static>(
        &self,
        attempt: String,
        work: impl FnOnce(&Rooted) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        let pods = self.root.join("pods");
        Box::pin(off_thread(attempt.clone(), move || {
            Rooted::open(&pods)
                .and_then(|pods| work(&pods))
                .map_err(|cause| refused(attempt, &cause))
        }))
    }

    fn run_anywhere<'a, T: Send + 'static>(
        attempt: String,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        Box::pin(off_thread(attempt.clone(), move || {
            work().map_err(|cause| refused(attempt, &cause))
        }))
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

    fn ensure_room<'a>(
        &'a self,
        place: &'a VolumePlace,
        room: &'a Room,
    ) -> Fut<'a, Result<(), HostError>> {
        let (place, room) = (place.clone(), room.clone());
        self.run(format!("make room for volume {}", place.name), move |pods| {
            room::ensure(pods, &place, &room)
        })
    }

    fn write_payload<'a>(
        &'a self,
        place: &'a VolumePlace,
        payload: &'a Payload,
    ) -> Fut<'a, Result<Written, HostError>> {
        let (place, payload) = (place.clone(), payload.clone());
        self.run(format!("write volume {}", place.name), move |pods| {
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
            // Opened for reading and without waiting, so that something else appearing there meanwhile cannot hold us.
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
        self.run(attempt, move |pods| {
            let place = sub_path::bind(pods, &part)?;
            Ok(root.join("pods").join(place))
        })
    }

    fn stored<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<StoredVolumes, HostError>> {
        let uid = uid.clone();
        self.run(format!("list the volumes of pod {uid}"), move |pods| {
            take_away::stored(pods, &uid)
        })
    }

    fn remove_volume<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>> {
        let place = place.clone();
        self.run(format!("remove volume {}", place.name), move |pods| {
            take_away::volume(pods, &place)
        })
    }

    fn remove_sub_paths<'a>(
        &'a self,
        uid: &'a PodUid,
        volume: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        let (uid, volume) = (uid.clone(), volume.to_owned());
        self.run(format!("remove the sub paths of volume {volume}"), move |pods| {
            take_away::sub_paths(pods, &uid, &volume)
        })
    }
}

/// Where a volume stands below the directory of all pods.
fn relative(place: &VolumePlace) -> io::Result<PathBuf> {
    let names = [plain(place.uid.as_str())?, VOLUMES, plain(&place.plugin)?, plain(&place.name)?];
    Ok(names.iter().collect())
}

/// The marker that says that a volume has been set up once.
fn marker_directory(uid: &PodUid, marker: &str) -> io::Result<PathBuf> {
    let names = [plain(uid.as_str())?, PLUGINS, EMPTY_DIR, plain(marker)?];
    Ok(names.iter().collect())
}

fn plain(text: &str) -> io::Result<&str> {
    if is_plain_name(text) {
        return Ok(text);
    }
    let cause = format!("{text:?} is not a plain name");
    Err(io::Error::new(io::ErrorKind::InvalidInput, cause))
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

//! [`NodeFiles`]: the port `PodFiles` on a real file system.

use std::{
    fs::{self, DirBuilder, Permissions},
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use ferrolet_linux::{
    mountinfo,
    offload::{Job, Pool, refused},
    rooted::{Durability, Kind, Removed, Rooted, is_plain_name},
};
use ferrolet_ports::{Fut, HostError, PodFiles, StoredPod};
use ferrolet_types::{ContainerId, PodKey, PodUid};

use super::{
    names::{belongs_to_log, link_name, log_directory_name, restart_count, stored_pod},
    tail::read_tail,
};

/// Where log collectors look for links.
pub const CONTAINER_LINKS: &str = "/var/log/containers";

const HOSTS: &str = "etc-hosts";
const PRIVATE: u32 = 0o750;
const OPEN: u32 = 0o755;
/// Entries of a tree that are removed before others have their turn.
const SLICE: usize = 10_000;

/// Where things are kept.
#[derive(Clone, Debug)]
pub struct NodeFilesSettings {
    /// The agent's root directory, `/var/lib/kubelet`.
    pub root: PathBuf,
    /// The configuration's `podLogsDir`, `/var/log/pods`.
    pub pod_logs: PathBuf,
    /// [`CONTAINER_LINKS`], elsewhere only in tests.
    pub container_links: PathBuf,
}

/// The files of pods on this node.
#[derive(Clone, Debug)]
pub struct NodeFiles {
    settings: Arc<NodeFilesSettings>,
}

impl NodeFiles {
    /// Takes the places; touches nothing.
    pub fn new(settings: NodeFilesSettings) -> Self {
        Self { settings: Arc::new(settings) }
    }

    /// Makes the directories that are there before any pod. Idempotent.
    pub fn prepare(&self) -> Fut<'_, Result<(), HostError>> {
        self.run("make the node's directories".to_owned(), |settings| {
            let root = &settings.root;
            make(root, PRIVATE)?;
            for name in ["pods", "plugins", "plugins_registry", "pod-resources"] {
                make(&root.join(name), PRIVATE)?;
            }
            make(&root.join("checkpoints"), 0o700)?;
            make(&settings.pod_logs, PRIVATE)?;
            make(&settings.container_links, OPEN)
        })
    }

    fn run<'a, T: Send + 'static>(
        &self,
        attempt: String,
        work: impl FnOnce(&NodeFilesSettings) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        self.run_as(Job::on(Pool::PodFiles, &attempt), attempt, work)
    }

    /// One piece of work at a time for each pod.
    fn run_for<'a, T: Send + 'static>(
        &self,
        uid: &PodUid,
        attempt: String,
        work: impl FnOnce(&NodeFilesSettings) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        self.run_as(Job::on(Pool::PodFiles, &attempt).alone(uid.as_str()), attempt, work)
    }

    fn run_as<'a, T: Send + 'static>(
        &self,
        job: Job,
        attempt: String,
        work: impl FnOnce(&NodeFilesSettings) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        let settings = Arc::clone(&self.settings);
        Box::pin(job.run(move || work(&settings).map_err(|cause| refused(attempt, &cause))))
    }

    /// Takes a tree down slice by slice: other pods have their turn in between, and however large it
    /// is, no slice is late.
    async fn remove_in_slices(
        &self,
        attempt: String,
        slice: fn(&NodeFilesSettings, &str) -> io::Result<Removed>,
        name: String,
    ) -> Result<(), HostError> {
        loop {
            let (job, of) = (Job::on(Pool::Removals, &attempt).alone(&*attempt), name.clone());
            let removed = self.run_as(job, attempt.clone(), move |it| slice(it, &of)).await?;
            if removed == Removed::All {
                return Ok(());
            }
        }
    }
}

impl NodeFilesSettings {
    fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    fn open_pods(&self) -> io::Result<Rooted> {
        open_or_make(&self.pods(), PRIVATE)
    }

    fn open_logs(&self) -> io::Result<Rooted> {
        open_or_make(&self.pod_logs, PRIVATE)
    }

    fn open_links(&self) -> io::Result<Rooted> {
        open_or_make(&self.container_links, OPEN)
    }
}

impl PodFiles for NodeFiles {
    fn log_directory(&self, key: &PodKey, uid: &PodUid) -> PathBuf {
        self.settings.pod_logs.join(log_directory_name(key, uid))
    }

    fn ensure_pod<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
    ) -> Fut<'a, Result<(), HostError>> {
        let (logs, uid) = (log_directory_name(key, uid), uid.clone());
        self.run_for(&uid.clone(), format!("make the directories of pod {uid}"), move |settings| {
            let pod = settings.open_pods()?.ensure_directory(plain(uid.as_str())?, PRIVATE)?;
            for name in ["volumes", "plugins"] {
                pod.ensure_directory(name, PRIVATE)?;
            }
            settings.open_logs()?.ensure_directory(plain(&logs)?, OPEN)?;
            Ok(())
        })
    }

    fn remove_pod<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>> {
        let attempt = format!("remove the directories of pod {uid}");
        Box::pin(self.remove_in_slices(attempt, remove_pod_slice, uid.to_string()))
    }

    fn remove_logs<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
    ) -> Fut<'a, Result<(), HostError>> {
        let (name, directory) = (log_directory_name(key, uid), self.log_directory(key, uid));
        Box::pin(async move {
            let attempt = format!("remove the logs of pod {uid}");
            let slice = |settings: &NodeFilesSettings, name: &str| {
                settings.open_logs()?.remove_some(plain(name)?, SLICE)
            };
            self.remove_in_slices(attempt.clone(), slice, name).await?;
            self.run_for(uid, attempt, move |it| remove_links_into(it, &directory)).await
        })
    }

    fn list(&self) -> Fut<'_, Result<Vec<StoredPod>, HostError>> {
        self.run("list the directories of pods".to_owned(), |settings| {
            let mut stored: Vec<StoredPod> = Vec::new();
            let keyed = directories(&settings.open_logs()?)?;
            stored.extend(keyed.iter().map(|name| stored_pod(name)));
            let bare = directories(&settings.open_pods()?)?;
            stored.extend(
                bare.into_iter().map(|name| StoredPod { uid: PodUid::from(name), key: None }),
            );
            // The one that knows its key first, so that it is the one to stay.
            stored.sort_by(|a, b| (&a.uid, a.key.is_none()).cmp(&(&b.uid, b.key.is_none())));
            stored.dedup_by(|later, earlier| later.uid == earlier.uid);
            Ok(stored)
        })
    }

    fn read_pod_file<'a>(
        &'a self,
        uid: &'a PodUid,
        name: &'a str,
        limit: usize,
    ) -> Fut<'a, Result<Option<Vec<u8>>, HostError>> {
        let (uid, name) = (uid.clone(), name.to_owned());
        self.run_for(&uid.clone(), format!("read {name} of pod {uid}"), move |settings| {
            let pods = settings.open_pods()?;
            let found =
                pods.directory(plain(uid.as_str())?).and_then(|pod| pod.read(plain(&name)?, limit));
            match found {
                Ok(content) => Ok(Some(content)),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(cause) => Err(cause),
            }
        })
    }

    fn write_pod_file<'a>(
        &'a self,
        uid: &'a PodUid,
        name: &'a str,
        content: Vec<u8>,
    ) -> Fut<'a, Result<(), HostError>> {
        let (uid, name) = (uid.clone(), name.to_owned());
        self.run_for(&uid.clone(), format!("write {name} of pod {uid}"), move |settings| {
            let pods = settings.open_pods()?;
            let pod = pods.ensure_directory(plain(uid.as_str())?, PRIVATE)?;
            pod.write_atomically(plain(&name)?, &content, 0o600, Durability::Synced)
        })
    }

    fn remove_pod_file<'a>(
        &'a self,
        uid: &'a PodUid,
        name: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        let (uid, name) = (uid.clone(), name.to_owned());
        self.run_for(&uid.clone(), format!("remove {name} of pod {uid}"), move |settings| {
            match settings.open_pods()?.directory(plain(uid.as_str())?) {
                Ok(pod) => pod.unlink(plain(&name)?),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(cause) => Err(cause),
            }
        })
    }

    fn read_in_volume<'a>(
        &'a self,
        volume: &'a str,
        path: &'a str,
        limit: usize,
    ) -> Fut<'a, Result<String, HostError>> {
        let (volume, path) = (PathBuf::from(volume), PathBuf::from(path));
        let attempt = format!("read {} in {}", path.display(), volume.display());
        let job = Job::on(Pool::Mounts, &attempt).alone(volume.display().to_string());
        self.run_as(job, attempt, move |_| {
            let content = Rooted::open(&volume)?.read(&path, limit + 1)?;
            if content.len() > limit {
                return Err(io::Error::other(format!("it has more than {limit} bytes")));
            }
            Ok(String::from_utf8_lossy(&content).into_owned())
        })
    }

    fn write_hosts<'a>(
        &'a self,
        uid: &'a PodUid,
        content: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>> {
        let (uid, content) = (uid.clone(), content.to_owned());
        self.run_for(&uid.clone(), format!("write the hosts file of pod {uid}"), move |settings| {
            let name = plain(uid.as_str())?;
            let pod = settings.open_pods()?.ensure_directory(name, PRIVATE)?;
            // Written in place, not renamed over: containers have this very file mounted and share
            // it.
            match pod.read(HOSTS, content.len() + 1) {
                Ok(now) if now == content.as_bytes() => {}
                Ok(_) => pod.write_existing(HOSTS, content.as_bytes())?,
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                    pod.create_new(HOSTS, 0o644)?.write_all(content.as_bytes())?;
                }
                Err(cause) => return Err(cause),
            }
            Ok(settings.pods().join(name).join(HOSTS))
        })
    }

    fn ensure_container_logs<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
        container: &'a str,
    ) -> Fut<'a, Result<Option<u32>, HostError>> {
        let (pod, container) = (log_directory_name(key, uid), container.to_owned());
        let attempt = format!("make the log directory of container {container} of pod {uid}");
        self.run(attempt, move |settings| {
            let directory = Path::new(plain(&pod)?).join(plain(&container)?);
            let logs = settings.open_logs()?.ensure_directory(directory, OPEN)?;
            let counts = logs
                .entries()?
                .into_iter()
                .filter(|entry| entry.kind != Kind::Directory)
                .filter_map(|entry| restart_count(entry.name.to_str()?));
            Ok(counts.max())
        })
    }

    fn new_termination_log<'a>(
        &'a self,
        uid: &'a PodUid,
        container: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>> {
        let (uid, container) = (uid.clone(), container.to_owned());
        let attempt = format!("make a termination log for container {container} of pod {uid}");
        self.run(attempt, move |settings| {
            let beneath =
                Path::new(plain(uid.as_str())?).join("containers").join(plain(&container)?);
            let directory = settings.open_pods()?.ensure_directory(&beneath, PRIVATE)?;
            loop {
                // Only has to differ from its siblings; creation refuses a name that is taken.
                let [a, b, c, d, ..] = RandomState::new().hash_one(0).to_ne_bytes();
                let name = format!("{:08x}", u32::from_ne_bytes([a, b, c, d]));
                // Open to all, because any user may run in the container.
                match directory.create_new(&name, 0o666) {
                    Ok(_) => return Ok(settings.pods().join(beneath).join(name)),
                    Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(cause) => return Err(cause),
                }
            }
        })
    }

    /// Upstream reads a long message's end (`pkg/util/tail`), so this does; a file that is gone is
    /// an empty message.
    fn read_termination_log<'a>(
        &'a self,
        path: &'a str,
        limit: usize,
    ) -> Fut<'a, Result<String, HostError>> {
        let path = path.to_owned();
        self.run(format!("read termination log {path}"), move |settings| {
            let beneath = below(&path, &settings.pods())?;
            match settings.open_pods()?.read_end(beneath, limit) {
                Ok(content) => Ok(String::from_utf8_lossy(&content).into_owned()),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(String::new()),
                Err(cause) => Err(cause),
            }
        })
    }

    fn read_log_tail<'a>(
        &'a self,
        path: &'a str,
        lines: usize,
        limit: usize,
    ) -> Fut<'a, Result<String, HostError>> {
        let path = path.to_owned();
        self.run(format!("read log {path}"), move |settings| {
            let beneath = below(&path, &settings.pod_logs)?;
            let mut file = settings.open_logs()?.open_file(beneath)?;
            read_tail(&mut file, lines, limit)
        })
    }

    fn link_container_log<'a>(
        &'a self,
        key: &'a PodKey,
        container: &'a str,
        id: &'a ContainerId,
        log_path: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        let (name, log_path) = (link_name(key, container, id), log_path.to_owned());
        self.run(format!("link log {log_path}"), move |settings| {
            let beneath = below(&log_path, &settings.pod_logs)?;
            // A runtime that logs elsewhere writes no file; a link to nothing helps nobody.
            if settings.open_logs()?.kind(beneath)?.is_none() {
                return Ok(());
            }
            let (links, name) = (settings.open_links()?, plain(&name)?);
            let target = Path::new(&log_path);
            match links.symlink(target, name) {
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                    if links.read_link(name).is_ok_and(|now| now == target) {
                        return Ok(());
                    }
                    links.unlink(name)?;
                    links.symlink(target, name)
                }
                other => other,
            }
        })
    }

    fn remove_container_log<'a>(
        &'a self,
        log_path: &'a str,
        link_of: (&'a PodKey, &'a str, &'a ContainerId),
    ) -> Fut<'a, Result<(), HostError>> {
        let (key, container, id) = link_of;
        let (link, log_path) = (link_name(key, container, id), log_path.to_owned());
        self.run(format!("remove log {log_path}"), move |settings| {
            // A container that never started may have no log path at all.
            if !log_path.is_empty() {
                remove_log_files(&settings.open_logs()?, below(&log_path, &settings.pod_logs)?)?;
            }
            settings.open_links()?.unlink(plain(&link)?)
        })
    }
}

fn remove_pod_slice(settings: &NodeFilesSettings, uid: &str) -> io::Result<Removed> {
    let name = plain(uid)?;
    let pods = settings.open_pods()?;
    let directory = pods.real_path()?.join(name);
    // Looked at first, so that a refusal leaves everything in place; the walk itself would stop
    // there too.
    let mounts = mountinfo::read()?;
    if let Some(point) = mountinfo::points_at_or_below(&mounts, &directory).next() {
        let cause = format!("something is mounted at {}", point.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, cause));
    }
    pods.remove_some(name, SLICE)
}

fn remove_links_into(settings: &NodeFilesSettings, directory: &Path) -> io::Result<()> {
    let links = settings.open_links()?;
    for entry in links.entries()? {
        // A link that vanished or was replaced meanwhile is not ours to judge.
        if entry.kind == Kind::Link
            && links.read_link(&entry.name).is_ok_and(|target| target.starts_with(directory))
        {
            links.unlink(&entry.name)?;
        }
    }
    Ok(())
}

fn remove_log_files(logs: &Rooted, log: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (log.parent(), log.file_name().and_then(|it| it.to_str()))
    else {
        return Ok(());
    };
    let directory = match logs.directory(parent) {
        Ok(directory) => directory,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(cause),
    };
    for entry in directory.entries()? {
        let is_part = entry.name.to_str().is_some_and(|file| belongs_to_log(file, name));
        if is_part && entry.kind != Kind::Directory {
            directory.unlink(&entry.name)?;
        }
    }
    Ok(())
}

fn directories(root: &Rooted) -> io::Result<Vec<String>> {
    Ok(root
        .entries()?
        .into_iter()
        .filter(|entry| entry.kind == Kind::Directory)
        .filter_map(|entry| entry.name.into_string().ok())
        .collect())
}

/// The part of a path below a directory of ours; the text decides, so nothing is looked up.
fn below<'a>(path: &'a str, directory: &Path) -> io::Result<&'a Path> {
    Path::new(path).strip_prefix(directory).map_err(|_| {
        let cause = format!("it is not below {}", directory.display());
        io::Error::new(io::ErrorKind::InvalidInput, cause)
    })
}

fn plain(text: &str) -> io::Result<&str> {
    if is_plain_name(text) {
        Ok(text)
    } else {
        let cause = format!("{text:?} is not a plain name");
        Err(io::Error::new(io::ErrorKind::InvalidInput, cause))
    }
}

fn open_or_make(path: &Path, mode: u32) -> io::Result<Rooted> {
    match Rooted::open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            make(path, mode)?;
            Rooted::open(path)
        }
        other => other,
    }
}

/// Makes an operator's directory with its parents; what was there keeps its mode.
fn make(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

//! Container logs as files to be rotated: the port `LogStore`, and how full disks are: the port
//! `Disks`.
//!
//! Layout: `<podLogsDir>/<namespace>_<name>_<uid>/<container>/<restart>.log`, with what was rotated
//! out of a log beside it. Pods name parts of these paths, so everything goes through rooted
//! descriptors. Must never happen: following a link out of the log directory, losing a log that
//! could not be compressed whole.

use std::{
    fs::File,
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use ferrolet_linux::{
    offload::{Job, Pool, never, refused},
    rooted::{Kind, Rooted, is_plain_name},
};
use ferrolet_ports::{DiskSpace, Disks, Fut, HostError, LogSize, LogStore};
use flate2::{Compression, write::GzEncoder};

const LOG: &str = ".log";
/// How long the compression of one file may take.
const COMPRESSION_TIME: Duration = Duration::from_secs(600);
/// Logs are text: the quickest level saves most of it.
const LEVEL: Compression = Compression::fast();

/// The logs of this node.
#[derive(Clone, Debug)]
pub struct NodeLogStore {
    pod_logs: PathBuf,
    links: PathBuf,
}

impl NodeLogStore {
    /// Logs below `podLogsDir`, and links to them in another directory.
    pub fn new(pod_logs: impl Into<PathBuf>, links: impl Into<PathBuf>) -> Self {
        Self { pod_logs: pod_logs.into(), links: links.into() }
    }

    /// Works in the directory of a log, off-thread.
    fn beside<'a, T: Send + 'static>(
        &self,
        attempt: String,
        path: &str,
        time: Option<Duration>,
        work: impl FnOnce(&Rooted) -> io::Result<T> + Send + 'static,
    ) -> Fut<'a, Result<T, HostError>> {
        let root = self.pod_logs.clone();
        let beneath = Path::new(path).strip_prefix(&root);
        let parent = beneath.ok().and_then(Path::parent).map(Path::to_owned);
        let Some(parent) = parent else {
            let refusal = never(attempt, "it is not below the log directory");
            return Box::pin(std::future::ready(Err(refusal)));
        };
        let what = attempt.clone();
        let job = move || {
            let directory = Rooted::open(&root).and_then(|root| root.directory(&parent));
            directory.and_then(|directory| work(&directory)).map_err(|cause| refused(what, &cause))
        };
        Box::pin(async move {
            match time {
                Some(time) => {
                    Job::on(Pool::Background, &attempt).alone(&*attempt).within(time).run(job).await
                }
                None => Job::on(Pool::PodFiles, attempt).run(job).await,
            }
        })
    }
}

fn is_log(name: &str) -> bool {
    name.strip_suffix(LOG)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn plain(name: &str) -> io::Result<String> {
    if is_plain_name(name) {
        Ok(name.to_owned())
    } else {
        Err(io::Error::from(io::ErrorKind::InvalidInput))
    }
}

/// Names of directories; what is gone by now has none.
fn directories(of: &Rooted) -> io::Result<Vec<String>> {
    let entries = of.entries()?.into_iter();
    Ok(entries
        .filter(|it| it.kind == Kind::Directory)
        .filter_map(|it| it.name.into_string().ok())
        .collect())
}

/// Every log below a directory. Directories that vanish meanwhile are passed over.
fn walk(root: &Path) -> io::Result<Vec<LogSize>> {
    let mut found = Vec::new();
    let logs = Rooted::open(root)?;
    for pod in directories(&logs)? {
        let Ok(pod_directory) = logs.directory(&pod) else {
            continue;
        };
        for container in directories(&pod_directory).unwrap_or_default() {
            let Ok(directory) = pod_directory.directory(&container) else {
                continue;
            };
            for entry in directory.entries().unwrap_or_default() {
                let Some(name) = entry.name.to_str().filter(|it| is_log(it)) else {
                    continue;
                };
                if let (Kind::File, Ok(file)) = (entry.kind, directory.open_file(name)) {
                    let path = root.join(&pod).join(&container).join(name);
                    found.push(LogSize {
                        path: path.to_string_lossy().into_owned(),
                        size: file.metadata()?.len(),
                    });
                }
            }
        }
    }
    Ok(found)
}

fn size_of(root: &Path, path: &str) -> Option<u64> {
    let beneath = Path::new(path).strip_prefix(root).ok()?;
    let file = Rooted::open(root).ok()?.open_file(beneath).ok()?;
    Some(file.metadata().ok()?.len())
}

/// Writes `name.gz` whole, then removes `name`.
fn compress(directory: &Rooted, name: &str) -> io::Result<()> {
    let (unfinished, finished) = (format!("{name}.tmp"), format!("{name}.gz"));
    let mut source = directory.open_file(name)?;
    let mode = source.metadata()?.permissions().mode() & 0o777;
    directory.unlink(&unfinished)?;
    let target = directory.create_new(&unfinished, mode)?;
    let written = pack(&mut source, target).and_then(|()| directory.rename(&unfinished, &finished));
    if written.is_err() {
        directory.unlink(&unfinished)?;
    }
    written?;
    // What was said is on the disk under its new name before the old one goes.
    directory.sync()?;
    take_place(directory, name)
}

/// Takes away what was compressed. Whoever did that in between found it too old, and knows nothing
/// of what it has become.
fn take_place(directory: &Rooted, name: &str) -> io::Result<()> {
    let (aside, finished) = (format!("{name}.tmp"), format!("{name}.gz"));
    match directory.rename(name, &aside) {
        Ok(()) => directory.unlink(&aside),
        Err(error) if error.kind() == io::ErrorKind::NotFound => directory.unlink(&finished),
        Err(error) => Err(error),
    }
}

fn pack(source: &mut File, target: File) -> io::Result<()> {
    let mut encoder = GzEncoder::new(io::BufWriter::new(target), LEVEL);
    io::copy(source, &mut encoder)?;
    let target = encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    target.sync_all()
}

impl LogStore for NodeLogStore {
    fn logs(&self) -> Fut<'_, Result<Vec<LogSize>, HostError>> {
        let root = self.pod_logs.clone();
        let attempt = "look at container logs";
        Box::pin(
            Job::on(Pool::PodFiles, attempt)
                .run(move || walk(&root).map_err(|cause| refused(attempt, &cause))),
        )
    }

    fn sizes<'a>(&'a self, paths: &'a [String]) -> Fut<'a, Result<Vec<LogSize>, HostError>> {
        let (root, paths) = (self.pod_logs.clone(), paths.to_vec());
        Box::pin(Job::on(Pool::PodFiles, "look at container logs").run(move || {
            let sizes = paths.into_iter().filter_map(|path| {
                let size = size_of(&root, &path)?;
                Some(LogSize { path, size })
            });
            Ok(sizes.collect())
        }))
    }

    fn rotated<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Vec<String>, HostError>> {
        let start = format!("{}.", path.rsplit('/').next().unwrap_or_default());
        let attempt = format!("list what was rotated out of {path}");
        self.beside(attempt, path, None, move |directory| {
            let entries = directory.entries()?.into_iter();
            Ok(entries
                .filter(|it| it.kind == Kind::File)
                .filter_map(|it| it.name.into_string().ok())
                .filter(|it| it.starts_with(&start))
                .collect())
        })
    }

    fn rename<'a>(
        &'a self,
        path: &'a str,
        from: &'a str,
        to: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        let attempt = format!("rename log {path} from {from} to {to}");
        let names = plain(from).and_then(|from| Ok((from, plain(to)?)));
        self.beside(attempt, path, None, move |directory| {
            let (from, to) = names?;
            directory.rename(from, to)
        })
    }

    fn remove<'a>(&'a self, path: &'a str, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        let (attempt, name) = (format!("remove {name} beside log {path}"), plain(name));
        self.beside(attempt, path, None, move |directory| directory.unlink(name?))
    }

    fn compress<'a>(&'a self, path: &'a str, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        let (attempt, name) = (format!("compress {name} beside log {path}"), plain(name));
        self.beside(attempt, path, Some(COMPRESSION_TIME), move |directory| {
            match compress(directory, &name?) {
                // A rotation in between found it too old.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            }
        })
    }

    fn dangling_links(&self) -> Fut<'_, Result<Vec<String>, HostError>> {
        let links = self.links.clone();
        let attempt = "look for links to logs that are gone";
        Box::pin(Job::on(Pool::PodFiles, attempt).run(move || {
            let look = || {
                let directory = match Rooted::open(&links) {
                    Ok(directory) => directory,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                    Err(error) => return Err(error),
                };
                let entries = directory.entries()?.into_iter();
                let names = entries
                    .filter(|it| it.kind == Kind::Link)
                    .filter_map(|it| it.name.into_string().ok())
                    .filter(|it| it.ends_with(LOG));
                Ok(names
                    .filter(|name| {
                        // Only whether something is there; nothing is opened through the link.
                        let target = std::fs::metadata(links.join(name));
                        target.is_err_and(|it| it.kind() == io::ErrorKind::NotFound)
                    })
                    .collect())
            };
            look().map_err(|cause| refused(attempt, &cause))
        }))
    }

    fn remove_link<'a>(&'a self, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        let (links, name) = (self.links.clone(), plain(name));
        let attempt = "remove a link to a log that is gone";
        Box::pin(Job::on(Pool::PodFiles, attempt).run(move || {
            let remove = || Rooted::open(&links)?.unlink(name?);
            remove().map_err(|cause| refused(attempt, &cause))
        }))
    }
}

/// The file systems of this node.
#[derive(Clone, Copy, Debug)]
pub struct NodeDisks;

impl Disks for NodeDisks {
    fn space<'a>(&'a self, path: &'a Path) -> Fut<'a, Result<DiskSpace, HostError>> {
        let path = path.to_owned();
        let attempt = format!("ask how full the disk of {} is", path.display());
        let key = path.display().to_string();
        Box::pin(Job::on(Pool::Mounts, attempt.clone()).alone(key).run(move || {
            let stat = rustix::fs::statvfs(&path)
                .map_err(|errno| refused(&attempt, &io::Error::from(errno)))?;
            let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
            Ok(DiskSpace { capacity: bytes(stat.f_blocks), available: bytes(stat.f_bavail) })
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read as _, os::unix::fs::symlink};

    use super::*;

    fn store(root: &Path) -> (NodeLogStore, String) {
        let (logs, links) = (root.join("logs"), root.join("links"));
        let directory = logs.join("default_web_uid-1/main");
        fs::create_dir_all(&directory).unwrap();
        fs::create_dir_all(&links).unwrap();
        let path = directory.join("0.log");
        fs::write(&path, "line\n".repeat(1000)).unwrap();
        (NodeLogStore::new(logs, links), path.to_string_lossy().into_owned())
    }

    #[tokio::test]
    async fn logs_are_found_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (store, path) = store(root.path());
        let beside = Path::new(&path).parent().unwrap();
        for name in ["0.log.20260101-000000", "notes.log", "x"] {
            fs::write(beside.join(name), "x").unwrap();
        }
        symlink("/etc/passwd", beside.join("1.log")).unwrap();
        symlink("/", root.path().join("logs/evil")).unwrap();
        let found = store.logs().await.unwrap();
        let expected = [LogSize { path: path.clone(), size: 5000 }];
        assert_eq!(found, expected);
        let asked = [path.clone(), format!("{path}.gone"), "/etc/passwd".to_owned()];
        assert_eq!(store.sizes(&asked).await.unwrap(), expected);
        assert_eq!(store.rotated(&path).await.unwrap(), ["0.log.20260101-000000"]);
        assert!(store.remove("/etc/passwd", "passwd").await.is_err());
        assert!(store.remove(&path, "../x").await.is_err());
    }

    #[tokio::test]
    async fn a_compressed_log_holds_the_same_and_takes_its_place() {
        let root = tempfile::tempdir().unwrap();
        let (store, path) = store(root.path());
        store.rename(&path, "0.log", "0.log.1").await.unwrap();
        store.compress(&path, "0.log.1").await.unwrap();
        let packed = fs::File::open(format!("{path}.1.gz")).unwrap();
        assert!(packed.metadata().unwrap().len() < 500);
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "line\n".repeat(1000));
        assert_eq!(store.rotated(&path).await.unwrap(), ["0.log.1.gz"]);
        store.compress(&path, "0.log.absent").await.unwrap();
    }

    #[test]
    fn what_was_found_too_old_while_it_was_compressed_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let directory = Rooted::open(root.path()).unwrap();
        let names = || {
            let mut names: Vec<String> = fs::read_dir(root.path())
                .unwrap()
                .map(|it| it.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        for name in ["0.log.1.gz", "0.log.2", "0.log.2.gz"] {
            fs::write(root.path().join(name), "x").unwrap();
        }
        take_place(&directory, "0.log.1").unwrap();
        assert_eq!(names(), ["0.log.2", "0.log.2.gz"]);
        take_place(&directory, "0.log.2").unwrap();
        assert_eq!(names(), ["0.log.2.gz"]);
    }

    #[tokio::test]
    async fn only_links_whose_log_is_gone_dangle() {
        let root = tempfile::tempdir().unwrap();
        let (store, path) = store(root.path());
        let links = root.path().join("links");
        symlink(&path, links.join("a-1.log")).unwrap();
        symlink(format!("{path}.gone"), links.join("b-2.log")).unwrap();
        symlink("/nowhere", links.join("stranger")).unwrap();
        assert_eq!(store.dangling_links().await.unwrap(), ["b-2.log"]);
        store.remove_link("b-2.log").await.unwrap();
        assert!(store.dangling_links().await.unwrap().is_empty());
        assert!(links.join("a-1.log").exists());
    }

    #[tokio::test]
    async fn a_disk_has_more_capacity_than_it_has_left() {
        let space = NodeDisks.space(Path::new("/")).await.unwrap();
        assert!(space.capacity > 0 && space.available <= space.capacity);
        assert!(NodeDisks.space(Path::new("/no/such/place")).await.is_err());
    }
}

//! What is left on the node: the port `NodeMeans`.
//!
//! Some ten small files and a call per file system, all read anew: whoever watches for pressure
//! must not decide by what was. A file system that does not answer is left out and keeps nobody
//! else waiting for more than a moment. Refuses: walks, and thresholds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ferrolet_linux::offload::{Job, Pool, refused};
use ferrolet_ports::{
    CgroupUsage, FileSystemMeans, Fut, HostError, MeansReading, MemoryMeans, NodeMeans,
    ProcessRoom, StorePlaces,
};
use ferrolet_types::Timestamp;

use crate::files::Directory;
use crate::read::Places;
use crate::reader::UsageReader;
use crate::whole;

/// How long a file system may take to say how full it is.
const DISK: Duration = Duration::from_secs(2);
const READ: &str = "read what is left of memory and process numbers";

impl NodeMeans for UsageReader {
    fn read_means<'a>(
        &'a self,
        stores: &'a StorePlaces,
    ) -> Fut<'a, Result<MeansReading, HostError>> {
        Box::pin(async move {
            let (places, at) = (self.places(), self.now());
            let own = Job::on(Pool::State, READ).alone(READ).run(move || places.read_own(at));
            let root = self.root_dir();
            let (own, node_fs, image_fs, container_fs) = futures::future::join4(
                own,
                file_system(Some(root)),
                file_system(stores.images.as_deref().map(Path::new)),
                // Mostly the same one, which answered a moment ago.
                file_system(stores.containers.as_deref().map(Path::new)),
            )
            .await;
            let own = own?;
            Ok(MeansReading {
                at,
                memory: own.memory,
                pods_memory: own.pods_memory,
                pods_usage: own.pods_usage,
                node_fs,
                image_fs,
                container_fs,
                processes: own.processes,
            })
        })
    }
}

/// What does not lie on a disk.
struct Own {
    memory: Option<MemoryMeans>,
    pods_memory: Option<MemoryMeans>,
    pods_usage: Option<u64>,
    processes: Option<ProcessRoom>,
}

impl Places {
    fn read_own(&self, at: Timestamp) -> Result<Own, HostError> {
        let mut buffer = Vec::new();
        let node = self.node(at, &mut buffer)?;
        let pods = self.all_pods(at, &mut buffer);
        let proc = Directory::open(Path::new("/proc")).ok();
        Ok(Own {
            memory: limited(&node),
            pods_memory: pods.as_ref().and_then(limited),
            pods_usage: pods.and_then(|it| it.memory).map(|it| it.usage),
            processes: proc.as_ref().and_then(|proc| whole::room(proc, &mut buffer)),
        })
    }
}

/// Memory of a cgroup that has a limit; without one nothing is scarce.
fn limited(usage: &CgroupUsage) -> Option<MemoryMeans> {
    let memory = usage.memory?;
    let capacity = memory.limit?;
    Some(MemoryMeans { capacity, working_set: memory.working_set, usage: memory.usage })
}

async fn file_system(place: Option<&Path>) -> Option<FileSystemMeans> {
    let path: PathBuf = place?.to_owned();
    let attempt = format!("look how full the file system of {} is", path.display());
    let lost = attempt.clone();
    // One that hangs costs one thread, however often it is asked.
    let job = Job::on(Pool::Mounts, &attempt).alone(&*attempt).within(DISK);
    let look = move || {
        let look = || -> Option<FileSystemMeans> {
            let device = rustix::fs::stat(&path).ok()?.st_dev;
            Some(FileSystemMeans { device, room: whole::room_at(&path)? })
        };
        look().ok_or_else(|| refused(lost, &std::io::ErrorKind::NotFound.into()))
    };
    job.run(look).await.ok()
}

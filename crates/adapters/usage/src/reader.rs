//! The port `Usage` on a real node: when something is read, and for how long a reading serves.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferrolet_linux::{
    cgroups::{CgroupLayout, CgroupName},
    offload::{Job, Pool, refused},
};
use ferrolet_ports::{
    CgroupDriver, CgroupUsage, Clock, Detail, DiskUsage, FileRoom, Fut, HostError, PodUsage, Usage,
    UsageFigures, UsageSnapshot, VolumeUsage, Whose,
};
use ferrolet_types::{PodUid, Timestamp};
use tokio::sync::{Mutex, watch};

use crate::{
    disk::{DiskPlaces, Found, MountedVolume, mounted_room},
    read::Places,
    whole,
};

/// A walk over the disks serves everybody for this long. Upstream walks once a minute, asked or
/// not.
const DISK_FRESH: Duration = Duration::from_secs(30);
/// However many files a pod has, it is measured; a walk that is given up would let it pass.
const WALK: Duration = Duration::from_secs(600);
/// How long a mount may take to say how full it is.
const MOUNT: Duration = Duration::from_secs(2);
/// A rate is taken over at least this long, so that a burst of callers does not make it jump.
const RATE_OVER: Duration = Duration::from_secs(10);
const READ: &str = "read usage from cgroups";

/// Where to read.
pub struct UsageSettings {
    /// The configuration's `cgroupRoot`.
    pub root: String,
    /// How cgroups are named.
    pub driver: CgroupDriver,
    /// What is mounted.
    pub layout: CgroupLayout,
    /// Parts of the system with a cgroup of their own: their names in summaries, and the cgroups.
    pub systems: watch::Receiver<Vec<(String, String)>>,
    /// The agent's directory.
    pub root_dir: PathBuf,
    /// The directory of the pods' logs.
    pub pod_logs: PathBuf,
    /// Wall time for the readings.
    pub clock: Arc<dyn Clock>,
}

/// Reads cgroups on demand.
pub struct UsageReader {
    places: Arc<Places>,
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
    disk_places: Arc<DiskPlaces>,
    disk: Mutex<Option<Arc<DiskUsage>>>,
}

#[derive(Default)]
struct Kept {
    last: Option<Arc<UsageSnapshot>>,
    figures: Option<(Detail, Arc<UsageFigures>)>,
    /// Per cgroup: an earlier reading to take the rate from, and the rate that was taken last.
    bases: HashMap<PathBuf, Base>,
}

#[derive(Clone, Copy)]
struct Base {
    at: Timestamp,
    cpu_nanos: u64,
    rate: Option<u64>,
}

impl UsageReader {
    /// A reader of these hierarchies.
    pub fn new(settings: UsageSettings) -> Self {
        let name = CgroupName::parse(&settings.root).child("kubepods");
        let pods = name.to_driver(settings.driver);
        let pods = PathBuf::from(pods.trim_start_matches('/'));
        Self {
            places: Arc::new(Places::new(&settings.layout, pods, settings.systems)),
            clock: settings.clock,
            kept: Mutex::new(Kept::default()),
            disk_places: Arc::new(DiskPlaces {
                root: settings.root_dir,
                pod_logs: settings.pod_logs,
            }),
            disk: Mutex::new(None),
        }
    }

    pub(crate) fn places(&self) -> Arc<Places> {
        self.places.clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The agent's directory.
    pub(crate) fn root_dir(&self) -> &Path {
        &self.disk_places.root
    }

    async fn read_whole(
        &self,
        detail: Detail,
        kept: &mut Kept,
    ) -> Result<Arc<UsageFigures>, HostError> {
        let (places, at) = (self.places.clone(), self.clock.now());
        let of = detail.clone();
        let read = move || places.read_whole(&of, at);
        let found = Job::on(Pool::State, READ).alone(READ).run(read).await?;
        let mut bases = HashMap::new();
        let mut cgroups = found.cgroups;
        for cgroup in &mut cgroups {
            let path = base_path(&cgroup.whose, &cgroup.path);
            let (usage, base) = rate(kept.bases.get(&path).copied(), cgroup.usage);
            cgroup.usage = usage;
            if let Some(base) = base {
                bases.insert(path, base);
            }
        }
        kept.bases = bases;
        let figures =
            Arc::new(UsageFigures { at, cgroups, disks: found.disks, processes: found.processes });
        kept.last = Some(Arc::new(slim(&figures)));
        kept.figures = Some((detail, figures.clone()));
        Ok(figures)
    }

    async fn read(&self, kept: &mut Kept) -> Result<Arc<UsageSnapshot>, HostError> {
        let (places, at) = (self.places.clone(), self.clock.now());
        let found = Job::on(Pool::State, READ).alone(READ).run(move || places.scan(at)).await?;
        let mut bases = HashMap::new();
        let mut rated = |path: PathBuf, usage: CgroupUsage| {
            let (usage, base) = rate(kept.bases.get(&path).copied(), usage);
            if let Some(base) = base {
                bases.insert(path, base);
            }
            usage
        };
        let node = rated(PathBuf::new(), found.node);
        let all_pods = found.all_pods.map(|(path, usage)| rated(path, usage));
        let mut pods = Vec::new();
        for pod in found.pods {
            let total = rated(pod.path.clone(), pod.total);
            let containers = pod.containers.into_iter();
            let containers = containers
                .map(|(id, usage)| {
                    let path = pod.path.join(id.as_str());
                    (id, rated(path, usage))
                })
                .collect();
            pods.push(PodUsage { uid: pod.uid, total, containers });
        }
        // Only what is there is remembered.
        kept.bases = bases;
        let snapshot = Arc::new(UsageSnapshot { node, all_pods, pods });
        kept.last = Some(snapshot.clone());
        Ok(snapshot)
    }
}

impl UsageReader {
    /// Walks over what is on the node's own disks, then asks the volumes that are mounts of their
    /// own, each by itself: one whose server is dead is left out, and keeps none of the others.
    async fn look_at_disks(
        &self,
        attempt: &str,
        walk: impl FnOnce() -> std::io::Result<Found> + Send + 'static,
    ) -> Result<DiskUsage, HostError> {
        let what = attempt.to_owned();
        let job = Job::on(Pool::Background, attempt).alone(attempt).within(WALK);
        let found = job.run(move || walk().map_err(|cause| refused(what, &cause))).await?;
        let Found { mut usage, mounts } = found;
        let asked = futures::future::join_all(mounts.into_iter().map(ask_mount)).await;
        usage.volumes.extend(asked.into_iter().flatten().map(|(it, room)| VolumeUsage {
            uid: it.uid,
            name: it.name,
            volume: None,
            at: usage.at,
            room,
            is_on_node: false,
        }));
        Ok(usage)
    }
}

async fn ask_mount(volume: MountedVolume) -> Option<(MountedVolume, FileRoom)> {
    let path = volume.path.clone();
    let attempt = format!("ask how full {} is", path.display());
    let job = Job::on(Pool::Mounts, &attempt).alone(&*attempt).within(MOUNT);
    let room = job.run(move || Ok(mounted_room(&path))).await;
    Some((volume, room.ok()??))
}

impl Usage for UsageReader {
    fn snapshot(&self, max_age: Duration) -> Fut<'_, Result<Arc<UsageSnapshot>, HostError>> {
        Box::pin(async move {
            // Held while reading, so that callers at the same time wait for one reading.
            let mut kept = self.kept.lock().await;
            if let Some(last) = &kept.last
                && self.clock.now().since(last.node.at) < max_age
            {
                return Ok(last.clone());
            }
            self.read(&mut kept).await
        })
    }

    fn figures(
        &self,
        detail: Detail,
        max_age: Duration,
    ) -> Fut<'_, Result<Arc<UsageFigures>, HostError>> {
        Box::pin(async move {
            let mut kept = self.kept.lock().await;
            if let Some((known, last)) = &kept.figures
                && known.covers(&detail)
                && self.clock.now().since(last.at) < max_age
            {
                return Ok(last.clone());
            }
            // The old ones are large; nobody needs them beside the new.
            kept.figures = None;
            self.read_whole(detail, &mut kept).await
        })
    }

    fn disk(&self) -> Fut<'_, Result<Arc<DiskUsage>, HostError>> {
        Box::pin(async move {
            let mut kept = self.disk.lock().await;
            if let Some(last) = &*kept
                && self.clock.now().since(last.at) < DISK_FRESH
            {
                return Ok(last.clone());
            }
            let (places, at) = (self.disk_places.clone(), self.clock.now());
            let read = self.look_at_disks("look at disks", move || places.read(at)).await?;
            let read = Arc::new(read);
            *kept = Some(read.clone());
            Ok(read)
        })
    }

    fn disk_of<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<DiskUsage, HostError>> {
        let (places, at) = (self.disk_places.clone(), self.clock.now());
        Box::pin(async move {
            let (attempt, uid) = (format!("look at the files of pod {uid}"), uid.clone());
            self.look_at_disks(&attempt, move || places.read_pod(&uid, at)).await
        })
    }

    fn room_at<'a>(&'a self, place: &'a str) -> Fut<'a, Result<FileRoom, HostError>> {
        Box::pin(async move {
            let path = PathBuf::from(place);
            let attempt = format!("look at the file system of {place}");
            let lost = attempt.clone();
            let key = attempt.clone();
            Job::on(Pool::Mounts, attempt)
                .alone(key)
                .run(move || {
                    whole::room_at(&path).ok_or_else(|| {
                        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
                        refused(lost, &gone)
                    })
                })
                .await
        })
    }
}

/// The slim view of a whole reading.
fn slim(figures: &UsageFigures) -> UsageSnapshot {
    let mut snapshot =
        UsageSnapshot { node: whole::nothing(figures.at), all_pods: None, pods: Vec::new() };
    for cgroup in &figures.cgroups {
        match &cgroup.whose {
            Whose::Node => snapshot.node = cgroup.usage,
            Whose::AllPods => snapshot.all_pods = Some(cgroup.usage),
            Whose::Pod(uid) => snapshot.pods.push(PodUsage {
                uid: uid.clone(),
                total: cgroup.usage,
                containers: Vec::new(),
            }),
            Whose::Container(_, id) => {
                if let Some(pod) = snapshot.pods.last_mut() {
                    pod.containers.push((id.clone(), cgroup.usage));
                }
            }
            Whose::Class | Whose::System(_) => {}
        }
    }
    snapshot
}

/// Under which name a cgroup's earlier reading is kept, the same for slim and whole readings.
fn base_path(whose: &Whose, path: &str) -> PathBuf {
    let path = PathBuf::from(path.trim_start_matches('/'));
    match whose {
        Whose::Container(_, id) => path.with_file_name(id.as_str()),
        _ => path,
    }
}

/// Completes a reading with its rate; gives the base for the next one.
fn rate(base: Option<Base>, usage: CgroupUsage) -> (CgroupUsage, Option<Base>) {
    let Some(cpu_nanos) = usage.cpu_nanos else {
        return (usage, None);
    };
    let new = Base { at: usage.at, cpu_nanos, rate: None };
    // A counter that went back belongs to another cgroup of the same name.
    let Some(base) = base.filter(|base| base.cpu_nanos <= cpu_nanos) else {
        return (usage, Some(new));
    };
    let span = usage.at.since(base.at);
    let used = u128::from(cpu_nanos - base.cpu_nanos);
    let over_span = used.saturating_mul(1_000_000_000).checked_div(span.as_nanos());
    let over_span = over_span.and_then(|rate| u64::try_from(rate).ok());
    let is_due = span >= RATE_OVER;
    let rate = if is_due || base.rate.is_none() { over_span } else { base.rate };
    let usage = CgroupUsage { cpu_nano_cores: rate, ..usage };
    let next = if is_due { Base { rate, ..new } } else { base };
    (usage, Some(next))
}

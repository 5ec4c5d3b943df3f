//! What is used, from cgroup files: the port `Usage`, for v1 and v2.
//!
//! In: the mounted hierarchies and the name of the pods' cgroup. Out: a snapshot of the node, each pod and each container. The
//! tree itself says who is there, so nothing has to be told about pods; the directories' names carry the identities. One reading
//! serves everybody who asks within a second. Refuses: names and policy; a second collector (upstream has two).

mod names;
mod parse;
mod read;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::{
    CgroupDriver, CgroupUsage, Clock, Fut, HostError, PodUsage, Usage, UsageSnapshot,
};
use ferrolet_types::Timestamp;
use tokio::sync::Mutex;

use crate::cgroups::{CgroupLayout, CgroupName};
use crate::offload::off_thread;
use read::Places;

/// A snapshot younger than this serves the next caller too.
const FRESH: Duration = Duration::from_secs(1);
/// A rate is taken over at least this long, so that a burst of callers does not make it jump.
const RATE_OVER: Duration = Duration::from_secs(10);

/// Where to read.
pub struct UsageSettings {
    /// The configuration's `cgroupRoot`.
    pub root: String,
    /// How cgroups are named.
    pub driver: CgroupDriver,
    /// What is mounted.
    pub layout: CgroupLayout,
    /// Wall time for the readings.
    pub clock: Arc<dyn Clock>,
}

/// Reads cgroups on demand.
pub struct UsageReader {
    places: Arc<Places>,
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    last: Option<Arc<UsageSnapshot>>,
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
            places: Arc::new(Places::new(&settings.layout, pods)),
            clock: settings.clock,
            kept: Mutex::new(Kept::default()),
        }
    }

    async fn read(&self, kept: &mut Kept) -> Result<Arc<UsageSnapshot>, HostError> {
        let (places, at) = (self.places.clone(), self.clock.now());
        let found = off_thread("read usage from cgroups", move || places.scan(at)).await?;
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
            pods.push(PodUsage {
                uid: pod.uid,
                total,
                containers,
            });
        }
        // Only what is there is remembered.
        kept.bases = bases;
        let snapshot = Arc::new(UsageSnapshot {
            node,
            all_pods,
            pods,
        });
        kept.last = Some(snapshot.clone());
        Ok(snapshot)
    }
}

impl Usage for UsageReader {
    fn snapshot(&self) -> Fut<'_, Result<Arc<UsageSnapshot>, HostError>> {
        Box::pin(async move {
            // Held while reading, so that callers at the same time wait for one reading.
            let mut kept = self.kept.lock().await;
            if let Some(last) = &kept.last
                && self.clock.now().since(last.node.at) < FRESH
            {
                return Ok(last.clone());
            }
            self.read(&mut kept).await
        })
    }
}

/// Completes a reading with its rate; gives the base for the next one.
fn rate(base: Option<Base>, usage: CgroupUsage) -> (CgroupUsage, Option<Base>) {
    let Some(cpu_nanos) = usage.cpu_nanos else {
        return (usage, None);
    };
    let new = Base {
        at: usage.at,
        cpu_nanos,
        rate: None,
    };
    // A counter that went back belongs to another cgroup of the same name.
    let Some(base) = base.filter(|base| base.cpu_nanos <= cpu_nanos) else {
        return (usage, Some(new));
    };
    let span = usage.at.since(base.at);
    let used = u128::from(cpu_nanos - base.cpu_nanos);
    let over_span = used
        .saturating_mul(1_000_000_000)
        .checked_div(span.as_nanos());
    let over_span = over_span.and_then(|rate| u64::try_from(rate).ok());
    let is_due = span >= RATE_OVER;
    let rate = if is_due || base.rate.is_none() {
        over_span
    } else {
        base.rate
    };
    let usage = CgroupUsage {
        cpu_nano_cores: rate,
        ..usage
    };
    let next = if is_due { Base { rate, ..new } } else { base };
    (usage, Some(next))
}

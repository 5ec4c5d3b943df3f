//! The kernel's word when memory runs short: the port `MemoryAlarm`.
//!
//! ```text
//!  v1  a line on memory.usage_in_bytes, by cgroup.event_control: one eventfd for each line, set anew with each call
//!  v2  a trigger on /proc/pressure/memory: somebody waits for memory; set once
//! ```
//!
//! v2 has no lines on usage, so it rings when the machine begins to wait for memory; whoever is rung
//! looks at the figures. Descriptors that are waited for, no thread. Refuses: deciding whether
//! memory is short.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ferrolet_linux::{
    cgroups::{CgroupLayout, CgroupName},
    offload::{Job, Pool, refused},
    sys::{watch_priority, watch_readable},
};
use ferrolet_ports::{AlarmLine, AlarmScope, CgroupDriver, Fut, HostError, MemoryAlarm};
use rustix::event::{EventfdFlags, eventfd};
use tokio::io::{Interest, unix::AsyncFd};

const STALLS: &str = "/proc/pressure/memory";
/// Somebody waits for memory for a tenth of half a second, or of two seconds: without
/// `CAP_SYS_RESOURCE` the kernel takes whole windows of two seconds only.
const TRIGGERS: [&str; 2] = ["some 50000 500000", "some 200000 2000000"];

/// The kernel's alarm.
pub struct KernelMemoryAlarm {
    kind: Kind,
    set: Mutex<Vec<Arc<Bell>>>,
}

enum Kind {
    /// The cgroups of the machine and of all pods together.
    Lines {
        node: PathBuf,
        pods: PathBuf,
    },
    Stalls(PathBuf),
}

/// One thing that can ring.
enum Bell {
    Line(AsyncFd<File>),
    Stall(AsyncFd<File>),
}

impl KernelMemoryAlarm {
    /// The alarm of a node whose pods are below `root`.
    pub fn new(layout: &CgroupLayout, root: &str, driver: CgroupDriver) -> Self {
        let kind = match layout {
            CgroupLayout::V1 { hierarchies, .. } => {
                let has_memory = |names: &[String]| names.iter().any(|name| name == "memory");
                let memory = hierarchies.iter().find(|it| has_memory(&it.controllers));
                let node = memory.map(|it| it.mount.clone()).unwrap_or_default();
                let pods = CgroupName::parse(root).child("kubepods").to_driver(driver);
                Kind::Lines { pods: node.join(pods.trim_start_matches('/')), node }
            }
            CgroupLayout::V2 { .. } => Kind::Stalls(PathBuf::from(STALLS)),
        };
        Self { kind, set: Mutex::default() }
    }

    fn bells(&self) -> Vec<Arc<Bell>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, bells: Vec<Arc<Bell>>) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = bells;
    }

    async fn set_lines(
        &self,
        lines: Vec<AlarmLine>,
        node: &Path,
        pods: &Path,
    ) -> Result<(), HostError> {
        let (mut bells, mut refusal) = (Vec::new(), None);
        for line in lines {
            let place = match line.scope {
                AlarmScope::Node => node,
                AlarmScope::AllPods => pods,
            };
            let attempt = format!("watch memory at {}", place.display());
            let (what, place) = (attempt.clone(), place.to_owned());
            let set = move || set_line(&place, line.usage).map_err(|it| refused(what, &it));
            let set = Job::on(Pool::State, &attempt).run(set).await;
            let bell = set.and_then(|it| watch_readable(it).map_err(|it| refused(attempt, &it)));
            match bell {
                Ok(bell) => bells.push(Arc::new(Bell::Line(bell))),
                Err(error) => refusal = Some(error),
            }
        }
        // One that rings is better than none.
        let refusal = refusal.filter(|_| bells.is_empty());
        // The lines of before go with their descriptors.
        self.replace(bells);
        refusal.map_or(Ok(()), Err)
    }

    async fn set_trigger(&self, path: &Path) -> Result<(), HostError> {
        if !self.bells().is_empty() {
            return Ok(());
        }
        let attempt = format!("set a trigger on {}", path.display());
        let (what, path) = (attempt.clone(), path.to_owned());
        let set = move || set_trigger(&path).map_err(|it| refused(what, &it));
        let file = Job::on(Pool::State, &attempt).run(set).await?;
        let bell = watch_priority(file).map_err(|it| refused(attempt, &it))?;
        self.replace(vec![Arc::new(Bell::Stall(bell))]);
        Ok(())
    }
}

impl MemoryAlarm for KernelMemoryAlarm {
    fn arm(&self, lines: Vec<AlarmLine>) -> Fut<'_, Result<(), HostError>> {
        Box::pin(async move {
            match &self.kind {
                Kind::Lines { node, pods } => self.set_lines(lines, node, pods).await,
                Kind::Stalls(path) => self.set_trigger(path).await,
            }
        })
    }

    fn rings(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            let bells = self.bells();
            if bells.is_empty() {
                return std::future::pending().await;
            }
            let all = bells.iter().map(|bell| Box::pin(bell.rings()));
            // Those that are dropped have taken nothing.
            futures::future::select_all(all).await;
        })
    }
}

impl Bell {
    /// Waits until this one rings. A bell that breaks is silent for ever: the poll stays.
    async fn rings(&self) {
        let rung = match self {
            Self::Line(event) => line_rings(event).await,
            Self::Stall(trigger) => match trigger.ready(Interest::PRIORITY).await {
                Ok(mut ready) => {
                    ready.clear_ready();
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = rung {
            tracing::warn!(%error, "An alarm of memory is lost");
            std::future::pending::<()>().await;
        }
    }
}

async fn line_rings(event: &AsyncFd<File>) -> io::Result<()> {
    loop {
        let mut ready = event.readable().await?;
        // Eight bytes with the number of events; reading them takes them all.
        let mut count = [0; 8];
        match ready.try_io(|event| event.get_ref().read(&mut count)) {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return Err(error),
            // It was not ready after all.
            Err(_) => {}
        }
    }
}

/// Sets a line on what a cgroup of v1 has in use; what is returned becomes readable when it is
/// crossed.
fn set_line(cgroup: &Path, usage: u64) -> io::Result<File> {
    let watched = File::open(cgroup.join("memory.usage_in_bytes"))?;
    let mut control = OpenOptions::new().write(true).open(cgroup.join("cgroup.event_control"))?;
    let event = File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let order = format!("{} {} {usage}", event.as_raw_fd(), watched.as_raw_fd());
    control.write_all(order.as_bytes())?;
    Ok(event)
}

/// Sets a trigger; what is returned has urgent news when somebody waits for memory.
fn set_trigger(path: &Path) -> io::Result<File> {
    let mut refusal = io::Error::from(io::ErrorKind::Unsupported);
    for trigger in TRIGGERS {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        match file.write_all(format!("{trigger}\0").as_bytes()) {
            Ok(()) => return Ok(file),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn alarm(kind: Kind) -> KernelMemoryAlarm {
        KernelMemoryAlarm { kind, set: Mutex::default() }
    }

    #[tokio::test]
    async fn a_cgroup_without_control_is_an_error_and_nothing_rings() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("memory.usage_in_bytes"), "1").unwrap();
        let (node, pods) = (place.path().to_owned(), place.path().join("kubepods"));
        let alarm = alarm(Kind::Lines { node, pods });
        for scope in [AlarmScope::Node, AlarmScope::AllPods] {
            let refused = alarm.arm(vec![AlarmLine { scope, usage: 1 }]).await.unwrap_err();
            assert!(refused.to_string().contains("watch memory at"), "{refused}");
        }
        assert!(alarm.arm(Vec::new()).await.is_ok());
        let waited = tokio::time::timeout(Duration::from_millis(20), alarm.rings()).await;
        assert!(waited.is_err());
    }

    /// What is written where the kernel listens, and that a descriptor of an event rings.
    #[tokio::test]
    async fn a_line_is_told_with_both_descriptors_and_rings_when_the_kernel_says_so() {
        let place = tempfile::tempdir().unwrap();
        for name in ["memory.usage_in_bytes", "cgroup.event_control"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        let mut event = set_line(place.path(), 4096).unwrap();
        let told = std::fs::read_to_string(place.path().join("cgroup.event_control")).unwrap();
        let words: Vec<&str> = told.split(' ').collect();
        assert_eq!((words.len(), words[2]), (3, "4096"));
        assert_eq!(words[0], event.as_raw_fd().to_string());
        event.write_all(&1_u64.to_ne_bytes()).unwrap();
        let bell = Arc::new(Bell::Line(watch_readable(event).unwrap()));
        let alarm = alarm(Kind::Stalls(PathBuf::new()));
        alarm.replace(vec![bell]);
        tokio::time::timeout(Duration::from_secs(5), alarm.rings()).await.unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(20), alarm.rings()).await;
        assert!(waited.is_err(), "one ring is heard once");
    }

    /// Where the kernel accounts for waiting, it takes one of the triggers from anybody.
    #[tokio::test]
    async fn a_trigger_is_taken_where_the_kernel_has_them() {
        let alarm = alarm(Kind::Stalls(PathBuf::from(STALLS)));
        match alarm.arm(Vec::new()).await {
            Ok(()) => assert_eq!(alarm.bells().len(), 1),
            Err(refused) => assert!(refused.to_string().contains(STALLS), "{refused}"),
        }
        let gone = KernelMemoryAlarm {
            kind: Kind::Stalls(PathBuf::from("/nonexistent")),
            set: Mutex::default(),
        };
        assert!(gone.arm(Vec::new()).await.is_err());
    }
}

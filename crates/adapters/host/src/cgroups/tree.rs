//! The node's part of the cgroup hierarchy: `kubepods`, its two classes, and the pods in them.
//!
//! In: places and bounds as values. Out: cgroups. Every touch runs off the async threads with a
//! deadline; passes that wait for processes to leave pause in tokio's time. Idempotent throughout:
//! absent is removed, present is bounded again.

use std::{sync::Arc, time::Duration};

use ferrolet_linux::{
    cgroups::{CgroupLayout, CgroupName},
    offload::{Job, Pool, never},
    rooted::is_plain_name,
};
use ferrolet_ports::{
    CgroupDriver, Fut, HostError, NodeCgroups, PodCgroups, Retry, SliceProperty, Slices,
};
use ferrolet_resources::{CgroupLimits, ClassBounds, NodeCgroup, PodCgroup};
use ferrolet_types::{PodUid, Qos};

use super::{
    place::{HugePages, Place, PlaceKind, read_text},
    slices::{self, Version},
    sweep::{self, Swept},
};

/// The smallest weight there is; best-effort pods share it.
const MIN_SHARES: u64 = 2;
const LEAST: CgroupLimits = CgroupLimits { cpu_shares: Some(MIN_SHARES), ..CgroupLimits::NONE };
const KUBEPODS: &str = "kubepods";
const POD_PREFIX: &str = "pod";
/// Killed processes leave within milliseconds unless the kernel holds them; then later is soon
/// enough.
const KILL_PASSES: u32 = 12;
const REMOVE_PASSES: u32 = 10;
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What a tree is built from.
#[derive(Clone, Debug)]
pub struct CgroupTreeSettings {
    /// The configuration's `cgroupRoot`; must exist in every hierarchy.
    pub root: String,
    /// The configuration's `cgroupsPerQOS`; without it there are no cgroups of ours at all.
    pub per_qos: bool,
    /// Who makes cgroups.
    pub driver: CgroupDriver,
    /// What is mounted.
    pub layout: CgroupLayout,
    /// Whoever makes slices; the driver systemd needs it.
    pub slices: Option<Arc<dyn Slices>>,
}

/// Why there is no tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CgroupTreeError {
    /// Slices need somebody who makes them.
    #[error("the cgroup driver systemd needs systemd's bus")]
    NobodyMakesSlices,
    /// The root is not a path of plain names.
    #[error("cgroup root {0:?} is not a path of plain names")]
    InvalidRoot(String),
}

/// The cgroups of one node.
#[derive(Clone, Debug)]
pub struct CgroupTree {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    places: Vec<Place>,
    n_given: usize,
    kubepods: CgroupName,
    per_qos: bool,
    driver: CgroupDriver,
    version: Version,
    slices: Option<Arc<dyn Slices>>,
}

impl CgroupTree {
    /// Builds the tree; touches nothing.
    pub fn new(settings: CgroupTreeSettings) -> Result<Self, CgroupTreeError> {
        let slices = settings.slices.filter(|_| settings.driver == CgroupDriver::Systemd);
        if settings.driver == CgroupDriver::Systemd && slices.is_none() {
            return Err(CgroupTreeError::NobodyMakesSlices);
        }
        let root = CgroupName::parse(&settings.root);
        if !root.components().iter().all(|name| is_plain_name(name)) {
            return Err(CgroupTreeError::InvalidRoot(settings.root));
        }
        Ok(Self {
            inner: Arc::new(Inner {
                places: Place::all(&settings.layout),
                n_given: root.components().len(),
                kubepods: root.child(KUBEPODS),
                per_qos: settings.per_qos,
                driver: settings.driver,
                version: match settings.layout {
                    CgroupLayout::V1 { .. } => Version::V1,
                    CgroupLayout::V2 { .. } => Version::V2,
                },
                slices,
            }),
        })
    }

    /// Makes the node's own cgroups: `kubepods` and the two classes below it, with the given
    /// bounds. Idempotent.
    pub async fn ensure_node(&self, bounds: ClassBounds) -> Result<(), HostError> {
        self.inner.make_slice(&self.inner.kubepods, &bounds.all).await?;
        self.make_class_slices(&bounds).await?;
        let inner = Arc::clone(&self.inner);
        Job::on(Pool::State, "make the node's cgroups")
            .run(move || {
                if !inner.per_qos {
                    return Ok(());
                }
                inner.ensure(&inner.kubepods, &bounds.all)?;
                inner.ensure_classes(&bounds)
            })
            .await
    }

    async fn make_class_slices(&self, bounds: &ClassBounds) -> Result<(), HostError> {
        if self.inner.slices.is_none() || !self.inner.per_qos {
            return Ok(());
        }
        let (inner, bounds) = (Arc::clone(&self.inner), *bounds);
        let looked = Job::on(Pool::State, "look at the classes of pods").run(move || {
            let classes = inner.class_limits(&bounds).into_iter();
            let classes = classes.map(|(name, limits)| {
                let limits = inner.attainable(&name, limits)?;
                Ok((name, limits))
            });
            classes.collect::<Result<Vec<_>, HostError>>()
        });
        for (name, limits) in looked.await? {
            self.inner.make_slice(&name, &limits).await?;
        }
        Ok(())
    }

    async fn set_classes(&self, bounds: ClassBounds) -> Result<(), HostError> {
        if bounds.all != CgroupLimits::NONE {
            self.inner.make_slice(&self.inner.kubepods, &bounds.all).await?;
        }
        self.make_class_slices(&bounds).await?;
        let inner = Arc::clone(&self.inner);
        Job::on(Pool::State, "bound the classes of pods")
            .run(move || {
                if !inner.per_qos {
                    return Ok(());
                }
                if bounds.all != CgroupLimits::NONE {
                    inner.ensure(&inner.kubepods, &bounds.all)?;
                }
                inner.ensure_classes(&bounds)
            })
            .await
    }

    async fn remove_pod(&self, uid: &PodUid) -> Result<(), HostError> {
        if !self.inner.per_qos {
            return Ok(());
        }
        let attempt = format!("remove the cgroup of pod {uid}");
        let names = self.inner.candidates(uid)?;
        let placed: Vec<CgroupName> = names.iter().map(|name| self.inner.placed(name)).collect();
        self.repeat(&attempt, KILL_PASSES, &placed, sweep::kill).await?;
        self.stop_slices(&attempt, &names).await?;
        self.repeat(&attempt, REMOVE_PASSES, &placed, sweep::remove).await
    }

    /// Has systemd let go of what is there.
    async fn stop_slices(&self, attempt: &str, names: &[CgroupName]) -> Result<(), HostError> {
        let Some(slices) = &self.inner.slices else {
            return Ok(());
        };
        for name in names {
            let (inner, placed) = (Arc::clone(&self.inner), self.inner.placed(name));
            let looked = Job::on(Pool::State, attempt).alone(attempt).run(move || {
                let found = inner.places.iter().map(|place| place.find(&placed));
                Ok(found.collect::<Result<Vec<_>, _>>()?.iter().any(Option::is_some))
            });
            if looked.await? {
                let unit = slices::slice(name, &CgroupLimits::NONE, self.inner.version).name;
                slices.stop(&unit).await?;
            }
        }
        Ok(())
    }

    /// Repeats a pass with growing pauses until it is clean.
    async fn repeat(
        &self,
        attempt: &str,
        n_passes: u32,
        names: &[CgroupName],
        pass: fn(&[Place], &[CgroupName]) -> Result<Swept, HostError>,
    ) -> Result<(), HostError> {
        let mut pause = Duration::from_millis(1);
        let mut swept = Swept::Clean;
        for _ in 0..n_passes {
            let (inner, names) = (Arc::clone(&self.inner), names.to_vec());
            swept = Job::on(Pool::State, attempt)
                .alone(attempt)
                .run(move || pass(&inner.places, &names))
                .await?;
            if swept == Swept::Clean {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        let cause = match swept {
            Swept::Clean | Swept::Running => "processes in it do not end",
            Swept::Busy => "the kernel still counts it as busy",
        };
        Err(HostError { attempt: attempt.to_owned(), cause: cause.to_owned(), retry: Retry::Later })
    }
}

impl PodCgroups for CgroupTree {
    fn parent_of(&self, pod: &PodCgroup) -> String {
        // Without classes the runtime chooses the place, as with upstream.
        if !self.inner.per_qos {
            return String::new();
        }
        let name = self.inner.class(pod.qos).child(&component_of(&pod.uid));
        name.to_driver(self.inner.driver)
    }

    fn exists<'a>(&'a self, pod: &'a PodCgroup) -> Fut<'a, Result<bool, HostError>> {
        let (inner, pod) = (Arc::clone(&self.inner), pod.clone());
        let attempt = format!("look for the cgroup of pod {}", pod.uid);
        Box::pin(Job::on(Pool::State, attempt).alone(pod.uid.as_str()).run(move || {
            if !inner.per_qos {
                return Ok(true);
            }
            let name = inner.placed(&inner.pod(&pod)?);
            for place in &inner.places {
                if !place.exists(&name)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }))
    }

    fn ensure<'a>(&'a self, pod: &'a PodCgroup) -> Fut<'a, Result<(), HostError>> {
        let (inner, pod) = (Arc::clone(&self.inner), pod.clone());
        let attempt = format!("make the cgroup of pod {}", pod.uid);
        Box::pin(async move {
            if !inner.per_qos {
                return Ok(());
            }
            let name = inner.pod(&pod)?;
            inner.make_slice(&name, &pod.limits).await?;
            let key = pod.uid.clone();
            let files = Job::on(Pool::State, attempt).alone(key.as_str()).run(move || {
                inner.ensure(&name, &pod.limits)?;
                inner.bound_huge_pages(&name, &HugePages::Sizes(&pod.huge_pages))
            });
            files.await
        })
    }

    fn bound_classes(&self, bounds: ClassBounds) -> Fut<'_, Result<(), HostError>> {
        Box::pin(self.set_classes(bounds))
    }

    fn lower_cpu<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>> {
        let (inner, uid) = (Arc::clone(&self.inner), uid.clone());
        let attempt = format!("lower the CPU weight of pod {uid}");
        Box::pin(async move {
            let lowering = Arc::clone(&inner);
            let files = Job::on(Pool::State, attempt).alone(uid.as_str()).run(move || {
                let mut lowered = Vec::new();
                if !inner.per_qos {
                    return Ok(lowered);
                }
                for name in inner.candidates(&uid)? {
                    let placed = inner.placed(&name);
                    for place in &inner.places {
                        if let Some(cgroup) = place.find(&placed)? {
                            place.bound(&cgroup, &placed, &LEAST)?;
                            lowered.push(name.clone());
                        }
                    }
                }
                lowered.dedup();
                Ok(lowered)
            });
            // systemd is told too, or it would write its own number again.
            for name in files.await? {
                lowering.set_slice(&name, &LEAST).await?;
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>> {
        Box::pin(self.remove_pod(uid))
    }

    fn list(&self) -> Fut<'_, Result<Vec<PodUid>, HostError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(Job::on(Pool::State, "list the cgroups of pods").run(move || {
            let mut uids = Vec::new();
            if !inner.per_qos {
                return Ok(uids);
            }
            for place in &inner.places {
                for parent in inner.classes() {
                    for child in place.children(&inner.placed(&parent))? {
                        uids.extend(inner.uid_in(&child));
                    }
                }
            }
            uids.sort();
            uids.dedup();
            Ok(uids)
        }))
    }
}

impl NodeCgroups for CgroupTree {
    fn bound<'a>(&'a self, cgroup: &'a NodeCgroup) -> Fut<'a, Result<(), HostError>> {
        let (inner, cgroup) = (Arc::clone(&self.inner), cgroup.clone());
        Box::pin(async move {
            if !inner.per_qos {
                return Ok(());
            }
            let (name, is_ours) = match cgroup.place.reserved() {
                None => (inner.kubepods.clone(), true),
                Some(reserved) => (inner.reserved(&reserved.name)?, false),
            };
            match is_ours {
                true => inner.make_pods_slice(&cgroup.limits).await?,
                false => inner.set_slice(&name, &cgroup.limits).await?,
            }
            let files = Job::on(Pool::State, "bound the node's cgroups").run(move || {
                match is_ours {
                    true => inner.ensure(&name, &cgroup.limits)?,
                    false => inner.bound_existing(&name, &cgroup.limits)?,
                }
                match &cgroup.huge_pages {
                    Some(sizes) => inner.bound_huge_pages(&name, &HugePages::Sizes(sizes)),
                    None => Ok(()),
                }
            });
            files.await
        })
    }
}

impl Inner {
    /// The place as it is in the file system.
    fn placed(&self, name: &CgroupName) -> CgroupName {
        match self.driver {
            CgroupDriver::Cgroupfs => name.clone(),
            CgroupDriver::Systemd => CgroupName::parse(&name.to_systemd()),
        }
    }

    /// Has systemd make a slice, where it is the one who makes cgroups.
    async fn make_slice(&self, name: &CgroupName, limits: &CgroupLimits) -> Result<(), HostError> {
        match &self.slices {
            Some(slices) if self.per_qos => {
                slices.ensure(&slices::slice(name, limits, self.version)).await
            }
            _ => Ok(()),
        }
    }

    /// The slice of all pods names every processor on v2: systemd takes controllers away that no
    /// unit asks for, and pods need that of processors.
    async fn make_pods_slice(self: &Arc<Self>, limits: &CgroupLimits) -> Result<(), HostError> {
        let Some(slices) = &self.slices else {
            return Ok(());
        };
        let mut slice = slices::slice(&self.kubepods, limits, self.version);
        let inner = Arc::clone(self);
        let mask = Job::on(Pool::State, "list processors").run(move || Ok(inner.processors()));
        let mask = mask.await?;
        if !mask.is_empty() {
            slice.properties.push(SliceProperty::Mask("AllowedCPUs", mask));
        }
        slices.ensure(&slice).await
    }

    /// Gives a slice that is there other bounds.
    async fn set_slice(&self, name: &CgroupName, limits: &CgroupLimits) -> Result<(), HostError> {
        let Some(slices) = &self.slices else {
            return Ok(());
        };
        let slice = slices::slice(name, limits, self.version);
        slices.set(&slice.name, &slice.properties).await
    }

    /// Every processor of the machine, a bit each; none where the kernel does not say.
    fn processors(&self) -> Vec<u8> {
        let mut unified = self.places.iter().filter(|place| place.kind == PlaceKind::Unified);
        let root = unified.next().and_then(|place| place.find(&CgroupName::parse("/")).ok()?);
        let list = root.and_then(|root| read_text(&root, "cpuset.cpus.effective").ok());
        list.map(|list| slices::processor_mask(&list)).unwrap_or_default()
    }

    fn class_limits(&self, bounds: &ClassBounds) -> [(CgroupName, CgroupLimits); 2] {
        let best_effort = CgroupLimits { memory: bounds.best_effort.memory, ..LEAST };
        [(Qos::Burstable, bounds.burstable), (Qos::BestEffort, best_effort)]
            .map(|(qos, limits)| (self.class(qos), limits))
    }

    /// Makes the two classes and bounds them. Their pods' huge pages are bounded one by one.
    fn ensure_classes(&self, bounds: &ClassBounds) -> Result<(), HostError> {
        for (name, limits) in self.class_limits(bounds) {
            let limits = self.attainable(&name, limits)?;
            self.ensure(&name, &limits)?;
            self.bound_huge_pages(&name, &HugePages::Unbounded)?;
        }
        Ok(())
    }

    fn bound_huge_pages(&self, name: &CgroupName, pages: &HugePages<'_>) -> Result<(), HostError> {
        let name = self.placed(name);
        self.places.iter().try_for_each(|place| place.bound_huge_pages(&name, pages))
    }

    /// Memory that is in use already cannot be bounded away: v1 refuses and v2 would kill for it.
    /// Such a class stops growing.
    fn attainable(
        &self,
        name: &CgroupName,
        limits: CgroupLimits,
    ) -> Result<CgroupLimits, HostError> {
        let Some(bound) = limits.memory.filter(|bytes| *bytes >= 0) else {
            return Ok(limits);
        };
        let mut in_use = 0;
        for place in &self.places {
            in_use = in_use.max(place.memory_in_use(&self.placed(name))?);
        }
        Ok(CgroupLimits { memory: Some(bound.max(in_use)), ..limits })
    }

    /// The cgroup that the configuration names for daemons.
    fn reserved(&self, path: &str) -> Result<CgroupName, HostError> {
        let name = match self.driver {
            CgroupDriver::Cgroupfs => CgroupName::parse(path),
            CgroupDriver::Systemd => slices::reserved_place(path),
        };
        if name.components().is_empty() || !name.components().iter().all(|it| is_plain_name(it)) {
            return Err(never(format!("bound cgroup {path}"), "it is not a path of plain names"));
        }
        Ok(name)
    }

    /// Bounds a cgroup that somebody else made.
    fn bound_existing(&self, name: &CgroupName, limits: &CgroupLimits) -> Result<(), HostError> {
        let name = self.placed(name);
        for place in &self.places {
            if !place.exists(&name)? {
                let attempt = format!("bound cgroup {}", name.to_cgroupfs());
                return Err(never(attempt, format!("there is no {}", place.shown(&name))));
            }
        }
        for place in &self.places {
            if let Some(cgroup) = place.find(&name)? {
                place.bound(&cgroup, &name, limits)?;
            }
        }
        Ok(())
    }

    fn class(&self, qos: Qos) -> CgroupName {
        match qos {
            Qos::Guaranteed => self.kubepods.clone(),
            Qos::Burstable => self.kubepods.child("burstable"),
            Qos::BestEffort => self.kubepods.child("besteffort"),
        }
    }

    fn classes(&self) -> [CgroupName; 3] {
        [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort].map(|qos| self.class(qos))
    }

    fn pod(&self, pod: &PodCgroup) -> Result<CgroupName, HostError> {
        Ok(self.class(pod.qos).child(&checked_component(&pod.uid)?))
    }

    /// Everywhere the pod's cgroup may stand: its class is no longer known when only the uid is
    /// left.
    fn candidates(&self, uid: &PodUid) -> Result<Vec<CgroupName>, HostError> {
        let component = checked_component(uid)?;
        Ok(self.classes().iter().map(|class| class.child(&component)).collect())
    }

    fn ensure(&self, name: &CgroupName, limits: &CgroupLimits) -> Result<(), HostError> {
        let name = self.placed(name);
        for place in &self.places {
            let cgroup = place.ensure(&name, self.n_given)?;
            place.bound(&cgroup, &name, limits)?;
        }
        Ok(())
    }

    /// The pod whose cgroup's directory is called so.
    fn uid_in(&self, directory: &str) -> Option<PodUid> {
        match self.driver {
            CgroupDriver::Cgroupfs => uid_of(directory),
            CgroupDriver::Systemd => uid_of(&slices::component_of(directory)?),
        }
    }
}

fn component_of(uid: &PodUid) -> String {
    format!("{POD_PREFIX}{uid}")
}

/// A uid may come from a manifest, so it is text until proven a name. The underscore is taken:
/// slices need it for dashes.
fn checked_component(uid: &PodUid) -> Result<String, HostError> {
    let component = component_of(uid);
    if uid.as_str().is_empty() || uid.as_str().contains('_') || !is_plain_name(&component) {
        return Err(never(
            format!("name the cgroup of pod {uid:?}"),
            "the uid is not a plain name",
        ));
    }
    Ok(component)
}

fn uid_of(component: &str) -> Option<PodUid> {
    component.strip_prefix(POD_PREFIX).filter(|uid| !uid.is_empty()).map(PodUid::from)
}

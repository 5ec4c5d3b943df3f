//! What pod workers call: make every volume of a pod ready, a part of one, and take them all away.
//!
//! One attempt at a time per pod. What an attempt does is in `mount`, for one volume; the way back is
//! in `release`; what happens without anybody asking is in `refresh` and `left_over`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_ports::{
    Clock, ClusterObjects, CsiDrivers, Events, Fut, NodeMounts, PodVolumes, StorageObjects,
    SubPath, SubPathBind, VolumeError, VolumeFiles, VolumeMount, VolumePlugin,
};
use ferrolet_resources::Amounts;
use ferrolet_types::{Pod, PodUid};
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use crate::{
    csi::CsiPlugin,
    local::LocalPlugin,
    nfs::NfsPlugin,
    plan::plan_pod,
    refresh::About,
    selinux::SelinuxNode,
    table::{InUse, VolumeTable},
    unready::{rejection, to_tell},
};

const FAILED_MOUNT: &str = "FailedMount";
/// Pods rewritten at the same time; a change that concerns all of them must not take the whole
/// machine.
const MOST_REFRESHES: usize = 16;

/// What the engine is made from.
pub struct Doors {
    /// Directories and mounts.
    pub files: Arc<dyn VolumeFiles>,
    /// Mounts of volumes that the node does not make itself.
    pub mounts: Arc<dyn NodeMounts>,
    /// Objects and tokens; a node on its own has none.
    pub objects: Option<Arc<dyn ClusterObjects>>,
    /// Claims and what they are bound to; a node on its own has none.
    pub storage: Option<Arc<dyn StorageObjects>>,
    /// Drivers that are registered on this node.
    pub drivers: Arc<dyn CsiDrivers>,
    /// Kinds of volumes that are served by others than this crate.
    pub plugins: Vec<Arc<dyn VolumePlugin>>,
    /// This node's name in the API.
    pub node_name: String,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// What the node has for pods: stands in for missing limits, and bounds memory.
    pub allocatable: Amounts,
    /// File systems that can are to keep account of volumes' sizes.
    pub meters_volumes: bool,
    /// Which of the cluster's newer objects volumes may hold.
    pub projections: crate::ProjectionGates,
    /// What SELinux calls things here; a node without it has nothing to say.
    pub selinux: Option<SelinuxNode>,
    /// How often objects are looked at when their changes are not announced (strategies other than
    /// watch).
    pub look_again: Option<Duration>,
    /// Hears of pods whose volumes were refused by `ensure` and have become ready since.
    pub became_ready: Option<mpsc::Sender<PodUid>>,
}

/// The pod volumes engine.
pub struct VolumeEngine {
    pub(crate) doors: Doors,
    pub(crate) plugins: Vec<Arc<dyn VolumePlugin>>,
    pub(crate) table: VolumeTable,
    /// Something was left on the node for nobody.
    pub(crate) left_over: watch::Sender<()>,
    pub(crate) appointments_changed: Notify,
    pub(crate) refreshes: Semaphore,
}

impl VolumeEngine {
    /// Takes the doors; touches nothing.
    pub fn new(doors: Doors) -> Self {
        Self {
            plugins: plugins(&doors),
            doors,
            table: VolumeTable::default(),
            left_over: watch::Sender::new(()),
            appointments_changed: Notify::new(),
            refreshes: Semaphore::new(MOST_REFRESHES),
        }
    }

    /// Attachable volumes in use on this node, and every change of them.
    pub fn volumes_in_use(&self) -> watch::Receiver<InUse> {
        self.table.in_use()
    }
}

/// Our own kinds of volumes, and those of others.
fn plugins(doors: &Doors) -> Vec<Arc<dyn VolumePlugin>> {
    let (files, mounts) = (&doors.files, &doors.mounts);
    let csi = doors.storage.clone().map(|storage| -> Arc<dyn VolumePlugin> {
        Arc::new(CsiPlugin {
            drivers: doors.drivers.clone(),
            objects: doors.objects.clone(),
            mounts: mounts.clone(),
            node_name: doors.node_name.clone(),
            storage,
        })
    });
    let own: [Arc<dyn VolumePlugin>; 2] = [
        Arc::new(LocalPlugin { files: files.clone(), mounts: mounts.clone() }),
        Arc::new(NfsPlugin { files: files.clone(), mounts: mounts.clone() }),
    ];
    own.into_iter().chain(csi).chain(doors.plugins.iter().cloned()).collect()
}

impl PodVolumes for VolumeEngine {
    fn ensure<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> Fut<'a, Result<BTreeMap<String, VolumeMount>, VolumeError>> {
        Box::pin(async move {
            let plan = Arc::new(plan_pod(pod, &self.doors.allocatable));
            if plan.volumes.is_empty() {
                return Ok(BTreeMap::new());
            }
            let turn = self.table.pod_turn(&plan.uid);
            let _turn = turn.lock().await;
            if let Some(objects) = &self.doors.objects {
                objects.register(pod);
            }
            self.table.want(Arc::clone(&plan));
            let outcomes = self.attempt(&plan, About::All).await;
            let mut ready = BTreeMap::new();
            let mut failed = Vec::new();
            for outcome in outcomes {
                match outcome {
                    Ok((name, mount)) => drop(ready.insert(name, mount)),
                    Err(unready) => failed.push(unready),
                }
            }
            if failed.is_empty() {
                return Ok(ready);
            }
            let now = self.doors.clock.now();
            let waiting = now.since(self.table.await_ready(&plan.uid, now));
            if let Some((driver, refusal)) = rejection(&failed, waiting) {
                if let Err(error) = self.doors.drivers.look_again(&driver).await {
                    tracing::warn!(driver, %error, "Driver does not say how many volumes this node takes");
                }
                return Err(refusal);
            }
            let mut told = to_tell(failed, waiting).into_iter();
            let first = told.next().expect("one failed");
            // The pod's worker tells of the one that it is answered with.
            told.for_each(|it| self.warn_pod(&plan, it.reason, it.message));
            Err(first)
        })
    }

    fn sub_path<'a>(&'a self, part: &'a SubPath) -> Fut<'a, Result<String, VolumeError>> {
        Box::pin(async move {
            let turn = self.table.pod_turn(&part.uid);
            let _turn = turn.lock().await;
            let bind = SubPathBind {
                uid: part.uid.clone(),
                volume: part.volume.clone(),
                volume_path: part.host_path.clone().into(),
                path: part.path.clone(),
                container: part.container.clone(),
                index: part.index,
            };
            let bound = self.doors.files.bind_sub_path(&bind).await;
            let place = bound.map_err(|error| {
                // The event must not tell what the node's file system looks like; the log may.
                tracing::warn!(pod = %part.uid, container = %part.container, %error, "Sub path cannot be mounted");
                VolumeError {
                    volume: Some(part.volume.clone()),
                    reason: FAILED_MOUNT,
                    message: format!(
                        "failed to prepare subPath for volumeMount {:?} of container {:?}",
                        part.volume, part.container
                    ),
                    retry: error.retry,
                }
            })?;
            Ok(place.display().to_string())
        })
    }

    fn release<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), VolumeError>> {
        Box::pin(async move {
            let turn = self.table.pod_turn(uid);
            let _turn = turn.lock().await;
            self.table.begin_release(uid);
            self.release_pod(uid).await?;
            self.release_node(uid).await?;
            if let Some(objects) = &self.doors.objects {
                objects.unregister(uid);
            }
            self.table.forget(uid);
            Ok(())
        })
    }
}

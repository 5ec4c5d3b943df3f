//! One volume from wish to mount, read from top to bottom. What is done is written into the table
//! here, step by step, and nowhere else.
//!
//! ```text
//!  mount ─► set_up ─┬─ emptyDir, hostPath, files, image                    made here and now
//!                   └─ mount_spec ─► plugin's mounter ─► steps (see `state`) ─► what the pod is shown
//! ```
//!
//! In: a planned volume and what was gathered for it. Out: where it stands, or upstream's sentence.
//! The caller holds the pod's turn; the turn at a volume that pods share is taken here.

use ferrolet_ports::{
    AttachedBy, EmptyDir, HostPathType, MountAsk, MountNeeds, NodeVolume, Payload, Repeats,
    VolumeError, VolumeFault, VolumeMount, VolumeMounter, VolumePlace, VolumePlugin, VolumeSource,
    VolumeSpec, VolumeStep,
};
use k8s_openapi::api::core::v1::Node;

use crate::{
    VolumeEngine,
    csi::{CSI, check_node},
    host_path::{Verdict, judge},
    local::LOCAL,
    nfs::NFS,
    operations,
    payload::{Gathered, compute},
    plan::{Desired, PlannedVolume, PodPlan},
    selinux::{Labelled, mount_label},
    state::{MountFacts, MountStep, Progress, Published, plan_steps},
    table::FoundVolume,
    unready::Unready,
    usage::DriverVolume,
};

/// A volume of a pod and where it stands, or why it is not ready.
pub(crate) type SetUp = Result<(String, VolumeMount), Unready>;

/// One volume on its way to one pod.
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a PodPlan,
    /// Its name in the pod.
    pub(crate) name: &'a str,
    pub(crate) spec: &'a VolumeSpec,
    pub(crate) place: VolumePlace,
    pub(crate) mounter: Box<dyn VolumeMounter + 'a>,
}

impl VolumeEngine {
    /// Makes one volume what it should be, unless somebody had better be left alone for a while.
    pub(crate) async fn mount(
        &self,
        plan: &PodPlan,
        volume: &PlannedVolume,
        gathered: &Gathered,
    ) -> SetUp {
        let (uid, name) = (&plan.uid, volume.name.as_str());
        if let Some(refusal) = self.table.refusal(uid, name, self.doors.clock.now()) {
            return Err(Unready::paused(refusal));
        }
        let resolved = gathered.claims.get(name).and_then(|it| it.as_ref().ok());
        let plugin = operations::plugin_of(volume, resolved);
        self.table.note_plugin(uid, name, plugin.clone());
        match operations::mount(&plugin, self.set_up(plan, volume, gathered)).await {
            Ok(mount) => {
                self.table.succeeded(uid, name);
                Ok((name.to_owned(), mount))
            }
            Err(fault) => {
                // A persistent volume is named by its own name, as upstream does.
                let own = resolved.filter(|_| fault.step != VolumeStep::Process);
                let error = VolumeError {
                    volume: Some(name.to_owned()),
                    reason: fault.reason(),
                    message: fault.sentence(own.map_or(name, |spec| &spec.name)),
                    retry: fault.retry,
                };
                self.table.failed(uid, name, &fault, &error, self.doors.clock.now());
                Err(Unready {
                    error,
                    step: fault.step,
                    awaits_objects: fault.awaits_objects,
                    full: fault.full,
                })
            }
        }
    }

    async fn set_up(
        &self,
        plan: &PodPlan,
        volume: &PlannedVolume,
        gathered: &Gathered,
    ) -> Result<VolumeMount, VolumeFault> {
        match &volume.desired {
            Desired::HostPath { path, expected } => {
                self.check_host_path(path, expected).await?;
                Ok(VolumeMount::at(path.clone(), false, false))
            }
            Desired::EmptyDir { medium, mode } => {
                let directory = EmptyDir {
                    marker: volume.name.clone(),
                    medium: *medium,
                    group: plan.group,
                    is_metered: plan.has_own_users && self.doors.meters_volumes,
                    mode: *mode,
                };
                let place = self.make_directory(plan, volume, &directory).await?;
                Ok(VolumeMount::at(self.path_of(&place), false, true))
            }
            Desired::Files { medium, sources, mount_points, .. } => {
                let files = compute(&volume.name, sources, gathered).map_err(|fault| {
                    let awaits_objects = fault.awaits_objects;
                    VolumeFault { awaits_objects, ..VolumeFault::later(fault.message) }
                })?;
                let directory = EmptyDir {
                    marker: format!("wrapped_{}", volume.name),
                    medium: *medium,
                    group: plan.group,
                    is_metered: false,
                    mode: EmptyDir::OPEN_TO_ALL,
                };
                let place = self.make_directory(plan, volume, &directory).await?;
                let payload =
                    Payload { files, mount_points: mount_points.clone(), group: plan.group };
                self.doors.files.write_payload(&place, &payload).await?;
                Ok(VolumeMount::at(self.path_of(&place), true, true))
            }
            Desired::Image { reference } => Ok(VolumeMount {
                image: Some(reference.clone()),
                ..VolumeMount::at(String::new(), true, true)
            }),
            Desired::Claim(_) => {
                let resolved = gathered.claims.get(&volume.name);
                let unknown = || VolumeFault::unprocessed("the claim was not looked up".to_owned());
                let resolved = resolved.ok_or_else(unknown)?.as_ref();
                let spec = resolved
                    .map_err(|missing| VolumeFault::unprocessed(missing.message.clone()))?;
                self.mount_spec(plan, volume, spec).await
            }
            Desired::Inline(spec) => self.mount_spec(plan, volume, spec).await,
            Desired::Impossible(why) => Err(VolumeFault::lasting(why.clone())),
            Desired::Unsupported(kind) => {
                let why = format!("volumes of kind {kind} are not supported yet");
                Err(VolumeFault::lasting(why).at(VolumeStep::Process))
            }
        }
    }

    /// Mounts a volume that the node does not make itself.
    async fn mount_spec(
        &self,
        plan: &PodPlan,
        planned: &PlannedVolume,
        spec: &VolumeSpec,
    ) -> Result<VolumeMount, VolumeFault> {
        let directory = directory_of(&spec.source);
        let found = FoundVolume {
            name: spec.name.clone(),
            driver: DriverVolume::of(self.doors.mounts.as_ref(), &plan.uid, spec),
            directory: directory.clone(),
        };
        self.table.note_found(&plan.uid, &planned.name, found);
        let label = self.selinux_label(plan, planned, spec)?;
        if let Some(why) = &spec.affinity_fault {
            return Err(VolumeFault::later(why.clone()).at(VolumeStep::Affinity));
        }
        if let VolumeSource::HostPath { path, expected } = &spec.source {
            self.check_host_path(path, expected).await?;
            let mount = VolumeMount::at(path.clone(), spec.is_read_only, false);
            return Ok(VolumeMount { group: spec.group, ..mount });
        }
        let plugin = self.plugin_for(&spec.source)?;
        let place =
            VolumePlace { uid: plan.uid.clone(), plugin: directory, name: spec.name.clone() };
        let published = self.table.published(&place);
        let ask = MountAsk {
            uid: &plan.uid,
            key: &plan.key,
            service_account: &plan.service_account,
            fs_group: plan.group,
            spec,
            label,
            published: published.map(|it| it.device),
        };
        let mounter = plugin.mounter(ask).await?;
        self.bring(Job { plan, name: &planned.name, spec, place, mounter }).await
    }

    /// Does the steps that are left, in their order, and keeps what came of each.
    async fn bring(&self, mut job: Job<'_>) -> Result<VolumeMount, VolumeFault> {
        let needs = job.mounter.needs();
        let turn = needs.node_volume.as_ref().map(|it| self.table.turn(it));
        let _turn = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        job.mounter.check().await?;
        let published = self.table.published(&job.place);
        let steps = plan_steps(
            &needs,
            &MountFacts {
                mode: job.spec.mode,
                published: published.as_ref(),
                is_staged: needs.node_volume.as_ref().is_some_and(|it| self.table.is_staged(it)),
                has_fs_group: job.plan.group.is_some(),
            },
        );
        if let Some(volume) = &needs.node_volume {
            self.table.advance(&job.plan.uid, job.name, Progress::Attaching(volume.clone()));
        }
        let mut device = String::new();
        for step in steps {
            match step {
                MountStep::VerifyAttached => {
                    if let (AttachedBy::Controller { unique_name }, Some(volume)) =
                        (&needs.attached_by, &needs.node_volume)
                    {
                        device = self.verify_attached(&job, volume, unique_name).await?;
                    }
                }
                MountStep::Attach => job.mounter.attach(std::mem::take(&mut device)).await?,
                MountStep::Stage => {
                    job.mounter.stage().await?;
                    if let Some(volume) = &needs.node_volume {
                        self.table.note_staged(volume);
                        let staged = Progress::Staged(volume.clone());
                        self.table.advance(&job.plan.uid, job.name, staged);
                    }
                }
                MountStep::Publish => {
                    job.mounter.publish().await?;
                    self.note_published(&job, &needs);
                }
                MountStep::SetOwnership => self.set_ownership(&job).await?,
                MountStep::Expand => self.expand(&mut job).await?,
                MountStep::Map => job.mounter.map().await?,
            }
        }
        self.note_published(&job, &needs);
        Ok(job.mounter.mount())
    }

    /// The pod has the volume; what was known of it stays known.
    fn note_published(&self, job: &Job<'_>, needs: &MountNeeds) {
        let published = Published {
            node_volume: needs.node_volume.clone(),
            device: job.mounter.device().to_owned(),
            is_looked_after: needs.may_grow || needs.repeats == Repeats::Republish,
            ..self.table.published(&job.place).unwrap_or_default()
        };
        self.table.advance(&job.plan.uid, job.name, Progress::Published(published));
    }

    /// Makes sure that the cluster knows a volume to be used and attached here; answers with its
    /// device, in the controller's words. Waits for nothing, because whoever asks comes back.
    async fn verify_attached(
        &self,
        job: &Job<'_>,
        volume: &NodeVolume,
        unique_name: &str,
    ) -> Result<String, VolumeFault> {
        // Said, and heard, before it is used: from then on nobody detaches it under the pod.
        self.table.note_use(volume, [unique_name.to_owned()]);
        let unheard = |why: &str| {
            VolumeFault::later(format!("failed fetching node from API server: {why}"))
                .at(VolumeStep::Verify)
        };
        let storage = self.doors.storage.as_ref().ok_or_else(|| unheard("there is none"))?;
        let node = storage.get_own_node().await.map_err(|error| unheard(&error.message))?;
        if let Err(why) = check_node(&node, unique_name) {
            let full = job.mounter.full_driver().await;
            return Err(VolumeFault { full, ..VolumeFault::later(why).at(VolumeStep::Verify) });
        }
        Ok(device_of(&node, unique_name))
    }

    fn plugin_for(&self, source: &VolumeSource) -> Result<&dyn VolumePlugin, VolumeFault> {
        let found = self.plugins.iter().find(|it| it.serves(source));
        found.map(AsRef::as_ref).ok_or_else(|| {
            VolumeFault::unprocessed(match source {
                VolumeSource::Csi(_) => "volumes of drivers need a cluster".to_owned(),
                VolumeSource::Unsupported(kind) => {
                    format!("volumes of kind {kind} are not supported")
                }
                _ => "volumes of this kind are not supported".to_owned(),
            })
        })
    }

    /// The label to mount a volume with, where whoever mounts it can do that.
    fn selinux_label(
        &self,
        plan: &PodPlan,
        planned: &PlannedVolume,
        spec: &VolumeSpec,
    ) -> Result<Option<String>, VolumeFault> {
        let Some(node) = &self.doors.selinux else {
            return Ok(None);
        };
        let labelled = Labelled {
            asked: &planned.selinux,
            access_modes: spec.claim.is_some().then_some(spec.access_modes.as_slice()),
            is_recursive: plan.relabels_files,
        };
        mount_label(node, &labelled).map_err(VolumeFault::unprocessed)
    }

    async fn make_directory(
        &self,
        plan: &PodPlan,
        volume: &PlannedVolume,
        directory: &EmptyDir,
    ) -> Result<VolumePlace, VolumeFault> {
        let place = volume.place(&plan.uid);
        let place = place.expect("a volume that is made here has a place");
        self.doors.files.ensure_empty_dir(&place, directory).await?;
        Ok(place)
    }

    fn path_of(&self, place: &VolumePlace) -> String {
        self.doors.files.volume_path(place).display().to_string()
    }

    async fn check_host_path(
        &self,
        path: &str,
        expected: &HostPathType,
    ) -> Result<(), VolumeFault> {
        if *expected == HostPathType::Anything {
            return Ok(());
        }
        let files = &self.doors.files;
        let found = files.path_kind(path).await;
        let found = found.map_err(|error| error.to_string());
        match judge(path, expected, &found) {
            Verdict::Fine => Ok(()),
            Verdict::MakeDirectory => Ok(files.make_directory(path).await?),
            Verdict::MakeFile => Ok(files.make_file(path).await?),
            Verdict::Wrong(message) => Err(VolumeFault::later(message)),
        }
    }
}

/// The device of an attached volume, in the controller's words.
fn device_of(node: &Node, unique_name: &str) -> String {
    let status = node.status.as_ref();
    let attached = status.and_then(|it| it.volumes_attached.as_deref());
    let mut attached = attached.unwrap_or_default().iter();
    let found = attached.find(|it| it.name == unique_name);
    found.map(|it| it.device_path.clone()).unwrap_or_default()
}

/// The directory of such volumes in pods' directories; empty where they stand elsewhere.
fn directory_of(source: &VolumeSource) -> String {
    match source {
        VolumeSource::Local { .. } => LOCAL.to_owned(),
        VolumeSource::Nfs { .. } => NFS.to_owned(),
        VolumeSource::Csi(_) => CSI.to_owned(),
        VolumeSource::Disk(volume) => volume.disk.key().kind.plugin().replace('/', "~"),
        VolumeSource::Flex(volume) => volume.driver.replace('/', "~"),
        VolumeSource::HostPath { .. } | VolumeSource::Unsupported(_) => String::new(),
    }
}

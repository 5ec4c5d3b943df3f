//! The calls to a driver in their order, each volume one at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ferrolet_ports::{
    Clock, ClusterObjects, CsiAbilities, CsiCapability, CsiDrivers, CsiError, CsiForm, CsiPublish,
    CsiStage, ProvidedVolumes, RecordPlace, StorageObjects, TokenAsk, VolumeMount, VolumePlace,
};
use ferrolet_types::PodUid;
use tokio::sync::watch;

use super::rules::{
    DriverRules, attached, attachment_name, check_node, finds_no_room, hash, inline_handle,
    pod_attributes, unique_name,
};
use crate::{
    fault::{Fault, Step},
    plan::PodPlan,
    provide::{Provider, place_of},
    provided::{CsiVolume, Form, Provided},
    run::mount_of,
    selinux::{conflict, mount_option},
};

/// The directory of drivers' volumes.
pub(crate) const CSI: &str = "kubernetes.io~csi";
/// The record's key for the label that a volume is mounted with.
const LABEL: &str = "seLinuxMountContext";

/// What is remembered between calls. Forgetting it costs a few calls that change nothing.
#[derive(Default)]
pub(crate) struct Kept {
    pub(super) staged: Mutex<BTreeSet<String>>,
    pub(super) published: Mutex<BTreeMap<(PodUid, String), Published>>,
    /// Volumes of pods that their drivers do not let grow here as they are.
    pub(super) unfit: Mutex<BTreeSet<(PodUid, String)>>,
    /// Drivers that were asked to stage something for a pod whose volume is not published yet.
    begun: Mutex<BTreeMap<PodUid, BTreeSet<String>>>,
    in_use: watch::Sender<InUse>,
}

/// Attachable volumes that this node uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// What an earlier life of ours left is among them. Until then nobody may conclude that a volume is not in use.
    pub is_complete: bool,
    /// Their unique names.
    pub names: BTreeSet<String>,
}

#[derive(Clone, Copy)]
pub(super) struct Published {
    republishes: bool,
    /// Its claim may be told to grow while the pod runs; nobody announces that.
    may_grow: bool,
}

impl Kept {
    /// Attachable volumes that pods of this node use.
    pub(crate) fn in_use(&self) -> watch::Receiver<InUse> {
        self.in_use.subscribe()
    }

    /// True when some volume of the pod has to be looked at from time to time: its driver wants to be called again, or it
    /// may grow.
    pub(crate) fn is_looked_after(&self, uid: &PodUid) -> bool {
        let published = lock(&self.published);
        let mut own = published.iter().filter(|((owner, _), _)| owner == uid);
        own.any(|(_, it)| it.republishes || it.may_grow)
    }

    /// Drivers that may have staged something for a pod; asking forgets them.
    pub(crate) fn drivers_left(&self, uid: &PodUid) -> BTreeSet<String> {
        lock(&self.unfit).retain(|(owner, _)| owner != uid);
        lock(&self.begun).remove(uid).unwrap_or_default()
    }

    fn note_beginning(&self, uid: &PodUid, driver: &str) {
        let mut begun = lock(&self.begun);
        let drivers = begun.entry(uid.clone()).or_default();
        drivers.insert(driver.to_owned());
    }

    pub(crate) fn note_use(&self, volume: &str) {
        self.in_use.send_if_modified(|used| used.names.insert(volume.to_owned()));
    }

    pub(crate) fn note_disuse(&self, volume: &str) {
        self.in_use.send_if_modified(|used| used.names.remove(volume));
    }
}

pub(super) fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the calls need.
pub(crate) struct CsiShell<'a> {
    pub(crate) drivers: &'a dyn CsiDrivers,
    pub(crate) storage: &'a dyn StorageObjects,
    pub(crate) objects: Option<&'a dyn ClusterObjects>,
    pub(crate) provider: Provider<'a>,
    pub(crate) kept: &'a Kept,
    pub(crate) node_name: &'a str,
    pub(crate) clock: &'a dyn Clock,
}

/// One volume on its way to one pod.
pub(super) struct Job<'a> {
    pub(super) plan: &'a PodPlan,
    pub(super) provided: &'a Provided,
    pub(super) volume: &'a CsiVolume,
    pub(super) handle: String,
    pub(super) rules: DriverRules,
    pub(super) abilities: CsiAbilities,
    /// The SELinux label to mount it with.
    pub(super) label: Option<String>,
}

impl Job<'_> {
    pub(super) fn published(&self) -> Published {
        let is_raw = self.provided.form == Form::Device;
        Published {
            republishes: self.rules.republishes && !is_raw,
            may_grow: self.abilities.expands && self.provided.claim.is_some(),
        }
    }
}

impl CsiShell<'_> {
    pub(super) fn mounts(&self) -> &dyn ProvidedVolumes {
        self.provider.mounts
    }

    /// Makes a driver's volume ready for a pod.
    pub(crate) async fn set_up(
        &self,
        plan: &PodPlan,
        provided: &Provided,
        volume: &CsiVolume,
        label: Option<String>,
    ) -> Result<VolumeMount, Fault> {
        let handle = handle_of(volume, plan, provided);
        let turn = self.provider.shared.turn(&turn_name(&volume.driver, &handle));
        let _turn = turn.lock().await;
        self.check_only_pod(plan, provided).await?;
        let rules = self.rules_of(&volume.driver).await?;
        let mode = mode_of(volume);
        rules.check_mode(&volume.driver, mode).map_err(|why| {
            Fault::later(format!(
                "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: {why}"
            ))
        })?;
        // A raw device has no files to label.
        let can_label = rules.mounts_with_label && provided.form == Form::Files;
        let label = label.filter(|_| can_label);
        let first = match provided.form {
            Form::Device => Step::SetUpDevice,
            Form::Files if volume.is_inline => Step::SetUp,
            Form::Files => Step::MountDevice,
        };
        let abilities = self.drivers.abilities(&volume.driver).await;
        let abilities = abilities.map_err(|error| {
            let attempt = match first {
                Step::SetUp => "mounter.SetUpAt failed to get CSI client",
                Step::SetUpDevice => "blockMapper.SetUpDevice failed to get CSI client",
                _ => "attacher.MountDevice failed to create newCsiDriverClient",
            };
            Fault::later(format!("kubernetes.io/csi: {attempt}: {error}")).at(first)
        })?;
        let job = Job { plan, provided, volume, handle, rules, abilities, label };
        self.check_label(&job).await?;
        self.kept.note_beginning(&plan.uid, &volume.driver);
        let context = self.publish_context(&job).await?;
        if provided.form == Form::Device {
            return self.set_up_device(&job, context).await;
        }
        let staging_path = self.stage(&job, &context).await?;
        self.publish(&job, context, staging_path).await
    }

    /// Refuses a second pod where the volume is for one alone. The scheduler does so too, but not for pods that pass it by.
    async fn check_only_pod(&self, plan: &PodPlan, provided: &Provided) -> Result<(), Fault> {
        if provided.access_modes != ["ReadWriteOncePod"] {
            return Ok(());
        }
        let name = &provided.spec_name;
        let (is_elsewhere, step) = match provided.form {
            Form::Files => {
                let records = self.mounts().records().await?;
                let mut pods = records.iter().filter_map(|(place, _)| match place {
                    RecordPlace::Pod(place) if place.name == *name => Some(&place.uid),
                    _ => None,
                });
                (pods.any(|it| *it != plan.uid), Step::SetUp)
            }
            Form::Device => {
                let users = self.mounts().device_users(CSI, name).await?;
                (users.iter().any(|it| *it != plan.uid), Step::SetUpDevice)
            }
        };
        if is_elsewhere {
            let why =
                "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
            return Err(Fault::later(why.to_owned()).at(step));
        }
        Ok(())
    }

    /// Refuses a volume that another pod has with another label: one mount has one label.
    async fn check_label(&self, job: &Job<'_>) -> Result<(), Fault> {
        if !job.rules.mounts_with_label || job.volume.is_inline {
            return Ok(());
        }
        let key = (job.plan.uid.clone(), job.provided.spec_name.clone());
        if lock(&self.kept.published).contains_key(&key) {
            return Ok(());
        }
        let ours = job.label.as_deref().unwrap_or_default();
        let records = self.mounts().records().await?;
        let others = records.iter().filter(|(place, record)| {
            matches!(place, RecordPlace::Pod(place) if place.uid != job.plan.uid)
                && record.get("driverName") == Some(&job.volume.driver)
                && record.get("volumeHandle") == Some(&job.handle)
        });
        let mut labels = others.map(|(_, record)| record.get(LABEL).map_or("", String::as_str));
        match labels.find(|theirs| *theirs != ours) {
            Some(theirs) => {
                let why = conflict(&job.provided.spec_name, theirs, ours);
                Err(Fault::unprocessed(why))
            }
            None => Ok(()),
        }
    }

    async fn rules_of(&self, driver: &str) -> Result<DriverRules, Fault> {
        match self.storage.get_driver(driver).await {
            Ok(found) => Ok(DriverRules::of(Some(&found))),
            Err(error) if error.is_not_found() => Ok(DriverRules::of(None)),
            Err(error) => Err(Fault::later(format!(
                "kubernetes.io/csi: CSIDriver {driver:?} cannot be read: {}",
                error.message
            ))),
        }
    }

    /// What attaching said; waits for nothing, because whoever asks comes back.
    async fn publish_context(&self, job: &Job<'_>) -> Result<BTreeMap<String, String>, Fault> {
        if job.volume.is_inline || !job.rules.must_be_attached {
            return Ok(BTreeMap::new());
        }
        // Said, and heard, before it is used: from then on nobody detaches it under the pod.
        let unique = unique_name(&job.volume.driver, &job.handle);
        self.kept.note_use(&unique);
        let key = (job.plan.uid.clone(), job.provided.spec_name.clone());
        if !lock(&self.kept.published).contains_key(&key) {
            let node = self.storage.get_own_node().await.map_err(|error| {
                Fault::later(format!("failed fetching node from API server: {}", error.message))
                    .at(Step::Verify)
            })?;
            if let Err(why) = check_node(&node, &unique) {
                return Err(Fault {
                    full: self.full_driver(job).await,
                    ..Fault::later(why).at(Step::Verify)
                });
            }
        }
        let name = attachment_name(&job.handle, &job.volume.driver, self.node_name);
        let found = self.storage.get_attachment(&name).await.map_err(|error| {
            let handle = &job.handle;
            Fault::later(format!(
                "volume {handle} has GET error for volume attachment {name}: {}",
                error.message
            ))
            .at(Step::Attach)
        })?;
        attached(&found, &job.handle).map_err(|why| Fault::later(why).at(Step::Attach))
    }

    /// The driver, when it has no room on this node for a volume that is not attached, and pods are to hear of that.
    async fn full_driver(&self, job: &Job<'_>) -> Option<String> {
        if !job.rules.tells_limit_again {
            return None;
        }
        let driver = &job.volume.driver;
        let name = attachment_name(&job.handle, driver, self.node_name);
        let found = self.storage.get_attachment(&name).await.ok()?;
        finds_no_room(&found).then(|| driver.clone())
    }

    /// Makes the volume ready for the node, once; answers where it is staged.
    async fn stage(
        &self,
        job: &Job<'_>,
        context: &BTreeMap<String, String>,
    ) -> Result<String, Fault> {
        if job.volume.is_inline || !job.abilities.stages {
            return Ok(String::new());
        }
        let driver = &job.volume.driver;
        let place = node_place(driver, &job.handle);
        let path = self.mounts().driver_path(&place).display().to_string();
        let key = unique_name(driver, &job.handle);
        if lock(&self.kept.staged).contains(&key) {
            return Ok(path);
        }
        let at = |fault: Fault| fault.at(Step::MountDevice);
        let secrets = self.secrets(&job.volume.stage_secret, "NodeStageSecretRef");
        let secrets = secrets.await.map_err(at)?;
        let mut record = vec![("volumeHandle", job.handle.as_str()), ("driverName", driver)];
        record.extend(job.label.as_deref().map(|label| (LABEL, label)));
        self.save(&place, &record).await.map_err(at)?;
        let staged = self.ask_to_stage(job, &place, (path.clone(), context), secrets);
        staged.await.map_err(at)?;
        lock(&self.kept.staged).insert(key);
        Ok(path)
    }

    /// Has the driver make a volume ready for the node; what was noted of it goes when it refuses for good.
    pub(super) async fn ask_to_stage(
        &self,
        job: &Job<'_>,
        place: &RecordPlace,
        (path, context): (String, &BTreeMap<String, String>),
        secrets: BTreeMap<String, String>,
    ) -> Result<(), Fault> {
        let ask = CsiStage {
            volume: job.handle.clone(),
            path,
            capability: self.capability(job),
            publish_context: context.clone(),
            attributes: job.volume.attributes.clone(),
            secrets,
        };
        if let Err(error) = self.drivers.stage(&job.volume.driver, &ask).await {
            self.give_up(place, &error).await;
            return Err(Fault::refused(error.message));
        }
        Ok(())
    }

    async fn publish(
        &self,
        job: &Job<'_>,
        publish_context: BTreeMap<String, String>,
        staging_path: String,
    ) -> Result<VolumeMount, Fault> {
        let (plan, provided, volume) = (job.plan, job.provided, job.volume);
        let place = place_of(plan, CSI, &provided.spec_name);
        let record_place = RecordPlace::Pod(place.clone());
        let path = self.mounts().driver_path(&record_place);
        let path = path.display().to_string();
        let key = (plan.uid.clone(), provided.spec_name.clone());
        let before = lock(&self.kept.published).get(&key).copied();
        let mount = VolumeMount {
            group: provided.group,
            // What was mounted with its label needs none on each file.
            ..mount_of(
                path.clone(),
                provided.is_read_only,
                !provided.is_read_only && job.label.is_none(),
            )
        };
        if before.is_some_and(|it| !it.republishes) {
            self.grow(job, &path, &staging_path).await?;
            return Ok(mount);
        }
        let namespaced = volume.publish_secret.as_ref().map(|(namespace, name)| {
            let own = plan.key.namespace.to_string();
            let namespace = Some(namespace.clone()).filter(|it| !it.is_empty());
            (namespace.unwrap_or(own), name.clone())
        });
        let secrets = self.secrets(&namespaced, "NodePublishSecretRef").await;
        let mut secrets = secrets?;
        let mut attributes = volume.attributes.clone();
        if job.rules.wants_pod {
            let account = &plan.service_account;
            attributes.extend(pod_attributes(plan, account, volume.is_inline));
        }
        if let Some(tokens) = self.tokens(job).await? {
            let key = "csi.storage.k8s.io/serviceAccount.tokens".to_owned();
            if job.rules.tokens_in_secrets {
                secrets.insert(key, tokens);
            } else {
                attributes.insert(key, tokens);
            }
        }
        let attachment = attachment_name(&job.handle, &volume.driver, self.node_name);
        let mut record = vec![
            ("specVolID", provided.spec_name.as_str()),
            ("volumeHandle", &job.handle),
            ("driverName", &volume.driver),
            ("nodeName", self.node_name),
            ("volumeLifecycleMode", mode_of(volume)),
            ("attachmentID", &attachment),
        ];
        record.extend(job.label.as_deref().map(|label| (LABEL, label)));
        self.save(&record_place, &record).await?;
        let ask = CsiPublish {
            stage: CsiStage {
                volume: job.handle.clone(),
                path: path.clone(),
                capability: self.capability(job),
                publish_context,
                attributes,
                secrets,
            },
            staging_path,
            is_read_only: provided.is_read_only,
        };
        if let Err(error) = self.drivers.publish(&volume.driver, &ask).await {
            // A pod that has it already keeps looking at what it has.
            if before.is_none() {
                self.give_up(&record_place, &error).await;
            }
            return Err(Fault::refused(error.message));
        }
        self.grow(job, &path, &ask.staging_path).await?;
        let gives = job.rules.gives_to_group(provided, &volume.file_system);
        if before.is_none() && gives && !job.abilities.takes_group {
            self.provider.give_to_group(plan, &path).await?;
        }
        // Last: what was not finished is done again, with another call that changes nothing.
        lock(&self.kept.published).insert(key, job.published());
        Ok(mount)
    }

    pub(super) fn capability(&self, job: &Job<'_>) -> CsiCapability {
        let modes = &job.provided.access_modes;
        CsiCapability {
            access_mode: modes.first().cloned().unwrap_or_else(|| "ReadWriteOnce".to_owned()),
            form: match job.provided.form {
                Form::Device => CsiForm::Device,
                Form::Files => CsiForm::Files {
                    file_system: job.volume.file_system.clone(),
                    options: self.options(job),
                    group: job.plan.group.filter(|_| job.abilities.takes_group),
                },
            },
        }
    }

    fn options(&self, job: &Job<'_>) -> Vec<String> {
        let own = job.provided.options.iter().cloned();
        own.chain(job.label.as_deref().map(mount_option)).collect()
    }

    pub(super) async fn secrets(
        &self,
        reference: &Option<(String, String)>,
        what: &str,
    ) -> Result<BTreeMap<String, String>, Fault> {
        let Some((namespace, name)) = reference else {
            return Ok(BTreeMap::new());
        };
        let found = self.storage.get_volume_secret(namespace, name).await;
        let found = found.map_err(|error| {
            Fault::later(format!("fetching {what} {namespace}/{name} failed: {}", error.message))
        })?;
        let data = found.data.into_iter().flatten();
        Ok(data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned())).collect())
    }

    /// The pod's tokens for the driver, as the text it expects.
    async fn tokens(&self, job: &Job<'_>) -> Result<Option<String>, Fault> {
        if job.rules.tokens.is_empty() {
            return Ok(None);
        }
        let objects = self.objects.ok_or_else(|| {
            Fault::later("kubernetes.io/csi: ServiceAccountTokenGetter is nil".to_owned())
        })?;
        let mut shown = serde_json::Map::new();
        for (audience, seconds) in &job.rules.tokens {
            let lifetime = seconds.and_then(|it| u64::try_from(it).ok());
            let ask = TokenAsk {
                namespace: job.plan.key.namespace.to_string(),
                service_account: job.plan.service_account.clone(),
                audiences: Some(audience.clone()).filter(|it| !it.is_empty()).into_iter().collect(),
                lifetime: lifetime.map(Duration::from_secs),
                bound_pod: Some((job.plan.key.clone(), job.plan.uid.clone())),
            };
            let token = objects.get_token(&ask).await.map_err(|error| {
                Fault::later(format!(
                    "kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: {}",
                    error.message
                ))
            })?;
            let status = serde_json::json!({
                "token": token.text,
                "expirationTimestamp": token.expires.to_string(),
            });
            shown.insert(audience.clone(), status);
        }
        Ok(Some(serde_json::Value::Object(shown).to_string()))
    }

    pub(super) async fn save(
        &self,
        place: &RecordPlace,
        pairs: &[(&str, &str)],
    ) -> Result<(), Fault> {
        let record = pairs.iter();
        let record = record.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Ok(self.mounts().save_record(place, &record.collect()).await?)
    }

    /// After a final refusal nothing is left to take away; after any other the record stays until the driver was asked to.
    pub(super) async fn give_up(&self, place: &RecordPlace, error: &CsiError) {
        if error.is_final()
            && let Err(error) = self.mounts().remove_record(place).await
        {
            tracing::warn!(?place, %error, "Record of a volume that was refused stays");
        }
    }

    /// Takes a driver's volume away from a pod, and from the node when nobody else has it.
    pub(crate) async fn take_away(&self, place: &VolumePlace) -> Result<(), Fault> {
        let record_place = RecordPlace::Pod(place.clone());
        let records = self.mounts().records().await?;
        let record = records.iter().find(|(it, _)| *it == record_place);
        let record = record.map(|(_, record)| record.clone()).unwrap_or_default();
        let (Some(driver), Some(handle)) = (record.get("driverName"), record.get("volumeHandle"))
        else {
            // Without a record nobody can be asked; what is not mounted can go.
            return Ok(self.mounts().remove_record(&record_place).await?);
        };
        let turn = self.provider.shared.turn(&turn_name(driver, handle));
        let _turn = turn.lock().await;
        let path = self.mounts().driver_path(&record_place);
        let path = path.display().to_string();
        let unpublished = self.drivers.unpublish(driver, handle, &path);
        unpublished.await.map_err(|error| {
            Fault::later(format!("kubernetes.io/csi: Unmounter.TearDownAt failed: {error}"))
        })?;
        self.mounts().remove_record(&record_place).await?;
        let key = (place.uid.clone(), place.name.clone());
        lock(&self.kept.published).remove(&key);
        self.leave_node(driver, handle).await
    }

    /// Takes a volume away from the node unless some pod has it. The caller holds the volume's turn.
    async fn leave_node(&self, driver: &str, handle: &str) -> Result<(), Fault> {
        let records = self.mounts().records().await?;
        let is_used = records.iter().any(|(place, record)| {
            matches!(place, RecordPlace::Pod(_))
                && record.get("driverName").map(String::as_str) == Some(driver)
                && record.get("volumeHandle").map(String::as_str) == Some(handle)
        });
        if is_used {
            return Ok(());
        }
        let place = node_place(driver, handle);
        if records.iter().any(|(it, _)| *it == place) {
            let path = self.mounts().driver_path(&place).display().to_string();
            let unstaged = self.drivers.unstage(driver, handle, &path).await;
            unstaged.map_err(|error| {
                Fault::later(format!("kubernetes.io/csi: attacher.UnmountDevice failed: {error}"))
                    .at(Step::UnmountDevice)
            })?;
            let removed = self.mounts().remove_record(&place).await;
            removed.map_err(|error| Fault::from(error).at(Step::UnmountDevice))?;
        }
        let name = unique_name(driver, handle);
        lock(&self.kept.staged).remove(&name);
        self.kept.note_disuse(&name);
        Ok(())
    }

    /// Finds out what an earlier life of ours left in use.
    pub(crate) async fn recall(&self) {
        let records = match self.mounts().records().await {
            Ok(records) => records,
            Err(error) => return tracing::warn!(%error, "Records of volumes cannot be read"),
        };
        let used = records.iter().filter_map(|(_, record)| {
            let is_inline =
                record.get("volumeLifecycleMode").map(String::as_str) == Some("Ephemeral");
            let name = unique_name(record.get("driverName")?, record.get("volumeHandle")?);
            (!is_inline).then_some(name)
        });
        let used: Vec<String> = used.collect();
        self.kept.in_use.send_modify(|known| {
            known.names.extend(used);
            known.is_complete = true;
        });
    }

    /// Takes volumes away that no pod has: left over when we or a driver died in the middle.
    pub(crate) async fn sweep(&self, registered: &BTreeSet<String>) {
        let records = match self.mounts().records().await {
            Ok(records) => records,
            Err(error) => return tracing::warn!(%error, "Records of volumes cannot be read"),
        };
        for (place, record) in records {
            let driver = match &place {
                RecordPlace::Pod(_) => None,
                RecordPlace::Node { driver, .. } => Some(driver),
                RecordPlace::Device { .. } => record.get("driverName"),
            };
            let (Some(driver), Some(handle)) = (driver, record.get("volumeHandle")) else {
                continue;
            };
            if !registered.contains(driver) {
                continue;
            }
            let turn = self.provider.shared.turn(&turn_name(driver, handle));
            let _turn = turn.lock().await;
            let left = match &place {
                RecordPlace::Device { name } => self.leave_node_device(name, driver, handle).await,
                _ => self.leave_node(driver, handle).await,
            };
            if let Err(fault) = left {
                tracing::warn!(
                    driver,
                    handle,
                    why = fault.message,
                    "Volume that nobody uses stays"
                );
            }
        }
    }
}

/// The driver's name for a volume.
pub(crate) fn handle_of(volume: &CsiVolume, plan: &PodPlan, provided: &Provided) -> String {
    if volume.is_inline {
        return inline_handle(plan.uid.as_str(), &provided.spec_name);
    }
    volume.handle.clone()
}

pub(super) fn turn_name(driver: &str, handle: &str) -> String {
    format!("{CSI}/{}", unique_name(driver, handle))
}

/// Where a volume is staged.
pub(crate) fn node_place(driver: &str, handle: &str) -> RecordPlace {
    RecordPlace::Node { driver: driver.to_owned(), hash: hash(handle) }
}

fn mode_of(volume: &CsiVolume) -> &'static str {
    if volume.is_inline { "Ephemeral" } else { "Persistent" }
}

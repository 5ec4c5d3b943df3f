//! One volume of a driver on its way to one pod: the calls behind each step.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_ports::{
    AttachedBy, CsiAbilities, CsiCapability, CsiExpand, CsiFate, CsiForm, CsiPublish, CsiStage,
    CsiVolume, ExpandFault, Fut, GrownBytes, MountAsk, MountNeeds, NodeVolume, Ownership,
    RecordPlace, Repeats, TokenAsk, VolumeFault, VolumeMode, VolumeMount, VolumeMounter,
    VolumePlace, VolumeStep,
};

use super::{
    plugin::{CSI, CsiPlugin, handle_of, mode_of, node_place},
    rules::{DriverRules, attached, attachment_name, finds_no_room, pod_attributes, unique_name},
};
use crate::selinux::{conflict, mount_option};

/// The record's key for the label that a volume is mounted with.
const LABEL: &str = "seLinuxMountContext";

/// One volume on its way to one pod.
pub(super) struct CsiMounter<'a> {
    pub(super) plugin: &'a CsiPlugin,
    pub(super) ask: MountAsk<'a>,
    pub(super) volume: &'a CsiVolume,
    pub(super) handle: String,
    pub(super) rules: DriverRules,
    pub(super) abilities: CsiAbilities,
    /// The SELinux label to mount it with.
    label: Option<String>,
    /// What attaching said.
    pub(super) context: BTreeMap<String, String>,
    pub(super) place: VolumePlace,
    /// Where it is published.
    pub(super) path: String,
    /// Where it is staged; empty when it is not.
    pub(super) staging_path: String,
    /// The link to a raw device.
    pub(super) link: Option<String>,
}

impl<'a> CsiMounter<'a> {
    pub(super) fn new(
        plugin: &'a CsiPlugin,
        ask: MountAsk<'a>,
        volume: &'a CsiVolume,
        rules: DriverRules,
        abilities: CsiAbilities,
    ) -> Self {
        let (mounts, spec) = (&plugin.mounts, ask.spec);
        let handle = handle_of(volume, ask.uid, spec);
        let place = ask.place(CSI);
        let is_raw = spec.mode == VolumeMode::Block;
        let (path, staged) = if is_raw {
            (mounts.driver_device(&place), RecordPlace::Device { name: spec.name.clone() })
        } else {
            (
                mounts.driver_path(&RecordPlace::Pod(place.clone())),
                node_place(&volume.driver, &handle),
            )
        };
        let is_staged = abilities.stages && !volume.is_inline;
        let staging_path = mounts.driver_path(&staged).display().to_string();
        // A raw device has no files to label.
        let can_label = rules.mounts_with_label && !is_raw;
        Self {
            label: ask.label.clone().filter(|_| can_label),
            context: BTreeMap::new(),
            path: path.display().to_string(),
            staging_path: if is_staged { staging_path } else { String::new() },
            link: None,
            plugin,
            ask,
            volume,
            handle,
            rules,
            abilities,
            place,
        }
    }

    pub(super) fn is_raw(&self) -> bool {
        self.ask.spec.mode == VolumeMode::Block
    }

    fn must_be_attached(&self) -> bool {
        !self.volume.is_inline && self.rules.must_be_attached
    }

    pub(super) fn attachment(&self) -> String {
        attachment_name(&self.handle, &self.volume.driver, &self.plugin.node_name)
    }

    /// Refuses a second pod where the volume is for one alone. The scheduler does so too, but not
    /// for pods that pass it by.
    async fn check_only_pod(&self) -> Result<(), VolumeFault> {
        let (uid, spec) = (self.ask.uid, self.ask.spec);
        if spec.access_modes != ["ReadWriteOncePod"] {
            return Ok(());
        }
        let (is_elsewhere, step) = if self.is_raw() {
            let users = self.plugin.mounts.device_users(CSI, &spec.name).await?;
            (users.iter().any(|it| it != uid), VolumeStep::SetUpDevice)
        } else {
            let others = self.plugin.other_pods(uid).await?;
            (others.iter().any(|(place, _)| place.name == spec.name), VolumeStep::SetUp)
        };
        if is_elsewhere {
            let why =
                "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
            return Err(VolumeFault::later(why.to_owned()).at(step));
        }
        Ok(())
    }

    /// Refuses a volume that another pod has with another label: one mount has one label.
    async fn check_label(&self) -> Result<(), VolumeFault> {
        let is_settled = self.volume.is_inline || self.ask.published.is_some();
        if !self.rules.mounts_with_label || is_settled {
            return Ok(());
        }
        let ours = self.label.as_deref().unwrap_or_default();
        let others = self.plugin.other_pods(self.ask.uid).await?;
        let others = others.iter().filter(|(_, record)| {
            record.get("driverName") == Some(&self.volume.driver)
                && record.get("volumeHandle") == Some(&self.handle)
        });
        let mut labels = others.map(|(_, record)| record.get(LABEL).map_or("", String::as_str));
        match labels.find(|theirs| *theirs != ours) {
            Some(theirs) => {
                Err(VolumeFault::unprocessed(conflict(&self.ask.spec.name, theirs, ours)))
            }
            None => Ok(()),
        }
    }

    /// Makes files ready for the node.
    async fn stage_files(&self) -> Result<(), VolumeFault> {
        let driver = &self.volume.driver;
        let place = node_place(driver, &self.handle);
        let secrets = self.plugin.secrets(&self.volume.stage_secret, "NodeStageSecretRef").await?;
        let mut record = vec![("volumeHandle", self.handle.as_str()), ("driverName", driver)];
        record.extend(self.label.as_deref().map(|label| (LABEL, label)));
        self.plugin.save(&place, &record).await?;
        self.ask_to_stage(&place, secrets).await
    }

    /// Has the driver make a volume ready for the node; what was noted of it goes when it refuses
    /// for good.
    pub(super) async fn ask_to_stage(
        &self,
        place: &RecordPlace,
        secrets: BTreeMap<String, String>,
    ) -> Result<(), VolumeFault> {
        let ask = CsiStage {
            volume: self.handle.clone(),
            path: self.staging_path.clone(),
            capability: self.capability(),
            publish_context: self.context.clone(),
            attributes: self.volume.attributes.clone(),
            secrets,
        };
        if let Err(error) = self.plugin.drivers.stage(&self.volume.driver, &ask).await {
            self.plugin.give_up(place, &error).await;
            return Err(VolumeFault::refused(error.message));
        }
        Ok(())
    }

    /// Makes files ready for the pod.
    async fn publish_files(&self) -> Result<(), VolumeFault> {
        let (volume, driver) = (self.volume, &self.volume.driver);
        let record_place = RecordPlace::Pod(self.place.clone());
        let namespaced = volume.publish_secret.as_ref().map(|(namespace, name)| {
            let own = self.ask.key.namespace.to_string();
            let namespace = Some(namespace.clone()).filter(|it| !it.is_empty());
            (namespace.unwrap_or(own), name.clone())
        });
        let mut secrets = self.plugin.secrets(&namespaced, "NodePublishSecretRef").await?;
        let mut attributes = self.attributes();
        if let Some(tokens) = self.tokens().await? {
            let key = "csi.storage.k8s.io/serviceAccount.tokens".to_owned();
            let told = if self.rules.tokens_in_secrets { &mut secrets } else { &mut attributes };
            told.insert(key, tokens);
        }
        let attachment = self.attachment();
        let mut record = vec![
            ("specVolID", self.ask.spec.name.as_str()),
            ("volumeHandle", &self.handle),
            ("driverName", driver),
            ("nodeName", &self.plugin.node_name),
            ("volumeLifecycleMode", mode_of(volume)),
            ("attachmentID", &attachment),
        ];
        record.extend(self.label.as_deref().map(|label| (LABEL, label)));
        self.plugin.save(&record_place, &record).await?;
        let ask = self.publish_ask(attributes, secrets);
        if let Err(error) = self.plugin.drivers.publish(driver, &ask).await {
            // A pod that has it already keeps looking at what it has.
            if self.ask.published.is_none() {
                self.plugin.give_up(&record_place, &error).await;
            }
            return Err(VolumeFault::refused(error.message));
        }
        Ok(())
    }

    /// What was written for the driver, and what it wants to know of the pod.
    pub(super) fn attributes(&self) -> BTreeMap<String, String> {
        let mut attributes = self.volume.attributes.clone();
        if self.rules.wants_pod {
            attributes.extend(pod_attributes(&self.ask, self.volume.is_inline));
        }
        attributes
    }

    pub(super) fn publish_ask(
        &self,
        attributes: BTreeMap<String, String>,
        secrets: BTreeMap<String, String>,
    ) -> CsiPublish {
        CsiPublish {
            stage: CsiStage {
                volume: self.handle.clone(),
                path: self.path.clone(),
                capability: self.capability(),
                publish_context: self.context.clone(),
                attributes,
                secrets,
            },
            staging_path: self.staging_path.clone(),
            is_read_only: self.ask.spec.is_read_only,
        }
    }

    fn capability(&self) -> CsiCapability {
        let modes = &self.ask.spec.access_modes;
        CsiCapability {
            access_mode: modes.first().cloned().unwrap_or_else(|| "ReadWriteOnce".to_owned()),
            form: match self.ask.spec.mode {
                VolumeMode::Block => CsiForm::Device,
                VolumeMode::Filesystem => CsiForm::Files {
                    file_system: self.volume.file_system.clone(),
                    options: self.options(),
                    group: self.ask.fs_group.filter(|_| self.abilities.takes_group),
                },
            },
        }
    }

    fn options(&self) -> Vec<String> {
        let own = self.ask.spec.mount_options.iter().cloned();
        own.chain(self.label.as_deref().map(mount_option)).collect()
    }

    /// The pod's tokens for the driver, as the text it expects.
    async fn tokens(&self) -> Result<Option<String>, VolumeFault> {
        if self.rules.tokens.is_empty() {
            return Ok(None);
        }
        let objects = self.plugin.objects.as_ref().ok_or_else(|| {
            VolumeFault::later("kubernetes.io/csi: ServiceAccountTokenGetter is nil".to_owned())
        })?;
        let mut shown = serde_json::Map::new();
        for (audience, seconds) in &self.rules.tokens {
            let lifetime = seconds.and_then(|it| u64::try_from(it).ok());
            let ask = TokenAsk {
                namespace: self.ask.key.namespace.to_string(),
                service_account: self.ask.service_account.to_owned(),
                audiences: Some(audience.clone()).filter(|it| !it.is_empty()).into_iter().collect(),
                lifetime: lifetime.map(Duration::from_secs),
                bound_pod: Some((self.ask.key.clone(), self.ask.uid.clone())),
            };
            let token = objects.get_token(&ask).await.map_err(|error| {
                VolumeFault::later(format!(
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
}

impl VolumeMounter for CsiMounter<'_> {
    fn needs(&self) -> MountNeeds {
        let (driver, handle) = (self.volume.driver.clone(), self.handle.clone());
        let (spec, is_raw) = (self.ask.spec, self.is_raw());
        let gives = self.rules.gives_to_group(spec, &self.volume.file_system);
        MountNeeds {
            attached_by: if self.must_be_attached() {
                AttachedBy::Controller { unique_name: unique_name(&driver, &handle) }
            } else {
                AttachedBy::Plugin
            },
            node_volume: Some(if is_raw {
                NodeVolume::CsiDevice { driver, handle, name: spec.name.clone() }
            } else {
                NodeVolume::Csi { driver, handle }
            }),
            // Of a raw device there is a record, also where its driver does not stage.
            stages: is_raw || !self.staging_path.is_empty(),
            repeats: if self.rules.republishes && !is_raw {
                Repeats::Republish
            } else {
                Repeats::Once
            },
            may_grow: self.abilities.expands && spec.claim.is_some(),
            ownership: if gives && !self.abilities.takes_group {
                Ownership::Required
            } else {
                Ownership::NotOurs
            },
        }
    }

    fn check(&self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            self.check_only_pod().await?;
            self.check_label().await
        })
    }

    fn full_driver(&self) -> Fut<'_, Option<String>> {
        Box::pin(async move {
            if !self.rules.tells_limit_again {
                return None;
            }
            let found = self.plugin.storage.get_attachment(&self.attachment()).await.ok()?;
            finds_no_room(&found).then(|| self.volume.driver.clone())
        })
    }

    /// Hears what attaching said; waits for nothing, because whoever asks comes back.
    fn attach(&mut self, _: String) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            if !self.must_be_attached() {
                return Ok(());
            }
            let (name, handle) = (self.attachment(), &self.handle);
            let found = self.plugin.storage.get_attachment(&name).await.map_err(|error| {
                VolumeFault::later(format!(
                    "volume {handle} has GET error for volume attachment {name}: {}",
                    error.message
                ))
                .at(VolumeStep::Attach)
            })?;
            let context = attached(&found, handle);
            self.context = context.map_err(|why| VolumeFault::later(why).at(VolumeStep::Attach))?;
            Ok(())
        })
    }

    fn stage(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            if self.is_raw() {
                let staged = self.stage_device().await;
                return staged.map_err(|fault| fault.at(VolumeStep::SetUpDevice));
            }
            self.stage_files().await.map_err(|fault| fault.at(VolumeStep::MountDevice))
        })
    }

    fn publish(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            if self.is_raw() {
                return self.publish_device().await.map_err(|fault| fault.at(VolumeStep::Map));
            }
            self.publish_files().await
        })
    }

    fn expand(&mut self, bytes: GrownBytes) -> Fut<'_, Result<(), ExpandFault>> {
        Box::pin(async move {
            let secrets = self.plugin.secrets(&self.volume.expand_secret, "NodeExpandSecretRef");
            let ask = CsiExpand {
                volume: self.handle.clone(),
                path: self.path.clone(),
                staging_path: self.staging_path.clone(),
                capability: self.capability(),
                bytes: bytes.now,
                secrets: secrets.await.map_err(ExpandFault::Open)?,
            };
            let expanded = self.plugin.drivers.expand(&self.volume.driver, &ask).await;
            expanded.map_err(|error| {
                let fault = VolumeFault::refused(error.message).at(VolumeStep::Expand);
                match error.fate {
                    CsiFate::Open => ExpandFault::Open(fault),
                    CsiFate::Final => ExpandFault::Failed(fault),
                    CsiFate::Infeasible => ExpandFault::Infeasible(fault),
                    CsiFate::Unfit => ExpandFault::Unfit(fault),
                }
            })
        })
    }

    fn map(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let link = self.plugin.mounts.map_device(&self.place, &self.path).await;
            let link = link.map_err(|error| VolumeFault::from(error).at(VolumeStep::MapBlock))?;
            self.link = Some(link.display().to_string());
            Ok(())
        })
    }

    fn mount(&self) -> VolumeMount {
        let spec = self.ask.spec;
        if self.is_raw() {
            return VolumeMount {
                device: self.link.clone(),
                group: spec.group,
                ..VolumeMount::at(String::new(), spec.is_read_only, false)
            };
        }
        // What was mounted with its label needs none on each file.
        let relabels = !spec.is_read_only && self.label.is_none();
        VolumeMount {
            group: spec.group,
            ..VolumeMount::at(self.path.clone(), spec.is_read_only, relabels)
        }
    }
}

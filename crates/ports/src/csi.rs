//! CSI drivers on this node, as the volumes engine calls them.
//!
//! Owned by the adapter `plugins`, faked by `testkit`. Each call is one request with a deadline of
//! two minutes; whether a failed one may still be going on in the driver is part of its error.
//! Refuses: retries.

use std::collections::BTreeMap;

use crate::{FileRoom, Fut};

/// The drivers of this node.
pub trait CsiDrivers: Send + Sync {
    /// What a driver can do.
    fn abilities<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<CsiAbilities, CsiError>>;
    /// Makes a volume ready for the node.
    fn stage<'a>(&'a self, driver: &'a str, ask: &'a CsiStage) -> Fut<'a, Result<(), CsiError>>;
    /// Takes a volume away from the node.
    fn unstage<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
        path: &'a str,
    ) -> Fut<'a, Result<(), CsiError>>;
    /// Makes a volume ready for a pod.
    fn publish<'a>(&'a self, driver: &'a str, ask: &'a CsiPublish)
    -> Fut<'a, Result<(), CsiError>>;
    /// Takes a volume away from a pod.
    fn unpublish<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
        path: &'a str,
    ) -> Fut<'a, Result<(), CsiError>>;
    /// Has a volume's file system use what the volume has become.
    fn expand<'a>(&'a self, driver: &'a str, ask: &'a CsiExpand) -> Fut<'a, Result<(), CsiError>>;
    /// How full a volume is that stands at that path.
    fn usage<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
        path: &'a str,
    ) -> Fut<'a, Result<FileRoom, CsiError>>;
    /// What is wrong with a volume; nothing when it is well.
    fn volume_health<'a>(
        &'a self,
        driver: &'a str,
        ask: &'a CsiHealthAsk,
    ) -> Fut<'a, Result<Vec<CsiAilment>, CsiError>>;
    /// What is wrong with all that a driver stores, as seen from this node; nothing when it is
    /// well.
    fn storage_health<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<Vec<CsiAilment>, CsiError>>;
    /// Asks a driver again what it says of this node, and shows that to whoever follows the
    /// registered drivers.
    fn look_again<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<(), CsiError>>;
}

/// What a driver can do beyond publishing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsiAbilities {
    /// Volumes are made ready for the node first.
    pub stages: bool,
    /// Volumes can grow on the node.
    pub expands: bool,
    /// It gives volumes to a group by itself.
    pub takes_group: bool,
    /// It tells one writer from many on the same node.
    pub tells_writers: bool,
    /// It says how full a volume is.
    pub tells_usage: bool,
    /// It says what is wrong with a volume.
    pub tells_volume_health: bool,
    /// It says what is wrong with all that it stores.
    pub tells_storage_health: bool,
}

/// A volume whose health is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiHealthAsk {
    /// The driver's name for the volume.
    pub volume: String,
    /// Where it is published; empty when it is not.
    pub path: String,
    /// Where it is staged; empty when it is not.
    pub staging_path: String,
}

/// Something that is wrong with a volume, or with all that a driver stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiAilment {
    /// Its kind, in the API's word.
    pub kind: &'static str,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The access mode and the volume mode of volumes that it concerns, in the API's words; `None`
    /// for all.
    pub concerns: Option<(&'static str, &'static str)>,
}

/// What a volume is to be used as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiCapability {
    /// The API's access mode.
    pub access_mode: String,
    /// How it is shown.
    pub form: CsiForm,
}

/// How a volume is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CsiForm {
    /// As a raw device.
    Device,
    /// As files.
    Files {
        /// The file system; empty leaves it to the driver.
        file_system: String,
        /// Mount options.
        options: Vec<String>,
        /// The group that everything is given to.
        group: Option<u32>,
    },
}

/// Making a volume ready for the node.
#[derive(Clone, PartialEq, Eq)]
pub struct CsiStage {
    /// The driver's name for the volume.
    pub volume: String,
    /// Where to.
    pub path: String,
    /// As what.
    pub capability: CsiCapability,
    /// What attaching said.
    pub publish_context: BTreeMap<String, String>,
    /// What was written for the driver.
    pub attributes: BTreeMap<String, String>,
    /// Secrets for the driver.
    pub secrets: BTreeMap<String, String>,
}

/// Making a volume ready for a pod.
#[derive(Clone, PartialEq, Eq)]
pub struct CsiPublish {
    /// The same as for staging, with the pod's path.
    pub stage: CsiStage,
    /// Where it was staged; empty when it was not.
    pub staging_path: String,
    /// The pod only reads.
    pub is_read_only: bool,
}

/// Letting a volume grow.
#[derive(Clone, PartialEq, Eq)]
pub struct CsiExpand {
    /// The driver's name for the volume.
    pub volume: String,
    /// Where it is published.
    pub path: String,
    /// Where it is staged.
    pub staging_path: String,
    /// As what.
    pub capability: CsiCapability,
    /// The size that is wanted.
    pub bytes: i64,
    /// Secrets for the driver.
    pub secrets: BTreeMap<String, String>,
}

// Secrets never reach a log.
impl std::fmt::Debug for CsiStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CsiStage")
            .field("volume", &self.volume)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CsiPublish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CsiPublish").field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CsiExpand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CsiExpand")
            .field("volume", &self.volume)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// A driver that made itself known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredDriver {
    /// Its name for this node.
    pub node_id: String,
    /// How many of its volumes this node takes; none or fewer than one leaves it open.
    pub max_volumes: i64,
    /// Where this node is, in the driver's words.
    pub topology: BTreeMap<String, String>,
}

/// A call that did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CsiError {
    /// One sentence, as upstream shows it.
    pub message: String,
    /// What that means for another try.
    pub fate: CsiFate,
}

impl CsiError {
    /// For certain nothing came of it and nothing will: what was prepared for the call may go.
    pub fn is_final(&self) -> bool {
        self.fate != CsiFate::Open
    }
}

/// What a failed call means for another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsiFate {
    /// The driver may still be at it.
    Open,
    /// Nothing came of it; another try may succeed.
    Final,
    /// Nothing came of it, and nothing ever will of what was asked.
    Infeasible,
    /// Not in the state that things are in on this node.
    Unfit,
}

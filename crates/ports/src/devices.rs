//! Devices that plugins offer: the plugins, as whoever keeps the book of devices calls them, and the
//! devices of pods, as their workers ask for them.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_devices::{Device, PluginId, PluginOptions, PreferredAsk};
use ferrolet_spec::PluginResources;
use ferrolet_types::{Pod, PodUid};
use k8s_openapi::api::core::v1::ResourceStatus;

use crate::Fut;

/// What becomes of plugins, in the order in which it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginNews {
    /// One is there; it lists its devices next.
    Connected {
        /// Whose devices it offers.
        resource: String,
        /// Which one.
        plugin: PluginId,
        /// What it wants to be asked.
        options: PluginOptions,
    },
    /// One lists its devices, all of them.
    Listed {
        /// Whose devices.
        resource: String,
        /// Which one.
        plugin: PluginId,
        /// By its names for them.
        devices: BTreeMap<String, Device>,
    },
    /// One is gone.
    Gone {
        /// Whose devices it offered.
        resource: String,
        /// Which one.
        plugin: PluginId,
    },
}

/// What a plugin answers to whom it gives devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAnswer {
    /// What the container gets.
    pub resources: PluginResources,
    /// The answer as it came.
    pub bytes: Vec<u8>,
}

/// A call that a plugin did not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PluginCallError(pub String);

/// Calls plugins. Each call has a deadline.
pub trait DevicePlugins: Send + Sync {
    /// Which devices go well together.
    fn preferred<'a>(
        &'a self,
        plugin: PluginId,
        ask: &'a PreferredAsk,
    ) -> Fut<'a, Result<BTreeSet<String>, PluginCallError>>;
    /// Gives devices to a container.
    fn allocate<'a>(
        &'a self,
        plugin: PluginId,
        ids: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<DeviceAnswer, PluginCallError>>;
    /// Says that a container with these devices is about to start.
    fn pre_start<'a>(
        &'a self,
        plugin: PluginId,
        ids: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<(), PluginCallError>>;
    /// Understands an answer that was kept on disk.
    fn read_answer(&self, bytes: &[u8]) -> Result<PluginResources, PluginCallError>;
}

/// Why a pod has no devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// This node cannot have the pod.
    Refused {
        /// One word.
        reason: &'static str,
        /// One sentence.
        message: String,
    },
    /// A plugin has yet to come back.
    NotYet {
        /// One word.
        reason: &'static str,
        /// One sentence.
        message: String,
    },
}

/// The devices of pods.
pub trait PodDevices: Send + Sync {
    /// Gives every container of the pod the devices it asks for. Idempotent; safe to repeat and to
    /// abandon. Containers that run have what they need.
    fn allocate<'a>(
        &'a self,
        pod: &'a Pod,
        running: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<(), DeviceError>>;
    /// What a container that is about to start gets with its devices; else why it has to wait.
    fn for_container<'a>(
        &'a self,
        uid: &'a PodUid,
        container: &'a str,
    ) -> Fut<'a, Result<PluginResources, String>>;
    /// Takes back what the pod was given. Nothing of it runs any more.
    fn release(&self, uid: &PodUid);
    /// Takes back what pods were given that are not known.
    fn retain(&self, is_known: &dyn Fn(&PodUid) -> bool);
    /// How the devices of a container feel, as its status shows it.
    fn health(&self, uid: &PodUid, container: &str) -> Vec<ResourceStatus>;
}

/// A node without device plugins.
#[derive(Clone, Copy, Debug)]
pub struct NoDevices;

impl PodDevices for NoDevices {
    fn allocate<'a>(
        &'a self,
        _: &'a Pod,
        _: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<(), DeviceError>> {
        Box::pin(async { Ok(()) })
    }

    fn for_container<'a>(
        &'a self,
        _: &'a PodUid,
        _: &'a str,
    ) -> Fut<'a, Result<PluginResources, String>> {
        Box::pin(async { Ok(PluginResources::default()) })
    }

    fn release(&self, _: &PodUid) {}

    fn retain(&self, _: &dyn Fn(&PodUid) -> bool) {}

    fn health(&self, _: &PodUid, _: &str) -> Vec<ResourceStatus> {
        Vec::new()
    }
}

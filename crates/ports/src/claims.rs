//! Dynamic resources: their drivers, as whoever keeps the book of claims calls them; the API's
//! objects about them; and the claims of pods, as their workers ask for them.

use std::collections::BTreeSet;

use ferrolet_claims::{Answer, ClaimRef, DeviceHealth, PreparedDevice};
use ferrolet_types::{Pod, PodUid};
use k8s_openapi::api::{
    core::v1::{Container, ResourceStatus},
    resource::v1::ResourceClaim,
};

use crate::{ApiError, Fut};

/// What becomes of drivers, in the order in which it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverNews {
    /// Some plugin of it can be reached.
    Usable {
        /// Its name.
        driver: String,
    },
    /// None of its plugins can be reached any more.
    Unusable {
        /// Its name.
        driver: String,
    },
    /// How all of its devices feel.
    Feels {
        /// Its name.
        driver: String,
        /// What it says.
        devices: Vec<DeviceHealth>,
    },
    /// It says no longer how they feel.
    Silent {
        /// Its name.
        driver: String,
    },
}

/// A call that a driver did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DriverCallError(pub String);

/// Calls drivers. Each call has a deadline.
pub trait ClaimDrivers: Send + Sync {
    /// True for a driver that made itself known and did not take its leave.
    fn is_registered(&self, driver: &str) -> bool;
    /// Prepares the devices of claims for containers.
    fn prepare<'a>(
        &'a self,
        driver: &'a str,
        claims: &'a [ClaimRef],
    ) -> Fut<'a, Result<Answer<Vec<PreparedDevice>>, DriverCallError>>;
    /// Takes back what was prepared for claims.
    fn unprepare<'a>(
        &'a self,
        driver: &'a str,
        claims: &'a [ClaimRef],
    ) -> Fut<'a, Result<Answer<()>, DriverCallError>>;
}

/// What the API has about dynamic resources. Every call is one request.
pub trait ClaimObjects: Send + Sync {
    /// Reads a claim.
    fn get_resource_claim<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<ResourceClaim, ApiError>>;
    /// Removes what a driver offers on this node, or all drivers.
    fn wipe_slices<'a>(&'a self, driver: Option<&'a str>) -> Fut<'a, Result<(), ApiError>>;
}

/// The claims of pods.
pub trait PodClaims: Send + Sync {
    /// Has the pod's claims prepared for a new sandbox; else what is in the way, in one sentence.
    /// Idempotent; safe to repeat and to abandon.
    fn prepare<'a>(&'a self, pod: &'a Pod) -> Fut<'a, Result<(), String>>;
    /// Makes sure that the claims are known for a sandbox that an earlier life of the agent made:
    /// asks nobody where they are.
    fn ensure<'a>(&'a self, pod: &'a Pod) -> Fut<'a, Result<(), String>>;
    /// CDI names of the devices that a container gets; else why it has to wait.
    fn cdi_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, String>;
    /// True while drivers hold something for the pod.
    fn holds(&self, uid: &PodUid) -> bool;
    /// Has everything taken back that only this pod used. Nothing of it runs any more. Idempotent;
    /// safe to repeat and to abandon.
    fn unprepare<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), String>>;
    /// All pods for which drivers hold something.
    fn holders(&self) -> BTreeSet<PodUid>;
    /// How the devices of a container feel, as its status shows it.
    fn health(&self, pod: &Pod, container: &Container) -> Vec<ResourceStatus>;
}

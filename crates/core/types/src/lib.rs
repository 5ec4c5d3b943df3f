//! The vocabulary of Ferrolet: ids, times, quantities, QoS, and typed views over the API's pod.
//!
//! Owned by nobody and used by everybody, so it depends on nothing of ours. The API's `Pod` travels
//! whole, as a shared immutable value ([`Pod`]); core reads it only through [`pod`]'s views, which
//! parse once and answer with enums. Refuses: I/O, clocks, policy.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod amounts;
mod change;
mod eviction;
pub mod hash;
pub mod hint;
mod ids;
pub mod observed;
pub mod pod;
pub mod probe;
mod qos;
mod quantity;
mod references;
mod time;
mod version;
mod volume_health;

use std::sync::Arc;

pub use amounts::{Amounts, amount, is_native_resource, parse_amounts};
pub use change::{PodChange, PodChanges, SourceUpdate, SourcedPod, annotated, edited_places};
pub use eviction::{Eviction, EvictionReason};
pub use ids::{ContainerId, ContainerName, PodKey, PodUid, SandboxId};
pub use qos::{Qos, qos_of};
pub use quantity::{Quantity, QuantityError};
pub use references::{References, references};
pub use time::{DurationError, GracePeriod, Timestamp, format_go_duration, parse_go_duration};
pub use version::{is_older, is_same};
pub use volume_health::VolumeHealthReport;

/// A pod as the API describes it, shared and immutable.
pub type Pod = Arc<k8s_openapi::api::core::v1::Pod>;

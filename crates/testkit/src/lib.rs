//! The paused world: fakes for every port, builders for pods, and the contract suites that fakes
//! and real parts share.
//!
//! One [`World`] holds what a node would hold: sandboxes, containers, images, cgroups, directories,
//! logs, volumes. The fakes ([`World::runtime`], [`World::images`], …) are doors into it, so what
//! one port does the others see. The world outlives the agent under test: drop every loop, wire
//! again on the same world, and that was a `kill -9`.
//!
//! Time comes from tokio alone: wall time is a fixed start plus what tokio's (paused) clock has
//! elapsed, and processes end when their [`Script`] says so on that clock. Refuses: expectations
//! and call counts for their own sake. Tests ask the world what is true, or its
//! [`journal`](World::journal) what happened and in which order.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod build;
mod call;
mod claims;
mod cluster;
pub mod contract;
mod control;
mod devices;
mod drivers;
mod faults;
mod files;
mod flex;
mod host;
mod images;
mod journal;
mod manifests;
mod means;
mod node_cgroups;
mod node_host;
mod objects;
mod observe;
mod packet_filter;
mod power;
mod probing;
mod pulls;
mod reclaim;
mod runtime;
mod script;
mod serving;
mod state;
mod storage;
mod streams;
#[cfg(test)]
mod tests;
mod volume_files;
mod volumes;
mod world;

pub use build::{PodBuilder, container_spec, pod, sandbox_spec};
pub use call::Call;
pub use claims::{DriverFault, FakeClaimDrivers, FakeClaimObjects, FakeClaims};
pub use cluster::{FakeClusterApi, FakeFeeds, NoServices, Request};
pub use devices::{FakeDevices, FakePlugins};
pub use drivers::{DriverState, FakeDrivers};
pub use files::{LOG_ROOT, ROOT_DIRECTORY};
pub use flex::{FakeFlex, FlexState};
pub use host::{FakeCgroups, FakeFiles, FakeNames, FakeStateFiles};
pub use images::FakeImages;
pub use journal::{Act, Entry};
pub use manifests::FakeManifests;
pub use means::{FakeAlarm, FakeCollectors, FakeMeans};
pub use node_cgroups::FakeNodeCgroups;
pub use node_host::{FakeNodeHost, roomy_node};
pub use objects::FakeObjects;
pub use packet_filter::FakePacketFilter;
pub use power::StaysUp;
pub use probing::{FakeHooks, FakeOutbound, FakeProbing};
pub use pulls::{FakeLogins, FakePullFiles};
pub use reclaim::{FakeDisk, FakeLogStore};
pub use runtime::FakeRuntime;
pub use script::Script;
pub use serving::{FakeLogs, FakeReviews, FakeRuntimeDisk, FakeStreams, FakeUsage};
pub use state::{FakeContainer, FakeSandbox};
pub use storage::{FakeMounts, FakeStorage, MountTable, StoredObjects};
pub use streams::{FakeClock, FakeEventStream, FakeEvents};
pub use volume_files::{FakeVolumeFiles, VolumesOnDisk};
pub use volumes::FakeVolumes;
pub use world::World;

//! The agent, put together: [`assemble`] takes settings and a [`Platform`] and answers with an
//! [`Agent`].
//!
//! ```text
//!  Settings ─┐   one slice for each part, none of them the whole configuration
//!            ├─► assemble ─► Agent ─► run
//!  Platform ─┘   every port as one value, real or fake
//!
//!   sources ─ changes ─► pods ◄─ hints, health ─ observe
//!      ▲                 │ ▲ ▲
//!      │                 │ │ └─ probes, volumes        reclaim, eviction ─ evictions ─► pods
//!  API's pods            ▼ │                           eviction ─ pressure ─► node
//!      └── cluster ◄── report, node        chains
//! ```
//!
//! The executable starts the agent by it, and whoever makes a platform of fakes can. Each part is
//! built by the one function `build` of its crate, which is handed its settings and the doors it
//! needs and answers with what others need of it and with a [`Part`](ferrolet_ports::Part): loops,
//! health, metrics. Servers are not parts: they look at an agent from outside, through [`Views`].
//! Refuses: adapters, configuration files, decisions.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod agent;
mod assemble;
mod cluster;
mod doors;
mod node;
mod platform;
mod settings;

pub use agent::{Agent, AgentError, Views};
pub use assemble::assemble;
pub use node::NodeSlice;
pub use platform::{ClaimDoors, ClusterDoors, DeviceDoors, Platform, PluginDoors, RuntimeDoors};
pub use settings::Settings;

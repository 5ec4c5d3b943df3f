//! The test bench: real containerd, real images, real agent processes, in a world of their own.
//!
//! `xtask`, the end-to-end tests and the benchmarks are built on this crate. It is synchronous,
//! talks to the user through `log` lines on standard error, and knows nothing of the agent's
//! insides: it starts the executable, writes manifests and looks at the result from outside.
//!
//! ```text
//! isolation::run ── outer process ── unshare(mount, pid, net) ── init (reaps) ── inner process: your closure
//!                     │ cleans and counts what is left                            │ gets a `Bench`
//!                     │                                                           ├─ parts::…   what must be installed or built
//!                     │                                                           ├─ image::…   OCI archives from local binaries
//!                     │                                                           ├─ Registry   images to be pulled, or not
//!                     │                                                           ├─ Containerd one private instance
//!                     └─ census                                                   ├─ Node       one agent on it
//!                                                                                 ├─ Cluster    a real control plane, and nodes that join it
//!                                                                                 └─ Machine    a virtual machine with cgroup v2
//! ```
//!
//! It refuses to touch anything that does not carry its run id.
#![forbid(unsafe_code)]

pub mod census;
pub mod cgroups;
pub mod cluster;
pub mod containerd;
pub mod critest;
pub mod http;
pub mod image;
pub mod isolation;
pub mod logind;
pub mod mounts;
pub mod node;
pub mod parts;
pub mod patient;
pub mod pods;
pub mod process;
pub mod registry;
pub mod stand_in;
pub mod suite;
pub mod tls;
pub mod vm;
pub mod wait;

pub use cluster::{Cluster, ClusterNode, ClusterOptions};
pub use containerd::Containerd;
pub use isolation::{Bench, CgroupView, Network};
pub use logind::Logind;
pub use node::{Node, NodeOptions};
pub use parts::{Part, Toolbox};
pub use patient::Patient;
pub use pods::{ContainerView, PodView};
pub use registry::Registry;
pub use stand_in::StandIn;
pub use tls::Tls;
pub use vm::Machine;
pub use wait::wait_until;

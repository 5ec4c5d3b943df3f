//! A real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler of one
//! Kubernetes version, with certificates of its own, inside the run's namespaces.
//!
//! ```text
//! Authority ── signs ──► the API server's, the components', the administrator's and the nodes' certificates
//! Cluster ── etcd ◄── kube-apiserver ◄── kube-controller-manager, kube-scheduler
//!    │                   ▲      ▲
//!    │ kubectl, and      │      └─ Relay ◄── ClusterNode: one agent that joined
//!    └ a proxy for reads ┘          (can be cut or frozen, so that one node loses the API server and no other)
//! ```
//!
//! The API server listens on every address of the run's network, which nobody but the run can reach
//! unless it has an uplink. Logs are files in the cluster's directory. Everything ends with the
//! run; nothing is kept between runs.

mod api;
mod audit;
mod authority;
mod bootstrap;
mod control_plane;
mod kubeconfig;
mod node;
mod programs;
mod relay;
mod watch;
mod watching;

pub use api::Api;
pub use audit::Asked;
pub use authority::{Authority, Identity};
pub use bootstrap::{Approval, BootstrapToken};
pub use control_plane::{Cluster, ClusterOptions};
pub use kubeconfig::Credential;
pub use node::{Access, ClusterNode, condition};
pub use relay::Relay;
pub use watch::{Arrival, Watch};
pub use watching::Watching;

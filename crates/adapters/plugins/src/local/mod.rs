//! gRPC services that this node offers to programs on the same machine, each on a socket of its
//! own.
//!
//! ```text
//!  pod-resources/kubelet.sock ─┐            ┌ pod_resources   v1 and v1alpha1 PodResourcesLister
//!                              ├ listen ── limit
//!  pods-api/pods-api.sock ─────┘     │      └ pods_api ─ pod_bytes   v1alpha1 Pods
//!                                authority
//! ```
//!
//! In: snapshots of the pods, what they were given, and the changes of their statuses. Out:
//! upstream's answers. Owned by the shell, which hands in the views and awaits
//! [`LocalSocket::serve`]. Refuses: policy, and changing anything.

mod authority;
mod limit;
mod listen;
mod pod_bytes;
mod pod_resources;
mod pods_api;
#[cfg(test)]
mod tests;

pub(crate) use listen::Answers;
pub use listen::LocalSocket;
pub use pod_resources::PodResources;
pub use pods_api::{PodNews, PodsApi};

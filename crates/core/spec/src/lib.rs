//! From the API's pod to what a container runtime is asked for.
//!
//! In: a pod, one of its containers, and facts about the node. Out: [`SandboxSpec`] and [`ContainerSpec`], plain values that
//! the CRI adapter only has to encode. Everything users can see of a container is decided here: names, labels and
//! annotations, hash, environment, user, limits, namespaces, DNS.
//! Refuses: I/O; knowing any wire format; deciding *when* something starts (that is `lifecycle`).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod request;

pub use request::{
    ContainerSpec, Device, DnsSpec, IdMapping, LinuxResources, Mount, NamespaceMode, Namespaces,
    PortMapping, Propagation, SandboxSpec, SeccompProfile, SecuritySpec, SelinuxLabel,
    SupplementalGroupsPolicy,
};

//! From the API's pod to what a container runtime is asked for.
//!
//! In: a pod, one of its containers, and facts about the node. Out: [`SandboxSpec`] and
//! [`ContainerSpec`], plain values that the CRI adapter only has to encode. Everything users can
//! see of a container is decided here: names, labels and annotations, hash, environment, user,
//! limits, namespaces, DNS. Refuses: I/O; knowing any wire format; deciding *when* something starts
//! (that is `lifecycle`).
//!
//! What needs I/O comes in through [`SandboxInputs`] and [`ContainerInputs`]. A worker goes through
//! these steps:
//!
//! ```text
//! sandbox:    pod_dns(pod, dns).notices -> events        sandbox_spec(pod, inputs) -> SandboxSpec
//! container:  env::needs(container) -> fetch objects     container_env(pod, container, inputs) -> env
//!             sub_paths(container, env) -> prepare each  container_spec(pod, kind, container, inputs) -> ContainerSpec
//!             hosts_file(pod, ...) -> write it           (only when `sub_paths` is not empty is the env needed before)
//! ```
//!
//! ```
//! use std::path::PathBuf;
//! use ferrolet_spec::{NodeDns, SpecSettings, SandboxInputs, sandbox_spec};
//! use k8s_openapi::api::core::v1::Pod;
//!
//! let mut pod = Pod::default();
//! pod.metadata.name = Some("web".to_owned());
//! let inputs = SandboxInputs {
//!     settings: &SpecSettings::example(),
//!     dns: &NodeDns::default(),
//!     attempt: 0,
//!     cgroup_parent: "/kubepods/besteffort/podUID".to_owned(),
//!     log_directory: PathBuf::from("/var/log/pods/default_web_UID"),
//!     runtime_handler: String::new(),
//!     user_mappings: Vec::new(),
//!     extra_groups: Vec::new(),
//! };
//! assert_eq!(sandbox_spec(&pod, &inputs)?.hostname, "web");
//! # Ok::<(), ferrolet_spec::SpecError>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod container;
pub mod dns;
pub mod env;
mod error;
pub mod expand;
mod gojson;
pub mod hash;
pub mod hosts;
mod inputs;
pub mod labels;
mod mounts;
mod names;
pub mod request;
mod sandbox;
mod security;

pub use container::{container_env, container_spec};
pub use dns::{
    NodeDns, Notice, NoticeAbout, PodDns, ResolvConf, check_resolv_conf, parse_resolv_conf, pod_dns,
};
pub use env::{EnvError, EnvObjects, Lookup, Services};
pub use error::SpecError;
pub use gojson::quote as go_quote;
pub use hash::{container_hash, container_hash_text};
pub use hosts::{Hostname, HostnameError, hosts_file, node_hosts_file, pod_hostname};
pub use inputs::{
    ContainerInputs, ImageUser, PluginResources, SandboxInputs, SpecSettings, VolumeSource,
};
pub use mounts::{MountError, sub_paths};
pub use names::qualified_name_fault;
pub use request::{
    ContainerSpec, Device, DnsSpec, IdMapping, LinuxResources, Mount, MountedImage, NamespaceMode,
    Namespaces, PortMapping, Propagation, SandboxSpec, SeccompProfile, SecuritySpec, SelinuxLabel,
    SupplementalGroupsPolicy,
};
pub use sandbox::sandbox_spec;
pub use security::SecurityError;

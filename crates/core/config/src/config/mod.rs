//! The configuration as meant: typed, validated, and without sentinels.
//!
//! Owner: the composition root, which hands each part of the program its own section. In: a
//! [`RawConfig`] with defaults filled in and the feature gates. Out: [`Config`], or every fault at
//! once. A section reads its fields and checks its rules in the same place, so a value that exists
//! is a value that is right. Rules that need to know the host are in [`Config::check_host`],
//! because this crate does not look at hosts.

mod cgroups;
mod eviction;
mod images;
mod kernel;
mod node;
mod observability;
mod reader;
mod reservations;
mod resources;
mod runtime;
mod server;
mod shutdown;
mod sources;
mod syntax;
mod tls;
mod volumes;

pub use cgroups::{CgroupDriver, Cgroups, SwapBehavior};
pub use eviction::{Eviction, Signal, Threshold, ThresholdValue};
pub use images::{CredentialVerification, ImageCollection, Images, PullConcurrency};
pub use kernel::{HairpinMode, Iptables, Kernel};
pub use node::{ApiClients, Dns, EventRates, Node, Taint, TaintEffect};
pub use observability::{LogFormat, LogOutput, Logging, Tracing, VerbosityRule};
pub use reservations::{Enforcement, MemoryReservation, Reservations, Reserved};
pub use resources::{
    CpuManagerPolicy, MemoryManagerPolicy, MemoryReservationPolicy, Resources, TopologyPolicy,
    TopologyScope,
};
pub(crate) use runtime::EMBEDDED;
pub use runtime::{ContainerLogs, Endpoint, Runtime};
pub use server::{Authentication, Authorization, AuthorizationMode, Server, WebhookCache};
pub use shutdown::{Shutdown, ShutdownStep};
pub use sources::Sources;
pub use tls::{Tls, TlsVersion};
pub use volumes::{ChangeDetection, Volumes};

pub(crate) use syntax::{is_label_value, is_qualified_name};

use crate::{FeatureGates, FieldError, RawConfig};
use reader::Reader;

/// The version of the control-group hierarchy that the host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One tree per controller.
    V1,
    /// The unified tree.
    V2,
}

/// Everything the node agent can be told, section by section.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where pods come from besides the API server.
    pub sources: Sources,
    /// What listens, and how.
    pub server: Server,
    /// Who may talk to the server, as whom.
    pub authentication: Authentication,
    /// What they may do.
    pub authorization: Authorization,
    /// Certificates and protocol of the server.
    pub tls: Tls,
    /// How this node presents itself to the cluster.
    pub node: Node,
    /// How pods resolve names.
    pub dns: Dns,
    /// How fast events are sent.
    pub events: EventRates,
    /// How we talk to the API server.
    pub api: ApiClients,
    /// The container runtime.
    pub runtime: Runtime,
    /// Files that containers write their output to.
    pub container_logs: ContainerLogs,
    /// Pulling and collecting images.
    pub images: Images,
    /// The control-group tree.
    pub cgroups: Cgroups,
    /// CPU, memory and topology assignment.
    pub resources: Resources,
    /// What is kept back from pods.
    pub reservations: Reservations,
    /// When pods are put out.
    pub eviction: Eviction,
    /// How pods end when the node goes down.
    pub shutdown: Shutdown,
    /// Volumes and the objects behind them.
    pub volumes: Volumes,
    /// Kernel settings, swap, sysctls, iptables.
    pub kernel: Kernel,
    /// Our own log.
    pub logging: Logging,
    /// Traces; none when off.
    pub tracing: Option<Tracing>,
    /// Which optional behaviours are on.
    pub gates: FeatureGates,
}

impl Config {
    /// Reads and checks everything. The second half of the success is remarks for the log.
    pub fn from_raw(
        raw: &RawConfig,
        gates: &FeatureGates,
    ) -> Result<(Self, Vec<String>), Vec<FieldError>> {
        let reader = Reader::new(raw, gates);
        let config = Self {
            sources: sources::read(&reader),
            server: server::read(&reader),
            authentication: server::read_authentication(&reader),
            authorization: server::read_authorization(&reader),
            tls: tls::read(&reader),
            node: node::read(&reader),
            dns: node::read_dns(&reader),
            events: node::read_events(&reader),
            api: node::read_api(&reader),
            runtime: runtime::read(&reader),
            container_logs: runtime::read_container_logs(&reader),
            images: images::read(&reader),
            cgroups: cgroups::read(&reader),
            resources: resources::read(&reader),
            reservations: reservations::read(&reader),
            eviction: eviction::read(&reader),
            shutdown: shutdown::read(&reader),
            volumes: volumes::read(&reader),
            kernel: kernel::read(&reader),
            logging: observability::read_logging(&reader),
            tracing: observability::read_tracing(&reader),
            gates: gates.clone(),
        };
        let (faults, warnings) = reader.finish();
        if faults.is_empty() { Ok((config, warnings)) } else { Err(faults) }
    }

    /// The rules that depend on the host's control groups; called once the shell has looked.
    pub fn check_host(&self, version: CgroupVersion) -> Result<(), Vec<FieldError>> {
        let mut faults = Vec::new();
        if version == CgroupVersion::V1 {
            if self.cgroups.refuse_v1 {
                faults.push(FieldError::at(
                    "failCgroupV1",
                    true,
                    "this host uses cgroup v1, which is refused",
                ));
            }
            if self.cgroups.single_process_oom_kill == Some(false) {
                faults.push(FieldError::at(
                    "singleProcessOOMKill",
                    false,
                    "must not be false on a cgroup v1 host",
                ));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

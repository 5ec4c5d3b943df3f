//! Gates of the kubelet that this agent does not look at, and how it behaves all the same.
//!
//! The rest of the kubelet's gates are read somewhere: a test of the executable looks for the place.
//! Gates of other programs (API server, scheduler, controllers) are taken and mean nothing to a
//! kubelet, as upstream has it. Building a gate means taking it out of here.

use super::FeatureGates;

/// Why a gate that is set makes no difference here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The behaviour is always there.
    AlwaysOn,
    /// The behaviour is not built.
    NotBuilt,
    /// It is about the insides of upstream's program, or about another platform; the reason says
    /// which.
    Meaningless(&'static str),
}

use Unread::{AlwaysOn, Meaningless, NotBuilt};

const CLIENT: &str = "about caches inside upstream's client library";
const WINDOWS: &str = "for Windows";

/// Gates that nothing here reads, sorted by name.
#[rustfmt::skip]
pub const UNREAD: &[(&str, Unread)] = &[
    ("AtomicFIFO", Meaningless(CLIENT)),
    ("AtomicWriteVolumeUserFields", NotBuilt),
    ("CRIListStreaming", NotBuilt),
    ("ChangeContainerStatusOnKubeletRestart", NotBuilt),
    ("ClientsAllowCBOR", NotBuilt),
    ("ClientsPreferCBOR", NotBuilt),
    ("ContextualLogging", Meaningless("about how upstream's code hands its logger on")),
    ("DRANodeAllocatableResources", NotBuilt),
    ("EventedPLEG", AlwaysOn),
    ("ImageVolumeWithDigest", NotBuilt),
    ("InPlacePodLevelResourcesVerticalScaling", AlwaysOn),
    ("InPlacePodVerticalScalingExclusiveCPUs", NotBuilt),
    ("InPlacePodVerticalScalingExclusiveMemory", NotBuilt),
    ("InPlacePodVerticalScalingMemoryBackedVolumes", NotBuilt),
    ("InPlacePodVerticalScalingSchedulerPreemption", NotBuilt),
    ("InformerResourceVersion", Meaningless(CLIENT)),
    ("KubeletSeparateDiskGC", AlwaysOn),
    ("KubeletServiceAccountTokenForCredentialProviders", AlwaysOn),
    ("LoggingBetaOptions", Meaningless("the options it opens are open")),
    ("NativeHistograms", NotBuilt),
    ("PodAndContainerStatsFromCRI", NotBuilt),
    ("PodLevelResourceManagers", NotBuilt),
    ("RuntimeClassInImageCriApi", NotBuilt),
    ("TopologyManagerPolicyAlphaOptions", NotBuilt),
    ("TopologyManagerPolicyBetaOptions", NotBuilt),
    ("UserNamespacesHostNetworkSupport", NotBuilt),
    ("VolumeBindMountOptions", NotBuilt),
    ("WatchListClient", NotBuilt),
    ("WindowsCPUAndMemoryAffinity", Meaningless(WINDOWS)),
    ("WindowsGracefulNodeShutdown", Meaningless(WINDOWS)),
];

/// Why setting this gate makes no difference; `None` for one that is read, and for one of another
/// program.
pub(crate) fn unread(name: &str) -> Option<Unread> {
    UNREAD.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
}

/// One remark for all gates that are set to something this agent does not do.
pub(super) fn remark(gates: &FeatureGates) -> Option<String> {
    let asked = gates.changed.iter().filter_map(|(name, on)| match (unread(name)?, *on) {
        (AlwaysOn, false) => Some(format!("{name}=false (always on here)")),
        (NotBuilt, true) => Some(format!("{name}=true (not built yet)")),
        // What is not built is off already.
        (NotBuilt, false) | (AlwaysOn, true) | (Meaningless(_), _) => None,
    });
    let asked: Vec<String> = asked.collect();
    (!asked.is_empty())
        .then(|| format!("feature gates that are set and have no effect: {}", asked.join(", ")))
}

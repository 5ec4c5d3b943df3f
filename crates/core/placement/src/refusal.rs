//! Why a pod is not taken for want of a place, in upstream's words.

use ferrolet_resources::Rejection;

/// Why a container does not get what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What it asks for cannot come from one part of the machine.
    #[error("Resources cannot be allocated with Topology locality")]
    TopologyAffinity,
    /// It asks for parts of cores.
    #[error(
        "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
    )]
    PartOfCore {
        /// How many processors it asks for.
        requested: usize,
        /// How many a core has.
        per_core: usize,
    },
    /// Too few whole cores are free.
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, requested CPUs = {requested}, CPUs per core = {per_core}"
    )]
    TooFewCores {
        /// How many processors of whole cores are free.
        available: usize,
        /// How many it asks for.
        requested: usize,
        /// How many a core has.
        per_core: usize,
    },
    /// Anything else.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Unexpected(String),
}

impl Refusal {
    /// The word in the pod's status.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TopologyAffinity => "TopologyAffinityError",
            Self::PartOfCore { .. } | Self::TooFewCores { .. } => "SMTAlignmentError",
            Self::Unexpected(_) => "UnexpectedAdmissionError",
        }
    }

    /// As the admission chain says it.
    pub fn rejection(&self) -> Rejection {
        Rejection { reason: self.reason().to_owned(), message: self.to_string() }
    }
}

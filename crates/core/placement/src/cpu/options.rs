//! The options of the static policy.

use std::collections::BTreeMap;

use crate::options::{OptionError, parse_bool};

const FULL_CORES: &str = "full-pcpus-only";
const ACROSS_NUMA: &str = "distribute-cpus-across-numa";
const BY_SOCKET: &str = "align-by-socket";
const ACROSS_CORES: &str = "distribute-cpus-across-cores";
const STRICT: &str = "strict-cpu-reservation";
const BY_CACHE: &str = "prefer-align-cpus-by-uncorecache";

/// How the static policy chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Whole cores only (`full-pcpus-only`).
    pub has_full_cores_only: bool,
    /// Spread over NUMA nodes (`distribute-cpus-across-numa`).
    pub is_across_numa: bool,
    /// A socket counts where a NUMA node would (`align-by-socket`).
    pub is_aligned_by_socket: bool,
    /// Spread over cores (`distribute-cpus-across-cores`).
    pub is_across_cores: bool,
    /// Reserved processors are not shared either (`strict-cpu-reservation`).
    pub is_reservation_strict: bool,
    /// From as few shared caches as possible (`prefer-align-cpus-by-uncorecache`).
    pub is_aligned_by_cache: bool,
}

/// Which unfinished options may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionGates {
    /// `CPUManagerPolicyAlphaOptions`.
    pub alpha: bool,
    /// `CPUManagerPolicyBetaOptions`.
    pub beta: bool,
}

impl CpuOptions {
    /// Reads the configuration's options.
    pub fn parse(
        options: &BTreeMap<String, String>,
        gates: OptionGates,
    ) -> Result<Self, OptionError> {
        let mut chosen = Self::default();
        for (name, value) in options {
            let (field, gate) = match name.as_str() {
                FULL_CORES => (&mut chosen.has_full_cores_only, None),
                STRICT => (&mut chosen.is_reservation_strict, None),
                BY_CACHE => (&mut chosen.is_aligned_by_cache, None),
                ACROSS_NUMA => (&mut chosen.is_across_numa, Some(("Beta", gates.beta))),
                BY_SOCKET => (&mut chosen.is_aligned_by_socket, Some(("Alpha", gates.alpha))),
                ACROSS_CORES => (&mut chosen.is_across_cores, Some(("Alpha", gates.alpha))),
                _ => return Err(OptionError::UnknownCpu(name.clone())),
            };
            if let Some((stage, false)) = gate {
                return Err(OptionError::Gated { stage, name: name.clone() });
            }
            *field = parse_bool(name, value)?;
        }
        let clashes = [
            (chosen.has_full_cores_only && chosen.is_across_cores, FULL_CORES, ACROSS_CORES),
            (chosen.is_across_numa && chosen.is_across_cores, ACROSS_NUMA, ACROSS_CORES),
            (chosen.is_aligned_by_cache && chosen.is_across_cores, BY_CACHE, ACROSS_CORES),
            (chosen.is_aligned_by_cache && chosen.is_across_numa, BY_CACHE, ACROSS_NUMA),
        ];
        match clashes.into_iter().find(|(is_clash, ..)| *is_clash) {
            Some((_, one, two)) => Err(OptionError::Together(one, two)),
            None => Ok(chosen),
        }
    }
}

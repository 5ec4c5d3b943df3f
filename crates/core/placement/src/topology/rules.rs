//! How the topology manager is told to judge: policy, scope, options, and the machine's nodes.

use std::{cmp::Ordering, collections::BTreeMap};

use ferrolet_node::MachineTopology;

use super::NumaMask;
use crate::options::{OptionError, parse_bool};

/// The most nodes that upstream judges without being told to.
const DEFAULT_NODES: usize = 8;

/// How strictly resources of a container or pod are to come from one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyPolicy {
    /// Nobody looks.
    None,
    /// The best is taken, whatever it is.
    BestEffort,
    /// Only what cannot be better is taken.
    Restricted,
    /// Everything comes from one node.
    SingleNumaNode,
}

impl TopologyPolicy {
    /// Reads the configuration's word.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "none" => Self::None,
            "best-effort" => Self::BestEffort,
            "restricted" => Self::Restricted,
            "single-numa-node" => Self::SingleNumaNode,
            _ => return None,
        })
    }

    /// The configuration's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }
}

/// What resources are aligned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyScope {
    /// Each container by itself.
    Container,
    /// All containers of a pod together.
    Pod,
}

impl TopologyScope {
    /// Reads the configuration's word.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "container" => Self::Container,
            "pod" => Self::Pod,
            _ => return None,
        })
    }
}

/// Why the topology manager cannot work on this machine, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyRulesError {
    /// An option.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The machine is too large.
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyNodes(usize),
    /// Nearness matters and is not known.
    #[error("cannot discover NUMA topology: error getting NUMA distances from cadvisor")]
    NoDistances,
}

/// How hints are judged.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologyRules {
    /// The policy.
    pub policy: TopologyPolicy,
    /// The scope.
    pub scope: TopologyScope,
    all: NumaMask,
    /// Distances by node and node, where they matter.
    distances: Option<BTreeMap<(u32, u32), u64>>,
}

impl TopologyRules {
    /// The rules for a machine. Options are not read under the policy `none`, as upstream does not.
    pub fn new(
        policy: TopologyPolicy,
        scope: TopologyScope,
        options: &BTreeMap<String, String>,
        machine: &MachineTopology,
    ) -> Result<Self, TopologyRulesError> {
        let all = machine.nodes.iter().map(|node| node.id).collect();
        if policy == TopologyPolicy::None {
            return Ok(Self { policy, scope, all, distances: None });
        }
        let (mut is_closest, mut most_nodes) = (false, DEFAULT_NODES);
        for (name, value) in options {
            match name.as_str() {
                "prefer-closest-numa-nodes" => is_closest = parse_bool(name, value)?,
                "max-allowable-numa-nodes" => most_nodes = parse_nodes(name, value)?,
                _ => return Err(OptionError::UnknownTopology(name.clone()).into()),
            }
        }
        // A mask has 64 bits, here and upstream.
        let is_beyond = machine.nodes.iter().any(|node| node.id >= 64);
        if machine.nodes.len() > most_nodes || is_beyond {
            return Err(TopologyRulesError::TooManyNodes(most_nodes.min(64)));
        }
        let distances = is_closest.then(|| distances(machine)).transpose()?;
        Ok(Self { policy, scope, all, distances })
    }

    /// Every node.
    pub fn all(&self) -> NumaMask {
        self.all
    }

    /// Which of two sets of nodes fits better: fewer nodes, then nearer ones where that is asked
    /// for, then lower numbers. Under `single-numa-node` nearness says nothing.
    pub(super) fn compare(&self, one: NumaMask, two: NumaMask) -> Ordering {
        let by_count = one.count().cmp(&two.count());
        let by_number = one.bits().cmp(&two.bits());
        match (&self.distances, self.policy) {
            (None, _) | (_, TopologyPolicy::SingleNumaNode) => by_count.then(by_number),
            (Some(distances), _) => {
                let far = |nodes| average(distances, nodes);
                by_count.then_with(|| far(one).total_cmp(&far(two))).then(by_number)
            }
        }
    }
}

fn parse_nodes(name: &str, value: &str) -> Result<usize, OptionError> {
    let number: i64 = value
        .parse()
        .map_err(|_| OptionError::Number { name: name.to_owned(), value: value.to_owned() })?;
    let number = usize::try_from(number).unwrap_or(0);
    if number < DEFAULT_NODES {
        return Err(OptionError::TooFewNodes { name: name.to_owned(), least: DEFAULT_NODES });
    }
    Ok(number)
}

fn distances(machine: &MachineTopology) -> Result<BTreeMap<(u32, u32), u64>, TopologyRulesError> {
    let mut all = BTreeMap::new();
    for node in &machine.nodes {
        let given = node.distances.as_ref().ok_or(TopologyRulesError::NoDistances)?;
        for (other, distance) in machine.nodes.iter().zip(given) {
            all.insert((node.id, other.id), *distance);
        }
    }
    Ok(all)
}

#[expect(clippy::cast_precision_loss, reason = "upstream averages in floating point too")]
fn average(distances: &BTreeMap<(u32, u32), u64>, nodes: NumaMask) -> f64 {
    let pairs = nodes.iter().flat_map(|one| nodes.iter().map(move |two| (one, two)));
    let far = pairs.map(|pair| distances.get(&pair).copied().unwrap_or(0) as f64);
    far.sum::<f64>() / f64::from(nodes.count().pow(2)).max(1.0)
}

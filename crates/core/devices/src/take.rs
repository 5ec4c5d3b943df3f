//! Which devices a container gets: upstream's order of preference, and its words when there are
//! none.
//!
//! Devices of init containers come first, then those that the plugin prefers, then those close to
//! the wanted NUMA nodes, then the rest; among equals the first by name, so that the same question
//! has the same answer. Asking the plugin takes a while, so the choice is made in two halves.

use std::collections::BTreeSet;

use ferrolet_types::PodUid;

use crate::{
    Allocation, DeviceBook,
    book::{NO_NUMA_NODE, Resource},
};

/// What one container needs of one resource.
#[derive(Clone, Copy, Debug)]
pub struct Need<'a> {
    /// Whose container.
    pub uid: &'a PodUid,
    /// Which one.
    pub container: &'a str,
    /// Of what.
    pub resource: &'a str,
    /// How many.
    pub n: usize,
    /// What earlier containers of the pod will not need any more.
    pub reusable: &'a BTreeSet<String>,
    /// NUMA nodes that the pod's resources are aligned to; `None` where nobody aligns them.
    pub affinity: Option<&'a BTreeSet<i64>>,
    /// The container runs: it has what it needs, and nothing could be changed about it.
    pub is_running: bool,
}

/// Why a container does not get devices, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No plugin offers the resource, or none has come back after a restart.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// Its plugin has no healthy device, or lists none.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    /// A device that the container has is not well.
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    Unhealthy(String),
    /// A container asks for another number than it once got.
    #[error(
        "pod {uid:?} container {container:?} changed request for resource {resource:?} from {had} to {wanted}"
    )]
    Changed {
        /// Whose container.
        uid: String,
        /// Which.
        container: String,
        /// Of what.
        resource: String,
        /// What it has.
        had: usize,
        /// What it asks for.
        wanted: usize,
    },
    /// Others have them.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    Unavailable {
        /// Of what.
        resource: String,
        /// How many were still needed.
        requested: usize,
        /// How many are free.
        available: usize,
    },
    /// Fewer than needed could be found.
    #[error(
        "unexpectedly allocated less resources than required. Requested: {required}, Got: {got}"
    )]
    TooFew {
        /// How many were needed.
        required: usize,
        /// How many were found.
        got: usize,
    },
}

impl Refusal {
    /// True when the plugin's return may cure it: a pod that owns such devices can wait for that.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unregistered(_) | Self::NoneHealthy(_) | Self::Unhealthy(_) => true,
            Self::Changed { .. } | Self::Unavailable { .. } | Self::TooFew { .. } => false,
        }
    }
}

/// A question to the plugin: which of these go well together?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferredAsk {
    /// Those to choose from.
    pub available: BTreeSet<String>,
    /// Those that are chosen already.
    pub must_include: BTreeSet<String>,
    /// How many in all.
    pub size: usize,
}

/// Half a choice: what is certain, and where the rest may come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    required: usize,
    taken: BTreeSet<String>,
    /// What the plugin may choose from.
    preferred_from: BTreeSet<String>,
    /// Where the rest comes from, the better first.
    rest: Vec<BTreeSet<String>>,
    ask: Option<PreferredAsk>,
}

impl DeviceBook {
    /// What a container needs besides what it has; `None` when it needs nothing.
    pub fn need(&self, need: &Need<'_>) -> Result<Option<Choice>, Refusal> {
        let resource = need.resource.to_owned();
        let had = self.allocation(need.uid, need.container, need.resource);
        let had = had.map(Allocation::devices);
        if let Some(had) = had.as_ref().filter(|had| had.len() != need.n) {
            return Err(Refusal::Changed {
                uid: need.uid.to_string(),
                container: need.container.to_owned(),
                resource,
                had: had.len(),
                wanted: need.n,
            });
        }
        if need.is_running {
            return Ok(None);
        }
        let Some(known) = self.resources.get(need.resource) else {
            return Err(Refusal::Unregistered(resource));
        };
        let healthy = known.healthy();
        if healthy.is_empty() {
            return Err(Refusal::NoneHealthy(resource));
        }
        match had {
            Some(had) if !had.is_subset(&healthy) => Err(Refusal::Unhealthy(resource)),
            Some(_) => Ok(None),
            None => self.choose(need, known, &healthy).map(Some),
        }
    }

    /// Whether a container may start with what it has of a resource. What an earlier life of the
    /// agent gave it waits for the plugin to be back and to say that it is well; else the plugin
    /// only has to be known.
    pub fn check_start(
        &self,
        uid: &PodUid,
        container: &str,
        resource: &str,
    ) -> Result<(), Refusal> {
        let Some(had) = self.allocation(uid, container, resource) else {
            return Ok(());
        };
        if !had.is_recalled {
            return match self.resources.contains_key(resource) {
                true => Ok(()),
                false => Err(Refusal::Unregistered(resource.to_owned())),
            };
        }
        let need = Need {
            uid,
            container,
            resource,
            n: had.devices().len(),
            reusable: &BTreeSet::new(),
            affinity: None,
            is_running: false,
        };
        self.need(&need).map(drop)
    }

    fn choose(
        &self,
        need: &Need<'_>,
        known: &Resource,
        healthy: &BTreeSet<String>,
    ) -> Result<Choice, Refusal> {
        let mut choice = Choice {
            required: need.n,
            taken: BTreeSet::new(),
            preferred_from: BTreeSet::new(),
            rest: Vec::new(),
            ask: None,
        };
        choice.take(need.reusable);
        if choice.is_complete() {
            return Ok(choice);
        }
        let in_use = self.in_use(need.resource);
        let available: BTreeSet<String> = healthy.difference(&in_use).cloned().collect();
        if available.len() < choice.n_missing() {
            return Err(Refusal::Unavailable {
                resource: need.resource.to_owned(),
                requested: choice.n_missing(),
                available: available.len(),
            });
        }
        let [aligned, unaligned, elsewhere] = by_affinity(known, &available, need.affinity);
        if choice.n_missing() < aligned.len() {
            choice.may_prefer(&aligned);
            choice.rest = vec![aligned];
            return Ok(choice);
        }
        choice.take(&aligned);
        if !choice.is_complete() {
            choice.may_prefer(&available);
            choice.rest = vec![unaligned, elsewhere];
        }
        Ok(choice)
    }
}

impl Choice {
    /// What to ask the plugin, where it likes to be asked; nothing when all is certain.
    pub fn ask(&self) -> Option<&PreferredAsk> {
        self.ask.as_ref()
    }

    /// The devices, with what the plugin prefers; what it has no business naming is left out.
    pub fn settle(mut self, preferred: &BTreeSet<String>) -> Result<BTreeSet<String>, Refusal> {
        let allowed: BTreeSet<String> =
            preferred.intersection(&self.preferred_from).cloned().collect();
        self.take(&allowed);
        for from in std::mem::take(&mut self.rest) {
            self.take(&from);
        }
        if self.is_complete() {
            return Ok(self.taken);
        }
        Err(Refusal::TooFew { required: self.required, got: self.taken.len() })
    }

    fn take(&mut self, from: &BTreeSet<String>) {
        let n_missing = self.n_missing();
        let new: Vec<String> = from.difference(&self.taken).take(n_missing).cloned().collect();
        self.taken.extend(new);
    }

    fn n_missing(&self) -> usize {
        self.required - self.taken.len()
    }

    fn is_complete(&self) -> bool {
        self.n_missing() == 0
    }

    fn may_prefer(&mut self, from: &BTreeSet<String>) {
        self.preferred_from = from.clone();
        self.ask = Some(PreferredAsk {
            available: from.union(&self.taken).cloned().collect(),
            must_include: self.taken.clone(),
            size: self.required,
        });
    }
}

/// Free devices close to the wanted NUMA nodes, close to others, and close to none. Without a wish,
/// or where no device says where it stands, all are alike.
fn by_affinity(
    known: &Resource,
    available: &BTreeSet<String>,
    affinity: Option<&BTreeSet<i64>>,
) -> [BTreeSet<String>; 3] {
    let has_topology = known.devices.values().any(|it| !it.numa_nodes.is_empty());
    let Some(affinity) = affinity.filter(|_| has_topology) else {
        return [BTreeSet::new(), BTreeSet::new(), available.clone()];
    };
    let nodes_of = |id: &String| {
        let nodes = known.devices.get(id).map(|it| it.numa_nodes.clone()).unwrap_or_default();
        if nodes.is_empty() { vec![NO_NUMA_NODE] } else { nodes }
    };
    let mut lists = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
    for id in available {
        let nodes = nodes_of(id);
        let list = if nodes.iter().any(|node| affinity.contains(node)) {
            0
        } else if nodes.iter().any(|node| *node != NO_NUMA_NODE) {
            1
        } else {
            2
        };
        lists[list].insert(id.clone());
    }
    lists
}

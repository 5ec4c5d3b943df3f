//! Feature gates as a value: which of Kubernetes' optional behaviours are on in this process.
//!
//! Owner: whoever loaded the configuration; everybody else gets a shared reference. In: `name=bool`
//! pairs from files and flags. Out: [`FeatureGates`]. Refuses unknown names, locked gates set to
//! the other value, and a gate that is on while one it depends on is off. There is no global
//! registry and no way to change a gate after start.

mod effect;
mod table;

use std::collections::BTreeMap;

use crate::{FieldError, suggest};

pub use effect::{UNREAD, Unread};

/// How settled a gate's behaviour is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// New, off unless asked for.
    Alpha,
    /// Usually on, may still change.
    Beta,
    /// Settled; the gate itself will go away.
    Ga,
    /// The behaviour is on its way out.
    Deprecated,
}

impl Stage {
    /// The word upstream uses in the `stage` label of `kubernetes_feature_enabled`; empty for
    /// settled gates.
    pub fn label(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

/// Whether a gate may be moved away from its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It may be set either way.
    Free,
    /// Only the default is accepted.
    Fixed,
}

/// One known gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name, as in `featureGates`.
    pub name: &'static str,
    /// Its state when nobody says anything.
    pub default: bool,
    /// How settled it is.
    pub stage: Stage,
    /// The release in which it got this state.
    pub since: &'static str,
    /// Whether it can be changed.
    pub lock: Lock,
}

/// Turns all alpha gates that are not named on or off.
const ALL_ALPHA: &str = "AllAlpha";
/// Turns all beta gates that are not named on or off.
const ALL_BETA: &str = "AllBeta";

/// The state of every known gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// Only the gates whose state differs from the default.
    changed: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// Every known gate, sorted by name.
    pub fn known() -> &'static [Gate] {
        table::GATES
    }

    /// Applies the given settings to the defaults, or reports every fault in them.
    pub fn from_settings(settings: &BTreeMap<String, bool>) -> Result<Self, Vec<FieldError>> {
        let mut faults = Vec::new();
        let mut gates = Self::default();
        for (group, stage) in [(ALL_ALPHA, Stage::Alpha), (ALL_BETA, Stage::Beta)] {
            if let Some(&on) = settings.get(group) {
                let free = table::GATES
                    .iter()
                    .filter(|gate| gate.stage == stage && gate.lock == Lock::Free);
                free.for_each(|gate| gates.set(gate, on));
            }
        }
        for (name, &on) in
            settings.iter().filter(|(name, _)| *name != ALL_ALPHA && *name != ALL_BETA)
        {
            match find(name) {
                None => faults.push(fault(name, on, unknown(name))),
                Some(gate) if gate.lock == Lock::Fixed && gate.default != on => {
                    let state = if gate.default { "on" } else { "off" };
                    faults.push(fault(
                        name,
                        on,
                        format!("this feature gate is locked {state} since {}", gate.since),
                    ));
                }
                Some(gate) => gates.set(gate, on),
            }
        }
        faults.extend(gates.broken_dependencies());
        if faults.is_empty() { Ok(gates) } else { Err(faults) }
    }

    /// Whether a gate is on. A name nobody knows is off.
    pub fn enabled(&self, name: &str) -> bool {
        self.changed
            .get(name)
            .copied()
            .unwrap_or_else(|| find(name).is_some_and(|gate| gate.default))
    }

    /// Every gate with its present state, for metrics.
    pub fn states(&self) -> impl Iterator<Item = (&'static Gate, bool)> {
        table::GATES.iter().map(|gate| (gate, self.enabled(gate.name)))
    }

    fn set(&mut self, gate: &'static Gate, on: bool) {
        if on == gate.default {
            self.changed.remove(gate.name);
        } else {
            self.changed.insert(gate.name, on);
        }
    }

    fn broken_dependencies(&self) -> impl Iterator<Item = FieldError> {
        let pairs = table::DEPENDENCIES
            .iter()
            .flat_map(|(name, needs)| needs.iter().map(move |need| (*name, *need)));
        pairs.filter(|(name, need)| self.enabled(name) && !self.enabled(need)).map(
            |(name, need)| {
                fault(name, true, format!("needs the feature gate {need}, which is off"))
            },
        )
    }
}

/// Remarks about settings that work today and will be refused one day, settled and deprecated
/// gates, and about those that make no difference here.
pub(crate) fn remarks(settings: &BTreeMap<String, bool>, gates: &FeatureGates) -> Vec<String> {
    let known = settings.keys().filter_map(|name| find(name));
    let settled = known.filter_map(|gate| match gate.stage {
        Stage::Ga => Some(format!(
            "feature gate {} is settled (GA) and will disappear; stop setting it",
            gate.name
        )),
        Stage::Deprecated => {
            Some(format!("feature gate {} is deprecated and will disappear", gate.name))
        }
        Stage::Alpha | Stage::Beta => None,
    });
    settled.chain(effect::remark(gates)).collect()
}

fn find(name: &str) -> Option<&'static Gate> {
    let index = table::GATES.binary_search_by(|gate| gate.name.cmp(name)).ok()?;
    table::GATES.get(index)
}

fn fault(name: &str, on: bool, message: String) -> FieldError {
    FieldError::at(format!("featureGates.{name}"), on, message)
}

fn unknown(name: &str) -> String {
    let names = table::GATES.iter().map(|gate| gate.name).chain([ALL_ALPHA, ALL_BETA]);
    suggest::or_suggest("unknown feature gate", name, names)
}

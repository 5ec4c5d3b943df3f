//! The topology manager: resources of one container or pod from the same part of the machine.
//!
//! Providers say where they could give something ([`ProviderHints`]); [`merge`] finds the place that
//! suits all of them and says whether the policy takes a pod with it; [`align`] walks a pod by its
//! scope and has every provider give. A provider of further resources implements [`HintProvider`].
//! Refuses: knowing what is provided.

mod align;
mod hint;
mod merge;
mod rules;

pub use align::{HintProvider, align};
pub use hint::{NumaMask, ProviderHints, TopologyHint, for_each_mask};
pub use merge::merge;
pub use rules::{TopologyPolicy, TopologyRules, TopologyRulesError, TopologyScope};

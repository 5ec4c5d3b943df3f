//! What the node agent is told, and what it makes of it.
//!
//! ```text
//! arguments ─ CommandLine::parse ─┐
//! --config text ─ RawConfig ──────┤
//! --config-dir texts ─ patches ───┴─ load ─► Loaded { flags, raw, config, warnings }  or every fault at once
//! ```
//!
//! Two stages. [`RawConfig`] is the configuration as given: all of `KubeletConfiguration` v1beta1,
//! decoded strictly, with upstream's defaults. [`Config`] is the configuration as meant: durations,
//! enums, options, every rule checked. The rest of the program sees only [`Config`], [`Flags`] and
//! [`FeatureGates`], as values.
//!
//! This crate owns names, types, defaults and rules. It reads no files, no environment and no
//! clock, and prints nothing.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod change;
mod check;
pub mod config;
mod defaults;
mod doors;
mod duration;
mod effect;
mod fault;
mod flags;
mod gates;
mod load;
mod origins;
mod raw;
mod runtime_file;
mod schema;
mod show;
mod suggest;
#[cfg(test)]
mod tests;
mod version;
mod yaml;
mod yaml_text;

pub use change::{Change, Effect, compare};
pub use check::{Finding, Severity, check};
pub use config::{CgroupVersion, Config};
pub use effect::{EFFECTIVE, MEANINGLESS_FIELDS, remarks_on_fields};
pub use fault::{FieldError, LoadError};
pub use flags::{
    CommandLine, CommandLineError, Flags, Invocation, MEANINGLESS_FLAGS, Next, Shell, Word,
    completion, ferrolet_page, flag_names, flag_values, help_text, kubelet_page, own_flag_names,
};
pub use gates::{FeatureGates, Gate, Lock, Stage, UNREAD, Unread};
pub use load::{Loaded, NamedText, effective_json, effective_yaml, load};
pub use origins::{Origin, Origins};
pub use raw::{RawConfig, field_names, is_known_field};
pub use runtime_file::{RUNTIME_FILE, RuntimeFile};
pub use show::{ShownField, shown_fields};
pub use version::{FERROLET_VERSION, KUBERNETES_VERSION, VersionFormat, version_text};

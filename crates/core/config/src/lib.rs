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

pub mod config;
mod defaults;
mod duration;
mod effect;
mod fault;
mod flags;
mod gates;
mod load;
mod raw;
mod schema;
mod suggest;
#[cfg(test)]
mod tests;
mod version;
mod yaml;

pub use config::{CgroupVersion, Config};
pub use effect::{EFFECTIVE, fields_without_effect};
pub use fault::{FieldError, LoadError};
pub use flags::{
    CommandLine, CommandLineError, Flags, Invocation, flag_names, flag_values, help_text,
};
pub use gates::{FeatureGates, Gate, Lock, Stage};
pub use load::{Loaded, NamedText, effective_json, load};
pub use raw::{RawConfig, is_known_field};
pub use version::{FERROLET_VERSION, KUBERNETES_VERSION, VersionFormat, version_text};
